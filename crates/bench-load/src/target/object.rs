//! A bucket as a target: an object is a file, the part of its key up to a slash is a directory.
//!
//! A file is written as a whole: by one request where it is not larger than a part, otherwise in parts that are
//! completed at its end. One that many write is completed once, when all of them are done ([`Client::commit`]). A read
//! is a GET of the range that is asked for; names and sizes come from listings, so opening costs nothing once a
//! directory was listed. Nothing is tried again: a request that fails is a failed call.

mod file;
mod names;
mod parts;
mod upload;

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use origin_object::{Config, ObjectStore, open_store_without_spares};
use types::{Error, ErrorKind, Result};

use super::{
    CallCounter, Calls, Client, EntryKind, EntryStatus, Target, TargetAbout, TargetEntry, TargetFile,
    components, parse_size, room_for_connections, split_last, without_options,
};
use file::{BucketReader, BucketWriter};
use names::NameCache;
use upload::Upload;

use crate::locked;

/// Bytes of a part unless the URL says otherwise: what clients of S3 take.
const PART: u64 = 8 << 20;
/// A store takes parts of this size at most in one request.
const PART_MAX: u64 = 1 << 30;
/// Names of one page of a listing.
const PAGE: u32 = 1000;

pub struct ObjectTarget {
    /// Which bucket, and how it is reached.
    config: Config,
    /// Bytes of a part of what is larger than one.
    part_bytes: u64,
    shared: SharedUploads,
}

/// By key: what several clients of this process write, until it is committed.
type SharedUploads = Arc<Mutex<HashMap<String, Arc<Upload>>>>;

impl ObjectTarget {
    /// Besides what the origin's URL takes: `part`, bytes of a part (`k`, `m` and `g` allowed).
    pub fn from_url(url: &str) -> Result<Arc<ObjectTarget>> {
        // S3 refuses smaller parts than 5 MiB, but for the last; Azure's blocks and what Google composes have no least size.
        let least = if url.starts_with("s3://") { 5 << 20 } else { 64 << 10 };
        let mut part_bytes = PART;
        let rest = without_options(url, |pair| {
            let Some(value) = pair.strip_prefix("part=") else { return Ok(false) };
            let bytes = parse_size(value).filter(|bytes| (least..=PART_MAX).contains(bytes));
            part_bytes = bytes.ok_or_else(|| {
                let why = format!("{url}: part '{value}' should be from {}k to 1g", least >> 10);
                Error::new(ErrorKind::Config, "target", why)
            })?;
            Ok(true)
        })?;
        let config = Config::from_url(&rest)?;
        Ok(Arc::new(ObjectTarget { config, part_bytes, shared: SharedUploads::default() }))
    }
}

#[async_trait]
impl Target for ObjectTarget {
    /// A bucket has no end; whether it can be written shows only when it is tried.
    async fn about(&self) -> Result<TargetAbout> {
        Ok(TargetAbout { url: self.config.url(), whole_files: true, ..TargetAbout::default() })
    }

    fn room_for(&self, clients: u32) -> Result<()> {
        room_for_connections(clients, 1)
    }

    async fn client(&self, _id: u32) -> Result<Arc<dyn Client>> {
        // A store of its own has connections of its own.
        let store = open_store_without_spares(&self.config)?;
        let prefix = &self.config.prefix;
        let base = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Arc::new(Arc::new(BucketClient {
            by: Counted { store, calls: CallCounter::default() },
            base,
            part_bytes: self.part_bytes,
            names: NameCache::default(),
            shared: Arc::clone(&self.shared),
        })))
    }
}

/// A store whose calls are counted, by kind.
struct Counted {
    store: Arc<dyn ObjectStore>,
    calls: CallCounter,
}

impl Counted {
    async fn call<T>(&self, kind: &'static str, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.calls.count(kind);
        call.await
    }
}

/// The files that it opens share it.
struct BucketClient {
    by: Counted,
    /// What all keys begin with: empty, or ends with a slash.
    base: String,
    part_bytes: u64,
    names: NameCache,
    shared: SharedUploads,
}

impl BucketClient {
    fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.by.store
    }

    fn key(&self, path: &str) -> Result<String> {
        let names: Vec<&str> = components(path)?.collect();
        Ok(format!("{}{}", self.base, names.join("/")))
    }

    /// What the keys in a directory begin with.
    fn prefix(&self, path: &str) -> Result<String> {
        let key = self.key(path)?;
        Ok(if key.is_empty() || key.ends_with('/') { key } else { format!("{key}/") })
    }

    /// What is directly in a directory: objects with their sizes, and directories. `None` if there are more than `most`.
    async fn listed(&self, prefix: &str, most: usize) -> Result<Option<ListedDirectory>> {
        let (mut listed, mut after) = (ListedDirectory::default(), None);
        loop {
            let page = self.store().list(prefix, true, after.as_deref(), PAGE);
            let page = self.by.call("LIST", page).await?;
            let name = |key: &str| key.strip_prefix(prefix).unwrap_or(key).trim_end_matches('/').to_owned();
            // A key that ends with a slash is a directory's marker, and none of its names.
            let objects = page.objects.into_iter().filter(|object| !object.key.ends_with('/'));
            listed.0.extend(objects.map(|object| (name(&object.key), object.size)));
            listed.1.extend(page.prefixes.iter().map(|prefix| name(prefix)));
            if listed.0.len() + listed.1.len() > most {
                return Ok(None);
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(Some(listed)),
            }
        }
    }

    /// By the listing of its directory, or by asking for it alone. `None`: there is no such object.
    async fn size_of(&self, path: &str) -> Result<Option<u64>> {
        let (directory, name) = split_last(path);
        let prefix = self.prefix(directory)?;
        let list = async |most| Ok(self.listed(&prefix, most).await?.map(|(objects, _)| objects));
        match self.names.size_of(&prefix, name, list).await? {
            Some(size) => Ok(Some(size)),
            // Others may have stored it since.
            None => self.head(path).await,
        }
    }

    async fn head(&self, path: &str) -> Result<Option<u64>> {
        let key = self.key(path)?;
        let stat = self.by.call("HEAD", self.store().head(&key)).await?;
        Ok(stat.map(|stat| stat.size))
    }

    fn stored(&self, path: &str, size: Option<u64>) {
        let (directory, name) = split_last(path);
        if let Ok(prefix) = self.prefix(directory) {
            self.names.changed(&prefix, name, size);
        }
    }

    fn writer(self: &Arc<Self>, path: &str, upload: Arc<Upload>, shared: bool) -> Arc<dyn TargetFile> {
        let (client, path) = (Arc::clone(self), path.to_owned());
        Arc::new(BucketWriter { client, path, upload, shared, end: AtomicU64::new(0) })
    }

    fn upload(&self, key: String, size: Option<u64>) -> Arc<Upload> {
        Arc::new(Upload::new(key, Arc::clone(self.store()), self.part_bytes, size))
    }
}

