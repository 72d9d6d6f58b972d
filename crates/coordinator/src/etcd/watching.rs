//! One watch, kept going: opened anew when its stream ends, begun anew when what is between is gone.
//!
//! Before a stream is followed the task makes sure that etcd still has the history that the consumer was told: what was below
//! the prefix at the last revision that was told must look as it did ([`Fingerprint`]). If that revision is compacted, or of
//! the future (etcd was restored from a backup, or wiped), or looks otherwise, the prefix is read and the consumer gets a reset.
//! The check comes behind the opening of the stream: a restored etcd is another process, so the stream cannot outlive it.
//! What the check cannot tell: that a restored etcd has overtaken what was told and was compacted beyond it before the watch
//! came back. The reset is as complete as any then, and does not say that etcd went back.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{
    Event, GetOptions, SortOrder, SortTarget, WatchOptions, WatchRequestSender, WatchResponse,
    WatchResponseStream,
};
use tokio::sync::mpsc;
use tokio::time::Instant;
use types::Result;

use super::EtcdShared;
use super::endpoints::error_of;
use super::failure::{EtcdFailure, MissingRevision};
use super::reading::{Fingerprint, MAX_ANSWER, get, known_revision, prefix_end, wire_revision};
use crate::{KeyChange, KeyWatch, Revision, WatchEvent};

/// Between two attempts while nothing answers: twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(2);

pub fn start(shared: Arc<EtcdShared>, prefix: &str, behind: Option<Revision>) -> KeyWatch {
    let (told, watch) = KeyWatch::channel();
    let known = match behind {
        None | Some(Revision(0)) => WatchKnown::Nothing,
        Some(at) => WatchKnown::Fresh(at),
    };
    let last = behind.unwrap_or_default();
    let task = WatchTask { shared, prefix: prefix.to_owned(), told, known, last };
    tokio::spawn(task.run());
    watch
}

struct WatchTask {
    shared: Arc<EtcdShared>,
    prefix: String,
    told: mpsc::Sender<WatchEvent>,
    known: WatchKnown,
    /// The newest revision that the consumer has heard of.
    last: Revision,
}

/// What the consumer has, and how it would be known again.
#[derive(Clone, Debug)]
enum WatchKnown {
    /// The next thing that it is told is a reset.
    Nothing,
    /// The state at this revision, which it has read itself. It is looked at when the first stream is open.
    Fresh(Revision),
    /// The state at this revision, and its fingerprint.
    Followed {
        at: Revision,
        print: Fingerprint,
        /// The last thing that was told is that this key is gone. Then nobody knows which of the others is the newest, and that
        /// it went at that revision is looked at instead.
        deleted: Option<String>,
    },
}

enum Next {
    /// Open the watch again.
    Again,
    /// The consumer is gone.
    Ended,
}

