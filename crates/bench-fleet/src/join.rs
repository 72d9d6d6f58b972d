//! Joining a run: find out what this process is, start what it must start, and wait until all ranks are there.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use types::{Error, ErrorKind, Result};

use crate::addresses::{host_name, ways_in};
use crate::admission::{Connection, MemberIdentity, NotIn, WRONG_TOKEN, admit, enter_by};
use crate::agent::{Agent, CoordinatorLink, Ends};
use crate::children::{Children, Orders};
use crate::clock::FleetClock;
use crate::coordinator::{Event, FleetCoordinator};
use crate::launch::{Launch, Meeting, RankStart, detect, node_name};
use crate::member::{AgentHandle, Member, run_ended};
use crate::options::FleetOptions;
use crate::protocol::{Message, PAYLOAD_MAX, RankPlace};
use crate::rendezvous::Left;
use crate::search::{Given, SSH_CLIENT, find_rank_0};
use crate::token::RunToken;
use crate::wire::{Arrival, QUEUE, write_all};

/// Events that wait for the coordinator; those that bring them wait when it is full.
const EVENTS: usize = 1024;
/// Connections that have not proved themselves; more wait in the listen queue.
const STRANGERS_MAX: usize = 128;
/// The most bytes that an agent takes from whoever has called it: orders, which are short. Anybody may call some agents.
const ORDER_MAX: usize = 1 << 20;
/// The pause after a failure to accept.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

pub struct Fleet;

/// An agent that waits for runs, and has agreed on this connection to be a rank of one.
pub struct CalledAgent {
    /// How the caller names it, in messages too.
    pub name: String,
    pub stream: TcpStream,
    pub token: RunToken,
}

/// What an agent is told when it is called.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seat {
    pub rank: u32,
    pub size: u32,
    /// How the caller names the agent.
    pub name: String,
}

/// What a process is, with all that its thread needs.
struct ProcessRole {
    options: FleetOptions,
    place: RankPlace,
    size: u32,
    clock: Arc<FleetClock>,
    epoch: Instant,
    ends: Ends,
}

impl Fleet {
    /// Take this process's place in the run that its launcher, or its options, describe. Returns when all ranks are
    /// here, or with an error that names those that are not.
    pub async fn join(options: FleetOptions) -> Result<Member> {
        let host = host_name();
        let launch = detect(&options, &host)?;
        let rank = launch.as_ref().map_or(0, |launch| launch.rank);
        let host = node_name(&options.environment).map_or(host, str::to_owned);
        let place = RankPlace { rank, host, process: std::process::id() };
        let Some(Launch { size, meeting, .. }) = launch else { return Ok(Member::alone(place)) };
        let play = async move |role: ProcessRole| match rank {
            0 => role.lead(&meeting).await,
            _ => role.follow(&meeting).await,
        };
        Fleet::enlist(place, size, options, play).await
    }

    /// A run of this process by itself, whatever has started it.
    pub fn alone() -> Member {
        Member::alone(Fleet::called_place(0, host_name()))
    }

    /// Be rank 0 of a run whose other ranks are agents that this process has called: agent `i` has rank `i + 1`.
    pub async fn lead(agents: Vec<CalledAgent>, options: FleetOptions) -> Result<Member> {
        let size = u32::try_from(agents.len()).unwrap_or(u32::MAX).saturating_add(1);
        let place = Fleet::called_place(0, host_name());
        Fleet::enlist(place, size, options, async move |role: ProcessRole| role.lead_called(agents).await)
            .await
    }

    /// Be a rank of the run of whoever has called this agent on `stream`.
    pub async fn follow(
        stream: TcpStream,
        token: RunToken,
        seat: &Seat,
        options: FleetOptions,
    ) -> Result<Member> {
        let stream = stream.into_std().map_err(|e| Error::io("use the connection of", &seat.name, e))?;
        let place = Fleet::called_place(seat.rank, seat.name.clone());
        let play = async move |role: ProcessRole| role.answer_call(stream, &token).await;
        Fleet::enlist(place, seat.size, options, play).await
    }

    fn called_place(rank: u32, name: String) -> RankPlace {
        RankPlace { rank, host: name, process: std::process::id() }
    }

