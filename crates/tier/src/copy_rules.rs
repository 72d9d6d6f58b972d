//! Finds the rule on copies that is about a file, by the file's names in the namespace.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};

use axum::body::Bytes;
use members::CopyRules;
use namespace::Namespace;
use node::{ClusterView, CopyRuleFinder};
use peer::message::ToldCopies;
use types::{FileId, JunctionId};

use crate::admin::encode_path;

/// The rules of all junctions, and the names that they go by.
#[derive(Default)]
pub struct CopyRuleBook {
    /// Weak: the namespace holds origins, which hold the view of the cluster, which holds this.
    namespace: OnceLock<Weak<Namespace>>,
    rules: RwLock<BTreeMap<JunctionId, Arc<CopyRules>>>,
}

impl CopyRuleBook {
    /// Files are known by these names from now on.
    pub fn set_names(&self, namespace: &Arc<Namespace>) {
        let _ = self.namespace.set(Arc::downgrade(namespace)); // once: a tier has one
    }

    /// Goes by these rules, and has the view do so.
    pub fn take(&self, rules: &BTreeMap<JunctionId, Arc<CopyRules>>, view: &ClusterView) {
        self.rules.write().unwrap_or_else(PoisonError::into_inner).clone_from(rules);
        view.set_copy_rules(rules.iter().map(|(id, rules)| (*id, rules.revision)).collect());
    }

    fn rules_of(&self, junction: JunctionId) -> Option<Arc<CopyRules>> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).get(&junction).cloned()
    }
}

impl CopyRuleFinder for CopyRuleBook {
    fn find(&self, junction: JunctionId, file: FileId) -> Option<ToldCopies> {
        let names = self.namespace.get()?.upgrade()?.path_in_junction(junction, file)?;
        self.about(junction, &names)
    }

    fn about(&self, junction: JunctionId, names: &[Bytes]) -> Option<ToldCopies> {
        let rules = self.rules_of(junction)?;
        let copies = rules.about(&path_of(names)).map(|(_, copies)| copies);
        Some(ToldCopies { revision: rules.revision, copies })
    }
}

/// As paths are written in rules.
pub fn path_of(names: &[Bytes]) -> String {
    match names {
        [] => "/".to_owned(),
        names => names.iter().map(|name| format!("/{}", encode_path(name))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_written_as_in_rules_whatever_bytes_its_names_have() {
        let names = |names: &[&'static [u8]]| {
            path_of(&names.iter().map(|name| Bytes::from_static(name)).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]), "/");
        assert_eq!(names(&[b"a b", b"c\xff", b"d.exr"]), "/a%20b/c%FF/d.exr");
    }
}
