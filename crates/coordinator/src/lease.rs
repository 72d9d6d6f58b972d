//! A lease as its holder has it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{oneshot, watch};
use types::{Error, ErrorKind, Result};

/// The longest lease that is asked for. etcd's own limit is 9,000,000,000 s.
const MAX_TTL: Duration = Duration::from_secs(86_400);

/// The length of a lease in whole seconds, as etcd counts. Refuses none at all and more than [`MAX_TTL`].
pub(crate) fn whole_seconds(ttl: Duration) -> Result<u32> {
    let seconds = u32::try_from(ttl.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
    if ttl.is_zero() || ttl > MAX_TTL {
        let context = format!("{ttl:?} is no length for one");
        return Err(Error::new(ErrorKind::InvalidArgument, "grant a lease", context));
    }
    Ok(seconds)
}

/// As etcd names it. Unique among all leases of one etcd.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(pub i64);

/// As `etcdctl` shows it.
impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease {:016x}", self.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// A keepalive was answered less than the lease's length ago.
    Held,
    /// None was: the lease may have ended, or etcd may be away and have it still. It is `Held` again if a later keepalive finds
    /// it alive.
    Doubtful,
    /// etcd says that there is no such lease, and its keys are gone. This is final.
    Lost,
}

/// A lease that is kept alive. Dropped, it is kept no longer, and ends by itself.
pub struct Lease {
    id: LeaseId,
    ttl: Duration,
    states: watch::Receiver<LeaseState>,
    keeper: Arc<dyn LeaseKeeper>,
    /// The task that keeps it ends with this.
    _stop: oneshot::Sender<()>,
}

/// What stands behind a lease: the task that keeps it alive, seen from its holder.
#[async_trait]
pub(crate) trait LeaseKeeper: Send + Sync {
    /// What is left of the lease, as far as the last keepalive that was answered reaches. Zero if nothing is.
    fn remaining(&self) -> Duration;

    async fn revoke(&self) -> Result<()>;
}

impl Lease {
    pub(crate) fn new(
        id: LeaseId,
        ttl: Duration,
        states: watch::Receiver<LeaseState>,
        keeper: Arc<dyn LeaseKeeper>,
        stop: oneshot::Sender<()>,
    ) -> Lease {
        Lease { id, ttl, states, keeper, _stop: stop }
    }

    /// For what is put under it.
    pub fn id(&self) -> LeaseId {
        self.id
    }

    /// As etcd granted it.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Tells when the state changes. Its sender is gone once the lease is lost or dropped.
    pub fn states(&self) -> watch::Receiver<LeaseState> {
        self.states.clone()
    }

    /// As the clock says now, which goes on while the machine sleeps: a process that was stopped learns from this, before any
    /// task has run, that its lease may have ended.
    pub fn state(&self) -> LeaseState {
        // Copied: the keeper may tell the next state while it is asked, under a lock of its own.
        let told = *self.states.borrow();
        match told {
            LeaseState::Held if self.keeper.remaining().is_zero() => LeaseState::Doubtful,
            state => state,
        }
    }

    /// How long the lease lasts at least, counted from when the last keepalive that was answered was sent. It is a hint: etcd may end
    /// a lease earlier.
    pub fn remaining(&self) -> Duration {
        let told = *self.states.borrow();
        match told {
            LeaseState::Lost => Duration::ZERO,
            _ => self.keeper.remaining(),
        }
    }

    /// Ends it, and removes its keys. After an error it is kept no longer, and ends by itself. One that has ended already is no
    /// error.
    pub async fn revoke(self) -> Result<()> {
        let Lease { keeper, _stop: stop, .. } = self;
        drop(stop);
        keeper.revoke().await
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({:?}, {:?} left)", self.id, self.state(), self.remaining())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Tells a state whenever it is asked.
    struct TellingKeeper(watch::Sender<LeaseState>);

    #[async_trait]
    impl LeaseKeeper for TellingKeeper {
        fn remaining(&self) -> Duration {
            self.0.send_replace(LeaseState::Lost);
            Duration::ZERO
        }

        async fn revoke(&self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_keeper_may_tell_a_state_while_it_is_asked_for_one() {
        let (told, states) = watch::channel(LeaseState::Held);
        let (stop, _stopped) = oneshot::channel();
        let keeper = Arc::new(TellingKeeper(told));
        let lease = Lease::new(LeaseId(1), Duration::from_secs(1), states, keeper, stop);
        let (answers, answered) = mpsc::sync_channel(1);
        std::thread::spawn(move || answers.send((lease.state(), lease.remaining())));
        let answer = answered.recv_timeout(Duration::from_secs(20)).expect("it waits for itself");
        assert_eq!(answer, (LeaseState::Doubtful, Duration::ZERO));
    }
}
