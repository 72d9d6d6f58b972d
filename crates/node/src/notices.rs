//! Notices: what this node changed at an origin is told to the other nodes, so that they ask the origin before they trust what they
//! know of it. Best effort: a node that is not told goes by the junction's ttl.
//!
//! The way of a notice: whoever changes something calls [`NoticeSender::announce`], which puts the files into the queue of each other
//! node of the map ([`NoticeQueue`], `notices/queue.rs`) and returns. One task takes from the queues of the nodes that answer, and has one
//! call under way for each at most; what changes meanwhile goes with the next one. The called node hands the files to its
//! [`NoticeTaker`] (`service.rs`).
//!
//! Invariants: nobody waits for a notice; a queue is bounded, and what is dropped is counted; files have the same ids at all nodes, and a
//! notice carries nothing else, so there is nothing in it to be believed.

mod queue;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use cluster::NodeState;
use peer::message::{ChangeNotice, NOTICE_FILES_MAX};
use tokio::sync::{Notify, watch};
use tokio::task::{Id, JoinSet};
use types::{Error, ErrorKind, FileId, NodeId, Result};

use crate::reads::ClusterReads;
use queue::NoticeQueue;

/// Files that wait for one node (about 50 bytes each).
const WAITING_MAX: usize = 16_384;
const DEADLINE: Duration = Duration::from_secs(5);
/// The least time between two calls to a node: what changes meanwhile goes in one.
const PACE: Duration = Duration::from_millis(20);
/// After a call that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// What takes in that other nodes changed files: whoever knows names and attributes on this node.
#[async_trait]
pub trait NoticeTaker: Send + Sync + 'static {
    /// The files may be unknown here, and need not have changed.
    async fn take_in(&self, files: &[FileId]) -> Result<()>;
}

/// Tells the other nodes which files this one changed.
pub struct NoticeSender {
    reads: Arc<ClusterReads>,
    queues: Mutex<HashMap<NodeId, NoticeQueue>>,
    news: Notify,
    /// Whether nothing waits for a node that answers, and no call is under way. Changed under the lock of the queues.
    idle: watch::Sender<bool>,
    waiting_max: usize,
}

impl NoticeSender {
    pub fn new(reads: Arc<ClusterReads>) -> Arc<NoticeSender> {
        NoticeSender::with_room(reads, WAITING_MAX)
    }

    /// With room for so many files for each node.
    pub fn with_room(reads: Arc<ClusterReads>, waiting_max: usize) -> Arc<NoticeSender> {
        let idle = watch::Sender::new(true);
        Arc::new(NoticeSender { reads, queues: Mutex::default(), news: Notify::new(), idle, waiting_max })
    }

    /// The other nodes are told of these files soon. Waits for nobody.
    pub fn announce(&self, files: &[FileId]) {
        let (map, own) = (self.reads.view.map(), self.reads.view.own());
        let mut queues = self.queues();
        for node in map.nodes().iter().filter(|node| node.id != own && node.state != NodeState::Out) {
            let queue = queues.entry(node.id).or_insert_with(|| NoticeQueue::new(self.waiting_max));
            let dropped = files.iter().filter(|file| !queue.put(**file)).count();
            self.reads.metrics.dropped_notices.inc_by(dropped as u64);
        }
        self.idle.send_replace(false);
        drop(queues);
        self.news.notify_one();
    }

    /// Waits until the nodes that answer have been told of everything, for `most`.
    pub async fn settle(&self, most: Duration) {
        let mut idle = self.idle.subscribe();
        let _ = tokio::time::timeout(most, idle.wait_for(|idle| *idle)).await; // else they go by the ttl
    }

    /// Tells them until it is dropped. Changes are announced until the last client is gone.
    pub async fn run(self: Arc<Self>) {
        let mut answering = self.reads.view.changes();
        let mut calls = JoinSet::new();
        // The nodes that a call is under way to, by its task.
        let mut called: HashMap<Id, NodeId> = HashMap::new();
        loop {
            let busy: HashSet<NodeId> = called.values().copied().collect();
            for (node, files) in self.due(&busy) {
                let this = self.clone();
                called.insert(calls.spawn(async move { this.tell(node, files).await }).id(), node);
            }
            tokio::select! {
                () = self.news.notified() => {}
                Some(ended) = calls.join_next_with_id() => {
                    let id = ended.map_or_else(|e| e.id(), |(id, ())| id);
                    called.remove(&id);
                }
                // A node answers again, or there is another map.
                changed = answering.changed() => if changed.is_err() { return },
            }
        }
    }

    /// What the next call brings to each node that answers and that none is under way to.
    fn due(&self, busy: &HashSet<NodeId>) -> Vec<(NodeId, Vec<FileId>)> {
        let view = &self.reads.view;
        let map = view.map();
        let mut queues = self.queues();
        queues.retain(|node, _| map.node(*node).is_some_and(|node| node.state != NodeState::Out));
        let due = queues.iter_mut().filter(|(node, queue)| {
            !queue.is_empty() && !busy.contains(*node) && !view.is_passed_over(**node)
        });
        let due: Vec<_> = due.map(|(node, queue)| (*node, queue.take(NOTICE_FILES_MAX))).collect();
        self.idle.send_replace(due.is_empty() && busy.is_empty());
        due
    }

    /// Returns when the next call may be begun.
    async fn tell(&self, node: NodeId, files: Vec<FileId>) {
        let told = tokio::select! {
            told = self.call(node, &files) => told,
            () = self.reads.view.until_gone(node) => Err(gone(node)),
        };
        let metrics = &self.reads.metrics;
        let Err(error) = told else {
            metrics.sent_notices.inc_by(files.len() as u64);
            return tokio::time::sleep(PACE).await;
        };
        tracing::debug!(%node, "tell a node what changed: {error}");
        let dropped = match self.queues().get_mut(&node) {
            // One of an older version that goes by the ttl.
            _ if error.kind() == ErrorKind::NotSupported => files.len() as u64,
            Some(queue) => queue.put_back(files),
            None => files.len() as u64,
        };
        metrics.dropped_notices.inc_by(dropped);
        tokio::time::sleep(PAUSE).await;
    }

    async fn call(&self, node: NodeId, files: &[FileId]) -> Result<()> {
        let client = self.reads.peers.client(node).ok_or_else(|| gone(node))?;
        client.notice(ChangeNotice { files: files.to_vec() }, DEADLINE).await
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<NodeId, NoticeQueue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn gone(node: NodeId) -> Error {
    Error::new(ErrorKind::Unavailable, "tell what changed to node", node)
}
