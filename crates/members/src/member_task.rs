//! The one task of a membership: it watches the cluster's keys and does what the pure parts decide, one swap at a time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cluster::{ClusterMap, MapNode, NodeState};
use coordinator::{Coordinator, KeyWatch, Lease, LeaseState, Revision, Swap, SwapOutcome, WatchEvent};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};
use types::{Error, ErrorKind, JunctionId, NodeId, Result};

use crate::alarms::{AlarmBoard, ClusterAlarm, alarms_of};
use crate::changes::with_roster;
use crate::copy_rules::rules_in;
use crate::file_writer::FileWriter;
use crate::identity::random;
use crate::junctions::{JunctionProfile, KnownJunction, KnownJunctions, assign, differences, id_in, next_id};
use crate::membership::{MembershipConfig, MembershipNews, MembershipStatus};
use crate::node_file::NodeFile;
use crate::records::{ClusterId, Incarnation, JunctionRecord, OutReason, ROSTER_KEY, STEWARD_KEY};
use crate::register::{JoinApplicant, StateAndReason, admit, register};
use crate::roll::ClusterRoll;
use crate::settle::NextStep;
use crate::steward::{Steward, StewardSeat};

/// After a swap that was won, its event is waited for at most this long.
const OWN_EVENT: Duration = Duration::from_secs(2);
/// After a swap that was lost, its events are on their way.
const PAUSE: Duration = Duration::from_millis(30);
/// After a call that failed.
const RETRY: Duration = Duration::from_millis(500);
/// The longest pause of a node whose swaps are lost again and again.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// How often the roll is compared with etcd, in case a watch that lives tells nothing, and how soon a second look follows one that
/// found it behind.
const COMPARE: Duration = Duration::from_secs(10);
const COMPARE_AGAIN: Duration = Duration::from_secs(1);
/// An etcd that refuses writes for so long is told to operators.
const REFUSES: Duration = Duration::from_secs(10);
/// A node that ends waits for its disk at most this long.
const LAST_WRITE: Duration = Duration::from_secs(2);
/// Events that are taken in before anything follows from them: when a thousand nodes start, not each of their records is a map.
const EVENTS_AT_ONCE: usize = 64;
/// A map is kept on disk this much later at most, so that many changes are few writes.
const KEEP_MAP: Duration = Duration::from_secs(1);
const REVOKE: Duration = Duration::from_secs(2);

pub(crate) struct MemberTask {
    coordinator: Arc<dyn Coordinator>,
    config: MembershipConfig,
    id: NodeId,
    incarnation: Incarnation,
    /// As it is on disk.
    file: Option<NodeFile>,
    writer: FileWriter,
    roll: ClusterRoll,
    /// All keys were heard at least once, so that absence means something.
    has_roll: bool,
    lease: Option<Lease>,
    steward: Steward,
    /// The junctions have their ids, and their digests were told.
    has_assigned: bool,
    /// It has been in the cluster since this process began.
    has_joined: bool,
    /// Its keys are as they should be, in this history of etcd.
    is_in: bool,
    /// Why not.
    kept_out: Option<String>,
    kept_out_since: Option<Instant>,
    /// etcd does not answer, and what was said of that.
    away: Option<String>,
    /// Since when etcd refuses writes, and what it says.
    refused: Option<(Instant, String)>,
    /// Swaps that were lost one after the other.
    losses: u32,
    /// When the roll is compared with etcd next, and the revision that was missing in it the last time.
    compare_at: Instant,
    missing: Option<Revision>,
    history: u64,
    /// Since when the map of the former history is held, because nodes of it are not in this one yet.
    held_since: Option<Instant>,
    /// This node's state before etcd went back.
    state_before: Option<StateAndReason>,
    board: AlarmBoard,
    /// Alarms that stay.
    latched: BTreeSet<ClusterAlarm>,
    now: MembershipNews,
    told: watch::Sender<Arc<MembershipNews>>,
    /// Nothing is done before the watch has come so far, or this moment.
    awaited: Revision,
    not_before: Instant,
    begun: Instant,
}

