//! A client of a service of files that is asked by calls: one machine to the server, with connections of its own.
//!
//! A client costs the server what a kernel client costs it. Opening a file asks for each component of its path
//! that is not known yet (LOOKUP), then once more for the file itself: GETATTR, as close-to-open wants it (where
//! the kernel sends ACCESS after a fresh LOOKUP, this is that call). Reads go out in READs of a stated size, with
//! a stated read-ahead behind a sequential reader; nothing that was read is kept. Writes go out unstable, some at
//! a time, and COMMIT ends them when the file is closed.

mod file;
mod write;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use origin::{Change, Changed, DirCursor, Object, Origin, Reference};
use tokio::sync::OnceCell;
use types::{CreateHow, Error, ErrorKind, FileKind, Name, Result, SetAttr};

use super::server::Transfer;
use super::{
    CallCounter, Calls, Client, EntryKind, EntryStatus, TargetEntry, TargetFile, components, split_last,
};
use crate::locked;

/// Names that one client remembers; then it forgets them all and looks them up again. 64 Ki names are about
/// 10 MB, and 500 clients must fit into one process.
const NAMES_MAX: usize = 64 << 10;

/// A client of anything that has files and directories and is asked by calls. The files that it opens share it.
pub(super) struct NfsClient {
    origin: Arc<dyn Origin>,
    /// No more bytes than one call can carry.
    transfer: Transfer,
    sized: bool,
    root: Reference,
    /// What the paths looked up so far led to. Of several who want to know the same one asks, as in a kernel.
    names: Mutex<HashMap<String, Arc<OnceCell<Reference>>>>,
    calls: CallCounter,
}

impl NfsClient {
    /// `sized`: what several write is made as long as it gets before they do.
    pub(super) async fn of(origin: Arc<dyn Origin>, transfer: Transfer, sized: bool) -> Result<NfsClient> {
        let root = origin.root().await?;
        let transfer = Transfer {
            read_size: transfer.read_size.min(origin.traits().read_max).max(1),
            write_size: transfer.write_size.min(origin.traits().write_max).max(1),
            ..transfer
        };
        Ok(NfsClient {
            origin,
            transfer,
            sized,
            root: root.reference,
            names: Mutex::default(),
            calls: CallCounter::default(),
        })
    }

    /// Where to put down, once, what a path leads to.
    fn cell(&self, path: &str) -> Arc<OnceCell<Reference>> {
        let mut names = locked(&self.names);
        if names.len() >= NAMES_MAX && !names.contains_key(path) {
            names.clear();
        }
        Arc::clone(names.entry(path.to_owned()).or_default())
    }

    fn remember(&self, path: &str, reference: &Reference) {
        locked(&self.names).insert(path.to_owned(), Arc::new(OnceCell::new_with(Some(reference.clone()))));
    }

    fn known(&self, path: &str) -> Option<Reference> {
        locked(&self.names).get(path).and_then(|cell| cell.get().cloned())
    }

    async fn lookup(&self, dir: &Reference, name: &Name) -> Result<Object> {
        self.calls.count("lookup");
        self.origin.lookup(dir, name).await
    }

    async fn getattr(&self, reference: &Reference) -> Result<Object> {
        self.calls.count("getattr");
        self.origin.getattr(reference).await
    }

    async fn change(&self, change: Change) -> Result<Changed> {
        self.calls.count(change.kind());
        self.origin.change(&change).await
    }

    /// Where the path leads, asking for what is not known.
    async fn walk(&self, path: &str) -> Result<Reference> {
        let mut at = self.root.clone();
        let mut walked = String::new();
        for name in components(path)? {
            if !walked.is_empty() {
                walked.push('/');
            }
            walked.push_str(name);
            let cell = self.cell(&walked);
            let name = Name::new(name.as_bytes().to_vec())?;
            let ask = async || Ok(self.lookup(&at, &name).await?.reference);
            let found: Result<&Reference> = cell.get_or_try_init(ask).await;
            at = found.map_err(|e| named(e, path))?.clone();
        }
        Ok(at)
    }

    /// The directory of the path, and the last name.
    async fn parent(&self, path: &str) -> Result<(Reference, Name)> {
        components(path)?.for_each(drop);
        let (dir, name) = split_last(path);
        Ok((self.walk(dir).await?, Name::new(name.as_bytes().to_vec())?))
    }

    /// A change that failed; what is known may be why.
    fn changed(&self, error: Error, path: &str) -> Error {
        if error.kind() == ErrorKind::Stale {
            locked(&self.names).clear();
        }
        named(error, path)
    }

    /// A name that is gone, whoever removed it.
    fn removed(&self, done: Result<()>, path: &str) -> Result<()> {
        locked(&self.names).remove(path);
        match done {
            Err(error) if error.kind() != ErrorKind::NotFound && answer_is(&error, ErrorKind::NotFound) => {
                Ok(())
            }
            Err(error) => Err(self.changed(error, path)),
            Ok(()) => Ok(()),
        }
    }

