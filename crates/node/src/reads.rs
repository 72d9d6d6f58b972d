//! A read of bytes that are not here: along its route from node to node, and last of all from the origin.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use cluster::Stripe;
use origin::{FileToRead, Origin};
use peer::CheckedBytes;
use peer::message::{READ_MAX, ReadRequest, ReadRole, ReadUrgency};
use types::range::bytes_of_blocks;
use types::{BLOCK_SIZE, ByteRange, Distance, Error, ErrorKind, JunctionId, NodeId, Result, Supplier};

use crate::copies::CopyBooks;
use crate::metrics::{Metrics, ReadFrom};
use crate::peers::PeerTable;
use crate::sabotage::Bug;
use crate::view::{ClusterView, ReadRoute};

/// A node that is asked for bytes has so long, if it answers heartbeats: it may wait for a far origin that is busy.
const DEADLINE: Duration = Duration::from_secs(60);

/// The reads of this node that other nodes may answer.
pub struct ClusterReads {
    pub view: Arc<ClusterView>,
    pub peers: Arc<PeerTable>,
    pub metrics: Metrics,
    /// How far the origins of the junctions are, as other nodes tell.
    distances: Mutex<HashMap<JunctionId, Distance>>,
    /// Of a node that makes copies.
    books: OnceLock<Arc<CopyBooks>>,
}

/// As what this node is asked for bytes. It decides whom the node may ask in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedAs {
    /// As a gateway, by a client.
    Gateway,
    /// As a node that keeps a copy, by another node. The read was handed on so many times.
    Copy { hops: u8 },
    /// As the primary, by another node.
    Primary,
}

impl ClusterReads {
    pub fn new(view: Arc<ClusterView>, peers: Arc<PeerTable>, metrics: Metrics) -> ClusterReads {
        ClusterReads { view, peers, metrics, distances: Mutex::default(), books: OnceLock::new() }
    }

    /// From now on what is read is noted in `books`.
    pub(crate) fn set_books(&self, books: Arc<CopyBooks>) -> Result<()> {
        let taken = |_| Error::new(ErrorKind::InvalidArgument, "make copies:", "somebody does so already");
        self.books.set(books).map_err(taken)
    }

    pub(crate) fn books(&self) -> Option<&Arc<CopyBooks>> {
        self.books.get()
    }

    /// How far a junction's origin is, if a node that asks it has told.
    pub fn distance(&self, junction: JunctionId) -> Option<Distance> {
        self.distances.lock().unwrap_or_else(PoisonError::into_inner).get(&junction).copied()
    }

    fn told_distance(&self, junction: JunctionId, distance: Distance) {
        self.distances.lock().unwrap_or_else(PoisonError::into_inner).insert(junction, distance);
    }

    /// Exactly the bytes of `range`, which lies in one stripe, and from where they came. Nodes are asked for whole blocks.
    ///
    /// Errors and what `origin` is: as of [`ClusterReads::read_blocks`].
    pub async fn read(
        &self,
        junction: JunctionId,
        file: &FileToRead<'_>,
        range: ByteRange,
        asked_as: AskedAs,
        origin: &dyn Origin,
    ) -> Result<(Bytes, ReadFrom)> {
        let whole = bytes_of_blocks(range.blocks(), file.size);
        if whole.length > READ_MAX || whole.offset > range.offset || whole.end() < range.end() {
            return self.read_blocks(junction, file, range, asked_as, origin).await;
        }
        let (bytes, from) = self.read_blocks(junction, file, whole, asked_as, origin).await?;
        let (begin, length) = ((range.offset - whole.offset) as usize, range.length as usize);
        // A store may give fewer than were asked for.
        let end = (begin + length).min(bytes.len());
        Ok((bytes.slice(begin.min(end)..end), from))
    }

