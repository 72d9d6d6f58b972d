//! What can go wrong in a run: how it begins, by what it is seen that it hit something, and how it ends.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cluster::NodeState;
use coordinator::Coordinator;
use members::{Membership, MembershipStatus, NodeChange};
use peer::message::{ReadRequest, ReadRole, ReadUrgency};
use relay::SplitMix;
use tokio::time::{Instant, sleep, timeout};
use types::{BLOCK_SIZE, ByteRange, NodeId};

use crate::faults::link::LinkMode;
use crate::faults::model_store::{JUNCTION, ModelFile};
use crate::faults::running_node::{CACHE_SIZE, RunningNode, membership_config};
use crate::faults::stage::{FaultStage, NODES_MAX};

/// Reads that waited for a node that is passed over end sooner.
const GONE_PATIENCE: Duration = Duration::from_secs(20);
/// The file that no reader reads, for faults that need to know who has read which version.
pub const PRIVATE: usize = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// A node dies, and returns with its cache.
    Kill,
    /// It returns with an empty directory.
    Wipe,
    /// A bit of its cache is another one when it returns.
    FlipInCache,
    /// It returns with a version of a file that is not the newest any more.
    ReturnWithOldVersion,
    /// A node sends bytes that are not those that it has summed up.
    SpoilAnswers,
    /// A bit of what a node sends is altered under way.
    AlterOnWire,
    /// What a node sends to another one is lost, and the other way all is well.
    LoseCalls,
    /// What a node answers another one is lost.
    LoseAnswers,
    /// A node's answers come slowly.
    SlowLink,
    /// A node hears of no new map for a while.
    DelayMap,
    /// A node is told of a map again that is over.
    OldMap,
    /// A node is drained and undrained.
    Drain,
    /// A node joins.
    Join,
    /// The coordinator does not answer.
    CoordinatorAway,
    /// The coordinator is restored from a backup, and counts from an older number.
    CoordinatorRestored,
    /// A second process begins to run as a node.
    SecondIncarnation,
    /// A node of another cluster, and one that is not in the map, ask for bytes.
    Strangers,
    /// A node's disk is full.
    CacheFull,
}

impl FaultKind {
    pub const ALL: [FaultKind; 18] = [
        FaultKind::Kill,
        FaultKind::Wipe,
        FaultKind::FlipInCache,
        FaultKind::ReturnWithOldVersion,
        FaultKind::SpoilAnswers,
        FaultKind::AlterOnWire,
        FaultKind::LoseCalls,
        FaultKind::LoseAnswers,
        FaultKind::SlowLink,
        FaultKind::DelayMap,
        FaultKind::OldMap,
        FaultKind::Drain,
        FaultKind::Join,
        FaultKind::CoordinatorAway,
        FaultKind::CoordinatorRestored,
        FaultKind::SecondIncarnation,
        FaultKind::Strangers,
        FaultKind::CacheFull,
    ];

    /// Whether another fault may happen while this one lasts.
    pub fn may_last(self) -> bool {
        use FaultKind::{CacheFull, Kill, LoseAnswers, LoseCalls, SlowLink};
        matches!(self, CacheFull | Kill | LoseAnswers | LoseCalls | SlowLink)
    }

    fn downs_a_node(self) -> bool {
        use FaultKind::{FlipInCache, Kill, ReturnWithOldVersion, Wipe};
        matches!(self, FlipInCache | Kill | ReturnWithOldVersion | Wipe)
    }
}

/// A fault that has begun.
pub struct Fault {
    pub kind: FaultKind,
    /// The node that it is about, and another one.
    at: usize,
    other: usize,
    /// What was counted when it began.
    before: u64,
    /// What was seen when it began, or when it ended, by which it hit something for certain.
    has_hit: bool,
}

/// A fault that did what it must not, and the one thing that it cannot be: `Ok(None)`, not now.
pub type Begun = Result<Option<Fault>, String>;

