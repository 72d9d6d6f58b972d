//! What this node knows of the cluster: the map in force, the maps shortly before it, and which nodes answer. From these follows
//! whom it asks for bytes of a stripe, and as what: [`ClusterView::route`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cluster::{
    AskTarget, ClusterMap, FORMER_MAPS_TIME, MapHistory, MapNode, Nearness, NodeLabel, NodeState, Placement,
    Stripe, StripeRanks,
};
use peer::message::{Heartbeat, HotStripe, NodeFigures, ReadRole};
use peer::{IncarnationSeen, Liveness};
use tokio::sync::watch;
use types::{FileId, JunctionId, NodeId, Supplier};

use crate::file_copies::FileCopies;
use crate::hot_stripes::{HeatConfig, HotStripes};

use crate::sabotage::{Bug, Sabotage};

/// How the files of a junction are spread over the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JunctionPlacement {
    /// Nodes that keep each stripe; at least 1. Rules give some files another number ([`FileCopies`]).
    pub copies: usize,
    /// Only nodes with a label within it keep stripes; the root: all.
    pub topology: NodeLabel,
}

impl JunctionPlacement {
    /// Of a file about which a rule says `ruled`.
    fn wanted(&self, ruled: Option<u8>) -> usize {
        ruled.map_or(self.copies, usize::from).max(1)
    }
}

/// Whom to ask for bytes of a stripe, one after the other, before the origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRoute {
    /// The number of the map that it follows from.
    pub map: u64,
    pub asked: Vec<(NodeId, ReadRole)>,
    /// This node is the primary among the nodes that answer. If none of `asked` has the bytes, it reads them from the origin.
    pub is_primary: bool,
    /// This node keeps the stripe.
    pub keeps: bool,
}

impl ReadRoute {
    /// Whom a fetch along this route may wait for: of all that are asked the one that waits for most.
    pub fn supplier(&self) -> Supplier {
        let of = |role: ReadRole| match role {
            ReadRole::Rank => Supplier::Copy,
            ReadRole::Primary => Supplier::Primary,
            ReadRole::Holder => Supplier::Origin,
        };
        self.asked.iter().map(|(_, role)| of(*role)).max().unwrap_or_default()
    }
}

/// The ranks after the primary that are asked for what they hold while nodes come and go.
const NEXT_RANKS: usize = 2;

/// The cluster as one node sees it. All that asks or answers shares one view. Whoever runs the node hands it each new map
/// ([`ClusterView::advance`], or [`ClusterView::begin_anew`] when the history of maps has risen), the heartbeats tell it who
/// answers, and each change of either wakes those that wait in [`ClusterView::until_gone`].
pub struct ClusterView {
    own: NodeId,
    begun: Instant,
    copies: FileCopies,
    /// A lock of its own, under which no other one is taken.
    hot: Mutex<HotStripes>,
    state: Mutex<ViewState>,
    /// The number of the map, for whoever waits for a newer one.
    number: watch::Sender<u64>,
    /// Raised whenever a node is passed over, answers again, or leaves, and with each new map, placement, and rules on copies.
    answering: watch::Sender<u64>,
    pub(crate) sabotage: Sabotage,
}

struct ViewState {
    history: MapHistory,
    placements: HashMap<JunctionId, (JunctionPlacement, Arc<Placement>)>,
    liveness: Liveness,
    /// What each other node told of itself last, with its build, and when.
    figures: HashMap<NodeId, ToldFigures>,
    /// The clock of `liveness`.
    begun: Instant,
    passed_over: Vec<NodeId>,
    /// When a node was last passed over or answered again.
    unsettled_at: Option<Instant>,
}

/// What another node told of itself.
#[derive(Clone, Debug)]
pub struct ToldFigures {
    pub figures: NodeFigures,
    pub build: String,
    pub at: Instant,
}

impl ClusterView {
    pub fn new(
        own: NodeId,
        map: Arc<ClusterMap>,
        junctions: HashMap<JunctionId, JunctionPlacement>,
    ) -> ClusterView {
        let placed =
            |placement: &JunctionPlacement| Arc::new(Placement::new(map.clone(), &placement.topology));
        let placements = junctions.into_iter().map(|(id, placement)| {
            let placed = placed(&placement);
            (id, (placement, placed))
        });
        ClusterView {
            own,
            begun: Instant::now(),
            copies: FileCopies::default(),
            hot: Mutex::new(HotStripes::new(HeatConfig::default())),
            number: watch::Sender::new(map.number()),
            answering: watch::Sender::new(0),
            sabotage: Sabotage::default(),
            state: Mutex::new(ViewState {
                placements: placements.collect(),
                history: MapHistory::new(map),
                liveness: Liveness::default(),
                figures: HashMap::new(),
                begun: Instant::now(),
                passed_over: Vec::new(),
                // While this node was not there others may have stood in for it.
                unsettled_at: Some(Instant::now()),
            }),
        }
    }

