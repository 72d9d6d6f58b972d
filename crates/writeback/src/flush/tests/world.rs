//! One tier with its journal, its home, and the tree that clients must see: operations are made here and there, units
//! are carried out in any order that the plan allows, step by step, and the tier may be cut off at each step.

use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use origin::memory::MemoryOrigin;
use origin::{Change, Object, Origin, Reference};
use types::{ByteRange, Error, ErrorKind, FileId, FileKind, Name, Result, Timestamp, Version};

use super::test_target::{Database, GiveWay, JUNCTION, TestTarget};
use super::tree::{Shown, Tree};
use crate::conflict::{Alarm, ConflictPolicy};
use crate::disk::faulty::FaultyDisk;
use crate::flush::discard::Withheld;
use crate::flush::{Entries, FlushClock, FlushConfig, FlushEngine};
use crate::index::Position;
use crate::journal::RecoveredEntry;
use crate::local_ids::LocalIds;
use crate::log::{Append, Log, LogOptions};
use crate::names::DirtyNames;
use crate::operation::{Action, JournalOperation};
use crate::plan::{FlushMoment, FlushPolicy, Scope};
use crate::random::TestRandom;
use crate::sabotage::Sabotage;
use crate::{DirtyPiece, FlushTarget};

/// Nothing in these tests waits for anything but itself.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..10_000 {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
    panic!("a future that never ends");
}

#[derive(Default)]
pub struct TestClock {
    seconds: AtomicI64,
    nanos: AtomicU32,
}

impl TestClock {
    pub fn pass(&self, seconds: i64) {
        self.seconds.fetch_add(seconds, SeqCst);
    }

    /// The next operation is acknowledged at another time than the one before.
    fn tick(&self) {
        self.nanos.fetch_add(1, SeqCst);
    }

    pub fn wall(&self) -> Timestamp {
        let seconds = 2_000_000_000 + self.seconds.load(SeqCst);
        Timestamp { seconds, nanos: self.nanos.load(SeqCst) }
    }
}

impl FlushClock for TestClock {
    fn now(&self) -> FlushMoment {
        let steady = Duration::from_secs(2_000_000_000 + self.seconds.load(SeqCst) as u64);
        FlushMoment { steady, time_of_day: Duration::ZERO }
    }
}

#[async_trait]
impl Entries for Log {
    async fn read(&self, position: Position) -> Result<Bytes> {
        Log::read(self, position, ByteRange::new(0, position.data_length.into()))
    }

    async fn done(&self, sequences: &[u64]) -> Result<()> {
        sequences.iter().try_for_each(|sequence| Log::done(self, *sequence))
    }

    async fn done_synced(&self) -> Result<()> {
        GiveWay(1).await;
        Log::sync_done(self)
    }

    fn is_filling(&self) -> bool {
        false
    }
}

type Running = Pin<Box<dyn Future<Output = ()>>>;

/// Shown when the history of one seed is looked at.
pub fn tell(what: impl FnOnce() -> String) {
    let asked = std::env::var("WRITEBACK_SEEDS").ok();
    if asked.as_deref().and_then(|seeds| seeds.split_once("..")).is_some_and(|(first, last)| first == last) {
        println!("{}", what());
    }
}

pub struct World {
    pub random: TestRandom,
    pub clock: Arc<TestClock>,
    pub target: Arc<TestTarget>,
    pub root: FileId,
    /// What clients must see, with our ids for its objects.
    pub want: Arc<MemoryOrigin>,
    pub wanted: HashMap<FileId, Reference>,
    /// The ctime that clients were told last of each object: of its last operation.
    ctimes: HashMap<FileId, Timestamp>,
    pub ids: LocalIds,
    /// Clients use names that some origins cannot have.
    pub odd_names: bool,
    sabotage: Sabotage,
    policy: FlushPolicy,
    disk: Arc<FaultyDisk>,
    log: Arc<Log>,
    pub shared: Arc<FlushEngine>,
    running: Vec<Running>,
}