impl MemberTask {
    pub fn new(
        coordinator: Arc<dyn Coordinator>,
        config: MembershipConfig,
        id: NodeId,
        incarnation: Incarnation,
        file: Option<NodeFile>,
        told: watch::Sender<Arc<MembershipNews>>,
    ) -> MemberTask {
        let known = file.as_ref().and_then(|file| file.map.as_ref()).map_or(0, |map| map.number());
        let steward = Steward::new(config.down_after);
        let begun = Instant::now();
        let writer = FileWriter::new(config.dir.clone());
        MemberTask {
            coordinator,
            config,
            id,
            incarnation,
            file,
            writer,
            roll: ClusterRoll::behind(known),
            has_roll: false,
            lease: None,
            steward,
            has_assigned: false,
            has_joined: false,
            is_in: false,
            kept_out: None,
            kept_out_since: None,
            away: None,
            refused: None,
            losses: 0,
            compare_at: begun + COMPARE,
            missing: None,
            history: 0,
            held_since: None,
            state_before: None,
            board: AlarmBoard::default(),
            latched: BTreeSet::new(),
            now: MembershipNews::default(),
            told,
            awaited: Revision(0),
            not_before: begun,
            begun,
        }
    }

    pub async fn run(mut self, stopped: oneshot::Receiver<()>) {
        tokio::select! {
            // Its sender is also gone when the membership is dropped; then this task ends without a word.
            _ = stopped => {}
            () = Box::pin(self.work()) => {}
        }
        let _ = timeout(LAST_WRITE, self.keep_last()).await;
        if let Some(lease) = self.lease.take() {
            let _ = timeout(REVOKE, lease.revoke()).await;
        }
    }

    async fn work(&mut self) {
        let mut watch = self.begin().await;
        loop {
            if let Err(error) = self.act().await {
                if matches!(self.now.status, MembershipStatus::Refused(_)) {
                    self.publish();
                    return;
                }
                self.etcd_failed(&error);
            }
            self.give_up_lease().await;
            self.look_whether_etcd_is_there().await;
            self.compare(&mut watch).await;
            self.publish();
            let pause = self.config.tick.min(self.pause());
            tokio::select! {
                event = watch.next() => match event {
                    Some(event) => self.take_all(event, &mut watch).await,
                    None => return,
                },
                written = self.writer.written() => self.file = written.or(self.file.take()),
                () = sleep(pause) => {}
            }
        }
    }

    /// The first look decides whether the node has to go by its file.
    async fn begin(&mut self) -> KeyWatch {
        match self.coordinator.read("").await {
            Ok(state) => {
                let behind = state.revision;
                self.take(&WatchEvent::Reset { state, went_back: false });
                self.coordinator.watch("", Some(behind))
            }
            Err(error) => {
                self.away = Some(error.to_string());
                self.etcd_failed(&error);
                self.publish();
                self.coordinator.watch("", None)
            }
        }
    }

    /// This one, and those that are there already.
    async fn take_all(&mut self, event: WatchEvent, watch: &mut KeyWatch) {
        self.take(&event);
        for _ in 1..EVENTS_AT_ONCE {
            tokio::select! {
                biased;
                event = watch.next() => match event {
                    Some(event) => self.take(&event),
                    None => return,
                },
                () = std::future::ready(()) => return,
            }
        }
    }

    fn take(&mut self, event: &WatchEvent) {
        let own = self.roll.node(self.id).map(|node| (node.state, node.out_reason));
        let change = self.roll.take(event);
        self.has_roll = true;
        let Some(known) = change.went_back else { return };
        let found = self.roll.revision();
        self.latched.retain(|alarm| !matches!(alarm, ClusterAlarm::EtcdWentBack { .. }));
        self.latched.insert(ClusterAlarm::EtcdWentBack { known, found });
        self.history += 1;
        self.held_since = None;
        self.state_before = own.or(self.state_before).or_else(|| self.state_on_map());
        self.is_in = false;
        self.has_assigned = false;
        self.awaited = Revision(0);
        self.steward.begin_anew();
    }

