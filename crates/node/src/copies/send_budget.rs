//! What this node may send for the copies of others at present. Pure: the caller brings the time.

use std::time::Duration;

use types::FileId;

use crate::copies::file_demand::FileDemand;
use crate::copies::repair_bucket::RepairBucket;
use crate::copies::repair_yield::RepairYield;

/// Files that readers want are remembered up to so many.
const WANTED_MAX: usize = 1 << 12;

/// Copies of files that readers of other nodes want go first while readers are served: the others are held to a bucket of their own.
#[derive(Debug)]
pub struct SendBudget {
    all: RepairBucket,
    unread: RepairBucket,
    rates: RepairYield,
    demand: FileDemand,
}

impl SendBudget {
    /// `rate`: bytes per second while nobody reads. `burst`: bytes.
    pub fn new(rate: u64, burst: u64) -> SendBudget {
        SendBudget {
            all: RepairBucket::new(rate, burst),
            unread: RepairBucket::new(rate, burst),
            rates: RepairYield::new(rate),
            demand: FileDemand::new(WANTED_MAX),
        }
    }

    /// A reader of another node has asked for bytes of the file.
    pub fn note_read(&mut self, file: FileId, now: Duration) {
        self.demand.note(file, now);
    }

    /// Takes `bytes` of the file for a copy if they may be sent now. `served`: all bytes that readers have got from this node so far.
    pub fn try_take(&mut self, file: FileId, bytes: u64, served: u64, now: Duration) -> bool {
        let rates = self.rates.rates(served, now);
        self.all.set_rate(rates.all);
        self.unread.set_rate(rates.unread);
        let is_unread = !self.demand.is_wanted(file, now);
        if is_unread && !self.unread.is_free(now) {
            return false;
        }
        let may_send = self.all.try_take(bytes, now);
        if may_send && is_unread {
            self.unread.try_take(bytes, now);
        }
        may_send
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;
    const READ: FileId = FileId([1; 16]);
    const UNREAD: FileId = FileId([2; 16]);

    /// MB of copies of each file that are sent in 100 s, in which both are asked for again and again and readers get `readers` bytes
    /// per second.
    fn sent(readers: u64) -> [u64; 2] {
        let mut budget = SendBudget::new(25 * MB, MB);
        let mut sent = [0; 2];
        for ms in (0..100_000).step_by(20) {
            let now = Duration::from_millis(ms);
            budget.note_read(READ, now);
            // Which of them asks first changes.
            let mut asks = [(0, READ), (1, UNREAD)];
            asks.rotate_left((ms / 40 % 2) as usize);
            for (of, file) in asks {
                sent[of] += u64::from(budget.try_take(file, MB, readers * ms / 1000, now));
            }
        }
        sent
    }

    #[test]
    fn copies_of_files_that_nobody_reads_get_a_fiftieth_of_what_readers_get_and_the_others_the_rest_of_a_tenth()
     {
        let [read, unread] = sent(50 * MB);
        assert!((95..110).contains(&unread), "{unread}");
        assert!((390..420).contains(&read), "{read}");
    }

    #[test]
    fn nobody_is_preferred_while_no_reader_is_served() {
        let [read, unread] = sent(0);
        assert!((2490..=2510).contains(&(read + unread)), "{read} {unread}");
        assert!(unread > 1000, "{unread}");
    }
}
