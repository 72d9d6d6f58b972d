//! Tries again what may succeed later (`is_retryable`), until a deadline. A try under way is not cut short, because a slow
//! answer is worth more than a new question: each origin bounds its own calls.
//!
//! A change of unknown outcome is not tried again unless that makes no difference: what came of it is looked at
//! (`reconcile.rs`).

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use types::{Error, ErrorKind, OutageReason, Result, Timestamp};

use crate::reconcile::{Reconciled, TraceSeen, judge, look};
use crate::{
    CallClass, Change, Changed, DirCursor, Layer, Object, Origin, OriginAnswer, OriginCall, OriginIdentity,
    Sending,
};

#[derive(Clone, Copy, Debug)]
pub struct RetryConfig {
    /// From the first try. After it the error is passed on: a front then says "try again later" to its client,
    /// which must not wait for an answer longer than it would wait before sending the call again.
    pub deadline: Duration,
    /// Pause after the first failure; doubles with each.
    pub pause_first: Duration,
    /// Longest pause.
    pub pause_max: Duration,
    /// What became of a change is looked at for so long, from when it was in doubt: nobody can be told "try again later"
    /// of what may have been made.
    pub doubt_deadline: Duration,
}

impl Default for RetryConfig {
    fn default() -> RetryConfig {
        RetryConfig {
            deadline: Duration::from_secs(5),
            pause_first: Duration::from_millis(50),
            pause_max: Duration::from_secs(1),
            doubt_deadline: Duration::from_secs(300),
        }
    }
}

pub struct Retry {
    inner: Arc<dyn Origin>,
    config: RetryConfig,
    /// The latest ctime in any answer: the origin's clock was there already.
    heard: Mutex<Option<Timestamp>>,
    /// Which storage it said to be when it was asked last.
    identity: Mutex<Option<OriginIdentity>>,
}

impl Retry {
    pub fn new(inner: Arc<dyn Origin>, config: RetryConfig) -> Arc<Retry> {
        Arc::new(Retry { inner, config, heard: Mutex::default(), identity: Mutex::default() })
    }

    async fn run<T, F: Future<Output = Result<T>>>(&self, call: impl Fn() -> F) -> Result<T> {
        let mut patience = RetryDeadline::new(&self.config);
        loop {
            match call().await {
                Err(e) if may_pass_soon(&e) && patience.pause(&e).await => {}
                result => return result,
            }
        }
    }

    /// The same for what changes something: what failed is not sent to another storage.
    async fn run_change<T, F: Future<Output = Result<T>>>(&self, call: impl Fn() -> F) -> Result<T> {
        let (mut patience, same) = (RetryDeadline::new(&self.config), self.same_storage());
        let mut result = call().await;
        loop {
            match result {
                Err(e) if may_pass_soon(&e) && patience.pause(&e).await => {
                    result = match same.after(&e).await {
                        Ok(()) => call().await,
                        Err(another) => Err(another),
                    }
                }
                result => return result,
            }
        }
    }

    fn same_storage(&self) -> SameStorage<'_> {
        let identity = self.identity.lock().unwrap_or_else(PoisonError::into_inner).clone();
        SameStorage { inner: self.inner.as_ref(), identity }
    }
}

/// What the storage said to be before a change was sent first. While nobody hears of it, a server may come back with
/// another storage: a change is not tried again there, and what is seen there says nothing about what became of it.
struct SameStorage<'a> {
    inner: &'a dyn Origin,
    identity: Option<OriginIdentity>,
}

impl SameStorage<'_> {
    /// It costs a question, and so it is asked after a failure behind which there may be another storage.
    async fn after(&self, error: &Error) -> Result<()> {
        if error.kind() == ErrorKind::Busy { Ok(()) } else { self.is_there().await }
    }

    async fn is_there(&self) -> Result<()> {
        let Some(expected) = &self.identity else { return Ok(()) };
        let found = self.inner.identity().await.map_err(|e| match e.outage_reason() {
            Some(_) => e,
            None => Error::new(ErrorKind::Unavailable, "identify", self.inner.url()).with_source(e),
        })?;
        if expected.may_be(&found) {
            return Ok(());
        }
        let context = format!(
            "{}: the origin was replaced while a change was under way: expected {}; found {}",
            self.inner.url(),
            expected.shown,
            found.shown
        );
        Err(Error::outage(OutageReason::Replaced, "try again at", context))
    }
}

/// How long it is tried, and the pauses between.
struct RetryDeadline {
    deadline: Instant,
    pause: Duration,
    pause_max: Duration,
}

