//! One run: a cluster, readers, files that change, and faults that are drawn from a seed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cluster::{NodeLabel, STRIPE_BYTES};
use relay::SplitMix;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use types::{BLOCK_SIZE, ByteRange};

use crate::JunctionPlacement;
use crate::faults::fault::{Fault, FaultKind, PRIVATE};
use crate::faults::gateway::Gateway;
use crate::faults::model_store::{JUNCTION, ModelFile, ModelStore};
use crate::faults::stage::FaultStage;
use crate::sabotage::Bug;

/// The first one is of `PRIVATE`, the last one of a file of two stripes, of which only what is around their border is read.
const SIZES: [u64; 9] = [
    300_000,
    1,
    60_000,
    BLOCK_SIZE,
    3 * BLOCK_SIZE + 17,
    5 * BLOCK_SIZE,
    700_000,
    (1 << 20) + 77,
    STRIPE_BYTES + 5 * BLOCK_SIZE + 9,
];
const READERS: u64 = 4;
const READ_PAUSE_MS: u64 = 20;
const CHANGE_PAUSE_MS: u64 = 500;
/// A fault that has hit nothing by then hits nothing.
const HIT_PATIENCE: Duration = Duration::from_secs(8);

/// What happened in some runs.
#[derive(Clone, Debug, Default)]
pub struct RunScore {
    /// By kind: how many there were, and how many of these hit something.
    pub faults: BTreeMap<FaultKind, (u64, u64)>,
    pub reads: u64,
    pub changes: u64,
}

impl RunScore {
    pub fn add(&mut self, other: &RunScore) {
        for (kind, (played, hit)) in &other.faults {
            self.count(*kind, *played, *hit);
        }
        self.reads += other.reads;
        self.changes += other.changes;
    }

    fn count(&mut self, kind: FaultKind, played: u64, hit: u64) {
        let (all, some) = self.faults.entry(kind).or_default();
        (*all, *some) = (*all + played, *some + hit);
    }

    pub fn hits(&self) -> u64 {
        self.faults.values().map(|(_, hit)| hit).sum()
    }
}

/// What the readers and the run find out.
#[derive(Default)]
struct Findings {
    wrong: Mutex<Option<String>>,
    reads: std::sync::atomic::AtomicU64,
    changes: std::sync::atomic::AtomicU64,
}

impl Findings {
    fn tell(&self, wrong: String) {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(wrong);
    }

    fn check(&self) -> Result<(), String> {
        let wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        wrong.clone().map_or(Ok(()), Err)
    }
}

/// Plays `faults` faults of these kinds. `Err`: what is wrong, and what had happened.
pub async fn play(
    seed: u64,
    faults: usize,
    kinds: &[FaultKind],
    bug: Option<Bug>,
) -> Result<RunScore, String> {
    let mut history = Vec::new();
    let mut stage = FaultStage::start(&SIZES, bug).await;
    let played = play_on(&mut stage, seed, faults, kinds, &mut history).await;
    played.map_err(|wrong| format!("seed {seed}: {wrong}; after {history:?}"))
}

