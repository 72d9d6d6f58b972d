//! A node's service that leaves calls unanswered, as one does that is busy: it answers heartbeats, and so is not passed over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use node::NodeService;
use peer::message::{
    ChangeNotice, CorruptReport, FeedNotice, HaveAnswer, HaveRequest, Heartbeat, KnownPath, PathRequest,
    ReadRequest,
};
use peer::{PeerCaller, PeerService, ReadAnswer};
use types::Result;

#[derive(Default)]
pub struct HeldCalls {
    pub holds_feeds: AtomicBool,
    pub holds_haves: AtomicBool,
    /// Those whose callers wait.
    waiting: AtomicUsize,
}

impl HeldCalls {
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Until the caller goes.
    async fn hold(&self, holds: &AtomicBool) {
        if holds.load(Ordering::SeqCst) {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let _waits = WaitingCall(self);
            std::future::pending::<()>().await;
        }
    }
}

struct WaitingCall<'a>(&'a HeldCalls);

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

pub struct HoldingService {
    pub inner: NodeService,
    pub held: Arc<HeldCalls>,
}

#[async_trait]
impl PeerService for HoldingService {
    async fn read(&self, from: PeerCaller, request: &ReadRequest) -> Result<ReadAnswer> {
        self.inner.read(from, request).await
    }

    async fn have(&self, from: PeerCaller, request: &HaveRequest) -> Result<HaveAnswer> {
        self.held.hold(&self.held.holds_haves).await;
        self.inner.have(from, request).await
    }

    async fn ping(&self, from: PeerCaller, beat: &Heartbeat) -> Result<Heartbeat> {
        self.inner.ping(from, beat).await
    }

    async fn path(&self, from: PeerCaller, request: &PathRequest) -> Result<KnownPath> {
        self.inner.path(from, request).await
    }

    async fn notice(&self, from: PeerCaller, notice: &ChangeNotice) -> Result<()> {
        self.inner.notice(from, notice).await
    }

    async fn feed(&self, from: PeerCaller, feed: &FeedNotice) -> Result<()> {
        self.held.hold(&self.held.holds_feeds).await;
        self.inner.feed(from, feed).await
    }

    async fn corrupt(&self, from: PeerCaller, report: &CorruptReport) -> Result<()> {
        self.inner.corrupt(from, report).await
    }
}
