//! Junctions that are about to be taken away: whoever wants to change something in one waits until it has gone or stays after
//! all, and who is at it already comes to an end.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use types::{Error, ErrorKind, JunctionId, Result};

#[derive(Default)]
pub struct Leaving {
    /// Some junction is leaving or has gone. Else, which is the usual case, looking costs no lock.
    any: AtomicBool,
    state: Mutex<State>,
    /// Somebody came out, or it was decided.
    news: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    closed: HashSet<JunctionId>,
    gone: HashSet<JunctionId>,
    inside: HashMap<JunctionId, usize>,
}

/// Somebody who writes something down for a junction.
pub struct Inside<'a> {
    leaving: &'a Leaving,
    junction: JunctionId,
}

/// Nobody comes in until this goes.
pub struct Closed {
    leaving: Arc<Leaving>,
    junction: JunctionId,
}

impl State {
    fn is_open(&self, junction: JunctionId) -> Result<bool> {
        match self.gone.contains(&junction) {
            true => Err(Error::new(
                ErrorKind::Stale,
                "change what is in a junction that was taken away,",
                junction,
            )),
            false => Ok(!self.closed.contains(&junction)),
        }
    }
}

impl Leaving {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of the state.
    fn note(&self, state: MutexGuard<'_, State>) {
        self.any.store(!state.closed.is_empty() || !state.gone.is_empty(), Ordering::Relaxed);
        drop(state);
        self.news.send_replace(());
    }

    /// Returns when it is not about to go; an error if it has gone.
    pub async fn stays(&self, junction: JunctionId) -> Result<()> {
        match self.any.load(Ordering::Relaxed) {
            true => self.enter(junction).await.map(drop),
            false => Ok(()),
        }
    }

    pub fn has_gone(&self, junction: JunctionId) -> bool {
        self.any.load(Ordering::Relaxed) && self.state().gone.contains(&junction)
    }

    pub async fn enter(&self, junction: JunctionId) -> Result<Inside<'_>> {
        loop {
            let mut news = {
                let mut state = self.state();
                if state.is_open(junction)? {
                    *state.inside.entry(junction).or_default() += 1;
                    return Ok(Inside { leaving: self, junction });
                }
                self.news.subscribe()
            };
            let _ = news.changed().await; // we have the sender
        }
    }

    /// Waits for the calls that are inside now, for as long as `patience` lasts. `None`: they did not come out, or somebody else has
    /// closed it.
    pub async fn close(self: &Arc<Self>, junction: JunctionId, patience: Duration) -> Option<Closed> {
        let mut news = self.news.subscribe();
        if !self.shut(junction) {
            return None;
        }
        let closed = Closed { leaving: self.clone(), junction };
        let empty = async {
            while self.state().inside.contains_key(&junction) {
                let _ = news.changed().await;
            }
        };
        tokio::time::timeout(patience, empty).await.ok().map(|()| closed)
    }

    /// False: somebody has done so.
    fn shut(&self, junction: JunctionId) -> bool {
        let mut state = self.state();
        let is_first = state.closed.insert(junction);
        self.note(state);
        is_first
    }

    /// One that had gone is served again.
    pub fn comes(&self, junction: JunctionId) {
        let mut state = self.state();
        state.gone.remove(&junction);
        self.note(state);
    }
}

impl Closed {
    /// It is not served any more.
    pub fn take_away(self) {
        self.leaving.state().gone.insert(self.junction);
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut state = self.leaving.state();
        match state.inside.get_mut(&self.junction) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(state.inside.remove(&self.junction)),
        }
        if state.closed.contains(&self.junction) {
            self.leaving.note(state);
        }
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        let mut state = self.leaving.state();
        state.closed.remove(&self.junction);
        self.leaving.note(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: JunctionId = JunctionId(1);
    const OTHER: JunctionId = JunctionId(2);

    async fn is_in_time<T>(what: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(Duration::from_millis(20), what).await.ok()
    }

    #[tokio::test]
    async fn who_is_inside_is_waited_for_and_who_comes_waits_until_it_is_decided() {
        let leaving = Arc::new(Leaving::default());
        let inside = leaving.enter(ONE).await.expect("it stays");
        let closing = leaving.clone();
        let closing = tokio::spawn(async move { closing.close(ONE, Duration::from_secs(60)).await });
        while leaving.state().closed.is_empty() {
            tokio::task::yield_now().await;
        }
        assert!(
            is_in_time(leaving.enter(ONE)).await.is_none() && is_in_time(leaving.stays(ONE)).await.is_none()
        );
        assert!(leaving.enter(OTHER).await.is_ok() && leaving.stays(OTHER).await.is_ok());
        assert!(!closing.is_finished(), "somebody is inside");
        drop(inside);
        let closed = closing.await.expect("ends").expect("closed");
        assert!(leaving.close(ONE, Duration::ZERO).await.is_none(), "by one at a time");
        let comer = leaving.clone();
        let comer = tokio::spawn(async move { comer.enter(ONE).await.map(drop) });
        assert!(is_in_time(leaving.enter(ONE)).await.is_none());
        drop(closed);
        comer.await.expect("ends").expect("it stays after all");
        let closed = leaving.close(ONE, Duration::ZERO).await.expect("closed");
        closed.take_away();
        assert!(leaving.enter(ONE).await.is_err() && leaving.stays(ONE).await.is_err());
        leaving.comes(ONE);
        assert!(leaving.enter(ONE).await.is_ok() && !leaving.any.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn it_stays_open_where_somebody_does_not_come_out() {
        let leaving = Arc::new(Leaving::default());
        let _inside = leaving.enter(ONE).await.expect("it stays");
        assert!(leaving.close(ONE, Duration::from_millis(20)).await.is_none());
        assert!(leaving.enter(ONE).await.is_ok());
    }
}
