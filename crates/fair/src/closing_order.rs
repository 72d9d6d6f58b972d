//! The order in which connections would be closed for new ones. Pure; the cost does not grow with the number of
//! connections.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

/// The id of a connection.
pub type Id = u64;

/// Connections by their last known activity.
#[derive(Debug, Default)]
struct ActivityOrder {
    by_time: BTreeSet<(u64, Id)>,
    noted: HashMap<Id, u64>,
}

impl ActivityOrder {
    fn insert(&mut self, id: Id, active_ms: u64) {
        self.noted.insert(id, active_ms);
        self.by_time.insert((active_ms, id));
    }

    fn remove(&mut self, id: Id) {
        if let Some(noted) = self.noted.remove(&id) {
            self.by_time.remove(&(noted, id));
        }
    }

    /// Returns the least active one. An entry that was active since it was noted is moved: each activity is looked
    /// at once.
    fn least_active(&mut self, active_ms: impl Fn(Id) -> u64) -> Option<(u64, Id)> {
        loop {
            let (noted, id) = *self.by_time.first()?;
            let active = active_ms(id);
            if active <= noted {
                return Some((noted, id));
            }
            self.remove(id);
            self.insert(id, active);
        }
    }

    fn len(&self) -> usize {
        self.noted.len()
    }
}

#[derive(Debug, Default)]
pub struct ClosingOrder {
    all: ActivityOrder,
    clients: HashMap<IpAddr, ActivityOrder>,
    by_count: BTreeSet<(usize, IpAddr)>,
}

/// The connection to close first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosingCandidate {
    pub id: Id,
    pub active_ms: u64,
    /// The number of its client's connections.
    pub of_client: usize,
}

impl ClosingOrder {
    pub fn insert(&mut self, client: IpAddr, id: Id, active_ms: u64) {
        self.all.insert(id, active_ms);
        let own = self.clients.entry(client).or_default();
        self.by_count.remove(&(own.len(), client));
        own.insert(id, active_ms);
        self.by_count.insert((own.len(), client));
    }

    pub fn remove(&mut self, client: IpAddr, id: Id) {
        self.all.remove(id);
        let Some(own) = self.clients.get_mut(&client) else { return };
        self.by_count.remove(&(own.len(), client));
        own.remove(id);
        if own.len() == 0 {
            self.clients.remove(&client);
        } else {
            self.by_count.insert((own.len(), client));
        }
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn of_client(&self, client: IpAddr) -> usize {
        self.clients.get(&client).map_or(0, ActivityOrder::len)
    }

    /// The least active connection: of the client with the most connections, if that is more than an even part, else
    /// of all.
    pub fn first_to_close(&mut self, active_ms: impl Fn(Id) -> u64) -> Option<ClosingCandidate> {
        let (most, client) = *self.by_count.last()?;
        if most * self.clients.len() > self.all.len() {
            return self.first_of(client, active_ms);
        }
        let (active_ms, id) = self.all.least_active(active_ms)?;
        Some(ClosingCandidate { id, active_ms, of_client: most })
    }

    /// The least active connection of one client.
    pub fn first_of(&mut self, client: IpAddr, active_ms: impl Fn(Id) -> u64) -> Option<ClosingCandidate> {
        let own = self.clients.get_mut(&client)?;
        let (active_ms, id) = own.least_active(active_ms)?;
        Some(ClosingCandidate { id, active_ms, of_client: own.len() })
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
        // Connections as (client, active at); which one is closed.
        for (open, closed, why) in [
            (
                &[(1, 50), (1, 90), (1, 70), (2, 10)][..],
                0,
                "not the single one, though it was quiet for longer",
            ),
            (&[(1, 40), (2, 30), (3, 20), (4, 90)], 2, "all have the same: the quietest"),
            (&[(1, 50), (1, 60), (2, 90), (2, 80), (2, 95), (3, 5)], 3, "of who has most"),
            (&[(1, 7), (1, 3)], 1, "of one alone"),
        ] {
            let mut pool = ClosingOrder::default();
            for (id, (of, _)) in open.iter().enumerate() {
                pool.insert(client(*of), id as Id, 0);
            }
            let found = pool.first_to_close(|id| open[id as usize].1);
            assert_eq!(found.map(|c| c.id), Some(closed), "{why}");
        }
        assert!(ClosingOrder::default().first_to_close(|_| 0).is_none());
    }

    #[test]
    fn random_connections_are_closed_in_the_order_of_looking_at_all_of_them() {
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let seed = match std::env::var("FOREBAY_SEED") {
            Ok(seed) => seed.parse().expect("a number"),
            Err(_) => time.as_nanos() as u64 | 1,
        };
        println!("FOREBAY_SEED={seed}");
        let mut state = seed;
        let mut below = |end: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % end
        };
        let mut pool = ClosingOrder::default();
        let mut open: HashMap<Id, (IpAddr, u64)> = HashMap::new();
        for now in 0..5000 {
            match below(5) {
                0..=1 => {
                    let of = client(below(9) as u8);
                    pool.insert(of, now, now);
                    open.insert(now, (of, now));
                }
                2..=3 if !open.is_empty() => {
                    let mut ids: Vec<_> = open.keys().copied().collect();
                    ids.sort_unstable();
                    let id = ids[below(ids.len() as u64) as usize];
                    open.get_mut(&id).expect("open").1 = now;
                }
                _ => {
                    let count = |of: IpAddr| open.values().filter(|(c, _)| *c == of).count();
                    let clients: std::collections::HashSet<_> = open.values().map(|(c, _)| *c).collect();
                    let most = clients.iter().map(|c| (count(*c), *c)).max();
                    let is_over = |(most, _): &(usize, IpAddr)| most * clients.len() > open.len();
                    let of = most.filter(is_over).map(|(_, of)| of);
                    let among = open.iter().filter(|(_, (c, _))| of.is_none_or(|of| of == *c));
                    let expected = among.map(|(id, (_, active))| (*active, *id)).min();
                    let found = pool.first_to_close(|id| open[&id].1);
                    assert_eq!(found.map(|c| (c.active_ms, c.id)), expected);
                    if let Some(found) = found {
                        let (of, _) = open.remove(&found.id).expect("open");
                        assert_eq!(found.of_client, pool.of_client(of));
                        pool.remove(of, found.id);
                    }
                }
            }
            assert_eq!(pool.len(), open.len());
        }
        open.iter().for_each(|(id, (of, _))| pool.remove(*of, *id));
        assert!(pool.len() == 0 && pool.clients.is_empty() && pool.by_count.is_empty());
    }
}
