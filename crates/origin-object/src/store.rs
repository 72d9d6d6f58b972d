//! What object stores do and tell, in words that all dialects share.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use types::{ByteRange, Result, Timestamp};

use crate::azure::Azure;
use crate::gcs::Gcs;
use crate::http::Http;
use crate::s3::S3;
use crate::sign::Environment;
use crate::url::{Config, Dialect};

/// A bucket, or what its store calls one. Keys are whole: a URL's prefix is not put in front of them.
///
/// Errors: `NotFound` is said of keys only, never of the bucket; `VersionChanged` where a condition does not hold;
/// `Busy` where the store asks for fewer requests; `Unavailable` where it did not answer, and may have done what it was
/// asked for. Nothing is tried again here.
#[async_trait]
pub trait Store: Send + Sync {
    /// Longest object that `copy` takes, and range that `part_of` does.
    fn copy_max(&self) -> u64 {
        u64::MAX
    }

    /// Longest object that `describe` takes.
    fn describe_max(&self) -> u64 {
        u64::MAX
    }

    /// Whether it takes another object into an upload without its bytes coming here, and a range of one not.
    fn joins(&self) -> bool {
        false
    }

    /// What tells the bucket from one of the same name that is made after it is removed. `None`: the store does not tell us.
    async fn bucket_mark(&self) -> Result<Option<BucketMark>> {
        Ok(None)
    }

    /// How many connections have answered; 0 for ever where that is not told.
    fn connections(&self) -> u64 {
        0
    }

    /// `None`: nothing has this key.
    async fn head(&self, key: &str) -> Result<Option<Stat>>;

    /// Exactly the bytes of `range`, which is not empty, with what the store calls the contents they are of. With `etag`
    /// of these contents only.
    async fn get(&self, key: &str, etag: Option<&str>, range: ByteRange) -> Result<Got>;

    /// A page of the keys that begin with `prefix`, from where `after` says (a page's `next`); up to the next slash only
    /// where `by_directory`.
    async fn list(&self, prefix: &str, by_directory: bool, after: Option<&str>, most: u32) -> Result<Page>;

    async fn put(
        &self,
        key: &str,
        data: Bytes,
        metadata: &Metadata,
        condition: Condition<'_>,
    ) -> Result<Made>;

    /// Without an error where nothing has the key. With `etag` these contents only; where nothing has the key, that may be
    /// `VersionChanged`.
    async fn delete(&self, key: &str, etag: Option<&str>) -> Result<()>;

    /// The copy's ETag, made by the store. The source's metadata goes with it.
    async fn copy(&self, from: Source<'_>, to: &str) -> Result<String>;

    /// Other metadata for an object that is there; its ETag then. What else the store knows of it stays.
    async fn describe(&self, object: Source<'_>, metadata: &Metadata) -> Result<String>;

    async fn begin(&self, key: &str, metadata: &Metadata) -> Result<Upload>;

    /// With what the store knows of the object that it will be a copy of, and its metadata unless other is given.
    async fn begin_copy(&self, from: Source<'_>, to: &str, metadata: Option<&Metadata>) -> Result<Upload> {
        match metadata {
            Some(metadata) => self.begin(to, metadata).await,
            None => {
                let known = self.head(from.key).await?.map(|stat| stat.metadata);
                self.begin(to, &known.unwrap_or_default()).await
            }
        }
    }

    /// Parts but for the last have 5 MiB at least, and come in any order, side by side.
    async fn part(&self, upload: &Upload, number: u32, data: Bytes) -> Result<Part>;

    /// A part that is `range` of another object of this bucket. The bytes do not come here, where the store can copy a
    /// range.
    async fn part_of(&self, upload: &Upload, number: u32, from: Source<'_>, range: ByteRange)
    -> Result<Part>;

    /// Where the condition does not hold, the upload is still there.
    async fn complete(&self, upload: &Upload, parts: &[Part], condition: Condition<'_>) -> Result<Made>;

    /// Without an error where it is over.
    async fn abort(&self, upload: &Upload) -> Result<()>;
}

/// The store that a URL names, with the credentials of this machine. Nothing is asked of it yet.
pub fn open_store(config: &Config) -> Result<Arc<dyn Store>> {
    open_store_as(config, None)
}

/// With these variables instead of the environment's.
pub fn open_store_as(config: &Config, environment: Option<&Environment>) -> Result<Arc<dyn Store>> {
    let http = Http::new()?;
    Ok(match config.dialect {
        Dialect::S3 => Arc::new(S3::new(config, http, environment)?),
        Dialect::Azure => Arc::new(Azure::new(config, http, environment)?),
        Dialect::Gcs => Arc::new(Gcs::new(config, http, environment)?),
    })
}

/// What users store with an object besides its bytes: short texts by lower-case names.
pub type Metadata = BTreeMap<String, String>;

/// An object as a look at it tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Bytes.
    pub size: u64,
    /// The store's word for these contents, with its quotation marks.
    pub etag: String,
    pub modified: Timestamp,
    pub metadata: Metadata,
}

/// A new object as the store's answer tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    pub etag: String,
    /// `None`: only a look at it tells. S3 says when it answered, which is later.
    pub modified: Option<Timestamp>,
}

/// An object as a listing tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub key: String,
    pub size: u64,
    pub etag: String,
    pub modified: Timestamp,
    /// `None` where the store's listings do not tell it.
    pub metadata: Option<Metadata>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub objects: Vec<Listed>,
    /// What keys begin with up to the next slash, which is their last byte.
    pub prefixes: Vec<String>,
    /// Keys of which the listing does not say what is to be known of an object, or nothing that makes sense (a size of -5):
    /// to be looked at singly.
    pub unclear: Vec<String>,
    /// Where the listing goes on.
    pub next: Option<String>,
}

impl Page {
    pub fn len(&self) -> u64 {
        (self.objects.len() + self.prefixes.len() + self.unclear.len()) as u64
    }

    /// Those of objects.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let listed = self.objects.iter().map(|object| object.key.as_str());
        listed.chain(self.unclear.iter().map(String::as_str))
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Bytes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    pub etag: String,
    /// Of the whole object.
    pub size: u64,
    pub data: Bytes,
}

/// What tells a bucket from others of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BucketMark {
    /// When it was made.
    Made(String),
    /// Its ETag, which is another one after a change of its metadata or its access policy, too.
    Etag(String),
}

/// When a change is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition<'a> {
    Always,
    /// Nothing has this key.
    Absent,
    /// The object still is what this names.
    Unchanged(&'a str),
}

impl<'a> Condition<'a> {
    pub fn unchanged(etag: Option<&'a str>) -> Condition<'a> {
        etag.map_or(Condition::Always, Condition::Unchanged)
    }
}

/// An object, as long as it still is what the ETag names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source<'a> {
    pub key: &'a str,
    pub etag: &'a str,
    /// Bytes.
    pub size: u64,
}

/// An object that comes in parts, and that nobody sees before it is completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    pub key: String,
    pub id: String,
    /// Stored with the object.
    pub metadata: Metadata,
}

/// A part of an upload that the store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// From 1.
    pub number: u32,
    pub etag: String,
}
