//! Leases: granted, kept alive each by a task of its own, revoked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{oneshot, watch};
use types::timeline::since_boot;
use types::{Error, ErrorKind, Result};

use super::EtcdShared;
use super::endpoints::error_of;
use super::failure::{EtcdFailure, RequestFate};
use crate::lease::{LeaseKeeper, whole_seconds};
use crate::{Lease, LeaseId, LeaseState};

/// Between two rounds of keepalives that nobody answered.
const PAUSE: Duration = Duration::from_millis(500);

pub async fn grant(shared: Arc<EtcdShared>, ttl: Duration) -> Result<Lease> {
    let seconds = i64::from(whole_seconds(ttl)?);
    let asked = since_boot();
    // One whose answer was lost is nobody's, and ends by itself.
    let granted =
        shared.endpoints.call(|client| async move { client.lease_client().grant(seconds, None).await });
    let granted = granted.await.map_err(|failures| error_of("grant a lease", &shared.root, &failures))?;
    let id = LeaseId(granted.id());
    let ttl = Duration::from_secs(u64::try_from(granted.ttl()).unwrap_or(0));
    if ttl.is_zero() {
        return Err(Error::new(ErrorKind::Corrupt, "grant a lease", "etcd granted one of no length"));
    }
    let (states_told, states) = watch::channel(LeaseState::Held);
    let (stop, stopped) = oneshot::channel();
    let until_ms = AtomicU64::new(millis(asked + ttl));
    let keeper = Arc::new(EtcdLease { shared, id, ttl, until_ms });
    tokio::spawn(keep(keeper.clone(), states_told, stopped));
    Ok(Lease::new(id, ttl, states, keeper, stop))
}

/// One lease, and until when its last keepalive reaches.
struct EtcdLease {
    shared: Arc<EtcdShared>,
    id: LeaseId,
    ttl: Duration,
    /// Since the machine booted. Counted from when the keepalive was sent: etcd cannot have begun earlier.
    until_ms: AtomicU64,
}

#[async_trait]
impl LeaseKeeper for EtcdLease {
    fn remaining(&self) -> Duration {
        let until = Duration::from_millis(self.until_ms.load(Ordering::Relaxed));
        until.saturating_sub(since_boot())
    }

    async fn revoke(&self) -> Result<()> {
        let id = self.id.0;
        let revoked =
            self.shared.endpoints.call(|client| async move { client.lease_client().revoke(id).await });
        match revoked.await {
            Ok(_) => Ok(()),
            Err(failures) if failures.iter().any(|failure| failure.kind == ErrorKind::NotFound) => Ok(()),
            Err(failures) => Err(error_of("revoke a lease", &format!("{:?}", self.id), &failures)),
        }
    }
}

enum KeepOutcome {
    Alive,
    Silence,
    /// etcd has no such lease.
    Gone,
}

async fn keep(lease: Arc<EtcdLease>, states: watch::Sender<LeaseState>, mut stopped: oneshot::Receiver<()>) {
    let tell = |state: LeaseState| {
        states.send_if_modified(|told| std::mem::replace(told, state) != state);
    };
    let mut pause = lease.ttl / 3;
    loop {
        let wait = pause;
        let round = async {
            tokio::time::sleep(wait).await;
            lease.keep_once().await
        };
        tokio::pin!(round);
        // The round goes on while the lease runs out.
        let kept = loop {
            let left = lease.remaining();
            if left.is_zero() {
                tell(LeaseState::Doubtful);
            }
            tokio::select! {
                _ = &mut stopped => return,
                kept = &mut round => break kept,
                () = tokio::time::sleep(left), if !left.is_zero() => {}
            }
        };
        pause = match kept {
            KeepOutcome::Alive => {
                tell(LeaseState::Held);
                lease.ttl / 3
            }
            KeepOutcome::Silence => PAUSE.min(lease.ttl / 6),
            KeepOutcome::Gone => {
                tracing::warn!(lease = ?lease.id, "etcd has ended a lease");
                return tell(LeaseState::Lost);
            }
        };
    }
}

impl EtcdLease {
    /// Each server once, with a deadline of a third of the lease's length, so that one that is stopped leaves time for another.
    async fn keep_once(&self) -> KeepOutcome {
        let (endpoints, id) = (&self.shared.endpoints, self.id.0);
        for index in endpoints.round() {
            let sent = since_boot();
            let kept = endpoints.attempt(index, self.ttl / 3, |client| async move {
                match client.lease_client().keep_alive(id).await {
                    Ok(_) => Ok(true),
                    // So it says that there is no such lease.
                    Err(etcd_client::Error::LeaseKeepAliveError(_)) => Ok(false),
                    Err(error) => Err(error),
                }
            });
            match kept.await {
                Ok(true) => {
                    self.until_ms.fetch_max(millis(sent + self.ttl), Ordering::Relaxed);
                    return KeepOutcome::Alive;
                }
                Ok(false) if self.is_gone(index).await => return KeepOutcome::Gone,
                Ok(false) => {}
                Err(failure) if failure.fate == RequestFate::Refused => {
                    tracing::debug!(%failure, "a keepalive was refused");
                }
                Err(_) => {}
            }
        }
        KeepOutcome::Silence
    }

    /// A leader that has just been elected may not have come to the entry that granted the lease: it is asked again behind a read
    /// that all of the servers stand behind.
    async fn is_gone(&self, index: usize) -> bool {
        let (endpoints, id) = (&self.shared.endpoints, self.id.0);
        let root = self.shared.root.clone();
        let asked = endpoints.attempt(index, self.ttl / 3, |client| async move {
            client.kv_client().get(root, None).await?;
            client.lease_client().time_to_live(id, None).await
        });
        let asked: std::result::Result<_, EtcdFailure> = asked.await;
        match asked {
            Ok(answer) => answer.ttl() <= 0,
            Err(failure) => failure.kind == ErrorKind::NotFound,
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
