//! A linearizable etcd in memory, for tests of what is built on a [`Coordinator`].
//!
//! [`ModelEtcd`] is the servers: they go away and come back, are compacted, wiped, or restored from a [`ModelSnapshot`]. Each
//! node of a test has a [`ModelClient`] of its own, which can be cut off, killed, or lose the answer to a swap. Everything is
//! one state under one lock, so that each call is done at one moment.
//!
//! Time is injected: [`ModelEtcd::advance`] is the only thing that makes it pass, and no task keeps a lease. A lease whose
//! holder lives and reaches etcd is kept at each step; any other one ends when a step passes its end.

mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot, watch};
use types::{Error, ErrorKind, Result};

use crate::lease::{LeaseKeeper, whole_seconds};
use crate::swap::SwapVerdict;
use crate::{
    Coordinator, KeyWatch, Lease, LeaseId, LeaseState, PrefixState, Revision, Swap, SwapLoss, SwapOutcome,
    WatchEvent,
};
use state::{ModelState, WatchPlace};

/// Clones are the same etcd.
#[derive(Clone, Debug)]
pub struct ModelEtcd {
    shared: Arc<ModelShared>,
}

#[derive(Debug)]
struct ModelShared {
    state: Mutex<ModelState>,
    /// Counted up whenever a watch may have something to tell.
    changed: watch::Sender<u64>,
}

/// What a backup has.
#[derive(Clone, Debug)]
pub struct ModelSnapshot(state::StoredState);

/// How the answer to a swap is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostAnswer {
    /// The swap is tried, and its outcome is found by looking at its keys.
    ReadBack,
    /// The swap is tried, and nobody can say whether it was done.
    Tried,
    /// The swap is not tried, and nobody can say that.
    NeverSent,
}

impl Default for ModelEtcd {
    fn default() -> ModelEtcd {
        let (changed, _) = watch::channel(0);
        let state = Mutex::new(ModelState::new());
        ModelEtcd { shared: Arc::new(ModelShared { state, changed }) }
    }
}

impl ModelEtcd {
    pub fn new() -> ModelEtcd {
        ModelEtcd::default()
    }

    /// One more node.
    pub fn client(&self) -> ModelClient {
        let id = self.shared.change(ModelState::add_client);
        ModelClient { shared: self.shared.clone(), id }
    }

    /// Time passes, in one step.
    pub fn advance(&self, by: Duration) {
        self.shared.change(|state| state.advance(by));
    }

    /// Nobody answers any call until it is back. Leases do not end meanwhile, and begin anew then.
    pub fn set_away(&self, away: bool) {
        self.shared.change(|state| state.set_away(away));
    }

    /// What was before the present revision is forgotten.
    pub fn compact(&self) {
        self.shared.change(ModelState::compact);
    }

    pub fn snapshot(&self) -> ModelSnapshot {
        ModelSnapshot(self.shared.lock().stored())
    }

    /// All is as it was when the snapshot was made, its revision too.
    pub fn restore(&self, snapshot: &ModelSnapshot) {
        self.shared.change(|state| state.restore(snapshot.0.clone()));
    }

    /// An etcd that has never held anything.
    pub fn wipe(&self) {
        self.shared.change(|state| state.restore(state::StoredState::default()));
    }
}

impl ModelShared {
    fn lock(&self) -> MutexGuard<'_, ModelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the state, and has all leases and watches see it.
    fn change<T>(&self, change: impl FnOnce(&mut ModelState) -> T) -> T {
        let mut state = self.lock();
        let done = change(&mut state);
        state.settle();
        drop(state);
        self.changed.send_modify(|count| *count += 1);
        done
    }
}

/// What one node has of the model.
#[derive(Clone, Debug)]
pub struct ModelClient {
    shared: Arc<ModelShared>,
    id: u64,
}

impl ModelClient {
    /// It reaches no server, or does again.
    pub fn set_cut_off(&self, cut_off: bool) {
        self.shared.change(|state| state.client(self.id).cut_off = cut_off);
    }

    /// Its process ends: nothing is kept, revoked or told any more.
    pub fn kill(&self) {
        self.set_cut_off(true);
    }

    /// The next swap has no answer.
    pub fn lose_next_answer(&self, how: LostAnswer) {
        self.shared.lock().client(self.id).lose = Some(how);
    }

