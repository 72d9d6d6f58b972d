//! The mount as programs use it: real kernel, real system calls, over an origin in memory that can change and fail, or
//! over a directory of this machine.

mod back;
mod bytes;
mod closes;
mod deep;
mod handles;
mod harness;
mod lifecycle;
mod mixed;
mod model;
mod names;
mod passthrough;
mod tree;
mod unlinked;
mod versions;
mod wakefulness;
