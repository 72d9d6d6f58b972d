//! The client against a scripted server that cuts, lies and dawdles, and against two real ones.

mod admission;
mod calls;
mod changes;
mod connections;
mod hostile;
mod limits;
mod lost_answers;
mod nested;
mod server;
mod start;
mod verifiers;
mod with_ganesha;
mod with_knfsd;
mod writes;
