//! `forebay bench`: how far is my storage, and what does the tier buy me?

pub mod quantity;
pub mod relay;
