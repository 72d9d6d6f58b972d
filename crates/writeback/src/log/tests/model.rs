//! What the journal has promised, and whether what it has after a restart keeps it.

use std::collections::{BTreeMap, BTreeSet};

use types::ByteRange;

use crate::log::Log;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContentChange {
    pub head: Vec<u8>,
    pub data: Vec<u8>,
}

#[derive(Default)]
pub struct Model {
    /// Every entry that an append returned, ever.
    pub appended: BTreeMap<u64, ContentChange>,
    /// Of those: not done, and not known to be lost.
    pub live: BTreeSet<u64>,
    /// Of the live ones: promised to be durable.
    pub promised: BTreeSet<u64>,
    /// Done, and the record may be lost.
    pub done: BTreeSet<u64>,
    /// Done for ever.
    pub gone: BTreeSet<u64>,
    /// Never came back from a restart; their sequences are used up all the same.
    pub lost: BTreeSet<u64>,
    /// An append that was cut off: it may be there or not.
    pub in_flight: Option<ContentChange>,
}

type Verdict = Result<(), String>;

impl Model {
    pub fn appended(&mut self, sequence: u64, content: ContentChange) -> Verdict {
        if let Some((last, _)) = self.appended.last_key_value()
            && *last >= sequence
        {
            return Err(format!("sequence {sequence} was given out again: {last} was the last"));
        }
        self.appended.insert(sequence, content);
        self.live.insert(sequence);
        Ok(())
    }

    /// The journal said that all up to `last` is durable.
    pub fn promised_up_to(&mut self, last: u64) {
        self.promised.extend(self.live.range(..=last));
    }

    /// Entries that a power cut may take.
    pub fn unpromised(&self) -> usize {
        self.live.len() - self.promised.len()
    }

    /// A commit succeeded: Done records are durable too, except those for which there was no room.
    pub fn committed(&mut self, last: u64, owed: &[u64]) {
        self.promised_up_to(last);
        let written = self.done.extract_if(.., |sequence| !owed.contains(sequence));
        self.gone.extend(written);
    }

    pub fn finished(&mut self, sequence: u64) {
        self.live.remove(&sequence);
        self.promised.remove(&sequence);
        self.done.insert(sequence);
    }

    /// Compare with what is there after a restart, and go on from that.
    pub fn check_recovered(&mut self, log: &Log) -> Verdict {
        if let Some(damage) = log.damage().first() {
            return Err(format!("damage where there is none: {damage}"));
        }
        let found = log.live_sequences();
        for &sequence in &found {
            if self.gone.contains(&sequence) {
                return Err(format!("entry {sequence} was done, durably, and came back"));
            }
            if self.lost.contains(&sequence) {
                return Err(format!("entry {sequence} was lost and came back"));
            }
            self.adopt_in_flight(log, sequence)?;
            self.check_content(log, sequence)?;
        }
        let found: BTreeSet<u64> = found.into_iter().collect();
        if let Some(missing) = self.promised.difference(&found).next() {
            return Err(format!("entry {missing} was acknowledged and is missing"));
        }
        let missing: BTreeSet<u64> = self.live.difference(&found).copied().collect();
        if let (Some(hole), Some(last)) = (missing.first(), found.last())
            && self.live.range(hole..).any(|live| found.contains(live))
        {
            return Err(format!("entry {hole} is missing in front of {last}: not a prefix"));
        }
        self.lost.extend(missing);
        self.gone.extend(self.done.difference(&found));
        self.done.clear();
        self.in_flight = None;
        self.live = found.clone();
        self.promised = found;
        Ok(())
    }

    fn adopt_in_flight(&mut self, log: &Log, sequence: u64) -> Verdict {
        if self.appended.contains_key(&sequence) {
            return Ok(());
        }
        let Some(content) = self.in_flight.take() else {
            return Err(format!("entry {sequence} was never appended"));
        };
        log.head(sequence).map_err(|e| format!("head of {sequence}: {e}"))?;
        self.appended(sequence, content)
    }

    pub fn check_content(&self, log: &Log, sequence: u64) -> Verdict {
        let content = &self.appended[&sequence];
        let (position, head) = log.head(sequence).map_err(|e| format!("head of {sequence}: {e}"))?;
        let whole = ByteRange::new(0, position.data_length.into());
        let data = log.read(position, whole).map_err(|e| format!("data of {sequence}: {e}"))?;
        if head != content.head || data != content.data {
            return Err(format!("entry {sequence} has other bytes than were appended"));
        }
        Ok(())
    }
}
