//! `mpirun` and `srun`, by what they put into the environment; nothing is linked.
//!
//! Open MPI, MPICH's and Intel's Hydra, Cray's, MVAPICH and Flux are `mpirun`. Only some say how many ranks share the machine,
//! and what the job is. Without that a rendezvous file in the working directory, whose name has no job in it, must do: two
//! such runs at once need directories of their own.
//!
//! Of Slurm the variables of the step count, not those of the job: a batch script that runs the program without `srun` has the
//! job's number of tasks in its environment, and a rank 0, but is one process.

use super::LauncherRank;
use crate::options::Environment;

/// Rank, size, ranks on this machine, job.
const MPI: &[(&str, &str, &str, &str)] = &[
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE", "PMI_ID"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "PMI_JOBID"),
    ("PMI_RANK", "PMI_SIZE", "PMI_LOCAL_SIZE", "PMI_JOBID"),
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_LOCAL_SIZE", "FLUX_JOB_ID"),
];

/// Ids of jobs of batch systems, where the launcher has none of its own.
const BATCH_JOBS: &[&str] = &["OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"];

pub(super) fn mpi(environment: &Environment) -> Option<LauncherRank> {
    MPI.iter().find_map(|(rank, size, here, job)| {
        let (rank, size) = (environment.number(rank)?, environment.number(size)?);
        let job = environment.get(job).or_else(|| BATCH_JOBS.iter().find_map(|name| environment.get(name)));
        let job = format!("mpi{}", plain(job.unwrap_or("")));
        let one_machine = environment.number(here) == Some(size);
        Some(LauncherRank { launcher: "mpirun", rank, size, job, one_machine })
    })
}

pub(super) fn slurm(environment: &Environment) -> Option<LauncherRank> {
    let (rank, size) = (environment.number("SLURM_PROCID")?, environment.number("SLURM_STEP_NUM_TASKS")?);
    let step = environment.get("SLURM_STEP_ID").or_else(|| environment.get("SLURM_STEPID"))?;
    let job = format!("slurm{}x{}", plain(environment.get("SLURM_JOB_ID")?), plain(step));
    let one_machine = environment.number("SLURM_STEP_NUM_NODES") == Some(1);
    Some(LauncherRank { launcher: "srun", rank, size, job, one_machine })
}

/// What Slurm calls this machine: the name that its users know, and, where one machine plays several, the only one.
pub fn node_name(environment: &Environment) -> Option<&str> {
    environment.get("SLURM_STEP_NUM_TASKS").and_then(|_| environment.get("SLURMD_NODENAME"))
}

/// What may be in a file's name, of an id that a launcher made up.
fn plain(id: &str) -> String {
    id.chars().filter(|c| c.is_ascii_alphanumeric()).take(64).collect()
}
