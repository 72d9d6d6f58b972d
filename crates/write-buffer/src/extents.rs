//! Which bytes of one file were written and are not in the cache as a version of the origin yet: where they are, and how
//! far each has come. Pure: who writes says what was written, who sends asks for the next part and says what became of
//! it.
//!
//! Later bytes replace earlier ones at once for readers. What was being sent of the earlier ones goes on, so nothing that
//! overlaps it is sent before it is over: the origin may carry out in any order what it has at the same time.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use types::{ByteRange, Divide, ExtentMap, RangeSet, Stability, WriteVerifier};

use crate::ReadSegment;
use crate::superseded::{SupersededPiece, SupersededUncommitted};

/// How far some bytes have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentPhase {
    Waiting,
    /// In the part with this number.
    Sending(u64),
    /// The origin has them in memory. It took them as the `arrival`-th.
    Unstable {
        verifier: WriteVerifier,
        arrival: u64,
    },
    /// On stable storage at the origin, or kept by it until it is asked to commit.
    Stored,
    /// As `Stored`; the cache is taking them now.
    Laying,
}

/// `R` is room in the budget: given back when nothing is left of what was written with it.
#[derive(Clone, Debug)]
struct BufferExtent<R> {
    data: Bytes,
    /// Of the write, in the order of writes.
    sequence: u64,
    /// The first write that waits for what is here to be stored: the one above, or one whose bytes it replaced before
    /// they were at the origin.
    first_waiter: u64,
    /// What was promised to any of these.
    stability: Stability,
    written_ms: u64,
    phase: ExtentPhase,
    _permit: R,
}

impl<R: Clone> Divide for BufferExtent<R> {
    fn part(&self, skip: u64, length: u64) -> BufferExtent<R> {
        BufferExtent { data: self.data.slice(skip as usize..(skip + length) as usize), ..self.clone() }
    }
}

/// A part under way. Of some of it later bytes may be here by now.
#[derive(Clone, Copy, Debug)]
struct PartInFlight {
    range: ByteRange,
    /// As of its extents.
    first_waiter: u64,
    stability: Stability,
}

/// To be sent in one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferPart {
    pub number: u64,
    pub offset: u64,
    pub data: Bytes,
    pub stability: Stability,
}

impl BufferPart {
    fn range(&self) -> ByteRange {
        ByteRange::new(self.offset, self.data.len() as u64)
    }
}

/// What of the bytes that wait should be sent though its part is not full.
#[derive(Clone, Copy, Debug, Default)]
pub struct Due {
    /// Of writes up to this one.
    pub sequence: u64,
    /// Written up to this time.
    pub written_ms: u64,
}

/// What the cache is to take under a version that the origin has.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Lay {
    /// In order of offset.
    pub written: Vec<(u64, Bytes)>,
    /// The origin was sent other bytes here than those below, and they are gone: later ones have replaced them, and are
    /// not there yet.
    pub unknown: Vec<ByteRange>,
}

/// Bytes that the origin itself keeps until it is asked to commit the file as a whole: no need to have them here.
#[derive(Clone, Debug)]
struct KeptByOrigin {
    verifier: WriteVerifier,
    /// What it took as which one, and the first write that waits for that.
    parts: Vec<(u64, u64)>,
    /// The first of all these.
    first_waiter: u64,
}

#[derive(Debug)]
pub struct BufferExtents<R> {
    map: ExtentMap<BufferExtent<R>>,
    /// Offsets of those that wait.
    waiting: BTreeSet<u64>,
    under_way: BTreeMap<u64, PartInFlight>,
    superseded: SupersededUncommitted,
    /// Where bytes that were sent were replaced before the cache had them.
    replaced: RangeSet,
    /// Writes that wait for something, and for how many bytes.
    open: BTreeMap<u64, u64>,
    /// What the origin keeps and is to commit.
    kept: Option<KeptByOrigin>,
    /// Where the next part is looked for.
    cursor: u64,
    parts: u64,
    arrivals: u64,
    unstable_bytes: u64,
    stored_bytes: u64,
    /// Most bytes of a part; parts do not reach over multiples of it.
    part_max: u64,
}

