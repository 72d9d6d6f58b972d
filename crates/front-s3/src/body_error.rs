//! What can be wrong with the body of a request.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// The connection ended before the body did.
    Incomplete,
    /// Nothing arrived for too long.
    Stalled,
    /// The memory budget has no room for it now.
    NoRoom,
    /// It is longer than announced, or than the operation allows.
    TooLong,
    /// Its SHA-256 is not the signed one.
    WrongSha256,
    ChunkSignature,
    /// More small chunks than a body may have.
    TinyChunks,
    Malformed(&'static str),
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyError::Incomplete => f.write_str("the body ended too early"),
            BodyError::Stalled => f.write_str("the body did not come on"),
            BodyError::NoRoom => f.write_str("there is no room for the body now"),
            BodyError::TooLong => f.write_str("the body is too long"),
            BodyError::WrongSha256 => f.write_str("the body is not the one that was signed"),
            BodyError::ChunkSignature => f.write_str("a chunk is not the one that was signed"),
            BodyError::TinyChunks => f.write_str("the body comes in too many tiny chunks"),
            BodyError::Malformed(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for BodyError {}
