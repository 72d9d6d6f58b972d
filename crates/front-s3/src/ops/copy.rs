//! CopyObject: the bytes are read and written here, by the same way as a GET and a PUT.

use http::HeaderMap;
use s3s::dto::{
    CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopySource, MetadataDirective, TaggingDirective,
};
use s3s::{S3Error, S3ErrorCode};

use super::get::{RangeReader, check_conditions, object_size};
use super::put::PUT_BYTES_MAX;
use super::{RequestContext, object_headers, require_null_version, tags, to_i64};
use crate::access_keys::Right;
use crate::checked_body::Trailer;
use crate::checksums::{BodyChecksums, ComputedChecksums};
use crate::errors::{S3Result, not_offered, s3_error};
use crate::internal_headers;
use crate::metadata_store::Headers;
use crate::object::{ConditionOutcome, Conditions, S3Object, last_modified};
use crate::part_checksums::Algorithm;
use crate::resolve;
use crate::sigv4::hex;
use crate::staged_object::ByteSink;

impl RequestContext {
    pub async fn copy_object(
        &self,
        input: CopyObjectInput,
        headers: &HeaderMap,
    ) -> S3Result<CopyObjectOutput> {
        let bucket = self.bucket(&input.bucket, Right::Write).await?;
        let key = resolve::parse_key(&input.key)?;
        let conditions = Conditions {
            if_match: input.copy_source_if_match,
            if_none_match: input.copy_source_if_none_match,
            if_modified_since: input.copy_source_if_modified_since,
            if_unmodified_since: input.copy_source_if_unmodified_since,
            ..Conditions::default()
        };
        let source = self.source(&input.copy_source, &conditions).await?;
        if key.is_dir || source.node.attr.is_dir() {
            let message = "a key with a slash at its end is a directory here, and cannot be copied";
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, message));
        }
        if to_i64(object_size(&source)) > PUT_BYTES_MAX {
            return Err(S3ErrorCode::EntityTooLarge.into());
        }
        let replaces = input.metadata_directive.as_ref().map(MetadataDirective::as_str);
        let replaces = replaces == Some(MetadataDirective::REPLACE);
        let is_same =
            self.existing(&bucket, &key).await?.is_some_and(|there| there.node.id == source.node.id);
        if is_same && !replaces {
            let message = "an object is copied to itself only to replace its metadata";
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, message));
        }
        let mut kept =
            if replaces { object_headers(headers)? } else { internal_headers::for_copy(&source.headers) };
        let directive = input.tagging_directive.as_ref().map(TaggingDirective::as_str);
        internal_headers::set_tags(
            &mut kept,
            match directive == Some(TaggingDirective::REPLACE) {
                true => tags::of_headers(headers)?,
                false => internal_headers::tags(&source.headers).map(str::to_owned),
            },
        );
        let target = Conditions::of_headers(headers)?;
        self.check_conditions(&bucket, &key, &target).await?;
        let mut staged = self.stage(&bucket, &key).await?;
        let size = object_size(&source);
        let bytes = RangeReader::new(&self.shared.vfs, self.caller(), source.node, 0..size);
        let summed = match copy_into(bytes, &mut staged, None).await {
            Ok(summed) => summed,
            Err(e) => {
                staged.discard().await;
                self.remove_empty(&bucket, &key).await;
                return Err(e);
            }
        };
        let node = self.publish(&bucket, &key, staged, &target).await?;
        // A full-object checksum holds for the copy, too; composite ones do not and are left out.
        let headers: Headers = kept.into_iter().collect();
        let modified = node.as_ref().map(last_modified);
        let result = CopyObjectResult {
            e_tag: Some(self.store_metadata(node, hex(&summed.md5), headers).await),
            last_modified: modified,
            ..CopyObjectResult::default()
        };
        Ok(CopyObjectOutput { copy_object_result: Some(result), ..CopyObjectOutput::default() })
    }

    /// The source object of a copy, if the conditions hold.
    pub async fn source(&self, source: &CopySource, conditions: &Conditions) -> S3Result<S3Object> {
        let CopySource::Bucket { bucket, key, version_id } = source else {
            return Err(not_offered("access points are not offered"));
        };
        require_null_version(version_id.as_deref())?;
        let bucket = self.bucket(bucket, Right::Read).await?;
        let object = self.object(&bucket, key).await?;
        // A copy has no 304: "not modified" is a failed precondition.
        match conditions.judge(&object) {
            ConditionOutcome::Proceed => Ok(object),
            ConditionOutcome::NotModified => Err(S3ErrorCode::PreconditionFailed.into()),
            ConditionOutcome::Failed => check_conditions(&object, conditions).map(|()| object),
        }
    }
}

/// Copies all of `source` into `staged` and commits it; computes the checksum of this algorithm, too.
pub async fn copy_into(
    mut source: RangeReader,
    staged: &mut impl ByteSink,
    algorithm: Option<Algorithm>,
) -> S3Result<ComputedChecksums> {
    let mut sums = BodyChecksums::new(&HeaderMap::new(), Trailer::default())?.with(algorithm);
    loop {
        let bytes = source.next().await?;
        if bytes.is_empty() {
            break;
        }
        sums.update(&bytes);
        staged.append(bytes).await.map_err(s3_error)?;
    }
    let summed = sums.check()?;
    staged.store().await.map_err(s3_error)?;
    Ok(summed)
}
