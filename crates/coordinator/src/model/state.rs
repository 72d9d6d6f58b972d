//! The model's state, and all that changes it. No lock, no task, no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{oneshot, watch};
use types::{Error, ErrorKind, Result};

use super::LostAnswer;
use crate::{
    KeyChange, KeyEntry, LeaseId, LeaseState, PrefixState, Revision, Swap, SwapAction, SwapLoss, SwapOutcome,
    WatchEvent,
};

#[derive(Debug)]
pub struct ModelState {
    stored: StoredState,
    /// Counted up when the stored state becomes another one, as by a restored backup.
    history: u64,
    now: Duration,
    away: bool,
    /// Those that ended too, because their holders may not know it.
    leases: BTreeMap<LeaseId, ModelLease>,
    clients: BTreeMap<u64, ModelClientState>,
}

/// What the servers have on their disks.
#[derive(Clone, Debug)]
pub struct StoredState {
    /// An etcd that holds nothing is at 1.
    revision: u64,
    /// What was at an earlier one is forgotten.
    compacted: u64,
    keys: BTreeMap<String, KeyEntry>,
    log: Vec<(Revision, Vec<KeyChange>)>,
    live: BTreeSet<LeaseId>,
}

#[derive(Debug)]
struct ModelLease {
    client: u64,
    ttl: Duration,
    /// When it ends unless it is kept.
    until: Duration,
    /// As its holder knows it.
    kept_until: Duration,
    states: watch::Sender<LeaseState>,
    /// Closed when the holder has dropped it.
    stopped: oneshot::Receiver<()>,
}

#[derive(Debug, Default)]
pub struct ModelClientState {
    pub cut_off: bool,
    pub lose: Option<LostAnswer>,
    pub heard: Option<Duration>,
}

/// How far a watch has come.
#[derive(Debug)]
pub struct WatchPlace {
    history: u64,
    /// `None`: it has been told nothing so far.
    at: Option<Revision>,
}

impl Default for StoredState {
    fn default() -> StoredState {
        StoredState {
            revision: 1,
            compacted: 0,
            keys: BTreeMap::new(),
            log: Vec::new(),
            live: BTreeSet::new(),
        }
    }
}

/// Controls.
impl ModelState {
    pub fn new() -> ModelState {
        ModelState {
            stored: StoredState::default(),
            history: 0,
            now: Duration::ZERO,
            away: false,
            leases: BTreeMap::new(),
            clients: BTreeMap::new(),
        }
    }

    pub fn now(&self) -> Duration {
        self.now
    }

    pub fn add_client(&mut self) -> u64 {
        let id = self.clients.len() as u64;
        self.clients.insert(id, ModelClientState::default());
        id
    }

    pub fn client(&mut self, id: u64) -> &mut ModelClientState {
        self.clients.entry(id).or_default()
    }

    pub fn is_reached_by(&self, client: u64) -> bool {
        !self.away && self.clients.get(&client).is_some_and(|client| !client.cut_off)
    }

    pub fn advance(&mut self, by: Duration) {
        // Keepalives of the time that passes come before its end.
        self.settle();
        self.now += by;
        self.settle();
    }

    pub fn set_away(&mut self, away: bool) {
        if self.away && !away {
            self.begin_leases_anew();
        }
        self.away = away;
    }

    pub fn compact(&mut self) {
        self.stored.compacted = self.stored.revision;
        self.stored.log.clear();
    }

    pub fn stored(&self) -> StoredState {
        self.stored.clone()
    }

    pub fn restore(&mut self, stored: StoredState) {
        self.stored = stored;
        self.history += 1;
        self.begin_leases_anew();
    }

    /// As after an election.
    fn begin_leases_anew(&mut self) {
        for lease in self.leases.values_mut() {
            lease.until = self.now + lease.ttl;
        }
    }

    /// Keepalives reach etcd where they can, leases end whose time is over, and holders hear of it where they can.
    pub fn settle(&mut self) {
        let (now, away) = (self.now, self.away);
        let reached: BTreeSet<u64> =
            self.clients.keys().copied().filter(|client| self.is_reached_by(*client)).collect();
        let mut over = Vec::new();
        for (id, lease) in &mut self.leases {
            let live = self.stored.live.contains(id);
            let held = !matches!(lease.stopped.try_recv(), Err(TryRecvError::Closed));
            let keeps = held && reached.contains(&lease.client);
            if live && keeps {
                lease.until = now + lease.ttl;
                lease.kept_until = lease.until;
            }
            if live && !away && lease.until <= now {
                over.push(*id);
            }
            let state = match keeps {
                true if live => LeaseState::Held,
                true => LeaseState::Lost,
                false if lease.kept_until <= now => LeaseState::Doubtful,
                false => continue,
            };
            lease.states.send_if_modified(|told| {
                *told != LeaseState::Lost && std::mem::replace(told, state) != state
            });
        }
        for id in over {
            self.end_lease(id);
        }
    }
}