    /// As the last map has this node, which does not say why it is out.
    fn state_on_map(&self) -> Option<StateAndReason> {
        let map = self.now.map.as_deref().or_else(|| self.file.as_ref()?.map.as_ref())?;
        let own = map.nodes().iter().find(|node| node.id == self.id)?;
        let why = (own.state == NodeState::Out).then_some(OutReason::Left);
        Some((own.state, why))
    }

    /// What is still to be waited for before something is done.
    fn pause(&self) -> Duration {
        let left = self.not_before.saturating_duration_since(Instant::now());
        if left.is_zero() { self.config.tick } else { left.max(Duration::from_millis(1)) }
    }

    /// One step at most that changes anything.
    async fn act(&mut self) -> Result<()> {
        let is_told = self.roll.revision() >= self.awaited;
        if !self.has_roll || !(is_told && self.awaited > Revision(0)) && Instant::now() < self.not_before {
            return Ok(());
        }
        self.awaited = Revision(0);
        let kept = self.own_cluster();
        let cluster = match admit(&self.roll, kept, self.config.node.wire) {
            Ok(cluster) => cluster,
            Err(error) => return self.kept_out(error),
        };
        if kept.is_none() {
            self.keep_identity(cluster);
            return Ok(());
        }
        self.now.cluster = Some(cluster);
        if self.lease.as_ref().is_none_or(|lease| lease.state() == LeaseState::Lost) {
            self.lease = None;
            let granted = self.coordinator.grant(self.config.lease).await;
            self.lease = Some(granted.inspect_err(|error| self.write_failed(error))?);
        }
        let Some(lease) = self.lease.as_ref().map(Lease::id) else { return Ok(()) };
        let differs = if self.has_assigned {
            differences(&self.roll, &self.config.junctions)
        } else {
            let there = self.roll.alive.get(&self.id).and_then(|alive| alive.good());
            there.map(|alive| alive.differs.clone()).unwrap_or_default()
        };
        let applicant = JoinApplicant {
            id: self.id,
            incarnation: self.incarnation,
            profile: &self.config.node,
            cluster: Some(cluster),
            lease,
            has_joined: self.has_joined,
            before: self.state_before,
            differs: &differs,
        };
        match register(&self.roll, &applicant, random()?)? {
            NextStep::Done(()) => {}
            NextStep::Swap(swap, ()) => return self.swap(&swap).await.map(drop),
            NextStep::Refuse(error) => return self.kept_out(error),
            // How long the other one's lease lasts is etcd's to say: after an election it begins anew.
            NextStep::Wait(error) => {
                self.kept_out_since.get_or_insert_with(Instant::now);
                self.wait(error.to_string());
                return Ok(());
            }
        }
        self.state_before = None;
        let mut is_waiting = false;
        if !self.has_assigned {
            match assign(&self.roll, &self.config.junctions, &self.known_junctions(), self.id)? {
                NextStep::Done(_) => self.has_assigned = true,
                NextStep::Swap(swap, is_last) => {
                    let is_won = self.swap(&swap).await?;
                    self.has_assigned = is_won && is_last;
                    // The ids are known once the watch has told them.
                    return Ok(());
                }
                // Its ids are known here, and the alarm names the key that cannot be read.
                NextStep::Wait(_)
                    if self.config.junctions.iter().all(|junction| self.id_of(junction).is_some()) =>
                {
                    is_waiting = true;
                }
                NextStep::Wait(error) => {
                    if self.now.map.is_none() {
                        self.take_file(&error);
                    }
                    self.wait(error.to_string());
                    return Ok(());
                }
                NextStep::Refuse(error) => return self.kept_out(error),
            }
        }
        if !is_waiting && !self.config.junctions.iter().all(|junction| id_in(&self.roll, junction).is_some())
        {
            // The watch is late, or somebody has removed one, whose id this node has and keeps for the cluster.
            self.has_assigned = false;
            self.not_before = Instant::now() + PAUSE;
            return Ok(());
        }
        self.is_in = true;
        self.has_joined = true;
        self.kept_out = None;
        self.kept_out_since = None;
        self.now.status = MembershipStatus::Joined;
        if self.roll.number() != self.roll.number_of_keys() {
            // A node was removed by hand. Those that start now would compute a lower number.
            let swap = with_roster(&self.roll, Swap::new(), self.id, random()?)?;
            return self.swap(&swap).await.map(drop);
        }
        let seat = StewardSeat { node: self.id, incarnation: self.incarnation, lease };
        if self.away.is_some() {
            self.steward.begin_anew();
        } else if let Some(swap) = self.steward.next(&self.roll, seat, self.begun.elapsed())? {
            self.swap(&swap).await?;
        }
        Ok(())
    }

