//! Opening a journal: what is in its directory, what of it counts, and which damage nobody may overlook.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::Arc;

use types::{Error, ErrorKind, Result};

use crate::bond::BondFile;
use crate::covered::Covered;
use crate::crash_points::{Hook, JournalStep};
use crate::disk::{Disk, DiskFile};
use crate::index::{Index, IndexedSegment, LiveEntry};
use crate::sabotage::{Bug, Sabotage};
use crate::scan::{self, Bad, Scan, ScanExtent};
use crate::segment::{self, BadHeader, FRAME_BYTES, HEADER_BYTES, Header, JournalId, RecordKind};
use crate::state::{STATE_NAME, State};
use crate::{Position, SEGMENT_SIZE_MAX};

const STATE_UNBORN: &str = "STATE.new";

/// A place in the journal whose bytes are not what was once written and synced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub file: String,
    pub offset: u64,
    pub what: &'static str,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: {}", self.file, self.offset, self.what)
    }
}

/// What the directory holds.
pub struct Recovery {
    pub state: State,
    pub index: Index,
    pub next_number: u64,
    /// Bytes of the last segment; 0 without one.
    pub previous_end: u32,
    pub damage: Vec<Damage>,
}

impl Recovery {
    /// With what was noted elsewhere: an older state of the same journal, or one that has lost its end, is damaged.
    pub fn compare(&mut self, bond: &BondFile) {
        let Some(known) = bond.found else { return };
        if known.journal != self.state.journal {
            // Given up and accepted: what was given out under the other one is not given out again.
            self.state.next_sequence = self.state.next_sequence.max(bond.sequence_after());
            return;
        }
        let last = self.index.segments.last_key_value().map_or(0, |(number, _)| *number);
        let mut damaged = |number: u64, what| {
            let file = segment::name(number);
            if !self.damage.iter().any(|damage| damage.file == file) {
                self.damage.push(Damage { file, offset: 0, what });
            }
        };
        if last < known.segment.into() {
            damaged(known.segment.into(), "the segment is missing");
        } else if self.state.next_sequence < known.next_sequence || self.state.epoch < known.epoch {
            damaged(last, "this is an older state of the journal: what was written later is missing");
        }
        if !self.damage.is_empty() {
            self.state.next_sequence = self.state.next_sequence.max(bond.sequence_after());
            self.next_number = self.next_number.max(u64::from(known.segment) + 1);
        }
    }
}

/// The parts of the work that stay the same through it.
struct Opening<'a> {
    disk: &'a dyn Disk,
    hook: &'a Hook,
    sabotage: Sabotage,
    /// Of the journal, if there is none yet.
    fresh: JournalId,
    /// Since the state was written.
    covered: Option<Covered>,
    damage: Vec<Damage>,
}

/// One segment's file, before it is read.
struct SegmentCandidate {
    number: u64,
    file: Arc<dyn DiskFile>,
    header: Header,
    /// The header did not check out; what stands in `header` is what the name and the journal tell.
    lost_header: bool,
}

pub fn recover(disk: &dyn Disk, hook: &Hook, sabotage: Sabotage, fresh: JournalId) -> Result<Recovery> {
    let mut opening = Opening { disk, hook, sabotage, fresh, covered: None, damage: Vec::new() };
    let fail = |e: io::Error| Error::io("open journal", disk.place(), e);
    let names = disk.list().map_err(fail)?;
    for name in names.iter().filter(|name| segment::is_unborn(name) || *name == STATE_UNBORN) {
        disk.remove(name).map_err(fail)?;
    }
    let numbers: BTreeSet<u64> = names.iter().filter_map(|name| segment::parse_name(name)).collect();
    let told = opening.read_state(&names, !numbers.is_empty()).map_err(fail)?;
    let candidates = opening.read_headers(&numbers, told.map_or(fresh, |state| state.journal))?;
    let journal = told.map(|state| state.journal).unwrap_or_else(|| {
        candidates.iter().find(|candidate| !candidate.lost_header).map_or(fresh, |one| one.header.journal)
    });
    opening.covered = Covered::read(disk, &names, &journal).map_err(fail)?;
    opening.look_for_gaps(&numbers, told);
    opening.read_segments(candidates, told, journal)
}

