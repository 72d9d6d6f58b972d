//! How this process was started, and so what it is in the run.
//!
//! | started by            | rank and size from         | rank 0 is found by                                      |
//! |-----------------------|----------------------------|---------------------------------------------------------|
//! | `--procs N`           | our variables              | our variables: loopback and a port                      |
//! | `--hosts a,b:4`, ssh  | our variables              | our variables: where ssh came from, names and addresses |
//! | `mpirun`, one machine | `OMPI_COMM_WORLD_*`, `PMI_*` | a file in the temporary directory, loopback           |
//! | `mpirun`, several     | the same                   | a file in the working directory, or `--rendezvous DIR`  |
//! | `srun`                | `SLURM_PROCID`, the step   | as `mpirun`                                             |
//! | anything else         | our variables, by a script | the same: `FOREBAY_BENCH_COORDINATOR`                   |
//!
//! With `--coordinator HOST:PORT` and a `FOREBAY_BENCH_TOKEN` in the environment of all, no file is needed.
//!
//! All is a function of the options and the environment. Our own variables count first, as the processes that we start
//! inherit those of a batch system. Open MPI's and PMI's count before Slurm's, as `mpirun` in a Slurm job starts its
//! ranks from processes that have Slurm ranks of their own; unless both agree, which is `srun` with a PMI plugin.

mod hosts;
mod mpi;
mod own;
mod slurm;

use std::path::PathBuf;

use types::{Error, ErrorKind, Result};

pub use hosts::quote;
pub use own::{COORDINATOR, RANK, SIZE, TOKEN, TOKEN_ON_STDIN};

use crate::options::{Environment, FleetOptions, RANKS_MAX};

/// What this process is in the run.
#[derive(Clone, Debug, PartialEq)]
pub enum Launch {
    /// One process, no run on many.
    Alone,
    /// Rank 0, which starts the others: (rank, host) for each; no host is this one.
    Start(Vec<RankStart>),
    /// A launcher has started all ranks. They find rank 0 by `meeting`.
    Started { launcher: &'static str, rank: u32, size: u32, meeting: Meeting },
}

#[derive(Clone, Debug, PartialEq)]
pub struct RankStart {
    pub rank: u32,
    /// None: this machine, without ssh.
    pub host: Option<String>,
}

/// The place where the other ranks find rank 0.
#[derive(Clone, Debug, PartialEq)]
pub enum Meeting {
    /// At these addresses, `HOST:PORT`. Rank 0 listens there.
    At(Vec<String>),
    /// Rank 0 leaves its addresses and the token in this file. `one_machine`: all ranks see this machine's loopback.
    File { path: PathBuf, one_machine: bool },
}

/// What a launcher's variables say.
#[derive(Clone, Debug, PartialEq)]
struct LauncherRank {
    /// `mpirun`, `srun`: for messages.
    launcher: &'static str,
    rank: u32,
    size: u32,
    /// The same for all ranks of this run, and no other run's at the same time; empty if nothing is known.
    job: String,
    one_machine: bool,
}

/// What this process is. `this_host` is its name.
pub fn detect(options: &FleetOptions, this_host: &str) -> Result<Launch> {
    if let Some(launch) = own::detect(&options.environment)? {
        return Ok(launch);
    }
    let found = launcher(&options.environment);
    let typed = started_by_us(options, this_host)?;
    match (found, typed) {
        (Some(found), Some(_)) if found.size > 1 => {
            let what = format!("{} has started {} ranks already: leave it out", found.launcher, found.size);
            Err(Error::new(ErrorKind::Config, "--procs or --hosts", what))
        }
        (_, Some(starts)) if starts.is_empty() => Ok(Launch::Alone),
        (_, Some(starts)) => Ok(Launch::Start(starts)),
        (Some(found), None) if found.size > 1 => started(options, found),
        _ => Ok(Launch::Alone),
    }
}

impl Launch {
    /// In a word, for a record of the run.
    pub fn launcher(&self) -> &'static str {
        match self {
            Launch::Alone => "none",
            Launch::Start(starts) if starts.iter().all(|start| start.host.is_none()) => "--procs",
            Launch::Start(_) => "--hosts",
            Launch::Started { launcher, .. } => launcher,
        }
    }
}

/// What the launcher calls this machine, if it has a name of its own for it.
pub fn node_name(environment: &Environment) -> Option<&str> {
    slurm::node_name(environment)
}

/// What the launcher's variables say, if there is one.
fn launcher(environment: &Environment) -> Option<LauncherRank> {
    let (mpi, slurm) = (mpi::found(environment), slurm::found(environment));
    match (mpi, slurm) {
        (Some(mpi), Some(slurm)) if (mpi.rank, mpi.size) == (slurm.rank, slurm.size) => Some(slurm),
        (mpi, slurm) => mpi.or(slurm),
    }
}

fn started_by_us(options: &FleetOptions, this_host: &str) -> Result<Option<Vec<RankStart>>> {
    let starts = match (options.procs, &options.hosts) {
        (Some(_), Some(_)) => {
            let what = "cannot go together: give a host's processes as HOST:N";
            return Err(Error::new(ErrorKind::Config, "--procs and --hosts", what));
        }
        (Some(procs), None) => {
            if procs == 0 {
                return Err(Error::new(ErrorKind::Config, "--procs", "must be at least 1"));
            }
            (1..procs.min(RANKS_MAX + 1)).map(|rank| RankStart { rank, host: None }).collect()
        }
        (None, Some(hosts)) => hosts::plan(&hosts::parse_hosts(hosts)?, this_host),
        (None, None) => return Ok(None),
    };
    check_size("--procs or --hosts", starts.len().saturating_add(1))?;
    Ok(Some(starts))
}

fn started(options: &FleetOptions, found: LauncherRank) -> Result<Launch> {
    check_size(found.launcher, usize::try_from(found.size).unwrap_or(usize::MAX))?;
    if found.rank >= found.size {
        let what = format!("gives this process the rank {} of {}", found.rank, found.size);
        return Err(Error::new(ErrorKind::Config, found.launcher, what));
    }
    let meeting = match &options.coordinator {
        Some(address) => Meeting::At(vec![address.clone()]),
        None => {
            let one_machine = found.one_machine;
            let dir = match (&options.rendezvous, one_machine) {
                (Some(dir), _) => dir.clone(),
                (None, true) => std::env::temp_dir(),
                (None, false) => PathBuf::from("."),
            };
            // The user's own, and every run's own as far as the launcher tells runs apart.
            let user = rustix::process::getuid().as_raw();
            let name = format!(".forebay-bench-{user}-{}-{}", found.job, found.size);
            Meeting::File { path: dir.join(name), one_machine }
        }
    };
    Ok(Launch::Started { launcher: found.launcher, rank: found.rank, size: found.size, meeting })
}

fn check_size(what: &'static str, size: usize) -> Result<()> {
    if size > usize::try_from(RANKS_MAX).unwrap_or(usize::MAX) {
        return Err(Error::new(ErrorKind::Config, what, format!("asks for more than {RANKS_MAX} ranks")));
    }
    Ok(())
}

/// What may be in a file's name, of an id that a launcher made up.
fn plain(id: &str) -> String {
    id.chars().filter(|c| c.is_ascii_alphanumeric()).take(64).collect()
}

#[cfg(test)]
mod tests;
