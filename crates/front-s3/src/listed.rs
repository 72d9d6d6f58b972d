//! The body of an answer that was made as a whole, with the room that it takes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fair::Room;
use http_body::{Body, Frame, SizeHint};

use crate::peer::held;

pub struct Listed<B> {
    inner: B,
    /// Goes with the first piece, which is the whole of what is made.
    room: Option<Room>,
}

impl<B> Listed<B> {
    pub fn new(inner: B, room: Room) -> Listed<B> {
        Listed { inner, room: Some(room) }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Listed<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        Poll::Ready(frame.map(|frame| {
            frame.map(|frame| {
                frame.map_data(|data| match self.room.take() {
                    Some(room) => held(data, room),
                    None => data,
                })
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
