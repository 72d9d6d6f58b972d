//! Locks on paths. At a store a rename is copies and then removals, and what is written in between would be removed
//! with the old key. So a change of a path waits while that path is renamed, and a rename waits for the changes.
//!
//! Changes share a path. A rename has its two paths exclusively, each with all below it. Where claims meet, the
//! first one goes first, so that none is overtaken for ever; a claim that meets none never waits. All paths are
//! claimed at once, so there are no deadlocks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

/// The longest wait for a rename: its caller hears "later" before a client repeats its call.
const PUT_PATIENCE: Duration = Duration::from_secs(30);
/// The longest wait of a rename: large objects take minutes to be completed.
const MOVE_PATIENCE: Duration = Duration::from_secs(300);
/// The most renamed directories that are remembered. After so many more, everybody knows where the oldest is.
const MOVED_MAX: usize = 256;

#[derive(Default)]
pub struct PathLocks {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: u64,
    /// All claims, granted or waiting, in their order.
    claims: BTreeMap<u64, PathClaim>,
    /// Old paths of renamed directories, the last one at the end.
    moved: VecDeque<Bytes>,
}

struct PathClaim {
    wants: ClaimKind,
    /// The paths that the caller has references to: when the claim is granted, another object may be there.
    about: Vec<Bytes>,
    /// The claims that must end before this one is granted.
    after: BTreeSet<u64>,
    turn: Option<oneshot::Sender<()>>,
    fate: Fate,
}

/// What is claimed; paths have no slash at the end.
enum ClaimKind {
    Put(Bytes),
    Move { from: Bytes, to: Bytes, step: MoveStep },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MoveStep {
    Looks,
    Copies,
    Removes,
}

/// What happened, while a call waited, to the object that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Stays,
    /// It was renamed: another object, or none, has its path now.
    Moved,
    /// Another object was renamed to its path.
    Replaced,
}

/// Whether a directory in which something is missing is being renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryMove {
    Nowhere,
    /// The directory, or one above it, is being renamed: its objects are being removed.
    Moves,
    /// It was renamed lately.
    Moved,
}

/// A granted claim; dropping it ends the claim.
pub struct PathLock<'a> {
    path_locks: &'a PathLocks,
    number: u64,
}

