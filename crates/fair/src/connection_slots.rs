//! Slots for connections: so many in all, of one client, and of one group of clients (an export). When they run out,
//! the least active connection of the client that has more than an even part is closed, and the new one gets its
//! slot; nobody waits for a slot.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::client_of;
use crate::closing_order::{ClosingCandidate, ClosingOrder, Id};

/// A connection that was active within this time is not closed for a client that has too many itself.
const RECENTLY_ACTIVE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub struct SlotLimits {
    pub all: usize,
    /// The most of one client.
    pub client: usize,
}

/// A group of clients that have a bound together, such as those of one export rule.
#[derive(Clone, Copy, Debug)]
pub struct SlotGroup {
    pub id: u64,
    /// The most connections of the group, as the configuration is now.
    pub max: usize,
}

pub struct ConnectionSlots {
    limits: SlotLimits,
    begun: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: Id,
    open: HashMap<Id, OpenConnection>,
    all: ClosingOrder,
    groups: HashMap<u64, ClosingOrder>,
}

struct OpenConnection {
    client: IpAddr,
    group: Option<u64>,
    shared: Arc<Activity>,
}

/// The activity of a connection, shared by the connection and the slots.
struct Activity {
    /// When it was opened or last active, in milliseconds since the slots began.
    active_ms: AtomicU64,
    close: Notify,
}

/// A connection's slot, released when it is dropped.
pub struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    id: Id,
    shared: Arc<Activity>,
}

pub enum SlotAdmission {
    Taken {
        slot: ConnectionSlot,
        /// The client whose connection is closed for it.
        closed: Option<IpAddr>,
    },
    /// The client has too many connections, and all of them are active.
    Refused,
}

impl ConnectionSlots {
    pub fn new(limits: SlotLimits) -> Arc<ConnectionSlots> {
        Arc::new(ConnectionSlots { limits, begun: Instant::now(), state: Mutex::default() })
    }

    pub fn admit(self: &Arc<ConnectionSlots>, address: IpAddr, group: Option<SlotGroup>) -> SlotAdmission {
        self.admit_at(address, group, self.now())
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn admit_at(
        self: &Arc<ConnectionSlots>,
        address: IpAddr,
        group: Option<SlotGroup>,
        now: u64,
    ) -> SlotAdmission {
        let client = client_of(address);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(closing) = state.find_place(self.limits, client, group, now) else {
            return SlotAdmission::Refused;
        };
        let closed = closing.and_then(|id| {
            let open = state.remove(id)?;
            open.shared.close.notify_one();
            Some(open.client)
        });
        let id = state.next;
        state.next += 1;
        let shared = Arc::new(Activity { active_ms: AtomicU64::new(now), close: Notify::new() });
        state.all.insert(client, id, now);
        if let Some(group) = group {
            state.groups.entry(group.id).or_default().insert(client, id, now);
        }
        let group = group.map(|group| group.id);
        state.open.insert(id, OpenConnection { client, group, shared: shared.clone() });
        SlotAdmission::Taken { slot: ConnectionSlot { slots: self.clone(), id, shared }, closed }
    }
}

impl State {
    /// Returns the connection to close, if one must be. `Err`: the new one must be refused.
    fn find_place(
        &mut self,
        limits: SlotLimits,
        client: IpAddr,
        group: Option<SlotGroup>,
        now: u64,
    ) -> Result<Option<Id>, ()> {
        let State { open, all, groups, .. } = self;
        let active_ms =
            |id: Id| open.get(&id).map_or(0, |open| open.shared.active_ms.load(Ordering::Relaxed));
        let lately =
            |c: &ClosingCandidate| now.saturating_sub(c.active_ms) < RECENTLY_ACTIVE.as_millis() as u64;
        if all.of_client(client) >= limits.client {
            return match all.first_of(client, active_ms) {
                Some(c) if !lately(&c) => Ok(Some(c.id)),
                _ => Err(()),
            };
        }
        let full_group =
            group.and_then(|group| groups.get_mut(&group.id).filter(|pool| pool.len() >= group.max));
        let full = full_group.or_else(|| Some(all).filter(|all| all.len() >= limits.all));
        let Some(pool) = full else { return Ok(None) };
        let own = pool.of_client(client);
        match pool.first_to_close(active_ms) {
            // A client with the most connections does not push out connections that others are using.
            Some(c) if lately(&c) && own >= c.of_client => Err(()),
            closing => Ok(closing.map(|c| c.id)),
        }
    }

