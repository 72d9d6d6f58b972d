//! A junction at work: its rules, and whether its origin answers at the moment.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use origin::Reference;
use tokio::sync::watch;
use tracing::{info, warn};
use types::{Error, FileId, FsStat, JunctionId, OutageReason, Result};

use crate::config::{Freshness, Junction, JunctionRules};
use crate::freshness::{self, Ask};
use crate::guard::OriginGuard;
use crate::limits::KnownLimits;
use crate::store::Store;

/// While the origin fails, questions that can be answered from old knowledge do not wait for it; it is asked
/// again in the background at this interval at most.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// How long the room at the origin is believed.
const STATFS_TTL: Duration = Duration::from_secs(5);

pub struct Grafted {
    pub id: JunctionId,
    /// Its origin is the `guard`.
    pub rules: Junction,
    pub guard: Arc<OriginGuard>,
    /// Id of its root directory: fixed, so that it exists before the origin was ever reached.
    pub root: FileId,
    /// Knowledge from before this moment counts in an outage only.
    pub trusted_from_ms: u64,
    /// Shared with the junction that takes this one's place under other rules.
    condition: Arc<OriginCondition>,
    pub limits: Arc<KnownLimits>,
}

/// Whether the origin answers, and what it said last of its room.
#[derive(Default)]
struct OriginCondition {
    /// When the running outage began; 0 = the origin answers.
    failing_since_ms: AtomicU64,
    probed_ms: AtomicU64,
    /// Notified when an outage is over.
    recovered: watch::Sender<()>,
    last_error: Mutex<Option<(OutageReason, String)>>,
    room: Mutex<Option<(std::time::Instant, FsStat)>>,
}

/// One junction for `status`.
#[derive(Clone, Debug)]
pub struct JunctionStatus {
    pub id: JunctionId,
    pub path: String,
    pub url: String,
    pub files: String,
    pub directories: String,
    /// See [`origin::OriginTraits::commits_whole_files`].
    pub whole_files: bool,
    /// Why the origin cannot be used at the moment.
    pub outage: Option<Outage>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    pub reason: OutageReason,
    /// Milliseconds since it began.
    pub since_ms: u64,
    /// The last error.
    pub error: String,
}

impl Grafted {
    /// `started_ms`: if changes of ours may be missing in what was known before.
    pub fn new(
        id: JunctionId,
        mut rules: Junction,
        started_ms: Option<u64>,
        store: &Arc<Store>,
    ) -> Result<Grafted> {
        let trusted_from_ms = started_ms.filter(|_| rules.changes).unwrap_or(0);
        let root = FileId::derive(id, b"\0junction root");
        let guard = OriginGuard::new(rules.origin.clone(), store.clone(), &rules.path, id, root)?;
        rules.origin = guard.clone();
        let limits = KnownLimits::new(guard.clone(), store, id)?;
        Ok(Grafted {
            id,
            rules,
            guard,
            trusted_from_ms,
            root,
            condition: Arc::default(),
            limits: Arc::new(limits),
        })
    }

    /// The same junction under other rules.
    pub fn under(&self, rules: JunctionRules) -> Grafted {
        Grafted {
            rules: self.rules.with(rules),
            guard: self.guard.clone(),
            condition: self.condition.clone(),
            limits: self.limits.clone(),
            ..*self
        }
    }

    /// Whether knowledge from `at_ms` may answer a question for this use.
    pub fn is_fresh(&self, rule: Freshness, ask: Ask, at_ms: u64, now_ms: u64) -> bool {
        at_ms >= self.trusted_from_ms && freshness::is_fresh(rule, ask, at_ms, now_ms)
    }

    /// Changes with each end of an outage.
    pub fn recoveries(&self) -> watch::Receiver<()> {
        self.condition.recovered.subscribe()
    }

    pub fn is_failing(&self) -> bool {
        self.condition.failing_since_ms.load(Ordering::Relaxed) != 0
    }

