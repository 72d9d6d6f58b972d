//! The other end: `forebay bench link server`. It echoes bytes, takes streams of the tests that it takes part in, and becomes a
//! rank of the runs that it is called to.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bench_fleet::{Fleet, RunToken, Seat};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::debug;
use types::{Error, Result};

use super::pair::Sessions;
use super::wire::{self, JoinRole, LinkAnswer, Question, fleet_options, open_token};
use super::{pair, schedule};

/// An echo connection on which nothing happens is closed.
const ECHO_IDLE: Duration = Duration::from_secs(120);
/// Runs that an agent is a rank of at the same time: each has a thread.
const RUNS_MAX: usize = 128;
/// Connections at once; more wait.
const CONNECTIONS_MAX: usize = 1024;

/// Runs until it is dropped; its connections end with it.
pub struct LinkServer {
    address: SocketAddr,
    _accepting: JoinSet<()>,
}

impl LinkServer {
    /// `token`: who knows it may have this agent run pairs of its own, that is send to others; without one nobody may.
    pub async fn bind(listen: SocketAddr, token: Option<String>) -> Result<LinkServer> {
        let failed = |e| Error::io("listen for link tests on", listen, e);
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let runs = Semaphore::new(RUNS_MAX);
        let state = Arc::new(ServerState { token, sessions: Sessions::default(), runs });
        Ok(LinkServer { address, _accepting: JoinSet::from_iter([accept(listener, state)]) })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

struct ServerState {
    token: Option<String>,
    sessions: Sessions,
    runs: Semaphore,
}

async fn accept(listener: TcpListener, state: Arc<ServerState>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
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

async fn serve(mut stream: TcpStream, state: &ServerState) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let refused = |why: &str| LinkAnswer::Refused { why: why.to_owned() };
    match wire::read_question(&mut stream).await? {
        Question::Echo => echo(stream).await,
        Question::Stream { session, stream: number } => {
            let Some(place) = state.sessions.place_in(session) else {
                return wire::write_answer(&mut stream, &refused("no such test is expected")).await;
            };
            wire::write_answer(&mut stream, &LinkAnswer::Ready).await?;
            place.send((number, stream));
            Ok(())
        }
        Question::Join { seat, role } => {
            let token = match (role, &state.token) {
                (JoinRole::OtherEnd, _) => open_token(),
                (JoinRole::Opener, Some(token)) => RunToken::chosen(token.clone()),
                (JoinRole::Opener, None) => {
                    let why = "it was started without --token and runs no pairs of its own";
                    return wire::write_answer(&mut stream, &refused(why)).await;
                }
            };
            let Ok(_permit) = state.runs.try_acquire() else {
                return wire::write_answer(&mut stream, &refused("it takes part in too many tests")).await;
            };
            wire::write_answer(&mut stream, &LinkAnswer::Ready).await?;
            Box::pin(join(stream, token, &seat, role, state)).await.map_err(io::Error::other)
        }
    }
}

async fn join(
    stream: TcpStream,
    token: RunToken,
    seat: &Seat,
    role: JoinRole,
    state: &ServerState,
) -> Result<()> {
    let member = Fleet::follow(stream, token, seat, fleet_options()).await?;
    match role {
        JoinRole::OtherEnd => pair::follow(member, &state.sessions).await,
        JoinRole::Opener => schedule::follow(member).await,
    }
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    wire::write_answer(&mut stream, &LinkAnswer::Ready).await?;
    let mut byte = [0];
    while let Ok(Ok(_)) = tokio::time::timeout(ECHO_IDLE, stream.read_exact(&mut byte)).await {
        stream.write_all(&byte).await?;
    }
    Ok(())
}
