//! How much a target gives: workers are doubled until more of them bring little (the knee), then touches come on a
//! schedule, at shares of the rate that was found there, which is what users of a target that is so busy would see.

mod answer;

use std::time::Duration;

use bench_load::{AccessOrder, Amount, Arrivals, LoadJob, LoadPace, PhaseOutcome};
use bench_report::{Histogram, median};
use clap::Args;
use types::Result;

use crate::{Budget, MIB, one_of};

pub use answer::fill;

/// More workers that bring less than this are past the knee.
const GAIN: f64 = 1.05;
/// Workers whose touches take so many times as long as one worker's are past it, too.
const SLOWER: f64 = 2.0;
/// Steps past the knee that are looked at: one alone may have been slow by accident.
const PAST: usize = 2;
/// What the engine takes of one client.
const WORKERS_MAX: u32 = 65_536;
/// The most workers of all clients: each is a task, and some hold a block.
const WORKERS_IN_ALL_MAX: u64 = 65_536;
/// In an open loop so many times the workers of the last step may be under way: they are what a queue is made of.
const UNDER_WAY: u32 = 4;
/// Touches that an open loop should have, for its p99 to be one.
const TOUCHES: f64 = 200.0;
/// What is told if the time was over before all was measured as often as was wanted.
const CUT: &str = "repetitions of all steps: some have fewer";
/// An open loop takes so many times as long at most, to have that many touches.
const STRETCH: f64 = 5.0;

#[derive(Args, Clone, Debug)]
pub struct KneeArgs {
    /// Find the knee: double the workers of each node, from one, until that brings less than 5 % or a touch takes twice as
    /// long as with one worker; then open loops at shares of the rate found
    #[arg(long)]
    pub knee: bool,
    /// The shares, percent
    #[arg(long, value_name = "PERCENTS", value_delimiter = ',', default_value = "50,70,90,95", requires = "knee", value_parser = parse_percent)]
    pub open_percent: Vec<f64>,
    /// Time of each step, and of each open loop
    #[arg(long, value_name = "TIME", default_value = "2s", requires = "knee", value_parser = parse_step)]
    pub step: Duration,
    /// In an open loop: evenly or at random
    #[arg(long, value_name = "ARRIVALS", default_value = "constant", value_parser = one_of::<Arrivals>(&["constant", "poisson"]))]
    pub arrivals: Arrivals,
}

fn parse_percent(text: &str) -> std::result::Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (1.0..=200.0).contains(percent));
    percent.ok_or_else(|| {
        format!("\"{text}\" is no share; write percentages from 1 to 200, for example 50,70,90")
    })
}

fn parse_step(text: &str) -> std::result::Result<Duration, String> {
    let step = quantity::duration(text)?;
    // Shorter rows are not believed, longer ones are a slip of the pen.
    let good = (1.0..=3600.0).contains(&step.as_secs_f64());
    if good { Ok(step) } else { Err(format!("{text}: a step takes 1s to 1h")) }
}

/// What is run: so many workers of each node, that way, for so long.
#[derive(Clone, Copy, Debug, Default)]
pub struct KneeStep {
    pub workers: u32,
    pub pace: LoadPace,
    pub seconds: f64,
    /// From 0 on; each may write a version of its own.
    pub number: u32,
}

impl KneeStep {
    /// The step, on a job of one phase: its work goes on until the time is over.
    pub fn of(&self, mut job: LoadJob) -> LoadJob {
        job.fleet.workers = self.workers;
        (job.limits.seconds, job.limits.asked) = (self.seconds, true);
        for phase in &mut job.phases {
            phase.pace = self.pace;
            phase.work.amount = match phase.work.order {
                AccessOrder::Uniform | AccessOrder::Zipf { .. } | AccessOrder::Hotspot { .. } => {
                    Amount::Draws(u64::MAX / 4)
                }
                _ => Amount::Epochs(u64::MAX),
            };
        }
        job
    }
}

