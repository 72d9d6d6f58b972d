//! Single flight: every missing block is fetched once, whoever waits for it.
//!
//! A fetch is a task of its own. A client that goes away cancels nothing that others wait for. What the origin was
//! asked for is kept; what still queues when the last one who wanted it has gone is given up.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, watch};
use types::range::bytes_of_blocks;
use types::{ByteRange, Error, ErrorKind, Result, Turn};

use crate::fetch_in_flight::{FetchInFlight, FetchSupplier, Landed};
use crate::file::CachedFile;
use crate::guests::GuestPromise;
use crate::space::RoomFor;
use crate::{Cache, CacheKey, Source};

/// How urgent a fetch is.
#[derive(Clone)]
pub enum Urgency {
    /// Somebody waits: queue for room in the budget. `tail`: see [`GuestRead`](crate::guests::GuestRead).
    Demand { tail: Option<u64> },
    /// Nobody waits: only with room to spare.
    Ahead,
    /// An operator wants it some time: with leave, which was waited for before.
    Warm(Arc<Leave>),
}

/// Leave to fetch what nobody waits for, held until it has landed. It is waited for before the fetch is on the file's
/// list, so that a reader that joins the fetch does not wait in its place.
pub struct Leave {
    _budget: OwnedSemaphorePermit,
    _turn: Turn,
}

impl Cache {
    /// Begin to fetch `blocks`; `None` if there is no room and it is not urgent.
    pub(crate) fn start_fetch(
        self: &Arc<Self>,
        file: &Arc<CachedFile>,
        blocks: Range<u64>,
        source: &Arc<dyn Source>,
        urgency: Urgency,
    ) -> Option<Arc<FetchInFlight>> {
        let range = bytes_of_blocks(blocks.clone(), file.key.size);
        let length = range.length;
        let supplier = source.supplier(&file.key, range);
        let (room, ahead, leave) = match &urgency {
            Urgency::Demand { .. } => (None, false, None),
            Urgency::Ahead => (Some(self.budgets.try_spare(supplier, length)?), true, None),
            Urgency::Warm(leave) => (None, false, Some(leave.clone())),
        };
        let promise = if ahead { Some(self.promise_guests(&file.key, range, source)?) } else { None };
        let tail = if let Urgency::Demand { tail } = urgency { tail } else { None };
        let (sender, landed) = watch::channel(None);
        let asked = FetchSupplier::new(supplier);
        let flight = Arc::new(FetchInFlight::new(blocks.clone(), asked.clone(), landed));
        let (cache, file, source) = (self.clone(), file.clone(), source.clone());
        tokio::spawn(async move {
            // Not made before: a runtime that shuts down drops a task at once, here, under the lock that `land` takes.
            let mut landing = FetchLanding { file: Some(file.clone()), first_block: blocks.start };
            let room = match room {
                Some(room) => room,
                None => {
                    let room = cache.room(&file.key, range, &source, &asked).await;
                    if file.abandon(blocks.start) {
                        landing.disarm();
                        cache.metrics.abandoned_fetches.inc();
                        return;
                    }
                    room
                }
            };
            let result = cache.fetch(&file, blocks, &source, tail, promise).await;
            drop((room, leave));
            if result.is_err() {
                cache.metrics.fetch_errors.inc();
            }
            let may_be_unused =
                ahead && !matches!(result, Ok(Landed::Stored)) && !source.keeps(&file.key, range);
            drop(landing); // a failed block can be asked for again before those who waited are told
            let _ = sender.send(Some(result));
            if may_be_unused {
                let _ = tokio::task::spawn_blocking(move || cache.drop_unused(&file)).await; // the runtime shuts down
            }
        });
        Some(flight)
    }

    /// Room for a fetch, in the budget of whom it will ask. Who that is may change while it waits.
    async fn room(
        &self,
        key: &CacheKey,
        range: ByteRange,
        source: &Arc<dyn Source>,
        asked: &FetchSupplier,
    ) -> OwnedSemaphorePermit {
        loop {
            let supplier = asked.get();
            let room = self.budgets.acquire(supplier, range.length).await;
            let now = source.supplier(key, range);
            if now <= supplier {
                return room;
            }
            asked.set(now);
        }
    }

