//! WRITE and COMMIT.
//!
//! Both may be carried out twice without a difference, so a lost connection costs nothing but time. What may
//! be lost is data that the server has taken but not stored: a write verifier that is another one than before
//! says so. Within one `write` it is noticed and everything is written again; between calls it is for the
//! caller, who alone still has the data, to compare the verifiers of its writes with the one of `commit`.

use bytes::Bytes;
use origin::Reference;
use rpc_nfs3::nfs3::write::{self, CommitArgs, WriteArgs};
use rpc_nfs3::nfs3::{FileHandle, procedure};
use types::{ByteRange, ErrorKind, Result};

pub use rpc_nfs3::nfs3::write::{StableHow, WriteVerifier};

use crate::delivery::{Change, Done, Twice};
use crate::errors::failure;
use crate::origin::{NfsOrigin, handle_of};
use crate::pool::Lane;

const WRITE: &str = "write to";
const COMMIT: &str = "commit";

/// How often the data of one `write` is written when the server loses parts of it each time.
const ATTEMPTS_MAX: u32 = 3;

/// What one `write` did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes written: all that were given.
    pub count: u64,
    /// The least that the server promises of any of these bytes; at least what was asked for.
    pub committed: StableHow,
    /// Of all these bytes. Compare it with that of `commit` if `committed` is `Unstable`.
    pub verifier: WriteVerifier,
}

impl NfsOrigin {
    /// Most bytes that one WRITE call carries: `write` cuts its data to this, one piece after the other. Who
    /// wants pieces side by side cuts by it.
    pub fn write_max(&self) -> u32 {
        self.write_max
    }

    /// Writes all of `data` at `offset`. The data is sent as it lies, not copied. Short writes of the server
    /// are continued. Errors are the server's (`NoSpace`, `AccessDenied`, ...) or `Unavailable`; of the bytes
    /// in front of an error some may be written.
    pub async fn write(
        &self,
        file: &Reference,
        offset: u64,
        data: Bytes,
        stable: StableHow,
    ) -> Result<Done<Written>> {
        let file = handle_of(file)?;
        let length = data.len() as u64;
        if offset.checked_add(length).is_none() {
            let reason = format!("{length} bytes do not fit behind offset {offset}");
            return Err(failure(ErrorKind::InvalidArgument, WRITE, self.place(), reason));
        }
        let mut resent = false;
        for _ in 0..ATTEMPTS_MAX {
            let attempt = self.write_pieces(&file, offset, &data, stable).await?;
            resent |= attempt.resent;
            if let Some(written) = attempt.value {
                return Ok(Done { value: written, resent });
            }
            tracing::info!(server = self.place(), offset, "the server lost unstable data; writing it again");
            resent = true;
        }
        let reason = format!("the server lost what it had taken {ATTEMPTS_MAX} times");
        Err(failure(ErrorKind::Unavailable, WRITE, self.place(), reason))
    }

    /// `None` if the verifier changed between pieces of which one was not stable.
    async fn write_pieces(
        &self,
        file: &FileHandle,
        offset: u64,
        data: &Bytes,
        stable: StableHow,
    ) -> Result<Done<Option<Written>>> {
        let mut all: Option<Written> = None;
        let mut resent = false;
        let mut rest = data.clone();
        loop {
            let piece = rest.slice(..rest.len().min(self.write_max as usize));
            let at = offset + (data.len() - rest.len()) as u64;
            let one = self.write_piece(file, at, piece, stable).await?;
            resent |= one.resent;
            let Some(joined) = join(all, one.value) else { return Ok(Done { value: None, resent }) };
            all = Some(joined);
            // Not beyond the end: the decoder believes no count above the piece's length.
            rest = rest.slice((one.value.count as usize).min(rest.len())..);
            if rest.is_empty() {
                return Ok(Done { value: all, resent });
            }
        }
    }

    async fn write_piece(
        &self,
        file: &FileHandle,
        offset: u64,
        data: Bytes,
        stable: StableHow,
    ) -> Result<Done<Written>> {
        let length = data.len();
        let args = WriteArgs { file: file.clone(), offset, stable, data: data.clone() };
        let encode = |e: &mut _| args.encode_head(e);
        let decode = |d: &mut _| write::decode_write(d, length);
        let change = self.change(harmless(WRITE, procedure::WRITE), encode, data, decode);
        let done = change.await?;
        let ok = &done.value;
        if ok.count == 0 && length > 0 {
            return Err(failure(
                ErrorKind::Io,
                WRITE,
                self.place(),
                "the server takes the data and writes none",
            ));
        }
        if ok.committed < stable {
            let reason = format!("asked for {stable:?}, the server promises {:?}", ok.committed);
            return Err(failure(ErrorKind::Io, WRITE, self.place(), reason));
        }
        Ok(done.map(|ok| Written { count: ok.count.into(), committed: ok.committed, verifier: ok.verifier }))
    }

    /// Has the server store what was written to `range` of the file, and gives its verifier. A range of no
    /// length, or of 4 GiB and more, goes to the end of the file.
    ///
    /// The data is safe if this is the verifier that every write of it gave; otherwise it is to be written
    /// again. It takes as long as the server's disks need: raise `Config::call_timeout` before gigabytes.
    pub async fn commit(&self, file: &Reference, range: ByteRange) -> Result<Done<WriteVerifier>> {
        let file = handle_of(file)?;
        let args = CommitArgs { file, offset: range.offset, count: u32::try_from(range.length).unwrap_or(0) };
        let encode = |e: &mut _| args.encode(e);
        let commit = harmless(COMMIT, procedure::COMMIT);
        let done = self.change(commit, encode, Bytes::new(), write::decode_commit).await?;
        Ok(done.map(|ok| ok.verifier))
    }
}

fn harmless(what: &'static str, procedure: u32) -> Change {
    Change { what, procedure, lane: Lane::Bulk, twice: Twice::Harmless }
}

/// Two pieces as one. `None` if some of it may be lost: it is not stable, and the server began anew between
/// the pieces.
fn join(before: Option<Written>, next: Written) -> Option<Written> {
    let Some(before) = before else { return Some(next) };
    let committed = before.committed.min(next.committed);
    if before.verifier != next.verifier && before.committed == StableHow::Unstable {
        return None;
    }
    Some(Written { count: before.count + next.count, committed, verifier: next.verifier })
}
