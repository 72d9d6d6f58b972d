//! Which pairs run when: each alone, in each direction, and then all at once; everything again for each repetition, so
//! that a drift falls on all alike.

use std::time::Duration;

use bench_fleet::ClockOffset;
use types::{Error, ErrorKind, Result};

use super::clock::Epoch;
use super::pair::{self, Echo, moved};
use super::wire::{Answer, PairLog, PairPlan, Question, RunQuestion, StreamDirection, ask, confused};
use super::{Config, Pair};

pub const PAIRS_MAX: usize = 64;
/// Before the streams begin: for comparing clocks and opening connections, in time and in round trips.
const LEAD: Duration = Duration::from_millis(300);
const LEAD_ROUND_TRIPS: u32 = 48;
/// For the streams to drain and the logs to come, on top of the schedule.
const END: Duration = Duration::from_secs(60);

/// Pairs that ran at the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    pub way: StreamDirection,
    pub streams: u32,
    /// All pairs at once; otherwise there is one.
    pub together: bool,
    /// By our clock, microseconds.
    pub start_us: u64,
    pub stop_us: u64,
    pub pairs: Vec<Ran>,
}

/// A pair, and its log by our clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    pub pair: Pair,
    pub log: PairLog,
}

/// All that is needed to start a pair.
struct Starter<'a> {
    pair: &'a Pair,
    /// The clock of the agent that opens the connections; zero if it is ours.
    offset: ClockOffset,
    round_trip: Duration,
}

pub async fn run(config: &Config) -> Result<Vec<Round>> {
    let epoch = Epoch::new();
    let mut starters = Vec::new();
    for pair in &config.pairs {
        starters.push(Starter::new(pair, epoch).await?);
    }
    let mut rounds = Vec::new();
    for _ in 0..config.repetitions {
        for starter in &starters {
            for way in &config.ways {
                rounds.push(round(config, std::slice::from_ref(starter), *way, config.streams, epoch).await?);
            }
        }
        if starters.len() > 1 {
            for way in &config.ways {
                let together = round(config, &starters, *way, config.streams_together, epoch).await?;
                rounds.push(Round { together: true, ..together });
            }
        }
    }
    Ok(rounds)
}

impl<'a> Starter<'a> {
    async fn new(pair: &'a Pair, epoch: Epoch) -> Result<Starter<'a>> {
        let mut echo = Echo::open(pair.from.as_deref().unwrap_or(&pair.to), epoch).await?;
        let (offset, round_trips) = echo.compare().await?;
        let round_trip = Duration::from_micros(round_trips.into_iter().max().unwrap_or_default());
        let offset = if pair.from.is_some() { offset } else { ClockOffset::default() };
        Ok(Starter { pair, offset, round_trip })
    }

    /// By our clock.
    async fn run(&self, plan: PairPlan, token: &str, epoch: Epoch, time: Duration) -> Result<PairLog> {
        let Some(from) = &self.pair.from else {
            return pair::run(&self.pair.to, plan, epoch).await;
        };
        let plan = PairPlan {
            start_us: self.offset.to_theirs(plan.start_us),
            stop_us: self.offset.to_theirs(plan.stop_us),
            ..plan
        };
        let question = RunQuestion { token: token.to_owned(), to: self.pair.to.clone(), plan };
        let log = match ask(from, &Question::Run(question), time).await? {
            (_, Answer::Pair(log)) => log,
            _ => return Err(confused(from)),
        };
        Ok(PairLog {
            sent: log.sent.into_iter().map(|l| moved(l, self.offset)).collect(),
            received: log.received.into_iter().map(|l| moved(l, self.offset)).collect(),
            clock_error_us: log.clock_error_us.saturating_add(self.offset.error),
            ..log
        })
    }
}

async fn round(
    config: &Config,
    starters: &[Starter<'_>],
    way: StreamDirection,
    streams: u32,
    epoch: Epoch,
) -> Result<Round> {
    let farthest = starters.iter().map(|s| s.round_trip).max().unwrap_or_default();
    let lead = LEAD + farthest * LEAD_ROUND_TRIPS;
    let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let start_us = epoch.now_us().saturating_add(us(lead));
    let stop_us = start_us.saturating_add(us(config.time));
    let plan = PairPlan { streams, way, start_us, stop_us };
    let time = lead + config.time + END;
    let token = config.token.as_deref().unwrap_or_default();
    let runs = starters.iter().map(|starter| starter.run(plan, token, epoch, time));
    let all = tokio::time::timeout(time, join_all(runs));
    let late = || Error::new(ErrorKind::Unavailable, "run", "the link test: it does not end");
    let logs = all.await.map_err(|_| late())?;
    let mut pairs = Vec::new();
    for (starter, log) in starters.iter().zip(logs) {
        let failed = |e: Error| Error::new(e.kind(), "link:", format!("{}: {e}", starter.pair));
        pairs.push(Ran { pair: starter.pair.clone(), log: log.map_err(failed)? });
    }
    Ok(Round { way, streams, together: false, start_us, stop_us, pairs })
}

/// All at the same time, in their order. Those that move data are tasks already; here is only waiting.
async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut all = true;
        for (future, output) in &mut waiting {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => *output = Some(value),
                    std::task::Poll::Pending => all = false,
                }
            }
        }
        if all { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    waiting.into_iter().filter_map(|(_, output)| output).collect()
}