    /// Does a call, if a server can be reached.
    fn call<T>(&self, operation: &'static str, call: impl FnOnce(&mut ModelState) -> Result<T>) -> Result<T> {
        self.shared.change(|state| {
            if !state.is_reached_by(self.id) {
                return Err(Error::new(ErrorKind::Unavailable, operation, self.url()));
            }
            let now = state.now();
            state.client(self.id).heard = Some(now);
            call(state)
        })
    }
}

#[async_trait]
impl Coordinator for ModelClient {
    fn url(&self) -> String {
        "model://etcd/show".to_owned()
    }

    fn heard(&self) -> Option<Duration> {
        let mut state = self.shared.lock();
        let now = state.now();
        state.client(self.id).heard.map(|then| now.saturating_sub(then))
    }

    async fn read(&self, prefix: &str) -> Result<PrefixState> {
        self.call("read from etcd", |state| Ok(state.read(prefix)))
    }

    async fn swap(&self, swap: &Swap) -> Result<SwapOutcome> {
        const SWAP: &str = "swap keys in etcd";
        swap.check()?;
        let unknown = || {
            let lost = Error::new(ErrorKind::Unavailable, SWAP, "the answer was lost");
            Error::doubtful(SWAP, swap.name(), lost)
        };
        self.call(SWAP, |state| {
            let lose = state.client(self.id).lose.take();
            if lose == Some(LostAnswer::NeverSent) {
                return Err(unknown());
            }
            let outcome = state.swap(swap)?;
            match lose {
                None => Ok(outcome),
                Some(LostAnswer::ReadBack) => {
                    let current = state.look(swap);
                    let revision = state.revision();
                    match swap.judge(&current) {
                        SwapVerdict::Done(at) => Ok(SwapOutcome::Won(at)),
                        SwapVerdict::Never => Ok(SwapOutcome::Lost(SwapLoss { current, revision })),
                        // It is not sent again, and nobody looks into the history.
                        SwapVerdict::NotYet | SwapVerdict::Overtaken { .. } | SwapVerdict::Unclear => {
                            Err(unknown())
                        }
                    }
                }
                Some(LostAnswer::Tried | LostAnswer::NeverSent) => Err(unknown()),
            }
        })
    }

    fn watch(&self, prefix: &str, behind: Option<Revision>) -> KeyWatch {
        let (told, watch) = KeyWatch::channel();
        let place = self.shared.lock().watch_place(behind);
        let changed = self.shared.changed.subscribe();
        tokio::spawn(follow(self.clone(), prefix.to_owned(), place, changed, told));
        watch
    }

    async fn grant(&self, ttl: Duration) -> Result<Lease> {
        let ttl = Duration::from_secs(whole_seconds(ttl)?.into());
        let (states_told, states) = watch::channel(LeaseState::Held);
        let (stop, stopped) = oneshot::channel();
        let id = self.call("grant a lease", |state| Ok(state.grant(self.id, ttl, states_told, stopped)))?;
        let keeper = Arc::new(ModelLeaseKeeper { client: self.clone(), id });
        Ok(Lease::new(id, ttl, states, keeper, stop))
    }
}

struct ModelLeaseKeeper {
    client: ModelClient,
    id: LeaseId,
}

#[async_trait]
impl LeaseKeeper for ModelLeaseKeeper {
    fn remaining(&self) -> Duration {
        self.client.shared.lock().remaining(self.id)
    }

    async fn revoke(&self) -> Result<()> {
        self.client.call("revoke a lease", |state| {
            state.end_lease(self.id);
            Ok(())
        })
    }
}

/// Tells a watch what it does not have, whenever there is something.
async fn follow(
    client: ModelClient,
    prefix: String,
    mut place: WatchPlace,
    mut changed: watch::Receiver<u64>,
    told: mpsc::Sender<WatchEvent>,
) {
    loop {
        changed.mark_unchanged();
        let next = {
            let state = client.shared.lock();
            if state.is_reached_by(client.id) { state.next_event(&prefix, &mut place) } else { None }
        };
        match next {
            Some(event) => {
                if told.send(event).await.is_err() {
                    return;
                }
            }
            None => tokio::select! {
                () = told.closed() => return,
                changed = changed.changed() => if changed.is_err() { return },
            },
        }
    }
}
