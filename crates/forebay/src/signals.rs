//! What signals ask for. They are taken from the first moment of a tier: one that comes while it starts must not end it.
//! SIGPIPE is ignored by the runtime library: an answer that nobody reads is an error of that answer.

use tokio::signal::unix::{Signal, SignalKind, signal};
use types::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalRequest {
    /// SIGTERM, SIGINT, or the end of standard input.
    End,
    /// SIGHUP.
    Reload,
    /// SIGUSR1.
    Tell,
}

#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    user: Signal,
    /// Says nothing to us, and would end the process if it were not taken.
    other: Signal,
}

impl Signals {
    pub fn take() -> Result<Signals> {
        let of = |kind| signal(kind).map_err(|e| Error::io("wait for", "signals", e));
        Ok(Signals {
            terminate: of(SignalKind::terminate())?,
            interrupt: of(SignalKind::interrupt())?,
            hangup: of(SignalKind::hangup())?,
            user: of(SignalKind::user_defined1())?,
            other: of(SignalKind::user_defined2())?,
        })
    }

    /// Waits until the tier is to end. What else was asked for waits for [`Signals::next`].
    pub async fn ended(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    pub async fn next(&mut self) -> SignalRequest {
        loop {
            return tokio::select! {
                _ = self.terminate.recv() => SignalRequest::End,
                _ = self.interrupt.recv() => SignalRequest::End,
                _ = self.hangup.recv() => SignalRequest::Reload,
                _ = self.user.recv() => SignalRequest::Tell,
                _ = self.other.recv() => continue,
            };
        }
    }
}
