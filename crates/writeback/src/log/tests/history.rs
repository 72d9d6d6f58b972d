//! One random history: what is done to a journal, when its power is cut, and what that came to.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use types::{ByteRange, ErrorKind};

use super::model::{ContentChange, Model};
use crate::crash_points::JournalStep;
use crate::disk::faulty::FaultyDisk;
use crate::log::{Append, Compacted, Log, LogOptions};
use crate::random::TestRandom;
use crate::sabotage::{Bug, Sabotage};
use crate::segment::{self, FRAME_BYTES};

const SEGMENT: u64 = 4096;
const QUOTA: u64 = 8 * SEGMENT;
const STEPS: u64 = 90;

/// What happened, over all histories.
#[derive(Default, Debug)]
pub struct Outcome {
    pub cuts_at: BTreeMap<String, u64>,
    pub cuts_with_acknowledged: u64,
    pub cuts_with_unacknowledged: u64,
    pub lost_unacknowledged: u64,
    /// Power cuts that took some of what was written and not synced, and left some.
    pub lost_in_part: u64,
    pub failed_syncs: u64,
    pub kills: u64,
    pub kills_with_unsynced: u64,
    pub clean_ends: u64,
    pub refused_for_room: u64,
    pub compacted: u64,
    pub rotten: u64,
}

impl Outcome {
    pub fn add(&mut self, other: &Outcome) {
        for (step, count) in &other.cuts_at {
            *self.cuts_at.entry(step.clone()).or_default() += count;
        }
        self.cuts_with_acknowledged += other.cuts_with_acknowledged;
        self.cuts_with_unacknowledged += other.cuts_with_unacknowledged;
        self.lost_unacknowledged += other.lost_unacknowledged;
        self.lost_in_part += other.lost_in_part;
        self.failed_syncs += other.failed_syncs;
        self.kills += other.kills;
        self.kills_with_unsynced += other.kills_with_unsynced;
        self.clean_ends += other.clean_ends;
        self.refused_for_room += other.refused_for_room;
        self.compacted += other.compacted;
        self.rotten += other.rotten;
    }
}

/// A power cut that waits for its moment.
#[derive(Default)]
struct Fuse {
    armed: Option<(JournalStep, u64)>,
    blown: Option<JournalStep>,
}

struct History {
    random: TestRandom,
    disk: Arc<FaultyDisk>,
    log: Option<Log>,
    fuse: Arc<Mutex<Fuse>>,
    model: Model,
    verifier: [u8; 8],
    /// Entries that nobody flushes: compaction has to carry them.
    stuck: u64,
    bug: Option<Bug>,
    outcome: Outcome,
}

type Verdict = Result<(), String>;

/// What an unclean end may take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    Nothing,
    Unsynced,
}

/// The violation, if the journal broke a promise.
pub fn play(seed: u64, bug: Option<Bug>) -> Result<Outcome, String> {
    let mut random = TestRandom(seed);
    let stuck = [0, 3, 7][random.below(3) as usize];
    let mut history = History {
        random,
        disk: Arc::default(),
        log: None,
        fuse: Arc::default(),
        model: Model::default(),
        verifier: [0; 8],
        stuck,
        bug,
        outcome: Outcome::default(),
    };
    history.open().map_err(|e| format!("first open: {e}"))?;
    history.verifier = history.log().verifier();
    for _ in 0..STEPS {
        history.act()?;
        // The state file is not counted.
        if history.disk.bytes() > QUOTA + 128 {
            return Err(format!("{} bytes on the disk, {QUOTA} allowed", history.disk.bytes()));
        }
        if history.is_off() {
            history.cut_power()?;
        }
    }
    history.cut_power()?;
    Ok(history.outcome)
}

impl History {
    fn log(&self) -> &Log {
        self.log.as_ref().expect("a journal is open between actions")
    }

    fn is_off(&self) -> bool {
        self.disk.faults.off.load(SeqCst)
    }

    fn open(&mut self) -> types::Result<()> {
        // On such a disk, when it is full, it says so and does not open.
        self.disk.faults.copies_on_write.store(false, SeqCst);
        let (fuse, faults) = (self.fuse.clone(), self.disk.faults.clone());
        let hook = move |step| {
            let mut fuse = fuse.lock().unwrap();
            let Some((awaited, left)) = fuse.armed.as_mut().filter(|(awaited, _)| *awaited == step) else {
                return;
            };
            *left -= 1;
            if *left == 0 {
                fuse.blown = Some(*awaited);
                fuse.armed = None;
                faults.off.store(true, SeqCst);
            }
        };
        let mut fresh = [0; 16];
        fresh.copy_from_slice(&self.random.bytes(16));
        let options = LogOptions {
            size_max: QUOTA,
            segment_size: SEGMENT,
            fresh,
            hook: Arc::new(hook),
            sabotage: Sabotage(self.bug),
            timeline: types::Timeline::default(),
            bond: None,
        };
        self.log = Some(Log::open(self.disk.clone(), options)?);
        Ok(())
    }

