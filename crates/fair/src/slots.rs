//! Slots for connections: so many in all, of one client, and of one group of clients (an export). When they run out, the
//! least active connection of who has more than an even part is closed, and the new one gets its slot; who asks for a
//! slot never waits for one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::client_of;

/// A connection that asked for something so lately is not closed for a client that has too many itself.
const LATELY: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct Limits {
    pub all: usize,
    /// Of one client.
    pub client: usize,
    /// Of each group.
    pub groups: Vec<usize>,
}

pub struct Slots {
    limits: Limits,
    begun: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    open: HashMap<u64, Open>,
    of_client: HashMap<IpAddr, usize>,
}

struct Open {
    client: IpAddr,
    group: usize,
    shared: Arc<Activity>,
}

/// What a connection and the slots know of it.
struct Activity {
    /// When it was opened or asked for something, in milliseconds since the slots began.
    active_ms: AtomicU64,
    close: Notify,
}

/// A connection's place, given back when it is dropped.
pub struct Slot {
    slots: Arc<Slots>,
    id: u64,
    shared: Arc<Activity>,
}

pub enum Admission {
    Taken {
        slot: Slot,
        /// Whose connection is closed for it.
        closed: Option<IpAddr>,
    },
    /// This client has too many, and all of them are active.
    Refused,
}

/// A connection that may be closed.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: u64,
    active_ms: u64,
    /// Connections of its client.
    of_client: usize,
}

/// Which one to close. Of clients that have more than an even part first, and of these of who has most; then the one
/// that has asked for nothing for longest.
fn victim(clients: usize, candidates: &[Candidate]) -> Option<Candidate> {
    let is_over = |c: &Candidate| c.of_client * clients.max(1) > candidates.len();
    let rank = |c: &&Candidate| (!is_over(c), std::cmp::Reverse(c.of_client), c.active_ms, c.id);
    let over = candidates.iter().filter(|c| is_over(c)).min_by_key(rank);
    over.or_else(|| candidates.iter().min_by_key(|c| (c.active_ms, c.id))).copied()
}

impl Slots {
    pub fn new(limits: Limits) -> Arc<Slots> {
        Arc::new(Slots { limits, begun: Instant::now(), state: Mutex::default() })
    }

    pub fn admit(self: &Arc<Slots>, address: IpAddr, group: usize) -> Admission {
        self.admit_at(address, group, self.now())
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn admit_at(self: &Arc<Slots>, address: IpAddr, group: usize, now: u64) -> Admission {
        let client = client_of(address);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(closing) = self.to_close(&state, client, group, now) else { return Admission::Refused };
        let closed = closing.and_then(|id| {
            let open = state.remove(id)?;
            open.shared.close.notify_one();
            Some(open.client)
        });
        let id = state.next;
        state.next += 1;
        let shared = Arc::new(Activity { active_ms: AtomicU64::new(now), close: Notify::new() });
        state.open.insert(id, Open { client, group, shared: shared.clone() });
        *state.of_client.entry(client).or_default() += 1;
        Admission::Taken { slot: Slot { slots: self.clone(), id, shared }, closed }
    }

    /// Nothing, while there is room. `Err`: the new one must not be taken.
    fn to_close(&self, state: &State, client: IpAddr, group: usize, now: u64) -> Result<Option<u64>, ()> {
        let own = state.of_client.get(&client).copied().unwrap_or(0);
        let candidates = |of: &dyn Fn(&Open) -> bool| -> Vec<Candidate> {
            let open = state.open.iter().filter(|(_, open)| of(open));
            let candidate = |(id, open): (&u64, &Open)| Candidate {
                id: *id,
                active_ms: open.shared.active_ms.load(Ordering::Relaxed),
                of_client: state.of_client.get(&open.client).copied().unwrap_or(0),
            };
            open.map(candidate).collect()
        };
        let lately = |c: &Candidate| now.saturating_sub(c.active_ms) < LATELY.as_millis() as u64;
        if own >= self.limits.client {
            let closing = victim(1, &candidates(&|open| open.client == client));
            return match closing {
                Some(c) if !lately(&c) => Ok(Some(c.id)),
                _ => Err(()),
            };
        }
        let group_max = self.limits.groups.get(group).copied().unwrap_or(self.limits.all);
        let of_group = |open: &Open| open.group == group;
        let is_group_full = group_max <= state.open.len()
            && state.open.values().filter(|open| of_group(open)).count() >= group_max;
        let candidates = match (is_group_full, state.open.len() >= self.limits.all) {
            (true, _) => candidates(&of_group),
            (false, true) => candidates(&|_| true),
            (false, false) => return Ok(None),
        };
        match victim(state.of_client.len(), &candidates) {
            // Who has most itself does not push out what others are working with.
            Some(c) if lately(&c) && own >= c.of_client => Err(()),
            closing => Ok(closing.map(|c| c.id)),
        }
    }
}

impl State {
    fn remove(&mut self, id: u64) -> Option<Open> {
        let open = self.open.remove(&id)?;
        if let Some(count) = self.of_client.get_mut(&open.client) {
            *count -= 1;
            if *count == 0 {
                self.of_client.remove(&open.client);
            }
        }
        Some(open)
    }
}

impl Slot {
    /// Its client asks for something, or has taken what it asked for.
    pub fn is_active(&self) {
        self.shared.active_ms.store(self.slots.now(), Ordering::Relaxed);
    }

