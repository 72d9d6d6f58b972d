use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use origin::Reference;
use redb::backends::InMemoryBackend;
use redb::{Database, ReadableDatabase, StorageBackend};
use types::{Attr, JunctionId, Timestamp, Version};

use super::*;

/// A database in memory that counts the bytes that are read and written.
#[derive(Debug)]
struct CountingBackend {
    inner: InMemoryBackend,
    moved: Arc<AtomicU64>,
}

impl StorageBackend for CountingBackend {
    fn len(&self) -> std::io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.moved.fetch_add(out.len() as u64, Ordering::Relaxed);
        self.inner.read(offset, out)
    }

    fn set_len(&self, length: u64) -> std::io::Result<()> {
        self.inner.set_len(length)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.inner.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.moved.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.inner.write(offset, data)
    }
}

fn dir(number: u64) -> FileId {
    FileId::derive(JunctionId(1), &number.to_be_bytes())
}

fn file(dir: u64, number: u64) -> FileId {
    FileId::derive(JunctionId(1), &[dir.to_be_bytes(), number.to_be_bytes()].concat())
}

fn record(parent: FileId, name: &str) -> Record {
    Record {
        junction: JunctionId(1),
        reference: Reference(Bytes::from_static(&[7; 28])),
        parent,
        name: Bytes::copy_from_slice(name.as_bytes()),
        attr: Attr {
            kind: types::FileKind::Regular,
            mode: 0o644,
            nlink: 1,
            uid: 1,
            gid: 1,
            size: 4096,
            used: 4096,
            rdev: (0, 0),
            fsid: 1,
            fileid: 1,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
        },
        version: Version([3; 16]),
        checked_ms: 5,
    }
}

fn change<T>(db: &Database, change: impl FnOnce(&mut Objects<'_>) -> RedbResult<T>) -> T {
    let txn = db.begin_write().expect("begun");
    let done = change(&mut Objects::open(&txn).expect("opened")).expect("changed");
    txn.commit().expect("committed");
    done
}

fn in_memory() -> Database {
    let db = Database::builder().create_with_backend(InMemoryBackend::new()).expect("made");
    change(&db, |_| Ok(()));
    db
}

fn found(db: &Database, id: FileId, near: Option<FileId>) -> Option<Record> {
    find(&db.begin_read().expect("begun"), id, near).expect("read")
}

/// Of a tree of many directories, one is looked at or changed as a whole, with a cache that holds a small part of it.
#[test]
fn the_records_of_a_directory_are_read_and_written_in_few_pages() {
    const DIRECTORIES: u64 = 200;
    const FILES: u64 = 200;
    const PAGE: u64 = 4096;
    let moved = Arc::new(AtomicU64::new(0));
    let backend = CountingBackend { inner: InMemoryBackend::new(), moved: moved.clone() };
    let db = Database::builder().set_cache_size(1 << 20).create_with_backend(backend).expect("made");
    for at in 0..DIRECTORIES {
        change(&db, |objects| {
            (0..FILES)
                .try_for_each(|number| objects.put(file(at, number), &record(dir(at), "frame.0001.exr")))
        });
    }
    let pages = |work: &dyn Fn()| {
        let before = moved.load(Ordering::Relaxed);
        work();
        (moved.load(Ordering::Relaxed) - before) / PAGE
    };
    let read = pages(&|| {
        let txn = db.begin_read().expect("begun");
        let mut ids: Vec<_> = (0..FILES).map(|number| file(77, number)).collect();
        ids.sort_unstable();
        for id in ids {
            assert!(find(&txn, id, Some(dir(77))).expect("read").is_some());
        }
    });
    let written = pages(&|| {
        change(&db, |objects| {
            (0..FILES)
                .try_for_each(|number| objects.put(file(78, number), &record(dir(78), "frame.0002.exr")))
        });
    });
    // 200 records of some 200 bytes are 10 full pages; a page for each would be 200, read and written.
    assert!(read < FILES / 2, "{read} pages were read for {FILES} files of one directory");
    assert!(written < FILES, "{written} pages were read and written for {FILES} files of one directory");
}

#[test]
fn an_object_is_found_wherever_it_is_thought_to_be_and_is_there_once() {
    let db = in_memory();
    let id = file(1, 1);
    change(&db, |objects| objects.put(id, &record(dir(1), "a")));
    for near in [None, Some(dir(1)), Some(dir(2))] {
        assert_eq!(found(&db, id, near), Some(record(dir(1), "a")), "{near:?}");
    }
    change(&db, |objects| objects.put(id, &record(dir(2), "b")));
    for near in [None, Some(dir(1)), Some(dir(2))] {
        assert_eq!(found(&db, id, near), Some(record(dir(2), "b")), "{near:?}, after it was renamed");
    }
    assert_eq!(
        first_of(&db.begin_read().expect("begun"), FileId::of_number(id.fileid64())).expect("read"),
        Some(id)
    );
    change(&db, |objects| objects.remove(id));
    for near in [None, Some(dir(1)), Some(dir(2))] {
        assert_eq!(found(&db, id, near), None, "{near:?}, after it was removed");
    }
    assert_eq!(
        first_of(&db.begin_read().expect("begun"), FileId::of_number(id.fileid64())).expect("read"),
        None
    );
}

#[test]
fn objects_of_an_older_version_are_found_by_their_handles() {
    let db = in_memory();
    let txn = db.begin_write().expect("begun");
    for number in 0..100 {
        let bytes = record(dir(number % 7), "old").encode();
        txn.open_table(BY_ID).expect("made").insert(file(0, number).0, bytes.as_slice()).expect("put");
    }
    txn.commit().expect("committed");
    for _ in 0..2 {
        let txn = db.begin_write().expect("begun");
        take_over(&txn).expect("taken over");
        txn.commit().expect("committed");
        for number in 0..100 {
            assert_eq!(found(&db, file(0, number), None), Some(record(dir(number % 7), "old")));
        }
    }
}
