//! A model of an origin at the end of a line: latency, jitter and rate, in virtual time, so that it is the same each
//! time. The decisions are the real ones (`readahead`, `origin::distance`); only what they decide about is not.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use origin::distance::{Odometer, Sent};
use readahead::Readers;
use types::{ByteRange, Distance, FileId};

const PART: u64 = 512 << 10;

#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub rtt: Duration,
    /// Of each direction of each trip, at most.
    pub jitter: Duration,
    /// Bytes per second.
    pub rate: f64,
    /// Bytes of read-ahead under way at any time: three quarters of the cache's budget.
    pub ahead_max: u64,
    pub seed: u64,
}

impl Line {
    pub fn new(rtt_ms: f64, mbit: f64) -> Line {
        Line {
            rtt: Duration::from_secs_f64(rtt_ms / 1000.0),
            jitter: Duration::from_secs_f64(rtt_ms / 1000.0 * 0.02),
            rate: mbit * 125_000.0,
            ahead_max: 96 << 20,
            seed: 1,
        }
    }
}

/// One client: reads a file from its start, block after block, and takes `think` in between.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    pub file: u64,
    pub block: u64,
    pub think: Duration,
}

#[derive(Clone, Debug)]
pub struct Outcome {
    /// When the last client had its last byte.
    pub seconds: f64,
    /// Seconds, and bytes that all clients had by then.
    pub progress: Vec<(f64, u64)>,
    pub origin_bytes: u64,
    /// Most bytes under way at once.
    pub peak: u64,
}

impl Outcome {
    /// Mean bytes per second from `from` seconds to the end.
    pub fn rate_after(&self, from: f64) -> f64 {
        let before = self.progress.iter().take_while(|(t, _)| *t <= from).last().map_or(0, |(_, b)| *b);
        let total = self.progress.last().map_or(0, |(_, b)| *b);
        (total - before) as f64 / (self.seconds - from)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Lands { file: u64, part: u64 },
    Reads { client: usize },
}

struct Model {
    line: Line,
    now: Duration,
    free: Duration,
    random: u64,
    events: BinaryHeap<Reverse<(Duration, Event)>>,
    /// Absent: not asked for; `Some`: under way; `None`: here.
    parts: HashMap<(u64, u64), Option<(Sent, bool)>>,
    waiting: HashMap<(u64, u64), Vec<usize>>,
    odometer: Odometer,
    ahead: u64,
    under_way: u64,
    outcome: Outcome,
}

impl Model {
    fn jitter(&mut self) -> Duration {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.line.jitter.mul_f64((self.random >> 11) as f64 / (1_u64 << 53) as f64)
    }

    fn fetch(&mut self, file: u64, part: u64, ahead: bool) {
        let sent = self.odometer.send(PART, self.now);
        let arrives = self.now + self.line.rtt / 2 + self.jitter();
        self.free = self.free.max(arrives) + Duration::from_secs_f64(PART as f64 / self.line.rate);
        let lands = self.free + self.line.rtt / 2 + self.jitter();
        self.events.push(Reverse((lands, Event::Lands { file, part })));
        self.parts.insert((file, part), Some((sent, ahead)));
        self.ahead += if ahead { PART } else { 0 };
        self.under_way += PART;
        self.outcome.peak = self.outcome.peak.max(self.under_way);
        self.outcome.origin_bytes += PART;
    }

    fn lands(&mut self, file: u64, part: u64) -> Vec<usize> {
        if let Some(Some((sent, ahead))) = self.parts.insert((file, part), None) {
            self.odometer.answer(sent, PART, self.now);
            self.ahead -= if ahead { PART } else { 0 };
            self.under_way -= PART;
        }
        self.waiting.remove(&(file, part)).unwrap_or_default()
    }
}

/// All clients read their file of `size` bytes, from an empty cache.
pub fn run(line: Line, clients: &[Client], size: u64, farthest: u64) -> Outcome {
    let outcome = Outcome { seconds: 0.0, progress: Vec::new(), origin_bytes: 0, peak: 0 };
    let mut model = Model {
        line,
        now: Duration::ZERO,
        free: Duration::ZERO,
        random: line.seed,
        events: BinaryHeap::new(),
        parts: HashMap::new(),
        waiting: HashMap::new(),
        odometer: Odometer::default(),
        ahead: 0,
        under_way: 0,
        outcome,
    };
    let mut readers = Readers::new(farthest);
    let mut at = vec![0_u64; clients.len()];
    let mut asked = vec![u64::MAX; clients.len()];
    // The file was looked up before it is read: that has told the latency.
    let lookup = model.odometer.send(0, Duration::ZERO);
    model.odometer.answer(lookup, 0, line.rtt + line.rtt / 100);
    for client in 0..clients.len() {
        model.events.push(Reverse((line.rtt, Event::Reads { client })));
    }
    let mut had = 0;
    while let Some(Reverse((now, event))) = model.events.pop() {
        model.now = now;
        match event {
            Event::Lands { file, part } => {
                for client in model.lands(file, part) {
                    model.events.push(Reverse((now, Event::Reads { client })));
                }
            }
            Event::Reads { client } => {
                let Client { file, block, think } = clients[client];
                if at[client] >= size {
                    continue;
                }
                let range = ByteRange::new(at[client], block).clamp_to(size);
                let parts = range.offset / PART..range.end().div_ceil(PART);
                for part in parts.clone() {
                    if !model.parts.contains_key(&(file, part)) {
                        model.fetch(file, part, false);
                    }
                }
                if asked[client] != range.offset {
                    asked[client] = range.offset;
                    plan(&mut model, &mut readers, file, range, size);
                }
                let under_way = |part: &u64| model.parts.get(&(file, *part)).is_some_and(Option::is_some);
                match parts.into_iter().find(under_way) {
                    Some(part) => model.waiting.entry((file, part)).or_default().push(client),
                    None => {
                        at[client] = range.end();
                        had += range.length;
                        model.outcome.progress.push((now.as_secs_f64(), had));
                        model.outcome.seconds = now.as_secs_f64();
                        model.events.push(Reverse((now + think, Event::Reads { client })));
                    }
                }
            }
        }
    }
    model.outcome
}

fn plan(model: &mut Model, readers: &mut Readers, file: u64, range: ByteRange, size: u64) {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&file.to_le_bytes());
    let distance = || -> Distance { model.odometer.distance() };
    let now_ms = u64::try_from(model.now.as_millis()).unwrap_or(u64::MAX);
    for planned in readers.plan(FileId(id), range, size, distance, now_ms) {
        for part in planned.offset / PART..planned.end().div_ceil(PART) {
            if model.parts.contains_key(&(file, part)) {
                continue;
            }
            if model.ahead + PART > model.line.ahead_max {
                readers.stopped_at(FileId(id), planned, part * PART);
                return;
            }
            model.fetch(file, part, true);
        }
    }
}
