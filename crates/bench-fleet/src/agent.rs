//! A member's side of the link, on a thread of its own: the load of the run must not delay heartbeats and clocks.
//!
//! It keeps the clock, passes the member's steps on, and knows first when the run has ended. How it ended is one
//! reason in words, which every call of the member then returns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, sleep_until, timeout};

use crate::clock::{Exchange, FleetClock};
use crate::options::FleetOptions;
use crate::protocol::{Collective, HEARTBEAT, Message, RankPlace};
use crate::terminate::told_to_end;
use crate::wire::{Arrival, QUEUE};

/// Exchanges in a row when a member has joined: enough that one of them met no other traffic.
const FIRST_EXCHANGES: u32 = 8;
/// Exchanges before each barrier: its start is as exact as the clock is then.
const BARRIER_EXCHANGES: u32 = 4;
/// A launcher that lost a rank tells the others to end at once; a moment later the coordinator says why.
const REASON_WAIT: Duration = Duration::from_millis(500);
/// A launcher may kill all ranks as soon as one has ended, so the others give rank 0 the time to say why.
const AFTER_RANK_0: Duration = Duration::from_millis(200);
/// The longest wait for the answer to an abort.
const ABORT_WAIT: Duration = Duration::from_secs(2);

/// Why a run ended early; the same on all ranks.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub struct RunEnded {
    why: Arc<str>,
    /// Rank 0 is there, knows it, and says it itself.
    pub said_by_rank_0: bool,
}

impl RunEnded {
    /// One line, whatever another rank gave as its reason.
    pub fn because(reason: &str, said_by_rank_0: bool) -> RunEnded {
        RunEnded { why: reason.replace(char::is_control, " ").into(), said_by_rank_0 }
    }
}

/// What the member asks of its agent.
pub enum MemberRequest {
    /// Take a step together with all ranks.
    Enter { step: Collective, payload: Bytes, answer: oneshot::Sender<StepOutcome> },
    /// End the run.
    Abort { reason: String },
}

/// The outcome of a step: when to go on, and what it brought this rank.
pub struct StepOutcome {
    pub start: Instant,
    pub parts: Vec<Bytes>,
}

/// The agent's ends of the channels between it and the member.
pub struct Ends {
    pub requests: mpsc::Receiver<MemberRequest>,
    /// Why the run has ended early, once it has.
    pub ending: watch::Sender<Option<RunEnded>>,
    /// Until all ranks have come.
    pub joined: Option<oneshot::Sender<Vec<RankPlace>>>,
}

/// The agent's channels to and from the coordinator.
pub struct CoordinatorLink {
    pub outbox: mpsc::Sender<Message>,
    pub arrivals: mpsc::Receiver<Arrival>,
    /// For a message about its loss.
    pub coordinator: String,
    /// Rank 0's own.
    pub is_near: bool,
}

pub struct Agent {
    link: CoordinatorLink,
    clock: Arc<FleetClock>,
    ends: Ends,
    options: FleetOptions,
    round: u64,
    /// The step that the member is in.
    step: Option<(Collective, oneshot::Sender<StepOutcome>)>,
    heard: Instant,
    exchanges_left: u32,
    finished: bool,
    /// Rank 0 has said why the run ended, or cannot be told any more.
    told: bool,
    /// Rank 0 has said why.
    said: bool,
}

impl Agent {
    pub fn new(link: CoordinatorLink, clock: Arc<FleetClock>, ends: Ends, options: FleetOptions) -> Agent {
        Agent {
            link,
            clock,
            ends,
            options,
            round: 0,
            step: None,
            heard: Instant::now(),
            exchanges_left: FIRST_EXCHANGES,
            finished: false,
            told: false,
            said: false,
        }
    }

    /// Until the run is over for this rank.
    pub async fn run(mut self) {
        let ended = self.take_part().await;
        if let Err(reason) = ended {
            let text = if self.told { reason } else { self.abort(&reason).await };
            if !self.link.is_near {
                tokio::time::sleep(AFTER_RANK_0).await;
            }
            // Before the answers are dropped: who waits for one looks here for the reason.
            let said_by_rank_0 = self.said && !self.link.is_near;
            self.ends.ending.send_replace(Some(RunEnded::because(&text, said_by_rank_0)));
        }
    }

    async fn take_part(&mut self) -> Result<(), String> {
        let mut terminate = self.options.catch_terminate.then(told_to_end).flatten();
        let mut tick = interval(HEARTBEAT);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_tick = Instant::now();
        let mut told_to_end: Option<Instant> = None;
        while !self.finished {
            let give_up = told_to_end.map(|at| tokio::time::Instant::from_std(at + REASON_WAIT));
            tokio::select! {
                biased;
                arrival = self.link.arrivals.recv() => self.on_arrival(arrival)?,
                () = sleep_until(give_up.unwrap_or_else(tokio::time::Instant::now)), if give_up.is_some() => {
                    return Err("it was told to end (SIGTERM) by the launcher or the batch system".into());
                }
                request = self.ends.requests.recv() => match request {
                    Some(request) => self.on_request(request)?,
                    None => return Err("it left the run before the end".into()),
                },
                () = received(&mut terminate), if told_to_end.is_none() => told_to_end = Some(Instant::now()),
                _ = tick.tick() => {
                    // After a pause of this very process the coordinator seems to have been silent.
                    if last_tick.elapsed() < HEARTBEAT * 3 {
                        self.look_for_silence()?;
                    } else {
                        self.heard = Instant::now();
                    }
                    last_tick = Instant::now();
                    self.ping();
                }
            }
        }
        Ok(())
    }