async fn play_on(
    stage: &mut FaultStage,
    seed: u64,
    faults: usize,
    kinds: &[FaultKind],
    history: &mut Vec<FaultKind>,
) -> Result<RunScore, String> {
    let mut random = SplitMix::new(seed);
    let findings = Arc::<Findings>::default();
    let mut beside = JoinSet::new();
    for _ in 0..READERS {
        let own = SplitMix::new(random.draw());
        beside.spawn(read_on(stage.store.clone(), stage.gateways.clone(), own, findings.clone()));
    }
    beside.spawn(change_on(stage.store.clone(), SplitMix::new(random.draw()), findings.clone()));
    stage.settle().await?;
    let mut score = RunScore::default();
    let mut lasting: Option<Fault> = None;
    let mut draws = 0;
    while history.len() < faults {
        draws += 1;
        if draws > 50 * faults {
            return Err(format!("these faults cannot be: {kinds:?}"));
        }
        sleep(Duration::from_millis(random.draw() % 200)).await;
        let kind = kinds[(random.draw() % kinds.len() as u64) as usize];
        if lasting.as_ref().is_some_and(|lasting| lasting.kind == kind) {
            continue;
        }
        history.push(kind);
        let Some(mut fault) = Fault::begin(stage, kind, &mut random).await? else {
            history.pop();
            // What cannot be now may be possible once nothing else is wrong.
            end(lasting.take(), stage, &mut score).await?;
            continue;
        };
        let begun = Instant::now();
        while !fault.has_hit(stage).await && begun.elapsed() < HIT_PATIENCE {
            findings.check()?;
            sleep(Duration::from_millis(20)).await;
        }
        sleep(Duration::from_millis(random.draw() % 600)).await;
        findings.check()?;
        if lasting.is_none() && kind.may_last() && random.draw().is_multiple_of(2) {
            lasting = Some(fault);
            continue;
        }
        end(Some(fault), stage, &mut score).await?;
        end(lasting.take(), stage, &mut score).await?;
    }
    end(lasting.take(), stage, &mut score).await?;
    beside.abort_all();
    while beside.join_next().await.is_some() {}
    findings.check()?;
    heal(stage).await?;
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
    (score.reads, score.changes) = (count(&findings.reads), count(&findings.changes));
    Ok(score)
}

async fn end(fault: Option<Fault>, stage: &mut FaultStage, score: &mut RunScore) -> Result<(), String> {
    if let Some(mut fault) = fault {
        let had_hit = fault.has_hit(stage).await;
        fault.end(stage).await?;
        score.count(fault.kind, 1, u64::from(had_hit && fault.hits()));
    }
    Ok(())
}

/// When nothing is wrong any more the newest versions are read at all nodes, and all that are to keep a file come to do so.
async fn heal(stage: &FaultStage) -> Result<(), String> {
    stage.settle().await?;
    for index in 0..SIZES.len() {
        read_at_all(stage, index).await?;
    }
    let begun = Instant::now();
    let mut looked = Instant::now();
    let mut lacking = lacks(stage).await;
    while !lacking.is_empty() {
        if begun.elapsed() > crate::faults::stage::PATIENCE {
            let held = held_of(stage, &lacking).await;
            return Err(format!("copies are missing for ever: {held}; {}", stage.told()));
        }
        // A change has the cluster looked at anew: else what found a full disk is looked at after an hour.
        if looked.elapsed() > Duration::from_secs(5) {
            looked = Instant::now();
            for node in stage.running() {
                let (copies, _) = node.view.junction_placement(JUNCTION).expect("it is placed");
                node.view.place(JUNCTION, JunctionPlacement { copies, topology: NodeLabel::root() });
            }
            // A cache whose disk was full tries it again after some seconds. What was read before that was kept by nobody, so there
            // is nothing to copy until it is read again.
            for (index, file) in stage.store.all().into_iter().enumerate() {
                if file.key.size < STRIPE_BYTES && !is_held(stage, &file).await {
                    read_at_all(stage, index).await?;
                }
            }
        }
        sleep(Duration::from_millis(50)).await;
        lacking = lacks(stage).await;
    }
    for index in 0..SIZES.len() {
        read_at_all(stage, index).await?;
    }
    Ok(())
}

async fn read_at_all(stage: &FaultStage, index: usize) -> Result<(), String> {
    for node in stage.running() {
        node.gateway.check(&stage.store, index, around_border).await?;
    }
    Ok(())
}

/// Whether any node has all of it.
async fn is_held(stage: &FaultStage, file: &ModelFile) -> bool {
    for node in stage.running() {
        if node.cache.cached_bytes(&file.key).await == file.key.size {
            return true;
        }
    }
    false
}

/// A file, and the number of a node that is to keep it.
type Lacking = (usize, usize);

