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
mod launchers;
mod own;

use std::path::PathBuf;

use types::{Error, ErrorKind, Result};

pub use hosts::quote;
pub use launchers::node_name;
pub use own::{COORDINATOR, RANK, SIZE, TOKEN, TOKEN_ON_STDIN};

use crate::options::{Environment, FleetOptions, RANKS_MAX};

/// What this process is in a run on many.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    pub rank: u32,
    pub size: u32,
    pub meeting: Meeting,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RankStart {
    pub rank: u32,
    /// None: this machine, without ssh.
    pub host: Option<String>,
}

/// How the other ranks find rank 0.
#[derive(Clone, Debug, PartialEq)]
pub enum Meeting {
    /// It starts them itself, and tells them; no host is this one.
    Starts(Vec<RankStart>),
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

/// What this process is; None if it is alone. `this_host` is its name.
pub fn detect(options: &FleetOptions, this_host: &str) -> Result<Option<Launch>> {
    if let Some(rank) = options.environment.get(RANK) {
        return own::told(&options.environment, rank);
    }
    let found = launcher(&options.environment).filter(|found| found.size > 1);
    match (found, started_by_us(options, this_host)?) {
        (Some(found), Some(_)) => {
            let what = format!("{} has started {} ranks already: leave it out", found.launcher, found.size);
            Err(Error::new(ErrorKind::Config, "--procs or --hosts", what))
        }
        (Some(found), None) => started(options, found).map(Some),
        (None, Some(starts)) if !starts.is_empty() => {
            let size = u32::try_from(starts.len()).unwrap_or(u32::MAX).saturating_add(1);
            check_size("--procs or --hosts", size)?;
            Ok(Some(Launch { rank: 0, size, meeting: Meeting::Starts(starts) }))
        }
        (None, _) => Ok(None),
    }
}

/// What the launcher's variables say, if there is one.
fn launcher(environment: &Environment) -> Option<LauncherRank> {
    match (launchers::mpi(environment), launchers::slurm(environment)) {
        (Some(mpi), Some(slurm)) if (mpi.rank, mpi.size) == (slurm.rank, slurm.size) => Some(slurm),
        (mpi, slurm) => mpi.or(slurm),
    }
}

fn started_by_us(options: &FleetOptions, this_host: &str) -> Result<Option<Vec<RankStart>>> {
    match (options.launch.procs, &options.launch.hosts) {
        (Some(_), Some(_)) => {
            let what = "cannot go together: give a host's processes as HOST:N";
            Err(Error::new(ErrorKind::Config, "--procs and --hosts", what))
        }
        (Some(0), None) => Err(Error::new(ErrorKind::Config, "--procs", "must be at least 1")),
        (Some(procs), None) => {
            // One too many is refused when they are counted.
            let ranks = 1..procs.min(RANKS_MAX + 1);
            Ok(Some(ranks.map(|rank| RankStart { rank, host: None }).collect()))
        }
        (None, Some(hosts)) => hosts::plan(hosts, this_host).map(Some),
        (None, None) => Ok(None),
    }
}

fn started(options: &FleetOptions, found: LauncherRank) -> Result<Launch> {
    check_size(found.launcher, found.size)?;
    if found.rank >= found.size {
        let what = format!("gives this process the rank {} of {}", found.rank, found.size);
        return Err(Error::new(ErrorKind::Config, found.launcher, what));
    }
    let meeting = match &options.launch.coordinator {
        Some(address) => Meeting::At(vec![address.clone()]),
        None => {
            let one_machine = found.one_machine;
            let dir = match (&options.launch.rendezvous, one_machine) {
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
    Ok(Launch { rank: found.rank, size: found.size, meeting })
}

fn check_size(what: &'static str, size: u32) -> Result<()> {
    if size > RANKS_MAX {
        return Err(Error::new(ErrorKind::Config, what, format!("asks for more than {RANKS_MAX} ranks")));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
