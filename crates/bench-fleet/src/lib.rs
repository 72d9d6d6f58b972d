//! One run on many processes and machines: launching, ranks, barriers, results.
//!
//! The batch system must own its processes, so this starts none where it need not: under `mpirun` and `srun` it finds
//! its rank in the environment, without linking MPI; by itself it starts local processes or goes over ssh. The ranks
//! then meet over TCP: rank 0's process is the coordinator of a star. Nothing here knows what is measured: it moves
//! opaque bytes, and promises three things. All start a phase at one scheduled instant, and the skew of that is
//! measured. Results arrive whole or not at all. A rank that is lost ends the run on all, with a reason.
//!
//! ```ignore
//! let member = Fleet::join(FleetOptions::of_this_process()?).await?;
//! let plan = member.broadcast(member.is_root().then(|| plan_bytes).unwrap_or_default()).await?;
//! let barrier = member.barrier("read").await?;          // returns at one instant on all
//! let result = member.guard(read_files(&plan)).await?;   // ends early if another rank is lost
//! let skew = member.skew(&barrier).await?;
//! if let Some(results) = member.gather(result.encode()).await? { print(results) }   // Some on rank 0 alone
//! member.finish().await?;
//! ```
//!
//! Agents that wait for runs instead of being launched, as those of `bench link` do, are called by rank 0: `Fleet::lead` takes
//! its connections to them, `Fleet::follow` the agent's end of one, and the handshake and all that follows are the same.
//!
//! Start reading at [`member`] for the interface, [`launch`] for how a process finds its place, [`coordinator`] for
//! what holds a run together.

mod addresses;
mod admission;
mod agent;
mod children;
mod clock;
mod coordinator;
pub mod frame;
mod join;
mod launch;
mod member;
mod options;
mod protocol;
mod rendezvous;
mod rounds;
mod search;
mod site;
mod terminate;
mod token;
mod wire;

pub use clock::FleetInstant;
pub use join::{CalledAgent, Fleet, Seat};
pub use member::{Barrier, Member, said_by_rank_0};
pub use options::{Environment, FleetOptions};
pub use protocol::{RankPlace, Skew};
pub use token::{RunToken, random_bytes};