    /// Note how a call to the origin went, and pass its result on. Only errors that say "not reachable"
    /// count as an outage.
    pub fn note<T>(&self, result: Result<T>, now_ms: u64) -> Result<T> {
        match &result {
            Err(e) if let Some(reason) = e.outage_reason() => self.note_failure(reason, e, now_ms),
            _ => {
                if self.condition.failing_since_ms.swap(0, Ordering::Relaxed) != 0 {
                    self.limits.expire();
                    self.condition.recovered.send_replace(());
                    info!(junction = %self.rules.path, "the origin answers again");
                }
            }
        }
        result
    }

    fn note_failure(&self, reason: OutageReason, error: &Error, now_ms: u64) {
        self.condition.probed_ms.store(now_ms, Ordering::Relaxed);
        let mut is_new = false;
        if let Ok(mut last) = self.condition.last_error.lock() {
            is_new = last.as_ref().is_none_or(|(before, _)| *before != reason);
            *last = Some((reason, error.to_string()));
        }
        let first = self
            .condition
            .failing_since_ms
            .compare_exchange(0, now_ms, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        if first || is_new {
            let reason = reason.name();
            warn!(junction = %self.rules.path, reason, "the origin cannot be used; cached data is served on: {error}");
        }
    }

    /// May this caller ask the failing origin once more, in the background?
    pub fn may_probe(&self, now_ms: u64) -> bool {
        let last = self.condition.probed_ms.load(Ordering::Relaxed);
        // A time in the future: the clock was set back since.
        let due = last > now_ms || u128::from(now_ms.saturating_sub(last)) >= PROBE_INTERVAL.as_millis();
        due && self
            .condition
            .probed_ms
            .compare_exchange(last, now_ms, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    pub fn status(&self, now_ms: u64) -> JunctionStatus {
        let since = self.condition.failing_since_ms.load(Ordering::Relaxed);
        let (reason, error) =
            self.condition.last_error.lock().ok().and_then(|e| e.clone()).unwrap_or_default();
        let since_ms = now_ms.saturating_sub(since);
        JunctionStatus {
            id: self.id,
            path: self.rules.path.clone(),
            url: self.rules.origin.url(),
            files: self.rules.files.to_string(),
            directories: self.rules.directories.to_string(),
            whole_files: self.rules.origin.traits().commits_whole_files,
            outage: (since != 0).then_some(Outage { reason, since_ms, error }),
        }
    }

    pub async fn statfs(&self, reference: &Reference) -> Result<FsStat> {
        let known = self.condition.room.lock().ok().and_then(|room| *room);
        if let Some((at, room)) = known
            && (at.elapsed() < STATFS_TTL || self.is_failing())
        {
            return Ok(room);
        }
        let room = self.rules.origin.statfs(reference).await?;
        if let Ok(mut known) = self.condition.room.lock() {
            *known = Some((std::time::Instant::now(), room));
        }
        Ok(room)
    }
}

#[cfg(test)]
mod tests {
    use types::ErrorKind;

    use super::*;

    #[test]
    fn a_failing_origin_is_probed_once_a_second_also_after_the_clock_was_set_back() {
        let junction = Junction::new("/", origin::memory::MemoryOrigin::new());
        let dir = tempfile::tempdir().expect("a directory for the test");
        let store = Arc::new(Store::open(dir.path(), 1 << 20).expect("opens"));
        let junction = Grafted::new(JunctionId(1), junction, None, &store).expect("grafted");
        let down = || Err::<(), _>(Error::new(ErrorKind::Unavailable, "ask", "an origin that is away"));
        let _ = junction.note(down(), 100_000);
        assert!(junction.is_failing());
        assert!(!junction.may_probe(100_900));
        assert!(junction.may_probe(101_000));
        assert!(!junction.may_probe(101_001), "somebody does already");
        assert!(junction.may_probe(50_000));
        assert!(!junction.may_probe(50_001));
        let _ = junction.note(Ok(()), 50_002);
        assert!(!junction.is_failing());
        let silence = Error::doubtful("create", "x", down().expect_err("down"));
        let _ = junction.note(Err::<(), _>(silence), 50_003);
        assert!(junction.is_failing(), "a change that nobody answered");
        let refusal = Error::doubtful("create", "x", Error::new(ErrorKind::Exists, "create", "x"));
        let _ = junction.note(Err::<(), _>(refusal), 50_004);
        assert!(!junction.is_failing(), "a refusal is an answer");
    }
}
