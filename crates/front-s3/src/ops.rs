//! The S3 operations, one file for each that is more than a few lines.
//!
//! - [`S3Operations`] implements the protocol crate's trait `S3`: it gets decoded input and calls a method of
//!   [`RequestContext`].
//! - [`RequestContext`] is the front's state plus the [`Requester`] that the gate has verified (`request_gate.rs`
//!   puts it into the request's extensions).
//! - `get.rs`: GET and HEAD, `ObjectReader` (one version of a file) and `RangeReader` (the source of copies);
//!   `put.rs`, `copy.rs`: staged objects, and how they take their names; `multipart/`: uploads, their parts, their
//!   completion.
//! - `list.rs`, `versions.rs`: listings of keys; `buckets.rs`, `delete.rs`, `tags.rs`, `attributes.rs`: the rest.
//!
//! A write goes: conditions, staged object, body with its checksums, commit, the key's lock, conditions again,
//! rename to the key, metadata.
//!
//! Invariants: nothing runs without a verified requester. A request that changes something runs to its end even if
//! its client leaves ([`run_to_completion`]). A condition is checked under the lock of the name that the change
//! takes ([`NameLocks`]).
//!
//! Begin with `get.rs` and `put.rs`.

mod attributes;
mod buckets;
mod copy;
mod delete;
mod get;
mod list;
mod multipart;
mod put;
mod tags;
mod versions;

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use fair::MemoryPermit;
use http::HeaderMap;
use s3s::dto::*;
use s3s::{S3, S3Error, S3ErrorCode, S3Request, S3Response};
use tokio::sync::{Mutex, MutexGuard};
use types::{Caller, FileId, Name};

use crate::S3State;
use crate::access_keys::{AccessKey, Right};
use crate::checked_body::Trailer;
use crate::errors::S3Result;
use crate::internal_headers;
use crate::metadata_store::Headers;
use crate::object::S3Object;
use crate::peer::S3Peer;
use crate::resolve::{self, OpenBucket};

pub use get::{ObjectReader, content_range, headers_of, object_size, resolve_range};
pub use multipart::{HELD_PART_BYTES_MAX, HELD_PARTS_BYTES, NUMBER_MAX, OngoingUploads};

/// The requester of a verified request; the gate puts it into the request's extensions.
#[derive(Clone)]
pub struct Requester {
    pub key: Arc<AccessKey>,
    pub trailer: Trailer,
    pub peer: Arc<S3Peer>,
    /// The memory of a body that was read as a whole, held until the request is done.
    pub _permit: Option<Arc<MemoryPermit>>,
}

/// Locks on names, which make a condition and the change under it atomic among our own requests. Names share 256
/// locks.
pub struct NameLocks(Vec<Mutex<()>>);

impl Default for NameLocks {
    fn default() -> NameLocks {
        NameLocks((0..256).map(|_| Mutex::new(())).collect())
    }
}

impl NameLocks {
    pub async fn lock(&self, dir: FileId, name: &Name) -> MutexGuard<'_, ()> {
        let at = name.as_bytes().iter().fold(dir.0[0], |sum, byte| sum.rotate_left(3) ^ byte);
        self.0[usize::from(at)].lock().await
    }
}

#[derive(Clone)]
pub struct S3Operations(pub Arc<S3State>);

/// The context of one request: the front's state and the requester.
pub struct RequestContext {
    pub shared: Arc<S3State>,
    pub requester: Requester,
}

impl RequestContext {
    fn from_request<T>(service: &S3Operations, request: &S3Request<T>) -> S3Result<RequestContext> {
        // The gate inserts it into every request that it lets pass.
        let requester = request.extensions.get::<Requester>().ok_or(S3ErrorCode::AccessDenied)?;
        Ok(RequestContext { shared: service.0.clone(), requester: requester.clone() })
    }

    fn caller(&self) -> &Caller {
        &self.requester.key.caller
    }

    pub async fn bucket(&self, name: &str, right: Right) -> S3Result<OpenBucket> {
        resolve::bucket(&self.shared.vfs, &self.shared.config.buckets, &self.requester.key, name, right).await
    }

