//! What an operator must know, kept until the restart: the newest of them.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use writeback::AlarmKind;

use super::Raised;

const KEPT_MAX: usize = 256;

#[derive(Default)]
pub struct Alarms {
    kept: Mutex<(VecDeque<Raised>, u64)>,
}

impl Alarms {
    pub fn raise(&self, kind: AlarmKind, text: String) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (raised, conflicts) = &mut *kept;
        *conflicts += u64::from(matches!(
            kind,
            AlarmKind::KeptBoth | AlarmKind::TookOurs | AlarmKind::Dropped | AlarmKind::Overtaken
        ));
        raised.push_back(Raised { at: SystemTime::now(), raised: Instant::now(), kind, text });
        if raised.len() > KEPT_MAX {
            raised.pop_front();
        }
    }

    /// The newest, oldest first; and how many there were that are conflicts.
    pub fn all(&self) -> (Vec<Raised>, u64) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        (kept.0.iter().cloned().collect(), kept.1)
    }
}
