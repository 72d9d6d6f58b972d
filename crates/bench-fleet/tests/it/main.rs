//! Runs on many processes as their users meet them: under each launcher, with ranks that are lost, and with strangers.

mod ends;
mod launchers;
mod many;
mod rehearsal;
mod strangers;
