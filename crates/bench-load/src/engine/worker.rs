//! One worker: takes its part of the sequence, does each touch with its client, and puts down what it took.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use types::{Error, ErrorKind, Result};

use super::{GroupRun, PhaseRun};
use crate::data::{FileVersion, mix_all};
use crate::outcome::{Located, PhaseOutcome, Stop, WorkerSpan};
use crate::pace::LoadPace;
use crate::shape::{Sequence, SequencePart, Touch, TouchUnit};
use crate::target::{Client, TargetFile};

/// Moments of a span that are kept; then every second one is dropped and they come half as often.
const PROGRESS_MAX: usize = 32;
const PROGRESS_FIRST: Duration = Duration::from_millis(20);
/// Waiting is done in pieces, to see soon that the run was stopped.
const PIECE: Duration = Duration::from_millis(200);

pub struct LoadWorker {
    run: Arc<GroupRun>,
    client: Arc<dyn Client>,
    /// Among the clients of this process, and in the fleet.
    here: usize,
    number: u32,
    worker: u32,
    /// The file that was used last, while it is open.
    open: Option<Open>,
    progress_every: Duration,
    progress_last: Instant,
}

struct Open {
    number: u64,
    file: Arc<dyn TargetFile>,
    writable: bool,
}

/// The runtime's timer rounds up to the next millisecond; the rest is waited for precisely.
const FINE_WAIT: Duration = Duration::from_millis(3);

/// The end of a touch that did not fail.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TouchEnd {
    Whole,
    /// The run was stopped in the middle.
    Stopped,
}

impl LoadWorker {
    pub(super) fn new(run: &Arc<GroupRun>, client: &Arc<dyn Client>, here: usize, worker: u32) -> LoadWorker {
        let first = run.job.fleet.first_client;
        LoadWorker {
            client: Arc::clone(client),
            here,
            number: first.saturating_add(u32::try_from(here).unwrap_or(u32::MAX)),
            worker,
            open: None,
            progress_every: PROGRESS_FIRST,
            progress_last: run.start,
            run: Arc::clone(run),
        }
    }

    pub(super) async fn run(mut self) {
        let run = Arc::clone(&self.run);
        for (index, phase) in run.phases.iter().enumerate() {
            // Before the first phase all forgot together.
            if index > 0
                && phase.phase.forget
                && let Err(error) = self.client.forget().await
            {
                self.failed(phase, &error);
            }
            self.phase(phase).await;
        }
    }

    async fn phase(&mut self, phase: &PhaseRun) {
        let wait = phase.phase.pace.start_of(self.number);
        if !wait.is_zero() && !self.sleep_until(self.run.start + wait).await {
            return;
        }
        self.begin(phase);
        let sequence = Sequence::new(&phase.layout, &phase.phase.work, self.number, self.worker);
        let part = sequence.part(&self.run.job.fleet, self.number, self.worker);
        let (mut own, mut round) = (0, 0);
        while self.run.stopped().is_none() {
            let next = match part {
                SequencePart::NextOfClient => match phase.taken.get(self.here) {
                    Some(taken) => taken.fetch_add(1, Ordering::Relaxed),
                    None => break,
                },
                SequencePart::Own { .. } => {
                    own += 1;
                    own - 1
                }
            };
            let Some(number) = sequence.number(&part, next) else { break };
            let Some(touch) = sequence.at(number) else { continue };
            let epoch = number / sequence.epoch().max(1);
            if !self.end_rounds(phase, &mut round, epoch).await {
                break;
            }
            let Some(intended) = self.wait_for_turn(phase).await else { break };
            self.unit(phase, number, touch, intended).await;
            if let LoadPace::Closed { think_s, .. } = phase.phase.pace
                && think_s > 0.0
            {
                self.sleep_until(Instant::now() + Duration::from_secs_f64(think_s)).await;
            }
            // A target that never waits would keep the processor to itself.
            tokio::task::consume_budget().await;
        }
        self.end_rounds(phase, &mut round, sequence.epochs()).await;
        if let Err(error) = self.close(phase).await {
            self.failed(phase, &error);
        }
        self.end(phase);
    }

    /// Of files that need a commit: goes on to another epoch when all others are through with those before. False if the
    /// run was stopped meanwhile.
    async fn end_rounds(&mut self, phase: &PhaseRun, round: &mut u64, until: u64) -> bool {
        let Some(rounds) = &phase.rounds else { return true };
        while *round < until {
            if self.run.stopped().is_some() {
                return false;
            }
            if let Err(error) = self.close(phase).await {
                self.failed(phase, &error);
            }
            // Nobody is in another round before this one's files are there.
            let Some(arrived) = self.unless_stopped(rounds.wait()).await else { return false };
            if arrived.is_leader() {
                self.commit(phase).await;
            }
            if self.unless_stopped(rounds.wait()).await.is_none() {
                return false;
            }
            *round += 1;
        }
        true
    }