    fn act(&mut self) -> Verdict {
        match self.random.below(100) {
            0..45 => self.append(),
            45..58 => self.commit(),
            58..76 => self.finish_one(),
            76..81 => self.reclaim(),
            81..86 => self.compact(),
            86..89 => self.read_one(),
            89 => self.end_cleanly(),
            90 => self.kill(),
            91 => self.cut_power(),
            92 => self.rot(),
            93 => {
                let full = self.random.below(2) == 0;
                self.disk.faults.full.store(full, SeqCst);
                self.disk.faults.copies_on_write.store(self.random.below(2) == 0, SeqCst);
                Ok(())
            }
            94 => {
                self.disk.faults.sync_fails_in.store(1 + self.random.below(4), SeqCst);
                Ok(())
            }
            _ => {
                let step = JournalStep::ALL[self.random.below(JournalStep::ALL.len() as u64) as usize];
                self.fuse.lock().unwrap().armed = Some((step, 1 + self.random.below(4)));
                Ok(())
            }
        }
    }

    /// An error that has a cause is no violation: the power went, or a sync failed and all is refused from then on.
    fn excuse(&mut self, error: &types::Error) -> Verdict {
        if self.is_off() {
            return Ok(());
        }
        if !self.log().is_latched() {
            return Err(format!("refused without a cause: {error}"));
        }
        self.outcome.failed_syncs += u64::from(error.to_string().contains("os error 5"));
        if error.kind() != ErrorKind::Io {
            return Err(format!("latched with {error:?}"));
        }
        if self.log().append(b"x", b"").is_ok() || self.log().commit().is_ok() {
            return Err("goes on after a failed sync".into());
        }
        for &sequence in &self.model.promised {
            self.model.check_content(self.log(), sequence)?;
        }
        self.kill()
    }

    fn append(&mut self) -> Verdict {
        let (head, data) = (self.random.below(120) as usize, self.random.below(1500) as usize);
        let data = if self.random.below(3) == 0 { 0 } else { data };
        let content = ContentChange { head: self.random.bytes(head), data: self.random.bytes(data) };
        match self.log().append(&content.head, &content.data) {
            Ok(Append::Written(position)) => self.model.appended(position.sequence, content),
            Ok(Append::Full(_)) => {
                self.outcome.refused_for_room += 1;
                Ok(())
            }
            Err(error) => {
                self.model.in_flight = Some(content);
                self.excuse(&error)
            }
        }
    }

    fn commit(&mut self) -> Verdict {
        match self.log().commit() {
            Ok(last) => {
                let owed = self.log().writer().owed.clone();
                self.model.committed(last, &owed);
                Ok(())
            }
            Err(error) => self.excuse(&error),
        }
    }

    fn finish_one(&mut self) -> Verdict {
        let stuck = self.stuck;
        let free = |sequence: &&u64| stuck == 0 || !sequence.is_multiple_of(stuck);
        let free: Vec<u64> = self.model.live.iter().filter(free).copied().collect();
        let oldest_first = self.random.below(4) > 0;
        let at = if oldest_first { 0 } else { self.random.below(free.len().max(1) as u64) as usize };
        let Some(&sequence) = free.get(at) else { return Ok(()) };
        let outcome = self.log().done(sequence);
        self.model.finished(sequence);
        outcome.or_else(|error| self.excuse(&error))
    }

    fn reclaim(&mut self) -> Verdict {
        self.log().reclaim().map(|_| ()).or_else(|error| self.excuse(&error))
    }

    fn compact(&mut self) -> Verdict {
        match self.log().compact() {
            Ok(Compacted::Moved(_)) => self.outcome.compacted += 1,
            Ok(_) => {}
            Err(error) => return self.excuse(&error),
        }
        for &sequence in &self.model.live {
            if !self.is_off() {
                self.model.check_content(self.log(), sequence)?;
            }
        }
        Ok(())
    }

    fn read_one(&mut self) -> Verdict {
        let live: Vec<u64> = self.model.live.iter().copied().collect();
        if live.is_empty() {
            return Ok(());
        }
        let sequence = live[self.random.below(live.len() as u64) as usize];
        let data = &self.model.appended[&sequence].data;
        let range =
            ByteRange::new(self.random.below(1500), self.random.below(700)).clamp_to(data.len() as u64);
        let (position, _) = self.log().head(sequence).map_err(|e| format!("head of {sequence}: {e}"))?;
        let read = self.log().read(position, range).map_err(|e| format!("read of {sequence}: {e}"))?;
        if read != data[range.offset as usize..range.end() as usize] {
            return Err(format!("a piece of entry {sequence} has other bytes"));
        }
        Ok(())
    }

    fn end_cleanly(&mut self) -> Verdict {
        if let Err(error) = self.log().close() {
            return self.excuse(&error);
        }
        self.outcome.clean_ends += 1;
        let owed = self.log().writer().owed.clone();
        self.model.committed(u64::MAX, &owed);
        self.fuse.lock().unwrap().armed = None;
        let cut = self.random.below(2) == 0;
        self.log = None;
        self.disk = if cut { self.disk.after_power_cut(&mut self.random) } else { self.disk.after_kill() };
        self.disk.faults.sync_fails_in.store(0, SeqCst);
        self.open().map_err(|e| format!("open after a clean end: {e}"))?;
        if self.log().verifier() != self.verifier {
            return Err("the verifier changed over a clean end".into());
        }
        self.model.check_recovered(self.log.as_ref().unwrap())
    }

