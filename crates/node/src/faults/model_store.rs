//! The far storage of a run, and the model of it: which bytes each version of each file has.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use cache::CacheKey;
use origin::delay::Delay;
use origin::memory::{MemoryOrigin, generated};
use origin::{Object, Origin};
use types::{ByteRange, FileId, JunctionId, Name};

pub const JUNCTION: JunctionId = JunctionId(1);
const FAR: Duration = Duration::from_millis(5);

/// A version of a file.
#[derive(Clone)]
pub struct ModelFile {
    pub key: CacheKey,
    pub object: Object,
    seed: u64,
}

impl ModelFile {
    pub fn truth(&self, range: ByteRange) -> Bytes {
        generated(self.seed, range)
    }

    pub fn whole(&self) -> ByteRange {
        ByteRange::new(0, self.key.size)
    }
}

pub struct ModelStore {
    memory: Arc<MemoryOrigin>,
    /// The newest versions.
    files: Mutex<Vec<ModelFile>>,
}

impl ModelStore {
    pub async fn new(sizes: &[u64]) -> Arc<ModelStore> {
        let store = ModelStore { memory: MemoryOrigin::new(), files: Mutex::default() };
        for (index, size) in sizes.iter().enumerate() {
            store.put(index, index as u64, *size).await;
        }
        Arc::new(store)
    }

    /// This node's way to the store.
    pub fn origin(&self) -> Arc<dyn Origin> {
        Delay::new(self.memory.clone(), FAR)
    }

    fn files(&self) -> MutexGuard<'_, Vec<ModelFile>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new version of the file. Of one file only one is put at a time.
    pub async fn put(&self, index: usize, seed: u64, size: u64) {
        let name = format!("file{index}");
        self.memory.generate_file(format!("/{name}").as_bytes(), seed, size).expect("made");
        let root = self.memory.root().await.expect("a root");
        let name = Name::new(name.into_bytes()).expect("a name");
        let object = self.memory.lookup(&root.reference, &name).await.expect("it is there");
        let file = FileId::derive(JUNCTION, &object.identity.0);
        let key = CacheKey { file, version: object.version, size: object.attr.size };
        let file = ModelFile { key, object, seed };
        let mut files = self.files();
        match files.get_mut(index) {
            Some(there) => *there = file,
            None => files.push(file),
        }
    }

    pub fn now(&self, index: usize) -> ModelFile {
        self.files()[index].clone()
    }

    pub fn all(&self) -> Vec<ModelFile> {
        self.files().clone()
    }
}
