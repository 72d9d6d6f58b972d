//! Who signs, made anew when the store does not take it: what a file of credentials says may have been changed since.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use types::Result;

/// Between two looks at the files, however many calls are refused.
const AGAIN: Duration = Duration::from_secs(1);

type Make<S> = Box<dyn Fn() -> Result<S> + Send + Sync>;

/// The signer `S` that is in use.
pub struct RenewableSigner<S> {
    now: RwLock<Arc<S>>,
    make: Make<S>,
    made: Mutex<Option<Instant>>,
}

impl<S> RenewableSigner<S> {
    /// `make` looks at files and variables as they are then.
    pub fn new(first: S, make: impl Fn() -> Result<S> + Send + Sync + 'static) -> RenewableSigner<S> {
        RenewableSigner { now: RwLock::new(Arc::new(first)), make: Box::new(make), made: Mutex::default() }
    }

    pub fn get(&self) -> Arc<S> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The store refused what `used` signed. True: there is another one, which nobody has tried with this call.
    pub fn refused(&self, used: &Arc<S>) -> bool {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&self.get(), used) {
            return true;
        }
        if made.is_some_and(|made| made.elapsed() < AGAIN) {
            return false;
        }
        *made = Some(Instant::now());
        match (self.make)() {
            Ok(signer) => {
                *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(signer);
                true
            }
            Err(e) => {
                tracing::warn!("credentials are not read anew: {e}");
                false
            }
        }
    }
}

/// Whether a no to one object was a no to everything: when that was asked last, and the answer.
#[derive(Default)]
pub struct ShutOut(tokio::sync::Mutex<Option<(Instant, bool)>>);

impl ShutOut {
    /// Of a call that began then. A yes from before it proves nothing; a no stands for a while. Calls that were under way
    /// together ask once.
    pub async fn decide(&self, began: Instant, ask: impl AsyncFnOnce() -> bool) -> bool {
        let mut known = self.0.lock().await;
        if let Some((asked, shut_out)) = *known
            && (asked >= began || shut_out && asked.elapsed() < AGAIN)
        {
            return shut_out;
        }
        let asked = Instant::now();
        let shut_out = ask().await;
        *known = Some((asked, shut_out));
        shut_out
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn many_refusals_at_once_look_at_the_files_once() {
        let looks = Arc::new(AtomicU32::new(0));
        let make = {
            let looks = looks.clone();
            move || Ok(looks.fetch_add(1, Ordering::Relaxed) + 1)
        };
        let renewed = RenewableSigner::new(0, make);
        let old = renewed.get();
        assert!((0..50).all(|_| renewed.refused(&old)), "there is another one to try");
        assert_eq!((*renewed.get(), looks.load(Ordering::Relaxed)), (1, 1));
        let new = renewed.get();
        assert!(!renewed.refused(&new), "it was made a moment ago");
        assert_eq!(looks.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_yes_counts_for_calls_that_began_before_it_and_for_no_later_one() {
        let (shut_out, asked) = (ShutOut::default(), AtomicU32::new(0));
        let ask = async |no: bool| {
            asked.fetch_add(1, Ordering::Relaxed);
            no
        };
        let before = Instant::now();
        assert!(!shut_out.decide(before, async || ask(false).await).await);
        assert!(!shut_out.decide(before, async || ask(true).await).await, "they were under way together");
        assert!(shut_out.decide(Instant::now(), async || ask(true).await).await);
        assert!(shut_out.decide(Instant::now(), async || ask(false).await).await, "not asked all the time");
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }
}
