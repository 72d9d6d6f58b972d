//! `[s3]` as it is typed.

use std::path::PathBuf;

use quantity::Address;
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct S3 {
    pub listen: Option<Address>,
    /// That clients sign for.
    pub region: Option<String>,
    /// Hosts below it name buckets.
    pub domain: Option<String>,
    /// Files in PEM; both or neither.
    pub certificate: Option<PathBuf>,
    pub private_key: Option<PathBuf>,
    /// None: each directory at the top of the tree is a bucket.
    pub bucket: Vec<BucketTable>,
    pub key: Vec<KeyTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketTable {
    pub name: String,
    /// In the served tree.
    pub path: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyTable {
    pub id: String,
    #[serde(default)]
    pub secret: Option<String>,
    /// A file that holds it, and nothing else.
    #[serde(default)]
    pub secret_file: Option<PathBuf>,
    /// Names of buckets; `*`: all.
    #[serde(default)]
    pub read: Vec<String>,
    #[serde(default)]
    pub write: Vec<String>,
    /// As whom it acts in the tree.
    #[serde(default)]
    pub uid: u32,
    #[serde(default)]
    pub gid: u32,
}

/// Without the secret.
impl std::fmt::Debug for KeyTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", self.id)
    }
}
