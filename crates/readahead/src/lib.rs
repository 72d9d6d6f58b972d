//! What will be read next? Pure: what was read goes in, what to fetch comes out.
//!
//! - [`Readers`] (`file.rs`): the readers of each file, and which bytes of it they want next. One reader's way through a
//!   file is a stream (`stream.rs`: forward, backward) or steps of equal length (`stride.rs`)
//! - [`window`]: how many bytes ahead, from the measured distance of the origin
//! - [`Directory`] (`directory.rs`): which files of a directory are read next
//!
//! `cache` asks for bytes, `vfs` for files; both fetch.

mod directory;
mod file;
mod stream;
mod stride;
pub mod window;

pub use directory::{Directory, PrefetchAccount, natural_order};
pub use file::{Readers, WHOLE_FILE_MAX};
