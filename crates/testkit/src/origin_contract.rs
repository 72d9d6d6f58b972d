//! What every origin must do, as one suite that runs over each of them.
//!
//! The store behind the origin is changed out of band, as other machines change a NAS. What an origin does with changes
//! that are asked of itself is a part of its own: `changes.rs`, and at random `random_changes.rs`.

mod changes;
mod random_changes;

pub use changes::{run_changes, run_changes_with};
pub use random_changes::{run_random_changes, run_random_changes_with, seed};

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use origin::memory::MemoryOrigin;
use origin::{DirCursor, Object, Origin, Reference};
use types::{ByteRange, ErrorKind, FileKind, Name, Result};

/// Longer than the tick of any file system's clock that we test on, so that a change shows in its time.
const TICK: Duration = Duration::from_millis(30);

/// Of what file systems of Unix have, what storage that is none need not have. What is not there is refused as
/// `NotSupported`, and the rest of the contract holds.
#[derive(Clone, Copy, Debug)]
pub struct Has {
    pub hard_links: bool,
    /// Fifos, sockets, devices.
    pub special_files: bool,
    /// Else names are UTF-8.
    pub byte_names: bool,
}

impl Has {
    pub const ALL: Has = Has { hard_links: true, special_files: true, byte_names: true };
    /// A share of a service that was made for Windows.
    pub const SHARE: Has = Has { hard_links: false, special_files: false, byte_names: false };
}

/// A change that somebody else makes. Paths are relative to the origin's root.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    Mkdir(&'a [u8]),
    Write(&'a [u8], &'a [u8]),
    Remove(&'a [u8]),
    Rename(&'a [u8], &'a [u8]),
    Symlink(&'a [u8], &'a [u8]),
    Link(&'a [u8], &'a [u8]),
}

/// An origin under test, with a way to change what is behind it.
#[async_trait]
pub trait Subject: Send + Sync {
    fn origin(&self) -> Arc<dyn Origin>;
    async fn change(&self, change: Change<'_>);

    /// Many changes, one after the other. For stores that are slow to reach.
    async fn change_all(&self, changes: &[Change<'_>]) {
        for change in changes {
            self.change(*change).await;
        }
    }
}

/// An origin in memory, perhaps behind wrappers.
pub struct InMemory {
    pub memory: Arc<MemoryOrigin>,
    pub origin: Arc<dyn Origin>,
}

#[async_trait]
impl Subject for InMemory {
    fn origin(&self) -> Arc<dyn Origin> {
        self.origin.clone()
    }

    async fn change(&self, change: Change<'_>) {
        let m = &self.memory;
        let done = match change {
            Change::Mkdir(path) => m.mkdir(path),
            Change::Write(path, bytes) => m.write_file(path, bytes),
            Change::Remove(path) => m.remove(path),
            Change::Rename(from, to) => m.rename(from, to),
            Change::Symlink(path, target) => m.symlink(path, target),
            Change::Link(from, to) => m.link(from, to),
        };
        done.expect("the change is possible");
    }
}

/// An origin over a directory of this machine: itself, or exported by a server.
pub struct OverDirectory {
    pub dir: PathBuf,
    pub origin: Arc<dyn Origin>,
}

#[async_trait]
impl Subject for OverDirectory {
    fn origin(&self) -> Arc<dyn Origin> {
        self.origin.clone()
    }

    async fn change(&self, change: Change<'_>) {
        let at = |path: &[u8]| self.dir.join(Path::new(std::ffi::OsStr::from_bytes(path)));
        let done = match change {
            Change::Mkdir(path) => std::fs::create_dir(at(path)),
            Change::Write(path, bytes) => std::fs::write(at(path), bytes),
            Change::Remove(path) if at(path).is_dir() => std::fs::remove_dir(at(path)),
            Change::Remove(path) => std::fs::remove_file(at(path)),
            Change::Rename(from, to) => std::fs::rename(at(from), at(to)),
            Change::Symlink(path, target) => {
                std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(target), at(path))
            }
            Change::Link(from, to) => std::fs::hard_link(at(from), at(to)),
        };
        done.expect("the change is possible");
    }
}

/// The whole suite. The store must be empty.
pub async fn run(subject: &dyn Subject) {
    run_with(subject, Has::ALL).await;
}

pub async fn run_with(subject: &dyn Subject, has: Has) {
    let suite = Suite { subject, origin: subject.origin(), has };
    suite.finds_and_describes().await;
    suite.lists_everything_once().await;
    suite.reads_exactly_what_is_asked().await;
    suite.refuses_bytes_of_another_version().await;
    suite.never_revives_what_was_removed().await;
    suite.keeps_identity_over_rename_and_hard_links().await;
    suite.tells_how_much_room_there_is().await;
}

struct Suite<'a> {
    subject: &'a dyn Subject,
    origin: Arc<dyn Origin>,
    has: Has,
}