    /// Whether it was won. What comes next is decided from what the watch tells behind it.
    async fn swap(&mut self, swap: &Swap) -> Result<bool> {
        match self.coordinator.swap(swap).await {
            Ok(SwapOutcome::Won(revision)) => {
                self.awaited = revision;
                self.not_before = Instant::now() + OWN_EVENT;
                self.losses = 0;
                self.refused = None;
                Ok(true)
            }
            Ok(SwapOutcome::Lost(_)) => {
                // Many may have lost at once.
                let pause = (PAUSE * 2u32.saturating_pow(self.losses)).min(PAUSE_MAX);
                self.losses = (self.losses + 1).min(8);
                let spread = random()? % (pause.as_millis() as u64);
                self.not_before = Instant::now() + pause + Duration::from_millis(spread);
                Ok(false)
            }
            Err(error) if error.kind() == ErrorKind::OutcomeUnknown => {
                self.not_before = Instant::now() + RETRY;
                Ok(false)
            }
            Err(error) => {
                self.write_failed(&error);
                Err(error)
            }
        }
    }

    /// A server that answers and takes no change says why.
    fn write_failed(&mut self, error: &Error) {
        if error.kind() != ErrorKind::Unavailable {
            self.refused.get_or_insert_with(|| (Instant::now(), error.to_string()));
        }
    }

    /// A node that is kept out gives its place as the steward to one that is in, and its sign of life would say that it is in, too.
    async fn give_up_lease(&mut self) {
        let is_late = self.kept_out_since.is_some_and(|since| since.elapsed() >= self.config.lease);
        let Some(lease) = self.lease.as_ref().filter(|_| is_late).map(Lease::id) else { return };
        let alive = self.roll.alive.get(&self.id).and_then(|alive| alive.lease);
        let steward = self.roll.steward.as_ref().and_then(|steward| steward.lease);
        if (alive == Some(lease) || steward == Some(lease))
            && let Some(lease) = self.lease.take()
        {
            let _ = timeout(REVOKE, lease.revoke()).await;
        }
    }

    /// A watch may live and tell nothing. What is missing in the roll at two looks is not on its way.
    async fn compare(&mut self, watch: &mut KeyWatch) {
        if !self.has_roll || Instant::now() < self.compare_at {
            return;
        }
        self.compare_at = Instant::now() + COMPARE;
        let Ok(state) = self.coordinator.read(ROSTER_KEY).await else { return };
        let newest = state.entries.iter().find(|entry| entry.key == ROSTER_KEY).map(|entry| entry.revision);
        let is_missing = |at: &Revision| *at > self.roll.revision();
        if self.missing.is_none_or(|at| !is_missing(&at)) {
            self.missing = newest.filter(is_missing);
            if self.missing.is_some() {
                self.compare_at = Instant::now() + COMPARE_AGAIN;
            }
            return;
        }
        let Ok(state) = self.coordinator.read("").await else { return };
        let behind = state.revision;
        warn!(known = %self.roll.revision(), now = %behind, "the watch told nothing of what has changed, and is opened anew");
        self.take(&WatchEvent::Reset { state, went_back: false });
        *watch = self.coordinator.watch("", Some(behind));
        self.missing = None;
    }

