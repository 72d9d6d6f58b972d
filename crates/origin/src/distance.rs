//! How far is this origin? Pure: calls that were sent and answered go in, latency and rate come out.
//!
//! The rate is the most that was delivered in a round trip of late (as TCP's BBR measures it), and it counts as the
//! line's only if the line was full when the call was sent: a reader that asks for little must not make the line look
//! slow. Until it was full once, it is believed to be what most sites have.

use std::collections::VecDeque;
use std::time::Duration;

use types::Distance;

/// The best of the last one to two of these is what counts, so that a line that became slower is noticed.
const RATE_MEMORY: Duration = Duration::from_secs(5);
/// Likewise for the least latency; longer, because under load every answer is late.
const LATENCY_MEMORY: Duration = Duration::from_secs(60);
/// Under a load that never ends all answers queue; the latency believed rises by no more than this per memory, or the
/// longer queue would ask for more in flight, which makes a longer queue.
const LATENCY_RISE: f64 = 1.25;
/// Calls for no more than this many bytes tell the latency. Larger ones tell it too, with their own time on the line.
const LATENCY_MIN: Duration = Duration::from_micros(50);

/// Where answers come side by side, and so many at once, what came in so many round trips tells the rate; what came in one
/// may have been on its way for long.
const SIDE_BY_SIDE_TRIPS: u32 = 6;
/// Marks kept of a round trip.
const MARKS: u32 = 4;

/// What must be remembered of a call between its start and its answer.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    at: Duration,
    delivered: u64,
    delivered_at: Duration,
    /// The line was full.
    full: bool,
}

/// Times are since any fixed moment.
#[derive(Clone, Debug, Default)]
pub struct Odometer {
    delivered: u64,
    delivered_at: Duration,
    in_flight: u64,
    latency: Best,
    rate: Best,
    /// The line was seen full once.
    proven: bool,
    /// Of an origin whose answers come side by side: how much was delivered when, since the line was idle.
    marks: Option<VecDeque<(Duration, u64)>>,
}

/// The best of the current and of the last period.
#[derive(Clone, Copy, Debug, Default)]
struct Best {
    period: u64,
    now: Option<u64>,
    before: Option<u64>,
}

impl Best {
    fn note(&mut self, value: u64, period: u64, better: fn(u64, u64) -> u64, keep: impl Fn(u64, u64) -> u64) {
        if period != self.period {
            let old = self.get(better);
            self.before = if period == self.period + 1 { self.now.or(self.before) } else { None };
            let first = old.map_or(value, |old| keep(old, value));
            (self.period, self.now) = (period, Some(first));
            return;
        }
        self.now = Some(self.now.map_or(value, |now| better(now, value)));
    }

    fn get(&self, better: fn(u64, u64) -> u64) -> Option<u64> {
        match (self.now, self.before) {
            (Some(a), Some(b)) => Some(better(a, b)),
            (a, b) => a.or(b),
        }
    }
}

impl Odometer {
    pub fn of_answers_side_by_side() -> Odometer {
        Odometer { marks: Some(VecDeque::new()), ..Odometer::default() }
    }

    /// A call that will bring `bytes` is made.
    pub fn send(&mut self, bytes: u64, now: Duration) -> Sent {
        if self.in_flight == 0 {
            self.delivered_at = now; // nothing could be delivered while nothing was asked for
            if let Some(marks) = &mut self.marks {
                marks.clear();
                marks.push_back((now, self.delivered));
            }
        }
        self.in_flight = self.in_flight.saturating_add(bytes);
        let distance = self.distance();
        let full = self.in_flight >= distance.bytes_in(distance.latency);
        Sent { at: now, delivered: self.delivered, delivered_at: self.delivered_at, full }
    }

    /// The call has brought its bytes.
    pub fn answer(&mut self, sent: Sent, bytes: u64, now: Duration) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        let took = now.saturating_sub(sent.at).max(LATENCY_MIN);
        let micros = |d: Duration| u64::try_from(d.as_micros()).unwrap_or(u64::MAX);
        let period = now.as_secs() / LATENCY_MEMORY.as_secs();
        let rise = |old: u64, new: u64| new.min((old as f64 * LATENCY_RISE) as u64);
        self.latency.note(micros(took), period, u64::min, rise);
        if bytes == 0 {
            return;
        }
        self.delivered = self.delivered.saturating_add(bytes);
        self.delivered_at = now;
        let span = now.saturating_sub(sent.delivered_at).max(took);
        let rate = self.rate_of_many(now).unwrap_or_else(|| rate(self.delivered - sent.delivered, span));
        let known = self.distance().rate;
        if sent.full || rate > known {
            let before = self.proven;
            self.proven = true;
            if !before {
                self.rate = Best::default();
            }
            let period = now.as_secs() / RATE_MEMORY.as_secs();
            self.rate.note(rate, period, u64::max, |_, new| new);
        }
    }

    /// Over more than one round trip, if answers come side by side and the line was not idle for so long.
    fn rate_of_many(&mut self, now: Duration) -> Option<u64> {
        let trip = self.distance().latency;
        let (delivered, marks) = (self.delivered, self.marks.as_mut()?);
        if marks.back().is_none_or(|(at, _)| now.saturating_sub(*at) >= trip / MARKS) {
            marks.push_back((now, delivered));
        }
        let is_old = |mark: &(Duration, u64)| now.saturating_sub(mark.0) >= trip * SIDE_BY_SIDE_TRIPS;
        while marks.get(1).is_some_and(is_old) {
            marks.pop_front();
        }
        let (at, before) = *marks.front().filter(|mark| is_old(mark))?;
        Some(rate(delivered - before, now - at))
    }

    /// The call has failed, or was given up.
    pub fn lost(&mut self, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
    }

    pub fn distance(&self) -> Distance {
        let latency = self.latency.get(u64::min).map_or(Distance::UNKNOWN.latency, Duration::from_micros);
        let rate = if self.proven { self.rate.get(u64::max) } else { None };
        Distance { latency, rate: rate.unwrap_or(Distance::UNKNOWN.rate).max(1) }
    }

    /// Has anything been measured?
    pub fn knows(&self) -> bool {
        self.latency.get(u64::min).is_some()
    }
}