impl Fault {
    pub async fn begin(stage: &mut FaultStage, kind: FaultKind, random: &mut SplitMix) -> Begun {
        let up = stage.up();
        if up.len() < 3 || (kind.downs_a_node() && up.len() < stage.places.len()) {
            return Ok(None);
        }
        let at = stage.draw_node(random, None);
        let other = stage.draw_node(random, Some(at));
        let mut fault = Fault { kind, at, other, before: 0, has_hit: false };
        match kind {
            FaultKind::Kill | FaultKind::Wipe => {
                fault.before = fault.asked_in_vain(stage);
                if !fault.holds_some(stage).await {
                    return Ok(None);
                }
                stage.kill(at).await;
            }
            FaultKind::FlipInCache if !fault.flip(stage, random).await? => return Ok(None),
            FaultKind::ReturnWithOldVersion if !fault.return_with_old_version(stage, random).await? => {
                return Ok(None);
            }
            FaultKind::FlipInCache | FaultKind::ReturnWithOldVersion => {}
            FaultKind::SpoilAnswers => stage.node(at).answers.next.store(3, Ordering::Relaxed),
            FaultKind::AlterOnWire => fault.set_links(stage, LinkMode::Altered).await,
            FaultKind::LoseCalls | FaultKind::LoseAnswers => fault.set_links(stage, LinkMode::Lost).await,
            FaultKind::SlowLink => fault.set_links(stage, LinkMode::Slow).await,
            FaultKind::DelayMap => {
                stage.node(at).holds_maps.send_replace(true);
                stage.change(other, NodeChange::Drain).await?;
            }
            FaultKind::OldMap => {
                let node = stage.node(at);
                let first = node.maps.lock().unwrap_or_else(PoisonError::into_inner).first().cloned();
                let Some(old) = first.filter(|old| old.number() < node.view.number()) else {
                    return Ok(None);
                };
                if node.view.advance(old.clone()) {
                    return Err(format!("n{} takes the old map {}", node.id.0, old.number()));
                }
                fault.has_hit = true;
            }
            FaultKind::Drain => stage.change(at, NodeChange::Drain).await?,
            FaultKind::Join if stage.places.len() >= NODES_MAX => return Ok(None),
            FaultKind::Join => fault.at = stage.add().await,
            FaultKind::CoordinatorAway => {
                stage.etcd.set_away(true);
                fault.before = stage.running().map(|node| node.served_bytes()).sum();
            }
            FaultKind::CoordinatorRestored => {
                let backup = stage.etcd.snapshot();
                fault.before = stage.node(at).news.borrow().history;
                // What a node knew of itself since the backup holds, so all have to hear of both changes, one after the other: the map
                // before the first has the node's last state, too.
                for (change, state) in
                    [(NodeChange::Drain, NodeState::Draining), (NodeChange::Undrain, NodeState::Up)]
                {
                    stage.change(other, change).await?;
                    let id = stage.places[other].id;
                    let has_heard = |node: &RunningNode| {
                        let map = node.view.map();
                        let now = map.node(id).map(|node| node.state);
                        // One that was marked out meanwhile cannot be drained, and is up by its return.
                        (now == Some(state) || now == Some(NodeState::Out)) && node.has_newest_map()
                    };
                    stage.until("all have heard of a change", || stage.running().all(has_heard)).await?;
                }
                stage.etcd.restore(&backup);
            }
            FaultKind::SecondIncarnation => fault.second_incarnation(stage).await?,
            FaultKind::Strangers => fault.strangers(stage, random).await?,
            FaultKind::CacheFull => {
                stage.node(at).cache.set_limits(CACHE_SIZE, 1 << 60, Some(0)).expect("legal")
            }
        }
        Ok(Some(fault))
    }

    /// Whether it is known that it hit something.
    pub fn hits(&self) -> bool {
        self.has_hit
    }

