//! One open file of an NFS client: READs ahead of a sequential reader, exact READs for any other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::try_join_all;
use origin::{Object, Reference};
use tokio::task::JoinHandle;
use types::{ByteRange, Error, ErrorKind, Result, Version};

use super::write::Writes;
use super::{NfsClient, TargetFile};
use crate::locked;
use crate::target::joined;

/// `NfsOrigin::read` gives data only of the version that it was asked for; a kernel client takes what comes. So a
/// READ of a file that somebody else is writing is repeated, each time after a look at the attributes; both are
/// counted. About one attempt in three met a change when six workers wrote and read one file at full speed: after
/// this many in a row it is not the file's changing that is wrong.
const CHANGES_MAX: u32 = 32;

pub struct NfsFile {
    shared: Arc<SharedNfsFile>,
    path: String,
    /// Bytes; grows with what is written here.
    size: AtomicU64,
    window: Mutex<ReadWindow>,
    writes: Writes,
}

/// The READs of a sequential reader, by piece number: under way, or done and not yet wholly taken.
#[derive(Default)]
struct ReadWindow {
    /// Where a sequential reader reads next.
    next: u64,
    pieces: BTreeMap<u64, ReadPiece>,
}

enum ReadPiece {
    Reading(JoinHandle<Result<Bytes>>),
    Done(Bytes),
}

impl Drop for ReadPiece {
    fn drop(&mut self) {
        if let ReadPiece::Reading(task) = self {
            task.abort();
        }
    }
}

impl NfsFile {
    pub(super) fn new(client: Arc<NfsClient>, path: &str, object: Object) -> NfsFile {
        let shared = Arc::new(SharedNfsFile {
            client,
            reference: object.reference,
            version: Mutex::new(object.version),
        });
        let writes = Writes::new(Arc::clone(&shared));
        let size = AtomicU64::new(object.attr.size);
        NfsFile { shared, path: path.to_owned(), size, window: Mutex::default(), writes }
    }

    fn piece_range(&self, piece: u64) -> ByteRange {
        let size = u64::from(self.shared.client.transfer.read_size);
        let end = self.size.load(Ordering::Acquire);
        let start = piece.saturating_mul(size).min(end);
        ByteRange::new(start, size.min(end - start))
    }

    /// Bytes that a sequential reader wants: from pieces that are under way, with new ones sent ahead.
    async fn read_ahead(&self, range: ByteRange) -> Result<Bytes> {
        let size = u64::from(self.shared.client.transfer.read_size);
        let (first, last) = (range.offset / size, (range.end() - 1) / size);
        let ahead = last.saturating_add(u64::from(self.shared.client.transfer.read_ahead));
        let mut taken = {
            let mut window = locked(&self.window);
            window.next = range.end();
            for piece in first..=ahead {
                let wanted = self.piece_range(piece);
                if wanted.is_empty() {
                    break;
                }
                window.pieces.entry(piece).or_insert_with(|| ReadPiece::Reading(self.shared.start(wanted)));
            }
            // What lies behind the reader is of no use to it.
            window.pieces = window.pieces.split_off(&first);
            let later = window.pieces.split_off(&last.saturating_add(1));
            std::mem::replace(&mut window.pieces, later)
        };
        let (mut out, mut kept) = (Vec::new(), None);
        for (number, piece) in &mut taken {
            let data = match piece {
                ReadPiece::Reading(task) => {
                    task.await.map_err(|e| Error::new(ErrorKind::Io, "read", e))??
                }
                ReadPiece::Done(data) => data.clone(),
            };
            let start = self.piece_range(*number).offset;
            let from = range.offset.saturating_sub(start).min(data.len() as u64) as usize;
            let to = range.end().saturating_sub(start).min(data.len() as u64) as usize;
            out.push(data.slice(from..to));
            if to < data.len() {
                kept = Some((*number, data));
            }
        }
        if let Some((number, data)) = kept {
            locked(&self.window).pieces.insert(number, ReadPiece::Done(data));
        }
        Ok(joined(out))
    }

    /// Exactly the range, its pieces side by side.
    async fn read_exactly(&self, range: ByteRange) -> Result<Bytes> {
        let size = u64::from(self.shared.client.transfer.read_size);
        let starts = (range.offset..range.end()).step_by(size as usize);
        let pieces = starts.map(|at| self.shared.read(ByteRange::new(at, size.min(range.end() - at))));
        Ok(joined(try_join_all(pieces).await?))
    }
}

#[async_trait]
impl TargetFile for NfsFile {
    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        let range = ByteRange::new(offset, length as u64).clamp_to(self.size());
        // What was written here is read here, as the page cache of a kernel sees to.
        self.writes.settle().await?;
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let sequential = locked(&self.window).next == range.offset;
        let read = match sequential {
            true => self.read_ahead(range).await,
            false => {
                locked(&self.window).next = range.end();
                self.read_exactly(range).await
            }
        };
        read.map_err(|e| super::named(e, &self.path))
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        let end = offset.checked_add(data.len() as u64);
        let end = end.ok_or_else(|| Error::new(ErrorKind::InvalidArgument, "write", &self.path))?;
        // What was read ahead may be what is overwritten now.
        locked(&self.window).pieces.clear();
        self.writes.write(offset, data).await.map_err(|e| self.shared.client.changed(e, &self.path))?;
        self.size.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        self.writes.commit().await.map_err(|e| self.shared.client.changed(e, &self.path))
    }
}

/// A file of a server, as the calls of one open file share it.
pub(super) struct SharedNfsFile {
    pub client: Arc<NfsClient>,
    pub reference: Reference,
    version: Mutex<Version>,
}

impl SharedNfsFile {
    pub fn start(self: &Arc<Self>, range: ByteRange) -> JoinHandle<Result<Bytes>> {
        let shared = Arc::clone(self);
        tokio::spawn(async move { shared.read(range).await })
    }

    /// One READ, of whatever version the file has now.
    pub async fn read(&self, range: ByteRange) -> Result<Bytes> {
        let mut changes = 0;
        loop {
            self.client.calls.count("read");
            let version = *locked(&self.version);
            match self.client.origin.read(&self.reference, version, range).await {
                Err(error) if error.kind() == ErrorKind::VersionChanged && changes < CHANGES_MAX => {
                    changes += 1;
                    let now = self.client.getattr(&self.reference).await?.version;
                    *locked(&self.version) = now;
                }
                other => return other,
            }
        }
    }
}
