//! What this node does for the others: it serves bytes that it keeps, and fetches those that are missing, as their primary from
//! the origin and as another rank from the primary.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use cache::{Cache, CacheKey, Lend, Piece, Source};
use cluster::Stripe;
use origin::{FileToRead, Origin, Reference};
use peer::message::{
    ChangeNotice, CorruptReport, FeedNotice, HAVE_BLOCKS_MAX, HaveAnswer, HaveRequest, Heartbeat, KnownPath,
    PathRequest, READ_MAX, ReadRequest, ReadRole, ReadUrgency, ServedFrom, StripeBlocks,
};
use peer::{HeartbeatSource, PeerCaller, PeerService, ReadAnswer};
use types::{ByteRange, Distance, Error, ErrorKind, JunctionId, Result, Supplier};

use crate::copies::percent_of;
use crate::metrics::ReadFrom;
use crate::notices::NoticeTaker;
use crate::paths::KnownPaths;
use crate::reads::{AskedAs, ClusterReads};
use crate::sabotage::Bug;

/// A node that hears of a newer map waits so long for it to arrive here, too.
const MAP_PATIENCE: Duration = Duration::from_millis(100);

/// The origins of this node by the ids that all nodes know them by.
pub type ServedJunctions = HashMap<JunctionId, Arc<dyn Origin>>;

pub struct NodeService {
    reads: Arc<ClusterReads>,
    cache: Arc<Cache>,
    junctions: RwLock<ServedJunctions>,
    paths: Arc<dyn KnownPaths>,
    heartbeat: HeartbeatSource,
    notices: Option<Arc<dyn NoticeTaker>>,
    /// Held while a notice is taken in: one at a time, whoever sends how many.
    taking_in: tokio::sync::Mutex<()>,
}

impl NodeService {
    /// `junctions`: this node's way to the stores, without [`Placed`](crate::Placed).
    pub fn new(
        reads: Arc<ClusterReads>,
        cache: Arc<Cache>,
        junctions: ServedJunctions,
        paths: Arc<dyn KnownPaths>,
        heartbeat: HeartbeatSource,
    ) -> NodeService {
        let junctions = RwLock::new(junctions);
        let taking_in = tokio::sync::Mutex::default();
        NodeService { reads, cache, junctions, paths, heartbeat, notices: None, taking_in }
    }

    /// Hands the other nodes' notices to `taker`. Without one they are refused.
    pub fn with_notices(self, taker: Arc<dyn NoticeTaker>) -> NodeService {
        NodeService { notices: Some(taker), ..self }
    }

    /// Answers nothing of the junction from now on. `false`: that is so already.
    pub fn withdraw(&self, junction: JunctionId) -> bool {
        self.junctions.write().unwrap_or_else(PoisonError::into_inner).remove(&junction).is_some()
    }

    fn origin_of(&self, junction: JunctionId) -> Result<Arc<dyn Origin>> {
        let junctions = self.junctions.read().unwrap_or_else(PoisonError::into_inner);
        // No outage: whoever asks goes to another node.
        junctions.get(&junction).cloned().ok_or_else(|| {
            let what = format!("junction {junction} is not served here; the nodes' configurations differ");
            Error::new(ErrorKind::NotSupported, "read for a node:", what)
        })
    }

    /// Refuses a node that is not in the map: its certificate is good for years after it was forgotten.
    fn demand_member(&self, from: PeerCaller) -> Result<()> {
        let map = self.reads.view.map();
        if map.node(from.node).is_some() || self.reads.view.sabotage.is(Bug::AnswerStrangers) {
            return Ok(());
        }
        let why = format!("node {} is not in the map {}", from.node, map.number());
        Err(Error::new(ErrorKind::NotPermitted, "answer a node:", why))
    }
}