fn name(bytes: &[u8]) -> Name {
    Name::new(Bytes::copy_from_slice(bytes)).expect("a valid name")
}

fn kind_of<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.expect_err("must fail").kind()
}

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8).wrapping_add(seed)).collect()
}

impl Suite<'_> {
    async fn change(&self, change: Change<'_>) {
        self.subject.change(change).await;
    }

    async fn root(&self) -> Reference {
        self.origin.root().await.expect("the root is there").reference
    }

    async fn find(&self, path: &[u8]) -> Result<Object> {
        let mut at = self.origin.root().await?;
        for part in path.split(|b| *b == b'/') {
            at = self.origin.lookup(&at.reference, &name(part)).await?;
        }
        Ok(at)
    }

    async fn finds_and_describes(&self) {
        assert!(self.origin.root().await.expect("the root is there").attr.is_dir());
        self.change(Change::Mkdir(b"found")).await;
        self.change(Change::Write(b"found/file", b"twelve bytes")).await;
        self.change(Change::Symlink(b"found/link", b"../some/where")).await;
        if self.has.byte_names {
            self.change(Change::Write(b"found/not-utf8-\xff\xe9", b"x")).await;
        }
        let file = self.find(b"found/file").await.expect("found");
        assert_eq!((file.attr.kind, file.attr.size, file.attr.nlink), (FileKind::Regular, 12, 1));
        let again = self.origin.getattr(&file.reference).await.expect("still there");
        assert_eq!((again.identity, again.version), (file.identity, file.version), "two looks, one object");
        let link = self.find(b"found/link").await.expect("found");
        assert_eq!(link.attr.kind, FileKind::Symlink);
        assert_eq!(self.origin.readlink(&link.reference).await.expect("read"), "../some/where");
        let no_link = self.origin.readlink(&file.reference).await;
        assert_eq!(kind_of(no_link), ErrorKind::InvalidArgument, "a file is no link");
        let bytes = self.find(b"found/not-utf8-\xff\xe9").await.map(drop).map_err(|e| e.kind());
        assert_eq!(bytes, if self.has.byte_names { Ok(()) } else { Err(ErrorKind::NotFound) });
        let dir = self.find(b"found").await.expect("found").reference;
        assert_eq!(kind_of(self.origin.lookup(&dir, &name(b"missing")).await), ErrorKind::NotFound);
        let below_file = self.origin.lookup(&file.reference, &name(b"x")).await;
        assert_eq!(kind_of(below_file), ErrorKind::NotADirectory);
        let listed_file = self.origin.readdir(&file.reference, DirCursor::default()).await;
        assert_eq!(kind_of(listed_file), ErrorKind::NotADirectory);
    }

    async fn lists_everything_once(&self) {
        self.change(Change::Mkdir(b"listed")).await;
        let paths: Vec<String> = (0..2500).map(|i| format!("listed/entry-{i}")).collect();
        let writes: Vec<Change> = paths.iter().map(|path| Change::Write(path.as_bytes(), b"")).collect();
        self.subject.change_all(&writes).await;
        let dir = self.find(b"listed").await.expect("found").reference;
        let mut seen: HashMap<Name, Option<Object>> = HashMap::new();
        let mut cursor = Some(DirCursor::default());
        while let Some(at) = cursor {
            let page = self.origin.readdir(&dir, at).await.expect("listed");
            for entry in page.entries {
                assert!(seen.insert(entry.name.clone(), entry.object).is_none(), "{} twice", entry.name);
            }
            cursor = page.next;
        }
        assert_eq!(seen.len(), 2500);
        for wanted in [&b"entry-0"[..], b"entry-1234", b"entry-2499"] {
            let looked_up = self.origin.lookup(&dir, &name(wanted)).await.expect("found");
            if let Some(listed) = &seen[&name(wanted)] {
                assert_eq!(listed.identity, looked_up.identity);
            }
        }
        self.change(Change::Mkdir(b"empty")).await;
        let empty = self.find(b"empty").await.expect("found").reference;
        let page = self.origin.readdir(&empty, DirCursor::default()).await.expect("listed");
        assert!(page.entries.is_empty() && page.next.is_none(), "no . and no ..");
    }

    async fn reads_exactly_what_is_asked(&self) {
        let bytes = pattern(300_001, 1);
        self.change(Change::Write(b"bytes", &bytes)).await;
        let file = self.find(b"bytes").await.expect("found");
        let size = bytes.len() as u64;
        let ranges =
            [(0, size), (0, 1), (1, 65535), (65536, 65536), (size - 1, 1), (100_000, 200_001), (7, 0)];
        for (offset, length) in ranges {
            let read = self.origin.read(&file.reference, file.version, ByteRange::new(offset, length)).await;
            let expected = &bytes[offset as usize..(offset + length) as usize];
            assert!(read.expect("read") == expected, "{length} bytes from {offset}");
        }
        let mut together = tokio::task::JoinSet::new();
        for i in 0..16_u64 {
            let (origin, file) = (self.origin.clone(), file.clone());
            together.spawn(async move {
                let range = ByteRange::new(i * 10_000, 10_000);
                (range, origin.read(&file.reference, file.version, range).await)
            });
        }
        while let Some(read) = together.join_next().await {
            let (range, read) = read.expect("no panic");
            assert!(read.expect("read") == bytes[range.offset as usize..range.end() as usize]);
        }
    }

    async fn refuses_bytes_of_another_version(&self) {
        let changes: [(&[u8], &[u8]); 3] =
            [(b"same size.", b"SAME SIZE!"), (b"longer", b"much longer"), (b"shorter now", b"short")];
        for (before, after) in changes {
            self.change(Change::Write(b"changing", before)).await;
            let file = self.find(b"changing").await.expect("found");
            let all = ByteRange::new(0, file.attr.size);
            assert_eq!(self.origin.read(&file.reference, file.version, all).await.expect("read"), before);
            tokio::time::sleep(TICK).await;
            self.change(Change::Write(b"changing", after)).await;
            let old = self.origin.read(&file.reference, file.version, all).await;
            assert_eq!(kind_of(old), ErrorKind::VersionChanged);
            let now = self.find(b"changing").await.expect("found");
            assert_eq!(now.identity, file.identity, "the same file");
            let all = ByteRange::new(0, now.attr.size);
            assert_eq!(self.origin.read(&now.reference, now.version, all).await.expect("read"), after);
            tokio::time::sleep(TICK).await;
        }
    }

    async fn never_revives_what_was_removed(&self) {
        self.change(Change::Write(b"mortal", b"first")).await;
        let first = self.find(b"mortal").await.expect("found");
        self.change(Change::Remove(b"mortal")).await;
        assert_eq!(kind_of(self.origin.getattr(&first.reference).await), ErrorKind::Stale);
        assert_eq!(kind_of(self.find(b"mortal").await), ErrorKind::NotFound);
        // File systems give the inode number to the next file.
        for _ in 0..20 {
            tokio::time::sleep(TICK).await;
            self.change(Change::Write(b"mortal", b"other")).await;
            let other = self.find(b"mortal").await.expect("found");
            assert_ne!(other.identity, first.identity, "a removed file lives on in another");
            assert_eq!(kind_of(self.origin.getattr(&first.reference).await), ErrorKind::Stale);
            let read = self.origin.read(&first.reference, first.version, ByteRange::new(0, 5)).await;
            assert_eq!(kind_of(read), ErrorKind::Stale);
            self.change(Change::Remove(b"mortal")).await;
        }
    }

    async fn keeps_identity_over_rename_and_hard_links(&self) {
        self.change(Change::Write(b"one name", b"x")).await;
        let before = self.find(b"one name").await.expect("found");
        self.change(Change::Rename(b"one name", b"found/another")).await;
        let after = self.find(b"found/another").await.expect("found");
        assert_eq!(after.identity, before.identity);
        // The old reference goes on, or says that it does not; it never names something else.
        match self.origin.getattr(&before.reference).await {
            Ok(object) => assert_eq!(object.identity, before.identity),
            Err(e) => assert_eq!(e.kind(), ErrorKind::Stale),
        }
        if !self.has.hard_links {
            return;
        }
        self.change(Change::Link(b"found/another", b"second name")).await;
        let second = self.find(b"second name").await.expect("found");
        assert_eq!((second.identity, second.attr.nlink), (before.identity, 2));
    }

    async fn tells_how_much_room_there_is(&self) {
        let room = self.origin.statfs(&self.root().await).await.expect("told");
        assert!(room.bytes_total > 0 && room.bytes_free <= room.bytes_total, "{room:?}");
    }
}
