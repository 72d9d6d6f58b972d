//! Counts the connections that have answered a request.
//!
//! Another store may be behind a new connection. Which one it is is certain only once it has answered: a listener's
//! backlog, or a proxy, may accept a connection now and choose the store later. So a connection counts from its
//! first answer on, and not from when it was dialled: each answer carries the [`FirstAnswer`] of its connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use ::http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use tower_service::Service;

/// Whether a connection has answered; shared by all answers of one connection, among their extensions.
#[derive(Clone, Debug, Default)]
pub struct FirstAnswer(Arc<AtomicBool>);

impl FirstAnswer {
    /// True for the first caller.
    pub fn is_this_one(&self) -> bool {
        !self.0.swap(true, Ordering::SeqCst)
    }
}

/// Dials by `D`, and gives each connection its [`FirstAnswer`].
#[derive(Clone, Debug)]
pub struct TracksFirstAnswer<D>(pub D);

impl<D> Service<Uri> for TracksFirstAnswer<D>
where
    D: Service<Uri, Future: Send + 'static>,
{
    type Response = TrackedConnection<D::Response>;
    type Error = D::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, D::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), D::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let dialled = self.0.call(to);
        Box::pin(async move { Ok(TrackedConnection { line: dialled.await?, first: FirstAnswer::default() }) })
    }
}

/// A connection whose answers carry its [`FirstAnswer`].
#[derive(Debug)]
pub struct TrackedConnection<L> {
    line: L,
    first: FirstAnswer,
}

impl<L: Connection> Connection for TrackedConnection<L> {
    fn connected(&self) -> Connected {
        self.line.connected().extra(self.first.clone())
    }
}

impl<L: Read + Unpin> Read for TrackedConnection<L> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.line).poll_read(context, into)
    }
}

impl<L: Write + Unpin> Write for TrackedConnection<L> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.line).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.line).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.line).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.line.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.line).poll_write_vectored(context, slices)
    }
}
