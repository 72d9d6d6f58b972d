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
//! # Cast
//! - [`Fleet`] finds a process's place in a run and returns its [`Member`]: the interface, and all that a caller sees.
//! - `coordinator.rs`, on rank 0: who is here, who is alive, which step comes next. One owner of all state, one loop of events.
//! - `agent.rs`, one on each rank and on a thread of its own: heartbeats, the clock, the member's steps.
//! - `rounds.rs` (pure): steps that all ranks take together. `clock.rs` (pure): the fleet's time and the bound of its error.
//! - `launch.rs`, `children.rs`: who starts whom. `rendezvous.rs`, `search.rs`, `addresses.rs`: how ranks find rank 0.
//! - `admission.rs`, `token.rs`: the handshake. `protocol.rs`, `frame.rs`, `wire.rs`: messages, as bytes, over a connection.
//!
//! # The way of a barrier
//! `Member::barrier` asks its agent, which enters the step at the coordinator. When all ranks have entered, that names an instant of
//! its clock; each agent turns it into one of its own, and each member sleeps until then. `Member::skew` gathers when they woke.
//!
//! # Invariants
//! Nobody is in a run who has not proved that they know its token. Every queue and every frame is bounded. A lost rank ends the run
//! on all within seconds, with one reason.
//!
//! Begin with `member.rs`, then `join.rs`, then `coordinator.rs`.

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
mod terminate;
mod token;
mod wire;

pub use addresses::interface_of;
pub use clock::{FleetInstant, Skew};
pub use join::{CalledAgent, Fleet, Seat};
pub use member::{Barrier, Member, said_by_rank_0};
pub use options::{Environment, FleetOptions, LaunchArgs};
pub use protocol::RankPlace;
pub use token::{RunToken, random_bytes};
