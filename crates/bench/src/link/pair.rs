//! One pair: the clocks are compared, all streams are opened, and then they run by the schedule while single bytes on a
//! connection of their own tell how long the line has become.

use std::hash::{BuildHasher, Hasher};
use std::io;
use std::time::{Duration, Instant};

use bench_fleet::{ClockOffset, Exchange};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use types::{Error, ErrorKind, Result};

use super::clock::Epoch;
use super::stream;
use super::wire::{
    Answer, PATIENCE, PairLog, PairPlan, Question, StreamDirection, StreamLog, StreamQuestion, ask, confused,
    unavailable,
};

/// Bytes that the clocks are compared with, and the idle round trip is taken from.
const EXCHANGES: usize = 16;
/// Between two bytes on a loaded line.
const PING_EVERY: Duration = Duration::from_millis(20);
/// One byte's way there and back.
const PING: Duration = Duration::from_secs(20);
/// Pings that are kept: those of ten minutes and more are thinned by their number.
const PINGS_MAX: usize = 30_000;

/// A connection that answers each byte with the time there.
pub struct Echo {
    stream: TcpStream,
    place: String,
    epoch: Epoch,
}

impl Echo {
    pub async fn open(place: &str, epoch: Epoch) -> Result<Echo> {
        match ask(place, &Question::Echo, PATIENCE).await? {
            (stream, Answer::Ready) => Ok(Echo { stream, place: place.to_owned(), epoch }),
            _ => Err(confused(place)),
        }
    }

    pub async fn exchange(&mut self) -> Result<Exchange> {
        let sent = self.epoch.now_us();
        let talk = async {
            self.stream.write_all(&[0]).await?;
            self.stream.read_u64().await
        };
        let theirs = tokio::time::timeout(PING, talk).await.unwrap_or_else(|e| Err(io::Error::from(e)));
        let theirs = theirs.map_err(|e| unavailable("ping the link agent at", &self.place, e))?;
        Ok(Exchange { sent, received: theirs, answered: theirs, arrived: self.epoch.now_us() })
    }

    /// The other clock, and idle round trips in microseconds.
    pub async fn compare(&mut self) -> Result<(ClockOffset, Vec<u64>)> {
        let mut exchanges = Vec::with_capacity(EXCHANGES);
        for _ in 0..EXCHANGES {
            exchanges.push(self.exchange().await?);
        }
        let offset = ClockOffset::of(&exchanges).unwrap_or_default();
        Ok((offset, exchanges.iter().map(Exchange::round_trip).collect()))
    }
}

/// Runs the plan from here to the agent at `place`; all times in the log are by our clock.
pub async fn run(place: &str, plan: PairPlan, epoch: Epoch) -> Result<PairLog> {
    let mut echo = Echo::open(place, epoch).await?;
    let (offset, idle_us) = echo.compare().await?;
    let session = std::collections::hash_map::RandomState::new().build_hasher().finish();
    let mut opening = JoinSet::new();
    for number in 0..plan.streams {
        let question = StreamQuestion {
            session,
            stream: number,
            way: plan.way,
            start_us: offset.to_theirs(plan.start_us),
            stop_us: offset.to_theirs(plan.stop_us),
        };
        let place = place.to_owned();
        opening.spawn(async move {
            match ask(&place, &Question::Stream(question), PATIENCE).await? {
                (stream, Answer::Ready) => Ok((number, stream)),
                _ => Err(confused(&place)),
            }
        });
    }
    let mut streams = Vec::new();
    while let Some(opened) = opening.join_next().await {
        streams.push(joined(opened)?);
    }
    let (start, stop) = (epoch.at(plan.start_us), epoch.at(plan.stop_us));
    let moving = move_all(streams, plan.way, epoch, start, stop);
    let (ours, loaded_us) = tokio::join!(moving, ping(&mut echo, start, stop));
    let theirs = fetch(place, session, offset).await?;
    let (sent, received) = match plan.way {
        StreamDirection::Up => (ours?, theirs),
        StreamDirection::Down => (theirs, ours?),
    };
    Ok(PairLog { sent, received, idle_us, loaded_us: loaded_us?, clock_error_us: offset.error })
}

fn joined<T>(ended: std::result::Result<Result<T>, tokio::task::JoinError>) -> Result<T> {
    ended.unwrap_or_else(|e| Err(Error::new(ErrorKind::Io, "run", "a stream").with_source(e)))
}

/// Each stream is a task of its own, so that they run on all threads there are.
async fn move_all(
    streams: Vec<(u32, TcpStream)>,
    way: StreamDirection,
    epoch: Epoch,
    start: Instant,
    stop: Instant,
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
    let mut logs = Vec::new();
    while let Some(ended) = moving.join_next().await {
        logs.push(joined(ended)?);
    }
    logs.sort_by_key(|log| log.stream);
    Ok(logs)
}

/// Round trips from the start to the stop, in microseconds.
async fn ping(echo: &mut Echo, start: Instant, stop: Instant) -> Result<Vec<u64>> {
    let whole = stop.saturating_duration_since(start);
    let every = PING_EVERY.max(whole / u32::try_from(PINGS_MAX).unwrap_or(u32::MAX));
    tokio::time::sleep_until(start.into()).await;
    let mut round_trips = Vec::new();
    let mut next = start;
    while Instant::now() < stop {
        round_trips.push(echo.exchange().await?.round_trip());
        next = (next + every).max(Instant::now());
        tokio::time::sleep_until(next.min(stop).into()).await;
    }
    Ok(round_trips)
}

/// What the other end has done, by our clock.
async fn fetch(place: &str, session: u64, offset: ClockOffset) -> Result<Vec<StreamLog>> {
    let logs = match ask(place, &Question::Logs { session }, PATIENCE * 2).await? {
        (_, Answer::Logs(logs)) => logs,
        _ => return Err(confused(place)),
    };
    Ok(logs.into_iter().map(|log| moved(log, offset)).collect())
}

/// A log by our clock.
pub fn moved(mut log: StreamLog, offset: ClockOffset) -> StreamLog {
    log.start_us = offset.to_ours(log.start_us);
    log.end_us = offset.to_ours(log.end_us);
    log.progress.iter_mut().for_each(|(at, _)| *at = offset.to_ours(*at));
    log
}