/// One step or open loop, with all its repetitions.
#[derive(Default)]
pub struct Level {
    step: KneeStep,
    /// Of an open loop: the share of the capacity, and touches a second that are due.
    percent: f64,
    due: f64,
    pub rates: Vec<f64>,
    pub mib: Vec<f64>,
    /// Milliseconds from when a touch was begun, and from when it should have been.
    pub service_p50: Vec<f64>,
    pub response_p50: Vec<f64>,
    pub service: Histogram,
    pub response: Histogram,
    pub lateness: Histogram,
    pub faults: Vec<String>,
}

pub struct KneeResult {
    pub nodes: u32,
    pub steps: Vec<Level>,
    pub knee: usize,
    /// There was one: the last steps were past it.
    pub reached: bool,
    pub open: Vec<Level>,
    /// What the most workers did in the last closed loop.
    pub last: PhaseOutcome,
}

impl KneeResult {
    fn workers(&self, level: &Level) -> u64 {
        u64::from(level.step.workers) * u64::from(self.nodes)
    }
}

impl Level {
    fn add(&mut self, outcome: &PhaseOutcome) {
        let seconds = outcome.last_done_s().unwrap_or(0.0).max(1e-6);
        self.rates.push(outcome.units as f64 / seconds);
        self.mib.push(outcome.bytes() as f64 / MIB / seconds);
        self.service_p50.extend(outcome.unit.percentile_ms(50.0));
        self.response_p50.extend(outcome.response.percentile_ms(50.0));
        self.service.merge(&outcome.unit);
        self.response.merge(&outcome.response);
        self.lateness.merge(&outcome.lateness);
        self.faults.extend(outcome.faults());
    }

    fn reading(&self) -> KneeReading {
        KneeReading {
            rate: median(&self.rates).unwrap_or(0.0),
            latency: median(&self.service_p50).unwrap_or(0.0),
        }
    }
}

/// What the decision is about.
struct KneeReading {
    rate: f64,
    latency: f64,
}

/// The last step that was worth its workers, among steps with twice as many each; and how many came after it. One that
/// was slow by accident is no knee: none of those after the knee brings more.
fn knee(steps: &[KneeReading]) -> (usize, usize) {
    let Some(first) = steps.first() else { return (0, 0) };
    let is_knee = |at: usize| {
        let (Some(this), Some(later)) = (steps.get(at), steps.get(at + 1..)) else { return false };
        let slower = later.first().is_some_and(|next| next.latency >= first.latency * SLOWER);
        slower || later.iter().all(|step| step.rate < this.rate * GAIN)
    };
    // The last one is, if no other.
    let at = (0..steps.len()).find(|at| is_knee(*at)).unwrap_or(steps.len() - 1);
    (at, steps.len() - 1 - at)
}

