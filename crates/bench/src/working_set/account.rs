//! One phase as the tier's counters tell it: where the bytes came from, what the storage was asked, and whether that
//! is what the row's name says. Pure.

use std::collections::BTreeMap;

use bench_load::outcome::PhaseOutcome;

use crate::CounterPage;

/// Fetched for another than who asked first, or fetched while it was evicted: this much beyond what is unique is still
/// what was asked for once.
const UNIQUE_EXTRA: f64 = 1.05;
/// What a phase without any need for the storage may still read of it: nothing but what rounding makes of it.
const NOTHING: f64 = 0.001;
/// The share of a data set's bytes that has to come from the disk after its pages were dropped; otherwise they were not.
const DROPPED: f64 = 0.5;

#[derive(Clone, Debug, Default)]
pub struct PassAccount {
    pub seconds: f64,
    /// How often the files were gone through.
    pub passes: u64,
    /// By the clients' own count.
    pub bytes_read: u64,
    /// Files that clients opened.
    pub opens: u64,
    pub served: u64,
    pub hit: u64,
    pub miss: u64,
    /// What the process had block devices read; None if the tier does not tell.
    pub disk: Option<u64>,
    pub origin_bytes: u64,
    pub calls: BTreeMap<String, u64>,
    pub waits: u64,
    pub evicted: u64,
    pub ahead: u64,
    /// Of what was fetched ahead, in this phase or before it: read now, evicted unread now.
    pub ahead_used: u64,
    pub ahead_evicted: u64,
    /// Passed on without being kept.
    pub unkept: u64,
    pub faults: Vec<String>,
}

impl PassAccount {
    pub fn of(counted: &CounterPage, phase: &PhaseOutcome, passes: u64) -> PassAccount {
        PassAccount {
            seconds: phase.last_done_s().unwrap_or(0.0),
            passes,
            bytes_read: phase.bytes_read,
            opens: phase.units,
            served: counted.served_bytes(),
            hit: counted.cache("hit_bytes"),
            miss: counted.cache("miss_bytes"),
            disk: counted.disk_bytes(),
            origin_bytes: counted.origin_bytes(),
            calls: counted.origin_kinds(),
            waits: counted.waits(),
            evicted: counted.cache("evicted_bytes"),
            ahead: counted.cache("readahead_bytes"),
            ahead_used: counted.cache("readahead_used_bytes"),
            ahead_evicted: counted.cache("readahead_evicted_bytes"),
            unkept: counted.cache("read_through_bytes"),
            faults: phase.faults(),
        }
    }

    fn share(&self, bytes: u64) -> f64 {
        bytes as f64 / (self.hit + self.miss).max(1) as f64 * 100.0
    }

    /// Percent of the bytes served that were in the cache when asked for.
    pub fn hit_percent(&self) -> f64 {
        self.share(self.hit)
    }

    pub fn waited_percent(&self) -> f64 {
        self.share(self.miss)
    }

    /// The disk reads ahead too, and may so read more than was served: no more than the hits can have come from it.
    pub fn disk_percent(&self) -> Option<f64> {
        self.disk.map(|disk| self.share(disk.min(self.hit)))
    }

    pub fn memory_percent(&self) -> Option<f64> {
        self.disk.map(|disk| self.share(self.hit - disk.min(self.hit)))
    }

    pub fn rate(&self) -> f64 {
        self.bytes_read as f64 / self.seconds.max(1e-9)
    }

    /// Bytes from the storage for each byte that a client read.
    pub fn amplification(&self) -> f64 {
        self.origin_bytes as f64 / self.bytes_read.max(1) as f64
    }

    /// Percent of the bytes read that the storage did not have to give. Unlike hits, it does not count what one client
    /// has fetched for the next a moment before, again and again.
    pub fn spared_percent(&self) -> f64 {
        (1.0 - self.amplification()).max(0.0) * 100.0
    }

    /// Bytes that came ahead and that nobody has read: of files beside the data set too.
    pub fn ahead_unread(&self) -> u64 {
        self.ahead.saturating_sub(self.ahead_used)
    }

    /// Bytes from the storage beyond those that were different from each other, and beyond those that nobody read.
    pub fn duplicate(&self, unique: u64) -> u64 {
        self.origin_bytes.saturating_sub(self.ahead_unread()).saturating_sub(unique)
    }

    pub fn call(&self, kind: &str) -> u64 {
        self.calls.get(kind).copied().unwrap_or(0)
    }

    /// Reads that waited, for each READ at the storage; None if there was none.
    pub fn coalescing(&self) -> Option<f64> {
        (self.call("read") > 0).then(|| self.waits as f64 / self.call("read") as f64)
    }

    /// Times that the storage was asked whether a file is still what it was, for each file that was opened.
    pub fn revalidations_per_open(&self) -> f64 {
        self.call("getattr") as f64 / self.opens.max(1) as f64
    }

    /// Percent of the bytes fetched ahead that nobody has read; None if nothing was fetched ahead.
    pub fn ahead_wasted_percent(&self) -> Option<f64> {
        (self.ahead > 0).then(|| self.ahead_unread() as f64 / self.ahead as f64 * 100.0)
    }

