//! A connection with a write timeout: a client that takes nothing for too long, or too little over time, is
//! disconnected.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::StallTimer;

/// What a connection with a write timeout has to know of the client at its other end.
pub trait AnswerReader {
    /// Whether others wait for memory that this client holds.
    fn is_contended(&self) -> bool;

    /// Records that the client did not take its answers in time; the connection ends.
    fn record_slow(&self);
}

impl<R: AnswerReader + ?Sized> AnswerReader for Arc<R> {
    fn is_contended(&self) -> bool {
        (**self).is_contended()
    }

    fn record_slow(&self) {
        (**self).record_slow();
    }
}

pub struct WriteTimeoutStream<T, R> {
    inner: T,
    reader: R,
    waiting: StallTimer,
}

impl<T, R: AnswerReader> WriteTimeoutStream<T, R> {
    pub fn new(inner: T, reader: R, patience: Duration) -> WriteTimeoutStream<T, R> {
        WriteTimeoutStream { inner, reader, waiting: StallTimer::new(patience) }
    }

    fn or_timed_out<O>(&mut self, cx: &mut Context<'_>, outcome: Poll<Result<O>>) -> Poll<Result<O>> {
        if outcome.is_ready() {
            return outcome;
        }
        if self.waiting.poll_too_slow(cx, self.reader.is_contended()).is_pending() {
            return Poll::Pending;
        }
        self.reader.record_slow();
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

impl<T: AsyncRead + Unpin, R: Unpin> AsyncRead for WriteTimeoutStream<T, R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin, R: AnswerReader + Unpin> AsyncWrite for WriteTimeoutStream<T, R> {
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
