//! The mount as programs use it: real kernel, real system calls, over an origin in memory that can change and fail.

mod harness;
mod lifecycle;
mod passthrough;
mod tree;
mod versions;