impl PathLocks {
    /// Claims `path` for a change, shared with other changes. `about` is what the caller has a reference to: the
    /// object, or the directory of the name. `None`: the wait was too long.
    pub async fn lock_shared(&self, path: &[u8], about: &[u8]) -> Option<PathLock<'_>> {
        self.acquire(ClaimKind::Put(owned_path(path)), vec![owned_path(about)], PUT_PATIENCE).await
    }

    /// Claims both paths exclusively, with all below them, for a rename.
    pub async fn lock_for_move(&self, from: &[u8], to: &[u8], about: [&[u8]; 2]) -> Option<PathLock<'_>> {
        let wants = ClaimKind::Move { from: owned_path(from), to: owned_path(to), step: MoveStep::Looks };
        self.acquire(wants, about.map(owned_path).to_vec(), MOVE_PATIENCE).await
    }

    pub fn move_of(&self, dir: &[u8]) -> DirectoryMove {
        let (state, dir) = (self.state(), without_slash(dir));
        if !state.moved.iter().any(|from| covers(from, dir)) {
            return DirectoryMove::Nowhere;
        }
        let removes = |claim: &PathClaim| match &claim.wants {
            ClaimKind::Move { from, step: MoveStep::Removes, .. } => covers(from, dir),
            _ => false,
        };
        if state.claims.values().any(removes) { DirectoryMove::Moves } else { DirectoryMove::Moved }
    }

    async fn acquire(&self, wants: ClaimKind, about: Vec<Bytes>, patience: Duration) -> Option<PathLock<'_>> {
        let (held, turn) = self.enter(wants, about);
        if let Some(turn) = turn {
            tokio::time::timeout(patience, turn).await.ok()?.ok()?;
        }
        Some(held)
    }

    /// Adds a claim; the receiver fires when it is granted. `None`: it is granted at once.
    fn enter(&self, wants: ClaimKind, about: Vec<Bytes>) -> (PathLock<'_>, Option<oneshot::Receiver<()>>) {
        let mut state = self.state();
        let before = state.claims.iter().filter(|(_, claim)| claim.wants.meets(&wants));
        let after: BTreeSet<u64> = before.map(|(number, _)| *number).collect();
        let (turn, wait) = match after.is_empty() {
            true => (None, None),
            false => Some(oneshot::channel()).unzip(),
        };
        state.last += 1;
        let number = state.last;
        state.claims.insert(number, PathClaim { wants, about, after, turn, fate: Fate::Stays });
        (PathLock { path_locks: self, number }, wait)
    }

    fn leave(&self, number: u64) {
        let mut state = self.state();
        let Some(gone) = state.claims.remove(&number) else { return };
        for claim in state.claims.range_mut(number..).map(|(_, claim)| claim) {
            if !claim.after.remove(&number) {
                continue;
            }
            if claim.fate == Fate::Stays {
                claim.fate = gone.wants.fate_of(&claim.about);
            }
            if claim.after.is_empty()
                && let Some(turn) = claim.turn.take()
            {
                // A claim that nobody waits for ends by itself.
                let _ = turn.send(());
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClaimKind {
    fn meets(&self, other: &ClaimKind) -> bool {
        match (self, other) {
            (ClaimKind::Put(_), ClaimKind::Put(_)) => false,
            (ClaimKind::Put(path), ClaimKind::Move { from, to, .. })
            | (ClaimKind::Move { from, to, .. }, ClaimKind::Put(path)) => {
                covers(from, path) || covers(to, path)
            }
            (ClaimKind::Move { from: a, to: b, .. }, ClaimKind::Move { from: c, to: d, .. }) => [a, b]
                .into_iter()
                .any(|one| [c, d].into_iter().any(|two| covers(one, two) || covers(two, one))),
        }
    }

    fn fate_of(&self, about: &[Bytes]) -> Fate {
        let ClaimKind::Move { from, to, step } = self else { return Fate::Stays };
        let any = |region: &Bytes| about.iter().any(|path| covers(region, path));
        match step {
            MoveStep::Removes if any(from) => Fate::Moved,
            MoveStep::Copies | MoveStep::Removes if any(to) => Fate::Replaced,
            _ => Fate::Stays,
        }
    }
}

impl PathLock<'_> {
    pub fn fate(&self) -> Fate {
        self.path_locks.state().claims.get(&self.number).map_or(Fate::Stays, |claim| claim.fate)
    }

    /// From here on another object may be at the new path.
    pub fn begin_copying(&self) {
        self.advance(MoveStep::Copies);
    }

    /// From here on the object at the old path may be gone.
    pub fn begin_removing(&self) {
        self.advance(MoveStep::Removes);
    }

    /// The same for a directory, which is remembered as renamed.
    pub fn begin_removing_directory(&self) {
        self.begin_removing();
        let mut state = self.path_locks.state();
        let Some(PathClaim { wants: ClaimKind::Move { from, .. }, .. }) = state.claims.get(&self.number)
        else {
            return;
        };
        let from = from.clone();
        state.moved.retain(|known| *known != from);
        state.moved.push_back(from);
        if state.moved.len() > MOVED_MAX {
            state.moved.pop_front();
        }
    }

    fn advance(&self, to: MoveStep) {
        let mut state = self.path_locks.state();
        if let Some(PathClaim { wants: ClaimKind::Move { step, .. }, .. }) =
            state.claims.get_mut(&self.number)
        {
            *step = to;
        }
    }
}

impl Drop for PathLock<'_> {
    fn drop(&mut self) {
        self.path_locks.leave(self.number);
    }
}

fn without_slash(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

fn owned_path(path: &[u8]) -> Bytes {
    Bytes::copy_from_slice(without_slash(path))
}

/// Whether `path` is `region`, or below it.
fn covers(region: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(region).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

#[cfg(test)]
mod tests;