impl<R: Clone> BufferExtents<R> {
    pub fn new(part_max: u32) -> BufferExtents<R> {
        BufferExtents {
            map: ExtentMap::default(),
            waiting: BTreeSet::new(),
            under_way: BTreeMap::new(),
            superseded: SupersededUncommitted::default(),
            replaced: RangeSet::default(),
            open: BTreeMap::new(),
            kept: None,
            cursor: 0,
            parts: 0,
            arrivals: 0,
            unstable_bytes: 0,
            stored_bytes: 0,
            part_max: u64::from(part_max).max(1),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.map.is_empty() && self.under_way.is_empty() && self.superseded.is_empty() && self.kept.is_none()
    }

    /// Pieces that were replaced here and are not committed at the origin.
    pub fn superseded(&self) -> usize {
        self.superseded.count()
    }

    /// Is something at the origin that it will show only after a commit?
    pub fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    pub fn bytes(&self) -> u64 {
        self.map.bytes()
    }

    pub fn unstable_bytes(&self) -> u64 {
        self.unstable_bytes
    }

    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub fn parts_under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Where the last of them ends.
    pub fn end(&self) -> u64 {
        self.map.end()
    }

    /// When the oldest of them was written.
    pub fn oldest_ms(&self) -> Option<u64> {
        self.map.iter().map(|(_, extent)| extent.written_ms).min()
    }

    /// When the oldest of those that wait was written.
    pub fn waiting_since_ms(&self) -> Option<u64> {
        self.waiting.iter().filter_map(|offset| Some(self.map.at(*offset)?.written_ms)).min()
    }

    /// Over everything before. `sequence` is larger than that of the last write.
    pub fn write(
        &mut self,
        offset: u64,
        data: &Bytes,
        sequence: u64,
        stability: Stability,
        now_ms: u64,
        permit: &R,
    ) {
        let range = ByteRange::new(offset, data.len() as u64);
        let (first_waiter, promised) = self.clear(range).unwrap_or((sequence, stability));
        let (first_waiter, stability) = (first_waiter.min(sequence), stability.max(promised));
        let mut at = offset;
        while at < range.end() {
            let end = (at / self.part_max + 1).saturating_mul(self.part_max).min(range.end());
            let data = data.slice((at - offset) as usize..(end - offset) as usize);
            let (phase, written_ms, _permit) = (ExtentPhase::Waiting, now_ms, permit.clone());
            self.insert(
                at,
                BufferExtent { data, sequence, first_waiter, stability, written_ms, phase, _permit },
            );
            at = end;
        }
    }

    /// Is anything left of what was written to `range` up to this write?
    pub fn is_open(&self, range: ByteRange, sequence: u64) -> bool {
        if self.open.first_key_value().is_none_or(|(first, _)| *first > sequence) {
            return false;
        }
        self.map.over(range).any(|(_, extent)| extent.first_waiter <= sequence)
    }

    /// Is anything of what was written to `range` up to this write, or over it before it was sent, not on stable storage at
    /// the origin yet?
    pub fn is_unstored(&self, range: ByteRange, sequence: u64) -> bool {
        // Of what is kept nobody knows where it was.
        if self.kept.as_ref().is_some_and(|kept| kept.first_waiter <= sequence) {
            return true;
        }
        if self.under_way.values().any(|part| part.first_waiter <= sequence && part.range.overlaps(&range))
            || self.superseded.has_in(&range, sequence)
        {
            return true;
        }
        if self.open.first_key_value().is_none_or(|(first, _)| *first > sequence) {
            return false;
        }
        self.map.over(range).any(|(_, extent)| extent.first_waiter <= sequence && !is_stored(extent))
    }

    /// Are bytes of writes up to this one on their way, or not even that?
    pub fn is_to_arrive(&self, sequence: u64) -> bool {
        let mut extents = self.map.iter().map(|(_, extent)| extent);
        self.under_way.values().any(|part| part.first_waiter <= sequence)
            || extents.any(|extent| extent.first_waiter <= sequence && extent.phase == ExtentPhase::Waiting)
    }

    /// Bytes of a write up to this one that the origin has in memory only, or keeps.
    pub fn is_to_commit(&self, sequence: u64) -> bool {
        if self.kept.as_ref().is_some_and(|kept| kept.first_waiter <= sequence)
            || self.superseded.has(sequence)
        {
            return true;
        }
        let mut extents = self.map.iter().map(|(_, extent)| extent);
        self.unstable_bytes > 0
            && extents
                .any(|it| it.first_waiter <= sequence && matches!(it.phase, ExtentPhase::Unstable { .. }))
    }

    /// The next part that is full or due, and overlaps no part under way. It is under way then.
    pub fn next_part(&mut self, due: Due) -> Option<BufferPart> {
        let mut at = self.cursor;
        let mut wrapped = false;
        loop {
            let Some(&offset) = self.waiting.range(at..).next() else {
                if wrapped {
                    return None;
                }
                (wrapped, at) = (true, 0);
                continue;
            };
            if wrapped && offset >= self.cursor {
                return None;
            }
            let run = self.run_from(offset);
            let due = |extent: &BufferExtent<R>| {
                extent.stability > Stability::Unstable
                    || extent.first_waiter <= due.sequence
                    || extent.written_ms <= due.written_ms
            };
            let full = run.length == self.part_max;
            let free = !self.under_way.values().any(|other| other.range.overlaps(&run));
            if free && (full || self.map.over(run).any(|(_, extent)| due(extent))) {
                self.cursor = run.end();
                return Some(self.start(run));
            }
            at = run.end();
        }
    }

    /// The bytes that wait from `offset` on, without a gap, as far as one call may carry them.
    fn run_from(&self, offset: u64) -> ByteRange {
        let limit = (offset / self.part_max + 1).saturating_mul(self.part_max);
        let class = |extent: &BufferExtent<R>| extent.stability > Stability::Unstable;
        let wanted = self.map.at(offset).map(class);
        let mut end = offset;
        for (range, extent) in self.map.over(ByteRange::new(offset, limit - offset)) {
            if range.offset != end || extent.phase != ExtentPhase::Waiting || Some(class(extent)) != wanted {
                break;
            }
            end = range.end();
        }
        ByteRange::new(offset, end - offset)
    }

    fn start(&mut self, run: ByteRange) -> BufferPart {
        self.parts += 1;
        let number = self.parts;
        let mut pieces = Vec::new();
        let (mut first_waiter, mut stability) = (u64::MAX, Stability::Unstable);
        let offsets: Vec<u64> = self.map.over(run).map(|(range, _)| range.offset).collect();
        for offset in offsets {
            let Some(extent) = self.map.at_mut(offset) else { continue };
            extent.phase = ExtentPhase::Sending(number);
            (first_waiter, stability) =
                (first_waiter.min(extent.first_waiter), stability.max(extent.stability));
            self.waiting.remove(&offset);
            pieces.push(extent.data.clone());
        }
        let data = match pieces.as_slice() {
            [one] => one.clone(),
            _ => {
                let mut data = BytesMut::with_capacity(run.length as usize);
                pieces.iter().for_each(|piece| data.extend_from_slice(piece));
                data.freeze()
            }
        };
        let part = BufferPart { number, offset: run.offset, data, stability };
        self.under_way.insert(number, PartInFlight { range: part.range(), first_waiter, stability });
        part
    }

    /// The origin has taken the part, so durably, under this verifier.
    pub fn arrived(&mut self, number: u64, stability: Stability, verifier: WriteVerifier) {
        self.arrivals += 1;
        let arrival = self.arrivals;
        let phase = match stability {
            Stability::Unstable => {
                self.note_superseded(number, verifier, arrival);
                ExtentPhase::Unstable { verifier, arrival }
            }
            Stability::DataSync | Stability::FileSync => {
                self.forget_superseded(number);
                ExtentPhase::Stored
            }
        };
        self.part_is_over(number, |extents, offset| extents.set_phase(offset, phase));
    }

    /// The origin has taken the part, and keeps it itself until a commit.
    pub fn arrived_to_be_kept(&mut self, number: u64, verifier: WriteVerifier) {
        self.arrivals += 1;
        let arrival = self.arrivals;
        if let Some(&PartInFlight { first_waiter, .. }) = self.under_way.get(&number) {
            // The verifier of the first: if another has come since, the commit tells that too.
            let kept = self.kept.get_or_insert(KeptByOrigin { verifier, parts: Vec::new(), first_waiter });
            kept.parts.push((arrival, first_waiter));
            kept.first_waiter = kept.first_waiter.min(first_waiter);
        }
        self.part_is_over(number, |extents, offset| extents.set_phase(offset, ExtentPhase::Stored));
    }

    /// What of the part was replaced while it was under way.
    fn note_superseded(&mut self, number: u64, verifier: WriteVerifier, arrival: u64) {
        let Some(&PartInFlight { range, first_waiter, stability }) = self.under_way.get(&number) else {
            return;
        };
        let mut replaced = RangeSet::default();
        replaced.add(range);
        let still =
            |(_, extent): &(ByteRange, &BufferExtent<R>)| extent.phase == ExtentPhase::Sending(number);
        self.map.over(range).filter(still).for_each(|(still, _)| replaced.remove(still));
        for range in replaced.take() {
            self.superseded.add(SupersededPiece { range, first_waiter, stability, verifier, arrival });
        }
    }

    /// The part is stored: nobody waits for what was there before.
    fn forget_superseded(&mut self, number: u64) {
        if let Some(PartInFlight { range, .. }) = self.under_way.get(&number) {
            self.superseded.take_out(*range);
        }
    }

    /// The part did not come through, and is to be sent again.
    pub fn unsent(&mut self, number: u64) {
        if let Some(part) = self.under_way.get(&number).copied() {
            self.inherit_waiters(part);
        }
        self.part_is_over(number, |extents, offset| extents.set_phase(offset, ExtentPhase::Waiting));
    }

    /// The part will never come through. Returns the writes that it was of, each with what was promised.
    pub fn failed(&mut self, number: u64) -> Vec<(u64, Stability)> {
        // Its bytes may have been replaced meanwhile; who waits for them is told all the same.
        let part = self.under_way.get(&number).map(|part| (part.first_waiter, part.stability));
        let mut lost: Vec<_> = part.into_iter().collect();
        self.part_is_over(number, |extents, offset| lost.extend(extents.lose(offset)));
        lost.sort_unstable();
        lost.dedup();
        lost
    }

    /// What is here of later bytes, and not stored, is what those wait for who wrote what was there. False if of some of
    /// that nothing is here.
    fn inherit_waiters(&mut self, PartInFlight { range, first_waiter, stability }: PartInFlight) -> bool {
        let mut gone = RangeSet::default();
        gone.add(range);
        for part in self.under_way.values_mut().filter(|part| part.range.overlaps(&range)) {
            (part.first_waiter, part.stability) =
                (part.first_waiter.min(first_waiter), part.stability.max(stability));
            gone.remove(part.range);
        }
        self.map.over(range).for_each(|(here, _)| gone.remove(here));
        let later: Vec<u64> = offsets(self.map.over(range), |extent| !is_stored(extent));
        for offset in later {
            let Some((_, mut extent)) = self.remove(offset) else { continue };
            (extent.first_waiter, extent.stability) =
                (extent.first_waiter.min(first_waiter), extent.stability.max(stability));
            self.insert(offset, extent);
        }
        gone.take().is_empty()
    }

    fn part_is_over(&mut self, number: u64, mut each: impl FnMut(&mut Self, u64)) {
        let Some(PartInFlight { range, .. }) = self.under_way.remove(&number) else { return };
        let of_it = offsets(self.map.over(range), |extent| extent.phase == ExtentPhase::Sending(number));
        of_it.into_iter().for_each(|offset| each(self, offset));
    }

    /// A commit that is sent now is about what arrived up to here.
    pub fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// What the origin kept is stored, if it had it still; otherwise it is lost: the writes that it was of.
    pub fn kept_is_committed(&mut self, arrivals: u64, now: WriteVerifier) -> Vec<(u64, Stability)> {
        let Some(kept) = &mut self.kept else { return Vec::new() };
        if kept.verifier != now {
            return self.kept_is_lost();
        }
        kept.parts.retain(|(arrival, _)| *arrival > arrivals);
        match kept.parts.iter().map(|(_, first_waiter)| *first_waiter).min() {
            Some(first_waiter) => kept.first_waiter = first_waiter,
            None => self.kept = None,
        }
        Vec::new()
    }

    /// With what is here of it and not in the cache.
    fn kept_is_lost(&mut self) -> Vec<(u64, Stability)> {
        let Some(kept) = self.kept.take() else { return Vec::new() };
        let stored = offsets(self.map.iter(), |extent| extent.phase == ExtentPhase::Stored);
        let mut lost: Vec<_> = stored.into_iter().flat_map(|offset| self.lose(offset)).collect();
        lost.push((kept.first_waiter, Stability::Unstable));
        lost
    }

    /// What arrived up to there is stored, if the origin had it still; otherwise it is to be sent again. Bytes of those;
    /// and the writes of which nothing is here any more.
    pub fn committed(&mut self, arrivals: u64, now: WriteVerifier) -> (u64, Vec<(u64, Stability)>) {
        let (mut again, mut lost) = (0, Vec::new());
        for piece in self.superseded.take_up_to(arrivals).into_iter().filter(|piece| piece.verifier != now) {
            let SupersededPiece { range, first_waiter, stability, .. } = piece;
            if !self.inherit_waiters(PartInFlight { range, first_waiter, stability }) {
                lost.push((first_waiter, stability));
            }
        }
        for (offset, length, verifier) in self.unstable_up_to(arrivals) {
            let kept = verifier == now;
            again += if kept { 0 } else { length };
            self.set_phase(offset, if kept { ExtentPhase::Stored } else { ExtentPhase::Waiting });
        }
        (again, lost)
    }

    /// What arrived up to there cannot be stored, ever.
    pub fn commit_failed(&mut self, arrivals: u64) -> Vec<(u64, Stability)> {
        let unstable = self.unstable_up_to(arrivals);
        let mut lost = self.kept_is_lost();
        lost.extend(
            self.superseded.take_up_to(arrivals).iter().map(|piece| (piece.first_waiter, piece.stability)),
        );
        lost.extend(unstable.into_iter().flat_map(|(offset, ..)| self.lose(offset)));
        lost
    }

    fn unstable_up_to(&self, arrivals: u64) -> Vec<(u64, u64, WriteVerifier)> {
        let unstable = |(range, extent): (ByteRange, &BufferExtent<R>)| match extent.phase {
            ExtentPhase::Unstable { verifier, arrival } if arrival <= arrivals => {
                Some((range.offset, range.length, verifier))
            }
            _ => None,
        };
        self.map.iter().filter_map(unstable).collect()
    }

    /// What the origin has stored; with `all`, also what it has in memory. What is stored counts as on its way to the
    /// cache then.
    pub fn lay(&mut self, all: bool) -> Lay {
        let mut written = Vec::new();
        for (range, extent) in self.map.iter_mut() {
            match extent.phase {
                ExtentPhase::Stored => extent.phase = ExtentPhase::Laying,
                ExtentPhase::Unstable { .. } if all => {}
                _ => continue,
            }
            self.replaced.remove(range);
            written.push((range.offset, extent.data.clone()));
        }
        Lay { written, unknown: self.replaced.take() }
    }

    /// The cache has them.
    pub fn laid(&mut self) {
        for offset in offsets(self.map.iter(), |extent| extent.phase == ExtentPhase::Laying) {
            self.remove(offset);
        }
    }

    /// The cache has not got them.
    pub fn unlaid(&mut self) {
        let extents = self.map.iter_mut().map(|(_, extent)| extent);
        extents.filter(|it| it.phase == ExtentPhase::Laying).for_each(|it| it.phase = ExtentPhase::Stored);
    }

    /// What is at the origin may be there no more. No part is under way.
    pub fn send_again(&mut self) {
        offsets(self.map.iter(), there)
            .into_iter()
            .for_each(|offset| self.set_phase(offset, ExtentPhase::Waiting));
    }

    /// The origin has cut the file, and what it had behind that. No part is under way.
    pub fn cut(&mut self, size: u64) {
        let behind = ByteRange::new(size, u64::MAX - size);
        self.superseded.take_out(behind);
        for offset in offsets(self.map.over(behind), there) {
            let Some((_, extent)) = self.remove(offset) else { continue };
            if offset < size {
                self.insert(offset, extent.part(0, size - offset));
            }
        }
    }

    /// The bytes of `range` in order.
    pub fn segments(&self, range: ByteRange) -> Vec<ReadSegment> {
        let piece = |(range, extent): (ByteRange, Option<(u64, &BufferExtent<R>)>)| match extent {
            Some((skip, BufferExtent { data, .. })) => {
                ReadSegment::Dirty(data.slice(skip as usize..(skip + range.length) as usize))
            }
            None => ReadSegment::Clean(range),
        };
        self.map.pieces(range).into_iter().map(piece).collect()
    }

    /// Take the range out of all extents; one that reaches over both ends is split. Of those that were not sent: the first
    /// write that waits for them, and what was promised.
    fn clear(&mut self, range: ByteRange) -> Option<(u64, Stability)> {
        let mut inherited: Option<(u64, Stability)> = None;
        for (piece, extent) in self.map.clear(range) {
            self.uncount(piece, &extent);
            if extent.phase == ExtentPhase::Waiting {
                let (first_waiter, stability) = inherited.unwrap_or((extent.first_waiter, extent.stability));
                inherited = Some((first_waiter.min(extent.first_waiter), stability.max(extent.stability)));
            }
            if matches!(
                extent.phase,
                ExtentPhase::Sending(_) | ExtentPhase::Unstable { .. } | ExtentPhase::Stored
            ) {
                self.replaced.add(piece);
            }
            if let ExtentPhase::Unstable { verifier, arrival } = extent.phase {
                let (first_waiter, stability) = (extent.first_waiter, extent.stability);
                self.superseded.add(SupersededPiece {
                    range: piece,
                    first_waiter,
                    stability,
                    verifier,
                    arrival,
                });
            }
        }
        // What is left behind the range begins there now.
        if self.map.at(range.end()).is_some_and(|rest| rest.phase == ExtentPhase::Waiting) {
            self.waiting.insert(range.end());
        }
        inherited
    }

    fn insert(&mut self, offset: u64, extent: BufferExtent<R>) {
        let range = ByteRange::new(offset, extent.data.len() as u64);
        *self.open.entry(extent.first_waiter).or_default() += range.length;
        self.count(extent.phase, range.length, true, offset);
        self.map.put(range, extent);
    }

    /// For good: the writes that are to be told, each with what was promised.
    fn lose(&mut self, offset: u64) -> Vec<(u64, Stability)> {
        let Some((_, extent)) = self.remove(offset) else { return Vec::new() };
        let BufferExtent { sequence, first_waiter, stability, .. } = extent;
        let earlier = (first_waiter < sequence).then_some((first_waiter, stability));
        earlier.into_iter().chain([(sequence, stability)]).collect()
    }

    fn remove(&mut self, offset: u64) -> Option<(ByteRange, BufferExtent<R>)> {
        let (range, extent) = self.map.remove(offset)?;
        self.uncount(range, &extent);
        Some((range, extent))
    }

    /// This range of the extent has left the map.
    fn uncount(&mut self, range: ByteRange, extent: &BufferExtent<R>) {
        self.count(extent.phase, range.length, false, range.offset);
        if let Some(bytes) = self.open.get_mut(&extent.first_waiter) {
            *bytes -= range.length;
            if *bytes == 0 {
                self.open.remove(&extent.first_waiter);
            }
        }
    }

    fn set_phase(&mut self, offset: u64, phase: ExtentPhase) {
        let Some(extent) = self.map.at_mut(offset) else { return };
        let (before, length) = (std::mem::replace(&mut extent.phase, phase), extent.data.len() as u64);
        self.count(before, length, false, offset);
        self.count(phase, length, true, offset);
    }

    fn count(&mut self, phase: ExtentPhase, length: u64, comes: bool, offset: u64) {
        let sum = match phase {
            ExtentPhase::Waiting => {
                let _known = if comes { self.waiting.insert(offset) } else { self.waiting.remove(&offset) };
                return;
            }
            ExtentPhase::Sending(_) => return,
            ExtentPhase::Unstable { .. } => &mut self.unstable_bytes,
            ExtentPhase::Stored | ExtentPhase::Laying => &mut self.stored_bytes,
        };
        *sum = if comes { *sum + length } else { *sum - length };
    }
}

/// Where the extents begin of which this is true.
fn offsets<'a, R: 'a>(
    extents: impl Iterator<Item = (ByteRange, &'a BufferExtent<R>)>,
    is_wanted: impl Fn(&BufferExtent<R>) -> bool,
) -> Vec<u64> {
    extents.filter(|(_, extent)| is_wanted(extent)).map(|(range, _)| range.offset).collect()
}

fn is_stored<R>(extent: &BufferExtent<R>) -> bool {
    matches!(extent.phase, ExtentPhase::Stored | ExtentPhase::Laying)
}

fn there<R>(extent: &BufferExtent<R>) -> bool {
    is_stored(extent) || matches!(extent.phase, ExtentPhase::Unstable { .. })
}

#[cfg(test)]
mod tests;