fn open(disk: &Arc<FaultyDisk>, random: &mut TestRandom) -> Arc<Log> {
    let fresh = random.bytes(16).try_into().unwrap();
    let options = LogOptions {
        size_max: 64 << 20,
        segment_size: 1 << 20,
        fresh,
        hook: Arc::new(|_| {}),
        sabotage: Sabotage::default(),
        timeline: types::Timeline::default(),
        bond: None,
    };
    Arc::new(Log::open(disk.clone(), options).expect("opens"))
}

impl World {
    pub fn new(seed: u64, sabotage: Sabotage, conflict: ConflictPolicy) -> World {
        let mut random = TestRandom(seed);
        let (origin, want) = (MemoryOrigin::new(), MemoryOrigin::new());
        for origin in [&origin, &want] {
            origin.mkdir(b"d").unwrap();
            origin.write_file(b"a", b"the first file of the origin").unwrap();
            origin.write_file(b"d/b", &[7; 5000]).unwrap();
            origin.link(b"d/b", b"c").unwrap();
            origin.symlink(b"d/e", b"a").unwrap();
            origin.pass_time(Duration::from_secs(1));
        }
        let target = Arc::new(TestTarget {
            origin: origin.clone(),
            database: Arc::new(Mutex::new(Database::default())),
            names: Arc::default(),
            alarms: Arc::default(),
            random: Mutex::new(TestRandom(random.next())),
            refuses: Mutex::default(),
            refusals: Mutex::default(),
            listings: AtomicU64::new(0),
            is_replaced: AtomicBool::new(false),
            halves: AtomicBool::new(false),
            interrupted: AtomicU64::new(0),
            writing: Mutex::default(),
        });
        let clock = Arc::new(TestClock::default());
        let disk = Arc::new(FaultyDisk::default());
        let log = open(&disk, &mut random);
        let delay = Duration::from_secs([0, 0, 20, 100][random.below(4) as usize]);
        let policy = FlushPolicy { delay, conflict, ..FlushPolicy::default() };
        let shared = shared(&log, &target, &clock, &policy, sabotage);
        let ids = LocalIds::from_drawn(random.bytes(16).try_into().unwrap(), sabotage);
        let (wanted, ctimes, running) = (HashMap::new(), HashMap::new(), Vec::new());
        let root = FileId([0; 16]);
        let mut world = World {
            random,
            clock,
            target,
            root,
            want,
            wanted,
            ctimes,
            ids,
            odd_names: false,
            sabotage,
            policy,
            disk,
            log,
            shared,
            running,
        };
        world.first_look();
        world
    }

    /// Both trees are the same now: an object of the one is that of the other.
    fn first_look(&mut self) {
        let (ours, theirs) = (now(self.target.origin.root()).unwrap(), now(self.want.root()).unwrap());
        let mut ways = vec![(ours, theirs)];
        while let Some((ours, theirs)) = ways.pop() {
            let id = FileId::derive(JUNCTION, &ours.identity.0);
            if self.wanted.is_empty() {
                self.root = id;
                self.target.adopt_root(id, &ours);
            }
            if ours.attr.is_dir() {
                for (name, _) in now(self.target.list(&ours.reference)).expect("lists") {
                    let object = now(self.target.origin.lookup(&ours.reference, &name)).unwrap();
                    let other = now(self.want.lookup(&theirs.reference, &name)).unwrap();
                    now(self.target.lookup(id, &name)).unwrap();
                    ways.push((object, other));
                }
            }
            self.ctimes.insert(id, ours.attr.ctime);
            now(self.target.learn(id, ours));
            self.wanted.insert(id, theirs.reference);
        }
    }

    /// What a change of the object is based on.
    pub fn base(&self, id: FileId) -> Option<Version> {
        let database = self.target.database();
        database.known.get(&id).map(|object| object.version)
    }

