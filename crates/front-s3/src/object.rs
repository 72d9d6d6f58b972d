//! A file as an S3 object: its ETag, its time, and the conditions of requests.

use std::hash::Hasher as _;
use std::time::{Duration, SystemTime};

use http::header::{HeaderMap, HeaderName, IF_MATCH, IF_NONE_MATCH};
use s3s::dto::{ETag, ETagCondition, Timestamp};
use siphasher::sip128::{Hasher128, SipHasher13};
use vfs::{Node, Vfs, WritePolicy};

use crate::errors::{S3Result, invalid};
use crate::metadata_store::{Headers, MetadataStore, ObjectMetadata};
use crate::sigv4::hex;

/// 9999-12-31T23:59:59Z, the last time that HTTP can write.
const SECONDS_MAX: i64 = 253_402_300_799;

#[derive(Clone, Debug)]
pub struct S3Object {
    pub node: Node,
    /// Without quotes.
    pub etag: String,
    pub headers: Headers,
}

impl S3Object {
    pub fn of(node: Node, vfs: &Vfs, store: &MetadataStore) -> S3Object {
        let by_content = vfs.write_policy(node.junction) == WritePolicy::Back;
        let ObjectMetadata { etag, headers } = store
            .get(&node, by_content)
            .unwrap_or_else(|| ObjectMetadata { etag: opaque_etag(&node), headers: Vec::new() });
        S3Object { node, etag, headers }
    }

    pub fn etag(&self) -> ETag {
        ETag::Strong(self.etag.clone())
    }

    pub fn last_modified(&self) -> Timestamp {
        last_modified(&self.node)
    }
}

/// The ETag of a file that was not uploaded through S3. It has the form of a multipart ETag, which no client takes
/// for an MD5 of the contents.
pub fn opaque_etag(node: &Node) -> String {
    let mut hasher = SipHasher13::new_with_keys(0x6574_6167, 1);
    hasher.write(&node.id.0);
    hasher.write(&node.version.0);
    format!("{}-1", hex(&hasher.finish128().as_bytes()))
}

/// In whole seconds, like the times in headers that it is compared with.
pub fn last_modified(node: &Node) -> Timestamp {
    let seconds = u64::try_from(node.attr.mtime.seconds.min(SECONDS_MAX)).unwrap_or(0);
    Timestamp::from(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

/// The preconditions of a request.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    pub if_match: Option<ETagCondition>,
    pub if_none_match: Option<ETagCondition>,
    pub if_modified_since: Option<Timestamp>,
    pub if_unmodified_since: Option<Timestamp>,
    pub if_size: Option<i64>,
    /// Exact to the second.
    pub if_modified_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionOutcome {
    Proceed,
    NotModified,
    Failed,
}

impl Conditions {
    /// The conditions of a write or delete, on the object that has the key now.
    pub fn of_headers(headers: &HeaderMap) -> S3Result<Conditions> {
        let condition = |name: HeaderName| {
            let parsed = headers.get(name).map(|value| ETagCondition::parse_http_header(value.as_bytes()));
            parsed.transpose().map_err(|_| invalid("a condition is no ETag"))
        };
        Ok(Conditions {
            if_match: condition(IF_MATCH)?,
            if_none_match: condition(IF_NONE_MATCH)?,
            ..Conditions::default()
        })
    }

    /// Whether they can hold only for an existing object.
    pub fn need_one(&self) -> bool {
        self.if_match.is_some() || self.if_size.is_some() || self.if_modified_at.is_some()
    }

    pub fn are_none(&self) -> bool {
        let Conditions {
            if_match: None,
            if_none_match: None,
            if_modified_since: None,
            if_unmodified_since: None,
            if_size: None,
            if_modified_at: None,
        } = self
        else {
            return false;
        };
        true
    }

    /// Evaluates in the order of RFC 9110, 13.2.2: ETags before times, and what would fail before what would save
    /// the bytes.
    pub fn judge(&self, object: &S3Object) -> ConditionOutcome {
        let is = |condition: &ETagCondition| match condition {
            ETagCondition::Any => true,
            ETagCondition::ETag(wanted) => wanted.value() == object.etag,
        };
        let modified = &object.last_modified();
        let has_size = self.if_size.is_none_or(|size| u64::try_from(size) == Ok(object.node.attr.size));
        if !has_size || self.if_modified_at.as_ref().is_some_and(|time| time != modified) {
            return ConditionOutcome::Failed;
        }
        match (&self.if_match, &self.if_unmodified_since) {
            (Some(condition), _) if !is(condition) => return ConditionOutcome::Failed,
            (None, Some(since)) if modified > since => return ConditionOutcome::Failed,
            _ => {}
        }
        match (&self.if_none_match, &self.if_modified_since) {
            (Some(condition), _) if is(condition) => ConditionOutcome::NotModified,
            (None, Some(since)) if modified <= since => ConditionOutcome::NotModified,
            _ => ConditionOutcome::Proceed,
        }
    }
}
