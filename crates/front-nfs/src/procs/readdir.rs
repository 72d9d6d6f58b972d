//! READDIR and READDIRPLUS: as many entries as the client's byte counts allow.
//!
//! Cookies come from `vfs` and stay valid whatever happens to the directory, so the cookie verifier is constant and
//! never refused.

use rpc_nfs3::nfs3::NfsStatus;
use rpc_nfs3::nfs3::readdir::{self, DirEntry3, END_BYTES, ReaddirArgs};
use rpc_nfs3::{XdrDecoder, XdrEncoder};
use types::JunctionId;
use vfs::DirItem;

use super::ProcedureResult;
use crate::attr::fattr3;
use crate::call::{CallFailure, NfsCall, ReplyPayload};
use crate::visible_directories::VisibleDirectories;

const VERIFIER: [u8; 8] = *b"forebay1";
/// The largest result, whatever the client asks for.
const RESULT_BYTES_MAX: usize = 1 << 20;
/// The memory of an entry as a multiple of its encoded size: before and after it is encoded.
const COPIES: usize = 2;
/// The most items of one call to `vfs`.
const ITEMS_MAX: usize = 4096;

pub async fn run(call: &NfsCall, d: &mut XdrDecoder, e: &mut XdrEncoder, plus: bool) -> ProcedureResult {
    let arguments = ReaddirArgs::decode(d, plus)?;
    let (dir, caller) = call.open(&arguments.dir).await?;
    let result_max = (arguments.max_count as usize).min(RESULT_BYTES_MAX);
    let names_max = if plus { arguments.dir_count as usize } else { usize::MAX };
    // The least size of an entry: no more entries can fit.
    let entry_min = if plus { 160 } else { 28 };
    let items_max = (result_max / entry_min).clamp(3, ITEMS_MAX);
    let mut permit = call.peer.replies.acquire(COPIES * result_max).await;
    let mut listing = call.shared.vfs.readdir(&caller, dir, arguments.cookie, items_max).await?;
    if listing.dir.junction == JunctionId::VIRTUAL {
        // Such directories are small, and read as a whole: filtering must not leave a page empty.
        listing = call.shared.vfs.readdir(&caller, dir, arguments.cookie, ITEMS_MAX).await?;
        let visible = VisibleDirectories::new(call).await;
        listing.items.retain(|item| is_dot(&item.name) || visible.shows(call, item.node.as_ref()));
    }
    let begin = e.len();
    readdir::encode_begin(e, &Some(fattr3(&listing.dir.attr)), &VERIFIER);
    let mut names = 0;
    let mut fitted = 0;
    for item in &listing.items {
        let entry = entry(call, item, plus);
        let before = e.len();
        entry.encode(e, plus);
        names += entry.dir_bytes();
        // Linux and Solaris count the four bytes of the status in neither limit.
        if e.len() - begin - 4 + END_BYTES > result_max || (names > names_max && fitted > 0) {
            e.truncate(before);
            break;
        }
        fitted += 1;
    }
    if fitted == 0 && !listing.items.is_empty() {
        return Err(CallFailure::Status(NfsStatus::TOOSMALL));
    }
    readdir::encode_end(e, listing.eof && fitted == listing.items.len());
    permit.shrink_to(e.len());
    Ok(ReplyPayload { permit, ..ReplyPayload::default() })
}

fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

fn entry(call: &NfsCall, item: &DirItem, plus: bool) -> DirEntry3 {
    let node = item.node.as_ref().filter(|_| plus);
    DirEntry3 {
        fileid: item.fileid,
        name: item.name.clone(),
        cookie: item.cookie,
        attr: node.map(|node| fattr3(&node.attr)),
        handle: node.and_then(|node| call.handle(node)),
    }
}
