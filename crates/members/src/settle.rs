//! Changes of the cluster's keys: decided by a pure function of what is there, done by a swap, and decided anew when somebody
//! else was faster.

use std::time::Duration;

use coordinator::{Coordinator, Swap, SwapOutcome};
use tokio::time::{Instant, sleep, timeout_at};
use types::{Error, ErrorKind, Result};

use crate::roll::ClusterRoll;

/// What is to be done about the keys as they are.
#[derive(Debug)]
pub enum NextStep<T> {
    /// They are as they should be.
    Done(T),
    /// They are if this swap is won.
    Swap(Swap, T),
    /// Not now, for this reason; it may be possible later.
    Wait(Error),
    /// Not as long as the keys are as they are.
    Refuse(Error),
}

/// A swap that was lost, or whose outcome nobody knows, is decided again after this long at least.
const PAUSE: Duration = Duration::from_millis(20);

/// Reads all keys, decides, swaps; again and again until it is done or refused, or `patience` is over. The decision must be one that
/// finds out by itself that it was carried out, because the answer to a swap may be lost.
///
/// Errors: those of the decision, and of reading the keys; `Unavailable` when others were faster until the time was over;
/// `OutcomeUnknown` when nobody knows at its end whether the last swap was done.
pub async fn settle<T>(
    coordinator: &dyn Coordinator,
    patience: Duration,
    mut decide: impl FnMut(&ClusterRoll) -> Result<NextStep<T>>,
) -> Result<T> {
    let until = Instant::now() + patience;
    let mut pause = PAUSE;
    let late = || Error::new(ErrorKind::Unavailable, "change the cluster's keys in", coordinator.url());
    loop {
        let state = timeout_at(until, coordinator.read("")).await.map_err(|_| late())??;
        let failed = match decide(&ClusterRoll::of(&state))? {
            NextStep::Done(done) => return Ok(done),
            NextStep::Refuse(error) => return Err(error),
            NextStep::Wait(error) => error,
            NextStep::Swap(swap, done) => match coordinator.swap(&swap).await {
                Ok(SwapOutcome::Won(_)) => return Ok(done),
                Ok(SwapOutcome::Lost(_)) => late(),
                Err(error) if error.kind() == ErrorKind::OutcomeUnknown => error,
                Err(error) => return Err(error),
            },
        };
        if Instant::now() + pause > until {
            return Err(failed);
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}
