//! Drains what is left of a request's body before the answer is sent, as long as it is short: a client that is still
//! sending when the connection is closed reports a broken pipe instead of the error that the answer names.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;

/// The most that is drained, twice the part size of the usual clients; with more left, the connection is closed at
/// once.
const BYTES_MAX: usize = 16 << 20;
const PATIENCE: Duration = Duration::from_secs(2);

type ReturnSlot<B> = Arc<Mutex<Option<UnreadBody<B>>>>;

/// A body whose reader has dropped it.
struct UnreadBody<B> {
    body: B,
    /// Whether the client sends the body without being asked (no `Expect: 100-continue` is pending).
    is_sending: bool,
}

/// Gets the body back when its reader drops it.
pub struct BodyDrain<B>(ReturnSlot<B>);

/// A body as its reader has it; dropping it returns the rest to its [`BodyDrain`].
pub struct LoanedBody<B> {
    body: Option<B>,
    /// Whether the client sends the body without being asked (no `Expect: 100-continue` is pending).
    is_sending: bool,
    home: ReturnSlot<B>,
}

/// `expects_continue`: the client sends the body only when somebody reads it, and need not send it otherwise.
pub fn loan<B>(body: B, expects_continue: bool) -> (LoanedBody<B>, BodyDrain<B>) {
    let home = ReturnSlot::default();
    (LoanedBody { body: Some(body), is_sending: !expects_continue, home: home.clone() }, BodyDrain(home))
}

impl<B: Body<Data = Bytes> + Unpin> BodyDrain<B> {
    /// Reads the rest, once the reader has dropped the body. `false`: some of it has not arrived, so no other
    /// request can use this connection, and the answer must say so: a client that finds the connection open for a
    /// moment longer would reuse it.
    pub async fn drain(self) -> bool {
        let left = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(UnreadBody { mut body, is_sending }) = left.filter(|left| !left.body.is_end_stream()) else {
            return true;
        };
        let all = async {
            let mut taken = 0;
            while taken < BYTES_MAX {
                match body.frame().await {
                    None => return true,
                    Some(Ok(frame)) => taken += frame.data_ref().map_or(0, Bytes::len),
                    Some(Err(_)) => return false,
                }
            }
            body.is_end_stream()
        };
        is_sending && tokio::time::timeout(PATIENCE, all).await.unwrap_or(false)
    }
}

impl<B> Drop for LoanedBody<B> {
    fn drop(&mut self) {
        let left = self.body.take().map(|body| UnreadBody { body, is_sending: self.is_sending });
        *self.home.lock().unwrap_or_else(PoisonError::into_inner) = left;
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for LoanedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.is_sending = true;
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}
