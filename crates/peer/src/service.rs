//! What answers the calls of other nodes; the cluster implements it.

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;
use types::{Distance, NodeId, Result};

use crate::message::checksum::checksums;
use crate::message::{
    ChangeNotice, CorruptReport, FeedNotice, HaveAnswer, HaveRequest, Heartbeat, KnownPath, PathRequest,
    ReadHead, ReadRequest, ServedFrom,
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
        ReadAnswer { head: ReadHead { checksums, served_from, distance, map, hot: None }, bytes }
    }
}

/// A call may arrive more than once: whoever has no answer asks again, on another path. A call whose caller has gone away,
/// or whose deadline has passed, is dropped at any await.
///
/// The caller gets an error with the same kind. `NotPermitted`: the calling node is not in the map. `NotSupported`: this version
/// does not do that (HTTP status 501).
#[async_trait]
pub trait PeerService: Send + Sync + 'static {
    /// Exactly the bytes of the range. Room for them in the budget of the role is taken before this is called.
    ///
    /// Errors: `VersionChanged` when the file has another version by now, which ends the read of the calling node; `NotFound` when
    /// this node was asked as a holder and does not have all of the bytes. After that and any other error the calling node asks
    /// somebody else.
    async fn read(&self, from: PeerCaller, request: &ReadRequest) -> Result<ReadAnswer>;

    /// How much of each stripe this node holds. One that holds nothing answers so, and not with `NotFound`.
    async fn have(&self, from: PeerCaller, request: &HaveRequest) -> Result<HaveAnswer>;

    /// `beat.node` is the calling node. Answers with this node's own heartbeat.
    async fn ping(&self, from: PeerCaller, beat: &Heartbeat) -> Result<Heartbeat>;

    /// By which names the file is reached, as this node knows it without asking.
    ///
    /// Errors: `NotFound`: it is not known here.
    async fn path(&self, from: PeerCaller, request: &PathRequest) -> Result<KnownPath>;

    /// Takes in that files have changed.
    async fn notice(&self, from: PeerCaller, notice: &ChangeNotice) -> Result<()>;

    /// Takes in of which stripes the calling node holds more than this one, which may copy what it lacks.
    async fn feed(&self, from: PeerCaller, feed: &FeedNotice) -> Result<()>;

    /// Takes in which blocks that this node sent did not pass at the calling node.
    async fn corrupt(&self, from: PeerCaller, report: &CorruptReport) -> Result<()>;
}
