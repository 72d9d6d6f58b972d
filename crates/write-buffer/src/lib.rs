//! What was written to one file and is not all at its origin yet: which bytes, how far each has come, what is to be sent
//! next, and what readers see meanwhile. All files together are the `WriteBuffer` of `vfs`. No I/O: `vfs` takes writes in,
//! acts on the steps, and says what became of them.
//!
//! - [`BufferedFile`] (`file.rs`): the file's [`State`] under its lock, and those who wait for something of it: a write's
//!   [`Waiter`], and a reader or a change of the file's size that has it for itself ([`ExclusiveAccess`])
//! - [`State`] (`state.rs`, pure): what is to be done next, as a [`SendStep`]; size, times and version as readers see them
//! - `BufferExtents` (`extents.rs`, pure): which bytes wait, are in flight, are unstable or stored at the origin;
//!   `superseded.rs`: those that were replaced here while the origin has them in memory
//! - [`detect_foreign_write`] (`foreign_write.rs`, pure): from the answers of the origin, did anybody else change the file?
//! - [`ToldTimes`] (`told.rs`): the times that a file keeps for a while after this tier has stored it by itself
//!
//! The way of a write: `State::take` adds its bytes; `State::next_step` says [`SendStep::Send`] for full parts, and for
//! others when they are due; `BufferExtents::arrived` notes what the origin answered; when somebody waits for it to be
//! stored, [`SendStep::Commit`]; then [`SendStep::LayExact`]: the cache is given the bytes under the origin's version.
//!
//! Invariants: two parts that overlap are never in flight together. A file is [`SendStep::Over`] only when nothing of it
//! is left here. Begin with `state.rs`.

mod extents;
mod file;
mod foreign_write;
mod state;
mod superseded;
mod told;

use bytes::Bytes;
use types::ByteRange;

pub use extents::{BufferPart, Lay};
pub use file::{BufferedFile, ExclusiveAccess, Waiter};
pub use foreign_write::{WriteAck, WriteVerdict, detect_foreign_write};
pub use state::{BudgetPermit, BufferedWrite, SendLimits, SendStep, State};
pub use told::ToldTimes;

/// Where some bytes of a read are, of a file that is written `through` or `back`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadSegment {
    /// Dirty bytes, in memory.
    Dirty(Bytes),
    /// So many zeros.
    Zeros(u64),
    /// As in the clean version, which has zeros behind its end.
    Clean(ByteRange),
}