    /// Has `play` played on a thread of its own; an error of it is one from before this rank was in the run.
    async fn enlist(
        place: RankPlace,
        size: u32,
        options: FleetOptions,
        play: impl AsyncFnOnce(ProcessRole) -> Result<()> + Send + 'static,
    ) -> Result<Member> {
        let rank = place.rank;
        let epoch = Instant::now();
        let clock = if rank == 0 { FleetClock::exact(epoch) } else { FleetClock::starting_at(epoch) };
        let clock = Arc::new(clock);
        let (requests, theirs) = mpsc::channel(QUEUE);
        let (ending, ended) = watch::channel(None);
        let (joined, roster) = oneshot::channel();
        let ends = Ends { requests: theirs, ending, joined: Some(joined) };
        let role = ProcessRole { options, place, size, clock: clock.clone(), epoch, ends };
        let (failed, failure) = oneshot::channel();
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|e| Error::io("start a runtime for the run", "", e))?;
            let done = runtime.block_on(play(role));
            // A name that is being resolved cannot be cancelled, and does not matter any more.
            runtime.shutdown_background();
            done
        };
        let thread = std::thread::Builder::new().name("fleet".into());
        let thread = thread.spawn(move || {
            if let Err(error) = run() {
                let _ = failed.send(error);
            }
        });
        let thread = thread.map_err(|e| Error::io("start a thread for the run", "", e))?;
        let fleet = AgentHandle { requests, ending: ended, thread };
        match roster.await {
            Ok(roster) if u32::try_from(roster.len()) == Ok(size) => {
                Ok(Member { roster, rank, clock, fleet: Some(fleet) })
            }
            Ok(roster) => Err(run_ended(&format!("rank 0 named {} ranks of {size}", roster.len()))),
            Err(_) => match failure.await {
                Ok(error) => Err(error),
                Err(_) => Err(fleet.ended().await),
            },
        }
    }
}

impl ProcessRole {
    /// Rank 0: hold the run together, and be a rank of it.
    async fn lead(self, meeting: &Meeting) -> Result<()> {
        let token = match meeting {
            Meeting::At(_) => Given::of(&self.options)?.token,
            _ => RunToken::random()?,
        };
        let listener = self.listen(meeting).await?;
        let port = listener.local_addr().map_err(|e| Error::io("listen for the other ranks", "", e))?.port();
        let ways = self.ways_in(port, meeting);
        let (sender, events) = mpsc::channel(EVENTS);
        let left = match meeting {
            Meeting::File { path, .. } => Some(Left::new(path, ways.clone(), &token)?),
            _ => None,
        };
        let door = tokio::spawn(let_in(listener, token.clone(), sender.clone())).abort_handle();
        let starts = if let Meeting::Starts(starts) = meeting { starts.as_slice() } else { &[] };
        let orders = Orders { options: &self.options, size: self.size, token: &token, port, ways_in: &ways };
        let children = Children::start(starts, &orders, &sender).await?;
        let name = |start: &RankStart| (start.rank, start.host.clone().unwrap_or(self.place.host.clone()));
        let started = starts.iter().map(name).collect();
        // Once all ranks are in, nobody else needs to get in, or to find this process.
        let on_complete = Box::new(move || {
            door.abort();
            drop(left);
        });
        self.coordinate(started, (sender, events), on_complete).await;
        children.end().await;
        Ok(())
    }

    async fn follow(self, meeting: &Meeting) -> Result<()> {
        let (connection, coordinator) = find_rank_0(meeting, &self.options, &self.place, self.size).await?;
        self.attend(connection, coordinator, PAYLOAD_MAX).await;
        Ok(())
    }

    /// Rank 0 of agents that wait on their connections: the handshake is all that is left.
    async fn lead_called(self, agents: Vec<CalledAgent>) -> Result<()> {
        let (sender, events) = mpsc::channel(EVENTS);
        let names: BTreeMap<u32, String> = (1..).zip(agents.iter().map(|agent| agent.name.clone())).collect();
        for (rank, agent) in (1..).zip(agents) {
            let sender = sender.clone();
            // A connection belongs to the runtime that waits for it.
            let stream = agent.stream.into_std().and_then(TcpStream::from_std);
            let stream = stream.map_err(|e| Error::io("use the connection of", &agent.name, e))?;
            tokio::spawn(async move {
                let event = match admit(stream, &agent.token).await {
                    Ok(applicant) => Event::Candidate(Box::new(applicant)),
                    Err(why) if why == WRONG_TOKEN => {
                        Event::Gone(rank, "the token is another one than its own".to_owned())
                    }
                    Err(why) => Event::Gone(rank, why),
                };
                let _ = sender.send(event).await;
            });
        }
        self.coordinate(names, (sender, events), Box::new(|| {})).await;
        Ok(())
    }

    async fn answer_call(self, stream: std::net::TcpStream, token: &RunToken) -> Result<()> {
        let stream =
            TcpStream::from_std(stream).map_err(|e| Error::io("use the connection of", "a call", e))?;
        let Self { place, size, options, .. } = &self;
        let member = MemberIdentity { token, place, size: *size, build: &options.build };
        match enter_by(stream, &member).await {
            Ok(connection) => self.attend(connection, "the caller".to_owned(), ORDER_MAX).await,
            Err(NotIn::Try(why) | NotIn::Refused(why)) => return Err(run_ended(&why)),
        }
        Ok(())
    }

