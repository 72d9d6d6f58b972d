//! An object that is open: to be read, or to be written as a whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use types::{ByteRange, Error, ErrorKind, Result};

use super::BucketClient;
use super::upload::Upload;
use crate::target::TargetFile;

pub(super) struct BucketReader {
    pub client: Arc<BucketClient>,
    pub key: String,
    pub size: u64,
}

#[async_trait]
impl TargetFile for BucketReader {
    fn size(&self) -> u64 {
        self.size
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        let end = offset.saturating_add(length as u64).min(self.size);
        if offset >= end {
            return Ok(Bytes::new());
        }
        let range = ByteRange::new(offset, end - offset);
        let got = self.client.by.call("GET", self.client.store().get(&self.key, None, range)).await?;
        Ok(got.data)
    }

    async fn write(&self, _offset: u64, _data: Bytes) -> Result<()> {
        Err(Error::new(ErrorKind::NotSupported, "write to an object that was opened to be read", &self.key))
    }
}

pub(super) struct BucketWriter {
    pub client: Arc<BucketClient>,
    pub path: String,
    pub upload: Arc<Upload>,
    /// Others write to it too, and it is completed when all are done.
    pub shared: bool,
    pub end: AtomicU64,
}

#[async_trait]
impl TargetFile for BucketWriter {
    fn size(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    async fn read(&self, _offset: u64, _length: usize) -> Result<Bytes> {
        Err(Error::new(ErrorKind::NotSupported, "read an object that is not complete", &self.path))
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        let end = offset.saturating_add(data.len() as u64);
        self.upload.write(&self.client.by, offset, data).await?;
        self.end.fetch_max(end, Ordering::Relaxed);
        Ok(())
    }

    /// An object is durable when it is complete.
    async fn close(&self) -> Result<()> {
        if !self.shared && self.upload.finish(&self.client.by).await? {
            self.client.stored(&self.path, Some(self.size()));
        }
        Ok(())
    }
}