    /// The cluster does not take this node as things are. One that has no map yet gives up; one that runs goes on with the map that it
    /// has.
    fn kept_out(&mut self, error: Error) -> Result<()> {
        self.is_in = false;
        self.kept_out_since.get_or_insert_with(Instant::now);
        if self.now.map.is_none() && self.roll.good_cluster().is_none() {
            self.take_file(&error);
        }
        if self.now.map.is_none() {
            self.now.status = MembershipStatus::Refused(error.clone());
            return Err(error);
        }
        self.wait(error.to_string());
        Ok(())
    }

    fn wait(&mut self, why: String) {
        self.not_before = Instant::now() + self.config.tick.min(RETRY);
        let is_told = matches!(&self.now.status, MembershipStatus::Waiting(told) if *told == why);
        if self.now.map.is_none() && !is_told {
            warn!("this node waits: {why}");
            self.now.status = MembershipStatus::Waiting(why.clone());
        }
        self.kept_out = Some(why);
    }

    /// A call to etcd had no answer.
    fn etcd_failed(&mut self, error: &Error) {
        self.not_before = Instant::now() + RETRY;
        if self.now.map.is_some() {
            return;
        }
        self.take_file(error);
        if self.now.map.is_none() && !matches!(&self.now.status, MembershipStatus::Waiting(_)) {
            warn!("this node has not been in a cluster and waits for etcd: {error}");
            self.now.status = MembershipStatus::Waiting(error.to_string());
        }
    }

    /// A node that was a member begins with what it knew last.
    fn take_file(&mut self, error: &Error) {
        let Some(NodeFile { cluster, map: Some(map), copy_rules, .. }) = &self.file else { return };
        warn!(map = map.number(), "this node starts with the last map that it knew: {error}");
        self.now.cluster = Some(*cluster);
        self.now.map = Some(Arc::new(map.clone()));
        self.now.copy_rules.clone_from(copy_rules);
        self.now.status = MembershipStatus::FromFile(error.to_string());
        let known = self.known_junctions();
        let ids = self.config.junctions.iter();
        self.now.junctions =
            ids.filter_map(|junction| Some((junction.path.clone(), known.id_of(junction)?))).collect();
    }

    /// Those that this process serves, unless under another id than the cluster has, and those that are on disk from before.
    fn known_junctions(&self) -> KnownJunctions {
        let mut known = self.file.as_ref().map(|file| file.junctions.clone()).unwrap_or_default();
        for JunctionProfile { path, url, .. } in &self.config.junctions {
            let served = self.now.junctions.get(path).filter(|_| !self.now.conflicted.contains(path));
            let Some(id) = served else { continue };
            known.junctions.retain(|known| (&known.path, &known.url) != (path, url));
            known.junctions.push(KnownJunction { id: id.0, path: path.clone(), url: url.clone() });
        }
        known
    }

    /// The id of a junction: as the cluster has it, as this process serves it, or as this node remembers it if only the record under
    /// that id cannot be read.
    fn id_of(&self, junction: &JunctionProfile) -> Option<JunctionId> {
        let told = || self.now.junctions.get(&junction.path).copied();
        let is_unreadable =
            |id: &JunctionId| self.roll.junctions.get(id).is_some_and(|kept| kept.record.is_err());
        let remembered = || self.known_junctions().id_of(junction).filter(is_unreadable);
        id_in(&self.roll, junction).or_else(told).or_else(remembered)
    }

    /// A new node writes down who it is before it is in the cluster: were it started anew as somebody else, its own name would be
    /// taken.
    fn keep_identity(&mut self, cluster: ClusterId) {
        if let Some(why) = self.writer.failed().map(str::to_owned) {
            self.wait(why);
        }
        let file = NodeFile::of(cluster, self.id);
        self.writer.begin(file);
    }

