//! What is measured: a file system of any kind, seen through emulated clients.
//!
//! A target makes clients; a client is one emulated node with connections and knowledge of its own, so that a
//! hundred of them cost the far side what a hundred machines cost. Paths are relative to the target, with
//! slashes. Storage with another interface enters here, by implementing the three traits.

pub mod guarded;
pub mod limited;
pub mod object;
pub mod posix;
pub mod spread;

mod nfs;
mod server;
mod url;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use types::{Error, ErrorKind, Result};

pub use url::from_url;

use crate::locked;

/// Clients that connect at the same time: a server's backlog of 128 must hold them.
const CONNECTING_MAX: usize = 32;

/// Calls that went to the far side, by the protocol's name for them.
pub type Calls = BTreeMap<&'static str, u64>;

/// Counts the calls of a client.
#[derive(Default)]
pub(crate) struct CallCounter(Mutex<Calls>);

impl CallCounter {
    pub fn count(&self, call: &'static str) {
        *locked(&self.0).entry(call).or_default() += 1;
    }

    pub fn all(&self) -> Calls {
        locked(&self.0).clone()
    }
}

/// What is known of a target before anything is tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetAbout {
    /// For reports; without secrets.
    pub url: String,
    /// Nothing can be written; known only where the target can tell without trying.
    pub read_only: bool,
    /// A file is replaced as a whole, or in blocks that all come: no block of it alone is written.
    pub whole_files: bool,
    /// Bytes that are free to us; `None` where the target does not tell.
    pub available: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryStatus {
    pub kind: EntryKind,
    /// Bytes.
    pub size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Directory,
    /// A link, a device, anything that a bench never makes.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetEntry {
    pub name: String,
    /// `None` where the listing does not tell.
    pub kind: Option<EntryKind>,
}

#[async_trait]
pub trait Target: Send + Sync + 'static {
    async fn about(&self) -> Result<TargetAbout>;

    /// Whether this process can hold so many clients; `Config` with what to do otherwise.
    fn room_for(&self, _clients: u32) -> Result<()> {
        Ok(())
    }

    /// One emulated node with connections of its own. `id` is for messages.
    async fn client(&self, id: u32) -> Result<Arc<dyn Client>>;
}

#[async_trait]
pub trait Client: Send + Sync + 'static {
    /// It is no error if the directory exists.
    async fn mkdir(&self, path: &str) -> Result<()>;

    /// A file to write, made if it is missing; what is in it stays until it is overwritten.
    async fn create(&self, path: &str) -> Result<Arc<dyn TargetFile>>;

    /// A file to read. `NotFound` if there is none.
    async fn open(&self, path: &str) -> Result<Arc<dyn TargetFile>>;

    async fn stat(&self, path: &str) -> Result<EntryStatus>;

    /// All names but `.` and `..`, in no order. The empty path is the target's own directory.
    async fn list(&self, path: &str) -> Result<Vec<TargetEntry>>;

    async fn remove(&self, path: &str) -> Result<()>;

    /// Removes an empty directory.
    async fn rmdir(&self, path: &str) -> Result<()>;

    /// Drops what the client itself knows of names: the next open costs what it costs after a fresh mount.
    fn forget(&self) {}

    /// Calls to the far side since the client was made; empty where they are not ours to count.
    fn calls(&self) -> Calls {
        Calls::new()
    }

    /// Whether a file that several write is there only after [`Client::commit`].
    fn commits(&self) -> bool {
        false
    }

    /// A file of `size` bytes to write to, as other clients of this process do at the same time: each byte by one of them.
    async fn create_shared(&self, path: &str, _size: u64) -> Result<Arc<dyn TargetFile>> {
        self.create(path).await
    }

    /// All bytes of a shared file were written, by whomever: it is there, whole and durable, when this returns.
    async fn commit(&self, _path: &str) -> Result<()> {
        Ok(())
    }

    /// What was begun with `create_shared`, by any client of this process, and not committed is given up.
    fn give_up(&self) {}
}