    /// Whether it is seen by now that it hit something.
    pub async fn has_hit(&mut self, stage: &FaultStage) -> bool {
        self.has_hit = self.has_hit
            || match self.kind {
                FaultKind::Kill | FaultKind::Wipe => {
                    let id = stage.places[self.at].id;
                    self.asked_in_vain(stage) > self.before
                        || stage.running().any(|node| node.view.is_passed_over(id))
                }
                FaultKind::SpoilAnswers => {
                    let answers = &stage.node(self.at).answers;
                    answers.spoiled.load(Ordering::Relaxed) > 0 && answers.next.load(Ordering::Relaxed) == 0
                }
                FaultKind::AlterOnWire
                | FaultKind::LoseCalls
                | FaultKind::LoseAnswers
                | FaultKind::SlowLink => self.hit_bytes(stage).await > self.before,
                FaultKind::DelayMap => {
                    let behind = stage.node(self.at).view.number();
                    stage.running().any(|node| node.view.number() > behind)
                }
                FaultKind::Drain => stage.running().any(|node| {
                    let map = node.view.map();
                    map.node(stage.places[self.at].id).is_some_and(|it| it.state == NodeState::Draining)
                }),
                FaultKind::Join => {
                    let id = stage.places[self.at].id;
                    stage.running().all(|node| node.view.map().node(id).is_some())
                }
                FaultKind::CoordinatorAway => {
                    let served: u64 = stage.running().map(|node| node.served_bytes()).sum();
                    stage.etcd.client().read("").await.is_err() && served > self.before
                }
                FaultKind::CoordinatorRestored => {
                    stage.running().all(|node| node.news.borrow().history > 0)
                        && stage.node(self.at).news.borrow().history > self.before
                }
                FaultKind::CacheFull => !stage.node(self.at).cache.takes_fills(),
                FaultKind::FlipInCache
                | FaultKind::ReturnWithOldVersion
                | FaultKind::OldMap
                | FaultKind::SecondIncarnation
                | FaultKind::Strangers => false,
            };
        self.has_hit
    }

    pub async fn end(&mut self, stage: &mut FaultStage) -> Result<(), String> {
        match self.kind {
            FaultKind::Kill => {
                stage.return_node(self.at).await;
                self.has_hit &= self.holds_some(stage).await;
            }
            FaultKind::Wipe => {
                let dir = tempfile::tempdir().expect("a directory");
                // What was there goes with its directory.
                stage.places[self.at].dir = dir;
                stage.return_node(self.at).await;
            }
            FaultKind::SpoilAnswers => stage.node(self.at).answers.next.store(0, Ordering::Relaxed),
            FaultKind::LoseCalls | FaultKind::LoseAnswers => {
                self.nobody_waits_for_the_gone(stage).await?;
                self.set_links(stage, LinkMode::Good).await;
            }
            FaultKind::AlterOnWire | FaultKind::SlowLink => {
                self.set_links(stage, LinkMode::Good).await;
            }
            FaultKind::DelayMap => {
                stage.node(self.at).holds_maps.send_replace(false);
                stage.change(self.other, NodeChange::Undrain).await?;
            }
            FaultKind::Drain => stage.change(self.at, NodeChange::Undrain).await?,
            FaultKind::CoordinatorAway => stage.etcd.set_away(false),
            FaultKind::CoordinatorRestored => self.all_begin_anew(stage).await?,
            FaultKind::CacheFull => {
                stage.node(self.at).cache.set_limits(CACHE_SIZE, 0, Some(0)).expect("legal");
            }
            FaultKind::FlipInCache
            | FaultKind::ReturnWithOldVersion
            | FaultKind::OldMap
            | FaultKind::Join
            | FaultKind::SecondIncarnation
            | FaultKind::Strangers => {}
        }
        Ok(())
    }

    /// Whether the node has bytes of some file.
    async fn holds_some(&self, stage: &FaultStage) -> bool {
        let cache = &stage.node(self.at).cache;
        for file in stage.store.all() {
            if cache.cached_bytes(&file.key).await > 0 {
                return true;
            }
        }
        false
    }

    /// Calls of others that were not answered well.
    fn asked_in_vain(&self, stage: &FaultStage) -> u64 {
        let others = stage.places.iter().enumerate().filter(|(at, _)| *at != self.at);
        others.filter_map(|(_, place)| place.node.as_ref()).map(|node| node.metrics.failed_asks.get()).sum()
    }