/// Objects with their sizes, and directories.
type ListedDirectory = (HashMap<String, u64>, Vec<String>);

fn not_found(operation: &'static str, path: &str) -> Error {
    Error::new(ErrorKind::NotFound, operation, path)
}

#[async_trait]
impl Client for Arc<BucketClient> {
    /// A bucket has no directories but in the keys of its objects.
    async fn mkdir(&self, path: &str) -> Result<()> {
        self.key(path).map(drop)
    }

    async fn create(&self, path: &str) -> Result<Arc<dyn TargetFile>> {
        Ok(self.writer(path, self.upload(self.key(path)?, None), false))
    }

    async fn open(&self, path: &str) -> Result<Arc<dyn TargetFile>> {
        let size = self.size_of(path).await?.ok_or_else(|| not_found("open", path))?;
        Ok(Arc::new(BucketReader { client: Arc::clone(self), key: self.key(path)?, size }))
    }

    async fn stat(&self, path: &str) -> Result<EntryStatus> {
        if components(path)?.next().is_none() {
            return Ok(EntryStatus { kind: EntryKind::Directory, size: 0 });
        }
        if let Some(size) = self.head(path).await? {
            return Ok(EntryStatus { kind: EntryKind::File, size });
        }
        let prefix = self.prefix(path)?;
        let page = self.by.call("LIST", self.store().list(&prefix, true, None, 1)).await?;
        if page.objects.is_empty() && page.prefixes.is_empty() {
            return Err(not_found("look at", path));
        }
        Ok(EntryStatus { kind: EntryKind::Directory, size: 0 })
    }

    async fn list(&self, path: &str) -> Result<Vec<TargetEntry>> {
        let listed = self.listed(&self.prefix(path)?, usize::MAX).await?;
        let (objects, directories) = listed.unwrap_or_default();
        let entry = |kind| move |name| TargetEntry { name, kind: Some(kind) };
        let directories = directories.into_iter().map(entry(EntryKind::Directory));
        Ok(objects.into_keys().map(entry(EntryKind::File)).chain(directories).collect())
    }

    async fn remove(&self, path: &str) -> Result<()> {
        let key = self.key(path)?;
        self.by.call("DELETE", self.store().delete(&key, None)).await?;
        self.stored(path, None);
        Ok(())
    }

    /// Its marker, which others may have made: without one, and without objects, there is no directory any more.
    async fn rmdir(&self, path: &str) -> Result<()> {
        let prefix = self.prefix(path)?;
        self.by.call("DELETE", self.store().delete(&prefix, None)).await
    }

    fn forget(&self) {
        self.names.forget();
    }

    fn calls(&self) -> Calls {
        self.by.calls.all()
    }

    fn commits(&self) -> bool {
        true
    }

    async fn create_shared(&self, path: &str, size: u64) -> Result<Arc<dyn TargetFile>> {
        let key = self.key(path)?;
        let upload = {
            let mut uploads = locked(&self.shared);
            uploads.entry(key.clone()).or_insert_with(|| self.upload(key, Some(size))).clone()
        };
        Ok(self.writer(path, upload, true))
    }

    async fn commit(&self, path: &str) -> Result<()> {
        let key = self.key(path)?;
        let upload = locked(&self.shared).remove(&key);
        match upload {
            Some(upload) => upload.finish(&self.by).await.map(drop),
            None => Ok(()),
        }
    }

    fn give_up(&self) {
        locked(&self.shared).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_as_large_as_its_store_takes() {
        let part = |url: &str| ObjectTarget::from_url(url).map(|target| target.part_bytes);
        assert_eq!(part("s3://bucket").expect("a bucket"), PART);
        assert_eq!(part("s3://bucket/a?part=16m&endpoint=http://host:9").expect("a bucket"), 16 << 20);
        for wrong in
            ["s3://bucket?part=4m", "s3://bucket?part=", "s3://bucket?part=2g", "s3://bucket?part=-1"]
        {
            let error = part(wrong).expect_err(wrong);
            assert!(
                error.kind() == ErrorKind::Config && error.to_string().contains("5120k to 1g"),
                "{error}"
            );
        }
    }
}
