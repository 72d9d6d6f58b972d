//! What the cache asks for the bytes that it lacks.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use cache::{CacheKey, Source};
use namespace::{Found, Namespace};
use origin::{FileToRead, Origin, Reference};
use types::{BLOCK_SIZE, ByteRange, Distance, Error, ErrorKind, FileKind, Result, Supplier, Turn};

use crate::at_origin;

/// The key of the version that this file has now.
pub fn key_of(found: &Found) -> Result<CacheKey> {
    let kind = found.attr().kind;
    match found {
        Found::Node(node) if kind == FileKind::Regular => {
            Ok(CacheKey { file: node.id, version: node.version(), size: node.attr().size })
        }
        _ if kind == FileKind::Directory => Err(Error::new(ErrorKind::IsADirectory, "read", found.id())),
        _ => Err(Error::new(ErrorKind::InvalidArgument, "read a special file,", found.id())),
    }
}

/// Fetches for the cache: asks the namespace where the file is, and its origin for the bytes.
pub struct OriginSource {
    namespace: Arc<Namespace>,
    /// Of the file that is read, for its distance.
    origin: Option<Arc<dyn Origin>>,
    ahead: ReadAhead,
}

/// Who fetches what a reader will want next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAhead {
    Here,
    ByTheReader,
}

#[async_trait]
impl Source for OriginSource {
    async fn read(&self, key: &CacheKey, range: ByteRange) -> Result<Bytes> {
        let key = *key;
        let read = |origin: Arc<dyn Origin>, at: Reference| async move {
            let file = FileToRead { id: key.file, reference: &at, version: key.version, size: key.size };
            origin.read_file(&file, range).await
        };
        at_origin(&self.namespace, key.file, read).await
    }

    fn read_max(&self) -> u32 {
        // Every origin takes at least this much; what one asks at once is cut to the origin's own limit below.
        u32::try_from(READ_MAX).unwrap_or(u32::MAX)
    }

    fn supplier(&self, key: &CacheKey, range: ByteRange) -> Supplier {
        self.origin.as_ref().map_or(Supplier::Origin, |origin| origin.supplier(key.file, range))
    }

    fn keeps(&self, key: &CacheKey, range: ByteRange) -> bool {
        self.origin.as_ref().is_none_or(|origin| origin.keeps(key.file, range))
    }

    fn reads_ahead(&self) -> bool {
        self.ahead == ReadAhead::Here
    }

    fn distance(&self, _key: &CacheKey) -> Option<Distance> {
        self.origin.as_ref()?.distance()
    }

    async fn turn(&self, _key: &CacheKey) -> Turn {
        match &self.origin {
            Some(origin) => origin.turn().await,
            None => Turn::default(),
        }
    }
}

/// Bytes asked from an origin in one call: large enough for one call per round trip and block group, small
/// enough that waiters are woken early.
const READ_MAX: u64 = 8 * BLOCK_SIZE;

impl OriginSource {
    /// `origin`: the file's, as far as it is known.
    pub fn new(namespace: Arc<Namespace>, origin: Option<Arc<dyn Origin>>) -> OriginSource {
        OriginSource { namespace, origin, ahead: ReadAhead::Here }
    }

    /// The same for a reader that has `ahead`.
    pub fn with(self, ahead: ReadAhead) -> OriginSource {
        OriginSource { ahead, ..self }
    }
}
