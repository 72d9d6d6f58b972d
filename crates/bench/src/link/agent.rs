//! The other end: `forebay bench link server`. It answers questions, one connection each, and keeps the logs of streams
//! until somebody asks for them.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tracing::debug;
use types::{Error, Result};

use super::clock::Epoch;
use super::wire::{
    Answer, LEAD_MAX, PATIENCE, Question, RunQuestion, StreamDirection, StreamLog, StreamQuestion, TIME_MAX,
};
use super::{pair, stream, wire};

/// Sessions whose logs nobody has asked for are kept up to this number, the oldest go first.
const SESSIONS_MAX: usize = 64;
/// An echo connection on which nothing happens is closed.
const ECHO_IDLE: Duration = Duration::from_secs(120);

#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Connections at once; more wait. Default 1024.
    pub connections_max: usize,
    /// Who knows it may have this agent run pairs of its own, that is send to others. Default: nobody may.
    pub token: Option<String>,
}

impl Default for AgentConfig {
    fn default() -> AgentConfig {
        AgentConfig { connections_max: 1024, token: None }
    }
}

/// Runs until it is dropped; its connections end with it.
pub struct Agent {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Agent {
    pub async fn bind(listen: SocketAddr, config: AgentConfig) -> Result<Agent> {
        let failed = |e| Error::io("listen for link tests on", listen, e);
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let state =
            Arc::new(State { config, epoch: Epoch::new(), sessions: Mutex::default(), ended: Notify::new() });
        Ok(Agent { address, task: tokio::spawn(accept(listener, state)) })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct State {
    config: AgentConfig,
    epoch: Epoch,
    sessions: Mutex<BTreeMap<u64, Session>>,
    /// A stream has left its log.
    ended: Notify,
}

struct Session {
    since: Instant,
    running: usize,
    logs: Vec<StreamLog>,
}

impl State {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, session: u64) {
        let mut sessions = self.lock();
        if sessions.len() >= SESSIONS_MAX && !sessions.contains_key(&session) {
            let oldest = sessions.iter().min_by_key(|(_, session)| session.since).map(|(id, _)| *id);
            oldest.and_then(|id| sessions.remove(&id));
        }
        let begun = || Session { since: Instant::now(), running: 0, logs: Vec::new() };
        sessions.entry(session).or_insert_with(begun).running += 1;
    }

    fn end(&self, session: u64, log: Option<StreamLog>) {
        if let Some(session) = self.lock().get_mut(&session) {
            session.running = session.running.saturating_sub(1);
            session.logs.extend(log);
        }
        self.ended.notify_waiters();
    }

    /// `None` while streams of the session are still running.
    fn take(&self, session: u64) -> Option<Vec<StreamLog>> {
        let mut sessions = self.lock();
        match sessions.get(&session) {
            Some(found) if found.running > 0 => None,
            _ => Some(sessions.remove(&session).map(|found| found.logs).unwrap_or_default()),
        }
    }
}

/// Counts a stream as running, however it ends.
struct Running<'a> {
    state: &'a State,
    session: u64,
    log: Option<StreamLog>,
}

impl<'a> Running<'a> {
    fn begin(state: &'a State, session: u64) -> Running<'a> {
        state.begin(session);
        Running { state, session, log: None }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.state.end(self.session, self.log.take());
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    let room = Arc::new(Semaphore::new(state.config.connections_max.max(1)));
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(e) => {
                debug!("accept: {e}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let _permit = permit;
            if let Err(e) = serve(stream, &state).await {
                debug!(%peer, "link test: {e}");
            }
        });
    }
}

async fn serve(mut stream: TcpStream, state: &State) -> io::Result<()> {
    stream.set_nodelay(true)?;
    match wire::read_question(&mut stream).await? {
        Question::Echo => echo(stream, state).await,
        Question::Stream(question) => carry(stream, state, question).await,
        Question::Logs { session } => {
            let logs = logs(state, session).await;
            wire::write_answer(&mut stream, &Answer::Logs(logs)).await
        }
        Question::Run(question) => {
            let answer = run(state, question).await;
            wire::write_answer(&mut stream, &answer).await
        }
    }
}

/// Each byte is answered with the time here.
async fn echo(mut stream: TcpStream, state: &State) -> io::Result<()> {
    wire::write_answer(&mut stream, &Answer::Ready).await?;
    let mut byte = [0];
    while let Ok(Ok(_)) = tokio::time::timeout(ECHO_IDLE, stream.read_exact(&mut byte)).await {
        stream.write_all(&state.epoch.now_us().to_be_bytes()).await?;
    }
    Ok(())
}

async fn carry(mut stream: TcpStream, state: &State, question: StreamQuestion) -> io::Result<()> {
    let (start, stop) = match times(state.epoch, question.start_us, question.stop_us) {
        Ok(times) => times,
        Err(why) => return wire::write_answer(&mut stream, &Answer::Refused { why }).await,
    };
    let mut running = Running::begin(state, question.session);
    wire::write_answer(&mut stream, &Answer::Ready).await?;
    let (epoch, number) = (state.epoch, question.stream);
    running.log = Some(match question.way {
        StreamDirection::Up => stream::receive(&stream, epoch, number, stop).await,
        StreamDirection::Down => stream::send(&stream, epoch, number, start, stop).await,
    });
    Ok(())
}

/// A schedule that begins soon and does not last for ever.
fn times(epoch: Epoch, start_us: u64, stop_us: u64) -> std::result::Result<(Instant, Instant), String> {
    let now = epoch.now_us();
    let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let latest = now.saturating_add(us(LEAD_MAX));
    if start_us > latest || stop_us <= start_us || stop_us - start_us > us(TIME_MAX) {
        return Err(format!("a test begins within {LEAD_MAX:?} and takes {TIME_MAX:?} at most"));
    }
    Ok((epoch.at(start_us), epoch.at(stop_us)))
}

/// Waits for streams that are about to end.
async fn logs(state: &State, session: u64) -> Vec<StreamLog> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let ended = state.ended.notified();
        if let Some(logs) = state.take(session) {
            return logs;
        }
        if tokio::time::timeout_at(deadline, ended).await.is_err() {
            return Vec::new();
        }
    }
}

async fn run(state: &State, question: RunQuestion) -> Answer {
    let refused = |why: &str| Answer::Refused { why: why.to_owned() };
    match &state.config.token {
        Some(token) if *token == question.token => {}
        Some(_) => return refused("the token is another one than its own"),
        None => return refused("it was started without --token and runs no pairs of its own"),
    }
    if let Err(why) = times(state.epoch, question.plan.start_us, question.plan.stop_us) {
        return refused(&why);
    }
    if !(1..=wire::STREAMS_MAX).contains(&question.plan.streams) {
        return refused("so many streams are not allowed");
    }
    match pair::run(&question.to, question.plan, state.epoch).await {
        Ok(log) => Answer::Pair(log),
        Err(error) => refused(&error.to_string()),
    }
}