    /// The operation was acknowledged.
    pub fn journal(&mut self, action: Action, data: &[u8]) {
        let acknowledged = self.clock.wall();
        let mut operation =
            JournalOperation { junction: JUNCTION, acknowledged, since: acknowledged, action };
        operation.since = self.target.names.lock().unwrap().since(operation.object(), acknowledged);
        let Append::Written(position) = self.log.append(&operation.encode(), data).expect("appends") else {
            panic!("the journal is full");
        };
        self.log.commit().expect("commits");
        tell(|| format!("{}: {:?}", position.sequence, operation.action));
        self.target.names.lock().unwrap().apply(position.sequence, &operation, position);
        self.ctimes.extend(operation.objects().map(|object| (object, acknowledged)));
        self.clock.tick();
        self.shared.add(position.sequence, operation, position, Duration::ZERO);
    }

    /// Begin a unit, or let one that is on its way take a step. False: there is nothing to do.
    pub fn flush_step(&mut self) -> bool {
        if self.running.is_empty() || (self.running.len() < 5 && self.random.below(3) == 0) {
            let Some(unit) = self.shared.next() else { return !self.running.is_empty() };
            tell(|| format!("begin {unit:?}"));
            let shared = self.shared.clone();
            self.running.push(Box::pin(async move { shared.carry(unit).await }));
        }
        let at = self.random.below(self.running.len() as u64) as usize;
        let mut context = Context::from_waker(Waker::noop());
        if self.running[at].as_mut().poll(&mut context).is_ready() {
            drop(self.running.swap_remove(at));
        }
        true
    }

    /// Fewer than `most`.
    pub fn flush_steps(&mut self, most: u64) {
        for _ in 0..self.random.below(most) {
            self.flush_step();
        }
    }

    /// From now on another storage answers, or the right one again. No unit sees one after the other and then the one again:
    /// between two calls of one unit nobody mounts anything twice.
    pub fn replace_origin(&mut self, is_replaced: bool) {
        if !is_replaced {
            self.finish_units();
        }
        self.target.is_replaced.store(is_replaced, SeqCst);
    }

    /// What is on its way ends, and nothing new begins.
    pub fn finish_units(&mut self) {
        while !self.running.is_empty() {
            let mut context = Context::from_waker(Waker::noop());
            self.running.retain_mut(|unit| unit.as_mut().poll(&mut context).is_pending());
        }
    }

    /// All that can be flushed.
    pub fn flush_all(&mut self) -> std::result::Result<(), String> {
        for _ in 0..100_000 {
            self.shared.plan().ask(&Scope::All);
            if !self.flush_step() {
                if self.shared.plan().is_empty() {
                    return Ok(());
                }
                self.clock.pass(1);
            }
        }
        let left: Vec<_> = self.shared.plan().parked().map(|parked| parked.error.to_string()).collect();
        let waiting = self.shared.plan().waiting_for();
        Err(format!("{} operations are never flushed: {waiting:?}; parked: {left:?}", waiting.len()))
    }

    /// What waits for what.
    pub fn left(&self) -> Vec<(u64, Vec<u64>)> {
        self.shared.plan().waiting_for()
    }

    /// An operator gives these up, none of which is on its way; or the power fails before that is durable.
    pub fn give_up(&mut self, sequences: &BTreeSet<u64>, is_cut_short: bool) {
        let withheld = Withheld::take(&self.shared, sequences).expect("all of them wait");
        let withheld = withheld.expect("none is on its way");
        match is_cut_short {
            true => now(withheld.mark()).expect("is written"),
            false => now(withheld.give_up()).expect("is written and synced"),
        }
    }

    /// These, and all that make no sense without them.
    pub fn with_dependents(&self, sequences: &[u64]) -> BTreeSet<u64> {
        self.shared.plan().with_dependents(sequences)
    }

    pub fn shared_ask(&self, scope: &Scope) {
        self.shared.plan().ask(scope);
    }

    pub fn pending(&self) -> usize {
        self.shared.plan().len()
    }

    pub fn metrics(&self) -> &crate::FlushMetrics {
        self.shared.note(&mut None);
        &self.shared.metrics
    }

