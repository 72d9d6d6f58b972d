//! ListObjects, of both versions.

use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode};

use super::{Work, signed};
use crate::errors::{Result, invalid, s3};
use crate::key::KEY_MAX;
use crate::keys::Right;
use crate::object::last_modified;
use crate::verify::encode;
use crate::walk::{Listed, Page, Walk, Wanted, after_prefix, common_prefix};

/// Of one page.
pub const KEYS_MAX: i32 = 1000;

/// What both versions have in common.
pub struct Question {
    pub bucket: String,
    pub prefix: Option<String>,
    pub delimiter: Option<String>,
    pub encoding: Option<EncodingType>,
    pub max_keys: Option<i32>,
    /// The first key that may be told.
    pub from: Vec<u8>,
    pub with_owner: bool,
}

/// Its answer, in the words of both.
pub struct Told {
    pub contents: ObjectList,
    pub prefixes: CommonPrefixList,
    /// Of the next page, and the last that is told on this one.
    pub next: Option<(Vec<u8>, String)>,
    pub max_keys: i32,
}

impl Work {
    pub async fn list_objects(&self, input: ListObjectsInput) -> Result<ListObjectsOutput> {
        let delimiter = input.delimiter.filter(|delimiter| !delimiter.is_empty());
        let marker = input.marker.clone().unwrap_or_default();
        let from = from_marker(&marker, input.prefix.as_deref(), delimiter.as_deref());
        let question = Question {
            bucket: input.bucket,
            prefix: input.prefix,
            delimiter,
            encoding: input.encoding_type,
            max_keys: input.max_keys,
            from,
            with_owner: true,
        };
        let told = self.list(&question).await?;
        let encoded = |text: String| encoded(&question, text);
        Ok(ListObjectsOutput {
            name: Some(question.bucket.clone()),
            prefix: Some(encoded(question.prefix.clone().unwrap_or_default())),
            delimiter: question.delimiter.clone().map(encoded),
            marker: Some(encoded(marker)),
            next_marker: told.next.as_ref().map(|(_, last)| encoded(last.clone())),
            is_truncated: Some(told.next.is_some()),
            max_keys: Some(told.max_keys),
            contents: Some(told.contents),
            common_prefixes: Some(told.prefixes),
            encoding_type: question.encoding.clone(),
            ..ListObjectsOutput::default()
        })
    }

    pub async fn list_objects_v2(&self, input: ListObjectsV2Input) -> Result<ListObjectsV2Output> {
        let from = match &input.continuation_token {
            Some(token) => {
                from_token(token).ok_or_else(|| invalid("the continuation token is none of ours"))?
            }
            None => after(input.start_after.as_deref().unwrap_or_default()),
        };
        let question = Question {
            bucket: input.bucket,
            prefix: input.prefix,
            delimiter: input.delimiter.filter(|delimiter| !delimiter.is_empty()),
            encoding: input.encoding_type,
            max_keys: input.max_keys,
            from,
            with_owner: input.fetch_owner.unwrap_or(false),
        };
        let told = self.list(&question).await?;
        let encoded = |text: String| encoded(&question, text);
        Ok(ListObjectsV2Output {
            name: Some(question.bucket.clone()),
            prefix: Some(encoded(question.prefix.clone().unwrap_or_default())),
            delimiter: question.delimiter.clone().map(encoded),
            start_after: input.start_after.map(encoded),
            key_count: i32::try_from(told.contents.len() + told.prefixes.len()).ok(),
            continuation_token: input.continuation_token,
            next_continuation_token: told.next.as_ref().map(|(next, _)| token_of(next)),
            is_truncated: Some(told.next.is_some()),
            max_keys: Some(told.max_keys),
            contents: Some(told.contents),
            common_prefixes: Some(told.prefixes),
            encoding_type: question.encoding.clone(),
            ..ListObjectsV2Output::default()
        })
    }

