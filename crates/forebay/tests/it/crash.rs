//! Nothing acknowledged is lost: a tier is killed again and again, at random and at each named step of its journal,
//! while clients work; after each crash what they see is what they were told, in order.
//!
//! The real binary serves a directory. NFS clients in this process and programs on a mount of the same tier work each
//! in a directory of its own and, with names of its own, in a shared one. What each was told is in a ledger outside of
//! the tier (`crash/ledger.rs`, which says what a crash may take); at the end the origin's directory is compared with
//! the models, byte for byte.
//!
//! A tier that is killed while it has the kernel forget a name, and a program waits for it in that directory, is not let
//! go by the kernel, nor is the program (docs/SEMANTICS.md, "Through FUSE"): the mount is aborted then. Who interrupts
//! these tests may have to do that himself, with `umount -f`.
//!
//! With `cargo test --package forebay --test it -- --nocapture --test-threads=1 crash::`, `FOREBAY_CRASHES` is the number
//! of crashes over all tests of this file, `FOREBAY_CRASH_SEED` makes the same operations again (not the same timing),
//! `FOREBAY_CRASH_KEEP` keeps the directory of a failure.

mod bed;
pub mod chance;
mod client;
mod draw;
mod ledger;
mod look;
mod model;
pub mod nfs;
mod power;
mod programs;
mod swap;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use bed::Bed;
use chance::Chance;
use client::{Client, Fate, Hands, Life};
use draw::Draw;
use ledger::{Ledger, Loss};
use look::of_client;
use nfs::Nfs;
use programs::{Programs, Promise};
use swap::Swapper;

const NFS_CLIENTS: usize = 4;
const PROGRAMS: usize = 3;
/// A tier is killed after this at the latest, however slow the machine is.
const LIFE_MAX: Duration = Duration::from_secs(3);
/// Crashes of one tier; then its origin is compared, and another one begins.
const CRASHES_OF_ONE: u32 = 10;
/// Over all tests here.
const CRASHES: u32 = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Through,
    Back,
}

/// A program on a mount is promised what a local file system does, or that each change of a name is synced.
pub use types::Durability;

