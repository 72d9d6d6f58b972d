//! A data set on a target: laid out once, and used again as long as it is what is wanted.
//!
//! The directory's description says seed, generator, layout and version, and whether the writing came to its
//! end. Only a data set that agrees in all of it is used again; one that differs in its version alone is
//! overwritten in place (so a stale copy of it can be found out); any other is refused, not replaced.
//! A run may have several, each in a directory of its own below the run's.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use types::{Error, ErrorKind, Result};

use crate::data::{GENERATOR, SeededData};
use crate::engine::{LoadJob, LoadPhase, LocalGate, run};
use crate::outcome::LoadOutcome;
use crate::safety::{RunDir, read_small, write_small};
use crate::shape::{ClientSet, Layout, LoadWork, TouchUnit};
use crate::target::Client;

pub(crate) const DESCRIPTION: &str = ".forebay-dataset";
const SCHEMA: u32 = 1;
/// Files whose sizes are looked at before a data set is used again.
const LOOKED_AT: u64 = 16;
/// Files that each client writes at the same time.
const WORKERS: u32 = 4;

/// What should lie there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dataset {
    pub layout: Layout,
    pub content: SeededData,
    /// Of the contents.
    pub version: u32,
    /// How many clients have a tree of their own, if the layout is private; otherwise 1.
    pub trees: u32,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Description {
    schema: u32,
    generator: u16,
    dataset: Dataset,
    /// All of it was written and made durable.
    complete: bool,
}

/// The directory of a data set: the run's own, or one directly in it.
#[derive(Clone, Copy, Debug)]
pub struct DataSetDir<'a> {
    pub dir: &'a RunDir,
    /// As of [`crate::engine::Files`]. Empty: the run's directory itself.
    pub directory: &'a str,
}

impl DataSetDir<'_> {
    fn path(&self) -> String {
        match self.directory {
            "" => self.dir.path(),
            directory => format!("{}/{directory}", self.dir.path()),
        }
    }

    fn description(&self) -> String {
        format!("{}/{DESCRIPTION}", self.path())
    }
}

/// Sees to it that the data set lies there, by these clients. Call it in one process. What came of writing it; `None` if it was
/// there.
pub async fn prepare(
    dataset: &Dataset,
    place: DataSetDir<'_>,
    clients: &[Arc<dyn Client>],
) -> Result<Option<LoadOutcome>> {
    let client =
        clients.first().ok_or_else(|| Error::new(ErrorKind::Config, "data set", "there is no client"))?;
    if is_there(dataset, place, &**client).await? {
        return Ok(None);
    }
    if !place.directory.is_empty() {
        client.mkdir(&place.path()).await?;
    }
    write_small(&**client, &place.description(), &describe_as(dataset, false)).await?;
    let outcome = lay_out(dataset, place, clients).await?;
    write_small(&**client, &place.description(), &describe_as(dataset, true)).await?;
    Ok(Some(outcome))
}

/// Whether it lies there, whole, and need not be written. `Config` if something else does.
pub async fn is_there(dataset: &Dataset, place: DataSetDir<'_>, client: &dyn Client) -> Result<bool> {
    dataset.layout.check()?;
    let wanted = describe_as(dataset, true);
    let Some(found) = describe(client, place).await? else { return Ok(false) };
    if found == wanted {
        look_at_files(dataset, place, client).await?;
        return Ok(true);
    }
    check_same_but_version(&found, &wanted, place)?;
    Ok(false)
}

fn describe_as(dataset: &Dataset, complete: bool) -> Description {
    Description { schema: SCHEMA, generator: GENERATOR, dataset: dataset.clone(), complete }
}

async fn describe(client: &dyn Client, place: DataSetDir<'_>) -> Result<Option<Description>> {
    let text = match read_small(client, &place.description()).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|_| other_data(place, "a description that cannot be read"))
}

fn other_data(place: DataSetDir<'_>, what: &str) -> Error {
    let reason = format!("{} holds {what}; clean it up, or give another id", place.path());
    Error::new(ErrorKind::Config, "data set", reason)
}

fn check_same_but_version(found: &Description, wanted: &Description, place: DataSetDir<'_>) -> Result<()> {
    let (have, want) = (&found.dataset, &wanted.dataset);
    let told = if (found.schema, found.generator) != (wanted.schema, wanted.generator) {
        "a data set of another version of this program".to_owned()
    } else if have.content != want.content {
        format!("data of seed {}, not {}", have.content.seed, want.content.seed)
    } else if (&have.layout, have.trees) != (&want.layout, want.trees) {
        let (have, want) = (&have.layout, &want.layout);
        format!("{} files of {:?}, not {} of {:?}", have.files, have.sizes, want.files, want.sizes)
    } else {
        return Ok(());
    };
    Err(other_data(place, &told))
}

/// A few of the files; somebody may have removed or cut them since.
async fn look_at_files(dataset: &Dataset, place: DataSetDir<'_>, client: &dyn Client) -> Result<()> {
    let files = dataset.layout.files;
    for step in 0..LOOKED_AT.min(files) {
        let file =
            (u128::from(step) * u128::from(files - 1) / u128::from(LOOKED_AT.min(files).max(2) - 1)) as u64;
        let path = dataset.layout.path(&place.path(), dataset.trees.saturating_sub(1), file);
        let size = client.stat(&path).await.map(|status| status.size);
        if size.as_ref().ok() != Some(&dataset.layout.size_of(file)) {
            let found = size.map_or_else(|error| error.to_string(), |size| format!("{size} bytes"));
            return Err(other_data(place, &format!("a data set with a damaged file ({path}: {found})")));
        }
    }
    Ok(())
}

async fn lay_out(
    dataset: &Dataset,
    place: DataSetDir<'_>,
    clients: &[Arc<dyn Client>],
) -> Result<LoadOutcome> {
    // A tree for each client of the later run, whoever writes it now.
    let trees = if dataset.layout.private { dataset.trees as usize } else { clients.len() };
    let clients: Vec<Arc<dyn Client>> = clients.iter().cycle().take(trees).map(Arc::clone).collect();
    let count = u32::try_from(trees).unwrap_or(u32::MAX);
    let fleet = ClientSet { clients: count, first_client: 0, workers: WORKERS };
    // Few large files are written by several workers each.
    let unit = if dataset.layout.files < fleet.workers_in_all() { TouchUnit::Block } else { TouchUnit::File };
    let work = LoadWork { unit, ..LoadWork::mfmw() };
    let phase =
        LoadPhase { name: "lay out".to_owned(), work, version: dataset.version, ..LoadPhase::default() };
    let job = LoadJob {
        root: place.path(),
        layout: dataset.layout.clone(),
        content: dataset.content,
        fleet,
        phases: vec![phase],
        ..LoadJob::default()
    };
    let outcome = run(&job, &clients, &LocalGate, &Arc::default()).await?;
    match outcome.phases.iter().flat_map(|phase| phase.faults()).next() {
        Some(fault) => {
            Err(Error::new(ErrorKind::Io, "lay out the data set", format!("{}: {fault}", place.path())))
        }
        None => Ok(outcome),
    }
}
