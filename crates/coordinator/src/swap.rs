//! A compare-and-swap over several keys as plain data, and what a look at its keys tells about one whose answer was lost.

use bytes::Bytes;
use types::{Error, ErrorKind, Result};

use crate::{KeyEntry, LeaseId, Revision};

/// Of one transaction. etcd's own limit is 128 unless its operator has set another one.
pub const MAX_SWAP_KEYS: usize = 100;
/// Of all its values together. etcd takes requests of 1.5 MiB, and keys are small.
pub const MAX_SWAP_BYTES: usize = 1024 * 1024;
const MAX_KEY: usize = 1024;

/// What a key must be for the swap to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Absent,
    /// It is there, and was last put at this revision.
    At(Revision),
}

/// What becomes of a key if the swap is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwapAction {
    Put {
        value: Bytes,
        lease: Option<LeaseId>,
    },
    Delete,
    /// The key is only a condition for the others.
    Keep,
}

/// One key of a [`Swap`]: its name relative to the cluster, what it must be, and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySwap {
    pub key: String,
    pub expected: Expected,
    pub action: SwapAction,
}

/// All of it or nothing, at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swap {
    keys: Vec<KeySwap>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwapOutcome {
    /// It was done, by this call, at this revision.
    Won(Revision),
    /// It was not done, and never will be.
    Lost(SwapLoss),
}

/// The keys of a swap that was not done, as they are instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapLoss {
    /// In the order of the swap's keys. They were read behind the refusal.
    pub current: Vec<Option<KeyEntry>>,
    /// At which they are so.
    pub revision: Revision,
}

impl Swap {
    pub fn new() -> Swap {
        Swap::default()
    }

    /// The key must be absent, and is made.
    pub fn create(self, key: impl Into<String>, value: impl Into<Bytes>, lease: Option<LeaseId>) -> Swap {
        self.with(key, Expected::Absent, SwapAction::Put { value: value.into(), lease })
    }

    /// The key must be as it was at that revision, and gets another value.
    pub fn replace(
        self,
        key: impl Into<String>,
        at: Revision,
        value: impl Into<Bytes>,
        lease: Option<LeaseId>,
    ) -> Swap {
        self.with(key, Expected::At(at), SwapAction::Put { value: value.into(), lease })
    }

    /// The key must be as it was at that revision, and is removed.
    pub fn delete(self, key: impl Into<String>, at: Revision) -> Swap {
        self.with(key, Expected::At(at), SwapAction::Delete)
    }

    /// The key stays as it is, and must be so.
    pub fn require(self, key: impl Into<String>, expected: Expected) -> Swap {
        self.with(key, expected, SwapAction::Keep)
    }

    pub fn with(mut self, key: impl Into<String>, expected: Expected, action: SwapAction) -> Swap {
        self.keys.push(KeySwap { key: key.into(), expected, action });
        self
    }

    pub fn keys(&self) -> &[KeySwap] {
        &self.keys
    }

    /// Its first key, for messages.
    pub(crate) fn name(&self) -> &str {
        self.keys.first().map_or("nothing", |key| &key.key)
    }

