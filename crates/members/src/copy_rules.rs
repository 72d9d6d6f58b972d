//! How many copies are wanted of files by their paths: the rules of each junction, as all nodes see them. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use coordinator::Swap;
use serde::{Deserialize, Serialize};
use types::{Error, ErrorKind, JunctionId, Result};

use crate::records::{
    COPIES_MAX, COPY_RULES_MAX, CopyRulesRecord, RECORD_BYTES_MAX, TEXT_MAX, copy_rules_key, write_record,
};
use crate::roll::ClusterRoll;
use crate::settle::NextStep;

/// The rules of a junction. They are told apart by the revision at which they were put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyRules {
    pub revision: u64,
    /// By path below the junction's root, percent-encoded; the root itself is `/`.
    pub rules: BTreeMap<String, u8>,
}

impl CopyRules {
    /// The rule about a path below the junction's root, written as those of the rules are: the deepest one that is of the path itself
    /// or of a directory above it.
    pub fn about<'a>(&'a self, path: &'a str) -> Option<(&'a str, u8)> {
        let mut at = path;
        loop {
            let key = if at.is_empty() { "/" } else { at };
            if let Some((rule, copies)) = self.rules.get_key_value(key) {
                return Some((rule, *copies));
            }
            if key == "/" {
                return None;
            }
            at = &at[..at.rfind('/')?];
        }
    }
}

/// The rules of all junctions, of those that can be read.
pub(crate) fn rules_in(roll: &ClusterRoll) -> BTreeMap<JunctionId, Arc<CopyRules>> {
    let one = |(id, kept): (&JunctionId, &crate::roll::KeptRecord<CopyRulesRecord>)| {
        let rules = kept.good()?.rules.clone();
        Some((*id, Arc::new(CopyRules { revision: kept.revision.0, rules })))
    };
    roll.copy_rules.iter().filter_map(one).collect()
}