impl RetryDeadline {
    fn new(config: &RetryConfig) -> RetryDeadline {
        let RetryConfig { deadline, pause_first, pause_max, .. } = *config;
        RetryDeadline { deadline: Instant::now() + deadline, pause: pause_first, pause_max }
    }

    /// False, at once, if there is no time for another try.
    async fn pause(&mut self, error: &Error) -> bool {
        if Instant::now() + self.pause >= self.deadline {
            return false;
        }
        tracing::debug!("trying again in {:?}: {error}", self.pause);
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(self.pause_max);
        true
    }
}

impl Retry {
    fn hear(&self, object: &Object) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        *heard = (*heard).max(Some(object.attr.ctime));
    }

    fn heard(&self) -> Option<Timestamp> {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What became of a change. An outage is waited out.
    async fn verdict(&self, change: &Change, heard: Option<Timestamp>, same: &SameStorage<'_>) -> Reconciled {
        if change.is_repeatable() {
            return judge(change, heard, TraceSeen::Nowhere);
        }
        let config = RetryConfig { deadline: self.config.doubt_deadline, ..self.config };
        let mut patience = RetryDeadline::new(&config);
        loop {
            let seen = match look(self, change).await {
                // What answers after it was the right one when it answered.
                Ok(seen) => same.is_there().await.map(|()| seen),
                Err(error) => Err(error),
            };
            match seen {
                Ok(seen) => return judge(change, heard, seen),
                Err(error) if may_pass_soon(&error) && patience.pause(&error).await => {}
                Err(error) => {
                    tracing::debug!("cannot look what became of a {}: {error}", change.kind());
                    return Reconciled::Unknown;
                }
            }
        }
    }
}

impl Layer for Retry {
    fn inner(&self) -> &dyn Origin {
        self.inner.as_ref()
    }

    async fn around<'a, A: OriginAnswer + 'a>(
        &'a self,
        call: OriginCall<'a>,
        send: impl Fn() -> Sending<'a, A> + Send + Sync + 'a,
    ) -> Result<A> {
        let answer = match (call.class(), call) {
            // Only the first piece: when a listing breaks in the middle, it is for the caller to begin again.
            (_, OriginCall::Readdir { cursor, .. }) if cursor != DirCursor::default() => send().await,
            (CallClass::Local, _) => send().await,
            (CallClass::Metadata | CallClass::Read, _) => self.run(send).await,
            (CallClass::Write, _) => self.run_change(send).await,
        };
        answer.inspect(|answer| answer.object().into_iter().for_each(|object| self.hear(object)))
    }

    async fn around_identity(&self) -> Result<OriginIdentity> {
        let identity = self.run(|| self.inner.identity()).await?;
        *self.identity.lock().unwrap_or_else(PoisonError::into_inner) = Some(identity.clone());
        Ok(identity)
    }

    async fn around_change(&self, change: &Change) -> Result<Changed> {
        let (heard, same) = (self.heard(), self.same_storage());
        let mut patience = RetryDeadline::new(&self.config);
        let (mut doubt, mut failed) = (false, None);
        loop {
            let may_send = match &failed {
                Some(failed) => same.after(failed).await,
                None => Ok(()),
            };
            let answer = match may_send {
                Ok(()) => self.inner.change(change).await,
                Err(error) => Err(error),
            };
            let error = match answer {
                Ok(changed) => {
                    changed.object.iter().for_each(|object| self.hear(object));
                    return Ok(if doubt { changed.perhaps_again() } else { changed });
                }
                Err(error) => error,
            };
            failed = Some(error.clone());
            if may_pass_soon(&error) && patience.pause(&error).await {
                continue;
            }
            // Once it may have been made, a refusal may speak of its own traces.
            doubt |= error.kind() == ErrorKind::OutcomeUnknown;
            if !doubt {
                return Err(error);
            }
            match self.verdict(change, heard, &same).await {
                Reconciled::Done(object) => {
                    return Ok(Changed { object, resent: true, ..Changed::default() });
                }
                Reconciled::Again if may_pass(&error) && patience.pause(&error).await => {}
                Reconciled::Again => return Err(error),
                Reconciled::Unknown if error.kind() == ErrorKind::OutcomeUnknown => return Err(error),
                Reconciled::Unknown => return Err(Error::doubtful(change.kind(), self.url(), error)),
            }
        }
    }
}

/// Another storage does not become the right one while somebody waits.
fn may_pass_soon(error: &Error) -> bool {
    error.is_retryable() && error.outage_reason() != Some(OutageReason::Replaced)
}

/// Whether asking again may have another answer.
fn may_pass(error: &Error) -> bool {
    error.is_retryable() || error.kind() == ErrorKind::OutcomeUnknown
}