    /// None if the run was stopped before.
    async fn unless_stopped<T>(&self, waiting: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(waiting);
        loop {
            if let Ok(done) = tokio::time::timeout(PIECE, &mut waiting).await {
                return Some(done);
            }
            if self.run.stopped().is_some() {
                return None;
            }
        }
    }

    /// All files of the phase that workers of this process wrote together.
    async fn commit(&self, phase: &PhaseRun) {
        let (layout, began, first) = (&phase.layout, Instant::now(), self.run.job.fleet.first_client);
        let owners = if layout.private { first..first.saturating_add(phase.clients()) } else { 0..1 };
        for (owner, file) in owners.flat_map(|owner| (0..layout.files).map(move |file| (owner, file))) {
            let path = layout.path(&phase.root, owner, file);
            if let Err(error) = self.timed(phase, "sync", self.client.commit(&path)).await {
                self.failed(phase, &error);
            }
        }
        self.span(phase, |span| span.sync_s += began.elapsed().as_secs_f64());
    }

    /// When this touch should begin, in an open loop; the outer `None` if the time is over before.
    async fn wait_for_turn(&mut self, phase: &PhaseRun) -> Option<Option<Instant>> {
        let Some((schedule, timer)) = &phase.schedule else { return Some(None) };
        let intended = self.run.start + schedule.take();
        if intended > Instant::now() {
            // The runtime's timer up to the last moments: it sees when the run is stopped.
            if !self.sleep_until(intended.checked_sub(FINE_WAIT).unwrap_or(intended)).await {
                return None;
            }
            timer.sleep_until(intended).await;
            if intended > self.run.deadline {
                return None;
            }
            self.shard(phase).lateness.record(intended.elapsed());
        }
        Some(Some(intended))
    }

    /// False if the run was stopped or its time is over before.
    async fn sleep_until(&self, at: Instant) -> bool {
        loop {
            let now = Instant::now();
            if self.run.stopped().is_some() || now >= self.run.deadline {
                return false;
            }
            if now >= at {
                return true;
            }
            tokio::time::sleep_until(at.min(now + PIECE).min(self.run.deadline)).await;
        }
    }

    async fn unit(&mut self, phase: &PhaseRun, number: u64, touch: Touch, intended: Option<Instant>) {
        let began = Instant::now();
        match self.touch(phase, number, touch).await {
            Ok(TouchEnd::Whole) => {
                let now = Instant::now();
                let interval = phase.recorder.interval(now - self.run.start);
                let response = intended.map(|intended| now.saturating_duration_since(intended));
                let mut shard = self.shard(phase);
                shard.unit_done(interval, now - began, response);
                if let Some(bytes) = file_of_several_sizes(phase, touch) {
                    shard.of_size(bytes, now - began);
                }
                drop(shard);
                self.run.control.progress.units.fetch_add(1, Ordering::Relaxed);
                self.span(phase, |span| span.units += 1);
            }
            Ok(TouchEnd::Stopped) => {}
            Err(error) => {
                // Its state is unknown.
                self.open = None;
                self.failed(phase, &error);
            }
        }
    }

    async fn touch(&mut self, phase: &PhaseRun, number: u64, touch: Touch) -> Result<TouchEnd> {
        match touch {
            Touch::Read { file, offset, length } => {
                self.move_data(phase, number, file, offset, length, false).await
            }
            Touch::Write { file, offset, length } => {
                self.move_data(phase, number, file, offset, length, true).await
            }
            Touch::Stat { file } => self.stat(phase, file).await.map(|()| TouchEnd::Whole),
            Touch::List { directory } => self.list(phase, directory).await.map(|()| TouchEnd::Whole),
            Touch::Delete { directory } => self.delete(phase, directory).await.map(|()| TouchEnd::Whole),
            Touch::Walk { directory } => {
                self.list(phase, directory).await?;
                for file in phase.layout.files_of(directory) {
                    if self.run.stopped().is_some() {
                        return Ok(TouchEnd::Stopped);
                    }
                    self.stat(phase, file).await?;
                }
                Ok(TouchEnd::Whole)
            }
        }
    }

