//! Object tags. They are stored in the object's metadata record, and nowhere else.

use http::HeaderMap;
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode};

use super::{RequestContext, require_null_version};
use crate::access_keys::Right;
use crate::errors::{S3Result, invalid, not_offered};
use crate::internal_headers;
use crate::object::S3Object;
use crate::sigv4::{Query, encode};

/// S3's own limits; lengths are in characters.
const TAGS_MAX: usize = 10;
const KEY_MAX: usize = 128;
const VALUE_MAX: usize = 256;

impl RequestContext {
    pub async fn get_tags(&self, input: GetObjectTaggingInput) -> S3Result<GetObjectTaggingOutput> {
        require_null_version(input.version_id.as_deref())?;
        let bucket = self.bucket(&input.bucket, Right::Read).await?;
        let object = self.object(&bucket, &input.key).await?;
        let tag = |(key, value)| Tag { key: Some(key), value: Some(value) };
        let tags = pairs_of(internal_headers::tags(&object.headers).unwrap_or_default());
        Ok(GetObjectTaggingOutput { tag_set: tags.into_iter().map(tag).collect(), version_id: None })
    }

    pub async fn put_tags(&self, input: PutObjectTaggingInput) -> S3Result<()> {
        require_null_version(input.version_id.as_deref())?;
        let pairs = input.tagging.tag_set.into_iter();
        let pairs = pairs.map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default()));
        let tags = text_of(pairs.collect())?;
        self.set_tags(&input.bucket, &input.key, Some(tags)).await
    }

    pub async fn delete_tags(&self, input: DeleteObjectTaggingInput) -> S3Result<()> {
        require_null_version(input.version_id.as_deref())?;
        self.set_tags(&input.bucket, &input.key, None).await
    }

    async fn set_tags(&self, bucket: &str, key: &str, tags: Option<String>) -> S3Result<()> {
        let bucket = self.bucket(bucket, Right::Write).await?;
        let S3Object { node, etag, mut headers } = self.object(&bucket, key).await?;
        if node.attr.is_dir() {
            return Err(not_offered("a key with a slash at its end is a directory here, and has no tags"));
        }
        internal_headers::set_tags(&mut headers, tags);
        self.store_metadata(Some(node), etag, headers).await;
        Ok(())
    }
}

/// The tags in the `x-amz-tagging` header of an upload.
pub fn of_headers(headers: &HeaderMap) -> S3Result<Option<String>> {
    let Some(value) = headers.get("x-amz-tagging") else { return Ok(None) };
    let text = value.to_str().map_err(|_| invalid("x-amz-tagging is no text"))?;
    let pairs = Query::parse(text).0.into_iter().map(|(key, value)| {
        let text = |bytes| String::from_utf8(bytes).map_err(|_| invalid("x-amz-tagging is no text"));
        Ok((text(key)?, text(value)?))
    });
    text_of(pairs.collect::<S3Result<_>>()?).map(Some)
}

fn text_of(pairs: Vec<(String, String)>) -> S3Result<String> {
    let wrong = |message| Err(S3Error::with_message(S3ErrorCode::InvalidTag, message));
    if pairs.len() > TAGS_MAX {
        return Err(S3Error::with_message(S3ErrorCode::InvalidTag, "an object has at most 10 tags"));
    }
    for (at, (key, value)) in pairs.iter().enumerate() {
        if key.is_empty() || key.chars().count() > KEY_MAX || value.chars().count() > VALUE_MAX {
            return wrong("a tag has a key of 1 to 128 characters and a value of at most 256");
        }
        if pairs[..at].iter().any(|(known, _)| known == key) {
            return wrong("a key is there twice");
        }
    }
    let texts = pairs
        .iter()
        .map(|(key, value)| format!("{}={}", encode(key.as_bytes(), false), encode(value.as_bytes(), false)));
    Ok(texts.collect::<Vec<_>>().join("&"))
}

fn pairs_of(text: &str) -> Vec<(String, String)> {
    let text_of = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Query::parse(text).0.into_iter().map(|(key, value)| (text_of(key), text_of(value))).collect()
}

/// The number of tags, for `x-amz-tagging-count`.
pub fn count(tags: &str) -> usize {
    tags.split('&').filter(|tag| !tag.is_empty()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_back_whatever_is_in_them() {
        let pairs = vec![("a b".to_owned(), "c&d=e".to_owned()), ("ä".to_owned(), String::new())];
        let text = text_of(pairs.clone()).expect("tags");
        assert_eq!((pairs_of(&text), count(&text), count("")), (pairs, 2, 0));
        let many = (0..11).map(|n| (n.to_string(), String::new())).collect();
        let twice = vec![("a".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())];
        for wrong in
            [many, twice, vec![(String::new(), String::new())], vec![("k".repeat(129), String::new())]]
        {
            assert!(text_of(wrong).is_err());
        }
    }
}
