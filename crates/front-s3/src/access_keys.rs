//! Access keys: the identities of clients, and their rights per bucket.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use types::Caller;

/// The secret that signs requests. It is never shown: not by `Debug`, not in an error, not in a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(secret: String) -> Secret {
        Secret(secret)
    }

    /// The length in bytes.
    pub fn length(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A set of buckets by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BucketSet {
    All,
    These(Vec<String>),
}

impl BucketSet {
    /// `*` among the names means all buckets.
    pub fn of(names: Vec<String>) -> BucketSet {
        if names.iter().any(|name| name == "*") { BucketSet::All } else { BucketSet::These(names) }
    }

    pub fn contains(&self, bucket: &str) -> bool {
        match self {
            BucketSet::All => true,
            BucketSet::These(names) => names.iter().any(|name| name == bucket),
        }
    }
}

/// The right that a request needs in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    Read,
    Write,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessKey {
    pub id: String,
    pub secret: Secret,
    pub read: BucketSet,
    /// Writing does not include reading: a key may be for uploads alone.
    pub write: BucketSet,
    /// The POSIX identity of the key: mode bits apply to it, and it owns what it creates.
    pub caller: Caller,
}

impl AccessKey {
    pub fn may(&self, right: Right, bucket: &str) -> bool {
        match right {
            Right::Read => self.read.contains(bucket),
            Right::Write => self.write.contains(bucket),
        }
    }

    /// Whether the bucket is listed for this key: one without any right is not.
    pub fn sees(&self, bucket: &str) -> bool {
        self.may(Right::Read, bucket) || self.may(Right::Write, bucket)
    }
}

/// All access keys, by id. Clones share the keys: a replacement counts for all of them from the next request on.
#[derive(Clone, Debug, Default)]
pub struct AccessKeys(Arc<ArcSwap<HashMap<String, Arc<AccessKey>>>>);

impl AccessKeys {
    pub fn new(keys: Vec<AccessKey>) -> AccessKeys {
        let keys = keys.into_iter().map(|key| (key.id.clone(), Arc::new(key)));
        AccessKeys(Arc::new(ArcSwap::from_pointee(keys.collect())))
    }

    /// Takes the keys of `other`. False: they are the same.
    pub fn replace(&self, other: &AccessKeys) -> bool {
        let (new, old) = (other.0.load_full(), self.0.load_full());
        self.0.store(new.clone());
        new != old
    }

    pub fn get(&self, id: &str) -> Option<Arc<AccessKey>> {
        self.0.load().get(id).cloned()
    }

    pub fn is_empty(&self) -> bool {
        self.0.load().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_replace_others_count_from_the_next_request_on() {
        let key = |id: &str, secret: &str| AccessKey {
            id: id.to_owned(),
            secret: Secret::new(secret.to_owned()),
            read: BucketSet::All,
            write: BucketSet::All,
            caller: Caller::root(),
        };
        let keys = AccessKeys::new(vec![key("A", "one")]);
        let served = keys.clone();
        assert!(!keys.replace(&AccessKeys::new(vec![key("A", "one")])), "the same");
        assert!(keys.replace(&AccessKeys::new(vec![key("A", "two")])), "another secret");
        assert!(keys.replace(&AccessKeys::new(vec![key("B", "two")])));
        assert!(served.get("A").is_none() && served.get("B").is_some());
    }

    #[test]
    fn rights_are_per_bucket_and_a_secret_is_not_shown() {
        let key = AccessKey {
            id: "id".into(),
            secret: Secret::new("do not show".into()),
            read: BucketSet::of(vec!["*".into()]),
            write: BucketSet::of(vec!["scratch".into()]),
            caller: Caller::root(),
        };
        assert!(key.may(Right::Read, "show") && !key.may(Right::Write, "show"));
        assert!(key.may(Right::Write, "scratch") && key.sees("show"));
        assert!(!format!("{:?}", AccessKeys::new(vec![key])).contains("do not show"));
    }
}
