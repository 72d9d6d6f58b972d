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

use super::{RequestContext, object_headers};
use crate::access_keys::Right;
use crate::body_error::BodyError;
use crate::checksums::{BodyChecksums, ComputedChecksums};
use crate::errors::{self, S3Result, s3_error};
use crate::internal_headers;
use crate::metadata_store::{Headers, ObjectMetadata};
use crate::object::{ConditionOutcome, Conditions, S3Object};
use crate::object_key::ObjectKey;
use crate::resolve::{self, OpenBucket};
use crate::sigv4::hex;
use crate::staged_object::{ByteSink, PublishMode, StagedObject, is_refused};

/// The largest PUT: S3's own limit.
pub const PUT_BYTES_MAX: i64 = 5 << 30;

impl RequestContext {
    pub async fn put_object(
        &self,
        input: PutObjectInput,
        headers: &HeaderMap,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let bucket = self.bucket(&input.bucket, Right::Write).await?;
        let key = resolve::parse_key(&input.key)?;
        let kept = object_headers(headers)?;
        match input.content_length {
            None => return Err(S3ErrorCode::MissingContentLength.into()),
            Some(length) if length > PUT_BYTES_MAX => return Err(S3ErrorCode::EntityTooLarge.into()),
            Some(_) => {}
        }
        let conditions = Conditions::of_headers(headers)?;
        let sums = BodyChecksums::new(headers, self.requester.trailer.clone())?;
        if key.is_dir {
            if internal_headers::tags(&kept).is_some() {
                return Err(errors::not_offered(
                    "a key with a slash at its end is a directory here, and has no tags",
                ));
            }
            return self.put_directory(&bucket, &key, &conditions, input.body, sums).await;
        }
        // Conditions are checked before the body arrives, so that a request that must fail need not send it.
        self.check_conditions(&bucket, &key, &conditions).await?;
        let mut staged = self.stage(&bucket, &key).await?;
        let filled = receive_body(&mut staged, input.body, sums).await;
        let summed = match filled {
            Ok(summed) => summed,
            Err(e) => {
                staged.discard().await;
                self.remove_empty(&bucket, &key).await;
                return Err(e);
            }
        };
        self.shared.metrics.written_bytes.inc_by(staged.length());
        let headers = kept.into_iter().chain(summed.checksums.iter().cloned()).collect();
        let node = self.publish(&bucket, &key, staged, &conditions).await?;
        let etag = self.store_metadata(node, hex(&summed.md5), headers).await;
        let output = PutObjectOutput { e_tag: Some(etag), ..PutObjectOutput::default() };
        Ok(S3Response::with_headers(output, summed.headers()))
    }

