//! The connections of one path: so many in each lane, dialled on use and kept open for a while.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::client_config::PeerClientConfig;
use crate::lane::{CallLane, PerLane};
use crate::outbound::OutboundConnection;

#[derive(Debug)]
pub struct PathPool {
    lanes: PerLane<LaneConnections>,
}

/// The connections of one lane: a call holds a permit for as long as it uses one.
pub struct LaneConnections {
    pub permits: Semaphore,
    /// The one that was used last is used first, so that those beyond the need become idle.
    idle: Mutex<Vec<(Instant, OutboundConnection)>>,
}

impl std::fmt::Debug for LaneConnections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LaneConnections({} idle)", self.idle().len())
    }
}

impl PathPool {
    pub fn new(config: &PeerClientConfig) -> PathPool {
        let most = |lane| match lane {
            CallLane::Heartbeat => 1,
            CallLane::Small => config.small_connections.max(1),
            CallLane::Rank | CallLane::Primary | CallLane::Holder => config.bulk_connections.max(1),
        };
        PathPool {
            lanes: PerLane::new(|lane| LaneConnections {
                permits: Semaphore::new(most(lane)),
                idle: Mutex::default(),
            }),
        }
    }

    pub fn lane(&self, lane: CallLane) -> &LaneConnections {
        self.lanes.of(lane)
    }

    /// Closes the connections that nobody uses: the path has failed.
    pub fn close_idle(&self) {
        self.lanes.all().into_iter().for_each(|lane| lane.idle().clear());
    }
}

impl LaneConnections {
    /// A connection that is open as far as this end knows.
    pub fn take(&self, config: &PeerClientConfig) -> Option<OutboundConnection> {
        let mut idle = self.idle();
        idle.retain(|(since, connection)| since.elapsed() < config.idle_timeout && connection.is_open());
        idle.pop().map(|(_, connection)| connection)
    }

    pub fn keep(&self, connection: OutboundConnection) {
        if connection.is_open() {
            self.idle().push((Instant::now(), connection));
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Instant, OutboundConnection)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
