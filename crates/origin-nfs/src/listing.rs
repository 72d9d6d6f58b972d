//! READDIRPLUS, with READDIR where the server has no better: one page of a directory per call.

use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use origin::{DirCursor, DirEntry, DirPage, Reference};
use rpc_nfs3::nfs3::readdir::{self, DirEntry3, ReaddirArgs, ReaddirOk};
use rpc_nfs3::nfs3::{FileHandle, NfsResult, NfsStatus, procedure};
use types::{ErrorKind, Name, Result};

use crate::connection_pool::Lane;
use crate::errors::failure;
use crate::listing_state::next_page_bytes;
use crate::origin::{NfsOrigin, attr_of, handle_of, object, ok_or_status};

const WHAT: &str = "list directory at";

impl NfsOrigin {
    pub(crate) async fn read_dir_page(&self, dir: &Reference, cursor: DirCursor) -> Result<DirPage> {
        let handle = handle_of(dir)?;
        let page = self.ask_page(&handle, cursor).await?;
        let next = self.next_cursor(dir, cursor, &page)?;
        let entries = page.entries.into_iter().filter_map(|entry| self.dir_entry(dir, entry)).collect();
        Ok(DirPage { entries, next })
    }

    /// READDIRPLUS, or READDIR if the server cannot answer that one.
    async fn ask_page(&self, dir: &FileHandle, cursor: DirCursor) -> Result<ReaddirOk> {
        if !self.listings.no_plus.load(Ordering::Relaxed) {
            match self.ask(dir, cursor, true).await? {
                Err((NfsStatus::NOTSUPP, _)) => self.listings.no_plus.store(true, Ordering::Relaxed),
                Err((NfsStatus::TOOSMALL, _)) => {}
                outcome => return ok_or_status(WHAT, self.place(), outcome),
            }
        }
        ok_or_status(WHAT, self.place(), self.ask(dir, cursor, false).await?)
    }

    async fn ask(&self, dir: &FileHandle, cursor: DirCursor, plus: bool) -> Result<NfsResult<ReaddirOk>> {
        let bytes = self.listings.page_bytes.load(Ordering::Relaxed);
        let DirCursor { cookie, verifier } = cursor;
        let args = ReaddirArgs { dir: dir.clone(), cookie, verifier, dir_count: bytes, max_count: bytes };
        let number = if plus { procedure::READDIRPLUS } else { procedure::READDIR };
        let started = Instant::now();
        let encode = |e: &mut _| args.encode(e, plus);
        let decode = |d: &mut _| readdir::decode_readdir(d, plus);
        let outcome = self.pool.call(Lane::Metadata, WHAT, number, encode, decode).await;
        self.listings.page_bytes.store(next_page_bytes(bytes, started.elapsed()), Ordering::Relaxed);
        outcome
    }

    fn next_cursor(&self, dir: &Reference, from: DirCursor, page: &ReaddirOk) -> Result<Option<DirCursor>> {
        let corrupt = |reason: &str| failure(ErrorKind::Corrupt, WHAT, self.place(), reason);
        let last = page.entries.last().map(|entry| entry.cookie);
        let next = match (page.eof, last) {
            (true, _) => None,
            (false, None) => return Err(corrupt("the server sends neither entries nor an end")),
            (false, Some(cookie)) if cookie == from.cookie => {
                return Err(corrupt("the server sends the same cookie again"));
            }
            (false, Some(cookie)) => Some(DirCursor { cookie, verifier: page.verifier }),
        };
        if !self.listings.guard.page(&dir.0, from.cookie, next.map(|n| n.cookie)) {
            return Err(corrupt("the listing runs in a circle"));
        }
        Ok(next)
    }

    /// `None` for names that must not be listed.
    fn dir_entry(&self, dir: &Reference, entry: DirEntry3) -> Option<DirEntry> {
        if matches!(entry.name.as_ref(), b"." | b"..") {
            return None;
        }
        // Copies: what is kept of an entry must not keep its whole record.
        let name = match Name::new(Bytes::copy_from_slice(&entry.name)) {
            Ok(name) => name,
            Err(error) => {
                tracing::warn!(at = self.place(), %error, "name left out of a listing");
                return None;
            }
        };
        // The directory under the mount point of a nested export is not that export's root; LOOKUP finds out.
        let nested = self.nested.child(&dir.0, name.as_bytes()).is_some();
        let object = match (entry.handle, entry.attr) {
            (Some(handle), Some(attr)) if !nested => {
                Some(object(FileHandle(Bytes::copy_from_slice(&handle.0)), attr_of(&attr)))
            }
            _ => None,
        };
        Some(DirEntry { name, object })
    }
}
