//! A connection whose other end must take what it is sent: one that takes nothing for too long, or ever so little, is
//! closed.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fair::{Offence, Waiting};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::peer::Peer;

pub struct Patient<T> {
    inner: T,
    peer: Arc<Peer>,
    waiting: Waiting,
}

impl<T> Patient<T> {
    pub fn new(inner: T, peer: Arc<Peer>, patience: Duration) -> Patient<T> {
        Patient { inner, peer, waiting: Waiting::new(patience) }
    }

    fn or_late<R>(&mut self, cx: &mut Context<'_>, outcome: Poll<Result<R>>) -> Poll<Result<R>> {
        if outcome.is_ready() {
            return outcome;
        }
        if self.waiting.poll_late(cx, self.peer.replies.is_pressed()).is_pending() {
            return Poll::Pending;
        }
        self.peer.offends(Offence::SlowReader);
        Poll::Ready(Err(Error::from(ErrorKind::TimedOut)))
    }

    fn written(&mut self, outcome: &Poll<Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = outcome {
            self.waiting.took(*bytes as u64);
        }
    }

    fn over(&mut self, outcome: &Poll<Result<()>>) {
        if outcome.is_ready() {
            self.waiting.over();
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Patient<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Patient<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.written(&outcome);
        self.or_late(cx, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.written(&outcome);
        self.or_late(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_flush(cx);
        self.over(&outcome);
        self.or_late(cx, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.or_late(cx, outcome)
    }
}
