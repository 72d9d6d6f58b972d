//! A junction's origin whose bytes come from the nodes that keep them.

use std::future::Future;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use cluster::Stripe;
use origin::{FileToRead, Layer, Origin, OriginAnswer, OriginCall, Sending};
use peer::message::READ_MAX;
use types::{ByteRange, Distance, FileId, JunctionId, Result, Supplier};

use crate::reads::{AskedAs, ClusterReads};

/// The outermost layer around a junction's store, in a cluster. Names, attributes and changes go to the store, from each node by
/// itself; bytes of files take the route of their stripe.
pub struct Placed {
    inner: Arc<dyn Origin>,
    junction: JunctionId,
    reads: Arc<ClusterReads>,
}

impl Placed {
    pub fn new(inner: Arc<dyn Origin>, junction: JunctionId, reads: Arc<ClusterReads>) -> Arc<Placed> {
        Arc::new(Placed { inner, junction, reads })
    }
}

impl Layer for Placed {
    fn inner(&self) -> &dyn Origin {
        self.inner.as_ref()
    }

    fn around<'a, A: OriginAnswer + 'a>(
        &'a self,
        _call: OriginCall<'a>,
        send: impl Fn() -> Sending<'a, A> + Send + Sync + 'a,
    ) -> impl Future<Output = Result<A>> + Send + 'a {
        send()
    }

    fn around_supplier(&self, file: FileId, range: ByteRange) -> Supplier {
        self.reads.view.file_copies().meet(self.junction, file);
        self.reads.supplier(self.junction, file, range)
    }

    fn around_keeps(&self, file: FileId, range: ByteRange) -> bool {
        self.reads.view.file_copies().meet(self.junction, file);
        self.reads.keeps(self.junction, file, range)
    }

    async fn around_read_file<'a>(&'a self, file: &'a FileToRead<'a>, range: ByteRange) -> Result<Bytes> {
        self.reads.view.file_copies().meet(self.junction, file.id);
        let one = async |range: ByteRange| {
            let read = self.reads.read(self.junction, file, range, AskedAs::Gateway, self.inner()).await;
            let (bytes, from) = read?;
            self.reads.metrics.count(from, range.length);
            Ok(bytes)
        };
        // Stripes have primaries of their own.
        let border = Stripe::at(file.id, range.offset).range(u64::MAX).end();
        if range.end() <= border {
            return one(range).await;
        }
        let mut whole = BytesMut::with_capacity(usize::try_from(range.length).unwrap_or(0));
        whole.extend_from_slice(&one(ByteRange::new(range.offset, border - range.offset)).await?);
        whole.extend_from_slice(&one(ByteRange::new(border, range.end() - border)).await?);
        Ok(whole.freeze())
    }

    /// Nodes are asked for as much as the wire takes; who asks the store cuts it as the store wants.
    fn around_read_file_max(&self) -> u32 {
        u32::try_from(READ_MAX).unwrap_or(u32::MAX)
    }

    /// A node that never asks the store itself learns it from those that do.
    fn around_distance(&self) -> Option<Distance> {
        self.inner().distance().or_else(|| self.reads.distance(self.junction))
    }
}
