//! What waits, for an operator to look at; and operations that he gives up: they never reach the origin.
//!
//! They are held back first, so that nobody flushes them meanwhile, and looked at or copied away. Their marks go into the
//! journal backwards: of a crash in the midst of it the first of them are left, never one without what it was done to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use types::{Error, ErrorKind, FileId, JunctionId, Result};

use super::{FlushEngine, Flusher};
use crate::flush_target::DroppedOperations;
use crate::journal::{Journal, RecoveredEntry};
use crate::operation::JournalOperation;
use crate::plan::{FlushPlan, Parked, Pending};
use crate::sabotage::{Bug, Sabotage};

/// An operation that is not at the origin.
#[derive(Clone, Debug)]
pub struct UnflushedEntry {
    pub pending: Pending,
    pub refused: Option<Parked>,
    /// These come first.
    pub waits_for: Vec<u64>,
}

/// Operations that are held back. Dropping it lets them go on.
pub struct Withheld {
    shared: Arc<FlushEngine>,
    sequences: BTreeSet<u64>,
    parked: Vec<Parked>,
}

/// What waits for what in a journal whose tier is not running.
pub struct Waits(FlushPlan);

fn listed(plan: &FlushPlan, pending: &Pending) -> UnflushedEntry {
    let refused = plan.refusal(pending.sequence).cloned();
    UnflushedEntry { pending: pending.clone(), refused, waits_for: plan.waits_for(pending.sequence) }
}

impl Flusher {
    /// At most `max` after `after`, in the order of their sequences, of those that are wanted.
    pub fn list(
        &self,
        after: u64,
        max: usize,
        wanted: &dyn Fn(JunctionId, bool) -> bool,
    ) -> Vec<UnflushedEntry> {
        let plan = self.shared.plan();
        let later = plan.all().filter(|pending| pending.sequence > after);
        let is_wanted = |it: &&Pending| wanted(it.operation.junction, plan.refusal(it.sequence).is_some());
        later.filter(is_wanted).take(max).map(|pending| listed(&plan, pending)).collect()
    }

    pub fn find(&self, sequence: u64) -> Option<UnflushedEntry> {
        let plan = self.shared.plan();
        plan.get(sequence).map(|pending| listed(&plan, pending))
    }

    /// Those of them that wait, and all that make no sense without them.
    pub fn with_dependents(&self, sequences: &[u64]) -> BTreeSet<u64> {
        self.shared.plan().with_dependents(sequences)
    }

    /// Takes them out of the flush; waits for as long as `patience` for what is on its way. They must be all that depend
    /// on each other, and nobody may add to them.
    pub async fn withhold(&self, sequences: BTreeSet<u64>, patience: Duration) -> Result<Withheld> {
        let mut ended = self.shared.ended.subscribe();
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            ended.borrow_and_update();
            if let Some(withheld) = Withheld::take(&self.shared, &sequences)? {
                return Ok(withheld);
            }
            if tokio::time::timeout_at(deadline, ended.changed()).await.is_err() {
                return Err(Error::new(
                    ErrorKind::Busy,
                    "give up operations",
                    "that are on their way just now",
                ));
            }
        }
    }
}

impl Withheld {
    /// `None`: one of them is on its way.
    pub(super) fn take(shared: &Arc<FlushEngine>, sequences: &BTreeSet<u64>) -> Result<Option<Withheld>> {
        let mut plan = shared.plan();
        if let Some(gone) = sequences.iter().find(|sequence| !plan.contains(**sequence)) {
            return Err(Error::new(ErrorKind::NotFound, "give up operation", gone));
        }
        if plan.is_any_running(sequences) {
            return Ok(None);
        }
        let parked = plan.hold_back(sequences);
        drop(plan);
        Ok(Some(Withheld { shared: shared.clone(), sequences: sequences.clone(), parked }))
    }

    /// In the order of their sequences.
    pub fn operations(&self) -> Vec<UnflushedEntry> {
        let plan = self.shared.plan();
        let all = self.sequences.iter().filter_map(|sequence| plan.get(*sequence));
        all.map(|pending| listed(&plan, pending)).collect()
    }

    /// They are forgotten, durably, and what was before them is shown.
    pub async fn give_up(self) -> Result<()> {
        let given_up = self.given_up();
        self.mark().await?;
        self.shared.entries.done_synced().await?;
        self.shared.target.given_up(&given_up).await;
        let forwards: Vec<u64> = self.sequences.iter().copied().collect();
        self.shared.plan().done(&forwards);
        let mut told = self.shared.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        told.retain(|(sequence, ..), _| !self.sequences.contains(sequence));
        drop(told);
        self.shared.forget_looks(&forwards);
        Ok(())
    }

    /// Not durable yet.
    pub(super) async fn mark(&self) -> Result<()> {
        let mut backwards: Vec<u64> = self.sequences.iter().rev().copied().collect();
        if self.shared.sabotage.is(Bug::GiveUpForwards) {
            backwards.reverse();
        }
        self.shared.entries.done(&backwards).await
    }

    fn given_up(&self) -> DroppedOperations {
        let plan = self.shared.plan();
        let gone: Vec<Pending> = self.sequences.iter().filter_map(|it| plan.get(*it).cloned()).collect();
        let objects: BTreeSet<FileId> = gone.iter().flat_map(|it| it.operation.objects()).collect();
        let mut kept = BTreeMap::new();
        for object in objects {
            kept.extend(plan.others_on(object, &self.sequences).into_iter().map(|it| (it.sequence, it)));
        }
        DroppedOperations { gone, kept: kept.into_values().collect() }
    }
}

impl Drop for Withheld {
    fn drop(&mut self) {
        self.shared.plan().let_go(&self.sequences, std::mem::take(&mut self.parked));
        self.shared.ended.send_modify(|count| *count += 1);
        self.shared.bell.notify_one();
    }
}

impl Waits {
    pub fn of(recovered: &[(RecoveredEntry, JournalOperation)]) -> Waits {
        let mut plan = FlushPlan::new(Default::default(), Sabotage::default());
        for (entry, operation) in recovered {
            plan.add(Pending {
                sequence: entry.sequence,
                operation: operation.clone(),
                position: entry.position,
                acknowledged: Duration::from_millis(entry.written_ms),
                in_doubt: false,
                recovered: true,
                carried: false,
            });
        }
        Waits(plan)
    }

    pub fn list(&self) -> Vec<UnflushedEntry> {
        self.0.all().map(|pending| listed(&self.0, pending)).collect()
    }

    pub fn with_dependents(&self, sequences: &[u64]) -> BTreeSet<u64> {
        self.0.with_dependents(sequences)
    }

    /// They are forgotten, durably, and the next start knows nothing of them.
    pub async fn give_up(&self, journal: &Journal, sequences: &BTreeSet<u64>) -> Result<()> {
        let backwards: Vec<u64> = sequences.iter().rev().copied().collect();
        journal.done(&backwards).await?;
        journal.done_synced().await
    }
}