    pub async fn list(&self, question: &Question) -> Result<Told> {
        let bucket = self.bucket(&question.bucket, Right::Read).await?;
        let max_keys = question.max_keys.unwrap_or(KEYS_MAX);
        if max_keys < 0 {
            return Err(invalid("max-keys is negative"));
        }
        let is_encoded = match question.encoding.as_ref().map(EncodingType::as_str) {
            None => false,
            Some(EncodingType::URL) => true,
            Some(_) => return Err(invalid("encoding-type is \"url\", or left out")),
        };
        let wanted = Wanted {
            prefix: question.prefix.clone().unwrap_or_default().into_bytes(),
            delimiter: question.delimiter.clone().unwrap_or_default().into_bytes(),
            from: question.from.clone(),
            max: usize::try_from(max_keys.min(KEYS_MAX)).unwrap_or(0),
            as_xml: !is_encoded,
        };
        if wanted.prefix.len() > KEY_MAX
            || wanted.delimiter.len() > KEY_MAX
            || wanted.from.len() > KEY_MAX + 1
        {
            return Err(S3Error::new(S3ErrorCode::KeyTooLongError));
        }
        let walk = Walk { vfs: &self.shared.vfs, caller: self.caller(), wanted };
        let page = walk.page(&bucket.root).await.map_err(s3)?;
        if page.skipped > 0 {
            self.shared.metrics.skipped_names.inc_by(page.skipped);
            tracing::debug!(bucket = bucket.name, "{} names that are no keys are left out", page.skipped);
        }
        Ok(self.told(page, question, max_keys))
    }

    fn told(&self, page: Page, question: &Question, max_keys: i32) -> Told {
        let last = page.items.last().map(|item| item.text().to_owned()).unwrap_or_default();
        let next = page.next.map(|next| (next, last));
        let (mut contents, mut prefixes) = (ObjectList::new(), CommonPrefixList::new());
        for item in page.items {
            match item {
                Listed::CommonPrefix(prefix) => {
                    prefixes.push(CommonPrefix { prefix: Some(encoded(question, prefix)) });
                }
                Listed::Object { key, node } => {
                    let object = self.object_of(node);
                    contents.push(Object {
                        key: Some(encoded(question, key)),
                        size: Some(signed(super::get::size_of(&object))),
                        e_tag: Some(object.etag()),
                        last_modified: Some(last_modified(&object.node)),
                        storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
                        owner: question.with_owner.then(|| self.owner()),
                        ..Object::default()
                    });
                }
            }
        }
        Told { contents, prefixes, next, max_keys }
    }
}

/// Where a page begins that comes after this key or common prefix.
pub fn from_marker(marker: &str, prefix: Option<&str>, delimiter: Option<&str>) -> Vec<u8> {
    let is_common = delimiter.is_some_and(|delimiter| {
        let prefix = prefix.unwrap_or_default();
        common_prefix(marker.as_bytes(), prefix.as_bytes(), delimiter.as_bytes()).as_deref()
            == Some(marker.as_bytes())
    });
    // A page that ended with a common prefix goes on behind all that it stands for.
    let from = if is_common { after_prefix(marker.as_bytes()) } else { None };
    from.unwrap_or_else(|| after(marker))
}

/// The first text after this one.
fn after(text: &str) -> Vec<u8> {
    if text.is_empty() { Vec::new() } else { [text.as_bytes(), b"\0"].concat() }
}

pub fn encoded(question: &Question, text: String) -> String {
    if question.encoding.is_some() { encode(text.as_bytes(), true) } else { text }
}

/// Its bytes in hexadecimal digits: nothing has to be remembered.
pub fn token_of(from: &[u8]) -> String {
    crate::verify::hex(from)
}

pub fn from_token(token: &str) -> Option<Vec<u8>> {
    if !token.len().is_multiple_of(2) || token.len() > 2 * (KEY_MAX + 1) {
        return None;
    }
    let pair = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).ok()?;
        crate::verify::unhex::<1>(text).map(|[byte]| byte)
    };
    token.as_bytes().chunks(2).map(pair).collect()
}
