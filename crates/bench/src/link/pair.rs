//! One pair is a run of two ranks of the fleet: the opener leads, the agent at the other end follows. Each test has the same
//! steps: the other end waits for the streams, the opener opens them, both move data between two times of the run's clock, and
//! the opener gathers what they saw. Meanwhile single bytes on a connection of their own tell how long the line has become.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bench_fleet::{Fleet, Member, Seat};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use types::{Error, ErrorKind, Result};

use super::stream::{self, micros};
use super::wire::{
    self, JoinRole, LEAD_MAX, PairLog, Question, STREAMS_MAX, StreamDirection, StreamLog, TIME_MAX, ask,
    fleet_options, open_token, unavailable,
};

/// Bytes that the idle round trip is taken from.
const IDLE_PINGS: usize = 16;
/// Between two bytes on a loaded line.
const PING_EVERY: Duration = Duration::from_millis(20);
const PING: Duration = Duration::from_secs(20);
/// Pings that are kept: those of ten minutes and more are thinned by their number.
const PINGS_MAX: usize = 30_000;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamsPlan {
    pub streams: u32,
    pub way: StreamDirection,
}

/// The start and the stop of a test, in the time of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoveTimes {
    pub start: Duration,
    pub stop: Duration,
}

impl MoveTimes {
    /// By the clock of this process; a schedule begins soon and does not last for ever.
    pub fn here(&self, member: &Member) -> Result<(Instant, Instant)> {
        let start = member.instant(self.start);
        let time = self.stop.saturating_sub(self.start);
        if start.saturating_duration_since(Instant::now()) > LEAD_MAX || time.is_zero() || time > TIME_MAX {
            return wrong(format!("a test begins within {LEAD_MAX:?} and takes {TIME_MAX:?} at most"));
        }
        Ok((start, start + time))
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum PairOrder {
    /// Wait for streams with this number of their test.
    Expect {
        session: u64,
        plan: StreamsPlan,
    },
    Move(MoveTimes),
    End,
}

/// What the other end has seen, by the clock of the run, and how wrong that can be.
#[derive(Debug, Default, Serialize, Deserialize)]
struct OtherEnd {
    logs: Vec<StreamLog>,
    clock_error_us: u64,
}

pub fn wrong<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::new(ErrorKind::Config, "link:", what.into()))
}

/// The opener's end of a pair.
pub struct OpenPair {
    to: String,
    member: Member,
    echo: TcpStream,
    /// Of logs.
    epoch: Instant,
}

/// A test whose streams are open and idle.
pub struct OpenStreams {
    way: StreamDirection,
    streams: Vec<(u32, TcpStream)>,
    idle_us: Vec<u64>,
}

impl OpenPair {
    pub async fn open(to: &str) -> Result<OpenPair> {
        let seat = Seat { rank: 1, size: 2, name: to.to_owned() };
        let agent = wire::call(to, seat, JoinRole::OtherEnd, open_token()).await?;
        let member = Fleet::lead(vec![agent], fleet_options()).await?;
        let echo = ask(to, &Question::Echo).await?;
        Ok(OpenPair { to: to.to_owned(), member, echo, epoch: Instant::now() })
    }

    pub async fn prepare(&mut self, plan: StreamsPlan) -> Result<OpenStreams> {
        let [a, b, c, d, e, f, g, h, ..] = bench_fleet::random_bytes()?;
        let session = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        self.member.broadcast(Some(&PairOrder::Expect { session, plan })).await?;
        self.member.barrier("the other end waits for streams").await?;
        let mut opening = JoinSet::new();
        for number in 0..plan.streams {
            let to = self.to.clone();
            opening.spawn(async move {
                Ok((number, ask(&to, &Question::Stream { session, stream: number }).await?))
            });
        }
        let streams = all_of(opening).await?;
        let mut idle_us = Vec::with_capacity(IDLE_PINGS);
        for _ in 0..IDLE_PINGS {
            idle_us.push(self.ping().await?);
        }
        Ok(OpenStreams { way: plan.way, streams, idle_us })
    }

    /// The log's times are by the clock of `outer`, of which this process is a rank too.
    pub async fn carry(
        &mut self,
        open: OpenStreams,
        outer: &Member,
        (start, stop): (Instant, Instant),
    ) -> Result<PairLog> {
        let interval = MoveTimes { start: self.member.stamp(start).at, stop: self.member.stamp(stop).at };
        self.member.broadcast(Some(&PairOrder::Move(interval))).await?;
        let moving = move_all(open.streams, open.way, self.epoch, (start, stop));
        let (ours, loaded_us) = tokio::join!(moving, self.pings(start, stop));
        let mut ends = self.member.gather(&OtherEnd::default()).await?;
        let Some(theirs) = ends.pop().filter(|_| ends.len() == 1) else {
            return Err(Error::new(ErrorKind::Io, "gather", "the logs of a pair did not come"));
        };
        let by_outer = |at: Instant| micros(outer.stamp(at).at);
        let ours = ours?.into_iter().map(|log| log.by(|us| by_outer(self.epoch + Duration::from_micros(us))));
        let of_run = |us| by_outer(self.member.instant(Duration::from_micros(us)));
        let clock_error_us = theirs.clock_error_us.saturating_add(micros(outer.stamp(stop).error_bound));
        let theirs = theirs.logs.into_iter().map(|log| log.by(of_run));
        let (sent, received) = match open.way {
            StreamDirection::Up => (ours.collect(), theirs.collect()),
            StreamDirection::Down => (theirs.collect(), ours.collect()),
        };
        Ok(PairLog { sent, received, idle_us: open.idle_us, loaded_us: loaded_us?, clock_error_us })
    }

