//! The operations of S3, one file for each that is more than a few lines. The protocol crate has decoded what is
//! asked for; who asks was verified before it (`gate.rs`) and travels with the request.

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
use fair::Room;
use http::HeaderMap;
use s3s::dto::*;
use s3s::{S3, S3Error, S3ErrorCode, S3Request, S3Response};
use tokio::sync::{Mutex, MutexGuard};
use types::{Caller, FileId, Name};

use crate::Shared;
use crate::body::Trailer;
use crate::errors::Result;
use crate::facts::Headers;
use crate::kept;
use crate::keys::{AccessKey, Right};
use crate::object::Object;
use crate::peer::Peer;
use crate::tree::{self, Bucket};

pub use get::{Reading, content_range, headers_of, range_of, size_of};
pub use multipart::Uploads;

/// Who asks; put into a request by the gate, which has verified it.
#[derive(Clone)]
pub struct Asker {
    pub key: Arc<AccessKey>,
    pub trailer: Trailer,
    pub peer: Arc<Peer>,
    /// For a body that was taken as a whole: as long as somebody works with what was in it.
    pub _room: Option<Arc<Room>>,
}

/// Locks on names, so that a condition and what is done under it are one. A name shares its lock with others.
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
pub struct Service(pub Arc<Shared>);

/// What an operation works with.
pub struct Work {
    pub shared: Arc<Shared>,
    pub asker: Asker,
}

impl Work {
    fn of<T>(service: &Service, request: &S3Request<T>) -> Result<Work> {
        // Nobody gets past the gate without it.
        let asker = request.extensions.get::<Asker>().ok_or(S3ErrorCode::AccessDenied)?;
        Ok(Work { shared: service.0.clone(), asker: asker.clone() })
    }

    fn caller(&self) -> &Caller {
        &self.asker.key.caller
    }

    pub async fn bucket(&self, name: &str, right: Right) -> Result<Bucket> {
        tree::bucket(&self.shared.vfs, &self.shared.config.buckets, &self.asker.key, name, right).await
    }

    pub async fn object(&self, bucket: &Bucket, key: &str) -> Result<Object> {
        let key = tree::parse_key(key)?;
        let node = tree::find(&self.shared.vfs, self.caller(), bucket, &key).await?;
        Ok(self.object_of(node))
    }

    /// Of all that there is, for who asks.
    fn owner(&self) -> Owner {
        Owner { id: Some(self.asker.key.id.clone()), display_name: Some(self.asker.key.id.clone()) }
    }

    fn object_of(&self, node: vfs::Node) -> Object {
        Object::of(node, &self.shared.vfs, &self.shared.facts)
    }
}

/// What changes something is carried to its end, whether its client waits for it or not.
async fn to_its_end<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    tokio::spawn(work).await.map_err(S3Error::internal_error)?
}

fn answer<T>(output: T) -> s3s::S3Result<S3Response<T>> {
    Ok(S3Response::new(output))
}

/// A length as the protocol has it.
fn signed(length: u64) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

/// There is one version of an object, and as in a bucket without versions its name is `null`.
fn demand_version(asked: Option<&str>) -> Result<()> {
    match asked {
        None | Some("null") => Ok(()),
        Some(_) => Err(S3ErrorCode::NoSuchVersion.into()),
    }
}

/// Of an upload: what is kept with the object and told again. Everything else of its headers is of the transport.
fn headers_to_keep(headers: &HeaderMap) -> Result<Headers> {
    const KEPT: [&str; 6] = [
        "content-type",
        "cache-control",
        "content-disposition",
        "content-encoding",
        "content-language",
        "expires",
    ];
    const META: &str = "x-amz-meta-";
    /// S3's own.
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
    kept::set_tags(&mut kept, tags::of_headers(headers)?);
    Ok(kept)
}

#[async_trait]
impl S3 for Service {
    async fn list_buckets(
        &self,
        request: S3Request<ListBucketsInput>,
    ) -> s3s::S3Result<S3Response<ListBucketsOutput>> {
        let work = Work::of(self, &request)?;
        answer(work.list_buckets(request.input).await?)
    }

    async fn head_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> s3s::S3Result<S3Response<HeadBucketOutput>> {
        let work = Work::of(self, &request)?;
        let name = &request.input.bucket;
        let right = if work.asker.key.may(Right::Read, name) { Right::Read } else { Right::Write };
        work.bucket(name, right).await?;
        let region = work.shared.config.region.clone();
        answer(HeadBucketOutput { bucket_region: Some(region), ..HeadBucketOutput::default() })
    }