    async fn fetch(
        self: &Arc<Self>,
        file: &Arc<CachedFile>,
        blocks: Range<u64>,
        source: &Arc<dyn Source>,
        tail: Option<u64>,
        ahead: Option<GuestPromise>,
    ) -> Result<Landed> {
        let range = bytes_of_blocks(blocks.clone(), file.key.size);
        let bytes = self.ask(&file.key, range, source).await?;
        self.metrics.fetched_bytes.inc_by(range.length);
        if ahead.is_some() {
            self.metrics.readahead_bytes.inc_by(range.length);
        }
        let parts = self.to_store(&file.key, blocks.clone(), source, ahead.is_some(), tail);
        if parts.is_empty() {
            return Ok(Landed::Passed(bytes));
        }
        // Not before: of a disk that failed there is one try in each interval, and what is not to be stored tries nothing.
        if !self.health.may_fill() {
            self.metrics.read_through_bytes.inc_by(range.length);
            return Ok(Landed::Passed(bytes));
        }
        let (cache, file) = (self.clone(), file.clone());
        let stored = tokio::task::spawn_blocking(move || {
            let all = cache.store_parts(&file, &blocks, &bytes, parts, ahead);
            if all { Landed::Stored } else { Landed::Passed(bytes) }
        });
        stored.await.map_err(|e| Error::new(ErrorKind::Io, "fill blocks", "").with_source(e))
    }

    /// Exactly the bytes of `range` from the source.
    pub(crate) async fn ask(
        &self,
        key: &CacheKey,
        range: ByteRange,
        source: &Arc<dyn Source>,
    ) -> Result<Bytes> {
        let length = i64::try_from(range.length).unwrap_or(i64::MAX);
        self.metrics.inflight_bytes.inc_by(length);
        let answer = source.read(key, range).await;
        self.metrics.inflight_bytes.dec_by(length);
        let bytes = answer?;
        if bytes.len() as u64 != range.length {
            let context = format!("{}: {} bytes instead of {}", key.file, bytes.len(), range.length);
            return Err(Error::new(ErrorKind::Corrupt, "fetch", context));
        }
        Ok(bytes)
    }

    /// Into the cache file, to be kept, making room first. False if that is not possible now.
    pub(crate) fn store(&self, file: &CachedFile, blocks: Range<u64>, bytes: &[u8]) -> bool {
        self.store_as(file, blocks, bytes, RoomFor::Kept)
    }

    pub(crate) fn store_as(
        &self,
        file: &CachedFile,
        blocks: Range<u64>,
        bytes: &[u8],
        room_for: RoomFor,
    ) -> bool {
        let failed = |reason: String| {
            self.health.failed(reason);
            self.metrics.read_through_bytes.inc_by(bytes.len() as u64);
            false
        };
        let _room = match self.make_room(bytes.len() as u64, room_for) {
            Ok(room) => room,
            // The room is that of what is kept: nothing is wrong with the disk.
            Err(_) if room_for == RoomFor::Guest => {
                self.metrics.guest_refused_bytes.inc_by(bytes.len() as u64);
                return false;
            }
            Err(reason) => return failed(reason),
        };
        match file.fill(blocks, bytes) {
            Ok(new) => self.book(file, new),
            Err(e) => return failed(format!("write {}: {e}", self.config.dir.display())),
        }
        self.health.succeeded();
        true
    }

    /// Leave to warm `length` bytes: of the budget what demand can do without, and of the origin too.
    pub(crate) async fn leave(&self, key: &CacheKey, length: u64, source: &Arc<dyn Source>) -> Arc<Leave> {
        let wanted = self.permits(length.min(self.config.inflight_max / 2));
        let budget = self.warm_budget.clone().acquire_many_owned(wanted).await;
        let budget = budget.expect("the budget is never closed");
        Arc::new(Leave { _budget: budget, _turn: source.turn(key).await })
    }

    fn permits(&self, length: u64) -> u32 {
        u32::try_from(length.min(self.config.inflight_max).div_ceil(1024)).unwrap_or(u32::MAX)
    }
}

/// Takes the flight off the file's list, also when the task panics.
struct FetchLanding {
    file: Option<Arc<CachedFile>>,
    first_block: u64,
}

impl FetchLanding {
    /// The flight is off the list already; what is in its place by now is another's.
    fn disarm(&mut self) {
        self.file = None;
    }
}

impl Drop for FetchLanding {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            file.land(self.first_block);
        }
    }
}