    pub fn is_flushing(&self) -> bool {
        !self.running.is_empty()
    }

    /// For good, or until there is room again.
    pub fn fail_marks(&self, fsync: bool) {
        let faults = &self.disk.faults;
        if fsync {
            faults.sync_fails_in.store(1, SeqCst);
        } else {
            faults.copies_on_write.store(true, SeqCst);
            faults.full.store(true, SeqCst);
        }
    }

    pub fn marks_go_again(&self) {
        self.disk.faults.full.store(false, SeqCst);
    }

    /// The tier dies here and starts anew.
    pub fn crash(&mut self) {
        match self.random.below(2) {
            0 => self.start_with(self.disk.after_kill()),
            _ => self.cut_power(),
        }
    }

    pub fn cut_power(&mut self) {
        let left = self.disk.after_power_cut(&mut self.random);
        self.start_with(left);
    }

    fn start_with(&mut self, disk: Arc<FaultyDisk>) {
        tell(|| "crash".into());
        self.running.clear();
        self.disk = disk;
        self.log = open(&self.disk, &mut self.random);
        let names: Arc<Mutex<DirtyNames>> = Arc::default();
        let refusals = *self.target.refusals.lock().unwrap();
        self.target = Arc::new(TestTarget {
            origin: self.target.origin.clone(),
            database: self.target.database.clone(),
            names: names.clone(),
            alarms: self.target.alarms.clone(),
            random: Mutex::new(TestRandom(self.random.next())),
            refuses: Mutex::default(),
            refusals: Mutex::new(refusals),
            listings: AtomicU64::new(0),
            is_replaced: AtomicBool::new(self.target.is_replaced.load(SeqCst)),
            halves: AtomicBool::new(self.target.halves.load(SeqCst)),
            interrupted: AtomicU64::new(self.target.interrupted.load(SeqCst)),
            writing: Mutex::default(),
        });
        self.shared = shared(&self.log, &self.target, &self.clock, &self.policy, self.sabotage);
        self.ids = LocalIds::from_drawn(self.random.bytes(16).try_into().unwrap(), self.sabotage);
        for sequence in self.log.live_sequences() {
            let (position, head) = self.log.head(sequence).expect("reads");
            let operation = JournalOperation::decode(&head).expect("decodes");
            names.lock().unwrap().apply(sequence, &operation, position);
            let written_ms = self.clock.now().steady.as_millis() as u64;
            self.shared.recover(&RecoveredEntry { sequence, head, position, written_ms }, operation);
        }
        // Of what was flushed a start knows what the origin tells.
        for (id, ctime) in &mut self.ctimes {
            let known = self.target.database().known.get(id).map(|object| object.attr);
            if let Some(seen) = names.lock().unwrap().attr(*id, known.as_ref()) {
                *ctime = seen.ctime;
            }
        }
    }

    /// An object that has another ctime for clients than they were told with its last operation. A directory's moves with
    /// its names, at the origin when these arrive there.
    pub fn moved_ctime(&self) -> Option<String> {
        let (_, entries) = self.entries();
        entries.into_iter().filter(|entry| !entry.object.attr.is_dir()).find_map(|entry| {
            let known = self.target.database().known.get(&entry.id).map(|object| object.attr);
            let seen = self.target.names.lock().unwrap().attr(entry.id, known.as_ref())?.ctime;
            let told = self.ctimes[&entry.id];
            (seen != told)
                .then(|| format!("{} ({}) changed at {seen:?} and not {told:?}", entry.name, entry.id))
        })
    }

