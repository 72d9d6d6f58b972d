//! Calls that change something. Each runs to its end in a task of its own: no deadline and no closing connection
//! cuts it short, and its client waits. JUKEBOX would be wrong: the client would repeat the call under a new xid and
//! find the traces of its first one. As it is, the client repeats the call unchanged (Linux: after 60 s); the copy
//! joins the call that is running, and the reply is sent on both connections.
//!
//! Replies are kept for later copies (`duplicate_cache.rs`), but not those of WRITE and COMMIT: these are
//! idempotent, and so many that they would push out the others. Copies of a running WRITE are joined, though: one
//! that is executed after the client has written there again would put the old bytes back.

use std::hash::Hasher as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fair::MemoryPermit;
use rpc_nfs3::XdrDecoder;
use rpc_nfs3::nfs3::NfsStatus;
use rpc_nfs3::rpc::Credentials;
use siphasher::sip128::{Hasher128, SipHasher13};
use tokio::sync::watch;

use crate::NfsState;
use crate::call::NfsCall;
use crate::duplicate_cache::{CallKey, CallLookup, DuplicateCache, DuplicateLimits};
use crate::execute;
use crate::message::NfsReply;
use crate::retention::{Retention, retention};

/// The bytes of the arguments that are compared, beside their length. Only those of WRITE and SYMLINK are longer.
const CHECKED_BYTES: usize = 1024;

/// Room for two minutes of 1,300 changes a second, at about 400 bytes each.
const LIMITS: DuplicateLimits = DuplicateLimits {
    entries: 1 << 18,
    bytes: 64 << 20,
    // Linux clients wait 600 s at most before they repeat a call.
    age: Duration::from_secs(11 * 60),
};

/// Receives the reply of a running call.
type ReplyReceiver = watch::Receiver<Option<Bytes>>;

/// The changes that are running or were answered.
pub struct ChangeTracker {
    known: Mutex<DuplicateCache<ReplyReceiver>>,
}

impl Default for ChangeTracker {
    fn default() -> ChangeTracker {
        ChangeTracker { known: Mutex::new(DuplicateCache::new(LIMITS)) }
    }
}

impl ChangeTracker {
    fn with_cache<T>(&self, look: impl FnOnce(&mut DuplicateCache<ReplyReceiver>) -> T) -> T {
        look(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Carries out a change, or joins or replays the first copy of it. `None`: the call was lost with its task; the
/// client will repeat it.
pub async fn handle(
    call: NfsCall,
    xid: u32,
    arguments: XdrDecoder,
    permit: MemoryPermit,
) -> Option<NfsReply> {
    let shared = call.shared.clone();
    let key = call_key(&call, xid, &arguments);
    let (sender, receiver) = watch::channel(None);
    match shared.changes.with_cache(|known| known.begin(key, receiver.clone(), Instant::now())) {
        CallLookup::New => {
            let mut running = RunningChange { shared, key, sender, reply: None };
            tokio::spawn(async move {
                let (reply, is_final) = execute::execute(&call, xid, arguments, None).await;
                drop(permit);
                running.finish(
                    reply.head,
                    is_final && retention(call.procedure) == Some(Retention::WithItsAnswer),
                );
            });
            await_reply(receiver).await
        }
        CallLookup::Running(receiver) => {
            shared.metrics.joins.inc();
            drop((call, arguments, permit)); // the first one has its own
            await_reply(receiver).await
        }
        CallLookup::Done(head) => {
            shared.metrics.replays.inc();
            Some(NfsReply::new(head))
        }
        CallLookup::Full => Some(execute::status_reply(&call, xid, NfsStatus::JUKEBOX)),
    }
}

async fn await_reply(mut receiver: ReplyReceiver) -> Option<NfsReply> {
    let head = receiver.wait_for(Option::is_some).await.ok()?.clone()?;
    Some(NfsReply::new(head))
}

/// A change that is being carried out. Dropping it, also in a panic, ends the call's entry.
struct RunningChange {
    shared: Arc<NfsState>,
    key: CallKey,
    sender: watch::Sender<Option<Bytes>>,
    /// The reply to keep for later copies.
    reply: Option<Bytes>,
}

impl RunningChange {
    fn finish(&mut self, reply: Bytes, keep: bool) {
        self.reply = keep.then(|| reply.clone());
        self.sender.send_replace(Some(reply));
    }
}

impl Drop for RunningChange {
    fn drop(&mut self) {
        let reply = self.reply.take();
        self.shared.changes.with_cache(|known| known.done(self.key, reply.as_deref(), Instant::now()));
    }
}

fn call_key(call: &NfsCall, xid: u32, arguments: &XdrDecoder) -> CallKey {
    // Keyed with the handle secret, so that no user of a client can make up a call that passes for another's.
    let mut hasher = SipHasher13::new_with_key(&call.shared.config.handle_key);
    if let Credentials::Sys(sys) = &call.credentials {
        hasher.write_u32(sys.uid);
        hasher.write_u32(sys.gid);
    }
    let arguments = arguments.rest();
    hasher.write_usize(arguments.len());
    hasher.write(&arguments[..arguments.len().min(CHECKED_BYTES)]);
    CallKey {
        client: call.peer.address.ip().to_canonical(),
        xid,
        procedure: call.procedure,
        checksum: hasher.finish128().as_u128(),
    }
}