    pub async fn end(self) -> Result<()> {
        self.member.broadcast(Some(&PairOrder::End)).await?;
        self.member.finish().await
    }

    /// Microseconds that one byte takes there and back.
    async fn ping(&mut self) -> Result<u64> {
        let sent = Instant::now();
        let talk = async {
            self.echo.write_all(&[0]).await?;
            self.echo.read_u8().await
        };
        let back = tokio::time::timeout(PING, talk).await.unwrap_or_else(|e| Err(io::Error::from(e)));
        back.map_err(|e| unavailable("ping the link agent at", &self.to, e))?;
        Ok(micros(sent.elapsed()))
    }

    /// Round trips from the start to the stop, in microseconds.
    async fn pings(&mut self, start: Instant, stop: Instant) -> Result<Vec<u64>> {
        let whole = stop.saturating_duration_since(start);
        let every = PING_EVERY.max(whole / u32::try_from(PINGS_MAX).unwrap_or(u32::MAX));
        tokio::time::sleep_until(start.into()).await;
        let mut round_trips = Vec::new();
        let mut next = start;
        while Instant::now() < stop {
            round_trips.push(self.ping().await?);
            next = (next + every).max(Instant::now());
            tokio::time::sleep_until(next.min(stop).into()).await;
        }
        Ok(round_trips)
    }
}

type ArrivingStreams = mpsc::Sender<(u32, TcpStream)>;

/// The tests whose streams this agent waits for.
#[derive(Default)]
pub struct Sessions(Mutex<BTreeMap<u64, ArrivingStreams>>);

/// A test whose streams are let in; they are refused again when this is dropped.
pub struct Session<'a> {
    sessions: &'a Sessions,
    id: u64,
    pub arrived: mpsc::Receiver<(u32, TcpStream)>,
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, ArrivingStreams>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a stream of that test goes, if it is expected and there is room for one more.
    pub fn place_in(&self, id: u64) -> Option<mpsc::OwnedPermit<(u32, TcpStream)>> {
        self.lock().get(&id).and_then(|arriving| arriving.clone().try_reserve_owned().ok())
    }

    pub fn open(&self, id: u64, streams: usize) -> Session<'_> {
        let (sender, arrived) = mpsc::channel(streams.max(1));
        self.lock().insert(id, sender);
        Session { sessions: self, id, arrived }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.sessions.lock().remove(&self.id);
    }
}

/// The other end of a pair, until its opener ends it.
pub async fn follow(member: Member, sessions: &Sessions) -> Result<()> {
    let epoch = Instant::now();
    loop {
        let (session, plan) = match member.broadcast(None).await? {
            PairOrder::Expect { session, plan } => (session, plan),
            PairOrder::Move(_) => return wrong("no streams were announced"),
            PairOrder::End => return member.finish().await,
        };
        if !(1..=STREAMS_MAX).contains(&plan.streams) {
            return wrong("so many streams are not allowed");
        }
        let mut session = sessions.open(session, plan.streams as usize);
        member.barrier("the other end waits for streams").await?;
        let PairOrder::Move(interval) = member.broadcast(None).await? else {
            return wrong("streams were announced, and not used");
        };
        let (start, stop) = interval.here(&member)?;
        let mut streams = Vec::new();
        while streams.len() < plan.streams as usize {
            match tokio::time::timeout_at(start.into(), session.arrived.recv()).await {
                Ok(Some(stream)) => streams.push(stream),
                // Those that are here begin in time; the logs tell how many there were.
                Ok(None) | Err(_) => break,
            }
        }
        drop(session);
        let logs = move_all(streams, plan.way.reversed(), epoch, (start, stop)).await?;
        let of_run = |us| micros(member.stamp(epoch + Duration::from_micros(us)).at);
        let logs = logs.into_iter().map(|log| log.by(of_run)).collect();
        let clock_error_us = micros(member.stamp(stop).error_bound);
        member.gather(&OtherEnd { logs, clock_error_us }).await?;
    }
}

/// What all of these tasks come to, in the order in which they end. The first error ends the others.
pub async fn all_of<T: 'static>(mut tasks: JoinSet<Result<T>>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        all.push(ended.unwrap_or_else(|e| Err(Error::new(ErrorKind::Io, "run", "a stream").with_source(e)))?);
    }
    Ok(all)
}

/// Each stream is a task of its own, so that they run on all threads there are. `Up` is to send.
async fn move_all(
    streams: Vec<(u32, TcpStream)>,
    way: StreamDirection,
    epoch: Instant,
    (start, stop): (Instant, Instant),
) -> Result<Vec<StreamLog>> {
    let mut moving = JoinSet::new();
    for (number, socket) in streams {
        moving.spawn(async move {
            Ok(match way {
                StreamDirection::Up => stream::send(&socket, epoch, number, start, stop).await,
                StreamDirection::Down => stream::receive(&socket, epoch, number, stop).await,
            })
        });
    }
    let mut logs = all_of(moving).await?;
    logs.sort_by_key(|log| log.stream);
    Ok(logs)
}
