//! Variables from which credentials are read, in place of this process's.

/// Variables that replace those of this process.
pub type CredentialEnv = [(&'static str, &'static str)];