    /// What the journal has promised until now, whether or not somebody had the time to see it.
    fn note_promises(&mut self) {
        let log = self.log.take().expect("a journal is open between actions");
        self.model.promised_up_to(*log.durable().borrow());
    }

    /// What is in the file is kept, synced or not.
    fn kill(&mut self) -> Verdict {
        self.outcome.kills += 1;
        self.note_promises();
        self.outcome.kills_with_unsynced += u64::from(self.model.unpromised() > 0);
        self.disk = self.disk.after_kill();
        self.reopen(Loss::Nothing)
    }

    fn cut_power(&mut self) -> Verdict {
        self.note_promises();
        self.count_cut();
        self.disk = self.disk.after_power_cut(&mut self.random);
        let (live, unpromised) = (self.model.live.clone(), self.model.unpromised());
        self.reopen(Loss::Unsynced)?;
        let lost = live.difference(&self.model.live).count();
        self.outcome.lost_unacknowledged += lost as u64;
        self.outcome.lost_in_part += u64::from(lost > 0 && lost < unpromised);
        Ok(())
    }

    fn count_cut(&mut self) {
        let at = self.fuse.lock().unwrap().blown.take();
        *self.outcome.cuts_at.entry(at.map_or("rest".into(), |step| format!("{step:?}"))).or_default() += 1;
        self.outcome.cuts_with_acknowledged += u64::from(!self.model.promised.is_empty());
        self.outcome.cuts_with_unacknowledged += u64::from(self.model.unpromised() > 0);
    }

    /// After an unclean end. The power may be cut again while it opens.
    fn reopen(&mut self, mut loss: Loss) -> Verdict {
        self.fuse.lock().unwrap().armed = None;
        if self.random.below(3) == 0 {
            let step = [JournalStep::TailCut, JournalStep::StateWritten, JournalStep::ReserveMade]
                [self.random.below(3) as usize];
            self.fuse.lock().unwrap().armed = Some((step, 1));
        }
        for _ in 0..3 {
            self.disk.faults.sync_fails_in.store(0, SeqCst);
            match self.open() {
                Ok(()) if !self.is_off() => break,
                Ok(()) => {}
                Err(_) if self.is_off() => {}
                Err(error) => return Err(format!("open: {error}")),
            }
            self.log = None;
            self.count_cut();
            self.disk = self.disk.after_power_cut(&mut self.random);
            loss = Loss::Unsynced;
        }
        self.fuse.lock().unwrap().armed = None;
        let now = self.log().verifier();
        if std::mem::replace(&mut self.verifier, now) == now {
            return Err("the verifier stayed over an unclean end".into());
        }
        if loss == Loss::Nothing {
            self.model.promised_up_to(u64::MAX);
        }
        self.model.check_recovered(self.log.as_ref().unwrap())
    }

    /// A byte of a live entry goes bad while the journal is closed: it is named, everything else
    /// stays readable. Then the byte is mended, so that the history goes on.
    fn rot(&mut self) -> Verdict {
        self.kill()?;
        let live: Vec<_> = self.log().index().live.values().map(|live| live.position).collect();
        if live.is_empty() {
            return Ok(());
        }
        let victim = live[self.random.below(live.len() as u64) as usize];
        self.outcome.rotten += 1;
        let name = segment::name(victim.segment.into());
        let in_data = victim.data_length > 0 && self.random.below(3) == 0;
        let room =
            if in_data { victim.data_length.into() } else { FRAME_BYTES + u64::from(victim.head_length) };
        let skip = if in_data { FRAME_BYTES + u64::from(victim.head_length) } else { 0 };
        let at = u64::from(victim.offset) + skip + self.random.below(room);
        self.log = None;
        self.disk.rot(&name, at);
        self.open().map_err(|e| format!("open with rot: {e}"))?;
        self.check_rotten(victim.sequence, &name, in_data)?;
        self.log = None;
        self.disk.rot(&name, at);
        self.reopen(Loss::Nothing)
    }

    fn check_rotten(&self, victim: u64, name: &str, in_data: bool) -> Verdict {
        let log = self.log();
        for &sequence in self.model.live.iter().filter(|sequence| **sequence != victim) {
            self.model.check_content(log, sequence).map_err(|what| format!("beside rot: {what}"))?;
        }
        if in_data {
            // Found when it is read: never handed out.
            return match self.model.check_content(log, victim) {
                Err(what) if what.contains(name) => Ok(()),
                other => Err(format!("rotten data of {victim} in {name}: {other:?}")),
            };
        }
        if !log.damage().iter().any(|damage| damage.file == name) {
            return Err(format!("rot in {name} was not noticed"));
        }
        match log.append(b"", b"") {
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(()),
            other => Err(format!("a damaged journal goes on as if it were whole: {other:?}")),
        }
    }
}
