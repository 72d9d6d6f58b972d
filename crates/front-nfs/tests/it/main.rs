//! The server as its clients meet it: real sockets, real and malformed calls, over an origin in memory.

mod changes;
mod client;
mod fairness;
mod malformed;
mod procedures;
mod refusals;
mod repeated;
