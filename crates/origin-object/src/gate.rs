//! Who puts something under a path, or takes it away, waits while that path moves, and a move waits until nobody does: at
//! a store a move is copies and then removals, and what comes between the two would go with the old key.
//!
//! Those who put share a path. A move has two of them alone, each with all that lies below it. Where they meet, who came
//! first goes first, so that nobody is overtaken for ever; who meets nobody never waits. All that one wants is asked for
//! at once: two cannot wait for each other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

/// Longest wait for a move: its caller hears "later" before a client asks again.
const PUT_PATIENCE: Duration = Duration::from_secs(30);
/// Longest wait of a move: large objects take minutes to be completed.
const MOVE_PATIENCE: Duration = Duration::from_secs(300);
/// Directories that moved and are remembered. By the time that so many more did, all know where it is.
const MOVED_MAX: usize = 256;

#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: u64,
    /// Who is in or waits, in the order in which they came.
    claims: BTreeMap<u64, Claim>,
    /// Directories, the last one at the end.
    moved: VecDeque<Bytes>,
}

struct Claim {
    wants: Wants,
    /// What its caller knows by a path: that may be another object when it is in.
    about: Vec<Bytes>,
    /// Who must leave before it is in.
    after: BTreeSet<u64>,
    turn: Option<oneshot::Sender<()>>,
    fate: Fate,
}

/// Paths without a slash at the end.
enum Wants {
    Put(Bytes),
    Move { from: Bytes, to: Bytes, step: Step },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Looks,
    Copies,
    Removes,
}

/// What became, while it waited, of what a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Stays,
    /// It is elsewhere: what has its path now is something else, if there is anything.
    Moved,
    /// Something else was moved to its path.
    Replaced,
}

/// Where what is not found in a directory may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Went {
    Nowhere,
    /// The directory, or one above it, is losing what is in it to its new place.
    Moves,
    /// It did so lately.
    Moved,
}

/// Until it is dropped.
pub struct Held<'a> {
    gate: &'a Gate,
    number: u64,
}

impl Gate {
    /// With others, but for who moves it: what is at `path` is put or removed. What the caller knows is `about`: the
    /// object, or the directory in which there is a name. `None`: the wait was too long.
    pub async fn share(&self, path: &[u8], about: &[u8]) -> Option<Held<'_>> {
        self.take(Wants::Put(own(path)), vec![own(about)], PUT_PATIENCE).await
    }

    /// Alone, with all that is below: what is at `from` is moved to `to`.
    pub async fn alone(&self, from: &[u8], to: &[u8], about: [&[u8]; 2]) -> Option<Held<'_>> {
        let wants = Wants::Move { from: own(from), to: own(to), step: Step::Looks };
        self.take(wants, about.map(own).to_vec(), MOVE_PATIENCE).await
    }

    pub fn went(&self, dir: &[u8]) -> Went {
        let (state, dir) = (self.state(), without_slash(dir));
        if !state.moved.iter().any(|from| covers(from, dir)) {
            return Went::Nowhere;
        }
        let removes = |claim: &Claim| match &claim.wants {
            Wants::Move { from, step: Step::Removes, .. } => covers(from, dir),
            _ => false,
        };
        if state.claims.values().any(removes) { Went::Moves } else { Went::Moved }
    }

    async fn take(&self, wants: Wants, about: Vec<Bytes>, patience: Duration) -> Option<Held<'_>> {
        let (held, turn) = self.enter(wants, about);
        if let Some(turn) = turn {
            tokio::time::timeout(patience, turn).await.ok()?.ok()?;
        }
        Some(held)
    }

    /// `None`: it is in.
    fn enter(&self, wants: Wants, about: Vec<Bytes>) -> (Held<'_>, Option<oneshot::Receiver<()>>) {
        let mut state = self.state();
        let before = state.claims.iter().filter(|(_, claim)| claim.wants.meets(&wants));
        let after: BTreeSet<u64> = before.map(|(number, _)| *number).collect();
        let (turn, wait) = match after.is_empty() {
            true => (None, None),
            false => Some(oneshot::channel()).unzip(),
        };
        state.last += 1;
        let number = state.last;
        state.claims.insert(number, Claim { wants, about, after, turn, fate: Fate::Stays });
        (Held { gate: self, number }, wait)
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
                // Who does not wait any more leaves by itself.
                let _ = turn.send(());
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wants {
    fn meets(&self, other: &Wants) -> bool {
        match (self, other) {
            (Wants::Put(_), Wants::Put(_)) => false,
            (Wants::Put(path), Wants::Move { from, to, .. })
            | (Wants::Move { from, to, .. }, Wants::Put(path)) => covers(from, path) || covers(to, path),
            (Wants::Move { from: a, to: b, .. }, Wants::Move { from: c, to: d, .. }) => [a, b]
                .into_iter()
                .any(|one| [c, d].into_iter().any(|two| covers(one, two) || covers(two, one))),
        }
    }

    fn fate_of(&self, about: &[Bytes]) -> Fate {
        let Wants::Move { from, to, step } = self else { return Fate::Stays };
        let any = |region: &Bytes| about.iter().any(|path| covers(region, path));
        match step {
            Step::Removes if any(from) => Fate::Moved,
            Step::Copies | Step::Removes if any(to) => Fate::Replaced,
            _ => Fate::Stays,
        }
    }
}

impl Held<'_> {
    pub fn fate(&self) -> Fate {
        self.gate.state().claims.get(&self.number).map_or(Fate::Stays, |claim| claim.fate)
    }

    /// From here on there may be something else at the new path.
    pub fn copies(&self) {
        self.goes_on(Step::Copies);
    }

    /// From here on what was at the old path may be gone.
    pub fn removes(&self) {
        self.goes_on(Step::Removes);
    }

    /// The same of a directory.
    pub fn removes_directory(&self) {
        self.removes();
        let mut state = self.gate.state();
        let Some(Claim { wants: Wants::Move { from, .. }, .. }) = state.claims.get(&self.number) else {
            return;
        };
        let from = from.clone();
        state.moved.retain(|known| *known != from);
        state.moved.push_back(from);
        if state.moved.len() > MOVED_MAX {
            state.moved.pop_front();
        }
    }

    fn goes_on(&self, to: Step) {
        let mut state = self.gate.state();
        if let Some(Claim { wants: Wants::Move { step, .. }, .. }) = state.claims.get_mut(&self.number) {
            *step = to;
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.gate.leave(self.number);
    }
}

fn without_slash(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

fn own(path: &[u8]) -> Bytes {
    Bytes::copy_from_slice(without_slash(path))
}

/// It is that path, or one below it.
fn covers(region: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(region).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

#[cfg(test)]
mod tests;
