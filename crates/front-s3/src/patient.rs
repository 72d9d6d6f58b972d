//! A connection whose other end must take what it is sent: one that takes nothing for too long is closed.

use std::future::Future;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

pub struct Patient<T> {
    inner: T,
    patience: Duration,
    deadline: Pin<Box<Sleep>>,
    /// A write is waiting since before the deadline was set.
    waits: bool,
}

impl<T> Patient<T> {
    pub fn new(inner: T, patience: Duration) -> Patient<T> {
        Patient { inner, patience, deadline: Box::pin(sleep(patience)), waits: false }
    }

    fn or_late<R>(&mut self, cx: &mut Context<'_>, outcome: Poll<Result<R>>) -> Poll<Result<R>> {
        if outcome.is_ready() {
            self.waits = false;
            return outcome;
        }
        if !std::mem::replace(&mut self.waits, true) {
            let end = Instant::now() + self.patience;
            self.deadline.as_mut().reset(end);
        }
        match self.deadline.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(Error::from(ErrorKind::TimedOut))),
            Poll::Pending => Poll::Pending,
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
        self.or_late(cx, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.or_late(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_flush(cx);
        self.or_late(cx, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.or_late(cx, outcome)
    }
}
