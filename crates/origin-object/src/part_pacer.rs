//! Limits and paces the parts in flight: parts that share a line and begin together end together, and then the line
//! is empty for a round trip, time after time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

/// The most parts in flight, of all objects: 16 of 8 MiB at 221 ms are 4.9 Gbit/s.
pub const PARTS_TOGETHER: usize = 16;
/// The parts that begin at once after a pause: what 1 Gbit/s holds at 221 ms.
const FIRST: usize = 4;
/// One more part may begin after each of these: the last after 0.6 s.
const STEP: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub struct PartPacer {
    free: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    under_way: usize,
    /// The current limit, and since when it holds.
    most: usize,
    since: Instant,
}

/// The permit to send one part, until it is dropped.
#[derive(Debug)]
pub struct PartPermit<'a>(&'a PartPacer);

impl PartPacer {
    pub fn new() -> PartPacer {
        let state = State { under_way: 0, most: FIRST, since: Instant::now() };
        PartPacer { free: Semaphore::new(FIRST), state: Mutex::new(state) }
    }

    /// Waits for a permit, first come, first served.
    pub async fn acquire(&self) -> PartPermit<'_> {
        let mut free = std::pin::pin!(self.free.acquire());
        loop {
            tokio::select! {
                biased;
                permit = free.as_mut() => {
                    permit.expect("never closed").forget();
                    let mut state = self.state();
                    if state.under_way == 0 {
                        state.since = Instant::now();
                    }
                    state.under_way += 1;
                    return PartPermit(self);
                }
                () = tokio::time::sleep(STEP) => self.grow(),
            }
        }
    }

    fn grow(&self) {
        let mut state = self.state();
        if state.most < PARTS_TOGETHER && state.since.elapsed() >= STEP {
            (state.most, state.since) = (state.most + 1, Instant::now());
            self.free.add_permits(1);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PartPermit<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.under_way -= 1;
        self.0.free.add_permits(1);
        if state.under_way == 0 {
            state.most -= self.0.free.forget_permits(state.most - FIRST);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// When each of so many, all there at once, began; each is on its way for so long.
    async fn begins(pacer: &Arc<PartPacer>, parts: usize, each: Duration) -> Vec<u128> {
        let began = Instant::now();
        let parts: Vec<_> = (0..parts)
            .map(|_| {
                let pacer = pacer.clone();
                tokio::spawn(async move {
                    let _turn = pacer.acquire().await;
                    let at = began.elapsed().as_millis();
                    tokio::time::sleep(each).await;
                    at
                })
            })
            .collect();
        let mut all = Vec::new();
        for part in parts {
            all.push(part.await.expect("began"));
        }
        all
    }

    #[tokio::test(start_paused = true)]
    async fn parts_begin_one_after_the_other() {
        let pacer = Arc::new(PartPacer::new());
        for _ in 0..3 {
            let at = begins(&pacer, 20, Duration::from_secs(5)).await;
            let later = (0..12).map(|n| 51 + n * 51);
            let expected: Vec<_> = [0; 4].into_iter().chain(later).chain([5_000; 4]).collect();
            assert!(at.iter().zip(&expected).all(|(at, expected)| at.abs_diff(*expected) <= 12), "{at:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_quick_does_not_wait_for_more_to_be_allowed() {
        let pacer = Arc::new(PartPacer::new());
        let at = begins(&pacer, 40, Duration::from_millis(10)).await;
        assert!(at.into_iter().max() <= Some(100));
        assert!(pacer.state().under_way == 0 && pacer.state().most == FIRST);
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_away_while_it_waits_takes_no_turn_with_it() {
        let pacer = Arc::new(PartPacer::new());
        let mut asked = tokio::task::JoinSet::new();
        for n in 0..300 {
            let pacer = pacer.clone();
            asked.spawn(async move {
                let Ok(_turn) = tokio::time::timeout(Duration::from_millis(n), pacer.acquire()).await else {
                    return;
                };
                tokio::time::sleep(Duration::from_millis(100)).await;
            });
        }
        asked.join_all().await;
        let at = begins(&pacer, 5, Duration::from_secs(1)).await;
        assert!(at[..4] == [0; 4] && (40..100).contains(&at[4]), "{at:?}");
    }
}
