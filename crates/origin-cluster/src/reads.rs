//! Reads: each stripe's bytes from a node that keeps it.

use bytes::{Bytes, BytesMut};
use cluster::STRIPE_BYTES;
use origin::{Origin, Reference};
use rpc_nfs3::tier_handle;
use types::{ByteRange, FileId, JunctionId, NodeId, Result, Version};

use crate::client_view::ClientView;
use crate::node_link::{LinkFailure, Patience};
use crate::origin::ClusterOrigin;

impl ClusterOrigin {
    pub(crate) async fn read_range(
        &self,
        object: &Reference,
        version: Version,
        range: ByteRange,
    ) -> Result<Bytes> {
        let named = tier_handle::named_by(&object.0);
        let mut pieces = pieces(range);
        let (first, second) = (pieces.next().unwrap_or(range), pieces.next());
        let bytes = self.read_piece(object, named, version, first).await?;
        let Some(second) = second else { return Ok(bytes) };
        let mut joined = BytesMut::from(bytes.as_ref());
        for piece in std::iter::once(second).chain(pieces) {
            joined.extend_from_slice(&self.read_piece(object, named, version, piece).await?);
        }
        Ok(joined.freeze())
    }

    /// Bytes of one stripe.
    async fn read_piece(
        &self,
        object: &Reference,
        named: Option<(JunctionId, FileId)>,
        version: Version,
        piece: ByteRange,
    ) -> Result<Bytes> {
        let (view, home) = (self.view(), self.home());
        let Some(route) = named.and_then(|named| view.route(self.client, named, piece.offset, home)) else {
            return self
                .ask_home(piece.length, |node| async move { node.read(object, version, piece).await })
                .await;
        };
        let (mut silent, mut is_doubted, mut is_refused) = (None, false, false);
        for node in route {
            let is_home = home == Some(node);
            if is_refused && !is_home {
                continue;
            }
            match self.read_at(&view, node, object, version, piece).await {
                Ok(bytes) => return Ok(bytes),
                Err(LinkFailure::Silent(error) | LinkFailure::NotConnected(error)) => silent = Some(error),
                Err(LinkFailure::Answered(error) | LinkFailure::Doubtful(error)) if is_home => {
                    return Err(error);
                }
                // Its own way to the store may be cut, or it has not met the file: another one may have the bytes.
                Err(LinkFailure::Answered(error) | LinkFailure::Doubtful(error)) if error.is_retryable() => {
                    is_doubted = true
                }
                // It may know an older or a newer state of the file than the home, by which the caller goes.
                Err(LinkFailure::Answered(_) | LinkFailure::Doubtful(_)) => {
                    (is_doubted, is_refused) = (true, true)
                }
            }
        }
        match silent {
            Some(error) if !is_doubted => Err(self.unreached(Some(error), home)),
            // The home was silent, and another node takes its place: its word counts.
            _ => {
                self.ask_home(piece.length, |node| async move { node.read(object, version, piece).await })
                    .await
            }
        }
    }

    async fn read_at(
        &self,
        view: &ClientView,
        node: NodeId,
        object: &Reference,
        version: Version,
        piece: ByteRange,
    ) -> std::result::Result<Bytes, LinkFailure> {
        let mut failed = None;
        for link in view.links_to(node) {
            let read = link.ask(Patience::WhileAlive, piece.length, |origin| async move {
                origin.read(object, version, piece).await
            });
            match read.await {
                Err(LinkFailure::Silent(error) | LinkFailure::NotConnected(error)) => {
                    self.pass_over(view, node, &link, &error);
                    failed = Some(error);
                }
                answer => return answer,
            }
        }
        Err(LinkFailure::Silent(failed.unwrap_or_else(|| self.nobody())))
    }
}

/// A range cut where stripes begin.
fn pieces(range: ByteRange) -> impl Iterator<Item = ByteRange> {
    let mut at = range.offset;
    std::iter::from_fn(move || {
        let left = range.end().checked_sub(at).filter(|left| *left > 0)?;
        let piece = ByteRange::new(at, left.min(STRIPE_BYTES - at % STRIPE_BYTES));
        at = piece.end();
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_where_stripes_begin_and_nowhere_else() {
        let cut = |offset, length| pieces(ByteRange::new(offset, length)).collect::<Vec<_>>();
        assert_eq!(cut(0, 0), []);
        assert_eq!(cut(5, 10), [ByteRange::new(5, 10)]);
        assert_eq!(cut(0, STRIPE_BYTES), [ByteRange::new(0, STRIPE_BYTES)]);
        let over = cut(STRIPE_BYTES - 1, STRIPE_BYTES + 2);
        assert_eq!(
            over,
            [
                ByteRange::new(STRIPE_BYTES - 1, 1),
                ByteRange::new(STRIPE_BYTES, STRIPE_BYTES),
                ByteRange::new(2 * STRIPE_BYTES, 1)
            ]
        );
    }
}