    async fn move_data(
        &mut self,
        phase: &PhaseRun,
        number: u64,
        file: u64,
        offset: u64,
        length: u64,
        write: bool,
    ) -> Result<TouchEnd> {
        let whole = phase.phase.work.unit == TouchUnit::File;
        // A whole file is opened anew each time, as a program does.
        if whole || self.open.as_ref().is_some_and(|open| open.number != file || (write && !open.writable)) {
            self.close(phase).await?;
        }
        let (began, mut first) = (Instant::now(), None);
        let opened = self.opened(phase, file, write).await?;
        let (mut at, end) = (offset, offset.saturating_add(length));
        while at < end {
            if self.run.stopped().is_some() {
                return Ok(TouchEnd::Stopped);
            }
            let count = phase.phase.work.block_bytes.min(end - at);
            // At most 1 GiB: the shape was checked.
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            match write {
                true => self.write(phase, &*opened, file, at, count).await?,
                false => self.read(phase, &*opened, number, file, at, count).await?,
            }
            at = at.saturating_add(count as u64);
            if at < end {
                first.get_or_insert_with(|| began.elapsed());
            }
            tokio::task::consume_budget().await;
        }
        if let (Some(first), false) = (first, write) {
            let mut shard = self.shard(phase);
            shard.first_block.record(first);
            shard.all_blocks.record(began.elapsed());
        }
        if whole {
            self.close(phase).await?;
        }
        Ok(TouchEnd::Whole)
    }

    async fn opened(&mut self, phase: &PhaseRun, number: u64, write: bool) -> Result<Arc<dyn TargetFile>> {
        if let Some(open) = &self.open {
            return Ok(Arc::clone(&open.file));
        }
        let path = self.path(phase, number);
        let file = match write {
            true if phase.rounds.is_some() => {
                let size = phase.layout.size_of(number);
                self.timed(phase, "create", self.client.create_shared(&path, size)).await?
            }
            true => self.timed(phase, "create", self.client.create(&path)).await?,
            false => self.timed(phase, "open", self.client.open(&path)).await?,
        };
        self.open = Some(Open { number, file: Arc::clone(&file), writable: write });
        Ok(file)
    }

