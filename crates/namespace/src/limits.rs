//! What each junction's origin can never take, so that it is refused before anything is acknowledged.
//!
//! The limits are asked for when something is to be changed, believed for a while, and kept, so that a start without the
//! origin knows them. A caller waits for an answer only if an old one would refuse it, or there is none at all yet.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use origin::{Origin, OriginLimits};
use types::{FileId, JunctionId, Result};

use crate::Namespace;
use crate::store::{self, NoteChange, Store};

/// How long an answer is believed; after that it is asked for again in the background.
const GOOD_FOR: Duration = Duration::from_secs(60);
/// The pause after a question without an answer, and before a refused caller causes another question.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The longest wait for an origin that does not answer. Limits that are not known refuse nothing.
const PATIENCE: Duration = Duration::from_secs(2);

/// First byte of what is kept.
const LAYOUT: u8 = 1;

pub struct KnownLimits(Arc<LimitsShared>);

struct LimitsShared {
    origin: Arc<dyn Origin>,
    store: Arc<Store>,
    /// The id of the note in which they are kept.
    place: FileId,
    state: Mutex<State>,
    /// Held while the origin is asked.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    known: Option<OriginLimits>,
    /// The last question of this process.
    asked: Option<AskedLimits>,
}

struct AskedLimits {
    at: Instant,
    is_answered: bool,
}

impl KnownLimits {
    pub fn new(origin: Arc<dyn Origin>, store: &Arc<Store>, id: JunctionId) -> Result<KnownLimits> {
        let place = FileId::derive(id, b"\0junction limits");
        let known = store.note(place)?.and_then(|bytes| decode(&bytes));
        let state = Mutex::new(State { known, asked: None });
        let (store, asking) = (store.clone(), tokio::sync::Mutex::default());
        Ok(KnownLimits(Arc::new(LimitsShared { origin, store, place, state, asking })))
    }

    pub async fn now(&self) -> OriginLimits {
        let (known, age) = {
            let state = self.0.state();
            (state.known, state.asked.as_ref().map(AskedLimits::age))
        };
        match (known, age) {
            (Some(known), Some(Age::Good)) => known,
            (known, Some(Age::Good | Age::Tried)) => known.unwrap_or_default(),
            (Some(known), _) => {
                self.ask_behind();
                known
            }
            (None, _) => self.ask_in_time().await,
        }
    }

    /// The limits for a caller that would be refused: asked for anew, if that did not happen just now.
    pub async fn anew(&self) -> OriginLimits {
        let young = |asked: &AskedLimits| asked.at.elapsed() < AGAIN_AFTER;
        let known = {
            let state = self.0.state();
            state.known.filter(|_| state.asked.as_ref().is_some_and(young))
        };
        match known {
            Some(known) => known,
            None => self.ask_in_time().await,
        }
    }

    /// The origin was away: it may be another machine that answers.
    pub fn expire(&self) {
        self.0.state().asked = None;
    }

    async fn ask_in_time(&self) -> OriginLimits {
        let asking = self.0.clone();
        let answer = tokio::spawn(async move {
            let _alone = asking.asking.lock().await;
            asking.ask().await;
        });
        let _ = tokio::time::timeout(PATIENCE, answer).await; // it goes on without us
        let mut state = self.0.state();
        state.asked.get_or_insert_with(|| AskedLimits { at: Instant::now(), is_answered: false });
        state.known.unwrap_or_default()
    }

    fn ask_behind(&self) {
        let asking = self.0.clone();
        tokio::spawn(async move {
            let Ok(_alone) = asking.asking.try_lock() else { return };
            asking.ask().await;
        });
    }
}

impl LimitsShared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self) {
        let at = Instant::now();
        let answer = self.origin.limits().await;
        let news = {
            let mut state = self.state();
            state.asked = Some(AskedLimits { at, is_answered: answer.is_ok() });
            answer.ok().filter(|limits| state.known.replace(*limits) != Some(*limits))
        };
        if let Some(limits) = news {
            let note = NoteChange(Box::new(move |_| Some(encode(&limits))));
            if let Err(e) = self.store.commit(vec![store::StoreChange::AlterNote(self.place, note)]).await {
                tracing::debug!("what the origin can take is not kept: {e}");
            }
        }
    }
}

enum Age {
    Good,
    Old,
    /// The last question, a moment ago, had no answer.
    Tried,
}

impl AskedLimits {
    fn age(&self) -> Age {
        match (self.is_answered, self.at.elapsed()) {
            (true, age) if age < GOOD_FOR => Age::Good,
            (false, age) if age < AGAIN_AFTER => Age::Tried,
            _ => Age::Old,
        }
    }
}

fn encode(limits: &OriginLimits) -> Bytes {
    let OriginLimits { file_size_max, name_max, links_max, no_special_files, read_only } = *limits;
    let flags = u8::from(no_special_files) | u8::from(read_only) << 1;
    let words = [
        file_size_max.unwrap_or(u64::MAX),
        name_max.map_or(u64::MAX, u64::from),
        links_max.map_or(u64::MAX, u64::from),
    ];
    let words: Vec<u8> = words.into_iter().flat_map(u64::to_be_bytes).collect();
    [&[LAYOUT, flags], &words[..]].concat().into()
}

/// `None`: the note has another layout, or is damaged.
fn decode(bytes: &[u8]) -> Option<OriginLimits> {
    let ([LAYOUT, flags], words) = bytes.split_first_chunk::<2>()? else { return None };
    let words: &[u8; 24] = words.try_into().ok()?;
    let word = |at: usize| {
        let bytes = words.get(at * 8..at * 8 + 8)?.try_into().ok()?;
        Some(u64::from_be_bytes(bytes)).filter(|word| *word != u64::MAX)
    };
    let small = |at: usize| word(at).and_then(|word| u32::try_from(word).ok());
    Some(OriginLimits {
        file_size_max: word(0),
        name_max: small(1),
        links_max: small(2),
        no_special_files: flags & 1 != 0,
        read_only: flags & 2 != 0,
    })
}

impl Namespace {
    /// What the junction's origin can never take, as far as it is known; at once, but for the first time.
    pub async fn limits_of(&self, junction: JunctionId) -> Result<OriginLimits> {
        Ok(self.junction(junction)?.limits.now().await)
    }

    /// The same, for a caller that is about to be refused by limits that may have changed since.
    pub async fn limits_of_now(&self, junction: JunctionId) -> Result<OriginLimits> {
        Ok(self.junction(junction)?.limits.anew().await)
    }

    /// Refuses a path below the junction's root that its origin can never have.
    pub fn demand_path(&self, junction: JunctionId, path: &[u8], is_dir: bool) -> Result<()> {
        self.junction(junction)?.rules.origin.demand_path(path, is_dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_come_back_as_they_were_kept_and_what_cannot_be_read_is_not_known() {
        let some = OriginLimits {
            file_size_max: Some(17_592_186_040_320),
            name_max: Some(255),
            links_max: None,
            no_special_files: true,
            read_only: true,
        };
        for limits in [some, OriginLimits::default()] {
            let kept = encode(&limits);
            assert_eq!(decode(&kept), Some(limits));
            for end in 0..kept.len() {
                assert_eq!(decode(&kept[..end]), None, "cut to {end}");
            }
        }
        assert_eq!(decode(&[2; 26]), None);
    }
}