    /// The bytes of a file as clients see them.
    fn view_bytes(&self, id: FileId, size: u64) -> Result<Vec<u8>> {
        let names = self.target.names.lock().unwrap();
        let all = [DirtyPiece::Clean { range: ByteRange::new(0, size) }];
        let pieces = match names.overlay(id) {
            Some(overlay) => overlay.plan(ByteRange::new(0, size)),
            None if size == 0 => Vec::new(),
            None => all.to_vec(),
        };
        let mut bytes = Vec::new();
        for piece in pieces {
            match piece {
                DirtyPiece::Dirty { range, position, skip } => {
                    bytes.extend_from_slice(&self.log.read(position, ByteRange::new(skip, range.length))?);
                }
                DirtyPiece::Zero { range } => bytes.resize(bytes.len() + range.length as usize, 0),
                DirtyPiece::Clean { range } => {
                    let reference = self.target.database().reference(id);
                    let stale = || Error::new(ErrorKind::Stale, "read clean bytes of", id);
                    let object = now(self.target.origin.getattr(&reference.ok_or_else(stale)?))?;
                    let there = range.clamp_to(object.attr.size);
                    let read = self.target.origin.read(&object.reference, object.version, there);
                    bytes.extend_from_slice(&now(read)?);
                    bytes.resize(bytes.len() + (range.length - there.length) as usize, 0);
                }
            }
        }
        Ok(bytes)
    }

    /// The tree as clients see it: the origin's with ours laid over.
    pub fn view(&self) -> std::result::Result<Tree, String> {
        let mut tree = Tree::default();
        let mut ways = vec![(String::new(), self.root)];
        while let Some((path, id)) = ways.pop() {
            if tree.len() > 1000 {
                return Err("a tree without an end".into());
            }
            let (attr, target, local) = {
                let names = self.target.names.lock().unwrap();
                let known = self.target.database().known.get(&id).map(|object| object.attr);
                let attr = names.attr(id, known.as_ref()).ok_or(format!("{path} ({id}): no attributes"))?;
                let target = names.local(id).and_then(|local| local.target.clone());
                (attr, target, names.is_local(id))
            };
            let reference = self.target.database().reference(id).filter(|_| !local);
            let mut bytes = target.map(|target| target.to_vec()).unwrap_or_default();
            match attr.kind {
                FileKind::Directory => {
                    let listed = match &reference {
                        Some(reference) => {
                            now(self.target.list(reference)).map_err(|e| format!("{path}: {e}"))?
                        }
                        None => Vec::new(),
                    };
                    let names = self.target.names.lock().unwrap();
                    let entries = names.lay_over(id, listed, |id| id);
                    // What is staged on its way to its name shows for a moment, and nobody asks for it.
                    let shown =
                        entries.into_iter().filter(|(name, _)| !name.as_bytes().starts_with(b".forebay-"));
                    ways.extend(shown.map(|(name, id)| (format!("{path}/{name}"), id)));
                }
                FileKind::Regular => {
                    let read = self.view_bytes(id, attr.size);
                    bytes = read.map_err(|error| format!("{path}: {error}"))?;
                }
                FileKind::Symlink if bytes.is_empty() => {
                    let reference = reference.ok_or(format!("{path}: a link that nobody has"))?;
                    bytes = now(self.target.origin.readlink(&reference)).map_err(|e| e.to_string())?.to_vec();
                }
                _ => {}
            }
            tree.insert(path, Shown::new(&attr, bytes));
        }
        Ok(tree)
    }
}

fn shared(
    log: &Arc<Log>,
    target: &Arc<TestTarget>,
    clock: &Arc<TestClock>,
    policy: &FlushPolicy,
    sabotage: Sabotage,
) -> Arc<FlushEngine> {
    let config = FlushConfig { policies: [(JUNCTION, policy.clone())].into(), ..FlushConfig::new("tier") };
    Arc::new(FlushEngine::new(log.clone(), target.clone(), clock.clone(), config, sabotage))
}

/// One change at an origin of the tests.
pub fn change(origin: &MemoryOrigin, change: Change) -> Result<Option<Object>> {
    now(origin.change(&change)).map(|changed| changed.object)
}

pub fn alarms(world: &World) -> Vec<Alarm> {
    world.target.alarms.lock().unwrap().clone()
}

pub fn name(name: &str) -> Name {
    Name::new(name.as_bytes().to_vec()).unwrap()
}