    /// The object at the path as it is now. What is known may be out of date; then all is looked up again.
    async fn find(&self, path: &str) -> Result<Object> {
        let reference = self.walk(path).await?;
        match self.getattr(&reference).await {
            Err(error) if error.kind() == ErrorKind::Stale => {
                locked(&self.names).clear();
                let reference = self.walk(path).await?;
                self.getattr(&reference).await.map_err(|e| named(e, path))
            }
            other => other.map_err(|e| named(e, path)),
        }
    }
}

/// The same error with the path in it.
fn named(error: Error, path: &str) -> Error {
    Error::new(error.kind(), "use", path).with_source(error)
}

#[async_trait]
impl Client for Arc<NfsClient> {
    async fn open(&self, path: &str) -> Result<Arc<dyn TargetFile>> {
        let object = self.find(path).await?;
        match object.attr.kind {
            FileKind::Regular => Ok(Arc::new(file::NfsFile::new(Arc::clone(self), path, object))),
            FileKind::Directory => Err(Error::new(ErrorKind::IsADirectory, "open", path)),
            _ => Err(Error::new(ErrorKind::InvalidArgument, "open what is no file", path)),
        }
    }

    async fn stat(&self, path: &str) -> Result<EntryStatus> {
        let object = self.find(path).await?;
        Ok(EntryStatus { kind: kind_of(object.attr.kind), size: object.attr.size })
    }

    async fn list(&self, path: &str) -> Result<Vec<TargetEntry>> {
        let dir = self.walk(path).await?;
        let mut entries = Vec::new();
        let mut cursor = DirCursor::default();
        loop {
            self.calls.count("readdir");
            let page = self.origin.readdir(&dir, cursor).await.map_err(|e| named(e, path))?;
            entries.extend(page.entries.into_iter().map(|entry| TargetEntry {
                name: String::from_utf8_lossy(entry.name.as_bytes()).into_owned(),
                kind: entry.object.map(|object| kind_of(object.attr.kind)),
            }));
            match page.next {
                Some(next) => cursor = next,
                None => return Ok(entries),
            }
        }
    }

    fn forget(&self) {
        locked(&self.names).clear();
    }

    fn calls(&self) -> Calls {
        self.calls.all()
    }

    async fn mkdir(&self, path: &str) -> Result<()> {
        let (dir, name) = self.parent(path).await?;
        let set = SetAttr { mode: Some(0o755), ..SetAttr::default() };
        match self.change(Change::Mkdir { dir, name, set }).await.and_then(Changed::made) {
            Ok(made) => self.remember(path, &made.reference),
            Err(error) if answer_is(&error, ErrorKind::Exists) => {
                if self.stat(path).await?.kind != EntryKind::Directory {
                    return Err(Error::new(ErrorKind::NotADirectory, "make directory", path));
                }
            }
            Err(error) => return Err(self.changed(error, path)),
        }
        Ok(())
    }

    /// As the kernel does it: a name that is not known is asked for first.
    async fn create(&self, path: &str) -> Result<Arc<dyn TargetFile>> {
        let (dir, name) = self.parent(path).await?;
        let found = match self.known(path) {
            Some(reference) => self.getattr(&reference).await,
            None => self.lookup(&dir, &name).await,
        };
        let object = match found {
            Ok(object) if object.attr.is_file() => object,
            Ok(_) => return Err(Error::new(ErrorKind::IsADirectory, "create", path)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale) => {
                let (how, set) = (CreateHow::Unchecked, SetAttr { mode: Some(0o644), ..SetAttr::default() });
                let made = self.change(Change::Create { dir, name, how, set }).await;
                made.and_then(Changed::made).map_err(|e| self.changed(e, path))?
            }
            Err(error) => return Err(self.changed(error, path)),
        };
        self.remember(path, &object.reference);
        Ok(Arc::new(file::NfsFile::new(Arc::clone(self), path, object)))
    }

    fn commits(&self) -> bool {
        self.sized
    }

    async fn create_shared(&self, path: &str, size: u64) -> Result<Arc<dyn TargetFile>> {
        let file = self.create(path).await?;
        if !self.sized || file.size() == size {
            return Ok(file);
        }
        let object = self.walk(path).await?;
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.change(Change::Set { object, set, guard: None }).await.map_err(|e| self.changed(e, path))?;
        self.open(path).await
    }

    async fn remove(&self, path: &str) -> Result<()> {
        let (dir, name) = self.parent(path).await?;
        let done = self.change(Change::Remove { dir, name }).await;
        self.removed(done.map(|_| ()), path)
    }

    async fn rmdir(&self, path: &str) -> Result<()> {
        let (dir, name) = self.parent(path).await?;
        let done = self.change(Change::Rmdir { dir, name }).await;
        self.removed(done.map(|_| ()), path)
    }
}

/// Whether the server said that, perhaps to a call that it had carried out already the first time it came.
fn answer_is(error: &Error, kind: ErrorKind) -> bool {
    error.kind() == kind || error.doubtful_answer().is_some_and(|answer| answer.kind() == kind)
}

fn kind_of(kind: FileKind) -> EntryKind {
    match kind {
        FileKind::Regular => EntryKind::File,
        FileKind::Directory => EntryKind::Directory,
        _ => EntryKind::Other,
    }
}