impl Opening<'_> {
    fn damaged(&mut self, number: u64, offset: u64, what: &'static str) {
        self.damage.push(Damage { file: segment::name(number), offset, what });
    }

    fn read_state(&mut self, names: &[String], segments: bool) -> io::Result<Option<State>> {
        let state = if names.iter().any(|name| name == STATE_NAME) {
            let mut bytes = [0; crate::state::STATE_BYTES];
            let count = self.disk.open(STATE_NAME)?.read_at(0, &mut bytes)?;
            State::decode(&bytes[..count])
        } else if segments {
            None
        } else {
            return Ok(None);
        };
        if state.is_none() {
            let what = "the state is missing or does not check out";
            self.damage.push(Damage { file: STATE_NAME.into(), offset: 0, what });
        }
        Ok(state)
    }

    fn read_headers(&mut self, numbers: &BTreeSet<u64>, journal: JournalId) -> Result<Vec<SegmentCandidate>> {
        let mut journal = Some(journal).filter(|journal| *journal != self.fresh);
        let mut candidates = Vec::new();
        for &number in numbers {
            let name = segment::name(number);
            let fail = |e| Error::io("open journal segment", &name, e);
            let file = self.disk.open(&name).map_err(fail)?;
            let mut bytes = [0; HEADER_BYTES as usize];
            let count = file.read_at(0, &mut bytes).map_err(fail)?;
            let read = Header::decode(&bytes[..count]);
            if let Err(BadHeader::Foreign { format, writer }) = read {
                let message = format!(
                    "{name} in {} has format {format}, written by Forebay {writer}; this one reads format {}: \
                     start that version to flush it",
                    self.disk.place(),
                    segment::FORMAT
                );
                return Err(Error::new(ErrorKind::Config, "open journal:", message));
            }
            let good = read.ok().filter(|header| {
                header.number == number && header.journal == *journal.get_or_insert(header.journal)
            });
            if good.is_none() {
                self.damaged(number, 0, "the segment's header does not check out");
            }
            let guess = Header {
                journal: journal.unwrap_or(self.fresh),
                number,
                first_sequence: 0,
                previous_end: 0,
                size: SEGMENT_SIZE_MAX,
            };
            candidates.push(SegmentCandidate {
                number,
                file,
                header: good.unwrap_or(guess),
                lost_header: good.is_none(),
            });
        }
        Ok(candidates)
    }

    /// Segments leave oldest first, so between the oldest and the newest none may be missing.
    fn look_for_gaps(&mut self, numbers: &BTreeSet<u64>, told: Option<State>) {
        let mut expected = numbers.first().copied().unwrap_or(0);
        if let Some(covered) = self.covered
            && expected > covered.oldest.into()
        {
            self.damaged(covered.oldest.into(), 0, "the segment is missing");
        }
        for &number in numbers {
            if number != expected {
                self.damaged(expected, 0, "the segment is missing");
            }
            expected = number + 1;
        }
        let noted = [told.map(|state| state.whole_segment), self.covered.map(|covered| covered.segment)];
        let there_must_be = noted.into_iter().flatten().max().unwrap_or(0).into();
        if numbers.last().copied().unwrap_or(0) < there_must_be {
            self.damaged(there_must_be, 0, "the segment is missing");
        }
    }

    fn read_segments(
        mut self,
        candidates: Vec<SegmentCandidate>,
        told: Option<State>,
        journal: JournalId,
    ) -> Result<Recovery> {
        let mut index = Index::default();
        let mut done = BTreeSet::new();
        let mut next_sequence = told.map_or(1, |state| state.next_sequence.max(1));
        let last = candidates.last().map(|candidate| candidate.number);
        let mut previous_end = 0;
        for (at, candidate) in candidates.iter().enumerate() {
            let is_last = Some(candidate.number) == last;
            let extent = self.extent(candidate, candidates.get(at + 1), told)?;
            let fail = |e| Error::io("read journal segment", segment::name(candidate.number), e);
            let scan = scan::scan(candidate.file.as_ref(), &candidate.header, extent, self.sabotage)
                .map_err(fail)?;
            for Bad { offset, what } in &scan.damage {
                self.damaged(candidate.number, *offset, what);
            }
            next_sequence = next_sequence.max(sequence_after(candidate, &scan, extent, self.sabotage));
            if is_last && matches!(extent, ScanExtent::Last { .. }) && scan.damage.is_empty() {
                // A tail has all its room until it is sealed, and is whole on the disk by then.
                let length = candidate.file.length().map_err(fail)?;
                if length < candidate.header.size.into() && length != scan.end {
                    self.damaged(candidate.number, scan.end, "the segment was cut here");
                } else {
                    self.cut_tail(candidate, &scan).map_err(fail)?;
                }
            }
            previous_end = scan.end as u32;
            index.segments.insert(candidate.number, IndexedSegment::new(candidate.file.clone(), scan.end));
            enter(&mut index, &mut done, candidate.number, &scan, self.sabotage);
        }
        index.live.retain(|sequence, _| !done.contains(sequence));
        index.count_live();
        let whole_segment = last.unwrap_or(0) as u32;
        let state = State {
            journal,
            epoch: self.epoch(told),
            clean: false,
            whole_segment,
            whole_end: previous_end,
            next_sequence,
        };
        let next_number =
            u64::from(whole_segment).max(told.map_or(0, |state| state.whole_segment.into())) + 1;
        Ok(Recovery { state, index, next_number, previous_end, damage: self.damage })
    }

    fn extent(
        &self,
        one: &SegmentCandidate,
        next: Option<&SegmentCandidate>,
        told: Option<State>,
    ) -> Result<ScanExtent> {
        let length =
            || one.file.length().map_err(|e| Error::io("read journal segment", segment::name(one.number), e));
        let told = told.filter(|state| u64::from(state.whole_segment) == one.number);
        Ok(match (next, told) {
            (Some(next), _) if next.lost_header || next.number != one.number + 1 => {
                ScanExtent::Sealed { end: length()? }
            }
            (Some(next), _) => ScanExtent::Sealed { end: next.header.previous_end.into() },
            (None, Some(state)) if state.clean => ScanExtent::Sealed { end: state.whole_end.into() },
            (None, told) => {
                let covered = self.covered.filter(|covered| u64::from(covered.segment) == one.number);
                let ends = [told.map(|state| state.whole_end), covered.map(|covered| covered.end)];
                ScanExtent::Last { whole: ends.into_iter().flatten().max().unwrap_or(0).into() }
            }
        })
    }

    /// What was found beyond the last sync that is known to have succeeded can be read, and may still not be on the
    /// disk: a failed sync leaves pages that look clean. So it is written once more before it is believed.
    fn cut_tail(&self, candidate: &SegmentCandidate, scan: &Scan) -> io::Result<()> {
        let file = &candidate.file;
        if !self.sabotage.is(Bug::TrustCache) {
            let mut piece = vec![0; 1 << 20];
            let mut offset = scan.covered.min(scan.end);
            while offset < scan.end {
                let length = piece.len().min((scan.end - offset) as usize);
                let count = file.read_at(offset, &mut piece[..length])?;
                if count == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                file.write_at(offset, &[&piece[..count]])?;
                offset += count as u64;
            }
        }
        file.truncate(scan.end)?;
        file.sync()?;
        (self.hook)(JournalStep::TailCut);
        Ok(())
    }

    fn epoch(&self, told: Option<State>) -> u64 {
        match told {
            Some(state) if self.sabotage.is(Bug::KeepVerifier) => state.epoch,
            Some(state) if state.clean && self.damage.is_empty() => state.epoch,
            Some(state) => state.epoch.wrapping_add(1),
            // The count is lost: one that was hardly there before.
            None if !self.damage.is_empty() => segment::u64_at(&self.fresh, 8),
            None => 0,
        }
    }
}