/// `copies`: `None` takes the rule back. The last rule takes the key with it.
pub(crate) fn decide_rule(
    roll: &ClusterRoll,
    junction: JunctionId,
    path: &str,
    copies: Option<u8>,
) -> Result<NextStep<()>> {
    let refuse = |kind, what: String| Ok(NextStep::Refuse(Error::new(kind, "set the copies of", what)));
    let kept = roll.copy_rules.get(&junction);
    let mut record = match kept.map(|kept| &kept.record) {
        None => CopyRulesRecord::default(),
        Some(Ok(record)) => record.clone(),
        Some(Err(why)) => {
            let key = copy_rules_key(junction);
            return refuse(ErrorKind::Corrupt, format!("{path}: the key {key} cannot be read: {why}"));
        }
    };
    let was = match copies {
        Some(copies) => record.rules.insert(path.to_owned(), copies),
        None => record.rules.remove(path),
    };
    if was == copies {
        return Ok(NextStep::Done(()));
    }
    if copies.is_some_and(|copies| !(1..=COPIES_MAX).contains(&copies)) {
        return refuse(ErrorKind::InvalidArgument, format!("{path}: write a number from 1 to {COPIES_MAX}"));
    }
    // A record that nobody can read would take all rules of the junction away.
    if copies.is_some() && path.len() > TEXT_MAX {
        let what = format!(
            "{path}: written as it is here a path has {TEXT_MAX} bytes at most; give the number to a directory above"
        );
        return refuse(ErrorKind::InvalidArgument, what);
    }
    let value = write_record(&record)?;
    if copies.is_some() && (record.rules.len() > COPY_RULES_MAX || value.len() > RECORD_BYTES_MAX) {
        let what = format!(
            "{path}: a junction has {COPY_RULES_MAX} rules at most, of {RECORD_BYTES_MAX} bytes together; take one back \
             with default, or give it to a directory above"
        );
        return refuse(ErrorKind::NoSpace, what);
    }
    let key = copy_rules_key(junction);
    let swap = match kept {
        None => Swap::new().create(key, value, None),
        Some(kept) if record.rules.is_empty() => Swap::new().delete(key, kept.revision),
        Some(kept) => Swap::new().replace(key, kept.revision, value, None),
    };
    Ok(NextStep::Swap(swap, ()))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use coordinator::{KeyEntry, PrefixState, Revision};

    use super::*;
    use crate::records::read_record;

    const SHOW: JunctionId = JunctionId(3);

    fn rules(of: &[(&str, u8)]) -> CopyRules {
        CopyRules {
            revision: 7,
            rules: of.iter().map(|(path, copies)| ((*path).to_owned(), *copies)).collect(),
        }
    }

    /// A roll in which the junction has this record.
    fn roll(value: Option<Bytes>) -> ClusterRoll {
        let entry = |value| KeyEntry { key: copy_rules_key(SHOW), value, revision: Revision(7), lease: None };
        ClusterRoll::of(&PrefixState {
            revision: Revision(9),
            entries: value.map(entry).into_iter().collect(),
        })
    }

    fn put(of: &[(&str, u8)]) -> ClusterRoll {
        let record = CopyRulesRecord { rules: rules(of).rules };
        roll(Some(write_record(&record).expect("JSON").into()))
    }

    #[test]
    fn the_deepest_rule_wins_and_a_name_that_only_begins_alike_is_another() {
        let of = rules(&[("/a", 2), ("/a/b/c", 4), ("/a/b%20d", 5)]);
        let about = |path| of.about(path).map(|(_, copies)| copies);
        assert_eq!([about("/a"), about("/a/b"), about("/a/b/cc")], [Some(2); 3]);
        assert_eq!([about("/a/b/c"), about("/a/b/c/d/e")], [Some(4); 2]);
        assert_eq!(about("/a/b%20d/x"), Some(5));
        assert_eq!([about("/"), about("/ab"), about("/b/a")], [None; 3]);
        let all = rules(&[("/", 3), ("/a", 1)]);
        assert_eq!(all.about("/b/a"), Some(("/", 3)));
        assert_eq!(all.about("/a/x"), Some(("/a", 1)));
        assert_eq!(all.about("/"), Some(("/", 3)));
    }

    #[test]
    fn a_rule_is_made_changed_and_taken_back_and_the_last_one_takes_the_key_with_it() {
        let step =
            |roll: &ClusterRoll, path: &str, copies| decide_rule(roll, SHOW, path, copies).expect("decided");
        let is_done = |step: NextStep<()>| matches!(step, NextStep::Done(()));
        let keys = |step: NextStep<()>| match step {
            NextStep::Swap(swap, ()) => format!("{:?}", swap.keys()),
            other => panic!("{other:?}"),
        };
        assert!(keys(step(&roll(None), "/a", Some(2))).contains("copies/3"));
        let there = put(&[("/a", 2)]);
        assert!(is_done(step(&there, "/a", Some(2))), "the answer to the first try may have been lost");
        assert!(is_done(step(&there, "/b", None)));
        assert_eq!(rules_in(&there)[&SHOW].as_ref(), &rules(&[("/a", 2)]));
        assert_ne!(keys(step(&there, "/a", Some(3))), keys(step(&there, "/a", None)));
        let taken = keys(step(&there, "/a", None));
        assert_eq!(taken, format!("{:?}", Swap::new().delete(copy_rules_key(SHOW), Revision(7)).keys()));
    }

    #[test]
    fn more_rules_than_there_may_be_and_a_record_that_cannot_be_read_are_refused_in_a_sentence() {
        let paths: Vec<String> = (0..COPY_RULES_MAX).map(|at| format!("/d{at}")).collect();
        let full: Vec<(&str, u8)> = paths.iter().map(|path| (path.as_str(), 2)).collect();
        let refused =
            |roll: &ClusterRoll, path: &str, copies| match decide_rule(roll, SHOW, path, Some(copies)) {
                Ok(NextStep::Refuse(error)) => error.to_string(),
                other => panic!("{other:?}"),
            };
        let full = put(&full);
        assert!(refused(&full, "/one-more", 2).contains("256 rules at most"));
        let long = format!("/{}", "%E6".repeat(TEXT_MAX / 3 + 1));
        assert!(refused(&put(&[]), &long, 2).contains("4096 bytes at most"));
        assert!(
            matches!(decide_rule(&full, SHOW, "/d7", Some(3)), Ok(NextStep::Swap(..))),
            "it has its place"
        );
        let long: Vec<String> = (0..16).map(|at| format!("/{at}{}", "x".repeat(4000))).collect();
        let long: Vec<(&str, u8)> = long.iter().map(|path| (path.as_str(), 2)).collect();
        let long = put(&long);
        assert!(refused(&long, &format!("/{}", "y".repeat(4000)), 2).contains("65536 bytes together"));
        assert!(refused(&roll(None), "/a", 17).contains("from 1 to 16"));
        assert!(refused(&roll(Some("{}".into())), "/a", 2).contains("copies/3 cannot be read"));
    }

    #[test]
    fn a_record_of_rules_that_mean_nothing_is_an_error() {
        for bad in [r#"{"/a":0}"#, r#"{"/a":17}"#, r#"{"a":1}"#, r#"{"/a/":1}"#, r#"{"":1}"#] {
            let value = format!("{{\"v\":1,\"rules\":{bad}}}");
            assert!(read_record::<CopyRulesRecord>(value.as_bytes()).is_err(), "{bad}");
        }
        let good = br#"{"v":1,"rules":{"/":1,"/a/b":16}}"#;
        assert_eq!(read_record::<CopyRulesRecord>(good).expect("good").rules.len(), 2);
    }
}
