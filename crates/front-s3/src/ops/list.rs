//! ListObjects, of both versions.

use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode};

use super::{RequestContext, to_i64};
use crate::access_keys::Right;
use crate::errors::{S3Result, invalid, s3_error};
use crate::key_listing::{KeyListing, KeyPage, KeyQuery, ListedKey, after_prefix, common_prefix};
use crate::object::last_modified;
use crate::object_key::KEY_MAX;
use crate::sigv4::encode;

/// The most keys of one page: S3's own limit.
pub const KEYS_MAX: i32 = 1000;

/// A listing request, in the terms that both versions of the operation share.
pub struct ListQuery {
    pub bucket: String,
    pub prefix: Option<String>,
    pub delimiter: Option<String>,
    pub encoding: Option<EncodingType>,
    pub max_keys: Option<i32>,
    /// The first key that may be listed.
    pub from: Vec<u8>,
    pub with_owner: bool,
}

/// One page of a listing, in the terms that both versions share.
pub struct ListResult {
    pub contents: ObjectList,
    pub prefixes: CommonPrefixList,
    /// Where the next page begins, and the last key of this one.
    pub next: Option<(Vec<u8>, String)>,
    pub max_keys: i32,
}

impl RequestContext {
    pub async fn list_objects(&self, input: ListObjectsInput) -> S3Result<ListObjectsOutput> {
        let delimiter = input.delimiter.filter(|delimiter| !delimiter.is_empty());
        let marker = input.marker.clone().unwrap_or_default();
        let from = from_marker(&marker, input.prefix.as_deref(), delimiter.as_deref());
        let query = ListQuery {
            bucket: input.bucket,
            prefix: input.prefix,
            delimiter,
            encoding: input.encoding_type,
            max_keys: input.max_keys,
            from,
            with_owner: true,
        };
        let listed = self.list(&query).await?;
        let encoded = |text: String| encoded(&query, text);
        Ok(ListObjectsOutput {
            name: Some(query.bucket.clone()),
            prefix: Some(encoded(query.prefix.clone().unwrap_or_default())),
            delimiter: query.delimiter.clone().map(encoded),
            marker: Some(encoded(marker)),
            next_marker: listed.next.as_ref().map(|(_, last)| encoded(last.clone())),
            is_truncated: Some(listed.next.is_some()),
            max_keys: Some(listed.max_keys),
            contents: Some(listed.contents),
            common_prefixes: Some(listed.prefixes),
            encoding_type: query.encoding.clone(),
            ..ListObjectsOutput::default()
        })
    }

    pub async fn list_objects_v2(&self, input: ListObjectsV2Input) -> S3Result<ListObjectsV2Output> {
        let from = match &input.continuation_token {
            Some(token) => {
                from_token(token).ok_or_else(|| invalid("the continuation token is none of ours"))?
            }
            None => key_after(input.start_after.as_deref().unwrap_or_default()),
        };
        let query = ListQuery {
            bucket: input.bucket,
            prefix: input.prefix,
            delimiter: input.delimiter.filter(|delimiter| !delimiter.is_empty()),
            encoding: input.encoding_type,
            max_keys: input.max_keys,
            from,
            with_owner: input.fetch_owner.unwrap_or(false),
        };
        let listed = self.list(&query).await?;
        let encoded = |text: String| encoded(&query, text);
        Ok(ListObjectsV2Output {
            name: Some(query.bucket.clone()),
            prefix: Some(encoded(query.prefix.clone().unwrap_or_default())),
            delimiter: query.delimiter.clone().map(encoded),
            start_after: input.start_after.map(encoded),
            key_count: i32::try_from(listed.contents.len() + listed.prefixes.len()).ok(),
            continuation_token: input.continuation_token,
            next_continuation_token: listed.next.as_ref().map(|(next, _)| token_of(next)),
            is_truncated: Some(listed.next.is_some()),
            max_keys: Some(listed.max_keys),
            contents: Some(listed.contents),
            common_prefixes: Some(listed.prefixes),
            encoding_type: query.encoding.clone(),
            ..ListObjectsV2Output::default()
        })
    }

