//! A TCP relay that makes a near server far: each direction is delayed by half the round trip, everything stays
//! pipelined, and all connections share one bandwidth. Needs no privileges.
//!
//! A relay is a thread with a runtime of its own: a busy load generator beside it must not make the line longer. What it
//! cannot do without privileges is to delay the handshake itself: `connect` returns at once, and the round trip that
//! opening costs is taken before the first byte moves.
//!
//! Start with `connection.rs` (the life of a connection), then `carry.rs` (one direction).

mod bucket;
mod carry;
mod clock;
mod config;
mod connection;
mod jitter;
mod line;
mod measure;
mod window;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::oneshot;
use types::{Error, Result};

pub use clock::RelayClock;
pub use config::{Config, Drops, Profile};
pub use jitter::SplitMix;
pub use line::Counts;
pub use measure::{
    LineMeasurement, RoundTrips, calibrate, measure_echo, measure_http, measure_null,
    null_on_a_new_connection,
};

use line::{Cuts, LineCounters, RelayLine};

/// What the names of a relay's threads begin with: whoever counts what a process costs knows them by it.
pub const THREADS: &str = "relay";

/// A running relay. Dropping it closes its port and cuts its connections.
pub struct Relay {
    address: SocketAddr,
    to: SocketAddr,
    config: Config,
    counters: Arc<LineCounters>,
    cuts: Arc<Cuts>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Listens on `listen` (port 0: any that is free) and relays to `to` from now on.
    pub fn bind(listen: SocketAddr, to: SocketAddr, config: Config) -> Result<Relay> {
        config.check()?;
        let listening = |e| Error::io("listen for the relay on", listen, e);
        let listener = TcpListener::bind(listen).map_err(listening)?;
        listener.set_nonblocking(true).map_err(listening)?;
        // Accepted connections inherit it.
        if let Some(bytes) = config.receive_buffer() {
            rustix::net::sockopt::set_socket_recv_buffer_size(&listener, bytes)
                .map_err(|e| listening(e.into()))?;
        }
        let address = listener.local_addr().map_err(listening)?;
        let (counters, cuts) = (Arc::new(LineCounters::default()), Arc::new(Cuts::default()));
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Error::io("start a runtime for", "the relay", e))?;
        let line = {
            let _inside = runtime.enter();
            RelayLine::new(config.clone(), Arc::clone(&counters), Arc::clone(&cuts))
                .map_err(|e| Error::io("make a timer for", "the relay", e))?
        };
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(listening)?
        };
        let thread = std::thread::Builder::new()
            .name(THREADS.to_owned())
            .spawn(move || runtime.block_on(run(listener, to, Arc::new(line), stopped)))
            .map_err(|e| Error::io("start a thread for", "the relay", e))?;
        Ok(Relay { address, to, config, counters, cuts, stop: Some(stop), thread: Some(thread) })
    }

    /// Where to connect.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Where it leads.
    pub fn target(&self) -> SocketAddr {
        self.to
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Cuts all connections now, and says how many there were. New ones are accepted.
    pub fn drop_connections(&self) -> usize {
        self.cuts.cut_all()
    }

    pub fn counts(&self) -> Counts {
        self.counters.read(self.cuts.len())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It waits for nothing but the end of its current step.
            let _ = thread.join();
        }
    }
}

/// Until the handle is dropped; connections end with the runtime.
async fn run(
    listener: tokio::net::TcpListener,
    to: SocketAddr,
    line: Arc<RelayLine>,
    stopped: oneshot::Receiver<()>,
) {
    let clock = Arc::clone(&line.clock);
    tokio::select! {
        _ = stopped => {}
        () = connection::accept(listener, to, Arc::clone(&line)) => {}
        () = connection::disturb(&line) => {}
        ended = clock.run() => {
            if let Err(error) = ended {
                tracing::error!("the relay's timer failed: {error}");
            }
        }
    }
}