    /// Why no figure of the phase must be believed: somebody else was served too, or the accounts do not add up.
    pub fn contradictions(&self, demanded: u64) -> Vec<String> {
        let mut reasons = self.faults.clone();
        if self.bytes_read != demanded {
            reasons.push(format!("the clients read {} bytes, not {demanded}", self.bytes_read));
        }
        if self.served != self.bytes_read {
            reasons.push(format!(
                "the tier sent {} bytes and the clients had {}: somebody else reads from it",
                self.served, self.bytes_read
            ));
        } else if self.hit + self.miss != self.served {
            let (hit, miss, served) = (self.hit, self.miss, self.served);
            reasons.push(format!("{hit} bytes of hits and {miss} of misses are not the {served} served"));
        }
        reasons
    }

    /// Why the cache was not empty before. `unique`: bytes that were asked for at least once.
    pub fn not_cold(&self, unique: u64) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.origin_bytes < unique {
            let origin = self.origin_bytes;
            reasons
                .push(format!("not cold: {origin} bytes came from the storage for {unique} different ones"));
        }
        let twice = self.duplicate(unique);
        if self.evicted == 0 && twice as f64 > unique as f64 * (UNIQUE_EXTRA - 1.0) {
            reasons
                .push(format!("{twice} of {unique} bytes came from the storage twice, and none was evicted"));
        }
        reasons
    }

    /// Why the cache did not have everything but `missing` bytes.
    pub fn not_warm(&self, unique: u64, missing: u64) -> Vec<String> {
        let most = (unique as f64 * NOTHING) as u64 + (missing as f64 * UNIQUE_EXTRA) as u64;
        // What nobody asked for is no miss.
        let asked = self.origin_bytes.saturating_sub(self.ahead);
        if asked <= most {
            return Vec::new();
        }
        vec![format!("not warm: {asked} bytes were asked of the storage, and nothing was evicted")]
    }

    /// Why it was not the disk that gave what was asked for.
    pub fn not_from_disk(&self, unique: u64) -> Vec<String> {
        match self.disk {
            None => vec!["unknown: the tier does not tell what its disks read".to_owned()],
            Some(disk) if (disk as f64) < unique as f64 * DROPPED => vec![format!(
                "not from the disk: it gave {disk} of {unique} bytes; a cache on a file system in memory has no disk"
            )],
            Some(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warm() -> PassAccount {
        PassAccount {
            bytes_read: 1000,
            served: 1000,
            hit: 1000,
            seconds: 2.0,
            opens: 10,
            ..PassAccount::default()
        }
    }

    #[test]
    fn hits_are_split_between_memory_and_disk_and_unknown_stays_unknown() {
        let phase = PassAccount { hit: 600, miss: 400, disk: Some(150), ..warm() };
        assert_eq!((phase.hit_percent(), phase.waited_percent()), (60.0, 40.0));
        assert_eq!((phase.memory_percent(), phase.disk_percent()), (Some(45.0), Some(15.0)));
        let over = PassAccount { disk: Some(5000), ..warm() };
        assert_eq!((over.memory_percent(), over.disk_percent()), (Some(0.0), Some(100.0)));
        assert_eq!((warm().memory_percent(), warm().disk_percent()), (None, None));
        assert_eq!(PassAccount::default().hit_percent(), 0.0);
    }

    #[test]
    fn figures_that_contradict_each_other_are_not_believed() {
        assert_eq!(warm().contradictions(1000), Vec::<String>::new());
        assert!(warm().contradictions(999)[0].contains("not 999"));
        let others = PassAccount { served: 1500, hit: 1500, ..warm() };
        assert!(others.contradictions(1000)[0].contains("somebody else"));
        let lost = PassAccount { hit: 900, ..warm() };
        assert!(lost.contradictions(1000)[0].contains("are not the 1000 served"));
    }

    #[test]
    fn a_state_is_what_the_counters_say() {
        let cold = PassAccount { origin_bytes: 500, ..warm() };
        assert!(cold.not_cold(500).is_empty());
        assert!(cold.not_cold(501)[0].contains("not cold"));
        assert!(cold.not_cold(400)[0].contains("none was evicted"));
        let evicting = PassAccount { evicted: 1, ..cold.clone() };
        assert!(evicting.not_cold(400).is_empty());
        let neighbours = PassAccount { ahead: 300, ahead_used: 200, ..cold.clone() };
        assert!(neighbours.not_cold(400).is_empty(), "files beside the data set were read ahead");
        assert!(warm().not_warm(500, 0).is_empty());
        assert!(!cold.not_warm(500, 0).is_empty());
        assert!(cold.not_warm(500, 500).is_empty());
        assert!(
            PassAccount { ahead: 500, ..cold.clone() }.not_warm(500, 0).is_empty(),
            "nobody asked for it"
        );
        assert!(warm().not_from_disk(500)[0].contains("unknown"));
        assert!(PassAccount { disk: Some(0), ..warm() }.not_from_disk(500)[0].contains("not from the disk"));
        assert!(PassAccount { disk: Some(400), ..warm() }.not_from_disk(500).is_empty());
    }

    #[test]
    fn what_the_storage_gave_twice_is_told_from_what_it_gave_once() {
        let phase = PassAccount {
            origin_bytes: 700,
            waits: 12,
            calls: BTreeMap::from([("read".to_owned(), 4), ("getattr".to_owned(), 5)]),
            ahead: 200,
            ahead_used: 150,
            ahead_evicted: 40,
            ..warm()
        };
        assert_eq!((phase.duplicate(500), phase.duplicate(800)), (150, 0));
        assert_eq!((phase.coalescing(), phase.revalidations_per_open()), (Some(3.0), 0.5));
        assert_eq!((phase.ahead_wasted_percent(), warm().ahead_wasted_percent()), (Some(25.0), None));
        assert_eq!((phase.amplification(), warm().coalescing()), (0.7, None));
    }
}
