//! WRITE and COMMIT.
//!
//! Both may be carried out twice without a difference, so a lost connection costs nothing but time. What may
//! be lost is data that the server has taken but not stored: a write verifier that is another one than before
//! says so. Within one `write` it is noticed and everything is written again; between calls it is for the
//! caller, who alone still has the data, to compare the verifiers of its writes with the one of `commit`.

use bytes::Bytes;
use origin::change::end_of_write;
use origin::{Committed, Reference, Written};
use rpc_nfs3::nfs3::wcc::WccAttr;
use rpc_nfs3::nfs3::write::{self, CommitArgs, WriteArgs};
use rpc_nfs3::nfs3::{FileHandle, procedure};
use types::{ByteRange, ErrorKind, Result, Stability, Version};

use crate::attributes::{stability_of, to_stable_how};
use crate::connection_pool::Lane;
use crate::delivery::{Procedure, Repetition};
use crate::errors::failure;
use crate::mutate::before_of;
use crate::origin::{NfsOrigin, attr_of, handle_of, object};

const WRITE: &str = "write to";
const COMMIT: &str = "commit";

/// How often the data of one `write` is written when the server loses parts of it each time.
const ATTEMPTS_MAX: u32 = 3;

/// A WRITE that was answered.
struct WritePiece {
    written: Written,
    /// The leading bytes that were written: at least one, if any were given.
    count: usize,
}

impl NfsOrigin {
    /// One WRITE call after the other; who wants pieces side by side cuts by `write_max`. The data is sent as it lies,
    /// not copied. Short writes of the server are continued.
    pub(crate) async fn write_all(
        &self,
        file: &Reference,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<Written> {
        end_of_write(offset, data.len())?;
        let file = handle_of(file)?;
        let mut resent = false;
        for _ in 0..ATTEMPTS_MAX {
            if let Some(written) = self.write_pieces(&file, offset, &data, stability).await? {
                return Ok(Written { resent: written.resent || resent, ..written });
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
        stability: Stability,
    ) -> Result<Option<Written>> {
        let mut all: Option<Written> = None;
        let mut rest = data.clone();
        loop {
            let piece = rest.slice(..rest.len().min(self.write_max as usize));
            let at = offset + (data.len() - rest.len()) as u64;
            let WritePiece { written, count } = self.write_piece(file, at, piece, stability).await?;
            let Some(joined) = join(all, written) else { return Ok(None) };
            // Not beyond the end: the decoder believes no count above the piece's length.
            rest = rest.slice(count.min(rest.len())..);
            if rest.is_empty() {
                return Ok(Some(joined));
            }
            all = Some(joined);
        }
    }

    async fn write_piece(
        &self,
        file: &FileHandle,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<WritePiece> {
        let length = data.len();
        let args =
            WriteArgs { file: file.clone(), offset, stable: to_stable_how(stability), data: data.clone() };
        let encode = |e: &mut _| args.encode_head(e);
        let decode = |d: &mut _| write::decode_write(d, length);
        let done = self.deliver(harmless(WRITE, procedure::WRITE), encode, data, decode).await?;
        let ok = &done.value;
        if ok.count == 0 && length > 0 {
            let reason = "the server takes the data and writes none";
            return Err(failure(ErrorKind::Io, WRITE, self.place(), reason));
        }
        let promised = stability_of(ok.committed);
        if promised < stability {
            let reason = format!("asked for {stability:?}, the server promises {promised:?}");
            return Err(failure(ErrorKind::Io, WRITE, self.place(), reason));
        }
        let written = Written {
            stability: promised,
            verifier: ok.verifier,
            before: ok.wcc.before.as_ref().map(version_of),
            after: ok.wcc.after.as_ref().map(|after| object(file.clone(), attr_of(after))),
            resent: done.resent,
        };
        Ok(WritePiece { written, count: ok.count as usize })
    }

    /// A range of 4 GiB and more goes to the end of the file, too. It takes as long as the server's disks need: raise
    /// `Config::call_timeout` before gigabytes.
    pub(crate) async fn commit_range(&self, file: &Reference, range: ByteRange) -> Result<Committed> {
        let file = handle_of(file)?;
        let args = CommitArgs { file, offset: range.offset, count: u32::try_from(range.length).unwrap_or(0) };
        let encode = |e: &mut _| args.encode(e);
        let commit = harmless(COMMIT, procedure::COMMIT);
        let done = self.deliver(commit, encode, Bytes::new(), write::decode_commit).await?;
        let wcc = &done.value.wcc;
        Ok(Committed {
            verifier: done.value.verifier,
            before: wcc.before.as_ref().map(version_of),
            after: wcc.after.as_ref().map(|after| object(args.file, attr_of(after))),
            resent: done.resent,
        })
    }
}

fn harmless(what: &'static str, number: u32) -> Procedure {
    Procedure { what, number, lane: Lane::Bulk, twice: Repetition::Harmless }
}

fn version_of(before: &WccAttr) -> Version {
    before_of(before).version
}

/// Two pieces as one. `None` if some of it may be lost: it is not stable, and the server began anew between
/// the pieces.
fn join(before: Option<Written>, next: Written) -> Option<Written> {
    let Some(first) = before else { return Some(next) };
    if first.verifier != next.verifier && first.stability == Stability::Unstable {
        return None;
    }
    // A change by others between the pieces must not be taken for ours.
    let in_turn = first.after.as_ref().map(|object| object.version) == next.before;
    Some(Written {
        stability: first.stability.min(next.stability),
        before: first.before.filter(|_| in_turn),
        resent: first.resent || next.resent,
        ..next
    })
}
