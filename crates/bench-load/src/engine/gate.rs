//! Where workers of all processes meet before a phase.

use async_trait::async_trait;
use tokio::time::Instant;
use types::Result;

/// Implemented here for one process, and over a fleet of them by whoever runs one.
#[async_trait]
pub trait PhaseGate: Send + Sync {
    /// Returns when all processes may begin the phase, with the moment, on this process's clock, that all of
    /// them count from. It may lie a little in the past. Fails if the others will not come.
    async fn wait(&self, phase: &str) -> Result<Instant>;
}

/// One process meets itself.
pub struct LocalGate;

#[async_trait]
impl PhaseGate for LocalGate {
    async fn wait(&self, _phase: &str) -> Result<Instant> {
        Ok(Instant::now())
    }
}