fn rate(bytes: u64, span: Duration) -> u64 {
    let rate = u128::from(bytes) * 1_000_000 / span.as_micros().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// A line of `rate` bytes per second and `rtt` kept full with `window` parts of 512 KiB.
    fn drive(odometer: &mut Odometer, rate: u64, rtt: Duration, window: usize, parts: usize) -> Duration {
        let part = MIB / 2;
        let mut now = Duration::ZERO;
        let mut line_free = Duration::ZERO;
        let mut under_way = std::collections::VecDeque::new();
        for _ in 0..parts {
            if under_way.len() >= window {
                let (sent, lands) = under_way.pop_front().expect("not empty");
                now = lands;
                odometer.answer(sent, part, now);
            }
            let sent = odometer.send(part, now);
            line_free =
                line_free.max(now + rtt) + Duration::from_nanos((part as f64 / rate as f64 * 1e9) as u64);
            under_way.push_back((sent, line_free));
        }
        now
    }

    #[test]
    fn a_full_line_is_measured_at_its_rate_wherever_it_leads() {
        for rtt in [2, 70, 221] {
            for rate in [1_250_000, 12_500_000, 125_000_000, 1_250_000_000] {
                let mut odometer = Odometer::default();
                let window = (rate as f64 * rtt as f64 / 1000.0 * 1.5 / (MIB / 2) as f64) as usize + 2;
                // Half a second of traffic to warm up: then every call finds the line full.
                let warm = odometer.send(0, Duration::ZERO);
                odometer.answer(warm, 0, ms(rtt));
                drive(&mut odometer, rate, ms(rtt), window.max(100), window.max(100) * 6);
                let got = odometer.distance().rate as f64 / rate as f64;
                assert!((0.8..1.25).contains(&got), "{rtt} ms, {rate} B/s: {got}");
            }
        }
    }

    /// 64 MiB at a time that share a line of 100 MiB/s, so that they come together at the end; one of them comes early,
    /// and another one is sent then.
    #[test]
    fn answers_that_come_at_once_do_not_make_the_line_look_fast() {
        let mut odometer = Odometer::of_answers_side_by_side();
        let trip = odometer.send(0, Duration::ZERO);
        odometer.answer(trip, 0, ms(200));
        let mut early = odometer.send(MIB, ms(200));
        for lot in 0..10 {
            let now = ms(200 + lot * 840);
            let sent: Vec<_> = (0..63).map(|_| odometer.send(MIB, now)).collect();
            odometer.answer(early, MIB, now + ms(700));
            early = odometer.send(MIB, now + ms(700));
            for sent in sent {
                odometer.answer(sent, MIB, now + ms(840));
            }
        }
        let rate = odometer.distance().rate / MIB;
        assert!((60..130).contains(&rate), "{rate} MiB/s");
    }

    #[test]
    fn a_reader_that_asks_for_little_does_not_make_the_line_look_slow() {
        let mut odometer = Odometer::default();
        for i in 0..100 {
            let now = ms(i * 100);
            let sent = odometer.send(4096, now);
            odometer.answer(sent, 4096, now + ms(70));
        }
        assert_eq!(odometer.distance(), Distance { latency: ms(70), rate: Distance::UNKNOWN.rate });
    }

    #[test]
    fn a_queue_that_never_ends_is_not_taken_for_distance() {
        let mut odometer = Odometer::default();
        let first = odometer.send(0, ms(1000));
        odometer.answer(first, 0, ms(1010));
        for minute in 0..3 {
            let now = Duration::from_secs(60 * minute + 5);
            let sent = odometer.send(MIB, now);
            odometer.answer(sent, MIB, now + ms(2000));
        }
        assert!(odometer.distance().latency <= ms(16), "{:?}", odometer.distance());
    }

    #[test]
    fn nothing_measured_means_a_guess() {
        assert!(!Odometer::default().knows());
        assert_eq!(Odometer::default().distance(), Distance::UNKNOWN);
    }
}
