//! What a consumer of a watch believes, and whether it may.

use std::collections::BTreeMap;

use coordinator::{KeyChange, KeyEntry, PrefixState, Revision, WatchEvent};

/// The state of a prefix as events lead to it.
#[derive(Debug, Default)]
pub struct View {
    pub keys: BTreeMap<String, KeyEntry>,
    pub at: Revision,
    pub resets: usize,
    pub went_back: usize,
}

impl View {
    pub fn take(&mut self, event: WatchEvent) {
        match event {
            WatchEvent::Reset { state, went_back } => {
                assert!(
                    went_back || state.revision >= self.at,
                    "a reset to {} behind {}",
                    state.revision,
                    self.at
                );
                self.at = state.revision;
                self.keys = state.entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
                self.resets += 1;
                self.went_back += usize::from(went_back);
            }
            WatchEvent::Changed { revision, changes } => {
                assert!(self.resets > 0, "changes of what nobody was told");
                assert!(revision > self.at, "{revision} behind {}", self.at);
                assert!(!changes.is_empty());
                self.at = revision;
                for change in changes {
                    match change {
                        KeyChange::Put(entry) => {
                            assert_eq!(entry.revision, revision);
                            self.keys.insert(entry.key.clone(), entry);
                        }
                        KeyChange::Deleted { key } => {
                            assert!(self.keys.remove(&key).is_some(), "{key} was not there");
                        }
                    }
                }
            }
        }
    }

    pub fn is(&self, state: &PrefixState) -> bool {
        self.keys.values().eq(state.entries.iter())
    }
}