    pub async fn list(&self, query: &ListQuery) -> S3Result<ListResult> {
        let bucket = self.bucket(&query.bucket, Right::Read).await?;
        let max_keys = query.max_keys.unwrap_or(KEYS_MAX);
        if max_keys < 0 {
            return Err(invalid("max-keys is negative"));
        }
        let is_encoded = match query.encoding.as_ref().map(EncodingType::as_str) {
            None => false,
            Some(EncodingType::URL) => true,
            Some(_) => return Err(invalid("encoding-type is \"url\", or left out")),
        };
        let keys = KeyQuery {
            prefix: query.prefix.clone().unwrap_or_default().into_bytes(),
            delimiter: query.delimiter.clone().unwrap_or_default().into_bytes(),
            from: query.from.clone(),
            max: usize::try_from(max_keys.min(KEYS_MAX)).unwrap_or(0),
            as_xml: !is_encoded,
        };
        if keys.prefix.len() > KEY_MAX || keys.delimiter.len() > KEY_MAX || keys.from.len() > KEY_MAX + 1 {
            return Err(S3Error::new(S3ErrorCode::KeyTooLongError));
        }
        let walk = KeyListing { vfs: &self.shared.vfs, caller: self.caller(), query: keys };
        let page = walk.page(&bucket.root).await.map_err(s3_error)?;
        if page.skipped > 0 {
            self.shared.metrics.skipped_names.inc_by(page.skipped);
            tracing::debug!(bucket = bucket.name, "{} names that are no keys are left out", page.skipped);
        }
        Ok(self.list_result(page, query, max_keys))
    }

    fn list_result(&self, page: KeyPage, query: &ListQuery, max_keys: i32) -> ListResult {
        let last = page.items.last().map(|item| item.text().to_owned()).unwrap_or_default();
        let next = page.next.map(|next| (next, last));
        let (mut contents, mut prefixes) = (ObjectList::new(), CommonPrefixList::new());
        for item in page.items {
            match item {
                ListedKey::CommonPrefix(prefix) => {
                    prefixes.push(CommonPrefix { prefix: Some(encoded(query, prefix)) });
                }
                ListedKey::Object { key, node } => {
                    let object = self.object_of(node);
                    contents.push(Object {
                        key: Some(encoded(query, key)),
                        size: Some(to_i64(super::get::object_size(&object))),
                        e_tag: Some(object.etag()),
                        last_modified: Some(last_modified(&object.node)),
                        storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
                        owner: query.with_owner.then(|| self.owner()),
                        ..Object::default()
                    });
                }
            }
        }
        ListResult { contents, prefixes, next, max_keys }
    }
}

/// Where the page after this marker begins.
pub fn from_marker(marker: &str, prefix: Option<&str>, delimiter: Option<&str>) -> Vec<u8> {
    let is_common = delimiter.is_some_and(|delimiter| {
        let prefix = prefix.unwrap_or_default();
        common_prefix(marker.as_bytes(), prefix.as_bytes(), delimiter.as_bytes()).as_deref()
            == Some(marker.as_bytes())
    });
    // After a common prefix the next page begins behind all keys that the prefix stands for.
    let from = if is_common { after_prefix(marker.as_bytes()) } else { None };
    from.unwrap_or_else(|| key_after(marker))
}

/// The first key after this one.
fn key_after(text: &str) -> Vec<u8> {
    if text.is_empty() { Vec::new() } else { [text.as_bytes(), b"\0"].concat() }
}

pub fn encoded(query: &ListQuery, text: String) -> String {
    if query.encoding.is_some() { encode(text.as_bytes(), true) } else { text }
}

/// A continuation token: the next key in hexadecimal digits, so that no state is kept.
pub fn token_of(from: &[u8]) -> String {
    crate::sigv4::hex(from)
}

pub fn from_token(token: &str) -> Option<Vec<u8>> {
    if !token.len().is_multiple_of(2) || token.len() > 2 * (KEY_MAX + 1) {
        return None;
    }
    let pair = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).ok()?;
        crate::sigv4::unhex::<1>(text).map(|[byte]| byte)
    };
    token.as_bytes().chunks(2).map(pair).collect()
}
