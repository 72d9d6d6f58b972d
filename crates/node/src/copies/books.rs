//! What is known of copies: shared by the tasks that make them, by the reads of this node, and by its answers to others.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cache::CacheKey;
use cluster::Stripe;
use origin::FileToRead;
use peer::message::{FeedReason, FilledStripe, OtherVersion};
use tokio::sync::Notify;
use types::{ByteRange, FileId, JunctionId, NodeId, Version};

use crate::copies::fill_ring::FillRing;
use crate::copies::known_files::KnownFiles;
use crate::copies::ledger::CopyLedger;
use crate::copies::outbox::Outbox;
use crate::copies::pull_queue::{PullJob, PullQueue};
use crate::copies::repair_bucket::RepairBucket;
use crate::copies::repair_yield::RepairYield;
use crate::copies::{CopyConfig, HeldStripe, UnderReplicated};
use crate::view::ClusterView;

/// Files whose junction is remembered.
const FILES_MAX: usize = 1 << 22;
/// Stripes that wait to be copied here.
const PULLS_MAX: usize = 1 << 16;
/// Stripes that are copied here from one node at once.
const PULLS_PER_SOURCE: usize = 4;
/// Feeds that wait for one node.
const FEEDS_MAX: usize = 1 << 13;
/// Incomplete stripes that are known one by one.
const INCOMPLETE_MAX: usize = 1 << 16;
/// What is saved up while nothing is copied.
const BURST: u64 = 1 << 20;

/// Each part has a lock of its own, which is held for no I/O; nobody holds two.
#[derive(Debug)]
pub struct CopyBooks {
    begun: Instant,
    rate: u64,
    known: KnownFiles,
    fills: Mutex<FillRing>,
    outbox: Mutex<Outbox>,
    pulls: Mutex<PullQueue>,
    ledger: Mutex<CopyLedger>,
    taken: Mutex<RepairBucket>,
    sent: Mutex<(RepairBucket, RepairYield)>,
    /// There is something to pull.
    pub told: Notify,
    /// A file was met of which nobody could be asked how many copies are wanted.
    pub unruled: AtomicBool,
    /// The number of the map by which the last complete walk was made. 0: there was none since a node came, went or fell silent.
    pub walked_map: AtomicU64,
}

