//! PutObject.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use http::HeaderMap;
use s3s::dto::{ETag, PutObjectInput, PutObjectOutput, StreamingBlob};
use s3s::{S3Error, S3ErrorCode, S3Response, StdError};
use types::{ErrorKind, Name};
use vfs::Node;

use super::{Work, headers_to_keep};
use crate::body::BodyError;
use crate::checksums::{Summed, Sums};
use crate::draft::{Draft, Publish};
use crate::errors::{self, Result, s3};
use crate::facts::{Headers, Known};
use crate::kept;
use crate::key::Key;
use crate::keys::Right;
use crate::object::{Conditions, Object, Verdict};
use crate::tree::{self, Bucket};
use crate::verify::hex;

/// Of one PUT: S3's own.
pub const PUT_BYTES_MAX: i64 = 5 << 30;

impl Work {
    pub async fn put_object(
        &self,
        input: PutObjectInput,
        headers: &HeaderMap,
    ) -> Result<S3Response<PutObjectOutput>> {
        let bucket = self.bucket(&input.bucket, Right::Write).await?;
        let key = tree::parse_key(&input.key)?;
        let kept = headers_to_keep(headers)?;
        match input.content_length {
            None => return Err(S3ErrorCode::MissingContentLength.into()),
            Some(length) if length > PUT_BYTES_MAX => return Err(S3ErrorCode::EntityTooLarge.into()),
            Some(_) => {}
        }
        let conditions = Conditions::of_headers(headers)?;
        let sums = Sums::new(headers, self.asker.trailer.clone())?;
        if key.is_dir {
            if kept::tags(&kept).is_some() {
                return Err(errors::not_offered(
                    "a key with a slash at its end is a directory here, and has no tags",
                ));
            }
            return self.put_directory(&bucket, &key, &conditions, input.body, sums).await;
        }
        // Before the body comes: what can be refused at once need not travel.
        self.demand(&bucket, &key, &conditions).await?;
        let root = (bucket.root.id, key.dirs.as_slice());
        let mut draft =
            Draft::begin(&self.shared.vfs, self.caller(), root, &self.shared.unique).await.map_err(s3)?;
        let filled = fill(&mut draft, input.body, sums).await;
        let summed = match filled {
            Ok(summed) => summed,
            Err(e) => {
                draft.discard().await;
                self.remove_empty(&bucket, &key).await;
                return Err(e);
            }
        };
        self.shared.metrics.written_bytes.inc_by(draft.length());
        let headers = kept.into_iter().chain(summed.checksums.iter().cloned()).collect();
        let node = self.publish(&bucket, &key, draft, &conditions).await?;
        let etag = self.note(node, hex(&summed.md5), headers).await;
        let output = PutObjectOutput { e_tag: Some(etag), ..PutObjectOutput::default() };
        Ok(S3Response::with_headers(output, summed.headers()))
    }

    /// A key with a slash at its end makes a directory, and has no bytes.
    async fn put_directory(
        &self,
        bucket: &Bucket,
        key: &Key,
        conditions: &Conditions,
        body: Option<StreamingBlob>,
        mut sums: Sums,
    ) -> Result<S3Response<PutObjectOutput>> {
        let mut body = body;
        while let Some(data) = next(&mut body).await? {
            if !data.is_empty() {
                let message = "a key with a slash at its end is a directory here, and has no bytes";
                return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, message));
            }
            sums.update(&data);
        }
        sums.check()?;
        self.demand(bucket, key, conditions).await?;
        let names: Vec<Name> = key.dirs.iter().chain([&key.name]).cloned().collect();
        let made = tree::make_dirs(&self.shared.vfs, self.caller(), bucket.root.id, &names).await;
        made.map_err(s3)?;
        let object = self.object_of(tree::find(&self.shared.vfs, self.caller(), bucket, key).await?);
        let output = PutObjectOutput { e_tag: Some(object.etag()), ..PutObjectOutput::default() };
        Ok(S3Response::new(output))
    }

    /// The object that has the key's name, if any.
    pub async fn there(&self, bucket: &Bucket, key: &Key) -> Result<Option<Object>> {
        match tree::find(&self.shared.vfs, self.caller(), bucket, key).await {
            Ok(node) => Ok(Some(self.object_of(node))),
            Err(e) if *e.code() == S3ErrorCode::NoSuchKey => Ok(None),
            Err(e) => Err(e),
        }
    }

    pub async fn demand(&self, bucket: &Bucket, key: &Key, conditions: &Conditions) -> Result<()> {
        if conditions.are_none() {
            return Ok(());
        }
        let there = self.there(bucket, key).await?;
        match there {
            None if conditions.need_one() => Err(S3ErrorCode::NoSuchKey.into()),
            None => Ok(()),
            Some(object) => match conditions.judge(&object) {
                Verdict::Proceed => Ok(()),
                _ => Err(S3ErrorCode::PreconditionFailed.into()),
            },
        }
    }

    /// The draft takes the key's name, if the conditions hold still. What was known of the object before is forgotten.
    pub async fn publish(
        &self,
        bucket: &Bucket,
        key: &Key,
        draft: Draft,
        conditions: &Conditions,
    ) -> Result<Option<Node>> {
        let _lock = self.shared.locks.lock(draft.directory(), &key.name).await;
        if let Err(e) = self.demand(bucket, key, conditions).await {
            draft.discard().await;
            return Err(e);
        }
        let how = if conditions.is_absent() { Publish::IfAbsent } else { Publish::Replace };
        draft.publish(&key.name, how).await.map_err(|e| match e.kind() {
            ErrorKind::Exists => S3ErrorCode::PreconditionFailed.into(),
            _ => s3(e),
        })
    }

    /// The database may wait for its disk: not on this thread.
    pub async fn note(&self, node: Option<Node>, etag: String, headers: Headers) -> ETag {
        let Some(node) = node else { return ETag::Strong(etag) };
        let (shared, known) = (self.shared.clone(), Known { etag: etag.clone(), headers });
        let noted = tokio::task::spawn_blocking(move || shared.facts.put(&node, &known));
        let _ = noted.await; // it said so itself if it failed
        ETag::Strong(etag)
    }

    pub async fn remove_empty(&self, bucket: &Bucket, key: &Key) {
        tree::remove_empty(&self.shared.vfs, self.caller(), bucket.root.id, &key.dirs).await;
    }
}

/// Returns when all of the body is stored, and is what its sender said it is.
pub async fn fill(draft: &mut Draft, body: Option<StreamingBlob>, mut sums: Sums) -> Result<Summed> {
    let mut body = body;
    while let Some(data) = next(&mut body).await? {
        sums.update(&data);
        draft.append(data).await.map_err(s3)?;
    }
    let summed = sums.check()?;
    draft.store().await.map_err(s3)?;
    Ok(summed)
}

async fn next(body: &mut Option<StreamingBlob>) -> Result<Option<Bytes>> {
    let Some(body) = body else { return Ok(None) };
    std::future::poll_fn(|cx| poll_next(Pin::new(body), cx)).await.transpose().map_err(|e| told(&e))
}

fn poll_next(
    body: Pin<&mut StreamingBlob>,
    cx: &mut Context<'_>,
) -> Poll<Option<std::result::Result<Bytes, StdError>>> {
    body.poll_next(cx)
}

fn told(error: &StdError) -> S3Error {
    errors::body(error.downcast_ref::<BodyError>().copied().unwrap_or(BodyError::Incomplete))
}
