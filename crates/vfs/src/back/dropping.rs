//! Operations that an operator gives up: looked at and copied away first, and only then forgotten.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ::bytes::Bytes;
use types::{ByteRange, Error, ErrorKind, FileId, JunctionId, Result};
use writeback::{Action, Journal, JournalOperation, UnflushedEntry, Waits, Withheld};

use super::locks::StripeGuard;
use super::waiting::{self, WaitingFilter, WaitingOperation};
use crate::Vfs;

/// What is on its way is waited for so long.
const PATIENCE: Duration = Duration::from_secs(30);
/// Clients may add to what is to be given up, until it is held.
const TRIES: usize = 16;
/// Numbers in one message.
const SHOWN_MAX: usize = 20;

/// Operations that are held back, each with its bytes. Dropping it lets them go on.
pub struct Dropping<'a> {
    pub operations: Vec<WaitingOperation>,
    journal: Arc<Journal>,
    end: DropMode<'a>,
}

enum DropMode<'a> {
    Running { withheld: Withheld, _held: Vec<StripeGuard<'a>> },
    Stopped { waits: &'a Waits, sequences: BTreeSet<u64> },
}

impl<'a> Dropping<'a> {
    pub(super) fn of_stopped(
        operations: Vec<WaitingOperation>,
        journal: Arc<Journal>,
        waits: &'a Waits,
    ) -> Dropping<'a> {
        let sequences = operations.iter().map(|operation| operation.sequence).collect();
        Dropping { operations, journal, end: DropMode::Stopped { waits, sequences } }
    }

    /// The bytes of one of them, checked.
    pub async fn data(&self, operation: &WaitingOperation) -> Result<Bytes> {
        self.journal.read(operation.position, ByteRange::new(0, operation.bytes)).await
    }

    /// They are forgotten, durably: the origin never gets them, and clients see what was before.
    pub async fn finish(self) -> Result<()> {
        match self.end {
            DropMode::Running { withheld, _held } => withheld.give_up().await,
            DropMode::Stopped { waits, sequences } => waits.give_up(&self.journal, &sequences).await,
        }
    }
}

/// All of them, if their dependents are among them or may go too.
pub(super) fn all_of(
    wanted: &[u64],
    with_dependents: bool,
    closed: impl Fn(&[u64]) -> BTreeSet<u64>,
) -> Result<BTreeSet<u64>> {
    let all = closed(wanted);
    if let Some(missing) = wanted.iter().find(|sequence| !all.contains(sequence)) {
        let message = format!("{missing}: no such operation waits (any more)");
        return Err(Error::new(ErrorKind::NotFound, "give up operation", message));
    }
    let dependents: Vec<u64> = all.iter().copied().filter(|it| !wanted.contains(it)).collect();
    if dependents.is_empty() || with_dependents {
        return Ok(all);
    }
    let mut shown: Vec<String> = dependents.iter().take(SHOWN_MAX).map(u64::to_string).collect();
    if dependents.len() > SHOWN_MAX {
        shown.push(format!("and {} more", dependents.len() - SHOWN_MAX));
    }
    let message = format!(
        "operations that make no sense without them: {}; give up these too with --with-dependents",
        shown.join(", ")
    );
    Err(Error::new(ErrorKind::InvalidArgument, "give up only a part of", message))
}

/// Held alone while it is given up, nothing can be added that depends on it: its object, what it replaces, and the
/// directories of its names.
fn objects_of(listed: &[UnflushedEntry]) -> BTreeSet<FileId> {
    let of = |operation: &JournalOperation| {
        let mut objects = vec![operation.object()];
        match &operation.action {
            Action::Make { dir, .. }
            | Action::Link { dir, .. }
            | Action::Remove { dir, .. }
            | Action::Rmdir { dir, .. } => objects.push(*dir),
            Action::Rename(rename) => {
                objects.extend([rename.from_dir, rename.to_dir]);
                objects.extend(rename.replaced.map(|replaced| replaced.object));
            }
            Action::Write { .. } | Action::Truncate { .. } | Action::Set { .. } => {}
        }
        objects
    };
    listed.iter().flat_map(|it| of(&it.pending.operation)).collect()
}

impl Vfs {
    /// At most `max` of what waits after the operation `after`, in their order.
    pub async fn waiting(
        &self,
        after: u64,
        max: usize,
        filter: &WaitingFilter,
    ) -> Result<Vec<WaitingOperation>> {
        let Some(back) = self.writers.back() else { return Ok(Vec::new()) };
        // What is shown already is the flush's to know.
        back.all_durable().await?;
        let wanted = filter.junction.as_deref().map(|path| self.junction_at(path)).transpose()?;
        let is_wanted = |junction: JunctionId, refused: bool| {
            wanted.is_none_or(|wanted| wanted == junction) && (refused || !filter.refused)
        };
        let listed = back.flusher.list(after, max, &is_wanted);
        Ok(listed.iter().map(|listed| self.told(listed)).collect())
    }

    /// One that waits, and what makes no sense without it.
    pub async fn waiting_operation(&self, sequence: u64) -> Result<(WaitingOperation, Vec<u64>)> {
        if let Some(back) = self.writers.back() {
            back.all_durable().await?;
        }
        let found = self.writers.back().and_then(|back| Some((back, back.flusher.find(sequence)?)));
        let Some((back, listed)) = found else {
            return Err(Error::new(ErrorKind::NotFound, "find waiting operation", sequence));
        };
        let mut dependents = back.flusher.with_dependents(&[sequence]);
        dependents.remove(&sequence);
        Ok((self.told(&listed), dependents.into_iter().collect()))
    }

    /// Holds these back, and what makes no sense without them, so that they can be copied away and given up.
    pub async fn begin_drop(&self, sequences: &[u64], with_dependents: bool) -> Result<Dropping<'_>> {
        let Some(back) = self.writers.back() else {
            return Err(Error::new(ErrorKind::NotFound, "give up operations", "without a journal"));
        };
        back.all_found().await;
        let closed = |wanted: &[u64]| back.flusher.with_dependents(wanted);
        let mut objects = BTreeSet::new();
        for _ in 0..TRIES {
            let alone: Vec<FileId> = objects.iter().copied().collect();
            let held = back.locks.objects(&[], &alone).await;
            // What is shown already is the flush's to know.
            back.all_durable().await?;
            let all = all_of(sequences, with_dependents, closed)?;
            let listed: Vec<UnflushedEntry> = all.iter().filter_map(|it| back.flusher.find(*it)).collect();
            let wanted = objects_of(&listed);
            if !wanted.is_subset(&objects) {
                objects.extend(wanted);
                continue;
            }
            let withheld = back.flusher.withhold(all, PATIENCE).await?;
            let listed = withheld.operations();
            let operations = listed.iter().map(|listed| self.told(listed)).collect();
            let end = DropMode::Running { withheld, _held: held };
            return Ok(Dropping { operations, journal: back.journal.clone(), end });
        }
        Err(Error::new(ErrorKind::Busy, "give up operations", "that clients go on adding to"))
    }

    fn told(&self, listed: &UnflushedEntry) -> WaitingOperation {
        let all = self.namespace.junctions();
        let junction = |id: JunctionId| Some(all.iter().find(|junction| junction.id == id)?.path.clone());
        waiting::told(&self.places(), junction, listed)
    }

    fn junction_at(&self, path: &str) -> Result<JunctionId> {
        let found = self.namespace.junctions().into_iter().find(|junction| junction.path == path);
        found
            .map(|junction| junction.id)
            .ok_or_else(|| Error::new(ErrorKind::NotFound, "find junction", path))
    }
}
