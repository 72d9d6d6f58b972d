//! The journal of a tier that is not running: what waits in it can be listed and given up in any state, also where no
//! start is possible, because a junction is not configured any more or is not written `back` any more.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use namespace::Namespace;
use types::{JunctionId, Result};
use writeback::{Journal, JournalOperation, RecoveredEntry, Waits};

use super::dropping::{Dropping, all_of};
use super::journal::decoded;
use super::overlay::DirtyOverlay;
use super::waiting::{self, WaitingFilter, WaitingOperation};
use crate::places::Places;

/// Where the parts of a stopped tier lie.
#[derive(Clone, Debug)]
pub struct StoppedTier {
    pub journal: PathBuf,
    /// The file that says which journal belongs to the cache.
    pub bond: PathBuf,
    pub metadata: PathBuf,
}

/// Holds the locks of the journal and of the database: no tier starts meanwhile.
pub struct StoppedJournal {
    journal: Arc<Journal>,
    namespace: Arc<Namespace>,
    places: Places,
    junctions: HashMap<JunctionId, String>,
    waits: Waits,
}

impl StoppedJournal {
    /// Reads all of it on this thread; needs a runtime.
    pub fn open(tier: &StoppedTier) -> Result<StoppedJournal> {
        let mut config = writeback::Config::new(&tier.journal);
        config.bond = Some(tier.bond.clone());
        let (journal, recovered) = Journal::open(config)?;
        let recovered: Vec<(RecoveredEntry, JournalOperation)> =
            recovered.map(decoded).collect::<Result<_>>()?;
        let metadata = namespace::Config { dir: tier.metadata.clone(), ..namespace::Config::default() };
        let junctions = namespace::known_junctions(&tier.metadata);
        let namespace = Namespace::open(metadata, Vec::new())?;
        let overlay = Arc::new(DirtyOverlay::new(Arc::default()));
        for (entry, operation) in &recovered {
            let expected = overlay.expect(super::journal::known_of(&namespace, operation, true));
            overlay.apply((entry.sequence, operation, entry.position), &[]);
            expected.applied();
        }
        let places = Places { overlay, namespace: namespace.clone() };
        let waits = Waits::of(&recovered);
        let junctions = junctions.into_iter().map(|(id, path)| (JunctionId(id), path)).collect();
        Ok(StoppedJournal { journal: Arc::new(journal), namespace, places, junctions, waits })
    }

    /// What the origins refuse is known to a running tier only.
    pub fn waiting(&self, filter: &WaitingFilter) -> Vec<WaitingOperation> {
        let junction = |id| self.junctions.get(&id).cloned();
        let listed = self.waits.list();
        let told = listed.iter().map(|listed| waiting::told(&self.places, junction, listed));
        told.filter(|it| filter.junction.as_ref().is_none_or(|path| *path == it.junction)).collect()
    }

    /// What makes no sense without it.
    pub fn dependents(&self, sequence: u64) -> Vec<u64> {
        self.waits.with_dependents(&[sequence]).into_iter().filter(|it| *it != sequence).collect()
    }

    pub fn begin_drop(&self, sequences: &[u64], with_dependents: bool) -> Result<Dropping<'_>> {
        let all = all_of(sequences, with_dependents, |wanted| self.waits.with_dependents(wanted))?;
        let mut operations = self.waiting(&WaitingFilter::default());
        operations.retain(|operation| all.contains(&operation.sequence));
        Ok(Dropping::of_stopped(operations, self.journal.clone(), &self.waits))
    }

    /// A clean end, so that the next start knows what is left.
    pub async fn close(self) -> Result<()> {
        self.namespace.shutdown().await;
        self.journal.close().await
    }
}