    /// Creates a directory: what a key with a trailing slash stands for. It has no bytes.
    async fn put_directory(
        &self,
        bucket: &OpenBucket,
        key: &ObjectKey,
        conditions: &Conditions,
        body: Option<StreamingBlob>,
        mut sums: BodyChecksums,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let mut body = body;
        while let Some(data) = next(&mut body).await? {
            if !data.is_empty() {
                let message = "a key with a slash at its end is a directory here, and has no bytes";
                return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, message));
            }
            sums.update(&data);
        }
        sums.check()?;
        self.check_conditions(bucket, key, conditions).await?;
        let names: Vec<Name> = key.dirs.iter().chain([&key.name]).cloned().collect();
        let made = resolve::make_dirs(&self.shared.vfs, self.caller(), bucket.root.id, &names).await;
        made.map_err(s3_error)?;
        let object = self.object_of(resolve::find(&self.shared.vfs, self.caller(), bucket, key).await?);
        let output = PutObjectOutput { e_tag: Some(object.etag()), ..PutObjectOutput::default() };
        Ok(S3Response::new(output))
    }

    /// The object that the key names now, if any.
    pub async fn existing(&self, bucket: &OpenBucket, key: &ObjectKey) -> S3Result<Option<S3Object>> {
        match resolve::find(&self.shared.vfs, self.caller(), bucket, key).await {
            Ok(node) => Ok(Some(self.object_of(node))),
            Err(e) if *e.code() == S3ErrorCode::NoSuchKey => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// How an object is to take the key, so that what the conditions were found to hold for is what it replaces.
    pub async fn check_conditions(
        &self,
        bucket: &OpenBucket,
        key: &ObjectKey,
        conditions: &Conditions,
    ) -> S3Result<PublishMode> {
        if conditions.are_none() {
            return Ok(PublishMode::Replace);
        }
        let there = self.existing(bucket, key).await?;
        match there {
            None if conditions.need_one() => Err(S3ErrorCode::NoSuchKey.into()),
            None => Ok(PublishMode::IfAbsent),
            Some(object) => match conditions.judge(&object) {
                ConditionOutcome::Proceed => Ok(PublishMode::ReplaceVersion(object.node.version)),
                _ => Err(S3ErrorCode::PreconditionFailed.into()),
            },
        }
    }

    /// Begins the object of this key.
    pub async fn stage(&self, bucket: &OpenBucket, key: &ObjectKey) -> S3Result<StagedObject> {
        let place = (bucket.root.id, key.dirs.as_slice(), &key.name);
        let begun = StagedObject::begin(&self.shared.vfs, self.caller(), place, &self.shared.ids).await;
        begun.map_err(s3_error)
    }

    /// Gives the staged object the key's name, if the conditions still hold. The metadata of the object before is
    /// forgotten. On failure nothing is left of it.
    pub async fn publish(
        &self,
        bucket: &OpenBucket,
        key: &ObjectKey,
        mut staged: StagedObject,
        conditions: &Conditions,
    ) -> S3Result<Option<Node>> {
        let published = self.publish_staged(bucket, key, &mut staged, conditions).await;
        if published.is_err() {
            staged.discard().await;
            self.remove_empty(bucket, key).await;
        }
        published
    }

    async fn publish_staged(
        &self,
        bucket: &OpenBucket,
        key: &ObjectKey,
        staged: &mut StagedObject,
        conditions: &Conditions,
    ) -> S3Result<Option<Node>> {
        let mut tries = 0;
        loop {
            tries += 1;
            let lock = self.shared.locks.lock(staged.directory(), &key.name).await;
            let how = self.check_conditions(bucket, key, conditions).await?;
            match staged.publish(&key.name, how).await {
                Ok(node) => return Ok(node),
                Err(e)
                    if resolve::is_gone(&e) && staged.may_lose_directory() && tries < resolve::TRIES_MAX => {}
                Err(e) if is_refused(how, e.kind()) => return Err(S3ErrorCode::PreconditionFailed.into()),
                // Another one's object took from the store what was stored of this one.
                Err(e) if e.kind() == ErrorKind::VersionChanged => return Err(S3ErrorCode::SlowDown.into()),
                Err(e) => return Err(s3_error(e)),
            }
            drop(lock);
            staged.make_directory_again(bucket.root.id, &key.dirs).await.map_err(s3_error)?;
        }
    }

    /// Stores an object's metadata; on a blocking thread, since the database may wait for its disk.
    pub async fn store_metadata(&self, node: Option<Node>, etag: String, headers: Headers) -> ETag {
        let Some(node) = node else { return ETag::Strong(etag) };
        let (shared, known) = (self.shared.clone(), ObjectMetadata { etag: etag.clone(), headers });
        let noted = tokio::task::spawn_blocking(move || shared.metadata.put(&node, &known));
        let _ = noted.await; // it said so itself if it failed
        ETag::Strong(etag)
    }

    pub async fn remove_empty(&self, bucket: &OpenBucket, key: &ObjectKey) {
        resolve::remove_empty(&self.shared.vfs, self.caller(), bucket.root.id, &key.dirs).await;
    }
}

/// Writes the body to `staged`. Returns when it is committed, and its checksums match what the client sent.
pub async fn receive_body(
    staged: &mut impl ByteSink,
    body: Option<StreamingBlob>,
    mut sums: BodyChecksums,
) -> S3Result<ComputedChecksums> {
    let mut body = body;
    while let Some(data) = next(&mut body).await? {
        sums.update(&data);
        staged.append(data).await.map_err(s3_error)?;
    }
    let summed = sums.check()?;
    staged.store().await.map_err(s3_error)?;
    Ok(summed)
}

async fn next(body: &mut Option<StreamingBlob>) -> S3Result<Option<Bytes>> {
    let Some(body) = body else { return Ok(None) };
    std::future::poll_fn(|cx| poll_next(Pin::new(body), cx)).await.transpose().map_err(|e| body_error(&e))
}

fn poll_next(
    body: Pin<&mut StreamingBlob>,
    cx: &mut Context<'_>,
) -> Poll<Option<std::result::Result<Bytes, StdError>>> {
    body.poll_next(cx)
}

fn body_error(error: &StdError) -> S3Error {
    errors::body_error(error.downcast_ref::<BodyError>().copied().unwrap_or(BodyError::Incomplete))
}
