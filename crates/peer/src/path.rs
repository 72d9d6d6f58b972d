//! Which address of a node a call goes to, and from which of ours. Pure: the caller says what became of it.
//!
//! A path is a pair of addresses. A call takes the path with the fewest bytes outstanding, so that several links are
//! used as several. A path that failed is left for five seconds and then tried with a heartbeat.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The time for which a path that failed is left.
pub const LEFT_FOR: Duration = Duration::from_secs(5);
/// The most paths to one node: more addresses of it are not used.
pub const PATHS_MAX: usize = 16;
/// So many heartbeats in a row without an answer in time, and the path has failed: a node that is busy may be late twice.
const LATE_MAX: u32 = 3;

/// An address of this machine, and how many of its bits name the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LocalAddress {
    pub address: IpAddr,
    pub prefix: u8,
}

impl LocalAddress {
    /// Whether `other` is in the same network.
    fn reaches(&self, other: IpAddr) -> bool {
        let same = |ours: u128, theirs: u128, width: u32| {
            let bits = u32::from(self.prefix).min(width);
            bits == 0 || (ours ^ theirs) >> (width - bits) == 0
        };
        match (self.address, other.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                same(ours.to_bits().into(), theirs.to_bits().into(), 32)
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => same(ours.to_bits(), theirs.to_bits(), 128),
            _ => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerPath {
    /// The address that connections are bound to; `None`: the kernel chooses.
    pub local: Option<IpAddr>,
    pub remote: SocketAddr,
}

/// The paths to a node with these addresses: each from our addresses in its network, or, where there is none, from any.
pub fn paths_between(locals: &[LocalAddress], remotes: &[SocketAddr]) -> Vec<PeerPath> {
    let mut paths = Vec::new();
    let mut seen = HashSet::new();
    for remote in remotes {
        let near = locals.iter().filter(|local| local.reaches(remote.ip())).map(|local| Some(local.address));
        let mut near: Vec<_> = near.collect();
        if near.is_empty() {
            near.push(None);
        }
        let found = near.into_iter().map(|local| PeerPath { local, remote: *remote });
        paths.extend(found.filter(|path| seen.insert(*path)));
    }
    paths.truncate(PATHS_MAX);
    paths
}

/// A path for as long as the node has its address; not used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathId(u64);

/// A path, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathReport {
    pub path: PeerPath,
    pub outstanding_bytes: u64,
    /// The bytes that came over it.
    pub carried_bytes: u64,
    pub failures: u64,
    /// It failed, and no heartbeat has come through since.
    pub is_left: bool,
}

#[derive(Debug)]
struct PathState {
    id: PathId,
    path: PeerPath,
    outstanding: u64,
    carried: u64,
    failures: u64,
    failed: Option<Duration>,
    /// The heartbeats since the last answer that had none in time.
    late: u32,
    /// Somebody tries it again.
    is_tried: bool,
    /// The order in which paths were chosen last.
    chosen: u64,
    chosen_for_heartbeat: u64,
}

/// The paths to one node.
#[derive(Debug, Default)]
pub struct PathTable {
    paths: Vec<PathState>,
    next_id: u64,
    next_choice: u64,
}

impl PathTable {
    /// Sets the paths. Those that stay keep what is known of them. Returns the ids of those that are gone.
    pub fn set(&mut self, paths: &[PeerPath]) -> Vec<PathId> {
        let (kept, gone): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.paths).into_iter().partition(|state| paths.contains(&state.path));
        self.paths = kept;
        for path in paths.iter().take(PATHS_MAX) {
            if !self.paths.iter().any(|state| state.path == *path) {
                let (id, path) = (PathId(self.next_id), *path);
                self.next_id += 1;
                let (outstanding, carried, failures, failed, is_tried, late) = (0, 0, 0, None, false, 0);
                let (chosen, chosen_for_heartbeat) = (0, 0);
                self.paths.push(PathState {
                    id,
                    path,
                    outstanding,
                    carried,
                    failures,
                    failed,
                    late,
                    is_tried,
                    chosen,
                    chosen_for_heartbeat,
                });
            }
        }
        gone.into_iter().map(|state| state.id).collect()
    }

    /// The path for a call of `bytes`, which are outstanding on it from now on: the one with the fewest, and of equals
    /// the one that was not chosen for longest. `None`: each path was tried already, or is left.
    pub fn choose(&mut self, bytes: u64, tried: &[PathId]) -> Option<(PathId, PeerPath)> {
        self.next_choice += 1;
        let open = self.paths.iter_mut().filter(|it| it.failed.is_none() && !tried.contains(&it.id));
        let state = open.min_by_key(|it| (it.outstanding, it.chosen))?;
        (state.chosen, state.outstanding) = (self.next_choice, state.outstanding.saturating_add(bytes));
        Some((state.id, state.path))
    }

    /// The path for a heartbeat: all of them in turn, so that an idle one that fails is noticed. When all are left, the
    /// one that failed first: a node that comes back is found by the next heartbeat.
    pub fn choose_for_heartbeat(&mut self, tried: &[PathId]) -> Option<(PathId, PeerPath)> {
        self.next_choice += 1;
        let untried = self.paths.iter_mut().filter(|it| !tried.contains(&it.id));
        let state = untried.min_by_key(|it| (it.failed, it.chosen_for_heartbeat))?;
        state.chosen_for_heartbeat = self.next_choice;
        Some((state.id, state.path))
    }

    /// Records that bytes are not outstanding any more.
    pub fn finished(&mut self, id: PathId, bytes: u64) {
        if let Some(state) = self.state(id) {
            state.outstanding = state.outstanding.saturating_sub(bytes);
        }
    }

    /// Records that a call over it was answered, with so many bytes: it is good.
    pub fn answered(&mut self, id: PathId, bytes: u64) {
        if let Some(state) = self.state(id) {
            (state.failed, state.late) = (None, 0);
            state.carried = state.carried.saturating_add(bytes);
        }
    }

    /// Records that a heartbeat had no answer in time. `true`: that was one too many, and the path has failed.
    pub fn is_too_late(&mut self, id: PathId) -> bool {
        let Some(state) = self.state(id) else { return false };
        state.late = state.late.saturating_add(1);
        state.failed.is_some() || state.late >= LATE_MAX
    }

    /// Records that nothing comes through. `true`: nobody tries it again yet; the caller has to, by [`Self::next_try`].
    pub fn failed(&mut self, id: PathId, now: Duration) -> bool {
        let Some(state) = self.state(id) else { return false };
        state.failures += 1;
        state.failed = Some(now);
        !std::mem::replace(&mut state.is_tried, true)
    }

    pub fn len(&self) -> usize {
        self.paths.len()
    }

    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    pub fn is_left(&mut self, id: PathId) -> bool {
        self.state(id).is_none_or(|state| state.failed.is_some())
    }

    /// For who tries it again: the path, if the time has come, or how long to wait. `None`: it is not left any more, or
    /// gone, and there is nothing to try.
    pub fn next_try(&mut self, id: PathId, now: Duration) -> Option<Result<PeerPath, Duration>> {
        let state = self.state(id)?;
        let Some(failed) = state.failed else {
            state.is_tried = false;
            return None;
        };
        let wait = (failed + LEFT_FOR).saturating_sub(now);
        Some(if wait.is_zero() { Ok(state.path) } else { Err(wait) })
    }

    pub fn reports(&self) -> Vec<PathReport> {
        let report = |state: &PathState| PathReport {
            path: state.path,
            outstanding_bytes: state.outstanding,
            carried_bytes: state.carried,
            failures: state.failures,
            is_left: state.failed.is_some(),
        };
        self.paths.iter().map(report).collect()
    }

    fn state(&mut self, id: PathId) -> Option<&mut PathState> {
        self.paths.iter_mut().find(|state| state.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(text: &str) -> LocalAddress {
        let (address, prefix) = text.split_once('/').expect("address/prefix");
        LocalAddress { address: address.parse().expect("good"), prefix: prefix.parse().expect("good") }
    }

    fn path(local: Option<&str>, remote: &str) -> PeerPath {
        let local = local.map(|local| local.parse().expect("an address"));
        PeerPath { local, remote: remote.parse().expect("an address") }
    }

    fn table(remotes: &[&str]) -> PathTable {
        let mut table = PathTable::default();
        table.set(&remotes.iter().map(|remote| path(None, remote)).collect::<Vec<_>>());
        table
    }

    #[test]
    fn a_path_begins_at_our_address_in_the_same_network() {
        let locals = ["10.0.0.1/24", "10.0.1.1/24", "fd00::1/64", "10.0.0.9/24"].map(local);
        let remotes =
            ["10.0.0.2:7", "10.0.1.2:7", "192.168.0.2:7", "[fd00::2]:7", "[fd01::2]:7", "10.0.1.2:7"];
        let remotes = remotes.map(|remote| remote.parse().expect("an address"));
        let expected = [
            path(Some("10.0.0.1"), "10.0.0.2:7"),
            path(Some("10.0.0.9"), "10.0.0.2:7"),
            path(Some("10.0.1.1"), "10.0.1.2:7"),
            path(None, "192.168.0.2:7"),
            path(Some("fd00::1"), "[fd00::2]:7"),
            path(None, "[fd01::2]:7"),
        ];
        assert_eq!(paths_between(&locals, &remotes), expected);
        let any = paths_between(&[local("0.0.0.0/0")], &remotes[..1]);
        assert_eq!(any, [path(Some("0.0.0.0"), "10.0.0.2:7")], "a prefix of no bits reaches all");
    }

    #[test]
    fn calls_go_where_the_fewest_bytes_are_outstanding_and_in_turn_where_they_are_the_same() {
        let mut table = table(&["10.0.0.1:7", "10.0.0.2:7"]);
        let (first, _) = table.choose(100, &[]).expect("a path");
        let (second, _) = table.choose(300, &[]).expect("a path");
        assert_ne!(first, second);
        let small: Vec<_> = (0..2).map(|_| table.choose(100, &[]).expect("a path").0).collect();
        assert_eq!(small, [first, first]);
        assert_ne!(table.choose(0, &[first]).expect("the other").0, first);
        table.finished(second, 300);
        table.finished(first, 300);
        let even: Vec<_> = (0..4).map(|_| table.choose(0, &[]).expect("a path").0).collect();
        assert!(even[0] != even[1] && even[0] == even[2] && even[1] == even[3]);
    }

    #[test]
    fn a_path_that_failed_is_left_until_a_heartbeat_came_through() {
        let mut table = table(&["10.0.0.1:7", "10.0.0.2:7"]);
        let at = Duration::from_secs;
        let (bad, bad_path) = table.choose(0, &[]).expect("a path");
        assert!(table.failed(bad, at(10)) && !table.failed(bad, at(11)), "one task tries it again");
        assert!((0..9).all(|_| table.choose(0, &[]).expect("the other").0 != bad));
        assert_eq!(table.next_try(bad, at(12)), Some(Err(at(4))));
        assert_eq!(table.next_try(bad, at(16)), Some(Ok(bad_path)));
        let (good, _) = table.choose(0, &[]).expect("the other");
        assert!(table.failed(good, at(16)));
        assert_eq!(table.choose(0, &[]), None);
        assert_eq!(table.choose_for_heartbeat(&[]), Some((bad, bad_path)), "it failed first");
        assert_eq!(table.choose_for_heartbeat(&[bad]).expect("the other").0, good);
        table.answered(bad, 5);
        assert_eq!(table.next_try(bad, at(30)), None);
        assert_eq!(table.choose(0, &[]).expect("it is good again").0, bad);
        let reports = table.reports();
        assert_eq!(reports.iter().map(|it| it.is_left).collect::<Vec<_>>(), [false, true]);
        assert_eq!(reports.iter().map(|it| (it.failures, it.carried_bytes)).next(), Some((2, 5)));
    }

    #[test]
    fn a_path_that_is_late_twice_is_not_left() {
        let mut table = table(&["10.0.0.1:7"]);
        let (id, _) = table.choose(0, &[]).expect("a path");
        assert!(!table.is_too_late(id) && !table.is_too_late(id));
        table.answered(id, 0);
        assert!(!table.is_too_late(id) && !table.is_too_late(id) && table.is_too_late(id));
        table.failed(id, Duration::ZERO);
        table.answered(id, 0);
        assert!(!table.is_too_late(id));
        table.failed(id, Duration::ZERO);
        assert!(table.is_too_late(id), "one that is tried again stays left");
    }

    #[test]
    fn heartbeats_go_over_all_paths_in_turn() {
        let mut table = table(&["10.0.0.1:7", "10.0.0.2:7", "10.0.0.3:7"]);
        let chosen: HashSet<_> = (0..3).map(|_| table.choose_for_heartbeat(&[]).expect("a path").0).collect();
        assert_eq!(chosen.len(), 3);
    }

    #[test]
    fn new_addresses_leave_what_is_known_of_the_old_ones() {
        let mut table = table(&["10.0.0.1:7", "10.0.0.2:7"]);
        let (first, kept) = table.choose(100, &[]).expect("a path");
        let (second, _) = table.choose(100, &[]).expect("a path");
        let gone = table.set(&[path(None, "10.0.0.3:7"), kept]);
        assert_eq!(gone, [second]);
        table.finished(second, 100);
        table.failed(second, Duration::ZERO);
        let (third, _) = table.choose(1, &[]).expect("the new one has fewer bytes outstanding");
        assert!(third != first && third != second);
        assert_eq!(table.reports().iter().map(|it| it.outstanding_bytes).collect::<Vec<_>>(), [100, 1]);
    }
}