    fn on_arrival(&mut self, arrival: Option<Arrival>) -> Result<(), String> {
        match arrival {
            None => Err(self.lost("its link ended")),
            Some(Arrival::Lost(how)) => Err(self.lost(&how)),
            Some(Arrival::Bytes) => {
                self.heard = Instant::now();
                Ok(())
            }
            Some(Arrival::Message(message, at)) => {
                self.heard = self.heard.max(at);
                self.on_message(message, at)
            }
        }
    }

    fn on_message(&mut self, message: Message, arrived: Instant) -> Result<(), String> {
        match message {
            Message::Pong { sent, received, answered } => {
                let arrived = self.clock.local(arrived);
                self.clock.learn(Exchange { sent, received, answered, arrived });
                if let Some(left) = self.exchanges_left.checked_sub(1) {
                    self.exchanges_left = left;
                    self.ping();
                }
            }
            Message::Roster(places) => {
                if let Some(joined) = self.ends.joined.take() {
                    let _ = joined.send(places);
                }
            }
            Message::Done { round, start, parts } => {
                self.finished = matches!(self.step, Some((Collective::Finish, _)));
                let start = self.clock.instant_of(start, Instant::now());
                self.step_is_over(round, StepOutcome { start, parts })?;
            }
            Message::Ended { reason } => {
                (self.told, self.said) = (true, true);
                return Err(reason);
            }
            other => return Err(format!("rank 0 said what a coordinator never says: {other:?}")),
        }
        Ok(())
    }

    fn step_is_over(&mut self, round: u64, answer: StepOutcome) -> Result<(), String> {
        match self.step.take() {
            Some((_, waiting)) if round == self.round => {
                self.round = self.round.wrapping_add(1);
                // If nobody waits any more, the member's next step tells.
                let _ = waiting.send(answer);
                Ok(())
            }
            _ => Err(format!("rank 0 ended round {round}, this rank is in round {}", self.round)),
        }
    }

    fn on_request(&mut self, request: MemberRequest) -> Result<(), String> {
        match request {
            MemberRequest::Enter { step, payload, answer } => {
                if self.step.is_some() {
                    return Err("this rank began a step within another".into());
                }
                if matches!(step, Collective::Barrier { .. }) {
                    (0..BARRIER_EXCHANGES).for_each(|_| self.ping());
                }
                self.step = Some((step.clone(), answer));
                let round_trip = self.clock.round_trip();
                self.say(Message::Enter { round: self.round, step, round_trip, payload })
            }
            MemberRequest::Abort { reason } => Err(reason),
        }
    }

    fn say(&mut self, message: Message) -> Result<(), String> {
        self.link.outbox.try_send(message).map_err(|_| self.lost("it reads nothing"))
    }

    /// Heartbeats leave room for what matters: one that does not fit was not needed.
    fn ping(&self) {
        if self.link.outbox.capacity() > QUEUE / 2 {
            let sent = self.clock.local(Instant::now());
            let _ = self.link.outbox.try_send(Message::Ping { sent });
        }
    }

    fn look_for_silence(&mut self) -> Result<(), String> {
        let silence = self.heard.elapsed();
        if silence > self.options.silence_max {
            return Err(self.lost(&format!("silent for {:.0} s", silence.as_secs_f64())));
        }
        Ok(())
    }

    fn lost(&mut self, how: &str) -> String {
        self.told = true;
        format!("rank 0 ({}) was lost: {how}", self.link.coordinator)
    }

    /// End the run for all. The reason as all see it.
    async fn abort(&mut self, reason: &str) -> String {
        if self.say(Message::Abort { reason: reason.to_owned() }).is_err() {
            return reason.to_owned();
        }
        let ended = async {
            while let Some(arrival) = self.link.arrivals.recv().await {
                if let Arrival::Message(Message::Ended { reason }, _) = arrival {
                    return Some(reason);
                }
            }
            None
        };
        let ended = timeout(ABORT_WAIT, ended).await.ok().flatten();
        self.said |= ended.is_some();
        ended.unwrap_or_else(|| reason.to_owned())
    }
}

/// Returns when the process was told to end; never, if that signal is not caught.
async fn received(terminate: &mut Option<watch::Receiver<bool>>) {
    if let Some(told) = terminate
        && told.wait_for(|told| *told).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}