    pub async fn object(&self, bucket: &OpenBucket, key: &str) -> S3Result<S3Object> {
        let key = resolve::parse_key(key)?;
        let node = resolve::find(&self.shared.vfs, self.caller(), bucket, &key).await?;
        Ok(self.object_of(node))
    }

    /// The owner that answers name for every object: the access key that asks.
    fn owner(&self) -> Owner {
        Owner { id: Some(self.requester.key.id.clone()), display_name: Some(self.requester.key.id.clone()) }
    }

    fn object_of(&self, node: vfs::Node) -> S3Object {
        S3Object::of(node, &self.shared.vfs, &self.shared.metadata)
    }
}

/// Runs `work` in a task of its own: a change goes on to its end when its client leaves.
async fn run_to_completion<T: Send + 'static>(
    context: impl Future<Output = S3Result<T>> + Send + 'static,
) -> S3Result<T> {
    tokio::spawn(context).await.map_err(S3Error::internal_error)?
}

fn respond<T>(output: T) -> S3Result<S3Response<T>> {
    Ok(S3Response::new(output))
}

/// A length as the protocol crate has it.
fn to_i64(length: u64) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

/// Refuses any version but `null`: an object has one version here, which has that name, as in a bucket without
/// versioning.
fn require_null_version(asked: Option<&str>) -> S3Result<()> {
    match asked {
        None | Some("null") => Ok(()),
        Some(_) => Err(S3ErrorCode::NoSuchVersion.into()),
    }
}

/// The headers of an upload that are stored with the object and returned by a GET. All others belong to the
/// transport.
fn object_headers(headers: &HeaderMap) -> S3Result<Headers> {
    const KEPT: [&str; 6] = [
        "content-type",
        "cache-control",
        "content-disposition",
        "content-encoding",
        "content-language",
        "expires",
    ];
    const META: &str = "x-amz-meta-";
    /// S3's own limit.
    const META_BYTES_MAX: usize = 2048;
    const BYTES_MAX: usize = 8192;
    let mut kept: Headers = Vec::new();
    for (name, value) in headers {
        let name = name.as_str();
        if !KEPT.contains(&name) && !name.starts_with(META) {
            continue;
        }
        let value = std::str::from_utf8(value.as_bytes()).map_err(|_| S3ErrorCode::InvalidArgument)?;
        match kept.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => known.extend([",", value]),
            None => kept.push((name.to_owned(), value.to_owned())),
        }
    }
    let length = |(name, value): &(String, String)| name.len() + value.len();
    let meta = |header: &&(String, String)| header.0.starts_with(META);
    let meta_bytes: usize = kept.iter().filter(meta).map(|header| length(header) - META.len()).sum();
    if meta_bytes > META_BYTES_MAX || kept.iter().map(length).sum::<usize>() > BYTES_MAX {
        return Err(S3ErrorCode::MetadataTooLarge.into());
    }
    internal_headers::set_tags(&mut kept, tags::of_headers(headers)?);
    Ok(kept)
}