/// Steps, then open loops; `run` does one and tells what came of it. First each step is looked at once, to see where it
/// ends; then all are measured, one after the other, again and again.
pub async fn find(
    args: &KneeArgs,
    repetitions: u32,
    nodes: u32,
    budget: &Budget,
    run: impl AsyncFn(KneeStep, &str) -> Result<PhaseOutcome>,
) -> Result<KneeResult> {
    let (mut number, mut workers, step_s) = (0, 1, args.step.as_secs_f64());
    let (mut steps, mut looks): (Vec<Level>, Vec<KneeReading>) = Default::default();
    let last = loop {
        let step = KneeStep { workers, seconds: step_s, number, ..KneeStep::default() };
        let mut look = Level { step, ..Level::default() };
        let seen = run(step, &format!("knee: look at {nodes} x {workers} workers")).await?;
        look.add(&seen);
        number += 1;
        looks.push(look.reading());
        steps.push(Level { step, ..Level::default() });
        let more = workers.saturating_mul(2);
        let most = more > WORKERS_MAX || u64::from(more) * u64::from(nodes) > WORKERS_IN_ALL_MAX;
        if knee(&looks).1 >= PAST || most || !look.faults.is_empty() || budget.is_over() {
            break seen;
        }
        workers = more;
    };
    let mut found = KneeResult { nodes, steps, knee: 0, reached: false, open: Vec::new(), last };
    // All levels, again and again, until the time is over; once in any case.
    let mut all = async |what: &str, levels: &mut [Level], last: &mut PhaseOutcome| {
        let measured = budget.sweep(levels, repetitions, CUT, async |at, level, repetition| {
            let told = format!("{what} {} {}/{repetitions}", at + 1, repetition + 1);
            let outcome = run(KneeStep { number, ..level.step }, &told).await?;
            level.add(&outcome);
            number += 1;
            if matches!(level.step.pace, LoadPace::Closed { .. }) {
                *last = outcome;
            }
            Ok(())
        });
        measured.await
    };
    let in_time = all("knee", &mut found.steps, &mut found.last).await?;
    let readings: Vec<KneeReading> = found.steps.iter().map(Level::reading).collect();
    let (at, past) = knee(&readings);
    (found.knee, found.reached) = (at, past > 0);
    let capacity = readings.get(at).map_or(0.0, |reading| reading.rate);
    if capacity > 0.0 && in_time {
        let level = |percent: &f64| {
            let per_second = (capacity * percent / 100.0).clamp(0.001, 1e6);
            let step = KneeStep {
                workers: workers.saturating_mul(UNDER_WAY).min(WORKERS_MAX),
                pace: LoadPace::Open { per_second, arrivals: args.arrivals },
                seconds: step_s.max((TOUCHES / per_second).min(step_s * STRETCH)),
                number: 0,
            };
            Level { step, percent: *percent, due: per_second, ..Level::default() }
        };
        found.open = args.open_percent.iter().map(level).collect();
        all("open loop", &mut found.open, &mut found.last).await?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(steps: &[(f64, f64)]) -> Vec<KneeReading> {
        steps.iter().map(|(rate, latency)| KneeReading { rate: *rate, latency: *latency }).collect()
    }

    #[test]
    fn the_knee_is_before_the_step_that_brings_little() {
        // 1, 2, 4, 8, 16 workers on something that serves 4 at a time.
        let steps = readings(&[(100.0, 10.0), (200.0, 10.0), (400.0, 10.0), (404.0, 19.8), (404.0, 39.6)]);
        assert_eq!(knee(&steps), (2, 2));
        assert_eq!(knee(&steps[..3]), (2, 0), "it may come yet");
    }

    #[test]
    fn a_step_that_was_slow_by_accident_is_no_knee() {
        let steps = readings(&[(100.0, 10.0), (98.0, 15.0), (390.0, 10.0), (400.0, 19.0), (401.0, 40.0)]);
        assert_eq!(knee(&steps[..2]), (0, 1), "one more is looked at");
        assert_eq!(knee(&steps), (2, 2));
    }

    #[test]
    fn the_knee_is_before_the_step_that_takes_twice_as_long() {
        let steps = readings(&[(100.0, 10.0), (160.0, 12.5), (240.0, 16.7), (340.0, 23.5)]);
        assert_eq!(knee(&steps), (2, 1));
    }

    #[test]
    fn no_steps_and_one_step_have_no_knee() {
        assert_eq!(knee(&[]), (0, 0));
        assert_eq!(knee(&readings(&[(100.0, 10.0)])), (0, 0));
        assert_eq!(knee(&readings(&[(0.0, 0.0), (0.0, 0.0)])).0, 0, "nothing came back");
    }

    #[test]
    fn shares_and_steps_that_are_none_say_what_would_be() {
        assert_eq!(parse_percent("95"), Ok(95.0));
        for wrong in ["0", "-5", "300", "x", "nan"] {
            assert!(parse_percent(wrong).is_err_and(|told| told.contains("50,70,90")), "{wrong}");
        }
        assert!(parse_step("2s").is_ok() && parse_step("10ms").is_err() && parse_step("2h").is_err());
    }
}