/// Calls.
impl ModelState {
    pub fn revision(&self) -> Revision {
        Revision(self.stored.revision)
    }

    pub fn read(&self, prefix: &str) -> PrefixState {
        let from = self.stored.keys.range(prefix.to_owned()..);
        let below = from.take_while(|(key, _)| key.starts_with(prefix));
        PrefixState { entries: below.map(|(_, entry)| entry.clone()).collect(), revision: self.revision() }
    }

    pub fn look(&self, swap: &Swap) -> Vec<Option<KeyEntry>> {
        swap.keys().iter().map(|key| self.stored.keys.get(&key.key).cloned()).collect()
    }

    pub fn swap(&mut self, swap: &Swap) -> Result<SwapOutcome> {
        let current = self.look(swap);
        if !swap.keys().iter().zip(&current).all(|(key, now)| key.expected.is_met_by(now.as_ref())) {
            return Ok(SwapOutcome::Lost(SwapLoss { current, revision: self.revision() }));
        }
        let revision = Revision(self.stored.revision + 1);
        let mut changes = Vec::new();
        for key in swap.keys() {
            match &key.action {
                SwapAction::Put { value, lease } => {
                    if let Some(lease) = lease.filter(|lease| !self.stored.live.contains(lease)) {
                        let context = format!("{}: there is no {lease:?}", key.key);
                        return Err(Error::new(ErrorKind::NotFound, "swap keys in etcd", context));
                    }
                    let (key, value, lease) = (key.key.clone(), value.clone(), *lease);
                    changes.push(KeyChange::Put(KeyEntry { key, value, revision, lease }));
                }
                SwapAction::Delete => changes.push(KeyChange::Deleted { key: key.key.clone() }),
                SwapAction::Keep => {}
            }
        }
        self.commit(revision, changes);
        Ok(SwapOutcome::Won(revision))
    }

    fn commit(&mut self, revision: Revision, changes: Vec<KeyChange>) {
        for change in &changes {
            match change {
                KeyChange::Put(entry) => self.stored.keys.insert(entry.key.clone(), entry.clone()),
                KeyChange::Deleted { key } => self.stored.keys.remove(key),
            };
        }
        self.stored.revision = revision.0;
        self.stored.log.push((revision, changes));
    }

    pub fn grant(
        &mut self,
        client: u64,
        ttl: Duration,
        states: watch::Sender<LeaseState>,
        stopped: oneshot::Receiver<()>,
    ) -> LeaseId {
        let id = LeaseId(self.leases.len() as i64 + 1);
        let until = self.now + ttl;
        self.leases.insert(id, ModelLease { client, ttl, until, kept_until: until, states, stopped });
        self.stored.live.insert(id);
        id
    }

    pub fn remaining(&self, id: LeaseId) -> Duration {
        self.leases.get(&id).map_or(Duration::ZERO, |lease| lease.kept_until.saturating_sub(self.now))
    }

    /// Its keys go with it, at one revision.
    pub fn end_lease(&mut self, id: LeaseId) {
        if !self.stored.live.remove(&id) {
            return;
        }
        let of_lease = self.stored.keys.values().filter(|entry| entry.lease == Some(id));
        let changes: Vec<_> = of_lease.map(|entry| KeyChange::Deleted { key: entry.key.clone() }).collect();
        if !changes.is_empty() {
            self.commit(Revision(self.stored.revision + 1), changes);
        }
    }

    pub fn watch_place(&self, behind: Option<Revision>) -> WatchPlace {
        WatchPlace { history: self.history, at: behind.filter(|at| *at != Revision(0)) }
    }

    /// What a watch is told next.
    pub fn next_event(&self, prefix: &str, place: &mut WatchPlace) -> Option<WatchEvent> {
        let went_back =
            place.at.is_some_and(|at| place.history != self.history || at.0 > self.stored.revision);
        let at = match place.at {
            Some(at) if !went_back && at.0 >= self.stored.compacted => at,
            _ => {
                let state = self.read(prefix);
                *place = WatchPlace { history: self.history, at: Some(state.revision) };
                return Some(WatchEvent::Reset { state, went_back });
            }
        };
        for (revision, changes) in self.stored.log.iter().filter(|(revision, _)| *revision > at) {
            place.at = Some(*revision);
            let below = changes.iter().filter(|change| change.key().starts_with(prefix));
            let changes: Vec<_> = below.cloned().collect();
            if !changes.is_empty() {
                return Some(WatchEvent::Changed { revision: *revision, changes });
            }
        }
        None
    }
}