#[async_trait]
impl S3 for S3Operations {
    async fn list_buckets(
        &self,
        request: S3Request<ListBucketsInput>,
    ) -> S3Result<S3Response<ListBucketsOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        respond(context.list_buckets(request.input).await?)
    }

    async fn head_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        let name = &request.input.bucket;
        let right = if context.requester.key.may(Right::Read, name) { Right::Read } else { Right::Write };
        context.bucket(name, right).await?;
        let region = context.shared.config.region.clone();
        respond(HeadBucketOutput { bucket_region: Some(region), ..HeadBucketOutput::default() })
    }

    async fn get_bucket_location(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        context.bucket(&request.input.bucket, Right::Read).await?;
        // us-east-1 is the empty location, as in AWS's answer.
        let region = Some(context.shared.config.region.clone()).filter(|region| region != "us-east-1");
        respond(GetBucketLocationOutput { location_constraint: region.map(BucketLocationConstraint::from) })
    }

    async fn get_bucket_versioning(
        &self,
        request: S3Request<GetBucketVersioningInput>,
    ) -> S3Result<S3Response<GetBucketVersioningOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        context.bucket(&request.input.bucket, Right::Read).await?;
        respond(GetBucketVersioningOutput::default())
    }

    async fn create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        let name = request.input.bucket;
        match context.bucket(&name, Right::Write).await {
            Ok(_) => return Err(S3ErrorCode::BucketAlreadyOwnedByYou.into()),
            Err(e) if *e.code() == S3ErrorCode::NoSuchBucket => {}
            Err(e) => return Err(e),
        }
        context.make_bucket(&name).await?;
        respond(CreateBucketOutput { location: Some(format!("/{name}")) })
    }

    async fn delete_bucket(
        &self,
        request: S3Request<DeleteBucketInput>,
    ) -> S3Result<S3Response<DeleteBucketOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        let bucket = context.bucket(&request.input.bucket, Right::Write).await?;
        run_to_completion(async move { context.remove_bucket(&bucket).await }).await?;
        respond(DeleteBucketOutput {})
    }

    async fn list_objects(
        &self,
        request: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        respond(context.list_objects(request.input).await?)
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let context = RequestContext::from_request(self, &request)?;
        respond(context.list_objects_v2(request.input).await?)
    }

    async fn list_object_versions(
        &self,
        request: S3Request<ListObjectVersionsInput>,
    ) -> S3Result<S3Response<ListObjectVersionsOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        respond(context.list_versions(request.input).await?)
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        context.get_object(request.input).await
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        context.head_object(request.input).await
    }

    async fn get_object_attributes(
        &self,
        request: S3Request<GetObjectAttributesInput>,
    ) -> S3Result<S3Response<GetObjectAttributesOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        respond(context.attributes(request.input).await?)
    }

    async fn get_object_tagging(
        &self,
        request: S3Request<GetObjectTaggingInput>,
    ) -> S3Result<S3Response<GetObjectTaggingOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        respond(context.get_tags(request.input).await?)
    }

    async fn put_object_tagging(
        &self,
        request: S3Request<PutObjectTaggingInput>,
    ) -> S3Result<S3Response<PutObjectTaggingOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        context.put_tags(request.input).await?;
        respond(PutObjectTaggingOutput::default())
    }

    async fn delete_object_tagging(
        &self,
        request: S3Request<DeleteObjectTaggingInput>,
    ) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        context.delete_tags(request.input).await?;
        respond(DeleteObjectTaggingOutput::default())
    }

    async fn put_object(&self, request: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        run_to_completion(async move { context.put_object(request.input, &request.headers).await }).await
    }

    async fn copy_object(
        &self,
        request: S3Request<CopyObjectInput>,
    ) -> S3Result<S3Response<CopyObjectOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        let output =
            run_to_completion(async move { context.copy_object(request.input, &request.headers).await })
                .await?;
        respond(output)
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        run_to_completion(async move { context.delete_object(request.input, &request.headers).await })
            .await?;
        respond(DeleteObjectOutput::default())
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        respond(run_to_completion(async move { context.delete_objects(request.input).await }).await?)
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        respond(
            run_to_completion(async move { context.create_upload(request.input, &request.headers).await })
                .await?,
        )
    }

    async fn upload_part(
        &self,
        request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        run_to_completion(async move { context.upload_part(request.input, &request.headers).await }).await
    }

    async fn upload_part_copy(
        &self,
        request: S3Request<UploadPartCopyInput>,
    ) -> S3Result<S3Response<UploadPartCopyOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        respond(run_to_completion(async move { context.upload_part_copy(request.input).await }).await?)
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        respond(run_to_completion(async move { context.complete_upload(request.input).await }).await?)
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        run_to_completion(async move { context.abort_upload(request.input).await }).await?;
        respond(AbortMultipartUploadOutput::default())
    }

    async fn list_parts(&self, request: S3Request<ListPartsInput>) -> S3Result<S3Response<ListPartsOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        respond(context.list_parts(request.input).await?)
    }

    async fn list_multipart_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
        let context = RequestContext::from_request(self, &request)?;
        respond(context.list_uploads(request.input).await?)
    }
}
