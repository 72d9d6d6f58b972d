//! What link agents say to each other. Each connection begins with one question, in a frame as ranks of a run have them; so do
//! answers. An echo connection then carries single bytes, each answered with the agent's clock; a stream carries data.

use std::io;
use std::time::Duration;

use bench_fleet::frame::{read_message, write_message};
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use types::{Error, ErrorKind, Result};

/// Streams of one pair.
pub const STREAMS_MAX: u32 = 128;
pub const TIME_MIN: Duration = Duration::from_millis(200);
pub const TIME_MAX: Duration = Duration::from_secs(3600);
/// A schedule may begin so much later than now.
pub const LEAD_MAX: Duration = Duration::from_secs(120);
/// A question; and an answer, which has the samples of all streams.
const QUESTION_MAX: usize = 64 << 10;
const ANSWER_MAX: usize = 32 << 20;
/// For a question that has been begun, and for an answer that is there to be sent.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// Seen from who opens the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamDirection {
    /// The opener sends.
    Up,
    /// The opener receives.
    Down,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    Echo,
    Stream(StreamQuestion),
    /// What the streams of this session have done; asked when they have ended.
    Logs {
        session: u64,
    },
    /// Run a pair from there.
    Run(RunQuestion),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StreamQuestion {
    pub session: u64,
    pub stream: u32,
    pub way: StreamDirection,
    /// By the clock of the agent that is asked, microseconds.
    pub start_us: u64,
    pub stop_us: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunQuestion {
    pub token: String,
    pub to: String,
    pub plan: PairPlan,
}

/// What one pair does.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct PairPlan {
    pub streams: u32,
    pub way: StreamDirection,
    /// By the clock of who runs it, microseconds.
    pub start_us: u64,
    pub stop_us: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The connection is what was asked for from here on.
    Ready,
    Logs(Vec<StreamLog>),
    Pair(PairLog),
    Refused {
        why: String,
    },
}

/// One end of one stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamLog {
    pub stream: u32,
    /// First and last byte, microseconds by the clock of the log's owner. Equal if nothing moved.
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

pub fn unavailable(operation: &'static str, place: &str, error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::InvalidData => ErrorKind::Corrupt,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, operation, place).with_source(error)
}

async fn patiently<T>(time: Duration, what: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(time, what).await.unwrap_or_else(|e| Err(e.into()))
}

pub async fn read_question(stream: &mut TcpStream) -> io::Result<Question> {
    patiently(PATIENCE, read_message(stream, QUESTION_MAX)).await
}

pub async fn write_answer(stream: &mut TcpStream, answer: &Answer) -> io::Result<()> {
    patiently(PATIENCE, write_message(stream, answer)).await
}

/// Connects and asks; the answer comes within `time`.
pub async fn ask(place: &str, question: &Question, time: Duration) -> Result<(TcpStream, Answer)> {
    let talk = async {
        let mut stream = TcpStream::connect(place).await?;
        stream.set_nodelay(true)?;
        write_message(&mut stream, question).await?;
        let answer = read_message(&mut stream, ANSWER_MAX).await?;
        Ok((stream, answer))
    };
    let (stream, answer) =
        patiently(time, talk).await.map_err(|e| unavailable("ask the link agent at", place, explained(e)))?;
    match answer {
        Answer::Refused { why } => {
            Err(Error::new(ErrorKind::Config, "link:", format!("{place} refuses: {why}")))
        }
        answer => Ok((stream, answer)),
    }
}

/// Who listens there may be no agent.
fn explained(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::InvalidData => {
            io::Error::new(error.kind(), format!("this is no link agent (wrong port?): {error}"))
        }
        _ => error,
    }
}

/// The agent answered something else than what was asked.
pub fn confused(place: &str) -> Error {
    let why = io::Error::new(io::ErrorKind::InvalidData, "it answers another question");
    unavailable("ask the link agent at", place, why)
}