#[async_trait]
pub trait TargetFile: Send + Sync + 'static {
    /// Bytes when it was opened.
    fn size(&self) -> u64;

    /// The bytes of the range that are inside the file: shorter than asked only at its end.
    async fn read(&self, offset: u64, length: usize) -> Result<Bytes>;

    /// May return before the bytes are durable.
    async fn write(&self, offset: u64, data: Bytes) -> Result<()>;

    /// Ends the use; what was written is durable when this returns.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// `count` clients, connected side by side. `first` is the number of the first one in the whole fleet.
pub async fn clients(target: &Arc<dyn Target>, first: u32, count: u32) -> Result<Vec<Arc<dyn Client>>> {
    target.room_for(count)?;
    let connecting = (0..count).map(|index| target.client(first.saturating_add(index)));
    stream::iter(connecting).buffered(CONNECTING_MAX).try_collect().await
}

/// Descriptors that the rest of the process may want.
const DESCRIPTORS_SPARE: u64 = 100;

/// Whether so many clients can have `each` connections; `Config` with what to do otherwise.
pub(crate) fn room_for_connections(clients: u32, each: u64) -> Result<()> {
    let wanted = u64::from(clients).saturating_mul(each).saturating_add(DESCRIPTORS_SPARE);
    // The usual limit of 1024 is soon reached; what the system allows is taken.
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < wanted => {
            let reason = format!(
                "{clients} clients may take {wanted} open files, {limit} are allowed; raise ulimit -n"
            );
            Err(Error::new(ErrorKind::Config, "clients", reason))
        }
        _ => Ok(()),
    }
}

/// Pieces in order; one alone is not copied.
pub(crate) fn joined(mut pieces: Vec<Bytes>) -> Bytes {
    if pieces.len() == 1 { pieces.swap_remove(0) } else { pieces.concat().into() }
}

/// The names on the way to a file; `Config` for a path that would leave the target.
pub fn components(path: &str) -> Result<impl Iterator<Item = &str>> {
    let bad = |name: &str| matches!(name, "." | "..") || name.contains('\0') || name.len() > 255;
    if path.starts_with('/') || path.len() > 4096 || path.split('/').any(bad) {
        let reason = format!("{path:?}: expected a path below the target, without '.' and '..'");
        return Err(Error::new(ErrorKind::Config, "path", reason));
    }
    Ok(path.split('/').filter(|name| !name.is_empty()))
}

/// The directory of a path, empty for a name directly in the target, and the last name.
pub fn split_last(path: &str) -> (&str, &str) {
    let path = path.trim_end_matches('/');
    path.rsplit_once('/').unwrap_or(("", path))
}

/// The URL without those of its options that `take` takes.
pub fn without_options(url: &str, mut take: impl FnMut(&str) -> Result<bool>) -> Result<String> {
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    let mut rest = place.to_owned();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        if !take(pair)? {
            rest.push(if rest.len() == place.len() { '?' } else { '&' });
            rest.push_str(pair);
        }
    }
    Ok(rest)
}

/// Bytes: a number with k, m, g or t for powers of 1024. `None` for anything else, signs and overflow included.
pub fn parse_size(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let (digits, shift) = match lower.char_indices().next_back()? {
        (at, 'k') => (&lower[..at], 10),
        (at, 'm') => (&lower[..at], 20),
        (at, 'g') => (&lower[..at], 30),
        (at, 't') => (&lower[..at], 40),
        _ => (lower.as_str(), 0),
    };
    // `parse` would take a plus sign.
    let number: u64 = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())??;
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leaves_the_target_is_refused() {
        for path in ["/etc", "a/../b", "..", "a/./b", "a\0b"] {
            assert_eq!(components(path).map(|_| ()).expect_err(path).kind(), ErrorKind::Config, "{path:?}");
        }
        assert_eq!(components("a//b/").expect("below").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(components("").expect("the target itself").count(), 0);
        assert_eq!(split_last("a/b/c"), ("a/b", "c"));
        assert_eq!(split_last("c"), ("", "c"));
    }
}
