//! What holds a run together, in rank 0's process: who is here, who is alive, which step comes next.
//!
//! One owner of all state, one loop of events. Whatever goes wrong with any rank is one reason in words, which ends the
//! loop and is sent to all: a run with a rank missing would measure something else. Rank 0 is a peer like the others,
//! over channels instead of a socket, and hears of the end last, because its process may be gone right after.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::admission::Applicant;
use crate::clock::nanoseconds;
use crate::options::FleetOptions;
use crate::protocol::{Collective, HEARTBEAT, Message, PAYLOAD_MAX, RankPlace};
use crate::rounds::{CollectiveRounds, Complete};
use crate::wire::{Arrival, QUEUE, write_all};

/// The time from the last rank's arrival at a barrier to its scheduled end, besides what the messages take: several turns
/// of a busy machine's scheduler.
const GO_LEAD: Duration = Duration::from_millis(10);
/// Each rank adds so much: on this machine or theirs, ranks are told and woken one after the other.
const GO_LEAD_PER_RANK: Duration = Duration::from_micros(100);
/// Nothing makes it longer than this.
const GO_LEAD_MAX: Duration = Duration::from_secs(5);
/// The time that the last words have to reach the other ranks.
const FAREWELL: Duration = Duration::from_secs(1);
/// A process that ended closed its connection a moment before its parent learns how it ended.
const HOW_IT_ENDED: Duration = Duration::from_millis(300);
/// The longest error in a message to all, in characters.
const REASON_MAX: usize = 2000;

/// What happens to a coordinator.
pub enum Event {
    Candidate(Box<Applicant>),
    Arrived(u32, Arrival),
    /// A process that we started has ended; how.
    ChildEnded(u32, String),
    /// A rank's connection is gone, and nobody said how its process ended.
    Gone(u32, String),
}

/// A rank that is in the run.
struct Participant {
    place: RankPlace,
    outbox: mpsc::Sender<Message>,
    heard: Instant,
}

pub struct FleetCoordinator {
    size: u32,
    /// The ranks that this process has started or called, and where.
    started: BTreeMap<u32, String>,
    options: FleetOptions,
    /// The fleet's time counts from here.
    epoch: Instant,
    events: mpsc::Receiver<Event>,
    /// For what brings events: connections, timers.
    sender: mpsc::Sender<Event>,
    /// The ranks that are here.
    peers: BTreeMap<u32, Participant>,
    /// Each ends when it has written what is in an outbox, and that is gone.
    writers: JoinSet<()>,
    rounds: CollectiveRounds,
    /// All ranks have said that they are done.
    finished: bool,
    /// Told when all ranks have come, and gone since: nobody else needs to be let in or to find us.
    on_complete: Option<Box<dyn FnOnce() + Send>>,
}

impl FleetCoordinator {
    /// `rank_0` is the outbox to this process's own rank.
    pub fn new(
        (size, started): (u32, BTreeMap<u32, String>),
        (options, epoch): (FleetOptions, Instant),
        (sender, events): (mpsc::Sender<Event>, mpsc::Receiver<Event>),
        (place, rank_0): (RankPlace, mpsc::Sender<Message>),
        on_complete: Box<dyn FnOnce() + Send>,
    ) -> FleetCoordinator {
        let own = Participant { place, outbox: rank_0, heard: Instant::now() };
        FleetCoordinator {
            size,
            started,
            options,
            epoch,
            events,
            sender,
            peers: BTreeMap::from([(0, own)]),
            writers: JoinSet::new(),
            rounds: CollectiveRounds::new(size),
            finished: false,
            on_complete: Some(on_complete),
        }
    }

    /// Until the run is over, one way or the other, and all ranks know.
    pub async fn run(mut self) {
        let ended = self.hold_together().await.map_err(|reason| {
            tracing::debug!(reason, "the run has ended early");
            Message::Ended { reason: reason.chars().take(REASON_MAX).collect() }
        });
        for peer in self.peers.split_off(&1).into_values() {
            if let Err(last_words) = &ended {
                let _ = peer.outbox.try_send(last_words.clone());
            }
        }
        let _ = timeout(FAREWELL, std::mem::take(&mut self.writers).join_all()).await;
        if let Err(last_words) = ended {
            let _ = self.tell(0, last_words);
        }
    }

