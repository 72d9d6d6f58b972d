//! One worker: takes its part of the sequence, does each touch with its client, and puts down what it took.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;
use types::{Error, ErrorKind, Result};

use super::{GroupRun, PhaseRun};
use crate::data::{FileVersion, Mismatch, mix_all};
use crate::locked;
use crate::outcome::{Located, PhaseOutcome, Stop, WorkerSpan};
use crate::pace::LoadPace;
use crate::shape::{FilePart, Sequence, SequencePart, Touch, TouchUnit};
use crate::target::{Client, TargetFile};

/// Moments of a span that are kept; then every second one is dropped and they come half as often.
const PROGRESS_MAX: usize = 32;
const PROGRESS_FIRST: Duration = Duration::from_millis(20);

/// A worker in one phase.
pub struct LoadWorker<'a> {
    run: &'a GroupRun,
    phase: &'a PhaseRun,
    client: &'a dyn Client,
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

/// Worker `worker` of the client that is number `here` in this process, in all phases of the run.
pub(super) async fn work(run: Arc<GroupRun>, client: Arc<dyn Client>, here: usize, worker: u32) {
    let number = run.job.fleet.first_client.saturating_add(u32::try_from(here).unwrap_or(u32::MAX));
    for phase in &run.phases {
        let mut at_work = LoadWorker {
            run: &run,
            phase,
            client: &*client,
            here,
            number,
            worker,
            open: None,
            progress_every: PROGRESS_FIRST,
            progress_last: run.start,
        };
        at_work.go().await;
    }
}