    /// The ways that the fault is about: a slow node's to all, else one way of the links of two nodes.
    async fn ways(&self, stage: &FaultStage) -> Vec<std::sync::Arc<crate::faults::link::LinkWay>> {
        let (us, other) = (stage.places[self.at].id, stage.places[self.other].id);
        match self.kind {
            FaultKind::SlowLink => {
                let mut ways = Vec::new();
                for place in stage.places.iter().filter(|place| place.id != us) {
                    ways.push(stage.links.link(place.id, us).await.back.clone());
                }
                ways
            }
            FaultKind::LoseCalls => vec![stage.links.link(us, other).await.there.clone()],
            _ => vec![stage.links.link(other, us).await.back.clone()],
        }
    }

    async fn set_links(&mut self, stage: &FaultStage, mode: LinkMode) {
        self.before = if mode == LinkMode::Good { self.before } else { self.hit_bytes(stage).await };
        self.ways(stage).await.iter().for_each(|way| way.set(mode));
    }

    async fn hit_bytes(&self, stage: &FaultStage) -> u64 {
        self.ways(stage).await.iter().map(|way| way.hit()).sum()
    }

    /// Once a node is passed over the reads that wait for it go elsewhere, though the link stays as it is.
    async fn nobody_waits_for_the_gone(&self, stage: &FaultStage) -> Result<(), String> {
        let (from, to) =
            if self.kind == FaultKind::LoseCalls { (self.at, self.other) } else { (self.other, self.at) };
        let (Some(from), to) = (stage.places[from].node.as_ref(), stage.places[to].id) else { return Ok(()) };
        let begun = Instant::now();
        while !from.view.is_passed_over(to) && begun.elapsed() < Duration::from_secs(10) {
            sleep(Duration::from_millis(20)).await;
        }
        let (before, begun) = (stage.pending.next(), Instant::now());
        while from.view.is_passed_over(to) && !stage.pending.have_ended(before) {
            if begun.elapsed() > GONE_PATIENCE {
                return Err(format!("reads wait for n{}, which n{} passes over", to.0, from.id.0));
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// A bit on the disk of a node that is down is another one when it returns and reads it. `false`: there is none.
    async fn flip(&mut self, stage: &mut FaultStage, random: &mut SplitMix) -> Result<bool, String> {
        let node = stage.node(self.at);
        let mut held = Vec::new();
        for (index, file) in stage.store.all().into_iter().enumerate().filter(|(index, _)| *index != PRIVATE)
        {
            if file.key.size > 0 && node.cache.cached_bytes(&file.key).await == file.key.size {
                held.push((index, file));
            }
        }
        if held.is_empty() {
            return Ok(false);
        }
        let (index, file) = held.swap_remove((random.draw() % held.len() as u64) as usize);
        stage.kill(self.at).await;
        let id = file.key.file;
        let name = format!("{:02x}/{id}-{}.data", id.0[0], file.key.version);
        let path = stage.places[self.at].dir.path().join("cache").join(name);
        let offset = random.draw() % file.key.size;
        if let Ok(mut bytes) = std::fs::read(&path) {
            bytes[offset as usize] ^= 1 << (random.draw() % 8);
            std::fs::write(&path, bytes).map_err(|e| e.to_string())?;
        }
        stage.return_node(self.at).await;
        let node = stage.node(self.at);
        let block = offset / BLOCK_SIZE * BLOCK_SIZE;
        let of_block = |file: &ModelFile| {
            let begin = block.min(file.key.size);
            ByteRange::new(begin, BLOCK_SIZE.min(file.key.size - begin))
        };
        node.gateway.check(&stage.store, index, of_block).await?;
        // Not if the file has changed meanwhile.
        self.has_hit = node.cache.metrics().corrupt_blocks.get() > 0;
        Ok(self.has_hit)
    }

    /// A node that keeps a file is down while the file changes. When it is back its version takes the place of no newer one.
    /// `false`: nobody keeps it as this needs it.
    async fn return_with_old_version(
        &mut self,
        stage: &mut FaultStage,
        random: &mut SplitMix,
    ) -> Result<bool, String> {
        let old = stage.store.now(PRIVATE);
        let keepers: Vec<usize> =
            stage.keepers(&old).into_iter().filter(|at| stage.places[*at].node.is_some()).collect();
        let [stays, goes] = keepers[..] else { return Ok(false) };
        for at in [stays, goes] {
            stage.node(at).gateway.check(&stage.store, PRIVATE, ModelFile::whole).await?;
        }
        if held(stage, goes, &old).await < old.key.size {
            return Ok(false); // its disk is full
        }
        stage.kill(goes).await;
        stage.store.put(PRIVATE, random.draw(), old.key.size).await;
        let new = stage.store.now(PRIVATE);
        stage.node(stays).gateway.check(&stage.store, PRIVATE, ModelFile::whole).await?;
        let begun = Instant::now();
        let mut is_judged = false;
        while !is_judged && begun.elapsed() < Duration::from_secs(3) {
            sleep(Duration::from_millis(20)).await;
            is_judged = held(stage, stays, &new).await == new.key.size && held(stage, stays, &old).await == 0;
        }
        stage.return_node(goes).await;
        self.has_hit = is_judged && held(stage, goes, &old).await > 0;
        let begun = Instant::now();
        // Until it is seen that the node has looked around, and got the newer one.
        while is_judged
            && held(stage, goes, &new).await < new.key.size
            && begun.elapsed() < Duration::from_secs(6)
        {
            if held(stage, stays, &old).await > 0 {
                return Err(format!("n{} got the old version back", stage.places[stays].id.0));
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(self.has_hit)
    }

    async fn second_incarnation(&mut self, stage: &FaultStage) -> Result<(), String> {
        let id = stage.places[self.at].id;
        let dir = tempfile::tempdir().expect("a directory");
        let address = "127.0.0.1:1".parse().expect("an address");
        let config = membership_config(stage.certified(id), dir.path(), address);
        let client = std::sync::Arc::new(stage.etcd.client());
        let second = Membership::start(client, config).map_err(|e| e.to_string())?;
        // It also calls the others.
        let caller = stage.caller(stage.identity(id), 77, self.other);
        let answered = caller.ping(Duration::from_secs(5)).await.is_ok();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(5) {
            match &second.now().status {
                MembershipStatus::Waiting(why) if why.contains("another process runs") => {
                    self.has_hit = answered;
                    return Ok(());
                }
                MembershipStatus::Joined if stage.places[self.at].node.is_some() => {
                    return Err(format!("two processes are {id} at once"));
                }
                _ => sleep(Duration::from_millis(20)).await,
            }
        }
        Ok(())
    }

    /// Whoever is not of this cluster, or not in its map, gets no bytes.
    async fn strangers(&mut self, stage: &FaultStage, random: &mut SplitMix) -> Result<(), String> {
        const SOON: Duration = Duration::from_secs(10);
        let files = stage.store.all();
        let file = &files[1 + (random.draw() % (files.len() as u64 - 1)) as usize];
        let length = file.key.size.min(BLOCK_SIZE);
        let request = ReadRequest {
            file: file.key.file,
            version: file.key.version,
            size: file.key.size,
            range: ByteRange::new(0, length),
            junction: JUNCTION,
            reference: file.object.reference.0.clone(),
            role: ReadRole::Primary,
            hops: 0,
            urgency: ReadUrgency::Demand,
            map: 0,
            copies: None,
        };
        let unknown = NodeId(99);
        let member = stage.places[self.other].id;
        let asked = [
            ("of another cluster", stage.caller(stage.strange_identity(member), 1, self.at)),
            ("in no map", stage.caller(stage.identity(unknown), 1, self.at)),
        ];
        let mut refused = 0;
        for (who, caller) in asked {
            match timeout(SOON, caller.read(&request, SOON)).await {
                Ok(Ok(Ok(_))) => return Err(format!("a node {who} got bytes")),
                Ok(_) => refused += 1,
                Err(_) => {}
            }
        }
        self.has_hit = refused == 2;
        Ok(())
    }

    /// All go by the maps of the restored coordinator, though their numbers are lower.
    async fn all_begin_anew(&self, stage: &FaultStage) -> Result<(), String> {
        let what = "the map of the restored coordinator is in force";
        stage.until(what, || stage.running().all(RunningNode::has_newest_map)).await
    }
}

async fn held(stage: &FaultStage, at: usize, file: &ModelFile) -> u64 {
    stage.node(at).cache.cached_bytes(&file.key).await
}