    async fn get_bucket_location(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> s3s::S3Result<S3Response<GetBucketLocationOutput>> {
        let work = Work::of(self, &request)?;
        work.bucket(&request.input.bucket, Right::Read).await?;
        // The first region has no name here, as at its inventor's.
        let region = Some(work.shared.config.region.clone()).filter(|region| region != "us-east-1");
        answer(GetBucketLocationOutput { location_constraint: region.map(BucketLocationConstraint::from) })
    }

    async fn get_bucket_versioning(
        &self,
        request: S3Request<GetBucketVersioningInput>,
    ) -> s3s::S3Result<S3Response<GetBucketVersioningOutput>> {
        let work = Work::of(self, &request)?;
        work.bucket(&request.input.bucket, Right::Read).await?;
        answer(GetBucketVersioningOutput::default())
    }

    async fn create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> s3s::S3Result<S3Response<CreateBucketOutput>> {
        let work = Work::of(self, &request)?;
        let name = request.input.bucket;
        match work.bucket(&name, Right::Write).await {
            Ok(_) => return Err(S3ErrorCode::BucketAlreadyOwnedByYou.into()),
            Err(e) if *e.code() == S3ErrorCode::NoSuchBucket => {}
            Err(e) => return Err(e),
        }
        work.make_bucket(&name).await?;
        answer(CreateBucketOutput { location: Some(format!("/{name}")) })
    }

    async fn delete_bucket(
        &self,
        request: S3Request<DeleteBucketInput>,
    ) -> s3s::S3Result<S3Response<DeleteBucketOutput>> {
        let work = Work::of(self, &request)?;
        let bucket = work.bucket(&request.input.bucket, Right::Write).await?;
        to_its_end(async move { work.remove_bucket(&bucket).await }).await?;
        answer(DeleteBucketOutput {})
    }

    async fn list_objects(
        &self,
        request: S3Request<ListObjectsInput>,
    ) -> s3s::S3Result<S3Response<ListObjectsOutput>> {
        let work = Work::of(self, &request)?;
        answer(work.list_objects(request.input).await?)
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> s3s::S3Result<S3Response<ListObjectsV2Output>> {
        let work = Work::of(self, &request)?;
        answer(work.list_objects_v2(request.input).await?)
    }

    async fn list_object_versions(
        &self,
        request: S3Request<ListObjectVersionsInput>,
    ) -> s3s::S3Result<S3Response<ListObjectVersionsOutput>> {
        let work = Work::of(self, &request)?;
        answer(work.list_versions(request.input).await?)
    }

    async fn get_object(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> s3s::S3Result<S3Response<GetObjectOutput>> {
        let work = Work::of(self, &request)?;
        work.get_object(request.input).await
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> s3s::S3Result<S3Response<HeadObjectOutput>> {
        let work = Work::of(self, &request)?;
        work.head_object(request.input).await
    }

    async fn get_object_attributes(
        &self,
        request: S3Request<GetObjectAttributesInput>,
    ) -> s3s::S3Result<S3Response<GetObjectAttributesOutput>> {
        let work = Work::of(self, &request)?;
        answer(work.attributes(request.input).await?)
    }

    async fn get_object_tagging(
        &self,
        request: S3Request<GetObjectTaggingInput>,
    ) -> s3s::S3Result<S3Response<GetObjectTaggingOutput>> {
        let work = Work::of(self, &request)?;
        answer(work.get_tags(request.input).await?)
    }

    async fn put_object_tagging(
        &self,
        request: S3Request<PutObjectTaggingInput>,
    ) -> s3s::S3Result<S3Response<PutObjectTaggingOutput>> {
        let work = Work::of(self, &request)?;
        work.put_tags(request.input).await?;
        answer(PutObjectTaggingOutput::default())
    }

    async fn delete_object_tagging(
        &self,
        request: S3Request<DeleteObjectTaggingInput>,
    ) -> s3s::S3Result<S3Response<DeleteObjectTaggingOutput>> {
        let work = Work::of(self, &request)?;
        work.delete_tags(request.input).await?;
        answer(DeleteObjectTaggingOutput::default())
    }

    async fn put_object(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> s3s::S3Result<S3Response<PutObjectOutput>> {
        let work = Work::of(self, &request)?;
        to_its_end(async move { work.put_object(request.input, &request.headers).await }).await
    }

    async fn copy_object(
        &self,
        request: S3Request<CopyObjectInput>,
    ) -> s3s::S3Result<S3Response<CopyObjectOutput>> {
        let work = Work::of(self, &request)?;
        let output =
            to_its_end(async move { work.copy_object(request.input, &request.headers).await }).await?;
        answer(output)
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> s3s::S3Result<S3Response<DeleteObjectOutput>> {
        let work = Work::of(self, &request)?;
        to_its_end(async move { work.delete_object(request.input, &request.headers).await }).await?;
        answer(DeleteObjectOutput::default())
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> s3s::S3Result<S3Response<DeleteObjectsOutput>> {
        let work = Work::of(self, &request)?;
        answer(to_its_end(async move { work.delete_objects(request.input).await }).await?)
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> s3s::S3Result<S3Response<CreateMultipartUploadOutput>> {
        let work = Work::of(self, &request)?;
        answer(to_its_end(async move { work.create_upload(request.input, &request.headers).await }).await?)
    }

    async fn upload_part(
        &self,
        request: S3Request<UploadPartInput>,
    ) -> s3s::S3Result<S3Response<UploadPartOutput>> {
        let work = Work::of(self, &request)?;
        to_its_end(async move { work.upload_part(request.input, &request.headers).await }).await
    }

    async fn upload_part_copy(
        &self,
        request: S3Request<UploadPartCopyInput>,
    ) -> s3s::S3Result<S3Response<UploadPartCopyOutput>> {
        let work = Work::of(self, &request)?;
        answer(to_its_end(async move { work.upload_part_copy(request.input).await }).await?)
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> s3s::S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let work = Work::of(self, &request)?;
        answer(to_its_end(async move { work.complete_upload(request.input).await }).await?)
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> s3s::S3Result<S3Response<AbortMultipartUploadOutput>> {
        let work = Work::of(self, &request)?;
        to_its_end(async move { work.abort_upload(request.input).await }).await?;
        answer(AbortMultipartUploadOutput::default())
    }

    async fn list_parts(
        &self,
        request: S3Request<ListPartsInput>,
    ) -> s3s::S3Result<S3Response<ListPartsOutput>> {
        let work = Work::of(self, &request)?;
        answer(work.list_parts(request.input).await?)
    }

    async fn list_multipart_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> s3s::S3Result<S3Response<ListMultipartUploadsOutput>> {
        let work = Work::of(self, &request)?;
        answer(work.list_uploads(request.input).await?)
    }
}
