//! `srun`: a task of a Slurm job step.
//!
//! The variables of the step count, not those of the job: a batch script that runs the program without `srun` has the
//! job's number of tasks in its environment, and a rank 0, but is one process.

use super::{LauncherRank, plain};
use crate::options::Environment;

pub(super) fn found(environment: &Environment) -> Option<LauncherRank> {
    let rank = environment.number("SLURM_PROCID")?;
    let size = environment.number("SLURM_STEP_NUM_TASKS")?;
    let job = environment.get("SLURM_JOB_ID")?;
    let step = environment.get("SLURM_STEP_ID").or_else(|| environment.get("SLURM_STEPID"))?;
    let nodes = environment.number("SLURM_STEP_NUM_NODES");
    let job = format!("slurm{}x{}", plain(job), plain(step));
    Some(LauncherRank { launcher: "srun", rank, size, job, one_machine: nodes == Some(1) })
}

/// What Slurm calls this machine: the name that its users know, and, where one machine plays several, the only one.
pub(super) fn node_name(environment: &Environment) -> Option<&str> {
    environment.get("SLURM_STEP_NUM_TASKS").and_then(|_| environment.get("SLURMD_NODENAME"))
}