impl WatchTask {
    async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let begun = Instant::now();
            let told = self.told.clone();
            let outcome = tokio::select! {
                () = told.closed() => return,
                outcome = self.follow() => outcome,
            };
            match outcome {
                Ok(Next::Ended) => return,
                Ok(Next::Again) => {}
                Err(error) => tracing::debug!(%error, "a watch is opened again"),
            }
            pause = if begun.elapsed() > LAST_PAUSE { FIRST_PAUSE } else { (pause * 2).min(LAST_PAUSE) };
            tokio::select! {
                () = told.closed() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Opens a stream at one server and hands on what comes, until it ends.
    async fn follow(&mut self) -> Result<Next> {
        let at = match self.known {
            WatchKnown::Nothing => match self.reset(false).await? {
                Some(at) => at,
                None => return Ok(Next::Ended),
            },
            WatchKnown::Fresh(at) | WatchKnown::Followed { at, .. } => at,
        };
        let index = self.shared.endpoints.preferred();
        let opened = self.open(index, at).await;
        let looked = match opened {
            Ok((sender, stream, first)) => self.look_at(at).await.map(|print| (sender, stream, first, print)),
            Err(failure) => Err(error_of("watch etcd", &self.shared.shown(&self.prefix), &[failure])),
        };
        let (sender, stream, first, print) = looked.inspect_err(|_| {
            // Nobody can say later whether that was the same history.
            if let WatchKnown::Fresh(_) = self.known {
                self.known = WatchKnown::Nothing;
            }
        })?;
        let went_back = match (&self.known, print) {
            (WatchKnown::Fresh(_), Ok(print)) => {
                self.known = WatchKnown::Followed { at, print, deleted: None };
                None
            }
            (WatchKnown::Followed { print: before, deleted: None, .. }, Ok(print)) => {
                (*before != print).then_some(true)
            }
            (WatchKnown::Followed { print: before, deleted: Some(key), .. }, Ok(print)) => {
                if before.keys != print.keys { Some(true) } else { self.missed_before(key, at).await? }
            }
            (_, Err(MissingRevision::OfTheFuture)) => Some(true),
            (WatchKnown::Nothing, Ok(_)) | (_, Err(MissingRevision::Compacted)) => Some(false),
        };
        if let Some(went_back) = went_back {
            return Ok(if self.reset(went_back).await?.is_some() { Next::Again } else { Next::Ended });
        }
        let ended = self.take_all(index, sender, stream, first).await;
        match ended {
            Ok(next) => Ok(next),
            Err(failure) => {
                self.shared.endpoints.leave(index).await;
                Err(error_of("watch etcd", &self.shared.shown(&self.prefix), &[failure]))
            }
        }
    }

    /// Reads the prefix and tells all of it. `None`: nobody listens.
    async fn reset(&mut self, went_back: bool) -> Result<Option<Revision>> {
        let (state, print) = self.shared.read(&self.prefix).await?;
        let at = state.revision;
        let went_back = went_back || at < self.last;
        if went_back {
            let (prefix, last) = (self.shared.shown(&self.prefix), self.last);
            tracing::warn!(prefix, %last, now = %at, "etcd has gone back: it was restored from a backup, or wiped");
        }
        if self.told.send(WatchEvent::Reset { state, went_back }).await.is_err() {
            return Ok(None);
        }
        self.known = WatchKnown::Followed { at, print, deleted: None };
        self.last = at;
        Ok(Some(at))
    }

    async fn open(
        &self,
        index: usize,
        behind: Revision,
    ) -> std::result::Result<(WatchRequestSender, WatchResponseStream, WatchResponse), EtcdFailure> {
        let key = self.shared.full(&self.prefix);
        let options = WatchOptions::new()
            .with_range(prefix_end(&key))
            .with_start_revision(wire_revision(Revision(behind.0.saturating_add(1))));
        let endpoints = &self.shared.endpoints;
        let opened = endpoints.attempt(index, endpoints.attempt, |client| async move {
            let mut client = client.watch_client().max_decoding_message_size(MAX_ANSWER);
            let (sender, mut stream) = client.watch(key, Some(options)).await?.split();
            let first = stream.message().await?;
            Ok((sender, stream, first))
        });
        let (sender, stream, first) = opened.await?;
        match first {
            Some(first) => Ok((sender, stream, first)),
            None => {
                endpoints.leave(index).await;
                Err(EtcdFailure::malformed(endpoints.url(index), "a watch that ended as it began"))
            }
        }
    }

    /// The fingerprint of the prefix as it was at this revision.
    async fn look_at(&self, at: Revision) -> Result<std::result::Result<Fingerprint, MissingRevision>> {
        let key = self.shared.full(&self.prefix);
        let answer = self.shared.endpoints.call(|client| {
            let options = GetOptions::new()
                .with_range(prefix_end(&key))
                .with_revision(wire_revision(at))
                .with_sort(SortTarget::Mod, SortOrder::Descend)
                .with_limit(1)
                .with_keys_only();
            get(client, key.clone(), options)
        });
        match answer.await {
            Ok(answer) => {
                let newest = answer.kvs().first().map_or(0, |kv| kv.mod_revision());
                Ok(Ok(Fingerprint { newest: known_revision(newest), keys: answer.count() }))
            }
            Err(failures) => match failures.last().and_then(|failure| failure.missing) {
                Some(missing) => Ok(Err(missing)),
                None => Err(error_of("watch etcd", &self.shared.shown(&self.prefix), &failures)),
            },
        }
    }

    /// Whether a key that went at this revision was not there just before: that was another history. `None`: it was.
    async fn missed_before(&self, key: &str, at: Revision) -> Result<Option<bool>> {
        match self.shared.look_at(key, Revision(at.0.saturating_sub(1))).await {
            Ok((Some(_), _)) => Ok(None),
            Ok((None, _)) => Ok(Some(true)),
            Err(failures) if failures.iter().any(|failure| failure.missing.is_some()) => Ok(Some(false)),
            Err(failures) => Err(error_of("watch etcd", &self.shared.shown(key), &failures)),
        }
    }

    /// Hands on what the stream brings. It has to bring something each pulse, if only the answer to whether it is alive.
    async fn take_all(
        &mut self,
        index: usize,
        mut sender: WatchRequestSender,
        mut stream: WatchResponseStream,
        first: WatchResponse,
    ) -> std::result::Result<Next, EtcdFailure> {
        let shared = self.shared.clone();
        let (pulse, patience) = (shared.config.pulse, shared.config.attempt);
        let server = shared.endpoints.url(index);
        let mut answer = first;
        loop {
            shared.endpoints.hear();
            if let Some(next) = self.take(server, &answer).await? {
                return Ok(next);
            }
            let mut asked = false;
            let mut due = Instant::now() + pulse;
            answer = loop {
                let message = tokio::time::timeout_at(due, stream.message());
                match message.await {
                    Ok(Ok(Some(answer))) => break answer,
                    Ok(Ok(None)) => return Err(EtcdFailure::malformed(server, "the watch ended")),
                    Ok(Err(error)) => return Err(EtcdFailure::new(server, &error)),
                    Err(_) if asked => return Err(EtcdFailure::silent(server, patience)),
                    Err(_) => {}
                }
                self.renew_fingerprint().await;
                asked = true;
                due = Instant::now() + patience;
                let sent = tokio::time::timeout_at(due, sender.request_progress()).await;
                match sent {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => return Err(EtcdFailure::new(server, &error)),
                    Err(_) => return Err(EtcdFailure::silent(server, patience)),
                }
            };
        }
    }

    /// Behind a deletion the fingerprint is not known. The next quiet moment is soon enough for it.
    async fn renew_fingerprint(&mut self) {
        if let WatchKnown::Followed { at, deleted: Some(_), .. } = self.known
            && let Ok(Ok(print)) = self.look_at(at).await
        {
            self.known = WatchKnown::Followed { at, print, deleted: None };
        }
    }

    /// `None`: the stream goes on.
    async fn take(
        &mut self,
        server: &str,
        answer: &WatchResponse,
    ) -> std::result::Result<Option<Next>, EtcdFailure> {
        let events = answer.events();
        let of_one_revision = |one: &Event, other: &Event| revision_of(one) == revision_of(other);
        for group in events.chunk_by(of_one_revision) {
            if !self.tell(group).await {
                return Ok(Some(Next::Ended));
            }
        }
        if answer.compact_revision() > 0 {
            self.known = WatchKnown::Nothing;
            return Ok(Some(Next::Again));
        }
        if answer.canceled() {
            let reason = format!("the watch was refused: {}", answer.cancel_reason());
            return Err(EtcdFailure::malformed(server, &reason));
        }
        Ok(None)
    }

    /// Events of one revision. `false`: nobody listens.
    async fn tell(&mut self, events: &[Event]) -> bool {
        let revision = events.first().map(revision_of).unwrap_or_default();
        let WatchKnown::Followed { at, mut print, .. } = self.known else { return true };
        if revision <= at {
            return true;
        }
        let mut changes = Vec::with_capacity(events.len());
        let mut deleted = None;
        for kv in events.iter().filter_map(Event::kv) {
            // A key that is there was put at least once since it was made.
            match kv.version() {
                0 => {
                    print.keys -= 1;
                    let key = self.shared.relative(kv.key());
                    deleted = key.clone().or(deleted);
                    changes.extend(key.map(|key| KeyChange::Deleted { key }));
                }
                version => {
                    print.keys += i64::from(version == 1);
                    print.newest = revision;
                    changes.extend(self.shared.entry(kv).map(KeyChange::Put));
                }
            }
        }
        let deleted = deleted.filter(|_| print.newest != revision);
        if !changes.is_empty() && self.told.send(WatchEvent::Changed { revision, changes }).await.is_err() {
            return false;
        }
        self.known = WatchKnown::Followed { at: revision, print, deleted };
        self.last = revision;
        true
    }
}

fn revision_of(event: &Event) -> Revision {
    event.kv().map(|kv| known_revision(kv.mod_revision())).unwrap_or_default()
}
