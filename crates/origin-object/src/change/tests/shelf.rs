//! A store in memory, that stops, fails and tells what it is told to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::oneshot;
use types::{ByteRange, Error, ErrorKind, Result, Timestamp};

use crate::store::{
    CopySource, GetResult, ListPage, ListedObject, Metadata, MultipartUpload, ObjectStat, ObjectStore,
    Precondition, PutResult, UploadedPart,
};

/// More than tests write that do not ask for it.
pub const COPY_MAX: u64 = 16 << 20;

#[derive(Clone)]
struct Kept {
    data: Bytes,
    etag: String,
    metadata: Metadata,
}

/// At which call; who is told; who tells.
type Stop = (&'static str, oneshot::Sender<()>, oneshot::Receiver<()>);

/// Objects in memory.
#[derive(Default)]
pub struct Shelf {
    objects: Mutex<BTreeMap<String, Kept>>,
    pub parts: Mutex<BTreeMap<(String, u32), Bytes>>,
    number: AtomicU64,
    /// Where the next call of this name stops: it tells that it is there, and goes on when it is told to.
    stop: Mutex<Option<Stop>>,
    /// Calls take turns at random by this.
    pub random: Mutex<Option<u64>>,
    /// The next call of this name fails like that.
    pub fails: Mutex<Option<(&'static str, ErrorKind)>>,
    /// Each listing begins with a page without keys.
    pub empty_pages: AtomicBool,
}

fn at(seconds: u64) -> Timestamp {
    Timestamp { seconds: seconds as i64, nanos: 0 }
}

impl Shelf {
    fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Kept>> {
        self.objects.lock().unwrap()
    }

    pub fn keys(&self) -> Vec<String> {
        self.objects().keys().cloned().collect()
    }

    pub fn bytes(&self, key: &str) -> Option<Bytes> {
        self.objects().get(key).map(|kept| kept.data.clone())
    }

    pub fn metadata(&self, key: &str) -> Option<Metadata> {
        self.objects().get(key).map(|kept| kept.metadata.clone())
    }

    pub fn forget_metadata(&self, key: &str) {
        self.objects().get_mut(key).expect("there").metadata.clear();
    }

    pub fn stop_at(&self, call: &'static str) -> (oneshot::Receiver<()>, oneshot::Sender<()>) {
        let ((here, reached), (go, goes)) = (oneshot::channel(), oneshot::channel());
        *self.stop.lock().unwrap() = Some((call, here, goes));
        (reached, go)
    }

    async fn called(&self, call: &'static str) -> Result<()> {
        let stop = self.stop.lock().unwrap().take_if(|(at, ..)| *at == call);
        if let Some((_, here, goes)) = stop {
            let _ = here.send(());
            let _ = goes.await;
        }
        let pacer = self.random.lock().unwrap().as_mut().map_or(0, |state| below(state, 4));
        for _ in 0..pacer {
            tokio::task::yield_now().await;
        }
        match self.fails.lock().unwrap().take_if(|(fails, _)| *fails == call) {
            Some((_, kind)) => Err(Error::new(kind, call, "the test")),
            None => Ok(()),
        }
    }

    pub fn keep(
        &self,
        key: &str,
        data: Bytes,
        metadata: &Metadata,
        condition: Precondition<'_>,
    ) -> Result<PutResult> {
        let mut objects = self.objects();
        let there = objects.get(key).map(|kept| kept.etag.as_str());
        let holds = match condition {
            Precondition::Always => true,
            Precondition::Absent => there.is_none(),
            Precondition::Unchanged(etag) => there == Some(etag),
        };
        if !holds {
            return Err(Error::new(ErrorKind::VersionChanged, "put", key));
        }
        let number = self.number.fetch_add(1, Ordering::SeqCst);
        let etag = format!("\"{number}\"");
        objects.insert(key.into(), Kept { data, etag: etag.clone(), metadata: metadata.clone() });
        Ok(PutResult { etag, modified: Some(at(number)) })
    }

    fn find(&self, key: &str, etag: Option<&str>) -> Result<Kept> {
        match self.objects().get(key) {
            None => Err(Error::new(ErrorKind::NotFound, "get", key)),
            Some(kept) if etag.is_some_and(|etag| etag != kept.etag) => {
                Err(Error::new(ErrorKind::VersionChanged, "get", key))
            }
            Some(kept) => Ok(kept.clone()),
        }
    }
}

fn below(state: &mut u64, limit: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % limit
}

#[async_trait]
impl ObjectStore for Shelf {
    fn copy_max(&self) -> u64 {
        COPY_MAX
    }
    async fn head(&self, key: &str) -> Result<Option<ObjectStat>> {
        self.called("head").await?;
        Ok(self.find(key, None).ok().map(|kept| ObjectStat {
            size: kept.data.len() as u64,
            modified: at(kept.etag.trim_matches('"').parse().unwrap()),
            etag: kept.etag,
            metadata: kept.metadata,
        }))
    }
    async fn get(&self, key: &str, etag: Option<&str>, range: ByteRange) -> Result<GetResult> {
        self.called("get").await?;
        let kept = self.find(key, etag)?;
        let data = kept.data.slice(range.offset as usize..range.end() as usize);
        Ok(GetResult { etag: kept.etag, size: kept.data.len() as u64, data })
    }
    async fn list(
        &self,
        prefix: &str,
        by_directory: bool,
        after: Option<&str>,
        most: u32,
    ) -> Result<ListPage> {
        assert!(!by_directory);
        self.called("list").await?;
        if self.empty_pages.load(Ordering::SeqCst) && after.is_none() {
            return Ok(ListPage { next: Some(String::new()), ..ListPage::default() });
        }
        let objects = self.objects();
        let behind = |key: &str| key.starts_with(prefix) && after.is_none_or(|after| key > after);
        let mut page = ListPage::default();
        for (key, kept) in objects.iter().filter(|(key, _)| behind(key)) {
            if page.objects.len() == most as usize {
                page.next = page.objects.last().map(|last: &ListedObject| last.key.clone());
                break;
            }
            let (size, etag, modified) = (kept.data.len() as u64, kept.etag.clone(), at(0));
            page.objects.push(ListedObject { key: key.clone(), size, etag, modified, metadata: None });
        }
        Ok(page)
    }
    async fn put(
        &self,
        key: &str,
        data: Bytes,
        metadata: &Metadata,
        when: Precondition<'_>,
    ) -> Result<PutResult> {
        self.called("put").await?;
        self.keep(key, data, metadata, when)
    }
    async fn delete(&self, key: &str, etag: Option<&str>) -> Result<()> {
        self.called("delete").await?;
        match self.find(key, etag) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            there => there.map(|_| drop(self.objects().remove(key))),
        }?;
        self.called("deleted").await
    }
    async fn copy(&self, from: CopySource<'_>, to: &str) -> Result<String> {
        self.called("copy").await?;
        assert!(from.size <= COPY_MAX);
        let kept = self.find(from.key, Some(from.etag))?;
        let made = self.keep(to, kept.data.clone(), &kept.metadata, Precondition::Always)?;
        // Whoever is answered comes to know it later.
        self.called("copied").await?;
        Ok(made.etag)
    }
    async fn describe(&self, object: CopySource<'_>, metadata: &Metadata) -> Result<String> {
        self.called("copy").await?;
        let kept = self.find(object.key, Some(object.etag))?;
        self.keep(object.key, kept.data, metadata, Precondition::Always).map(|made| made.etag)
    }
    async fn begin(&self, key: &str, metadata: &Metadata) -> Result<MultipartUpload> {
        let id = self.number.fetch_add(1, Ordering::SeqCst).to_string();
        Ok(MultipartUpload { key: key.into(), id, metadata: metadata.clone() })
    }
    async fn part(&self, upload: &MultipartUpload, number: u32, data: Bytes) -> Result<UploadedPart> {
        self.called("part").await?;
        self.parts.lock().unwrap().insert((upload.id.clone(), number), data);
        Ok(UploadedPart { number, etag: number.to_string() })
    }
    async fn part_of(
        &self,
        upload: &MultipartUpload,
        number: u32,
        from: CopySource<'_>,
        range: ByteRange,
    ) -> Result<UploadedPart> {
        assert!(range.length <= COPY_MAX);
        let got = self.get(from.key, Some(from.etag), range).await?;
        self.part(upload, number, got.data).await
    }
    async fn complete(
        &self,
        upload: &MultipartUpload,
        parts: &[UploadedPart],
        when: Precondition<'_>,
    ) -> Result<PutResult> {
        self.called("complete").await?;
        let data = {
            let stored = self.parts.lock().unwrap();
            let one = |part: &UploadedPart| stored[&(upload.id.clone(), part.number)].to_vec();
            parts.iter().flat_map(one).collect::<Vec<u8>>()
        };
        self.keep(&upload.key, data.into(), &upload.metadata, when)
    }
    async fn abort(&self, upload: &MultipartUpload) -> Result<()> {
        self.parts.lock().unwrap().retain(|(id, _), _| *id != upload.id);
        Ok(())
    }
}
