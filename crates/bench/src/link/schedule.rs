//! Which pairs run when: each alone, in each direction, and then all at once; everything again for each repetition, so
//! that a drift falls on all alike.
//!
//! This process and the agents that open pairs are the ranks of a run: rank 0 gives the orders, and each rank carries out what
//! concerns the pairs that it opens. Pairs of this process alone are a run of one rank.

use std::time::{Duration, Instant};

use bench_fleet::{Fleet, Member, RunToken, Seat};
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use types::{Error, ErrorKind, Result};

use super::pair::{MoveTimes, OpenPair, OpenStreams, StreamsPlan, wrong};
use super::stream::micros;
use super::wire::{self, JoinRole, PairLog, STREAMS_MAX, StreamDirection, fleet_options};
use super::{Config, Pair};

pub const PAIRS_MAX: usize = 64;
/// Time for the order to reach all before the streams begin, besides the time that it took to open them.
const LEAD: Duration = Duration::from_millis(300);
/// Time for the streams to drain and the logs to come, on top of the schedule.
const END: Duration = Duration::from_secs(60);

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
pub struct Ran {
    pub pair: Pair,
    pub log: PairLog,
}

/// What rank 0 has all ranks do. Pairs are known by their place in the list that they are opened from.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum RoundOrder {
    /// Who opens each pair, and where it leads.
    Open(Vec<(u32, String)>),
    Prepare {
        pairs: Vec<usize>,
        plan: StreamsPlan,
    },
    Move(MoveTimes),
    End,
}

/// What a rank answers to an order: its pairs' logs after the last one of a round. An error is told in words.
type Carried = std::result::Result<Vec<(usize, PairLog)>, String>;

pub async fn run(config: &Config) -> Result<Vec<Round>> {
    let mut openers: Vec<&String> = config.pairs.iter().filter_map(|pair| pair.from.as_ref()).collect();
    openers.sort();
    openers.dedup();
    let rank_of = |pair: &Pair| {
        let at = pair.from.as_ref().and_then(|from| openers.binary_search(&from).ok());
        at.map_or(0, |at| at as u32 + 1)
    };
    let all = config.pairs.iter().map(|pair| (rank_of(pair), pair.to.clone())).collect();
    let mut run = RankOfRun::new(lead(&openers, config.token.as_deref().unwrap_or_default()).await?);
    run.told(RoundOrder::Open(all)).await?;
    let mut rounds = Vec::new();
    for _ in 0..config.repetitions {
        for at in 0..config.pairs.len() {
            for way in &config.ways {
                rounds.push(round(config, &mut run, vec![at], *way).await?);
            }
        }
        if config.pairs.len() > 1 {
            for way in &config.ways {
                rounds.push(round(config, &mut run, (0..config.pairs.len()).collect(), *way).await?);
            }
        }
    }
    run.told(RoundOrder::End).await?;
    run.member.finish().await?;
    Ok(rounds)
}

async fn lead(openers: &[&String], token: &str) -> Result<Member> {
    if openers.is_empty() {
        return Ok(Fleet::alone());
    }
    let size = u32::try_from(openers.len() + 1).unwrap_or(u32::MAX);
    let mut agents = Vec::new();
    for (rank, name) in (1..).zip(openers) {
        let seat = Seat { rank, size, name: (*name).clone() };
        agents.push(wire::call(name, seat, JoinRole::Opener, RunToken::chosen(token.to_owned())).await?);
    }
    // Who was reached and is not let in has another token, or another build of this program.
    let refused = |e: Error| Error::new(ErrorKind::Config, "link:", e.to_string());
    Fleet::lead(agents, fleet_options()).await.map_err(refused)
}

