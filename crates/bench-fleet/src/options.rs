//! How a run is spread: what was typed, and what the launcher has put in the environment.
//!
//! Both come in as values, so that finding out how a process was started is a function of them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use types::{Error, Result};

/// The most ranks of a run: each is a connection of rank 0's process, and a place in one frame.
pub const RANKS_MAX: u32 = 4096;

/// The variables by which a launcher says what a process is. Names without a value are not in it.
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<String, String>);

/// Run on several processes or machines. Under mpirun and srun nothing of this is needed.
#[derive(Args, Clone, Debug, Default)]
pub struct LaunchArgs {
    /// So many processes on this machine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub procs: Option<u32>,
    /// These machines too, over ssh; processes on each after a colon
    #[arg(long, value_name = "A,B[:N]")]
    pub hosts: Option<String>,
    /// Where the first process listens for the others
    #[arg(long, value_name = "HOST:PORT")]
    pub coordinator: Option<String>,
    // Not under test. None: a temporary directory if the launcher says that all ranks are on one machine, the working
    // directory if not.
    /// A directory that all machines see, for finding each other
    #[arg(long, value_name = "DIR")]
    pub rendezvous: Option<PathBuf>,
    /// The command that reaches a host of --hosts, with its options [default: ssh]
    #[arg(long, value_name = "COMMAND")]
    pub ssh: Option<String>,
}

#[derive(Clone, Debug)]
pub struct FleetOptions {
    pub launch: LaunchArgs,
    /// What the processes that we start run; this program by default.
    pub program: PathBuf,
    /// Their arguments; those of this process by default. They parse the same options and find their rank first.
    pub arguments: Vec<OsString>,
    pub environment: Environment,
    /// Which program this is; ranks of another build are refused, as they might measure something else.
    pub build: String,
    /// How long ranks may take to come. A minute: a batch system starts a step on thousands of nodes in less.
    pub join_deadline: Duration,
    /// A rank that is silent for so long is lost. A rank whose process ended is lost at once; this is for hosts and
    /// networks, and longer than any turn that a busy machine lets a process wait.
    pub silence_max: Duration,
    /// Treat SIGTERM as the end of the run, with a line that says so: launchers send it when a rank was lost. The
    /// process has five seconds to end by itself, then it is ended.
    pub catch_terminate: bool,
}

impl Default for FleetOptions {
    fn default() -> FleetOptions {
        FleetOptions {
            launch: LaunchArgs::default(),
            program: PathBuf::new(),
            arguments: Vec::new(),
            environment: Environment::default(),
            build: env!("CARGO_PKG_VERSION").into(),
            join_deadline: Duration::from_secs(60),
            silence_max: Duration::from_secs(10),
            catch_terminate: true,
        }
    }
}

impl FleetOptions {
    /// The defaults, with this process's environment, program and arguments.
    pub fn of_this_process() -> Result<FleetOptions> {
        let program = this_program().map_err(|e| Error::io("find this program's file", "", e))?;
        let arguments = std::env::args_os().skip(1).collect();
        Ok(FleetOptions {
            program,
            arguments,
            environment: Environment::of_this_process(),
            ..FleetOptions::default()
        })
    }
}

/// The file that this process runs, or whose name it had before it was replaced by another build.
pub(crate) fn this_program() -> std::io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    let without_mark = path.to_str().and_then(|path| path.strip_suffix(" (deleted)"));
    Ok(without_mark.map_or(path.clone(), PathBuf::from))
}

impl Environment {
    pub fn of_this_process() -> Environment {
        let text =
            |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        Environment(std::env::vars_os().filter_map(text).collect())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub fn number(&self, name: &str) -> Option<u32> {
        self.get(name)?.trim().parse().ok()
    }
}

impl From<&[(&str, &str)]> for Environment {
    fn from(variables: &[(&str, &str)]) -> Environment {
        Environment(variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect())
    }
}
