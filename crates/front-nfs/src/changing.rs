//! Calls that change something. Each runs to its end in a task of its own: no deadline and no closing connection cuts
//! it in the middle, and its client waits. "Try again later" would be wrong: the client would ask again under a new
//! xid, and find the traces of what it asked for first. So it sends the same call again (Linux: after 60 s), which
//! joins the one that is running, and the answer goes out on both connections.
//!
//! Answers are kept for repeated calls (`duplicates.rs`), but for WRITE and COMMIT: repeated, these leave the same, and
//! they are so many that the others' answers would be forgotten. Joined they are: an older copy of a WRITE that is
//! still on its way when the client has written there again would put the old bytes back.

use std::hash::Hasher as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fair::MemoryPermit;
use rpc_nfs3::Decoder;
use rpc_nfs3::nfs3::{Status, procedure};
use rpc_nfs3::rpc::Credentials;
use siphasher::sip128::{Hasher128, SipHasher13};
use tokio::sync::watch;

use crate::Shared;
use crate::connection::Reply;
use crate::dispatch::{self, Call};
use crate::duplicates::{Duplicates, Key, Limits, Seen};

/// Of the arguments, so many bytes are compared, and how long they are. Only those of WRITE and SYMLINK are longer.
const CHECKED_BYTES: usize = 1024;

/// Two minutes of 1,300 changes a second, at about 400 bytes each.
const LIMITS: Limits = Limits {
    entries: 1 << 18,
    bytes: 64 << 20,
    // Linux clients wait 600 s at most before they send a call again.
    age: Duration::from_secs(11 * 60),
};

/// The answer, when there is one.
type Waiting = watch::Receiver<Option<Bytes>>;

/// The changes that are running or were answered.
pub struct Changes {
    known: Mutex<Duplicates<Waiting>>,
}

impl Default for Changes {
    fn default() -> Changes {
        Changes { known: Mutex::new(Duplicates::new(LIMITS)) }
    }
}

impl Changes {
    fn known<T>(&self, look: impl FnOnce(&mut Duplicates<Waiting>) -> T) -> T {
        look(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// How long a call is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    WhileRunning,
    WithItsAnswer,
}

fn known(number: u32) -> Option<Known> {
    match number {
        procedure::SETATTR
        | procedure::CREATE
        | procedure::MKDIR
        | procedure::SYMLINK
        | procedure::MKNOD
        | procedure::REMOVE
        | procedure::RMDIR
        | procedure::RENAME
        | procedure::LINK => Some(Known::WithItsAnswer),
        procedure::WRITE | procedure::COMMIT => Some(Known::WhileRunning),
        _ => None,
    }
}

/// Whether calls of this procedure belong here.
pub fn changes(number: u32) -> bool {
    known(number).is_some()
}

/// `None` if nothing can be said of the call; its client will ask again.
pub async fn answer(call: Call, xid: u32, arguments: Decoder, permit: MemoryPermit) -> Option<Reply> {
    let shared = call.shared.clone();
    let key = key_of(&call, xid, &arguments);
    let (tell, told) = watch::channel(None);
    match shared.changes.known(|known| known.begin(key, told.clone(), Instant::now())) {
        Seen::New => {
            let mut running = Running { shared, key, tell, reply: None };
            tokio::spawn(async move {
                let (reply, is_final) = dispatch::carry_out(&call, xid, arguments, None).await;
                drop(permit);
                running.over(reply.head, is_final && known(call.procedure) == Some(Known::WithItsAnswer));
            });
            wait_for(told).await
        }
        Seen::Running(told) => {
            shared.metrics.joins.inc();
            drop((call, arguments, permit)); // the first one has its own
            wait_for(told).await
        }
        Seen::Done(head) => {
            shared.metrics.replays.inc();
            Some(Reply::new(head))
        }
        Seen::Full => Some(dispatch::failed(&call, xid, Status::JUKEBOX)),
    }
}

async fn wait_for(mut told: Waiting) -> Option<Reply> {
    let head = told.wait_for(Option::is_some).await.ok()?.clone()?;
    Some(Reply::new(head))
}

/// A call that is being carried out; however that ends, it is not running any more.
struct Running {
    shared: Arc<Shared>,
    key: Key,
    tell: watch::Sender<Option<Bytes>>,
    /// To be kept for who asks again.
    reply: Option<Bytes>,
}

impl Running {
    fn over(&mut self, reply: Bytes, keep: bool) {
        self.reply = keep.then(|| reply.clone());
        self.tell.send_replace(Some(reply));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let reply = self.reply.take();
        self.shared.changes.known(|known| known.done(self.key, reply.as_deref(), Instant::now()));
    }
}

fn key_of(call: &Call, xid: u32, arguments: &Decoder) -> Key {
    // Under the secret of the handles, so that no user of a client can make up a call that passes for another's.
    let mut hasher = SipHasher13::new_with_key(&call.shared.config.handle_key);
    if let Credentials::Sys(sys) = &call.credentials {
        hasher.write_u32(sys.uid);
        hasher.write_u32(sys.gid);
    }
    let arguments = arguments.rest();
    hasher.write_usize(arguments.len());
    hasher.write(&arguments[..arguments.len().min(CHECKED_BYTES)]);
    Key {
        client: call.peer.address.ip().to_canonical(),
        xid,
        procedure: call.procedure,
        checksum: hasher.finish128().as_u128(),
    }
}