    async fn hold_together(&mut self) -> Result<(), String> {
        let deadline = tokio::time::sleep(self.options.join_deadline);
        tokio::pin!(deadline);
        let mut tick = interval(HEARTBEAT);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_tick = Instant::now();
        self.look_whether_complete()?;
        while !self.finished {
            tokio::select! {
                // What has arrived counts before what time says.
                biased;
                Some(event) = self.events.recv() => self.on(event)?,
                () = &mut deadline, if self.on_complete.is_some() => return Err(self.missing()),
                _ = tick.tick() => {
                    // After a pause of this very process everybody else seems to have been silent.
                    if last_tick.elapsed() < HEARTBEAT * 3 {
                        self.look_for_the_silent()?;
                    } else {
                        self.forgive_silence();
                    }
                    last_tick = Instant::now();
                }
            }
        }
        Ok(())
    }

    fn on(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Candidate(candidate) => self.meet(*candidate),
            Event::Arrived(rank, Arrival::Message(message, at)) => {
                self.hear(rank, at);
                self.answer(rank, message, at)
            }
            Event::Arrived(rank, Arrival::Bytes) => {
                self.hear(rank, Instant::now());
                Ok(())
            }
            Event::Arrived(rank, Arrival::Lost(how)) if !self.started.contains_key(&rank) => {
                Err(self.lost(rank, &how))
            }
            Event::Arrived(rank, Arrival::Lost(how)) => {
                // It is a child: how its process ended says more.
                let sender = self.sender.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(HOW_IT_ENDED).await;
                    let _ = sender.send(Event::Gone(rank, how)).await;
                });
                Ok(())
            }
            Event::Gone(rank, how) => Err(self.lost(rank, &how)),
            Event::ChildEnded(rank, how) if self.peers.contains_key(&rank) => {
                Err(self.lost(rank, &format!("its process ended: {how}")))
            }
            Event::ChildEnded(rank, how) => {
                Err(format!("{} ended before it joined the run: {how}", self.planned(rank)))
            }
        }
    }

    /// Lets an applicant, which has proved that it knows the token, be a rank; or refuses it.
    fn meet(&mut self, candidate: Applicant) -> Result<(), String> {
        let hello = &candidate.hello;
        let (place, build) = (&hello.place, &self.options.build);
        let readable = |text: &str| text.len() <= 255 && !text.contains(char::is_control);
        if !readable(&place.host) || !readable(&hello.build) {
            self.refuse(candidate, "its name is none");
            return Ok(());
        }
        if let Some(peer) = self.peers.get(&place.rank) {
            let reason = format!("rank {} is here already: {}", place.rank, peer.place);
            self.refuse(candidate, &reason);
            return Ok(());
        }
        if hello.build != *build || hello.size != self.size || place.rank >= self.size {
            let reason = if hello.build != *build {
                format!("{place} runs build {}, rank 0 {build}: install one on all", hello.build)
            } else {
                format!(
                    "{place} was told that there are {} ranks, rank 0 that there are {}",
                    hello.size, self.size
                )
            };
            self.refuse(candidate, &reason);
            return Err(reason);
        }
        tracing::debug!(rank = place.rank, host = place.host, "a rank has joined");
        let welcome = candidate.welcome();
        let place = candidate.hello.place.clone();
        let rank = place.rank;
        let (mut connection, events) = (candidate.connection, self.sender.clone());
        connection.reader.trust(PAYLOAD_MAX);
        tokio::spawn(connection.reader.run(events, move |arrival| Event::Arrived(rank, arrival)));
        let (outbox, messages) = mpsc::channel(QUEUE);
        self.writers.spawn(write_all(connection.writer, messages, self.options.silence_max));
        self.peers.insert(rank, Participant { place, outbox, heard: Instant::now() });
        self.tell(rank, welcome)?;
        self.look_whether_complete()
    }

    fn refuse(&mut self, candidate: Applicant, reason: &str) {
        let (outbox, messages) = mpsc::channel(1);
        let _ = outbox.try_send(candidate.refusal(reason));
        self.writers.spawn(write_all(candidate.connection.writer, messages, FAREWELL));
    }

    fn look_whether_complete(&mut self) -> Result<(), String> {
        let all_came = u32::try_from(self.peers.len()) == Ok(self.size);
        let Some(tell) = self.on_complete.take_if(|_| all_came) else { return Ok(()) };
        tell();
        self.tell_all(&Message::Roster(self.peers.values().map(|peer| peer.place.clone()).collect()))
    }

    fn answer(&mut self, rank: u32, message: Message, arrived: Instant) -> Result<(), String> {
        match message {
            Message::Ping { sent } => {
                let (received, answered) = (self.time_at(arrived), self.time_at(Instant::now()));
                self.tell(rank, Message::Pong { sent, received, answered })
            }
            Message::Enter { round, step, round_trip, payload } => {
                let entered = match self.on_complete {
                    None => self.rounds.enter(rank, round, step, round_trip, payload),
                    Some(_) => Err("it went on before all ranks were here".into()),
                };
                match entered {
                    Ok(None) => Ok(()),
                    Ok(Some(complete)) => self.go_on(complete),
                    Err(wrong) => Err(format!("{} is out of step: {wrong}", self.describe(rank))),
                }
            }
            Message::Abort { reason } => Err(format!("{} ended the run: {reason}", self.describe(rank))),
            other => Err(format!("{} said what only a coordinator says: {other:?}", self.describe(rank))),
        }
    }

    /// All have entered a step.
    fn go_on(&mut self, Complete { round, step, mut payloads, round_trip }: Complete) -> Result<(), String> {
        let start = match step {
            Collective::Barrier { .. } => {
                // Half a round trip to the farthest rank; the rest is for one that is slower than it was at its best.
                let travel = Duration::from_nanos(round_trip).saturating_mul(2);
                let ranks = GO_LEAD_PER_RANK.saturating_mul(self.size);
                let lead = GO_LEAD.saturating_add(ranks).saturating_add(travel).min(GO_LEAD_MAX);
                self.time_at(Instant::now() + lead)
            }
            _ => 0,
        };
        self.finished = step == Collective::Finish;
        if step == Collective::Gather {
            (1..self.size)
                .try_for_each(|rank| self.tell(rank, Message::Done { round, start, parts: Vec::new() }))?;
            return self.tell(0, Message::Done { round, start, parts: payloads });
        }
        // Of a broadcast rank 0's; nothing is given to other steps.
        payloads.truncate(1);
        self.tell_all(&Message::Done { round, start, parts: payloads })
    }

    /// Of the fleet, in nanoseconds.
    fn time_at(&self, instant: Instant) -> u64 {
        nanoseconds(instant.saturating_duration_since(self.epoch))
    }

    fn tell_all(&self, message: &Message) -> Result<(), String> {
        // Rank 0 last: it may act on it at once, and it needs no time to hear it.
        (1..self.size).chain([0]).try_for_each(|rank| self.tell(rank, message.clone()))
    }

    fn tell(&self, rank: u32, message: Message) -> Result<(), String> {
        let Some(peer) = self.peers.get(&rank) else { return Ok(()) };
        match peer.outbox.try_send(message) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => Err(self.lost(rank, "it reads nothing")),
            // Its reader says why.
            Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
        }
    }

    fn hear(&mut self, rank: u32, at: Instant) {
        if let Some(peer) = self.peers.get_mut(&rank) {
            peer.heard = peer.heard.max(at);
        }
    }

    fn look_for_the_silent(&self) -> Result<(), String> {
        let patience = self.options.silence_max;
        for (rank, peer) in self.peers.range(1..) {
            let silence = peer.heard.elapsed();
            if silence > patience {
                return Err(self.lost(*rank, &format!("silent for {:.0} s", silence.as_secs_f64())));
            }
        }
        Ok(())
    }

    fn forgive_silence(&mut self) {
        let now = Instant::now();
        self.peers.values_mut().for_each(|peer| peer.heard = now);
    }

    fn describe(&self, rank: u32) -> String {
        self.peers.get(&rank).map_or_else(|| self.planned(rank), |peer| peer.place.to_string())
    }

    fn planned(&self, rank: u32) -> String {
        let host = self.started.get(&rank);
        host.map_or_else(|| format!("rank {rank}"), |host| format!("rank {rank} (host {host})"))
    }

    fn lost(&self, rank: u32, how: &str) -> String {
        let waiting = self.rounds.waiting().map(|step| format!(" while others were at {step}"));
        format!("{} was lost{}: {how}", self.describe(rank), waiting.unwrap_or_default())
    }

    fn missing(&self) -> String {
        let absent: Vec<u32> = (0..self.size).filter(|rank| !self.peers.contains_key(rank)).collect();
        // A hundred names would hide the number.
        let named = absent.iter().take(8).map(|rank| self.planned(*rank)).collect::<Vec<_>>().join(", ");
        let more = if absent.len() > 8 { ", ..." } else { "" };
        format!(
            "{} of {} ranks came within {:.0} s; missing: {named}{more}",
            self.peers.len(),
            self.size,
            self.options.join_deadline.as_secs_f64()
        )
    }
}
