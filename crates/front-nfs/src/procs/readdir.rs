//! READDIR and READDIRPLUS: as many entries as the client's byte counts allow.
//!
//! Cookies come from `vfs` and stay valid whatever happens to the directory, so the cookie verifier is constant and
//! never refused.

use rpc_nfs3::nfs3::Status;
use rpc_nfs3::nfs3::readdir::{self, END_BYTES, Entry, ReaddirArgs};
use rpc_nfs3::{Decoder, Encoder};
use types::JunctionId;
use vfs::DirItem;

use super::Done;
use crate::attr::fattr3;
use crate::dispatch::{Call, Failure, Payload};
use crate::shown::Shown;

const VERIFIER: [u8; 8] = *b"forebay1";
/// Largest result made, whatever the client asks for.
const RESULT_BYTES_MAX: usize = 1 << 20;
/// What an entry takes in memory before it is encoded, about as much as after it.
const COPIES: usize = 2;
/// Items taken from `vfs` at a time, at most.
const ITEMS_MAX: usize = 4096;

pub async fn run(call: &Call, d: &mut Decoder, e: &mut Encoder, plus: bool) -> Done {
    let arguments = ReaddirArgs::decode(d, plus)?;
    let (dir, caller) = call.open(&arguments.dir)?;
    let result_max = (arguments.max_count as usize).min(RESULT_BYTES_MAX);
    let names_max = if plus { arguments.dir_count as usize } else { usize::MAX };
    // An entry takes at least this much, so no more can fit.
    let entry_min = if plus { 160 } else { 28 };
    let items_max = (result_max / entry_min).clamp(3, ITEMS_MAX);
    let mut permit = call.peer.replies.acquire(COPIES * result_max).await;
    let mut listing = call.shared.vfs.readdir(&caller, dir, arguments.cookie, items_max).await?;
    if listing.dir.junction == JunctionId::VIRTUAL {
        // Few, and all of them: what is left out must not be a page without a name.
        listing = call.shared.vfs.readdir(&caller, dir, arguments.cookie, ITEMS_MAX).await?;
        let shown = Shown::new(call).await;
        listing.items.retain(|item| is_dot(&item.name) || shown.shows(call, item.node.as_ref()));
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
        return Err(Failure::Status(Status::TOOSMALL));
    }
    readdir::encode_end(e, listing.eof && fitted == listing.items.len());
    permit.shrink_to(e.len());
    Ok(Payload { permit, ..Payload::default() })
}

fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

fn entry(call: &Call, item: &DirItem, plus: bool) -> Entry {
    let node = item.node.as_ref().filter(|_| plus);
    Entry {
        fileid: item.fileid,
        name: item.name.clone(),
        cookie: item.cookie,
        attr: node.map(|node| fattr3(&node.attr)),
        handle: node.and_then(|node| call.handle(node)),
    }
}