    async fn close(&mut self, phase: &PhaseRun) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        if !open.writable {
            return open.file.close().await;
        }
        let began = Instant::now();
        let closed = self.timed(phase, "sync", open.file.close()).await;
        self.span(phase, |span| span.sync_s += began.elapsed().as_secs_f64());
        closed
    }

    async fn read(
        &mut self,
        phase: &PhaseRun,
        opened: &dyn TargetFile,
        number: u64,
        file: u64,
        offset: u64,
        count: usize,
    ) -> Result<()> {
        let data = self.timed(phase, "read", opened.read(offset, count)).await?;
        self.moved(phase, data.len() as u64, 0);
        if data.len() != count {
            let context = format!(
                "{} at {offset}: {} bytes of {count}; is it the right data set?",
                self.path(phase, file),
                data.len()
            );
            return Err(Error::new(ErrorKind::Io, "read to the end of", context));
        }
        let draw = mix_all(&[number, offset]) % 100;
        if draw < u64::from(phase.phase.verify_percent) {
            let place = self.place(phase, file);
            let verdict = self.run.job.content.verify(place, offset, &data);
            let mut shard = self.shard(phase);
            shard.verification.checked_bytes += data.len() as u64;
            if let Err(wrong) = verdict {
                let expected_version = place.version;
                let located = || Located {
                    path: self.path(phase, file),
                    offset: wrong.offset,
                    fault: wrong.fault,
                    expected_version,
                };
                shard.verification.record(located, wrong.fault);
            }
        }
        Ok(())
    }

    async fn write(
        &mut self,
        phase: &PhaseRun,
        opened: &dyn TargetFile,
        file: u64,
        offset: u64,
        count: usize,
    ) -> Result<()> {
        let data = self.run.job.content.generate(self.place(phase, file), offset, count);
        self.timed(phase, "write", opened.write(offset, data)).await?;
        self.moved(phase, 0, count as u64);
        Ok(())
    }

    async fn stat(&self, phase: &PhaseRun, file: u64) -> Result<()> {
        let path = self.path(phase, file);
        self.timed(phase, "stat", self.client.stat(&path)).await.map(drop)
    }

    async fn list(&self, phase: &PhaseRun, directory: u64) -> Result<()> {
        let path = phase.layout.directory_path(&phase.root, self.number, directory);
        self.timed(phase, "list", self.client.list(&path)).await.map(drop)
    }

    /// A file of this worker's own comes and goes.
    async fn delete(&self, phase: &PhaseRun, directory: u64) -> Result<()> {
        let own = u64::from(self.number) * u64::from(self.run.job.fleet.workers) + u64::from(self.worker);
        let path = phase.layout.path_beside(&phase.root, self.number, directory, own);
        let file = self.timed(phase, "create", self.client.create(&path)).await?;
        file.close().await?;
        self.timed(phase, "delete", self.client.remove(&path)).await
    }

    /// The call's result; its time is recorded by the call's name if it succeeded.
    async fn timed<T>(
        &self,
        phase: &PhaseRun,
        call: &str,
        doing: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let began = Instant::now();
        let done = doing.await?;
        self.shard(phase).call(call, began.elapsed());
        Ok(done)
    }

    fn moved(&mut self, phase: &PhaseRun, read: u64, written: u64) {
        let now = Instant::now();
        let at = now.saturating_duration_since(self.run.start);
        self.shard(phase).moved(phase.recorder.interval(at), read, written);
        let progress = &self.run.control.progress;
        progress.bytes_read.fetch_add(read, Ordering::Relaxed);
        progress.bytes_written.fetch_add(written, Ordering::Relaxed);
        let count = read.saturating_add(written);
        let before = self.run.bytes.fetch_add(count, Ordering::Relaxed);
        if before.saturating_add(count) >= self.run.job.limits.bytes {
            self.run.stop(Stop::Bytes);
        }
        let sample = now.saturating_duration_since(self.progress_last) >= self.progress_every;
        let mut thinned = false;
        self.span(phase, |span| {
            span.bytes = span.bytes.saturating_add(count);
            if sample {
                span.progress.push((at.as_secs_f64(), span.bytes));
            }
            if span.progress.len() >= PROGRESS_MAX {
                let mut index = 0;
                span.progress.retain(|_| {
                    index += 1;
                    index % 2 == 0
                });
                thinned = true;
            }
        });
        if sample {
            self.progress_last = now;
        }
        if thinned {
            self.progress_every *= 2;
        }
    }

    fn failed(&self, phase: &PhaseRun, error: &Error) {
        let at = self.run.start.elapsed();
        let mut shard = self.shard(phase);
        shard.entry(phase.recorder.interval(at)).errors += 1;
        let kind = format!("{:?}", error.kind());
        shard.errors.record(&kind, || format!("client {}: {error}", self.number));
        drop(shard);
        self.run.control.progress.errors.fetch_add(1, Ordering::Relaxed);
        if self.run.errors.fetch_add(1, Ordering::Relaxed) >= self.run.job.limits.errors {
            self.run.stop(Stop::Errors);
        }
    }

    fn begin(&mut self, phase: &PhaseRun) {
        let start_s = self.run.start.elapsed().as_secs_f64();
        (self.progress_every, self.progress_last) = (PROGRESS_FIRST, Instant::now());
        let (client, worker) = (self.number, self.worker);
        // It counts as cut off until it has ended.
        let span = WorkerSpan { client, worker, start_s, end_s: start_s, cut: true, ..WorkerSpan::default() };
        *self.span_slot(phase) = Some(span);
    }

    fn end(&self, phase: &PhaseRun) {
        let end_s = self.run.start.elapsed().as_secs_f64();
        self.span(phase, |span| (span.end_s, span.cut) = (end_s, false));
    }

    fn span(&self, phase: &PhaseRun, change: impl FnOnce(&mut WorkerSpan)) {
        if let Some(span) = self.span_slot(phase).as_mut() {
            change(span);
        }
    }

    fn index(&self) -> usize {
        self.here * self.run.job.fleet.workers as usize + self.worker as usize
    }

    fn span_slot<'a>(&self, phase: &'a PhaseRun) -> MutexGuard<'a, Option<WorkerSpan>> {
        let slot = phase.spans.get(self.index()).expect("one for each worker of this process");
        slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shard<'a>(&self, phase: &'a PhaseRun) -> MutexGuard<'a, PhaseOutcome> {
        phase.recorder.shard(self.index())
    }

    fn path(&self, phase: &PhaseRun, file: u64) -> String {
        phase.layout.path(&phase.root, self.number, file)
    }

    fn place(&self, phase: &PhaseRun, file: u64) -> FileVersion {
        FileVersion { file: phase.layout.content_id(self.number, file), version: phase.phase.version }
    }
}

/// The size of the whole file that the touch moves, if files differ in size.
fn file_of_several_sizes(phase: &PhaseRun, touch: Touch) -> Option<u64> {
    let (least, most) = phase.layout.size_limits();
    match touch {
        Touch::Read { length, .. } | Touch::Write { length, .. } => {
            (least < most && phase.phase.work.unit == TouchUnit::File).then_some(length)
        }
        _ => None,
    }
}
