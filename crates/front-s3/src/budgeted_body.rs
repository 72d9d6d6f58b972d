//! An answer's body that was built in memory, with the memory permit that it holds until it is sent.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fair::MemoryPermit;
use http_body::{Body, Frame, SizeHint};

use crate::peer::with_permit;

pub struct BudgetedBody<B> {
    inner: B,
    /// Moves to the first frame, which is all of the body.
    permit: Option<MemoryPermit>,
}

impl<B> BudgetedBody<B> {
    pub fn new(inner: B, permit: MemoryPermit) -> BudgetedBody<B> {
        BudgetedBody { inner, permit: Some(permit) }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for BudgetedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        Poll::Ready(frame.map(|frame| {
            frame.map(|frame| {
                frame.map_data(|data| match self.permit.take() {
                    Some(permit) => with_permit(data, permit),
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
