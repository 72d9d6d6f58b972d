//! `mpirun` of Debian's openmpi-bin and mpich, made to run as root and with more ranks than processors.

use std::path::Path;
use std::process::Command;

use crate::lab::NotRun;

/// Open MPI's, for `ranks` ranks; the program and its arguments are to follow.
pub fn open_mpi(ranks: u16) -> Result<Command, NotRun> {
    let mut command = installed("/usr/bin/mpirun.openmpi", "openmpi-bin")?;
    command.args(["--allow-run-as-root", "--oversubscribe", "-n", &ranks.to_string()]);
    Ok(command)
}

/// MPICH's Hydra, for `ranks` ranks that it believes to be on two machines, both of them this one.
pub fn mpich_on_two_machines(ranks: u16) -> Result<Command, NotRun> {
    let mut command = installed("/usr/bin/mpirun.mpich", "mpich")?;
    let each = ranks.div_ceil(2);
    let hosts = format!("127.0.0.1:{each},127.0.0.2:{each}");
    command.args(["-launcher", "fork", "-hosts", &hosts, "-n", &ranks.to_string()]);
    Ok(command)
}

fn installed(path: &str, package: &str) -> Result<Command, NotRun> {
    if !Path::new(path).exists() {
        return Err(NotRun(format!("Debian's {package} is not installed")));
    }
    Ok(Command::new(path))
}