    pub fn own(&self) -> NodeId {
        self.own
    }

    pub fn map(&self) -> Arc<ClusterMap> {
        self.state().history.current().clone()
    }

    pub fn number(&self) -> u64 {
        *self.number.borrow()
    }

    /// Takes in a map that is newer than the one in force; `false`: it is not.
    pub fn advance(&self, map: Arc<ClusterMap>) -> bool {
        let mut state = self.state();
        let mut is_newer = state.history.advance(map.clone(), Instant::now());
        if !is_newer && self.sabotage.is(Bug::TakeOlderMap) {
            state.history = MapHistory::new(map.clone());
            is_newer = true;
        }
        if !is_newer {
            return false;
        }
        state.place_by(&map);
        // Under the lock: of two maps at once the newer one is told last.
        self.number.send_replace(map.number());
        drop(state);
        self.tell(true);
        true
    }

    /// Goes by this map from now on, whatever its number: the coordinator was restored from a backup, or wiped, and counts anew
    /// (`members::MembershipNews::history` has risen).
    pub fn begin_anew(&self, map: Arc<ClusterMap>) {
        if self.sabotage.is(Bug::StayInHistory) {
            self.advance(map);
            return;
        }
        let mut state = self.state();
        state.history = MapHistory::new(map.clone());
        state.unsettled_at = Some(Instant::now());
        state.place_by(&map);
        self.number.send_replace(map.number());
        drop(state);
        self.tell(true);
    }

    /// Waits until the map has at least this number, for `most`.
    pub async fn reach(&self, number: u64, most: Duration) -> bool {
        let mut numbers = self.number.subscribe();
        tokio::time::timeout(most, numbers.wait_for(|now| *now >= number))
            .await
            .is_ok_and(|seen| seen.is_ok())
    }

    /// Sets how a junction is spread from now on.
    pub fn place(&self, junction: JunctionId, placement: JunctionPlacement) {
        let mut state = self.state();
        let placed = Arc::new(Placement::new(state.history.current().clone(), &placement.topology));
        state.placements.insert(junction, (placement, placed));
        drop(state);
        self.tell(true);
    }

    /// How many copies of a file are wanted, and where. `None`: the junction is not spread over the nodes.
    pub fn placement(&self, junction: JunctionId, file: FileId) -> Option<(usize, Arc<Placement>)> {
        let ruled = self.ruled(junction, file);
        let (copies, placed) = self.junction_placement(junction)?;
        Some((ruled.map_or(copies, usize::from).max(1), placed))
    }

    /// The same of files that no rule is about.
    pub fn junction_placement(&self, junction: JunctionId) -> Option<(usize, Arc<Placement>)> {
        let state = self.state();
        let (settings, placed) = state.placements.get(&junction)?;
        Some((settings.wanted(None), placed.clone()))
    }

    /// How the files of a junction are spread. `None`: they are not.
    pub fn spread(&self, junction: JunctionId) -> Option<JunctionPlacement> {
        self.state().placements.get(&junction).map(|(settings, _)| settings.clone())
    }

    /// What the rules on copies say of which file.
    pub fn file_copies(&self) -> &FileCopies {
        &self.copies
    }

    /// Goes by rules of these revisions from now on: they are new for whoever asks `file_copies`, too.
    pub fn set_copy_rules(&self, revisions: HashMap<JunctionId, u64>) {
        let changed = self.copies.set_rules(revisions);
        self.tell(changed);
    }

    /// When stripes are hot at this node, from now on.
    pub fn set_heat(&self, config: HeatConfig) {
        *self.hot() = HotStripes::new(config);
    }

    /// So many bytes of a stripe go to another node. What the answer says of it.
    pub(crate) fn serve(&self, junction: JunctionId, stripe: Stripe, bytes: u64) -> Option<HotStripe> {
        let (wanted, placed) = self.placement(junction, stripe.file)?;
        let keeps = |node: &&MapNode| node.state == NodeState::Up && node.weight > 0;
        let nodes = placed.map().nodes().iter().filter(keeps).count();
        self.hot().serve(stripe, bytes, (wanted, nodes), self.begun.elapsed())
    }

    /// Another node says that a stripe is hot.
    pub(crate) fn told_hot(&self, stripe: Stripe, hot: HotStripe) {
        self.hot().told(stripe, hot, self.begun.elapsed());
    }

    /// Stripes that are hot, as far as this node knows.
    pub fn hot_stripes(&self) -> usize {
        self.hot().count(self.begun.elapsed())
    }

    fn hot_ranks(&self, stripe: Stripe) -> Option<usize> {
        self.hot().ranks(stripe, self.begun.elapsed())
    }

