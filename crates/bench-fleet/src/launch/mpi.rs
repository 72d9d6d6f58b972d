//! `mpirun`: Open MPI, MPICH's and Intel's Hydra, Cray's, MVAPICH and Flux, by their variables; nothing is linked.
//!
//! Only some say how many ranks share the machine, and what the job is. Without that a rendezvous file in the working
//! directory, whose name has no job in it, must do: two such runs at once need directories of their own.

use super::{LauncherRank, plain};
use crate::options::Environment;

/// Rank, size, ranks on this machine, job.
const LAUNCHERS: &[(&str, &str, &str, &str)] = &[
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE", "PMI_ID"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "PMI_JOBID"),
    ("PMI_RANK", "PMI_SIZE", "PMI_LOCAL_SIZE", "PMI_JOBID"),
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_LOCAL_SIZE", "FLUX_JOB_ID"),
];

/// Ids of jobs of batch systems, where the launcher has none of its own.
const BATCH_JOBS: &[&str] = &["OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"];

pub(super) fn found(environment: &Environment) -> Option<LauncherRank> {
    LAUNCHERS.iter().find_map(|(rank, size, here, job)| {
        let (rank, size) = (environment.number(rank)?, environment.number(size)?);
        let job = environment.get(job).or_else(|| BATCH_JOBS.iter().find_map(|name| environment.get(name)));
        let one_machine = environment.number(here) == Some(size);
        let launcher = "mpirun";
        Some(LauncherRank {
            launcher,
            rank,
            size,
            job: format!("mpi{}", plain(job.unwrap_or(""))),
            one_machine,
        })
    })
}
