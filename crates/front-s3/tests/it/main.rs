//! The S3 front as its clients meet it: over TCP, with a file system over an origin in memory.

mod client;
mod fairness;
mod kept;
mod listing;
mod malformed;
mod model;
mod multipart;
mod objects;
mod served;
mod sign;
mod signatures;
