//! A connection with a write timeout: a client that takes nothing for too long, or too little over time, is
//! disconnected.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fair::{Offence, StallTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::peer::S3Peer;

pub struct WriteTimeoutStream<T> {
    inner: T,
    peer: Arc<S3Peer>,
    waiting: StallTimer,
}

impl<T> WriteTimeoutStream<T> {
    pub fn new(inner: T, peer: Arc<S3Peer>, patience: Duration) -> WriteTimeoutStream<T> {
        WriteTimeoutStream { inner, peer, waiting: StallTimer::new(patience) }
    }

    fn or_timed_out<R>(&mut self, cx: &mut Context<'_>, outcome: Poll<Result<R>>) -> Poll<Result<R>> {
        if outcome.is_ready() {
            return outcome;
        }
        if self.waiting.poll_too_slow(cx, self.peer.replies.is_contended()).is_pending() {
            return Poll::Pending;
        }
        self.peer.record_offence(Offence::SlowReader);
        Poll::Ready(Err(Error::from(ErrorKind::TimedOut)))
    }

    fn written(&mut self, outcome: &Poll<Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = outcome {
            self.waiting.progressed(*bytes as u64);
        }
    }

    fn flushed(&mut self, outcome: &Poll<Result<()>>) {
        if outcome.is_ready() {
            self.waiting.restart();
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WriteTimeoutStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WriteTimeoutStream<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.written(&outcome);
        self.or_timed_out(cx, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.written(&outcome);
        self.or_timed_out(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_flush(cx);
        self.flushed(&outcome);
        self.or_timed_out(cx, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.or_timed_out(cx, outcome)
    }
}
