//! How far something is, told while it goes on.

use std::collections::VecDeque;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use serde_json::Value;

/// What a look asks for: an answer at the end, or after so long.
pub const LOOK: &str = "within_ms=250";
/// A tier that does not know that is not asked again sooner.
const LOOK_LEAST: Duration = Duration::from_millis(200);
/// Between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// The rate told is that of so much time.
const RATE_OF: Duration = Duration::from_secs(5);
const BAR: usize = 24;
const WIDTH: usize = 78;

/// Until the next look, where the last one began at `began`.
pub fn pause(began: Instant) {
    std::thread::sleep(LOOK_LEAST.saturating_sub(began.elapsed()));
}

/// Tells on one line of the terminal, again and again; without a terminal, on a line now and then.
pub struct Teller {
    live: bool,
    quiet: bool,
    told: Instant,
}

impl Teller {
    pub fn new(quiet: bool) -> Teller {
        Teller { live: std::io::stderr().is_terminal(), quiet, told: Instant::now() }
    }

    /// A line that stays.
    pub fn line(&self, text: &str) {
        if !self.quiet {
            let clear = if self.live { "\r" } else { "" };
            eprintln!("{clear}{text:<WIDTH$}");
        }
    }

    /// How it is now, if that is due.
    pub fn now(&mut self, text: impl FnOnce() -> String) {
        if self.quiet || !self.live && self.told.elapsed() < LINE_EVERY {
            return;
        }
        self.told = Instant::now();
        if self.live {
            eprint!("\r{:<WIDTH$}", text());
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("{}", text());
        }
    }

    /// What is printed next stands on a line of its own.
    pub fn end(&self) {
        if self.live && !self.quiet {
            eprint!("\r{:WIDTH$}\r", "");
        }
    }
}

/// `part` of one.
pub fn bar(part: f64) -> String {
    let full = (part * BAR as f64) as usize;
    let bar: String = (0..BAR).map(|i| if i < full { '#' } else { '.' }).collect();
    format!("[{bar}] {:3.0} %", part * 100.0)
}

pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

pub fn duration(seconds: f64) -> String {
    let all = seconds.ceil() as u64;
    match (all / 3600, all / 60 % 60, all % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m}:{s:02} min"),
        (h, m, _) => format!("{h}:{m:02} h"),
    }
}

/// Bytes per second of the last few seconds.
#[derive(Default)]
pub struct Speed {
    seen: VecDeque<(Instant, u64)>,
}

impl Speed {
    pub fn of(&mut self, bytes: u64, now: Instant) -> Option<f64> {
        self.seen.push_back((now, bytes));
        while self.seen.len() > 2 && now.duration_since(self.seen[1].0) >= RATE_OF {
            self.seen.pop_front();
        }
        let (since, before) = *self.seen.front()?;
        let seconds = now.duration_since(since).as_secs_f64();
        (seconds > 0.0).then(|| bytes.saturating_sub(before) as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let (mut speed, start) = (Speed::default(), Instant::now());
        assert_eq!(speed.of(0, start), None);
        for second in 1..=20_u64 {
            let bytes = if second <= 10 { second * 100 } else { 1000 + (second - 10) * 10 };
            let rate = speed.of(bytes, start + Duration::from_secs(second)).expect("known");
            match second {
                1..=10 => assert_eq!(rate, 100.0),
                15.. => assert_eq!(rate, 10.0),
                _ => assert!(rate < 100.0 && rate > 10.0),
            }
        }
    }
}