/// What all nodes have of the files that are lacking, for whoever looks for the reason.
async fn held_of(stage: &FaultStage, lacking: &[Lacking]) -> String {
    let mut told = Vec::new();
    for (index, at) in lacking {
        let key = stage.store.now(*index).key;
        let mut nodes = Vec::new();
        for node in stage.running() {
            let (cached, versions) =
                (node.cache.cached_bytes(&key).await, node.cache.versions_held(key.file));
            let (room, failure) = (node.cache.room_for_copies(), node.cache.stats().degraded);
            let read = node.books.known().read_version(key.file);
            let junction = node.books.known().junction(key.file);
            let (missing, waiting) = (node.books.ledger().missing_bytes(), node.books.pulls().len());
            let (counted, filling) = (node.cache.is_counted(), node.cache.takes_fills());
            nodes.push(format!(
                "n{}: {cached}, versions {versions:?}, of {junction:?}, read {read:?}, room {room}, disk {failure:?}, counted {counted}, takes {filling}, \
                 counts {missing} bytes missing, {waiting} stripes wait to be copied",
                node.id.0
            ));
        }
        let (size, version, nodes) = (key.size, key.version, nodes.join("; "));
        told.push(format!(
            "file {index} at n{} ({size} bytes of {version}; {nodes})",
            stage.places[*at].id.0
        ));
    }
    told.join(", ")
}

/// The files of one stripe that are not whole at a node that is to keep them.
async fn lacks(stage: &FaultStage) -> Vec<Lacking> {
    let mut lacking = Vec::new();
    for (index, file) in
        stage.store.all().into_iter().enumerate().filter(|(_, it)| it.key.size < STRIPE_BYTES)
    {
        for at in stage.keepers(&file) {
            if stage.node(at).cache.cached_bytes(&file.key).await < file.key.size {
                lacking.push((index, at));
            }
        }
    }
    lacking
}

/// All of a file, or what is around the border of its stripes.
fn around_border(file: &ModelFile) -> ByteRange {
    if file.key.size <= STRIPE_BYTES {
        return file.whole();
    }
    let begin = STRIPE_BYTES - 2 * BLOCK_SIZE - 5;
    ByteRange::new(begin, 4 * BLOCK_SIZE)
}

/// Reads until it is told to stop: whole files, blocks, and any bytes, through any node that runs.
async fn read_on(
    store: Arc<ModelStore>,
    gateways: Arc<Mutex<Vec<Gateway>>>,
    mut random: SplitMix,
    findings: Arc<Findings>,
) {
    loop {
        sleep(Duration::from_millis(random.draw() % READ_PAUSE_MS)).await;
        let gateway = {
            let gateways = gateways.lock().unwrap_or_else(PoisonError::into_inner);
            if gateways.is_empty() {
                continue;
            }
            gateways[(random.draw() % gateways.len() as u64) as usize].clone()
        };
        let index = 1 + (random.draw() % (SIZES.len() as u64 - 1)) as usize;
        let (how, first, second) = (random.draw() % 3, random.draw(), random.draw());
        let range_of = |file: &ModelFile| {
            let whole = around_border(file);
            let offset = first % whole.length.max(1);
            let any = ByteRange::new(whole.offset + offset, 1 + second % (whole.length - offset).max(1));
            match how {
                0 => whole,
                1 => {
                    let begin = any.offset / BLOCK_SIZE * BLOCK_SIZE;
                    ByteRange::new(begin, BLOCK_SIZE.min(file.key.size - begin))
                }
                _ => ByteRange::new(any.offset, any.length.min(whole.end() - any.offset)),
            }
        };
        match gateway.check(&store, index, range_of).await {
            Ok(()) => {
                findings.reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            Err(wrong) => return findings.tell(wrong),
        }
    }
}

/// Changes files until it is told to stop. One in four changes its size, too.
async fn change_on(store: Arc<ModelStore>, mut random: SplitMix, findings: Arc<Findings>) {
    loop {
        sleep(Duration::from_millis(random.draw() % CHANGE_PAUSE_MS)).await;
        let index = 1 + (random.draw() % (SIZES.len() as u64 - 1)) as usize;
        if index == PRIVATE {
            continue;
        }
        let size = SIZES[index];
        let resized = random.draw().is_multiple_of(4) && size < STRIPE_BYTES;
        let size = if resized { 1 + random.draw() % (2 * size) } else { size };
        store.put(index, random.draw(), size).await;
        findings.changes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}