fn lock<T>(part: &Mutex<T>) -> MutexGuard<'_, T> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CopyBooks {
    pub fn new(config: &CopyConfig, stored: &[u8]) -> CopyBooks {
        CopyBooks {
            begun: Instant::now(),
            rate: config.repair_rate,
            known: KnownFiles::new(FILES_MAX, stored),
            fills: Mutex::new(FillRing::new(config.fills_max)),
            outbox: Mutex::new(Outbox::new(FEEDS_MAX)),
            pulls: Mutex::new(PullQueue::new(PULLS_MAX, PULLS_PER_SOURCE)),
            ledger: Mutex::new(CopyLedger::new(INCOMPLETE_MAX, config.alarm_after)),
            taken: Mutex::new(RepairBucket::new(config.repair_rate, BURST)),
            sent: Mutex::new((
                RepairBucket::new(config.repair_rate, BURST),
                RepairYield::new(config.repair_rate),
            )),
            told: Notify::new(),
            unruled: AtomicBool::new(false),
            walked_map: AtomicU64::new(0),
        }
    }

    /// The clock of all parts.
    pub fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    pub fn known(&self) -> &KnownFiles {
        &self.known
    }

    pub fn fills(&self) -> MutexGuard<'_, FillRing> {
        lock(&self.fills)
    }

    pub fn outbox(&self) -> MutexGuard<'_, Outbox> {
        lock(&self.outbox)
    }

    pub fn pulls(&self) -> MutexGuard<'_, PullQueue> {
        lock(&self.pulls)
    }

    pub fn ledger(&self) -> MutexGuard<'_, CopyLedger> {
        lock(&self.ledger)
    }

    pub fn alarm(&self) -> BTreeMap<JunctionId, UnderReplicated> {
        self.ledger().alarm(self.now())
    }

    /// Bytes of a file that were not here came here, for a reader who asked for them at `asked`. `fills`: this node is the stripe's
    /// primary, and keeps them.
    pub fn note_read(
        &self,
        junction: JunctionId,
        file: &FileToRead<'_>,
        range: ByteRange,
        fills: bool,
        asked: Duration,
    ) {
        self.known().learn_read(file.id, junction, file.version, asked);
        if fills {
            let key = CacheKey { file: file.id, version: file.version, size: file.size };
            let index = Stripe::at(file.id, range.offset).index;
            self.fills().note(HeldStripe { key, index }, junction, self.now());
        }
    }

    /// Another node tells that it holds more of a stripe. It is put into the queue if this node keeps the stripe by its own map.
    pub fn take_in(&self, view: &ClusterView, from: NodeId, told: &FilledStripe) {
        if let Some(copies) = told.copies {
            view.file_copies().told(told.junction, told.file, copies);
        }
        let Some((copies, placement)) = view.placement(told.junction, told.file) else { return };
        let is_in_file = told.size > 0 && told.stripe < Stripe::count(told.size);
        let stripe = Stripe { file: told.file, index: told.stripe };
        if from == view.own() || !is_in_file || !placement.keeps(stripe, view.own(), copies) {
            return;
        }
        let reason = match told.reason {
            FeedReason::Filled => {
                let is_news = self.known.learn_filled(told.file, told.junction, told.version, self.now());
                // In doubt it takes the place of no other version. If it is the newer one, its holder finds that out with the next look.
                if is_news { FeedReason::Filled } else { FeedReason::Held }
            }
            FeedReason::Read | FeedReason::Held => {
                self.known.learn(told.file, told.junction);
                told.reason
            }
        };
        let job = PullJob {
            stripe: HeldStripe {
                key: CacheKey { file: told.file, version: told.version, size: told.size },
                index: told.stripe,
            },
            junction: told.junction,
            source: from,
            percent: told.percent,
            reason,
            tries: 0,
        };
        self.pulls().put(job, self.now());
        self.told.notify_one();
    }

    /// Another node asks what is here of a file of this junction, and these stripes are. If the junction was not known here, nobody
    /// counts them, for whoever asks leaves that to this node if it comes first in the order of ranks: they are looked at soon.
    pub fn met(
        &self,
        view: &ClusterView,
        key: &CacheKey,
        junction: JunctionId,
        stripes: impl Iterator<Item = u64>,
    ) {
        let mut stripes = stripes.peekable();
        let is_placed = |junction| view.junction_placement(junction).is_some();
        let is_known = self.known().junction(key.file).is_some_and(is_placed);
        if is_known || !is_placed(junction) || stripes.peek().is_none() {
            return;
        }
        self.known().learn(key.file, junction);
        if self.known().junction(key.file) != Some(junction) {
            return; // as many are known as may be
        }
        let (mut ledger, now) = (self.ledger(), self.now());
        for index in stripes {
            ledger.look_soon(HeldStripe { key: *key, index }, junction, now);
        }
    }

    pub fn other_version(&self, file: FileId, version: Version, held: &[Version]) -> OtherVersion {
        self.known().other_version(file, version, held)
    }

    pub fn makes_copies(&self) -> bool {
        self.rate > 0
    }

    /// How long to wait before so many bytes are read for a copy here.
    pub fn take(&self, bytes: u64) -> Duration {
        lock(&self.taken).take(bytes, self.now()).unwrap_or(Duration::MAX)
    }

    /// Whether so many bytes may be sent now for another node's copy. `served`: all bytes that readers have got from this node.
    pub fn may_send(&self, bytes: u64, served: u64) -> bool {
        let (mut sent, now) = (lock(&self.sent), self.now());
        let (bucket, yielding) = &mut *sent;
        bucket.set_rate(yielding.rate(served, now));
        bucket.try_take(bytes, now)
    }
}
