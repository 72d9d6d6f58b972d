//! What answers the calls of other nodes; the cluster implements it.

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;
use types::{Distance, NodeId, Result};

use crate::message::checksum::checksums;
use crate::message::{
    ChangeNotice, CorruptReport, FeedNotice, HaveAnswer, HaveRequest, Heartbeat, ReadHead, ReadRequest,
    ServedFrom,
};

/// Who calls, and until when it waits.
#[derive(Clone, Copy, Debug)]
pub struct PeerCaller {
    pub node: NodeId,
    /// After this moment nobody waits for the answer, and the call is dropped where it is.
    pub deadline: Instant,
}

#[derive(Clone, Debug)]
pub struct ReadAnswer {
    pub head: ReadHead,
    /// The bytes of the range in order, cut anywhere.
    pub bytes: Vec<Bytes>,
}

impl ReadAnswer {
    /// Computes the checksums. Who has them with the bytes, from its disk, fills in [`ReadHead`] itself.
    pub fn new(
        request: &ReadRequest,
        bytes: Vec<Bytes>,
        served_from: ServedFrom,
        distance: Option<Distance>,
        map: u64,
    ) -> ReadAnswer {
        let pieces = bytes.iter().map(|piece| &piece[..]);
        let checksums = checksums(request.file, request.version, request.range, request.size, pieces);
        ReadAnswer { head: ReadHead { checksums, served_from, distance, map }, bytes }
    }
}

/// A call may arrive more than once: whoever has no answer asks again, on another path. A call whose caller has gone away,
/// or whose deadline has passed, is dropped at any await.
#[async_trait]
pub trait PeerService: Send + Sync + 'static {
    /// Exactly the bytes of the range. Room for them in the budget of the role is taken before this is called.
    async fn read(&self, from: PeerCaller, request: &ReadRequest) -> Result<ReadAnswer>;

    async fn have(&self, from: PeerCaller, request: &HaveRequest) -> Result<HaveAnswer>;

    /// `beat.node` is the calling node. Answers with this node's own heartbeat.
    async fn ping(&self, from: PeerCaller, beat: &Heartbeat) -> Result<Heartbeat>;

    async fn notice(&self, from: PeerCaller, notice: &ChangeNotice) -> Result<()>;

    async fn feed(&self, from: PeerCaller, feed: &FeedNotice) -> Result<()>;

    async fn corrupt(&self, from: PeerCaller, report: &CorruptReport) -> Result<()>;
}
