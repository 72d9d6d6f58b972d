//! A node's service whose answers can be spoiled, as by its memory or a cable that nobody checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use peer::message::{
    ChangeNotice, CorruptReport, FeedNotice, HaveAnswer, HaveRequest, Heartbeat, KnownPath, PathRequest,
    ReadRequest,
};
use peer::{PeerCaller, PeerService, ReadAnswer};
use types::Result;

use crate::NodeService;

#[derive(Default)]
pub struct SpoiledAnswers {
    /// So many of the next answers are spoiled.
    pub next: AtomicU64,
    pub spoiled: AtomicU64,
    /// Blocks that others found to be so.
    pub reported: AtomicU64,
}

pub struct SpoilingService {
    pub inner: NodeService,
    pub answers: Arc<SpoiledAnswers>,
}

#[async_trait]
impl PeerService for SpoilingService {
    async fn read(&self, from: PeerCaller, request: &ReadRequest) -> Result<ReadAnswer> {
        let mut answer = self.inner.read(from, request).await?;
        let less = |next: u64| next.checked_sub(1);
        if self.answers.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
            && let Some(piece) = answer.bytes.first_mut()
        {
            let mut bytes = piece.to_vec();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            *piece = bytes.into();
            self.answers.spoiled.fetch_add(1, Ordering::Relaxed);
        }
        Ok(answer)
    }

    async fn have(&self, from: PeerCaller, request: &HaveRequest) -> Result<HaveAnswer> {
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
        self.inner.feed(from, feed).await
    }

    async fn corrupt(&self, from: PeerCaller, report: &CorruptReport) -> Result<()> {
        self.answers.reported.fetch_add(report.blocks.len() as u64, Ordering::Relaxed);
        self.inner.corrupt(from, report).await
    }
}
