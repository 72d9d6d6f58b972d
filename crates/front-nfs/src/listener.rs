//! The TCP listener: it accepts connections, gives each a slot, and drains them at the end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fair::{ConnectionSlot, ConnectionSlots, Offence, SlotAdmission, SlotGroup, SlotLimits};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{mpsc, watch};
use tracing::{debug, warn};
use types::{Error, ErrorKind, Result};
use vfs::Vfs;

use crate::change_calls::ChangeTracker;
use crate::handle::HandleCodec;
use crate::metrics::Metrics;
use crate::mount::MountList;
use crate::{Config, FRONT, NfsState, connection};

/// The pause after a failed accept (no descriptors left): other tasks may close theirs meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: u32 = 1024;

/// The port of a server that is not there yet, and who connects to it is refused. Another server that listens there is found out at once,
/// one that has only bound the port, too, when the first of them listens.
pub struct NfsPort {
    socket: TcpSocket,
    wanted: SocketAddr,
}

impl NfsPort {
    pub fn bind(wanted: SocketAddr) -> Result<NfsPort> {
        let bound = match wanted {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        };
        let bound = bound.and_then(|socket| {
            socket.set_reuseaddr(true)?;
            socket.bind(wanted)?;
            Ok(socket)
        });
        bound.map(|socket| NfsPort { socket, wanted }).map_err(|e| is_taken(wanted, e))
    }

    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.socket.local_addr().map_err(|e| Error::io("ask for the address of", "the NFS port", e))
    }
}

fn is_taken(wanted: SocketAddr, error: std::io::Error) -> Error {
    let message = format!("on {wanted} (choose another address with --nfs)");
    Error::new(ErrorKind::Busy, "listen for NFS", message).with_source(error)
}

pub struct NfsServer {
    listener: TcpListener,
    shared: Arc<NfsState>,
}

impl NfsServer {
    pub async fn bind(config: Config, vfs: Arc<Vfs>) -> Result<NfsServer> {
        let port = NfsPort::bind(config.listen)?;
        NfsServer::open(port, config, vfs)
    }

    /// At a port that was bound before. Must be called inside of a runtime.
    pub fn open(port: NfsPort, config: Config, vfs: Arc<Vfs>) -> Result<NfsServer> {
        let NfsPort { socket, wanted } = port;
        let listener = socket.listen(BACKLOG).map_err(|e| is_taken(wanted, e))?;
        let shared = Arc::new(NfsState {
            vfs,
            handles: HandleCodec::new(config.handle_key, config.own_handle_key),
            mounts: MountList::default(),
            metrics: Metrics::default(),
            slots: ConnectionSlots::new(limits(&config)),
            changes: ChangeTracker::default(),
            config,
        });
        Ok(NfsServer { listener, shared })
    }

    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(|e| Error::io("ask for the address of", "the NFS listener", e))
    }

    pub fn register(&self, registry: &mut prometheus_client::registry::Registry) {
        self.shared.metrics.register(registry);
    }

    /// The number of open connections, kept current.
    pub fn connections(&self) -> impl Fn() -> i64 + Send + Sync + 'static {
        let gauge = self.shared.metrics.connections.clone();
        move || gauge.get()
    }

    /// Serves until `stop` is true; then answers the calls that have arrived, and returns.
    pub async fn serve(self, mut stop: watch::Receiver<bool>) {
        // Each connection holds a sender: when the channel is closed, no connection is left.
        let (open, mut drained) = mpsc::channel::<()>(1);
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let Some((slot, is_admitted)) = self.admit(peer) else { continue };
                    socket_options::for_client(&stream);
                    let (shared, stop, open) = (self.shared.clone(), stop.clone(), open.clone());
                    tokio::spawn(async move {
                        shared.metrics.connections.inc();
                        if is_admitted {
                            connection::run(shared.clone(), stream, peer, &slot, stop).await;
                        } else {
                            connection::refuse(shared.clone(), stream, peer, &slot).await;
                        }
                        shared.metrics.connections.dec();
                        debug!(%peer, "connection closed");
                        drop((slot, open));
                    });
                }
                Err(e) => {
                    warn!("accept a connection: {e}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop((self.listener, open));
        let _all_gone = drained.recv().await;
    }

    /// The connection's slot, and whether any export rule admits the client. `None`: the connection is closed at
    /// once.
    fn admit(&self, peer: SocketAddr) -> Option<(ConnectionSlot, bool)> {
        let export = self.shared.config.exports.group_of(peer);
        let offenders = &self.shared.config.shared_budgets.offenders;
        if export.is_none() {
            offenders.record(FRONT, peer.ip(), Offence::NotAdmitted);
        }
        let group = group(&self.shared.config, export);
        match self.shared.slots.admit(peer.ip(), Some(group)) {
            SlotAdmission::Taken { slot, closed } => {
                if let Some(client) = closed.filter(|_| export.is_some()) {
                    offenders.record(FRONT, client, Offence::TooManyConnections);
                }
                Some((slot, export.is_some()))
            }
            SlotAdmission::Refused => {
                offenders.record(FRONT, peer.ip(), Offence::TooManyConnections);
                None
            }
        }
    }
}

/// The slot group of clients that no rule admits; every export rule is a group, too.
const STRANGERS: u64 = 0;

fn limits(config: &Config) -> SlotLimits {
    SlotLimits { all: config.connections_max.max(1), client: config.connections_per_client.max(1) }
}

/// The group that bounds the number of connections. With several export rules, the clients of one cannot take all
/// connections.
fn group(config: &Config, export: Option<u64>) -> SlotGroup {
    let all = config.connections_max.max(1);
    match export {
        None => SlotGroup { id: STRANGERS, max: config.strangers_max.clamp(1, all) },
        Some(id) if config.exports.count() > 1 => SlotGroup { id, max: all - all / 4 },
        Some(id) => SlotGroup { id, max: all },
    }
}