    /// A quiet etcd is asked before it is taken to be away.
    async fn look_whether_etcd_is_there(&mut self) {
        let is_heard = |coordinator: &dyn Coordinator, most: Duration| {
            coordinator.heard().is_some_and(|heard| heard <= most)
        };
        let mut failed = None;
        if !is_heard(&*self.coordinator, self.config.away_after / 2) {
            failed = self.coordinator.read(STEWARD_KEY).await.err();
        }
        let known = self.coordinator.heard().is_some() || self.away.is_some();
        if !known || is_heard(&*self.coordinator, self.config.away_after) {
            self.away = None;
        } else if self.away.is_none() {
            let silent = || format!("{}: no answer", self.coordinator.url());
            self.away = Some(failed.map_or_else(silent, |error| error.to_string()));
        }
    }

    /// Tells what has changed, and keeps it on disk.
    fn publish(&mut self) {
        let history = self.now.history;
        self.find_conflicts();
        if self.is_in {
            self.take_map();
            self.take_junctions();
            self.now.copy_rules = rules_in(&self.roll);
            self.now.nfs = self.roll.good_nodes().filter_map(|(id, node)| Some((id, node.nfs?))).collect();
        }
        let mut alarms = self.latched.clone();
        if self.has_roll {
            alarms.extend(alarms_of(&self.roll));
        }
        alarms.extend(self.away.clone().map(|why| ClusterAlarm::EtcdUnreachable { why }));
        let refused = self.refused.as_ref().filter(|(since, _)| since.elapsed() >= REFUSES);
        alarms.extend(refused.map(|(_, why)| ClusterAlarm::EtcdRefusesWrites { why: why.clone() }));
        alarms.extend(self.writer.trouble().map(|why| ClusterAlarm::FileNotWritten { why }));
        alarms.extend(self.why_not_in());
        let (raised, over) = self.board.set(alarms, types::timeline::wall_clock());
        raised.iter().for_each(|alarm| warn!("{alarm}"));
        over.iter().for_each(|alarm| info!("over: {alarm}"));
        self.now.alarms = self.board.raised();
        if history != self.now.history {
            info!(history = self.now.history, "the numbers of maps begin anew");
        }
        self.told.send_if_modified(|told| {
            let changed = !told.says(&self.now);
            if changed {
                *told = Arc::new(self.now.clone());
            }
            changed
        });
        self.keep(false);
    }

    /// The cluster that this node is of, by its file or its certificate.
    fn own_cluster(&self) -> Option<ClusterId> {
        let certified = self.config.certified.map(|certified| certified.cluster);
        self.file.as_ref().map(|file| file.cluster).or(certified)
    }

    fn why_not_in(&self) -> Option<ClusterAlarm> {
        if !self.has_roll || self.now.map.is_none() {
            return None;
        }
        let kept = self.own_cluster();
        match (&self.roll.cluster, kept) {
            (None, _) => Some(ClusterAlarm::NoCluster),
            (Some(found), Some(kept)) if found.good().is_some_and(|found| found.id != kept) => {
                found.good().map(|found| ClusterAlarm::OtherCluster { found: found.id, own: kept })
            }
            _ => self.kept_out.clone().map(|why| ClusterAlarm::NotIn { why }),
        }
    }

    fn take_map(&mut self) {
        if self.roll.good_cluster().is_none() {
            return;
        }
        match self.roll.map() {
            Ok(map) => {
                let is_new = self.now.map.as_ref().is_none_or(|now| **now != map);
                if self.now.history != self.history && self.holds_former(&map) {
                    return;
                }
                if is_new || self.now.history != self.history {
                    info!(number = map.number(), nodes = map.nodes().len(), "the map of the cluster");
                    self.now.map = Some(Arc::new(map));
                    self.now.history = self.history;
                }
            }
            Err(error) => warn!("the map stays as it is: {error}"),
        }
    }

