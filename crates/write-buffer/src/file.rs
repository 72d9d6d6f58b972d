//! One file with pending bytes, and those who wait for something of it. What is to be done next for it, and what its
//! readers see, is decided in `state.rs`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};
use types::{ByteRange, CacheKey, Error, FileId, JunctionId};

use crate::state::State;

pub struct BufferedFile {
    pub id: FileId,
    pub junction: JunctionId,
    /// See [`origin::OriginTraits::commits_whole_files`].
    pub whole: bool,
    state: Mutex<State>,
    /// Wakes the sender.
    pub wake: Notify,
    /// Something is over.
    pub progress: watch::Sender<()>,
}

impl BufferedFile {
    pub fn new(
        id: FileId,
        junction: JunctionId,
        clean: CacheKey,
        part_max: u32,
        whole: bool,
    ) -> Arc<BufferedFile> {
        let state = State::new(clean, part_max, whole);
        let (wake, progress) = (Notify::new(), watch::Sender::new(()));
        Arc::new(BufferedFile { id, junction, whole, state: Mutex::new(state), wake, progress })
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wait until what was written to `range` up to this write is stored at the origin, or is lost. If nothing else is
    /// on its way, also until it is known what the file is there: then the answer tells that, and it does not change
    /// after it. Deadlines are the caller's.
    pub async fn over(&self, range: ByteRange, sequence: u64) {
        let mut progress = self.progress.subscribe();
        loop {
            progress.borrow_and_update();
            if self.lock().is_over(range, sequence) {
                return;
            }
            if progress.changed().await.is_err() {
                return;
            }
        }
    }

    /// Whether what is below is elsewhere in the cache than it was: waits for what is being given to the cache.
    pub async fn lays_anew(&self, clean: CacheKey) -> bool {
        let mut progress = self.progress.subscribe();
        loop {
            progress.borrow_and_update();
            {
                let state = self.lock();
                if state.closed || state.clean != clean {
                    return true;
                }
                if !state.lays_provisional() {
                    return false;
                }
            }
            if progress.changed().await.is_err() {
                return false;
            }
        }
    }

    /// Wait until nothing of ours is under way at the origin, and what the origin has is what `clean` says. It stays so
    /// until the guard is dropped. `None` if nothing is pending any more.
    pub async fn hold(self: &Arc<Self>) -> Option<ExclusiveAccess> {
        self.request()?.granted().await
    }

    /// The first half of [`BufferedFile::hold`]: from now on it is not closed.
    pub fn request(self: &Arc<Self>) -> Option<ExclusiveAccess> {
        let epoch = {
            let mut state = self.lock();
            if state.closed {
                return None;
            }
            state.request()
        };
        self.wake.notify_one();
        Some(ExclusiveAccess { file: self.clone(), epoch })
    }
}

/// See [`BufferedFile::hold`].
pub struct ExclusiveAccess {
    file: Arc<BufferedFile>,
    epoch: u64,
}

impl ExclusiveAccess {
    /// The second half of [`BufferedFile::hold`].
    pub async fn granted(self) -> Option<ExclusiveAccess> {
        let mut progress = self.file.progress.subscribe();
        loop {
            progress.borrow_and_update();
            if self.file.lock().is_granted(self.epoch) {
                return Some(self);
            }
            if progress.changed().await.is_err() {
                return None;
            }
        }
    }

    /// It was changed at the origin under this guard: this is what it is.
    pub fn is_now(&self, clean: CacheKey) {
        self.file.lock().found(clean);
    }

    /// Likewise, and its size was set to this. What is written and not at the origin yet comes after that.
    pub fn is_cut(&self, size: u64, clean: CacheKey) {
        let mut state = self.file.lock();
        state.extents.cut(size);
        state.found(clean);
    }

    /// Whether it was cut nobody knows: what is written comes after that, also what the origin had.
    pub fn may_be_cut(&self) {
        self.file.lock().send_again();
    }
}

impl Drop for ExclusiveAccess {
    fn drop(&mut self) {
        self.file.lock().release(self.epoch);
        self.file.wake.notify_one();
    }
}

/// A write whose writer waits for it: its failure is told to that one.
pub struct Waiter {
    file: Arc<BufferedFile>,
    sequence: u64,
}

impl Waiter {
    pub fn new(file: &Arc<BufferedFile>, state: &mut State, sequence: u64) -> Waiter {
        state.wait_for(sequence);
        Waiter { file: file.clone(), sequence }
    }

    pub fn error(&self) -> Option<Error> {
        self.file.lock().told(self.sequence)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.file.lock().forget_waiter(self.sequence);
    }
}
