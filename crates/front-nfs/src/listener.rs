//! Accepting connections, and draining them at the end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tracing::{debug, warn};
use types::{Error, ErrorKind, Result};
use vfs::Vfs;

use crate::budget::Budget;
use crate::changing::Changes;
use crate::connection::CALL_BYTES_MAX;
use crate::handle::HandleCodec;
use crate::metrics::Metrics;
use crate::mount::MountList;
use crate::{Config, READ_MAX, Shared, connection};

/// After a failed accept (no descriptors left), wait before the next: others may close theirs.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub struct NfsServer {
    listener: TcpListener,
    shared: Arc<Shared>,
}

impl NfsServer {
    pub async fn bind(config: Config, vfs: Arc<Vfs>) -> Result<NfsServer> {
        let listener = TcpListener::bind(config.listen).await.map_err(|e| {
            let message = format!("on {}: {e}; choose another address with --nfs", config.listen);
            Error::new(ErrorKind::Config, "listen for NFS", message)
        })?;
        let shared = Arc::new(Shared {
            vfs,
            handles: HandleCodec::new(config.handle_key),
            mounts: MountList::default(),
            metrics: Metrics::default(),
            reply_budget: Budget::new(config.reply_bytes_max, READ_MAX as usize),
            call_budget: Budget::new(config.call_bytes_max, CALL_BYTES_MAX),
            changes: Changes::default(),
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

    /// Number of open connections, kept current.
    pub fn connections(&self) -> impl Fn() -> i64 + Send + Sync + 'static {
        let gauge = self.shared.metrics.connections.clone();
        move || gauge.get()
    }

    /// Serve until `stop` is true; then answer what was asked and return.
    pub async fn serve(self, mut stop: watch::Receiver<bool>) {
        let room = Arc::new(Semaphore::new(self.shared.config.connections_max));
        let all = u32::try_from(self.shared.config.connections_max).unwrap_or(u32::MAX);
        loop {
            let permit = room.clone().acquire_owned().await.expect("the semaphore is never closed");
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            match accepted {
                Ok((stream, peer)) => {
                    prepare(&stream);
                    let (shared, stop) = (self.shared.clone(), stop.clone());
                    tokio::spawn(async move {
                        shared.metrics.connections.inc();
                        connection::run(shared.clone(), stream, peer, stop).await;
                        shared.metrics.connections.dec();
                        debug!(%peer, "connection closed");
                        drop(permit);
                    });
                }
                Err(e) => {
                    warn!("accept a connection: {e}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(self.listener);
        let _drained = room.acquire_many(all).await;
    }
}

fn prepare(stream: &TcpStream) {
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(15));
    let socket = SockRef::from(stream);
    if let Err(e) = socket.set_tcp_nodelay(true).and_then(|()| socket.set_tcp_keepalive(&keepalive)) {
        debug!("set socket options: {e}");
    }
}