    /// Exactly the bytes of `range`, which lies in one stripe, and from where they came. `origin` is this node's way to the store.
    ///
    /// What a node says of the origin, as that it cannot be reached or that it has no such file, may be true of that node's way to
    /// it alone, so the next one is asked, and last of all the origin by this node.
    async fn read_blocks(
        &self,
        junction: JunctionId,
        file: &FileToRead<'_>,
        range: ByteRange,
        asked_as: AskedAs,
        origin: &dyn Origin,
    ) -> Result<(Bytes, ReadFrom)> {
        let begun = self.books().map_or(Duration::ZERO, |books| books.now());
        let route = self.route(junction, file, range, asked_as);
        let copies = self.view.file_copies().of(junction, file.id);
        let asked = route.as_ref().map_or(&[][..], |route| &route.asked);
        for (node, role) in asked {
            let hops = if let AskedAs::Copy { hops } = asked_as { hops + 1 } else { 0 };
            let request = ReadRequest {
                file: file.id,
                version: file.version,
                size: file.size,
                range,
                junction,
                reference: file.reference.0.clone(),
                role: *role,
                hops,
                urgency: ReadUrgency::Demand,
                map: route.as_ref().map_or(0, |route| route.map),
                copies,
            };
            match self.ask(*node, &request).await {
                Ok(Ok(answer)) => {
                    if let Some(hot) = answer.hot {
                        self.view.told_hot(Stripe::at(file.id, range.offset), hot);
                    }
                    if let Some(distance) = answer.distance {
                        self.told_distance(junction, distance);
                    }
                    self.note(junction, file, range, (asked_as, begun), route.as_ref());
                    return Ok((answer.bytes, ReadFrom::of(*role)));
                }
                // The file is another one now, whoever is asked.
                Ok(Err(told)) if told.kind() == ErrorKind::VersionChanged => return Err(told),
                // It does not have the bytes, as a holder or because its way to the origin leads to no such file.
                Ok(Err(told)) if told.kind() == ErrorKind::NotFound => {
                    if self.view.sabotage.is(Bug::BelieveAbsence) {
                        return Err(told);
                    }
                }
                Ok(Err(e)) | Err(e) => {
                    self.metrics.failed_asks.inc();
                    tracing::debug!(%node, file = %file.id, "another node is asked for a read: {e}");
                }
            }
        }
        let from = match &route {
            Some(route) if !route.is_primary && asked_as != AskedAs::Primary => ReadFrom::Around,
            _ => ReadFrom::Origin,
        };
        let bytes = origin.read_file(file, range).await?;
        self.note(junction, file, range, (asked_as, begun), route.as_ref());
        Ok((bytes, from))
    }

    fn note(
        &self,
        junction: JunctionId,
        file: &FileToRead<'_>,
        range: ByteRange,
        (asked_as, begun): (AskedAs, Duration),
        route: Option<&ReadRoute>,
    ) {
        let (Some(books), Some(route)) = (self.books(), route) else { return };
        books.note_read(junction, file, range, route.is_primary || asked_as == AskedAs::Primary, begun);
    }

    /// Whom `read` will ask.
    pub fn supplier(&self, junction: JunctionId, file: types::FileId, range: ByteRange) -> Supplier {
        if range.is_empty() {
            return Supplier::Origin;
        }
        let (first, last) = (Stripe::at(file, range.offset), Stripe::at(file, range.end().saturating_sub(1)));
        let of =
            |index| self.view.route(junction, Stripe { file, index }, false).map(|route| route.supplier());
        (first.index..=last.index).filter_map(of).max().unwrap_or_default()
    }

    /// Whether this node is to keep all of these bytes.
    pub fn keeps(&self, junction: JunctionId, file: types::FileId, range: ByteRange) -> bool {
        let (first, last) = (Stripe::at(file, range.offset), Stripe::at(file, range.end().saturating_sub(1)));
        (first.index..=last.index).all(|index| self.view.keeps(junction, Stripe { file, index }))
    }

    fn route(
        &self,
        junction: JunctionId,
        file: &FileToRead<'_>,
        range: ByteRange,
        asked_as: AskedAs,
    ) -> Option<ReadRoute> {
        if !may_travel(range) || range.length > READ_MAX {
            return None;
        }
        let stripe = Stripe::at(file.id, range.offset);
        let mut route = self.view.route(junction, stripe, asked_as != AskedAs::Gateway)?;
        if asked_as == AskedAs::Primary && !self.view.sabotage.is(Bug::AskOnAsPrimary) {
            // Whoever asks takes this node for the primary: no other one is asked to fetch, or maps that differ make a circle.
            route.asked.retain(|(_, role)| *role == ReadRole::Holder);
        }
        Some(route)
    }

    /// Asks one node, and waits until it answers, the deadline is over, or the node is passed over or has left the map. The outer
    /// error says that the node could not be asked or sent bytes that do not pass; the inner one is what the node answered.
    pub(crate) async fn ask(&self, node: NodeId, request: &ReadRequest) -> Result<Result<CheckedBytes>> {
        let gone =
            |why: &str| Error::new(ErrorKind::Unavailable, "read from a node:", format!("{node}: {why}"));
        let Some(client) = self.peers.client(node) else { return Err(gone("it has left the cluster")) };
        tokio::select! {
            answer = client.read(request, DEADLINE) => {
                if answer.is_ok() {
                    self.view.answered(node);
                }
                answer
            }
            () = self.until_gone(node) => Err(gone("it does not answer")),
        }
    }
}

impl ClusterReads {
    async fn until_gone(&self, node: NodeId) {
        if self.view.sabotage.is(Bug::WaitForTheGone) {
            std::future::pending::<()>().await;
        }
        self.view.until_gone(node).await;
    }
}

/// The wire takes whole blocks.
fn may_travel(range: ByteRange) -> bool {
    range.offset.is_multiple_of(BLOCK_SIZE) && !range.is_empty()
}