    fn hot(&self) -> MutexGuard<'_, HotStripes> {
        self.hot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before the lock of the state is taken: it may read a database.
    fn ruled(&self, junction: JunctionId, file: FileId) -> Option<u8> {
        self.copies.of(junction, file).and_then(|told| told.copies)
    }

    /// Changes whenever a node is passed over or answers again, and with each new map, placement, and rules on copies.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.answering.subscribe()
    }

    /// The nodes that keep a stripe, the primary first. `None`: the junction is not spread over the nodes.
    pub fn keepers(&self, junction: JunctionId, stripe: Stripe) -> Option<Vec<NodeId>> {
        let (copies, placed) = self.placement(junction, stripe.file)?;
        Some(placed.ranks(stripe).keepers(copies).to_vec())
    }

    /// Reads the junction without the other nodes from now on. `false`: that is so already.
    pub fn withdraw(&self, junction: JunctionId) -> bool {
        let was_placed = self.state().placements.remove(&junction).is_some();
        self.tell(was_placed);
        was_placed
    }

    /// The route of a read by a client of this node, or (`for_another_node`) by another node that asked this one for its copy.
    /// `None`: the junction is not spread over the nodes.
    pub fn route(&self, junction: JunctionId, stripe: Stripe, for_another_node: bool) -> Option<ReadRoute> {
        let (ruled, hot) = (self.ruled(junction, stripe.file), self.hot_ranks(stripe));
        let state = self.state();
        let (settings, placed) = state.placements.get(&junction)?;
        let reachable = |node: NodeId| node == self.own || !state.passed_over.contains(&node);
        let (ranks, copies) = (placed.ranks(stripe), settings.wanted(ruled).max(hot.unwrap_or(0)));
        let primary = ranks.primary_among(reachable);
        let keeps = ranks.keeps(self.own, copies);
        let is_primary = primary == Some(self.own);
        let asked = if is_primary {
            state.holders(&ranks, stripe, copies, settings, self.own)
        } else if keeps || for_another_node {
            // Those before it, each of which is the primary if the ones before that do not answer.
            let before = ranks.all().take_while(|node| *node != self.own).filter(|node| reachable(*node));
            before.map(|node| (node, ReadRole::Primary)).collect()
        } else {
            let label = state
                .history
                .current()
                .node(self.own)
                .map_or_else(NodeLabel::root, |node| node.label.clone());
            let mut order = placed.ask_order(&ranks, copies, Some(self.own), &label, reachable);
            if hot.is_some() {
                spread(&mut order, self.own, stripe);
            }
            let role = |node: NodeId| if primary == Some(node) { ReadRole::Primary } else { ReadRole::Rank };
            // One that has a rank itself asks nobody behind it, who might ask this one.
            let before: Vec<NodeId> = ranks.all().take_while(|node| *node != self.own).collect();
            let asked = order.into_iter().filter_map(|to| match to.nearness {
                // It hands out what it has, and gets nothing more.
                Nearness::Leaving => Some((to.node, ReadRole::Holder)),
                _ => before.contains(&to.node).then(|| (to.node, role(to.node))),
            });
            asked.collect()
        };
        Some(ReadRoute { map: state.history.current().number(), asked, is_primary, keeps })
    }

    /// Whether this node is to keep a stripe: by the map; while it is hot and spread over this node's rank; while it stands in for the primary; and while others may ask it for
    /// what it kept before, since the map has just changed or it drains.
    pub fn keeps(&self, junction: JunctionId, stripe: Stripe) -> bool {
        let (ruled, hot) = (self.ruled(junction, stripe.file), self.hot_ranks(stripe));
        let state = self.state();
        let Some((settings, placed)) = state.placements.get(&junction) else { return true };
        let (ranks, copies) = (placed.ranks(stripe), settings.wanted(ruled).max(hot.unwrap_or(0)));
        let reachable = |node: NodeId| node == self.own || !state.passed_over.contains(&node);
        let was_primary =
            || state.history.former_primaries(stripe, &settings.topology, Instant::now()).contains(&self.own);
        ranks.keeps(self.own, copies)
            || ranks.primary_among(reachable) == Some(self.own)
            || ranks.leaving(copies).any(|node| node == self.own)
            || was_primary()
    }

    /// The nodes that heartbeats are due to now.
    pub fn due(&self) -> Vec<NodeId> {
        let mut guard = self.state();
        let state = &mut *guard;
        let (map, now) = (state.history.current().clone(), state.begun.elapsed());
        let others = map.nodes().iter().map(|node| node.id).filter(|id| *id != self.own);
        let due: Vec<NodeId> = others.filter(|id| state.liveness.is_due(*id, now)).collect();
        let changed = state.look_who_answers();
        drop(guard);
        self.tell(changed);
        due
    }

    /// Records that `node` answered with this heartbeat.
    pub fn heard(&self, node: NodeId, beat: Heartbeat) -> IncarnationSeen {
        let mut state = self.state();
        let seen = state.liveness.heard(node, beat.incarnation);
        // It may have left meanwhile.
        if state.history.current().node(node).is_some() {
            let Heartbeat { figures, build, .. } = beat;
            state.figures.insert(node, ToldFigures { figures, build, at: Instant::now() });
        }
        let changed = state.look_who_answers();
        drop(state);
        self.tell(changed);
        seen
    }

    /// Records that a heartbeat of `node` arrived.
    pub fn noticed(&self, node: NodeId, incarnation: u64) {
        let mut state = self.state();
        // Who has left, or only claims to be a node, is not remembered.
        if state.history.current().node(node).is_some()
            && state.liveness.noticed(node, incarnation) == IncarnationSeen::Twice
        {
            tracing::warn!(%node, "two processes are running under the id of one node; stop one of them");
        }
    }

    /// Records that `node` answered a call other than a heartbeat.
    pub fn answered(&self, node: NodeId) {
        let mut state = self.state();
        state.liveness.answered(node);
        let changed = state.passed_over.contains(&node) && state.look_who_answers();
        drop(state);
        self.tell(changed);
    }

    /// What `node` told of itself last; `None` if it never answered.
    pub fn figures(&self, node: NodeId) -> Option<ToldFigures> {
        self.state().figures.get(&node).cloned()
    }

    pub fn is_passed_over(&self, node: NodeId) -> bool {
        self.state().passed_over.contains(&node)
    }

    /// Returns once `node` is passed over, or has left the cluster.
    pub async fn until_gone(&self, node: NodeId) {
        let mut changes = self.answering.subscribe();
        let is_gone = || {
            let state = self.state();
            state.passed_over.contains(&node) || state.history.current().node(node).is_none()
        };
        while !is_gone() {
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn tell(&self, changed: bool) {
        if changed {
            self.answering.send_modify(|count| *count += 1);
        }
    }

    fn state(&self) -> MutexGuard<'_, ViewState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has each gateway begin with another one of those that are equally near: of a hot stripe all are to serve. A gateway stays with
/// one, which has the bytes then.
fn spread(order: &mut [AskTarget], own: NodeId, stripe: Stripe) {
    let file = u128::from_be_bytes(stripe.file.0);
    let mixed =
        (own.0 ^ file as u64 ^ (file >> 64) as u64 ^ stripe.index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for near in [Nearness::SameLabel, Nearness::Elsewhere] {
        let begin = order.iter().position(|target| target.nearness == near);
        let count = order.iter().filter(|target| target.nearness == near).count();
        if let Some(begin) = begin {
            let first = (mixed >> 32) as usize % count;
            order[begin..begin + count].rotate_left(first);
        }
    }
}

impl ViewState {
    /// What follows from a map that has just come into force.
    fn place_by(&mut self, map: &Arc<ClusterMap>) {
        for (placement, placed) in self.placements.values_mut() {
            *placed = Arc::new(Placement::new(map.clone(), &placement.topology));
        }
        self.liveness.retain(|node| map.node(node).is_some());
        self.figures.retain(|node, _| map.node(*node).is_some());
        self.passed_over.retain(|node| map.node(*node).is_some());
    }

    /// Whom a primary asks for what they hold: after a change of the map the primaries of before, and while nodes come and go the
    /// ranks that stood in for this one.
    fn holders(
        &self,
        ranks: &StripeRanks,
        stripe: Stripe,
        copies: usize,
        settings: &JunctionPlacement,
        own: NodeId,
    ) -> Vec<(NodeId, ReadRole)> {
        let now = Instant::now();
        let mut holders = self.history.former_primaries(stripe, &settings.topology, now);
        let is_unsettled =
            self.unsettled_at.is_some_and(|at| now.saturating_duration_since(at) < FORMER_MAPS_TIME);
        if is_unsettled || !holders.is_empty() {
            holders.extend(ranks.all().take(copies + NEXT_RANKS));
        }
        let mut asked: Vec<NodeId> = Vec::new();
        for node in holders {
            if node != own && !self.passed_over.contains(&node) && !asked.contains(&node) {
                asked.push(node);
            }
        }
        asked.into_iter().map(|node| (node, ReadRole::Holder)).collect()
    }

    /// Whether that has changed.
    fn look_who_answers(&mut self) -> bool {
        let nodes = self.history.current().nodes().iter().map(|node| node.id);
        let now: Vec<NodeId> = nodes.filter(|node| self.liveness.is_passed_over(*node)).collect();
        let changed = now != self.passed_over;
        if changed {
            self.passed_over = now;
            self.unsettled_at = Some(Instant::now());
        }
        changed
    }
}
