//! What workers moved together, from when each began and ended.
//!
//! A worker's own rate holds for its own span. Adding rates of spans that did not overlap yields a speed that the
//! storage never had (the Tryggve study added 90.2 MB/s where 62.4 were moved), so there is no way to add them here:
//! below 95 % overlap one gets a [`Refusal`] with the reason. Always true is all bytes over the last finisher.

use std::ops::Range;

use crate::distribution::extremes;
use crate::sanity;

/// Rates of workers that shared a smaller part of the run than this are not added.
pub const OVERLAP_MIN: f64 = 0.95;

/// One worker's part of a phase. Seconds on one clock, whose zero does not matter.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub worker: String,
    pub start: f64,
    pub end: f64,
    pub bytes: u64,
    /// Bytes moved since the start at some moments in between, in order: (seconds on the same clock, bytes). With
    /// them the window in which all worked is measured instead of taken as steady. May be empty.
    pub progress: Vec<(f64, u64)>,
}

/// A number that must not be printed, and why.
pub type Refusal = String;

/// The spans of one phase, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseSpans {
    spans: Vec<Span>,
}

impl Span {
    pub fn new(worker: impl Into<String>, start: f64, end: f64, bytes: u64) -> Span {
        Span { worker: worker.into(), start, end, bytes, progress: Vec::new() }
    }

    /// Bytes a second over the worker's own span: its own, never the system's.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / (self.end - self.start)
    }

    /// Bytes moved until `time`, by the samples around it; without samples, as if it moved steadily.
    pub fn bytes_at(&self, time: f64) -> f64 {
        let mut before = (self.start, 0.0);
        let end = (self.end, self.bytes as f64);
        let samples = self.progress.iter().map(|(at, bytes)| (*at, *bytes as f64));
        for after in samples.chain([end]) {
            if time <= after.0 {
                let share = ((time - before.0) / (after.0 - before.0)).clamp(0.0, 1.0);
                // Two samples at one moment: the later counts.
                return if share.is_finite() { before.1 + share * (after.1 - before.1) } else { after.1 };
            }
            before = after;
        }
        end.1
    }

    /// The part of it within a stretch of time.
    pub fn within(&self, from: f64, to: f64) -> Span {
        let (start, end) = (self.start.max(from), self.end.min(to));
        let before = self.bytes_at(start) as u64;
        let moved = |bytes: u64| bytes.saturating_sub(before);
        let progress = self.progress.iter().filter(|(at, _)| (start..=end).contains(at));
        let progress = progress.map(|(at, bytes)| (*at, moved(*bytes))).collect();
        Span { worker: self.worker.clone(), start, end, bytes: moved(self.bytes_at(end) as u64), progress }
    }

    fn problem(&self) -> Option<String> {
        let worker = &self.worker;
        if !(self.start.is_finite() && self.end.is_finite()) || self.end <= self.start {
            return Some(format!("{worker} took no time: from {} s to {} s", self.start, self.end));
        }
        let samples = [(self.start, 0)].into_iter().chain(self.progress.iter().copied());
        let ordered = samples.chain([(self.end, self.bytes)]).is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1);
        (!ordered).then(|| format!("{worker}'s progress goes backwards"))
    }
}

impl PhaseSpans {
    /// Refused if there is no worker, or one that took no time.
    pub fn new(spans: Vec<Span>) -> Result<PhaseSpans, Refusal> {
        if spans.is_empty() {
            return Err("no worker finished".to_owned());
        }
        match spans.iter().find_map(Span::problem) {
            Some(reason) => Err(reason),
            None => Ok(PhaseSpans { spans }),
        }
    }

    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    pub fn bytes(&self) -> u64 {
        self.spans.iter().fold(0, |sum, span| sum.saturating_add(span.bytes))
    }

    fn starts(&self) -> (f64, f64) {
        extremes(self.spans.iter().map(|span| span.start))
    }

    fn ends(&self) -> (f64, f64) {
        extremes(self.spans.iter().map(|span| span.end))
    }

    pub fn whole(&self) -> Range<f64> {
        self.starts().0..self.ends().1
    }

    /// In which all workers worked: from the last start to the first end. None if there is no such moment.
    pub fn common(&self) -> Option<Range<f64>> {
        let (start, end) = (self.starts().1, self.ends().0);
        (end > start).then_some(start..end)
    }

    /// The part of the phase in which all worked, 0 to 1.
    pub fn overlap(&self) -> f64 {
        self.common().map_or(0.0, |common| seconds(&common) / seconds(&self.whole()))
    }

    pub fn first_done_seconds(&self) -> f64 {
        self.ends().0 - self.starts().0
    }

    pub fn last_done_seconds(&self) -> f64 {
        seconds(&self.whole())
    }

    /// All bytes over the last finisher, bytes a second: true whatever the overlap.
    pub fn last_done_rate(&self) -> f64 {
        self.bytes() as f64 / self.last_done_seconds()
    }

    /// Bytes a second in the window in which all worked.
    pub fn common_rate(&self) -> Result<f64, Refusal> {
        let never = "no common-window rate: the workers never all worked at once";
        self.rate_in(self.common().ok_or(never)?, "common-window rate")
    }

    pub fn added_rates(&self) -> Result<f64, Refusal> {
        if self.overlap() >= OVERLAP_MIN {
            return Ok(self.spans.iter().map(Span::rate).sum());
        }
        Err(self.refusal("sum of the workers' rates"))
    }

    /// Rate of the slowest worker over that of the fastest, 0 to 1: how fairly the storage served them.
    pub fn fairness(&self) -> f64 {
        let rates: Vec<f64> = self.spans.iter().map(Span::rate).collect();
        sanity::fairness(&rates).unwrap_or(1.0)
    }

    fn rate_in(&self, window: Range<f64>, what: &str) -> Result<f64, Refusal> {
        let measured = self.spans.iter().all(|s| !s.progress.is_empty());
        if !measured && self.overlap() < OVERLAP_MIN {
            return Err(self.refusal(what));
        }
        let moved: f64 = self.spans.iter().map(|s| s.bytes_at(window.end) - s.bytes_at(window.start)).sum();
        Ok(moved / seconds(&window))
    }

    fn refusal(&self, what: &str) -> Refusal {
        let workers = self.spans.len();
        let whole = seconds(&self.whole());
        let together = match self.common() {
            Some(common) => format!("the {workers} workers shared {:.1} s of {whole:.1} s", seconds(&common)),
            None => format!("the {workers} workers never all worked at once in {whole:.1} s"),
        };
        let overlap = self.overlap() * 100.0;
        format!("no {what}: {together} (overlap {overlap:.0} %, needed 95 %)")
    }
}

/// Of a stretch of time.
pub fn seconds(window: &Range<f64>) -> f64 {
    window.end - window.start
}

#[cfg(test)]
mod tests;
