//! What the tests share: a bucket, and eyes on it that remember nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use origin::{Change, DirCursor, DirEntry, Object, Origin, Reference};
use origin_object::{Config, ObjectOrigin};
use testkit::stores::{RealStore, on_each_store};
use types::{ByteRange, CreateHow, Name, Result, SetAttr, Stability};

static NEXT: AtomicU32 = AtomicU32::new(0);

pub struct Bucket {
    pub store: RealStore,
    pub name: String,
}

/// The scenario with a bucket of each dialect.
pub async fn on_each_bucket<F: Future<Output = ()>>(name: &str, scenario: impl Fn(Bucket) -> F) {
    on_each_store(name, |store| scenario(Bucket::new(store))).await;
}

impl Bucket {
    fn new(store: RealStore) -> Bucket {
        let name = format!("bucket-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        store.make_bucket(&name);
        Bucket { store, name }
    }

    pub fn url(&self, prefix: &str, options: &str) -> String {
        self.store.url(&self.name, prefix, options)
    }

    /// One that has seen nothing yet.
    pub async fn origin(&self, options: &str) -> Arc<ObjectOrigin> {
        self.connect(&self.url("", options)).await.expect("a store that answers")
    }

    pub async fn connect(&self, url: &str) -> Result<Arc<ObjectOrigin>> {
        let config = Config::from_url(url).expect("a URL");
        ObjectOrigin::connect_as(config, Some(&self.store.environment())).await
    }
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes().to_vec()).expect("a name")
}

pub fn root() -> Reference {
    Reference(Bytes::new())
}

pub async fn find(origin: &ObjectOrigin, path: &str) -> Result<Object> {
    let mut at = origin.root().await?;
    for part in path.split('/') {
        at = origin.lookup(&at.reference, &name(part)).await?;
    }
    Ok(at)
}

pub async fn create(origin: &ObjectOrigin, dir: &Reference, text: &str) -> Result<Object> {
    let (name, how, set) = (name(text), CreateHow::Guarded, SetAttr::default());
    origin.change(&Change::Create { dir: dir.clone(), name, how, set }).await?.made()
}

pub async fn mkdir(origin: &ObjectOrigin, dir: &Reference, text: &str) -> Result<Object> {
    let (name, set) = (name(text), SetAttr::default());
    origin.change(&Change::Mkdir { dir: dir.clone(), name, set }).await?.made()
}

/// A new file with these bytes, durably.
pub async fn put(origin: &ObjectOrigin, dir: &Reference, text: &str, bytes: &[u8]) -> Object {
    let file = create(origin, dir, text).await.expect("made").reference;
    overwrite(origin, &file, bytes).await
}

pub async fn overwrite(origin: &ObjectOrigin, file: &Reference, bytes: &[u8]) -> Object {
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    origin.change(&Change::Set { object: file.clone(), set, guard: None }).await.expect("cut");
    let data = Bytes::copy_from_slice(bytes);
    let written = origin.write(file, 0, data, Stability::FileSync).await.expect("written");
    written.after.expect("told")
}

pub async fn read_all(origin: &ObjectOrigin, object: &Object) -> Result<Bytes> {
    origin.read(&object.reference, object.version, ByteRange::new(0, object.attr.size)).await
}

pub async fn list(origin: &ObjectOrigin, dir: &Reference) -> Vec<DirEntry> {
    let (mut all, mut cursor) = (Vec::new(), Some(DirCursor::default()));
    while let Some(at) = cursor {
        let page = origin.readdir(dir, at).await.expect("listed");
        all.extend(page.entries);
        cursor = page.next;
    }
    all
}

pub async fn names(origin: &ObjectOrigin, dir: &Reference) -> Vec<String> {
    let mut names: Vec<_> = list(origin, dir).await.iter().map(|entry| entry.name.to_string()).collect();
    names.sort();
    names
}

pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    });
    words.take(length.div_ceil(8)).flat_map(u64::to_le_bytes).take(length).collect()
}