    fn remove(&mut self, id: Id) -> Option<OpenConnection> {
        let open = self.open.remove(&id)?;
        self.all.remove(open.client, id);
        if let Some(group) = open.group
            && let Some(pool) = self.groups.get_mut(&group)
        {
            pool.remove(open.client, id);
            if pool.len() == 0 {
                self.groups.remove(&group);
            }
        }
        Some(open)
    }
}

impl ConnectionSlot {
    /// Marks the connection as active: it sent a request, or took an answer.
    pub fn touch(&self) {
        self.shared.active_ms.store(self.slots.now(), Ordering::Relaxed);
    }

    /// Returns when the slot was given to another connection.
    pub async fn closed(&self) {
        self.shared.close.notified().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots.state.lock().unwrap_or_else(PoisonError::into_inner).remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn taken(admission: SlotAdmission) -> Option<(ConnectionSlot, Option<IpAddr>)> {
        match admission {
            SlotAdmission::Taken { slot, closed } => Some((slot, closed)),
            SlotAdmission::Refused => None,
        }
    }

    #[test]
    fn who_opens_thousands_loses_its_own_and_a_newcomer_has_a_place() {
        let slots = ConnectionSlots::new(SlotLimits { all: 8, client: 8 });
        let mut held: Vec<_> = (0..8).filter_map(|at| taken(slots.admit_at(client(1), None, at))).collect();
        assert!(held.iter().all(|(_, closed)| closed.is_none()));
        let (honest, closed) = taken(slots.admit_at(client(2), None, 5000)).expect("a place");
        assert_eq!(closed, Some(client(1)));
        for at in 6000..6100 {
            if let Some((slot, closed)) = taken(slots.admit_at(client(1), None, at)) {
                assert_ne!(closed, Some(client(2)));
                held.push((slot, closed));
            }
        }
        let state = slots.state.lock().expect("not poisoned");
        assert_eq!((state.open.len(), state.all.of_client(client(2))), (8, 1));
        assert!(state.open.contains_key(&honest.id));
        drop(state);
        drop(held);
        assert_eq!(
            slots.state.lock().expect("not poisoned").open.len(),
            1,
            "closed ones give back nothing twice"
        );
    }

    #[test]
    fn a_client_at_its_limit_gets_a_place_of_its_own_that_is_idle_or_none() {
        let slots = ConnectionSlots::new(SlotLimits { all: 100, client: 2 });
        let _one = taken(slots.admit_at(client(1), None, 0)).expect("a place");
        let _two = taken(slots.admit_at(client(1), None, 2000)).expect("a place");
        let (_three, closed) = taken(slots.admit_at(client(1), None, 2500)).expect("a place");
        assert_eq!(closed, Some(client(1)));
        assert!(taken(slots.admit_at(client(1), None, 2600)).is_none(), "both are at work");
        assert!(taken(slots.admit_at(client(2), None, 2600)).is_some());
    }

    #[test]
    fn a_group_that_is_full_closes_its_own() {
        let slots = ConnectionSlots::new(SlotLimits { all: 100, client: 100 });
        let (two, many) = (Some(SlotGroup { id: 0, max: 2 }), Some(SlotGroup { id: 1, max: 50 }));
        let _other = taken(slots.admit_at(client(9), many, 0)).expect("a place");
        let held: Vec<_> = (1..=2).filter_map(|c| taken(slots.admit_at(client(c), two, 10))).collect();
        let (slot, closed) = taken(slots.admit_at(client(3), two, 20)).expect("a place");
        assert_eq!(closed, Some(client(1)), "not the one of the other group, which is older");
        let less = Some(SlotGroup { id: 1, max: 1 });
        let (_slot, closed) = taken(slots.admit_at(client(8), less, 2000)).expect("a place");
        assert_eq!(closed, Some(client(9)), "a bound counts as it is now");
        drop((held, slot));
        assert_eq!(
            slots.state.lock().expect("not poisoned").groups.len(),
            1,
            "of groups that are empty nothing is left"
        );
    }
}