/// No sequence from here on was ever given out, as far as this segment tells.
fn sequence_after(candidate: &SegmentCandidate, scan: &Scan, extent: ScanExtent, sabotage: Sabotage) -> u64 {
    let seen = scan.records.iter().map(|found| found.frame.sequence.saturating_add(1)).max().unwrap_or(0);
    let torn = matches!(extent, ScanExtent::Last { .. }) || !scan.damage.is_empty();
    if !torn || sabotage.is(Bug::ReuseSequence) {
        seen
    } else if candidate.lost_header {
        // At most as many as fit into the room of a largest segment.
        seen.saturating_add(u64::from(SEGMENT_SIZE_MAX) / FRAME_BYTES)
    } else {
        seen.max(candidate.header.sequence_after())
    }
}

/// The records of a segment into the books. Of two copies of an entry the later one counts; what is done, stays so.
fn enter(index: &mut Index, done: &mut BTreeSet<u64>, number: u64, scan: &Scan, sabotage: Sabotage) {
    for found in &scan.records {
        let frame = &found.frame;
        match frame.kind {
            RecordKind::Done if sabotage.is(Bug::ForgetDone) => {}
            RecordKind::Done => {
                done.insert(frame.sequence);
            }
            RecordKind::Entry | RecordKind::Moved => {
                let position = Position {
                    sequence: frame.sequence,
                    segment: number as u32,
                    offset: found.offset as u32,
                    head_length: frame.head_length,
                    data_length: frame.data_length,
                };
                index.live.insert(frame.sequence, LiveEntry::new(position, frame));
            }
        }
    }
}

/// Replace the state file, durably.
pub fn write_state(disk: &dyn Disk, hook: &Hook, state: &State) -> io::Result<()> {
    let file = disk.create(STATE_UNBORN, 0)?;
    file.write_at(0, &[&state.encode()])?;
    file.sync()?;
    disk.rename(STATE_UNBORN, STATE_NAME)?;
    disk.sync_dir()?;
    hook(JournalStep::StateWritten);
    Ok(())
}

/// The same on a full disk: its one sector is written whole or not at all. Not for a clean end: a sync that fails
/// leaves it readable all the same.
pub fn overwrite_state(disk: &dyn Disk, hook: &Hook, state: &State) -> io::Result<()> {
    let file = disk.open(STATE_NAME)?;
    file.write_at(0, &[&state.encode()])?;
    file.sync()?;
    hook(JournalStep::StateWritten);
    Ok(())
}
