//! What object stores offer, in terms that all dialects share.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use types::{ByteRange, Result, Timestamp};

/// A bucket, or what its service calls one. Keys are whole: a URL's prefix is not added to them.
///
/// Errors: `NotFound` is said of keys only, never of the bucket; `VersionChanged` where a condition does not hold;
/// `Busy` where the store asks for fewer requests; `Unavailable` where it did not answer, and may have done what it
/// was asked. Nothing is retried here.
#[async_trait]
pub trait ObjectStore: Send + Sync {
    /// The longest object that `copy` takes, and the longest range of `part_of`.
    fn copy_max(&self) -> u64 {
        u64::MAX
    }

    /// The longest object that `describe` takes.
    fn describe_max(&self) -> u64 {
        u64::MAX
    }

    /// Whether it can take a whole object into an upload without its bytes coming here, but not a range of one.
    fn composes(&self) -> bool {
        false
    }

    /// Whether parts of an upload stay until it is completed or aborted, whatever becomes of its key, and can be told by a
    /// short ETag.
    fn keeps_parts(&self) -> bool {
        false
    }

    /// What distinguishes the bucket from a later one of the same name. `None`: the store does not tell.
    async fn bucket_mark(&self) -> Result<Option<BucketMark>> {
        Ok(None)
    }

    /// How many connections have answered; always 0 where that is not known.
    fn connections(&self) -> u64 {
        0
    }

    /// `None`: no object has this key.
    async fn head(&self, key: &str) -> Result<Option<ObjectStat>>;

    /// Exactly the bytes of `range`, which is not empty, with the ETag of the contents that they are of. With
    /// `etag`, of these contents only.
    async fn get(&self, key: &str, etag: Option<&str>, range: ByteRange) -> Result<GetResult>;

    /// A page of the keys that begin with `prefix`, from `after` on (a page's `next`); only up to the next slash if
    /// `by_directory`.
    async fn list(
        &self,
        prefix: &str,
        by_directory: bool,
        after: Option<&str>,
        most: u32,
    ) -> Result<ListPage>;

    async fn put(
        &self,
        key: &str,
        data: Bytes,
        metadata: &Metadata,
        condition: Precondition<'_>,
    ) -> Result<PutResult>;

    /// No error if no object has the key. With `etag`, deletes these contents only; then a missing object may be
    /// `VersionChanged`.
    async fn delete(&self, key: &str, etag: Option<&str>) -> Result<()>;

    /// Copies at the store, with the metadata; returns the copy's ETag.
    async fn copy(&self, from: CopySource<'_>, to: &str) -> Result<String>;

    /// Replaces an object's metadata; returns its new ETag. All else that the store knows of it stays.
    async fn describe(&self, object: CopySource<'_>, metadata: &Metadata) -> Result<String>;

    async fn begin(&self, key: &str, metadata: &Metadata) -> Result<MultipartUpload>;

    /// Begins an upload that becomes a copy: with all that the store knows of the source, and its metadata unless
    /// other is given.
    async fn begin_copy(
        &self,
        from: CopySource<'_>,
        to: &str,
        metadata: Option<&Metadata>,
    ) -> Result<MultipartUpload> {
        match metadata {
            Some(metadata) => self.begin(to, metadata).await,
            None => {
                let known = self.head(from.key).await?.map(|stat| stat.metadata);
                self.begin(to, &known.unwrap_or_default()).await
            }
        }
    }

    /// Uploads a part. All parts but the last have 5 MiB at least; they may come in any order, in parallel.
    async fn part(&self, upload: &MultipartUpload, number: u32, data: Bytes) -> Result<UploadedPart>;

    /// A part that is a range of another object of this bucket. The bytes do not come here where the store can copy
    /// a range.
    async fn part_of(
        &self,
        upload: &MultipartUpload,
        number: u32,
        from: CopySource<'_>,
        range: ByteRange,
    ) -> Result<UploadedPart>;

    /// Makes the object. If the condition does not hold, the upload still exists.
    async fn complete(
        &self,
        upload: &MultipartUpload,
        parts: &[UploadedPart],
        condition: Precondition<'_>,
    ) -> Result<PutResult>;

    /// No error if the upload is over.
    async fn abort(&self, upload: &MultipartUpload) -> Result<()>;
}

/// User metadata: short texts by lower-case names.
pub type Metadata = BTreeMap<String, String>;

/// An object as a HEAD describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectStat {
    /// Bytes.
    pub size: u64,
    /// The ETag, with its quotation marks.
    pub etag: String,
    pub modified: Timestamp,
    pub metadata: Metadata,
}

/// A new object as the answer to its creation describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutResult {
    pub etag: String,
    /// `None`: only a HEAD tells it. S3 gives the time of its answer, which is later.
    pub modified: Option<Timestamp>,
}

/// An object as a listing describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedObject {
    pub key: String,
    pub size: u64,
    pub etag: String,
    pub modified: Timestamp,
    /// `None` where the store's listings do not have it.
    pub metadata: Option<Metadata>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    pub objects: Vec<ListedObject>,
    /// The common prefixes: up to the next slash, which is their last byte.
    pub prefixes: Vec<String>,
    /// Keys whose entries are incomplete or make no sense (a size of -5): each needs a HEAD.
    pub unclear: Vec<String>,
    /// The continuation token.
    pub next: Option<String>,
}

impl ListPage {
    pub fn len(&self) -> u64 {
        (self.objects.len() + self.prefixes.len() + self.unclear.len()) as u64
    }

    /// The keys of the objects.
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
pub struct GetResult {
    pub etag: String,
    /// The size of the whole object.
    pub size: u64,
    pub data: Bytes,
}

/// What distinguishes a bucket from others of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BucketMark {
    /// The time of its creation.
    Made(String),
    /// Its ETag, which also changes with its metadata or access policy.
    Etag(String),
}

/// The precondition of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition<'a> {
    Always,
    /// No object has this key.
    Absent,
    /// The object still has this ETag.
    Unchanged(&'a str),
}

impl<'a> Precondition<'a> {
    pub fn unchanged(etag: Option<&'a str>) -> Precondition<'a> {
        etag.map_or(Precondition::Always, Precondition::Unchanged)
    }
}

/// The source of a copy: an object, as long as it has this ETag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopySource<'a> {
    pub key: &'a str,
    pub etag: &'a str,
    /// Bytes.
    pub size: u64,
}

/// A multipart upload; nobody sees the object before it is completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultipartUpload {
    pub key: String,
    pub id: String,
    /// Stored with the object.
    pub metadata: Metadata,
}

/// A part that the store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadedPart {
    /// From 1.
    pub number: u32,
    pub etag: String,
}