    /// Hold a run together until its end, and be rank 0 of it.
    async fn coordinate(
        self,
        started: BTreeMap<u32, String>,
        events: (mpsc::Sender<Event>, mpsc::Receiver<Event>),
        on_complete: Box<dyn FnOnce() + Send>,
    ) {
        let (own, link) = loopback(&events.0, &self.place);
        let (planned, rank_0) = ((self.size, started), (self.place.clone(), own));
        let coordinator =
            FleetCoordinator::new(planned, (self.options.clone(), self.epoch), events, rank_0, on_complete);
        let agent = self.agent(link);
        // At an early end the coordinator tells the others first, then our agent.
        tokio::join!(coordinator.run(), agent.run());
    }

    /// Be a rank over this connection, until the end of the run.
    async fn attend(self, connection: Connection, coordinator: String, payload_max: usize) {
        let Connection { mut reader, writer } = connection;
        reader.trust(payload_max);
        let (outbox, messages) = mpsc::channel(QUEUE);
        let (sender, arrivals) = mpsc::channel(QUEUE);
        tokio::spawn(reader.run(sender, |arrival| arrival));
        let writer = tokio::spawn(write_all(writer, messages, self.options.silence_max));
        self.agent(CoordinatorLink { outbox, arrivals, coordinator, is_near: false }).run().await;
        // With the agent its outbox is gone, so that the writer ends when all is written.
        let _ = tokio::time::timeout(Duration::from_secs(1), writer).await;
    }

    fn agent(self, link: CoordinatorLink) -> Agent {
        Agent::new(link, self.clock, self.ends, self.options)
    }

    /// On loopback if no other machine is in the run; on any port, unless we were told one.
    async fn listen(&self, meeting: &Meeting) -> Result<TcpListener> {
        let told = self.options.launch.coordinator.as_ref();
        let (near, told) = match meeting {
            Meeting::Starts(starts) => (starts.iter().all(|start| start.host.is_none()), told),
            Meeting::File { one_machine, .. } => (*one_machine, told),
            Meeting::At(addresses) => (false, addresses.first()),
        };
        let port = told.map_or(Ok(0), |address| port_of(address))?;
        let failed = |e| Error::io("listen for the other ranks on port", port, e);
        if near {
            return TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(failed);
        }
        // Both families; a kernel without IPv6 has one.
        match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await {
            Ok(listener) => Ok(listener),
            Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await.map_err(failed),
        }
    }

    fn ways_in(&self, port: u16, meeting: &Meeting) -> Vec<String> {
        match (&self.options.launch.coordinator, meeting) {
            (Some(told), _) => vec![told.clone()],
            (None, Meeting::File { one_machine: true, .. }) => vec![format!("127.0.0.1:{port}")],
            // The address by which ssh's own connection reached the host is the best guess.
            (None, Meeting::Starts(_)) => {
                std::iter::once(format!("{SSH_CLIENT}:{port}")).chain(ways_in(port)).collect()
            }
            (None, _) => ways_in(port),
        }
    }
}

/// Of an address as `--coordinator` takes it.
fn port_of(address: &str) -> Result<u16> {
    let port = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    match port {
        Some((host, port)) if !host.is_empty() && port != 0 => Ok(port),
        _ => Err(Error::new(ErrorKind::Config, "--coordinator", format!("{address:?} is not HOST:PORT"))),
    }
}

/// Rank 0's link to its own process's coordinator: channels, no socket.
fn loopback(events: &mpsc::Sender<Event>, place: &RankPlace) -> (mpsc::Sender<Message>, CoordinatorLink) {
    let (outbox, mut said) = mpsc::channel(QUEUE);
    let (own, mut heard) = mpsc::channel::<Message>(QUEUE);
    let (sender, arrivals) = mpsc::channel(QUEUE);
    let events = events.clone();
    tokio::spawn(async move {
        while let Some(message) = said.recv().await {
            let arrival = Arrival::Message(message, Instant::now());
            if events.send(Event::Arrived(0, arrival)).await.is_err() {
                return;
            }
        }
        let _ = events.send(Event::Arrived(0, Arrival::Lost("it ended".into()))).await;
    });
    tokio::spawn(async move {
        while let Some(message) = heard.recv().await {
            if sender.send(Arrival::Message(message, Instant::now())).await.is_err() {
                return;
            }
        }
    });
    (own, CoordinatorLink { outbox, arrivals, coordinator: place.host.clone(), is_near: true })
}

/// Greet whoever connects; those who know the token become candidates.
async fn let_in(listener: TcpListener, token: RunToken, events: mpsc::Sender<Event>) {
    let places = Arc::new(Semaphore::new(STRANGERS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(e) => {
                // Out of file descriptors, mostly: some may come back.
                tracing::warn!("cannot accept a rank: {e}");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let (token, events) = (token.clone(), events.clone());
        tokio::spawn(async move {
            match admit(stream, &token).await {
                Ok(candidate) => {
                    let _ = events.send(Event::Candidate(Box::new(candidate))).await;
                }
                Err(why) => {
                    tracing::debug!(%address, why, "a connection that is none of this run's is closed")
                }
            }
            drop(place);
        });
    }
}