#[async_trait]
impl PeerService for NodeService {
    async fn read(&self, from: PeerCaller, request: &ReadRequest) -> Result<ReadAnswer> {
        let mut key = CacheKey { file: request.file, version: request.version, size: request.size };
        let view = &self.reads.view;
        if view.sabotage.is(Bug::ServeOtherVersion) {
            key.version = self.cache.versions_held(key.file).first().copied().unwrap_or(key.version);
        }
        let is_holder = request.role == ReadRole::Holder;
        // Two nodes have to agree on who keeps a stripe; a holder only has to know who asks.
        if request.map > view.number() && !(is_holder && self.demand_member(from).is_ok()) {
            view.reach(request.map, MAP_PATIENCE).await;
        }
        self.demand_member(from)?;
        let origin = self.origin_of(request.junction)?;
        if let Some(told) = request.copies {
            view.file_copies().told(request.junction, request.file, told);
        }
        if is_holder && request.urgency == ReadUrgency::Warm {
            return self.answer_copy(request).await;
        }
        if is_holder {
            let Some(pieces) = self.cache.read_present(&key, request.range).await? else {
                return Err(Error::new(ErrorKind::NotFound, "read for a node:", "it is not kept here"));
            };
            return self.answer(request, pieces, ServedFrom::Hit, None);
        }
        let distance = origin.distance();
        let asked_as = match request.role {
            ReadRole::Primary => AskedAs::Primary,
            _ => AskedAs::Copy { hops: request.hops },
        };
        let source = Arc::new(ServiceSource {
            reads: self.reads.clone(),
            origin,
            junction: request.junction,
            reference: Reference(request.reference.clone()),
            asked_as,
            asked_nodes: AtomicBool::new(false),
            asked_origin: AtomicBool::new(false),
        });
        let agreed = request.role == ReadRole::Primary || request.map == view.number();
        let pieces = if agreed {
            self.cache.read(&key, request.range, &(source.clone() as Arc<dyn Source>), Lend::Nothing).await?
        } else {
            // The maps differ. The bytes are handed on and not kept, since this node may not be one that keeps them.
            match self.cache.read_present(&key, request.range).await? {
                Some(pieces) => pieces,
                None => vec![Piece::Bytes(source.read(&key, request.range).await?)],
            }
        };
        tracing::trace!(node = %from.node, file = %request.file, "served {} bytes", request.range.length);
        self.answer(request, pieces, source.served_from(), distance)
    }

    async fn have(&self, from: PeerCaller, request: &HaveRequest) -> Result<HaveAnswer> {
        self.demand_member(from)?;
        let key = CacheKey { file: request.file, version: request.version, size: request.size };
        let stripes = request.first..request.first + request.stripes;
        let held = self.cache.held_blocks(&key, stripes.clone()).await;
        let mut blocks: Vec<StripeBlocks> = held.into_iter().map(StripeBlocks::from_words).collect();
        if let (Some(books), Some(junction)) = (self.reads.books(), request.junction) {
            let held = stripes.clone().zip(&blocks).filter(|(_, held)| !held.is_empty());
            books.met(&self.reads.view, &key, junction, held.map(|(index, _)| index));
        }
        let percent = stripes.zip(&blocks).map(|(index, held)| percent_of(held.count(), index, request.size));
        let percent = percent.collect();
        if request.stripes > HAVE_BLOCKS_MAX {
            blocks.clear();
        }
        let versions = self.cache.versions_held(request.file);
        let books = self.reads.books();
        let books = books.filter(|_| !self.reads.view.sabotage.is(Bug::CopyOverNewer));
        let other = books.map(|books| books.other_version(request.file, request.version, &versions));
        Ok(HaveAnswer {
            map: self.reads.view.number(),
            percent,
            blocks,
            has_room: self.cache.room_for_copies() > 0,
            other: other.unwrap_or_default(),
        })
    }

    async fn ping(&self, _: PeerCaller, beat: &Heartbeat) -> Result<Heartbeat> {
        self.reads.view.noticed(beat.node, beat.incarnation);
        Ok((self.heartbeat)())
    }

    async fn path(&self, from: PeerCaller, request: &PathRequest) -> Result<KnownPath> {
        self.demand_member(from)?;
        // It may be another junction there.
        self.origin_of(request.junction)?;
        let unknown =
            || Error::new(ErrorKind::NotFound, "tell a node the way to a file:", "it is not known here");
        let names = self.paths.path(request.junction, request.file).ok_or_else(unknown)?;
        Ok(KnownPath { names })
    }

    async fn notice(&self, from: PeerCaller, notice: &ChangeNotice) -> Result<()> {
        self.demand_member(from)?;
        let Some(taker) = &self.notices else {
            let why = "nobody here knows names and attributes";
            return Err(Error::new(ErrorKind::NotSupported, "take in a notice:", why));
        };
        let _alone = self.taking_in.lock().await;
        self.reads.metrics.received_notices.inc_by(notice.files.len() as u64);
        taker.take_in(&notice.files).await
    }