async fn round(config: &Config, run: &mut RankOfRun, at: Vec<usize>, way: StreamDirection) -> Result<Round> {
    let together = at.len() > 1;
    let streams = if together { config.streams_together() } else { config.streams() };
    let begun = Instant::now();
    let plan = StreamsPlan { streams, way };
    run.told(RoundOrder::Prepare { pairs: at.clone(), plan }).await?;
    // An order needs fewer round trips than what was just done.
    let start = run.member.stamp(Instant::now()).at + LEAD + begun.elapsed();
    let interval = MoveTimes { start, stop: start + config.time };
    let moved = run.told(RoundOrder::Move(interval));
    let late = || Error::new(ErrorKind::Unavailable, "run", "the link test: it does not end");
    let time = LEAD + begun.elapsed() + config.time + END;
    let mut logs = tokio::time::timeout(time, moved).await.map_err(|_| late())??;
    logs.sort_by_key(|(at, _)| *at);
    let ran = |(at, log): (usize, PairLog)| Some(Ran { pair: config.pairs.get(at)?.clone(), log });
    let pairs: Vec<Ran> = logs.into_iter().filter_map(ran).collect();
    let (start_us, stop_us) = (micros(interval.start), micros(interval.stop));
    Ok(Round { way, streams, together, start_us, stop_us, pairs })
}

/// An agent that opens pairs for whoever leads the run, until that ends it.
pub async fn follow(member: Member) -> Result<()> {
    let mut run = RankOfRun::new(member);
    loop {
        let order = run.member.broadcast(None).await?;
        let is_end = matches!(order, RoundOrder::End);
        let carried = run.carry_out(order).await;
        run.member.gather(&carried).await?;
        if is_end {
            return run.member.finish().await;
        }
    }
}

/// This process as a rank of the run: the pairs that it opens.
struct RankOfRun {
    member: Member,
    /// By their place in the list of all.
    pairs: Vec<(usize, OpenPair)>,
    /// Of the round that is prepared, in the same order.
    open: Vec<(usize, OpenStreams)>,
}

impl RankOfRun {
    fn new(member: Member) -> RankOfRun {
        RankOfRun { member, pairs: Vec::new(), open: Vec::new() }
    }

    /// On rank 0: all ranks carry it out, and what they tell comes back.
    async fn told(&mut self, given: RoundOrder) -> Result<Vec<(usize, PairLog)>> {
        self.member.broadcast(Some(&given)).await?;
        let carried = self.carry_out(given).await;
        let all = self.member.gather(&carried).await?;
        let told: std::result::Result<Vec<_>, String> = all.into_iter().collect();
        told.map(|logs| logs.into_iter().flatten().collect())
            .map_err(|why| Error::new(ErrorKind::Unavailable, "link:", why))
    }

    async fn carry_out(&mut self, order: RoundOrder) -> Carried {
        Box::pin(self.try_carry_out(order)).await.map_err(|e| e.to_string())
    }

    async fn try_carry_out(&mut self, order: RoundOrder) -> Result<Vec<(usize, PairLog)>> {
        match order {
            RoundOrder::Open(all) => {
                if all.len() > PAIRS_MAX {
                    return wrong("so many pairs are not allowed");
                }
                let rank = self.member.rank();
                for (at, (_, to)) in all.iter().enumerate().filter(|(_, (opener, _))| *opener == rank) {
                    self.pairs.push((at, OpenPair::open(to).await?));
                }
            }
            RoundOrder::Prepare { pairs, plan } => {
                if !(1..=STREAMS_MAX).contains(&plan.streams) {
                    return wrong("so many streams are not allowed");
                }
                self.open.clear();
                for (at, pair) in self.pairs.iter_mut().filter(|(at, _)| pairs.contains(at)) {
                    self.open.push((*at, pair.prepare(plan).await?));
                }
            }
            RoundOrder::Move(interval) => {
                let times = interval.here(&self.member)?;
                let member = &self.member;
                let mut open = std::mem::take(&mut self.open).into_iter().peekable();
                let mut moving = Vec::new();
                for (at, pair) in &mut self.pairs {
                    if let Some((at, streams)) = open.next_if(|(prepared, _)| prepared == at) {
                        moving.push(async move { Ok((at, pair.carry(streams, member, times).await?)) });
                    }
                }
                // All at the same time. Those that move data are tasks already; here is only waiting.
                return join_all(moving).await.into_iter().collect();
            }
            RoundOrder::End => {
                for (_, pair) in self.pairs.drain(..) {
                    pair.end().await?;
                }
            }
        }
        Ok(Vec::new())
    }
}
