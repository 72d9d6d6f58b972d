//! What a connection to a link agent begins with: one question and its answer, in frames as ranks of a run have them. Then it
//! is an echo of single bytes, a stream of data, or the connection of a rank (crate `bench-fleet`).

use std::io;
use std::time::Duration;

use bench_fleet::frame::{read_message, write_message};
use bench_fleet::{CalledAgent, FleetOptions, RunToken, Seat};
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use types::{Error, ErrorKind, Result};

pub const STREAMS_MAX: u32 = 128;
pub const TIME_MIN: Duration = Duration::from_millis(200);
pub const TIME_MAX: Duration = Duration::from_secs(3600);
/// A schedule may begin so much later than now.
pub const LEAD_MAX: Duration = Duration::from_secs(120);
const MESSAGE_MAX: usize = 4 << 10;
/// The longest wait for a question that has been begun, for its answer, and for the handshake of a run.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// The direction of a stream, seen from the side that opens the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamDirection {
    Up,
    Down,
}

impl StreamDirection {
    pub fn reversed(self) -> StreamDirection {
        match self {
            StreamDirection::Up => StreamDirection::Down,
            StreamDirection::Down => StreamDirection::Up,
        }
    }
}

/// What a connection to an agent is for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    Echo,
    /// One stream of a test that the agent has been told of as a rank of a pair's run.
    Stream {
        session: u64,
        stream: u32,
    },
    /// The agent becomes a rank of a run of the fleet: the handshake follows on this connection.
    Join {
        seat: Seat,
        role: JoinRole,
    },
}

/// What a called agent does in the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinRole {
    /// It is the other end of a pair that the caller has opened.
    OtherEnd,
    /// It opens pairs of its own, that is sends to others: for those who know its token.
    Opener,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkAnswer {
    /// The connection is what was asked for from here on.
    Ready,
    Refused {
        why: String,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamLog {
    pub stream: u32,
    /// First and last byte, microseconds; [`StreamLog::by`] says of which clock. Equal if nothing moved.
    pub start_us: u64,
    pub end_us: u64,
    pub bytes: u64,
    /// (microseconds, bytes since the start), in order.
    pub progress: Vec<(u64, u64)>,
    /// Segments sent again, if it can be told; senders only.
    pub retransmits: Option<u64>,
}

/// Both ends of all streams of a pair, by one clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PairLog {
    pub sent: Vec<StreamLog>,
    pub received: Vec<StreamLog>,
    /// Round trips of one byte on a connection of its own before and during the run, microseconds.
    pub idle_us: Vec<u64>,
    pub loaded_us: Vec<u64>,
    /// How wrong the times of the other end can be.
    pub clock_error_us: u64,
}

impl StreamLog {
    pub fn by(mut self, clock: impl Fn(u64) -> u64) -> StreamLog {
        self.start_us = clock(self.start_us);
        self.end_us = clock(self.end_us);
        self.progress.iter_mut().for_each(|(at, _)| *at = clock(*at));
        self
    }
}

/// The options of the runs that this test is made of. The load shares the line with their heartbeats, which then wait in
/// its queues: so a rank may be silent for long.
pub fn fleet_options() -> FleetOptions {
    FleetOptions {
        join_deadline: PATIENCE,
        silence_max: Duration::from_secs(60),
        catch_terminate: false,
        ..FleetOptions::default()
    }
}

/// The token of a pair's run, which is no secret: everybody may measure against an agent.
pub fn open_token() -> RunToken {
    RunToken::chosen("forebay bench link".to_owned())
}

/// Connects to the agent at `place` and has it join a run; `token` is what it is to know.
pub async fn call(place: &str, seat: Seat, role: JoinRole, token: RunToken) -> Result<CalledAgent> {
    let stream = ask(place, &Question::Join { seat, role }).await?;
    Ok(CalledAgent { name: place.to_owned(), stream, token })
}

/// Says that the listener may be no agent, if its answer was none.
pub fn unavailable(operation: &'static str, place: &str, error: io::Error) -> Error {
    if error.kind() != io::ErrorKind::InvalidData {
        return Error::new(ErrorKind::Unavailable, operation, place).with_source(error);
    }
    let why = format!("this is no link agent (wrong port?): {error}");
    Error::new(ErrorKind::Corrupt, operation, place).with_source(io::Error::new(error.kind(), why))
}

async fn patiently<T>(what: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(PATIENCE, what).await.unwrap_or_else(|e| Err(e.into()))
}

pub async fn read_question(stream: &mut TcpStream) -> io::Result<Question> {
    patiently(read_message(stream, MESSAGE_MAX)).await
}

pub async fn write_answer(stream: &mut TcpStream, answer: &LinkAnswer) -> io::Result<()> {
    patiently(write_message(stream, answer)).await
}

/// Connects and asks; the connection is then what was asked for.
pub async fn ask(place: &str, question: &Question) -> Result<TcpStream> {
    let talk = async {
        let mut stream = TcpStream::connect(place).await?;
        stream.set_nodelay(true)?;
        write_message(&mut stream, question).await?;
        let answer = read_message(&mut stream, MESSAGE_MAX).await?;
        Ok((stream, answer))
    };
    match patiently(talk).await.map_err(|e| unavailable("ask the link agent at", place, e))? {
        (stream, LinkAnswer::Ready) => Ok(stream),
        (_, LinkAnswer::Refused { why }) => {
            Err(Error::new(ErrorKind::Config, "link:", format!("{place} refuses: {why}")))
        }
    }
}