impl Policy {
    fn name(self) -> &'static str {
        match self {
            Policy::Through => "through",
            Policy::Back => "back",
        }
    }

    fn loss(self) -> Loss {
        match self {
            Policy::Through => Loss::ByFile,
            Policy::Back => Loss::InOrder,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub policy: Policy,
    /// Of what is written `back`.
    pub durability: Durability,
    /// The cache and the journal lie on a disk whose power is cut.
    pub power_cut: bool,
    /// Every other tier dies at a named step of the journal.
    pub at_steps: bool,
    /// The origin's directory is not there at times, or another is in its place. Clients wait then, which programs on a
    /// mount would not.
    pub swaps: bool,
    pub crashes: u32,
}

/// The named steps of the journal, and how often each is passed at most before the tier dies there. Some come with the
/// start of a tier, some (of full segments) only with more bytes than most lives write.
const STEPS: [(&str, u64); 14] = [
    ("EntryWritten", 200),
    ("BeforeSync", 60),
    ("AfterSync", 60),
    ("DoneWritten", 100),
    ("StateWritten", 1),
    ("EntryWritten", 10),
    ("SegmentCreated", 1),
    ("HeaderWritten", 1),
    ("SegmentNamed", 1),
    ("TailCut", 1),
    ("SegmentSealed", 1),
    ("ReserveMade", 1),
    ("SegmentRemoved", 1),
    ("CompactCopied", 1),
];

#[derive(Debug, Default)]
struct Report {
    crashes: u32,
    answered: u64,
    /// Operations whose answer a crash took, or made doubtful.
    doubtful: u64,
    /// Files that lost bytes that nobody was promised.
    files_changed: usize,
    /// Operations of programs that were answered, and that a power cut took because nobody had asked for a sync.
    taken: usize,
    resent: u64,
    stale: u64,
    hidden: u32,
    stuck: u32,
    deaths: BTreeMap<String, u32>,
    /// Kills before which the tier was asked what the origin does not have yet, and those at which that was something.
    asked: u32,
    dirty: u32,
    /// Times that another origin was there.
    swaps: u32,
}

fn crashes(share: u32) -> u32 {
    let all = std::env::var("FOREBAY_CRASHES").ok().and_then(|text| text.parse().ok()).unwrap_or(CRASHES);
    (all * share).div_ceil(100)
}

fn crash(name: &str, plan: Plan) {
    let given = std::env::var("FOREBAY_CRASH_SEED").ok().and_then(|text| text.parse().ok());
    let first = given.unwrap_or_else(testkit::origin_contract::seed);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("runtime");
    let mut report = Report::default();
    let mut has_mount = None;
    let (mut seed, mut left) = (first, plan.crashes);
    let may_take = plan.power_cut && plan.durability == Durability::Fsync && plan.crashes >= CRASHES_OF_ONE;
    while left > 0 {
        let crashes = left.min(CRASHES_OF_ONE);
        println!("{name}: FOREBAY_CRASH_SEED={seed}, {crashes} crashes of {plan:?}");
        let mut run = match Run::new(Plan { crashes, ..plan.clone() }, seed) {
            Ok(run) => run,
            Err(reason) => return testkit::lab::not_run(name, &reason),
        };
        has_mount = Some(run.bed.has_mount);
        runtime.block_on(run.all(&mut report));
        (seed, left) = (seed.wrapping_add(1), left - crashes);
        // It is chance what was synced when the power is cut: of ten cuts it may be all of it each time.
        let shows_nothing = may_take && has_mount == Some(true) && report.taken == 0;
        if left == 0 && shows_nothing && report.crashes < 4 * plan.crashes {
            left = crashes;
        }
    }
    println!("{name}: {report:?}");
    // A tier may have flushed all just then; that it always had is a harness that shows nothing.
    assert!(report.asked < 4 || report.dirty * 3 >= report.asked, "little was dirty: {report:?}");
    assert!(!plan.swaps || report.swaps > report.crashes / 2, "it was hardly ever another one: {report:?}");
    assert!(!may_take || has_mount == Some(false) || report.taken > 0, "nothing was ever taken: {report:?}");
    assert!(report.answered > u64::from(report.crashes) * 5, "next to nothing was done: {report:?}");
}

/// One tier, from its first start to the comparison of its origin.
struct Run {
    plan: Plan,
    seed: u64,
    chance: Chance,
    bed: Bed,
    clients: Vec<Client>,
    life: u32,
}

impl Run {
    fn new(plan: Plan, seed: u64) -> Result<Run, String> {
        let mut chance = Chance::new(seed);
        let mut bed = Bed::new(&plan, NFS_CLIENTS + PROGRAMS, &mut chance)?;
        bed.has_mount &= !plan.swaps;
        let loss = plan.policy.loss();
        let mut clients = Vec::new();
        // Each change of an NFS client is synced, and what programs did before it: without them more can be lost.
        let alone = plan.power_cut && plan.durability == Durability::Fsync && chance.one_in(2);
        for number in (0..NFS_CLIENTS).filter(|_| !(alone && bed.has_mount)) {
            let hands = Hands::Nfs(Nfs::new(bed.ports.nfs, loss, plan.swaps, chance.fork()));
            clients.push(Client::new(
                number,
                Draw::for_nfs(number, chance.fork()),
                Ledger::new(loss, false),
                hands,
            ));
        }
        let promise = match (plan.policy, plan.durability) {
            (Policy::Back, _) if !plan.power_cut => Promise::All,
            (Policy::Back, Durability::Fsync) => Promise::Synced,
            _ => Promise::Names,
        };
        for number in (NFS_CLIENTS..NFS_CLIENTS + PROGRAMS).filter(|_| bed.has_mount) {
            let hands = Hands::Programs(Programs::new(bed.at("mnt"), promise, chance.fork()));
            clients.push(Client::new(
                number,
                Draw::for_programs(number, chance.fork()),
                Ledger::new(loss, true),
                hands,
            ));
        }
        if !bed.has_mount && !plan.swaps {
            println!("without programs on a mount: /dev/fuse and root are needed");
        }
        Ok(Run { plan, seed, chance, bed, clients, life: 0 })
    }

    async fn all(&mut self, report: &mut Report) {
        let crash_at = self.next_step();
        self.bed.start(crash_at.as_deref());
        for _ in 0..self.plan.crashes {
            self.one_crash(report).await;
        }
        self.end().await;
        report.crashes += self.plan.crashes;
        report.hidden += self.bed.hidden;
        report.stuck += self.bed.stuck;
        *report.deaths.entry("before it served".to_owned()).or_default() += self.bed.early_deaths;
        for client in &self.clients {
            report.answered += client.answered;
            report.doubtful += client.doubtful;
            if let Hands::Nfs(nfs) = &client.hands {
                report.resent += nfs.resent;
                report.stale += nfs.stale;
            }
        }
    }

    /// Where the tier that is started now is to die.
    fn next_step(&mut self) -> Option<String> {
        if !self.plan.at_steps || self.chance.one_in(2) {
            return None;
        }
        let (step, most) = *self.chance.of(&STEPS);
        Some(format!("{step}:{}", 1 + self.chance.below(most)))
    }

    fn begin(&mut self) -> (Life, watch::Sender<Fate>) {
        self.life += 1;
        let (decide, fate) = watch::channel(Fate::Serves);
        let rest = Arc::new(AtomicBool::new(false));
        (Life { number: self.life, fate, rest, answered: Arc::new(AtomicU64::new(0)) }, decide)
    }

    async fn one_crash(&mut self, report: &mut Report) {
        let (life, fate) = self.begin();
        let swapper = self
            .plan
            .swaps
            .then(|| Swapper::start(self.bed.at("origin"), self.bed.at("away"), self.chance.fork()));
        let working: Vec<_> = self.clients.drain(..).map(|client| work(client, life.clone())).collect();
        let enough = 5 + self.chance.below(150);
        let start = Instant::now();
        while life.answered.load(Ordering::SeqCst) < enough && start.elapsed() < LIFE_MAX {
            if working.iter().any(JoinHandle::is_finished) || self.bed.tier().is_dead() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if self.plan.policy == Policy::Back
            && self.chance.one_in(3)
            && let Some(operations) = self.bed.dirty()
        {
            report.asked += 1;
            report.dirty += u32::from(operations > 0);
        }
        let how = match (self.bed.tier().ended(), self.bed.tier().is_dead()) {
            (None, false) => "killed".to_owned(),
            (None, true) => "at a step, held by its mount".to_owned(),
            (Some(status), _) => format!("{status}"),
        };
        *report.deaths.entry(how).or_default() += 1;
        fate.send_replace(Fate::Dies);
        self.bed.kill();
        fate.send_replace(Fate::IsDead);
        let crash_at = self.next_step();
        self.bed.start(crash_at.as_deref());
        if let Some(swapper) = swapper {
            tokio::time::sleep(Duration::from_millis(self.chance.below(500))).await;
            report.swaps += swapper.stop().unwrap_or_else(|told| panic!("{}: {told}", self.told()));
        }
        self.bed.tend("clients come to rest", || working.iter().all(JoinHandle::is_finished)).await;
        for task in working {
            let (client, lived) = task.await.expect("no panic");
            self.clients.push(client);
            self.must(self.clients.len() - 1, "at work", lived);
        }
        self.check(report).await;
    }

    /// After a crash.
    async fn check(&mut self, report: &mut Report) {
        let (sight, mounted) = self.bed.look().await;
        let strange = look::of_nobody(&sight, NFS_CLIENTS + PROGRAMS);
        assert!(strange.is_empty(), "{}: nobody made {strange:?}", self.told());
        for at in 0..self.clients.len() {
            let resolved = self.clients[at].resolve(&sight);
            let resolved = resolved.map_err(|told| {
                let seen: Vec<_> = of_client(&sight, self.clients[at].number).into_keys().collect();
                format!("{told}\n\nseen: {seen:?}")
            });
            let loss = self.must(at, "after the crash, through NFS", resolved);
            report.files_changed += loss.files_changed;
            if !self.clients[at].is_nfs() {
                report.taken += loss.taken;
            }
            if let Some(mounted) = &mounted {
                self.must(at, "after the crash, through the mount", self.clients[at].compare(mounted));
            }
        }
    }

    /// All comes to rest, and is at the origin.
    async fn end(&mut self) {
        // One that dies nowhere.
        self.bed.kill();
        self.bed.start(None);
        let (life, _fate) = self.begin();
        for at in 0..self.clients.len() {
            let settled = self.clients[at].settle(&life).await;
            self.must(at, "at the end", settled);
        }
        if self.plan.policy == Policy::Back {
            let flushed = self.bed.flush().await;
            flushed.unwrap_or_else(|told| panic!("{}: {told}\n\n{}", self.told(), self.traces()));
        }
        assert_eq!(self.bed.tier().stop(), Some(0), "{}: a clean stop", self.told());
        let sight = look::in_directory(&self.bed.at("origin")).expect("it is there");
        let strange = look::of_nobody(&sight, NFS_CLIENTS + PROGRAMS);
        assert!(strange.is_empty(), "{}: at the origin nobody made {strange:?}", self.told());
        for at in 0..self.clients.len() {
            self.must(at, "at the origin", self.clients[at].compare(&sight));
        }
    }

    fn told(&self) -> String {
        format!("FOREBAY_CRASH_SEED={}, {:?}, life {}", self.seed, self.plan, self.life)
    }

    /// Of all clients.
    fn traces(&self) -> String {
        let shown =
            |client: &Client| format!("operations of c{}:\n{}\n", client.number, client.ledger.trace());
        self.clients.iter().map(shown).collect()
    }

    fn must<T>(&self, at: usize, when: &str, result: Result<T, String>) -> T {
        result.unwrap_or_else(|told| {
            let client = &self.clients[at];
            let kind = if client.is_nfs() { "NFS client" } else { "programs" };
            let (number, trace) = (client.number, client.ledger.trace());
            let origin = look::in_directory(&self.bed.at("origin")).map(|sight| of_client(&sight, number));
            let origin = origin.map(|sight| sight.into_keys().collect::<Vec<_>>());
            panic!(
                "{}: {when}, {kind} c{number}: {told}\n\nits operations:\n{trace}\n\nat the origin: {origin:?}",
                self.told()
            )
        })
    }
}

/// Programs wait in system calls, so they have a thread.
fn work(mut client: Client, life: Life) -> JoinHandle<(Client, Result<(), String>)> {
    if client.is_nfs() {
        return tokio::spawn(async move {
            let lived = client.live(&life).await;
            (client, lived)
        });
    }
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || {
        let lived = runtime.block_on(client.live(&life));
        (client, lived)
    })
}

fn plan(policy: Policy, durability: Durability, share: u32) -> Plan {
    let is_back = policy == Policy::Back;
    Plan { policy, durability, power_cut: false, at_steps: is_back, swaps: false, crashes: crashes(share) }
}

#[test]
fn what_is_written_through_survives_a_killed_tier() {
    let plan = plan(Policy::Through, Durability::Fsync, 15);
    crash("what_is_written_through_survives_a_killed_tier", plan);
}

#[test]
fn what_is_written_through_survives_a_power_cut_of_the_tier() {
    let plan = Plan { power_cut: true, ..plan(Policy::Through, Durability::Always, 10) };
    crash("what_is_written_through_survives_a_power_cut_of_the_tier", plan);
}

#[test]
fn what_is_written_back_survives_a_killed_tier() {
    crash("what_is_written_back_survives_a_killed_tier", plan(Policy::Back, Durability::Fsync, 30));
}

#[test]
fn what_is_written_back_and_always_synced_survives_a_killed_tier() {
    let plan = plan(Policy::Back, Durability::Always, 15);
    crash("what_is_written_back_and_always_synced_survives_a_killed_tier", plan);
}

#[test]
fn what_is_synced_survives_a_power_cut_and_of_the_rest_the_last_goes_first() {
    let plan = Plan { power_cut: true, ..plan(Policy::Back, Durability::Fsync, 25) };
    crash("what_is_synced_survives_a_power_cut_and_of_the_rest_the_last_goes_first", plan);
}

#[test]
fn what_is_written_back_and_always_synced_survives_a_power_cut() {
    let plan = Plan { power_cut: true, ..plan(Policy::Back, Durability::Always, 15) };
    crash("what_is_written_back_and_always_synced_survives_a_power_cut", plan);
}

#[test]
fn what_is_written_back_survives_a_killed_tier_whose_origin_is_another_one_at_times() {
    let plan = Plan { swaps: true, ..plan(Policy::Back, Durability::Fsync, 10) };
    crash("what_is_written_back_survives_a_killed_tier_whose_origin_is_another_one_at_times", plan);
}