    async fn feed(&self, from: PeerCaller, feed: &FeedNotice) -> Result<()> {
        self.demand_member(from)?;
        let Some(books) = self.reads.books() else {
            let why = "this node makes copies when they are asked for";
            return Err(Error::new(ErrorKind::NotSupported, "take in a feed", why));
        };
        feed.filled.iter().for_each(|told| books.take_in(&self.reads.view, from.node, told));
        Ok(())
    }

    async fn corrupt(&self, from: PeerCaller, report: &CorruptReport) -> Result<()> {
        let key = CacheKey { file: report.file, version: report.version, size: report.size };
        tracing::warn!(node = %from.node, file = %report.file, "blocks {:?} did not pass at a node that read them here", report.blocks);
        self.cache.recheck(&key, &report.blocks).await;
        Ok(())
    }
}

impl NodeService {
    fn answer(
        &self,
        request: &ReadRequest,
        pieces: Vec<Piece>,
        served_from: ServedFrom,
        distance: Option<Distance>,
    ) -> Result<ReadAnswer> {
        let bytes = pieces.iter().map(Piece::to_bytes).collect::<std::io::Result<Vec<Bytes>>>();
        let bytes = bytes.map_err(|e| Error::io("read the cache for", request.file, e))?;
        self.reads.metrics.served_bytes.inc_by(request.range.length);
        let view = &self.reads.view;
        let mut answer = ReadAnswer::new(request, bytes, served_from, distance, view.number());
        if request.role != ReadRole::Holder {
            let stripe = Stripe::at(request.file, request.range.offset);
            answer.head.hot = view.serve(request.junction, stripe, request.range.length);
        }
        Ok(answer)
    }
}

impl NodeService {
    /// Bytes for a copy that another node makes: at the repair rate, and without a trace in what is evicted first.
    async fn answer_copy(&self, request: &ReadRequest) -> Result<ReadAnswer> {
        let length = request.range.length;
        if self.reads.books().is_some_and(|books| !books.may_send(length, self.cache.served_bytes())) {
            let why = "copies are sent at the repair rate already";
            return Err(Error::new(ErrorKind::Busy, "read for a copy:", why));
        }
        let key = CacheKey { file: request.file, version: request.version, size: request.size };
        let Some(bytes) = self.cache.read_to_copy(&key, request.range).await? else {
            return Err(Error::new(ErrorKind::NotFound, "read for a copy:", "it is not kept here"));
        };
        self.answer(request, vec![Piece::Bytes(bytes)], ServedFrom::Hit, None)
    }
}

/// Fetches what is missing here for another node.
struct ServiceSource {
    reads: Arc<ClusterReads>,
    origin: Arc<dyn Origin>,
    junction: JunctionId,
    reference: Reference,
    asked_as: AskedAs,
    asked_nodes: AtomicBool,
    asked_origin: AtomicBool,
}

impl ServiceSource {
    fn served_from(&self) -> ServedFrom {
        match (self.asked_origin.load(Ordering::Relaxed), self.asked_nodes.load(Ordering::Relaxed)) {
            (true, _) => ServedFrom::Origin,
            (false, true) => ServedFrom::Filled,
            (false, false) => ServedFrom::Hit,
        }
    }
}

#[async_trait]
impl Source for ServiceSource {
    async fn read(&self, key: &CacheKey, range: ByteRange) -> Result<Bytes> {
        let file =
            FileToRead { id: key.file, reference: &self.reference, version: key.version, size: key.size };
        let (bytes, from) =
            self.reads.read(self.junction, &file, range, self.asked_as, self.origin.as_ref()).await?;
        let asked = match from {
            ReadFrom::Origin | ReadFrom::Around => &self.asked_origin,
            _ => &self.asked_nodes,
        };
        asked.store(true, Ordering::Relaxed);
        Ok(bytes)
    }

    fn read_max(&self) -> u32 {
        u32::try_from(READ_MAX).unwrap_or(u32::MAX)
    }

    fn supplier(&self, _: &CacheKey, _: ByteRange) -> Supplier {
        match self.asked_as {
            AskedAs::Primary => Supplier::Origin,
            AskedAs::Gateway | AskedAs::Copy { .. } => Supplier::Primary,
        }
    }

    /// As the primary it keeps what it fetches: only it asks the origin. Whoever asks may know of a map that has not come here.
    fn keeps(&self, key: &CacheKey, range: ByteRange) -> bool {
        self.asked_as == AskedAs::Primary || self.reads.keeps(self.junction, key.file, range)
    }

    fn reads_ahead(&self) -> bool {
        false
    }
}