    /// Refuses what no server could take, or what would mean nothing.
    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::new(ErrorKind::InvalidArgument, "check a swap", what));
        if self.keys.len() > MAX_SWAP_KEYS {
            return wrong(format!("{} keys, and at most {MAX_SWAP_KEYS} are possible", self.keys.len()));
        }
        if self.keys.iter().all(|key| key.action == SwapAction::Keep) {
            return wrong("it changes nothing".to_owned());
        }
        let bytes_of = |key: &KeySwap| match &key.action {
            SwapAction::Put { value, .. } => value.len(),
            SwapAction::Delete | SwapAction::Keep => 0,
        };
        let bytes: usize = self.keys.iter().map(bytes_of).sum();
        if bytes > MAX_SWAP_BYTES {
            return wrong(format!("{bytes} bytes, and at most {MAX_SWAP_BYTES} are possible"));
        }
        let mut names: Vec<&str> = self.keys.iter().map(|key| key.key.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return wrong(format!("it has the key {} twice", twice[0]));
        }
        for key in &self.keys {
            match (key.expected, &key.action) {
                _ if key.key.is_empty() || key.key.starts_with('/') || key.key.len() > MAX_KEY => {
                    return wrong(format!("{:?} is no name of a key", key.key));
                }
                (Expected::At(Revision(0)), _) => {
                    return wrong(format!("{} is expected at revision 0, at which nothing is", key.key));
                }
                (Expected::Absent, SwapAction::Delete) => {
                    return wrong(format!("{} is to be deleted and expected to be absent", key.key));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Expected {
    pub(crate) fn is_met_by(self, current: Option<&KeyEntry>) -> bool {
        match self {
            Expected::Absent => current.is_none(),
            Expected::At(revision) => current.is_some_and(|entry| entry.revision == revision),
        }
    }
}

/// What the keys say about a swap that was sent and had no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SwapVerdict {
    /// It was done at this revision.
    Done(Revision),
    /// It was not done so far, and asking again can do it at most once: the first request, if it is still on its way, and the
    /// second one expect the same revision of a key that either of them changes.
    NotYet,
    /// It was not done and never will be: the key with this index was changed by somebody else, if the revision that it had
    /// just before is the expected one. Only the history of the key can tell.
    Overtaken {
        key: usize,
    },
    /// It was not done and never will be.
    Never,
    Unclear,
}

impl Swap {
    /// `current` has the swap's keys, all of one revision.
    pub(crate) fn judge(&self, current: &[Option<KeyEntry>]) -> SwapVerdict {
        match self.done_at(current) {
            Traces::Of(revision) => return SwapVerdict::Done(revision),
            Traces::Several => return SwapVerdict::Unclear,
            Traces::None => {}
        }
        let pairs = || self.keys.iter().zip(current).map(|(key, now)| (key, now.as_ref()));
        // A key that the swap changes still has the expected revision: it was not done.
        let untouched = pairs().any(|(key, now)| {
            key.action != SwapAction::Keep
                && matches!(key.expected, Expected::At(_))
                && key.expected.is_met_by(now)
        });
        // Revisions of a key never come back, absence may.
        let hopeless =
            pairs().any(|(key, now)| matches!(key.expected, Expected::At(_)) && !key.expected.is_met_by(now));
        let met = pairs().all(|(key, now)| key.expected.is_met_by(now));
        match (untouched, met, hopeless) {
            (true, true, _) => SwapVerdict::NotYet,
            (true, false, true) => SwapVerdict::Never,
            (true, false, false) => SwapVerdict::Unclear,
            (false, ..) => {
                let changed = pairs().position(|(key, now)| {
                    key.action != SwapAction::Keep && matches!(key.expected, Expected::At(_)) && now.is_some()
                });
                changed.map_or(SwapVerdict::Unclear, |key| SwapVerdict::Overtaken { key })
            }
        }
    }

    /// The revision at which a key became what this swap was to put there: all of it was done then, whatever became of the
    /// other keys since. A swap that only deletes leaves nothing to know it by.
    fn done_at(&self, current: &[Option<KeyEntry>]) -> Traces {
        let mut traces = Traces::None;
        for (key, now) in self.keys.iter().zip(current) {
            let (SwapAction::Put { value, lease }, Some(now)) = (&key.action, now) else { continue };
            if now.value != value || now.lease != *lease || key.expected.is_met_by(Some(now)) {
                continue;
            }
            traces = match traces {
                Traces::None => Traces::Of(now.revision),
                Traces::Of(revision) if revision == now.revision => traces,
                _ => return Traces::Several,
            };
        }
        traces
    }
}

enum Traces {
    None,
    Of(Revision),
    /// Of two revisions, so that they are not of one transaction.
    Several,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, value: &'static str, revision: u64) -> Option<KeyEntry> {
        let value = Bytes::from_static(value.as_bytes());
        Some(KeyEntry { key: key.to_owned(), value, revision: Revision(revision), lease: None })
    }

    #[test]
    fn what_means_nothing_is_refused() {
        let at = Revision(7);
        let many = (0..=MAX_SWAP_KEYS).fold(Swap::new(), |swap, n| swap.create(format!("k{n}"), "v", None));
        let refused = [
            Swap::new(),
            Swap::new().require("a", Expected::Absent),
            Swap::new().create("a", "v", None).delete("a", at),
            Swap::new().create("", "v", None),
            Swap::new().create("/a", "v", None),
            Swap::new().replace("a", Revision(0), "v", None),
            Swap::new().with("a", Expected::Absent, SwapAction::Delete),
            many,
            Swap::new().create("a", vec![0; MAX_SWAP_BYTES], None).create("b", "v", None),
            Swap::new().create("a".repeat(MAX_KEY + 1), "v", None),
        ];
        for swap in refused {
            let kind = swap.check().expect_err("it means nothing").kind();
            assert_eq!(kind, ErrorKind::InvalidArgument, "{swap:?}");
        }
        let most = (0..MAX_SWAP_KEYS).fold(Swap::new(), |swap, n| swap.create(format!("k{n}"), "v", None));
        most.check().expect("as many as may be");
    }

    #[test]
    fn a_swap_that_was_done_is_known_by_what_it_put() {
        let swap = Swap::new().replace("a", Revision(5), "mine", None).delete("b", Revision(4));
        assert_eq!(swap.judge(&[entry("a", "mine", 9), None]), SwapVerdict::Done(Revision(9)));
        let two = Swap::new().create("a", "mine", None).create("b", "mine", None);
        let done = [entry("a", "mine", 9), entry("b", "mine", 9)];
        assert_eq!(two.judge(&done), SwapVerdict::Done(Revision(9)));
        let apart = [entry("a", "mine", 9), entry("b", "mine", 8)];
        assert_eq!(two.judge(&apart), SwapVerdict::Unclear, "two revisions are two writers");
        let changed_since = [entry("a", "mine", 9), entry("b", "other", 11)];
        assert_eq!(two.judge(&changed_since), SwapVerdict::Done(Revision(9)), "it is done whole");
        let same = Swap::new().replace("a", Revision(5), "same", None);
        assert_eq!(same.judge(&[entry("a", "same", 5)]), SwapVerdict::NotYet, "it had that value before");
    }

    #[test]
    fn a_swap_that_was_not_done_is_known_by_the_revision_that_it_expected() {
        let swap =
            Swap::new().replace("a", Revision(5), "mine", None).require("b", Expected::At(Revision(4)));
        assert_eq!(swap.judge(&[entry("a", "old", 5), entry("b", "v", 4)]), SwapVerdict::NotYet);
        assert_eq!(swap.judge(&[entry("a", "old", 5), entry("b", "w", 6)]), SwapVerdict::Never);
        assert_eq!(
            swap.judge(&[entry("a", "other", 6), entry("b", "v", 4)]),
            SwapVerdict::Overtaken { key: 0 }
        );
        assert_eq!(
            swap.judge(&[None, entry("b", "v", 4)]),
            SwapVerdict::Unclear,
            "mine may have been removed"
        );
    }

    #[test]
    fn what_is_absent_again_tells_nothing() {
        let swap = Swap::new().create("a", "mine", None);
        assert_eq!(swap.judge(&[None]), SwapVerdict::Unclear, "the request may be on its way");
        assert_eq!(swap.judge(&[entry("a", "other", 9)]), SwapVerdict::Unclear);
        let delete = Swap::new().delete("a", Revision(5));
        assert_eq!(delete.judge(&[None]), SwapVerdict::Unclear, "anybody may have removed it");
    }
}