impl LoadWorker<'_> {
    async fn go(&mut self) {
        let wait = self.phase.phase.pace.start_of(self.number);
        if !wait.is_zero() && !self.sleep_until(self.run.start + wait).await {
            return;
        }
        let (client, worker, start) = (self.number, self.worker, Instant::now());
        self.progress_last = start;
        let start_s = (start - self.run.start).as_secs_f64();
        // It counts as cut off until it has ended.
        let span = WorkerSpan { client, worker, start_s, end_s: start_s, cut: true, ..WorkerSpan::default() };
        *self.span_slot() = Some(span);
        let sequence = Sequence::new(&self.phase.layout, &self.phase.phase.work, self.number, self.worker);
        let part = sequence.part(&self.run.job.fleet, self.number, self.worker);
        let (mut own, mut round) = (0, 0);
        while self.run.stopped().is_none() {
            let next = match part {
                SequencePart::NextOfClient => match self.phase.taken.get(self.here) {
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
            if !self.end_rounds(&mut round, epoch).await {
                break;
            }
            let Some(intended) = self.wait_for_turn().await else { break };
            self.unit(number, touch, intended).await;
            if let LoadPace::Closed { think_s, .. } = self.phase.phase.pace
                && think_s > 0.0
            {
                self.sleep_until(Instant::now() + Duration::from_secs_f64(think_s)).await;
            }
            // A target that never waits would keep the processor to itself.
            tokio::task::consume_budget().await;
        }
        self.end_rounds(&mut round, sequence.epochs()).await;
        let closed = self.close().await;
        self.note_failure(closed);
        let end_s = self.run.start.elapsed().as_secs_f64();
        self.span(|span| (span.end_s, span.cut) = (end_s, false));
    }

    /// Of files that need a commit: goes on to another epoch when all others are through with those before. False if the
    /// run was stopped meanwhile.
    async fn end_rounds(&mut self, round: &mut u64, until: u64) -> bool {
        let Some(rounds) = &self.phase.rounds else { return true };
        while *round < until {
            if self.run.stopped().is_some() {
                return false;
            }
            let closed = self.close().await;
            self.note_failure(closed);
            // Nobody is in another round before this one's files are there.
            let Some(arrived) = self.unless_stopped(rounds.wait()).await else { return false };
            if arrived.is_leader() {
                self.commit().await;
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
        tokio::select! {
            biased;
            _ = self.run.stop.wait() => None,
            done = waiting => Some(done),
        }
    }

    /// All files of the phase that workers of this process wrote together.
    async fn commit(&self) {
        let (layout, first) = (&self.phase.layout, self.run.job.fleet.first_client);
        let owners = if layout.private { first..first.saturating_add(self.phase.clients()) } else { 0..1 };
        for (owner, file) in owners.flat_map(|owner| (0..layout.files).map(move |file| (owner, file))) {
            let path = layout.path(&self.phase.root, owner, file);
            let committed = self.synced(self.client.commit(&path)).await;
            self.note_failure(committed);
        }
    }

    /// When this touch should begin, in an open loop; the outer `None` if the time is over before.
    async fn wait_for_turn(&mut self) -> Option<Option<Instant>> {
        let Some(schedule) = &self.phase.schedule else { return Some(None) };
        let intended = self.run.start + schedule.take();
        if intended > Instant::now() {
            // The runtime's timer up to the last moments: it sees when the run is stopped.
            if !self.sleep_until(intended.checked_sub(FINE_WAIT).unwrap_or(intended)).await {
                return None;
            }
            self.sleep_until_exactly(intended).await;
            if intended > self.run.deadline {
                return None;
            }
            self.shard().lateness.record(intended.elapsed());
        }
        Some(Some(intended))
    }

    async fn sleep_until_exactly(&self, at: Instant) {
        let precise = async {
            match &self.run.clock {
                Some(clock) => clock.sleep_until(at.into_std()).await,
                None => std::future::pending().await,
            }
        };
        // The runtime's timer is right, if late, and alone knows a clock that tests have stopped.
        tokio::select! {
            () = precise => {}
            () = tokio::time::sleep_until(at) => {}
        }
    }

    /// False if the run was stopped or its time is over before.
    async fn sleep_until(&self, at: Instant) -> bool {
        let slept = self.unless_stopped(tokio::time::sleep_until(at.min(self.run.deadline))).await;
        slept.is_some() && Instant::now() < self.run.deadline
    }

    async fn unit(&mut self, number: u64, touch: Touch, intended: Option<Instant>) {
        let began = Instant::now();
        match self.touch(number, touch).await {
            Ok(true) => {
                let now = Instant::now();
                let interval = self.phase.recorder.interval(now - self.run.start);
                let response = intended.map(|intended| now.saturating_duration_since(intended));
                let mut shard = self.shard();
                shard.unit_done(interval, now - began, response);
                if let Touch::Read(file) | Touch::Write(file) = touch
                    && self.phase.phase.work.unit == TouchUnit::File
                    && self.phase.layout.differ_in_size()
                {
                    shard.of_size(file.length, now - began);
                }
                drop(shard);
                self.run.progress.units.fetch_add(1, Ordering::Relaxed);
                self.span(|span| span.units += 1);
            }
            Ok(false) => {}
            Err(error) => {
                // Its state is unknown.
                self.open = None;
                self.note_failure(Err(error));
            }
        }
    }

    /// False if the run was stopped in the middle.
    async fn touch(&mut self, number: u64, touch: Touch) -> Result<bool> {
        match touch {
            Touch::Read(part) => return self.move_data(number, part, false).await,
            Touch::Write(part) => return self.move_data(number, part, true).await,
            Touch::Stat(file) => self.stat(file).await?,
            Touch::List(directory) => self.list(directory).await?,
            Touch::Delete(directory) => self.delete(directory).await?,
            Touch::Walk(directory) => {
                self.list(directory).await?;
                for file in self.phase.layout.files_of(directory) {
                    if self.run.stopped().is_some() {
                        return Ok(false);
                    }
                    self.stat(file).await?;
                }
            }
        }
        Ok(true)
    }

    async fn move_data(&mut self, number: u64, part: FilePart, write: bool) -> Result<bool> {
        let FilePart { file, offset: mut at, length } = part;
        let end = at.saturating_add(length);
        let work = &self.phase.phase.work;
        let whole = work.unit == TouchUnit::File;
        // A whole file is opened anew each time, as a program does.
        if whole || self.open.as_ref().is_some_and(|open| open.number != file || (write && !open.writable)) {
            self.close().await?;
        }
        let (began, mut first) = (Instant::now(), None);
        let opened = self.opened(file, write).await?;
        while at < end {
            if self.run.stopped().is_some() {
                return Ok(false);
            }
            let block = FilePart { file, offset: at, length: work.block_bytes.min(end - at) };
            match write {
                true => self.write(&*opened, block).await?,
                false => self.read(&*opened, number, block).await?,
            }
            at = at.saturating_add(block.length);
            if at < end {
                first.get_or_insert_with(|| began.elapsed());
            }
            tokio::task::consume_budget().await;
        }
        if let (Some(first), false) = (first, write) {
            let mut shard = self.shard();
            shard.first_block.record(first);
            shard.all_blocks.record(began.elapsed());
        }
        if whole {
            self.close().await?;
        }
        Ok(true)
    }

    async fn opened(&mut self, number: u64, write: bool) -> Result<Arc<dyn TargetFile>> {
        if let Some(open) = &self.open {
            return Ok(Arc::clone(&open.file));
        }
        let path = self.path(number);
        let file = match write {
            true if self.phase.rounds.is_some() => {
                let size = self.phase.layout.size_of(number);
                self.timed("create", self.client.create_shared(&path, size)).await?
            }
            true => self.timed("create", self.client.create(&path)).await?,
            false => self.timed("open", self.client.open(&path)).await?,
        };
        self.open = Some(Open { number, file: Arc::clone(&file), writable: write });
        Ok(file)
    }

    async fn close(&mut self) -> Result<()> {
        match self.open.take() {
            None => Ok(()),
            Some(open) if open.writable => self.synced(open.file.close()).await,
            Some(open) => open.file.close().await,
        }
    }

    /// Makes data durable.
    async fn synced(&self, doing: impl Future<Output = Result<()>>) -> Result<()> {
        let began = Instant::now();
        let done = self.timed("sync", doing).await;
        self.span(|span| span.sync_s += began.elapsed().as_secs_f64());
        done
    }

    async fn read(&mut self, opened: &dyn TargetFile, number: u64, block: FilePart) -> Result<()> {
        let FilePart { file, offset, length } = block;
        let data = self.timed("read", opened.read(offset, bytes_of(length))).await?;
        let got = data.len() as u64;
        self.moved(got, 0);
        if got != length {
            let path = self.path(file);
            let context = format!("{path} at {offset}: {got} bytes of {length}; is it the right data set?");
            return Err(Error::new(ErrorKind::Io, "read to the end of", context));
        }
        let draw = mix_all(&[number, offset]) % 100;
        if draw < u64::from(self.phase.phase.verify_percent) {
            let place = self.place(file);
            let verdict = self.run.job.content.verify(place, offset, &data);
            let mut shard = self.shard();
            shard.verification.checked_bytes += got;
            if let Err(Mismatch { offset, fault }) = verdict {
                let expected_version = place.version;
                let located = || Located { path: self.path(file), offset, fault, expected_version };
                shard.verification.record(located, fault);
            }
        }
        Ok(())
    }

    async fn write(&mut self, opened: &dyn TargetFile, block: FilePart) -> Result<()> {
        let FilePart { file, offset, length } = block;
        let data = self.run.job.content.generate(self.place(file), offset, bytes_of(length));
        self.timed("write", opened.write(offset, data)).await?;
        self.moved(0, length);
        Ok(())
    }

    async fn stat(&self, file: u64) -> Result<()> {
        self.timed("stat", self.client.stat(&self.path(file))).await.map(drop)
    }

    async fn list(&self, directory: u64) -> Result<()> {
        let path = self.phase.layout.directory_path(&self.phase.root, self.number, directory);
        self.timed("list", self.client.list(&path)).await.map(drop)
    }

    /// A file of this worker's own comes and goes.
    async fn delete(&self, directory: u64) -> Result<()> {
        let own = u64::from(self.number) * u64::from(self.run.job.fleet.workers) + u64::from(self.worker);
        let path = self.phase.layout.path_beside(&self.phase.root, self.number, directory, own);
        let file = self.timed("create", self.client.create(&path)).await?;
        file.close().await?;
        self.timed("delete", self.client.remove(&path)).await
    }

    /// The call's result; its time is recorded by the call's name if it succeeded.
    async fn timed<T>(&self, call: &str, doing: impl Future<Output = Result<T>>) -> Result<T> {
        let began = Instant::now();
        let done = doing.await?;
        self.shard().call(call, began.elapsed());
        Ok(done)
    }

    fn moved(&mut self, read: u64, written: u64) {
        let now = Instant::now();
        let at = now.saturating_duration_since(self.run.start);
        self.shard().moved(self.phase.recorder.interval(at), read, written);
        let count = read.saturating_add(written);
        let before = self.run.progress.bytes.fetch_add(count, Ordering::Relaxed);
        if before.saturating_add(count) >= self.run.job.limits.bytes {
            self.run.stop(Stop::Bytes);
        }
        let sample = now.saturating_duration_since(self.progress_last) >= self.progress_every;
        let mut thinned = false;
        self.span(|span| {
            span.bytes = span.bytes.saturating_add(count);
            if sample {
                span.progress.push((at.as_secs_f64(), span.bytes));
            }
            if span.progress.len() >= PROGRESS_MAX {
                span.progress = span.progress.iter().copied().skip(1).step_by(2).collect();
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

    /// Puts down the error of what failed.
    fn note_failure(&self, done: Result<()>) {
        let Err(error) = done else { return };
        let kind = format!("{:?}", error.kind());
        self.shard().errors.record(&kind, || format!("client {}: {error}", self.number));
        self.run.progress.errors.fetch_add(1, Ordering::Relaxed);
        if self.run.errors.fetch_add(1, Ordering::Relaxed) >= self.run.job.limits.errors {
            self.run.stop(Stop::Errors);
        }
    }

    fn span(&self, change: impl FnOnce(&mut WorkerSpan)) {
        if let Some(span) = self.span_slot().as_mut() {
            change(span);
        }
    }

    fn index(&self) -> usize {
        self.here * self.run.job.fleet.workers as usize + self.worker as usize
    }

    fn span_slot(&self) -> MutexGuard<'_, Option<WorkerSpan>> {
        let slot = self.phase.spans.get(self.index()).expect("one for each worker of this process");
        locked(slot)
    }

    fn shard(&self) -> MutexGuard<'_, PhaseOutcome> {
        self.phase.recorder.shard(self.index())
    }

    fn path(&self, file: u64) -> String {
        self.phase.layout.path(&self.phase.root, self.number, file)
    }

    fn place(&self, file: u64) -> FileVersion {
        FileVersion {
            file: self.phase.layout.content_id(self.number, file),
            version: self.phase.phase.version,
        }
    }
}

/// Of a block, which has at most 1 GiB: the shape was checked.
fn bytes_of(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}
