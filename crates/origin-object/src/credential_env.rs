//! Variables from which credentials are read, in place of this process's.

/// Variables that replace those of this process.
pub type CredentialEnv = [(&'static str, &'static str)];

/// [`CredentialEnv`], kept for when credentials are looked for anew.
pub fn owned(environment: Option<&CredentialEnv>) -> Option<Vec<(&'static str, &'static str)>> {
    environment.map(<[_]>::to_vec)
}