    /// Returns when another one was given its place.
    pub async fn closed(&self) {
        self.shared.close.notified().await;
    }
}

impl Drop for Slot {
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

    #[test]
    fn the_least_active_connection_of_who_has_more_than_an_even_part_is_closed_first() {
        // Connections as (of its client, active at); which one is closed, among how many clients.
        for (clients, open, closed, why) in [
            (
                2,
                &[(3, 50), (3, 90), (3, 70), (1, 10)][..],
                0,
                "not the single one, though it was quiet for longer",
            ),
            (4, &[(1, 40), (1, 30), (1, 20), (1, 90)], 2, "all have the same: the quietest"),
            (3, &[(2, 50), (2, 60), (3, 90), (3, 80), (3, 95), (1, 5)], 3, "of who has most"),
            (1, &[(2, 7), (2, 3)], 1, "of one alone"),
        ] {
            let candidates: Vec<_> = open
                .iter()
                .enumerate()
                .map(|(id, (of_client, active_ms))| Candidate {
                    id: id as u64,
                    active_ms: *active_ms,
                    of_client: *of_client,
                })
                .collect();
            assert_eq!(victim(clients, &candidates).map(|c| c.id), Some(closed), "{why}");
        }
        assert!(victim(0, &[]).is_none());
    }

    fn taken(admission: Admission) -> Option<(Slot, Option<IpAddr>)> {
        match admission {
            Admission::Taken { slot, closed } => Some((slot, closed)),
            Admission::Refused => None,
        }
    }

    #[test]
    fn who_opens_thousands_loses_its_own_and_a_newcomer_has_a_place() {
        let slots = Slots::new(Limits { all: 8, client: 8, groups: Vec::new() });
        let mut held: Vec<_> = (0..8).filter_map(|at| taken(slots.admit_at(client(1), 0, at))).collect();
        assert!(held.iter().all(|(_, closed)| closed.is_none()));
        let (honest, closed) = taken(slots.admit_at(client(2), 0, 5000)).expect("a place");
        assert_eq!(closed, Some(client(1)));
        for at in 6000..6100 {
            if let Some((slot, closed)) = taken(slots.admit_at(client(1), 0, at)) {
                assert_ne!(closed, Some(client(2)));
                held.push((slot, closed));
            }
        }
        let state = slots.state.lock().expect("not poisoned");
        assert_eq!((state.open.len(), state.of_client[&client(2)]), (8, 1));
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
        let slots = Slots::new(Limits { all: 100, client: 2, groups: Vec::new() });
        let _one = taken(slots.admit_at(client(1), 0, 0)).expect("a place");
        let _two = taken(slots.admit_at(client(1), 0, 2000)).expect("a place");
        let (_three, closed) = taken(slots.admit_at(client(1), 0, 2500)).expect("a place");
        assert_eq!(closed, Some(client(1)));
        assert!(taken(slots.admit_at(client(1), 0, 2600)).is_none(), "both are at work");
        assert!(taken(slots.admit_at(client(2), 0, 2600)).is_some());
    }

    #[test]
    fn a_group_that_is_full_closes_its_own() {
        let slots = Slots::new(Limits { all: 100, client: 100, groups: vec![2, 50] });
        let _other = taken(slots.admit_at(client(9), 1, 0)).expect("a place");
        let _held: Vec<_> = (1..=2).filter_map(|c| taken(slots.admit_at(client(c), 0, 10))).collect();
        let (_slot, closed) = taken(slots.admit_at(client(3), 0, 20)).expect("a place");
        assert_eq!(closed, Some(client(1)), "not the one of the other group, which is older");
    }
}
