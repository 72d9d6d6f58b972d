//! What is left of a request's body when the answer is there. It is taken in before the answer goes out, as far as it is
//! short: a client that still sends while the connection is closed is told of a broken pipe, and not what was wrong.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;

/// Of more than this the connection is closed at once: a part of the usual clients fits twice.
const BYTES_MAX: usize = 16 << 20;
const PATIENCE: Duration = Duration::from_secs(2);

type Home<B> = Arc<Mutex<Option<Left<B>>>>;

/// A body that nobody reads any more.
struct Left<B> {
    body: B,
    /// Its client sends it.
    comes: bool,
}

/// Where a body comes back to.
pub struct Rest<B>(Home<B>);

/// A body on loan.
pub struct Lent<B> {
    body: Option<B>,
    /// Its client sends it.
    comes: bool,
    home: Home<B>,
}

/// `waits`: its client does not send it before somebody wants to read it, and need not if nobody does.
pub fn lend<B>(body: B, waits: bool) -> (Lent<B>, Rest<B>) {
    let home = Home::default();
    (Lent { body: Some(body), comes: !waits, home: home.clone() }, Rest(home))
}

impl<B: Body<Data = Bytes> + Unpin> Rest<B> {
    /// After nobody reads it any more. `false`: not all of it is in, so that no other request can come over this
    /// connection. Its client is to be told so: one that finds the connection open for a moment longer would use it again.
    pub async fn take_in(self) -> bool {
        let left = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Left { mut body, comes }) = left.filter(|left| !left.body.is_end_stream()) else {
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
        comes && tokio::time::timeout(PATIENCE, all).await.unwrap_or(false)
    }
}

impl<B> Drop for Lent<B> {
    fn drop(&mut self) {
        let left = self.body.take().map(|body| Left { body, comes: self.comes });
        *self.home.lock().unwrap_or_else(PoisonError::into_inner) = left;
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Lent<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.comes = true;
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