    /// In a new history nodes register one after the other, and the first map is of one node alone. The former one is held until all
    /// its nodes that are up are there again, but not for longer than a silent node stays up.
    fn holds_former(&mut self, map: &ClusterMap) -> bool {
        let of_file = || self.file.as_ref()?.map.clone().map(Arc::new);
        let Some(former) = self.now.map.clone().or_else(of_file) else { return false };
        let is_there = |node: &MapNode| map.nodes().iter().any(|there| there.id == node.id);
        if former.nodes().iter().all(|node| node.state != NodeState::Up || is_there(node)) {
            return false;
        }
        let since = *self.held_since.get_or_insert_with(Instant::now);
        let holds = since.elapsed() < self.config.down_after;
        if holds {
            self.now.map.get_or_insert(former);
        }
        holds
    }

    /// Whoever serves files of a junction has its id in their handles: once this process has told an id it stays, and another one
    /// counts from the next start.
    fn take_junctions(&mut self) {
        let known = self.known_junctions();
        for junction in &self.config.junctions {
            let Some(is) = self.id_of(junction) else { continue };
            let path = junction.path.clone();
            let told = self.now.junctions.get(&path).copied();
            if let Some(was) = told.or_else(|| known.id_of(junction)).filter(|was| *was != is) {
                let path = path.clone();
                self.latched.insert(ClusterAlarm::JunctionRenumbered { path, was: was.0, is: is.0 });
            }
            self.now.junctions.entry(path).or_insert(is);
        }
    }

    /// A junction that this process serves under one id and the cluster has under another one, or whose id the cluster has for another
    /// junction. That stays so for as long as the process runs, whatever becomes of the keys.
    fn find_conflicts(&mut self) {
        if self.roll.good_cluster().map(|cluster| cluster.id) != self.now.cluster {
            return;
        }
        for junction in &self.config.junctions {
            let Some(told) = self.now.junctions.get(&junction.path) else { continue };
            let is_other = |there: &JunctionRecord| there.path != junction.path || there.url != junction.url;
            let there = self.roll.junctions.get(told).and_then(|kept| kept.good());
            if id_in(&self.roll, junction).is_some_and(|is| is != *told) || there.is_some_and(is_other) {
                self.now.conflicted.insert(junction.path.clone());
            }
        }
    }

    /// Waits for the write that is under way, and writes what has come since.
    async fn keep_last(&mut self) {
        for _ in 0..2 {
            self.keep(true);
            if self.writer.is_writing() {
                self.file = self.writer.written().await.or(self.file.take());
            }
        }
    }

    fn keep(&mut self, at_once: bool) {
        if !self.has_joined || self.writer.is_writing() {
            return;
        }
        let (Some(cluster), Some(map)) = (self.now.cluster, self.now.map.clone()) else { return };
        let known = self.known_junctions();
        let kept = self.config.junctions.iter().filter_map(|junction| {
            // The next process is to begin with the id that the cluster has.
            let id = match self.now.conflicted.contains(&junction.path) {
                true => id_in(&self.roll, junction)?,
                false => *self.now.junctions.get(&junction.path)?,
            };
            Some(KnownJunction { id: id.0, path: junction.path.clone(), url: junction.url.clone() })
        });
        let junctions = KnownJunctions { junctions: kept.collect(), next: next_id(&self.roll, &known) };
        let (map, copy_rules) = (Some((*map).clone()), self.now.copy_rules.clone());
        let file = NodeFile { map, junctions, copy_rules, ..NodeFile::of(cluster, self.id) };
        let is_due = at_once || self.writer.rest() >= KEEP_MAP;
        let kept = self.file.as_ref();
        // A disk that has just failed is left alone for as long.
        let is_due = is_due || file.is_urgent(kept) && self.writer.failed().is_none();
        if kept != Some(&file) && is_due {
            self.writer.begin(file);
        }
    }
}
