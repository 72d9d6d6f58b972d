//! A read: what is here is taken from disk, what is missing is fetched once, what is bad is fetched again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinSet;
use types::range::bytes_of_blocks;
use types::{BLOCK_SIZE, ByteRange, Error, ErrorKind, Result};

use crate::extent::{Extent, Lend, Piece};
use crate::fetch::Urgency;
use crate::fetch_in_flight::{FetchInFlight, Landed};
use crate::file::{CachedFile, ReadBack};
use crate::guests::GuestRead;
use crate::{Cache, CacheKey, Prefetched, Source};

/// Blocks of one part: 512 KiB. Large enough that round trips and calls are few, small enough that those who wait
/// for its first block do not wait long for its last.
const PART_BLOCKS: u64 = 8;
/// A block that is fetched, and gone or bad again when it is read back, this many times: pass the bytes through.
const TRIES_MAX: usize = 4;
/// Reads up to this size are tried on the caller's thread when the kernel has the pages: moving them to another
/// thread would cost more than the copy.
const INLINE_MAX: u64 = 128 << 10;

impl Cache {
    /// Exactly the bytes of `range`, which lies inside the key's size. One version only.
    pub async fn read(
        self: &Arc<Self>,
        key: &CacheKey,
        range: ByteRange,
        source: &Arc<dyn Source>,
        lend: Lend,
    ) -> Result<Vec<Piece>> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        // A reader that never has to wait lets the others have their turn.
        tokio::task::coop::consume_budget().await;
        if self.config.bypass {
            return self.read_through(key, range, source).await;
        }
        let ailing = self.health.is_ailing();
        let guests = self.guests_in(key, range, source);
        let mut planned = None;
        if guests.is_some() && !ailing && source.reads_ahead() {
            planned = Some(self.plan_ahead(key, range, source));
        }
        let is_stored = guests.as_ref().is_none_or(|guests| {
            let goes_beyond = |ahead: &ByteRange| {
                !range.blocks().contains(&ahead.blocks().start) || ahead.blocks().end > range.blocks().end
            };
            guests.stores() || planned.iter().flatten().any(goes_beyond)
        });
        // While the disk takes nothing, files are not begun either: a walk would leave an empty pair for each. So would one over
        // guests that are passed on.
        let opened = if ailing || !is_stored {
            Ok(self.open_existing(key).await)
        } else {
            self.open_file(key).await.map(Some)
        };
        let file = match opened {
            Ok(Some(file)) => file,
            Ok(None) if guests.is_some() => return self.pass_on(key, range, source).await,
            Ok(None) => return self.read_through(key, range, source).await,
            // It is longer than a file of this disk can be: no fault of the disk's.
            Err(e) if matches!(e.kind(), ErrorKind::FileTooLarge | ErrorKind::InvalidArgument) => {
                return self.read_through(key, range, source).await;
            }
            Err(e) => {
                self.health.failed(e.to_string());
                return self.read_through(key, range, source).await;
            }
        };
        // Guests leave when they were read, and what sockets hold of a hole may become zeros (`file/pages.rs`).
        let lend = if guests.is_some() || !self.config.lends { Lend::Nothing } else { lend };
        let pin = file.pin(range.blocks());
        let urgency = Urgency::Demand { tail: guests.as_ref().and_then(GuestRead::tail) };
        let mut waited = false;
        for _ in 0..TRIES_MAX {
            let flights = self.demand(&file, range, source, &urgency);
            if !ailing && source.reads_ahead() {
                // Else nothing of it would be kept.
                let planned = planned.take().unwrap_or_else(|| self.plan_ahead(key, range, source));
                self.read_ahead(&file, planned, source);
            }
            // A fetch for somebody else may wait for a node that waits for this one.
            if flights.iter().any(|flight| flight.supplier() > source.supplier(key, range)) {
                self.metrics.unjoined_bytes.inc_by(range.length);
                return self.read_through(key, range, source).await;
            }
            let mut passed = BTreeMap::new();
            let mut passed_blocks = 0;
            for flight in flights {
                waited = true;
                if let Landed::Passed(bytes) = flight.wait().await? {
                    passed_blocks += flight.blocks.end - flight.blocks.start;
                    passed.insert(flight.blocks.start, (flight.blocks.clone(), bytes));
                }
            }
            if let Some(data) = self.collect(&file, range, &passed, lend).await? {
                self.space().touch(key.file, key.version, range.length);
                let ahead = self.unread.take(key.file, key.version, range.blocks());
                self.metrics.readahead_used_bytes.inc_by(ahead);
                self.count(range.length, waited);
                drop(pin);
                if let Some(guests) = guests {
                    let from_disk = passed_blocks < range.blocks().end - range.blocks().start;
                    self.after_guests(file, range, guests, from_disk).await;
                }
                return Ok(data);
            }
            waited = true;
        }
        if guests.is_some() {
            return self.pass_on(key, range, source).await;
        }
        self.read_through(key, range, source).await
    }

    async fn after_guests(
        self: &Arc<Self>,
        file: Arc<CachedFile>,
        range: ByteRange,
        guests: GuestRead,
        from_disk: bool,
    ) {
        self.guests_were_read(&file, range, &guests, from_disk);
        if !from_disk {
            self.tidy(file).await;
        }
    }

    /// A pair into which nothing came is taken off the disk.
    async fn tidy(self: &Arc<Self>, file: Arc<CachedFile>) {
        if self.is_unused(&file) {
            let cache = self.clone();
            let _ = tokio::task::spawn_blocking(move || cache.drop_unused(&file)).await; // the runtime shuts down
        }
    }

    /// The bytes of `range` if all of them are here.
    pub async fn read_present(
        self: &Arc<Self>,
        key: &CacheKey,
        range: ByteRange,
    ) -> Result<Option<Vec<Piece>>> {
        if range.is_empty() {
            return Ok(Some(Vec::new()));
        }
        if self.config.bypass {
            return Ok(None);
        }
        let Some(file) = self.open_existing(key).await else { return Ok(None) };
        let _pin = file.pin(range.blocks());
        let data = self.collect(&file, range, &BTreeMap::new(), Lend::Nothing).await?;
        if data.is_some() {
            self.space().touch(key.file, key.version, range.length);
            self.count(range.length, false);
        }
        Ok(data)
    }

    /// Start to fetch `range`, which nobody asked for yet, if there is room to spare.
    pub async fn prefetch(
        self: &Arc<Self>,
        key: &CacheKey,
        range: ByteRange,
        source: &Arc<dyn Source>,
    ) -> Prefetched {
        if self.config.bypass || self.health.is_ailing() {
            return Prefetched::NoRoom;
        }
        // Who follows many small files that are here already would open each of them for nothing.
        if self.space().is_whole(key.file, key.version, key.size) {
            return Prefetched::Here;
        }
        // Asked before there is a file: nothing would come into it.
        if self.promise_guests(key, range, source).is_none() {
            return Prefetched::NoRoom;
        }
        let Ok(file) = self.open_file(key).await else { return Prefetched::NoRoom };
        let start = |blocks| self.start_fetch(&file, blocks, source, Urgency::Ahead);
        let ensured = file.ensure(range.blocks(), part_blocks(source), start);
        match (ensured.reached < range.blocks().end, ensured.started) {
            (true, _) => Prefetched::NoRoom,
            (false, 0) => Prefetched::Here,
            (false, _) => Prefetched::Started,
        }
    }

    /// Fetch all of a file that is not here. `landed` hears of bytes as they come.
    pub async fn warm(
        self: &Arc<Self>,
        key: &CacheKey,
        source: &Arc<dyn Source>,
        mut landed: impl FnMut(u64),
    ) -> Result<()> {
        if self.config.bypass || key.size == 0 {
            return Ok(());
        }
        let file = self.open_file(key).await?;
        let total = key.size.div_ceil(BLOCK_SIZE);
        let mut waiting = VecDeque::new();
        let mut blocks_waiting = 0;
        let distance = source.distance(key).unwrap_or(types::Distance::UNKNOWN);
        let window = readahead::window::share(distance, 1, self.config.inflight_max / 2) / BLOCK_SIZE;
        let part = part_blocks(source);
        for start in (0..total).step_by(part as usize) {
            let blocks = start..(start + part).min(total);
            let range = bytes_of_blocks(blocks.clone(), key.size);
            let known = file.ensure(blocks.clone(), part, |_| None);
            let flights = if known.reached == blocks.end {
                known.flights
            } else {
                let leave = self.leave(key, range.length, source).await;
                self.demand(&file, range, source, &Urgency::Warm(leave))
            };
            for flight in flights {
                blocks_waiting += flight.blocks.end - flight.blocks.start;
                waiting.push_back(flight);
            }
            while blocks_waiting > window
                && let Some(flight) = waiting.pop_front()
            {
                blocks_waiting = blocks_waiting.saturating_sub(flight.blocks.end - flight.blocks.start);
                self.warmed(&flight, key, source).await?;
                landed(bytes_of_blocks(flight.blocks.clone(), key.size).length);
            }
        }
        for flight in waiting {
            self.warmed(&flight, key, source).await?;
            landed(bytes_of_blocks(flight.blocks.clone(), key.size).length);
        }
        self.tidy(file).await;
        Ok(())
    }

    /// The file, created if need be. One that is not open is opened on a thread that may wait for the disk.
    async fn open_file(self: &Arc<Self>, key: &CacheKey) -> Result<Arc<CachedFile>> {
        if let Some(file) = self.files.use_open(key) {
            return Ok(file);
        }
        let (cache, key) = (self.clone(), *key);
        let opened = tokio::task::spawn_blocking(move || cache.files.open(&key)).await;
        opened.map_err(|e| Error::new(ErrorKind::Io, "open cache file", key.file).with_source(e))?
    }

    /// As `open_file`, if it is on disk.
    pub(crate) async fn open_existing(self: &Arc<Self>, key: &CacheKey) -> Option<Arc<CachedFile>> {
        if let Some(file) = self.files.use_open(key) {
            return Some(file);
        }
        let (cache, key) = (self.clone(), *key);
        tokio::task::spawn_blocking(move || cache.files.open_existing(&key)).await.ok().flatten()
    }

    /// Who warms wants the bytes on disk, not only fetched: here, or where they are kept.
    async fn warmed(&self, flight: &FetchInFlight, key: &CacheKey, source: &Arc<dyn Source>) -> Result<()> {
        match flight.wait().await? {
            Landed::Stored => Ok(()),
            Landed::Passed(_)
                if !self.keeps(key, bytes_of_blocks(flight.blocks.clone(), key.size), source) =>
            {
                Ok(())
            }
            Landed::Passed(_) => {
                let reason = self.health.degraded().unwrap_or_else(|| "the disk did not take it".to_owned());
                Err(Error::new(ErrorKind::NoSpace, "warm the cache:", reason))
            }
        }
    }

    /// Start or join the fetches of what is missing in `range`.
    fn demand(
        self: &Arc<Self>,
        file: &Arc<CachedFile>,
        range: ByteRange,
        source: &Arc<dyn Source>,
        urgency: &Urgency,
    ) -> Vec<Arc<FetchInFlight>> {
        let part = part_blocks(source);
        let start = |blocks| self.start_fetch(file, blocks, source, urgency.clone());
        let ensured = file.ensure(range.blocks(), part, start);
        self.metrics.coalesced_waits.inc_by(ensured.joined);
        ensured.flights
    }

    /// What is to be fetched besides `range`, which somebody reads.
    fn plan_ahead(&self, key: &CacheKey, range: ByteRange, source: &Arc<dyn Source>) -> Vec<ByteRange> {
        let distance = || source.distance(key).unwrap_or(types::Distance::UNKNOWN);
        self.readers().plan(key.file, range, key.size, distance, self.now_ms())
    }

    fn read_ahead(
        self: &Arc<Self>,
        file: &Arc<CachedFile>,
        planned: Vec<ByteRange>,
        source: &Arc<dyn Source>,
    ) {
        let key = &file.key;
        for planned in planned {
            let start = |blocks| self.start_fetch(file, blocks, source, Urgency::Ahead);
            let ensured = file.ensure(planned.blocks(), part_blocks(source), start);
            if ensured.reached < planned.blocks().end {
                self.readers().stopped_at(key.file, planned, ensured.reached * BLOCK_SIZE);
                return;
            }
        }
    }

    /// Put the answer together. `None` if a block is gone or bad: fetch again.
    async fn collect(
        self: &Arc<Self>,
        file: &Arc<CachedFile>,
        range: ByteRange,
        passed: &BTreeMap<u64, (std::ops::Range<u64>, Bytes)>,
        lend: Lend,
    ) -> Result<Option<Vec<Piece>>> {
        let mut data = Vec::new();
        let mut at = range.offset;
        while at < range.end() {
            let block = at / BLOCK_SIZE;
            let here = passed.range(..=block).next_back().filter(|(_, (blocks, _))| blocks.contains(&block));
            if let Some((_, (blocks, bytes))) = here {
                let whole = bytes_of_blocks(blocks.clone(), file.key.size);
                let end = whole.end().min(range.end());
                let (from, to) = ((at - whole.offset) as usize, (end - whole.offset) as usize);
                data.push(Piece::Bytes(bytes.slice(from..to)));
                at = end;
                continue;
            }
            let next = passed.range(block + 1..).next().map_or(u64::MAX, |(start, _)| start * BLOCK_SIZE);
            let end = next.min(range.end());
            let wanted = ByteRange::new(at, end - at);
            if matches!(lend, Lend::From(least) if wanted.length >= least)
                && let Some(extent) = Extent::of(file, wanted)
            {
                data.push(Piece::Extent(extent));
                at = end;
                continue;
            }
            match read_file(file, wanted).await {
                Ok(ReadBack::Bytes(bytes)) => data.push(Piece::Bytes(bytes)),
                Ok(ReadBack::Missing { corrupt }) => {
                    self.note_corrupt(file, corrupt);
                    return Ok(None);
                }
                Err(e) => {
                    // The disk does not give them back: the origin does.
                    self.health.failed(format!("read {}: {e}", self.config.dir.display()));
                    self.drop_file(file.key.file, file.key.version);
                    return Ok(None);
                }
            }
            at = end;
        }
        Ok(Some(data))
    }

    /// Straight from the source, since nothing can be kept.
    async fn read_through(
        self: &Arc<Self>,
        key: &CacheKey,
        range: ByteRange,
        source: &Arc<dyn Source>,
    ) -> Result<Vec<Piece>> {
        let data = self.straight(key, range, source).await?;
        self.metrics.read_through_bytes.inc_by(range.length);
        self.count(range.length, true);
        Ok(data.into_iter().map(Piece::Bytes).collect())
    }

    /// Straight from the source, in parts.
    pub(crate) async fn straight(
        self: &Arc<Self>,
        key: &CacheKey,
        range: ByteRange,
        source: &Arc<dyn Source>,
    ) -> Result<Vec<Bytes>> {
        let step = part_blocks(source) * BLOCK_SIZE;
        let mut parts = JoinSet::new();
        let mut at = range.offset;
        let mut count = 0;
        while at < range.end() {
            let part = ByteRange::new(at, step.min(range.end() - at));
            let (cache, key, source, index) = (self.clone(), *key, source.clone(), count);
            parts.spawn(async move {
                let _permit = cache.budgets.acquire(source.supplier(&key, part), part.length).await;
                (index, cache.ask(&key, part, &source).await)
            });
            at = part.end();
            count += 1;
        }
        let mut data = vec![Bytes::new(); count];
        while let Some(part) = parts.join_next().await {
            let (index, bytes) =
                part.map_err(|e| Error::new(ErrorKind::Io, "read through", key.file).with_source(e))?;
            data[index] = bytes?;
        }
        Ok(data)
    }

    pub(crate) fn count(&self, bytes: u64, waited: bool) {
        let metrics = &self.metrics;
        let (reads, sum) = if waited {
            (&metrics.miss_reads, &metrics.miss_bytes)
        } else {
            (&metrics.hit_reads, &metrics.hit_bytes)
        };
        reads.inc();
        sum.inc_by(bytes);
    }
}

/// On the caller's thread where that does not wait for the disk.
pub async fn read_file(file: &Arc<CachedFile>, range: ByteRange) -> std::io::Result<ReadBack> {
    if range.length <= INLINE_MAX
        && let Some(read) = file.read(range, true)?
    {
        return Ok(read);
    }
    let file = file.clone();
    let read = tokio::task::spawn_blocking(move || file.read(range, false)).await;
    read.map_err(std::io::Error::other)?.map(|read| read.unwrap_or(ReadBack::Missing { corrupt: 0 }))
}

fn part_blocks(source: &Arc<dyn Source>) -> u64 {
    (u64::from(source.read_max()) / BLOCK_SIZE).clamp(1, PART_BLOCKS)
}
