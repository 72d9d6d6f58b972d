//! `forebay bench`: how far is my storage, and what does the tier buy me?

pub mod fingerprint;
pub mod quantity;
pub mod probe;
pub mod relay;
pub mod rig;
pub mod workflow;
