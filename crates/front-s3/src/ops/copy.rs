//! CopyObject: the bytes are read and written here, by the same way as a GET and a PUT.

use http::HeaderMap;
use s3s::dto::{
    CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopySource, MetadataDirective, TaggingDirective,
};
use s3s::{S3Error, S3ErrorCode};

use super::get::{Source, demand, size_of};
use super::put::PUT_BYTES_MAX;
use super::{Work, demand_version, headers_to_keep, signed, tags};
use crate::body::Trailer;
use crate::checksums::{Summed, Sums};
use crate::draft::Draft;
use crate::errors::{Result, not_offered, s3};
use crate::facts::Headers;
use crate::kept;
use crate::keys::Right;
use crate::object::{Conditions, Object, Verdict, last_modified};
use crate::partsums::Algorithm;
use crate::tree;
use crate::verify::hex;

impl Work {
    pub async fn copy_object(&self, input: CopyObjectInput, headers: &HeaderMap) -> Result<CopyObjectOutput> {
        let bucket = self.bucket(&input.bucket, Right::Write).await?;
        let key = tree::parse_key(&input.key)?;
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
        if signed(size_of(&source)) > PUT_BYTES_MAX {
            return Err(S3ErrorCode::EntityTooLarge.into());
        }
        let replaces = input.metadata_directive.as_ref().map(MetadataDirective::as_str);
        let replaces = replaces == Some(MetadataDirective::REPLACE);
        let is_same = self.there(&bucket, &key).await?.is_some_and(|there| there.node.id == source.node.id);
        if is_same && !replaces {
            let message = "an object is copied to itself only to replace its metadata";
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, message));
        }
        let mut kept = if replaces { headers_to_keep(headers)? } else { kept::of_copy(&source.headers) };
        let directive = input.tagging_directive.as_ref().map(TaggingDirective::as_str);
        kept::set_tags(
            &mut kept,
            match directive == Some(TaggingDirective::REPLACE) {
                true => tags::of_headers(headers)?,
                false => kept::tags(&source.headers).map(str::to_owned),
            },
        );
        let target = Conditions::of_headers(headers)?;
        self.demand(&bucket, &key, &target).await?;
        let root = (bucket.root.id, key.dirs.as_slice());
        let mut draft =
            Draft::begin(&self.shared.vfs, self.caller(), root, &self.shared.unique).await.map_err(s3)?;
        let size = size_of(&source);
        let bytes = Source::new(&self.shared.vfs, self.caller(), source.node, 0..size);
        let summed = match pour(bytes, &mut draft, None).await {
            Ok(summed) => summed,
            Err(e) => {
                draft.discard().await;
                self.remove_empty(&bucket, &key).await;
                return Err(e);
            }
        };
        let node = self.publish(&bucket, &key, draft, &target).await?;
        // What was computed of the bytes is true of the copy, the sums over parts are not told with it.
        let headers: Headers = kept.into_iter().collect();
        let modified = node.as_ref().map(last_modified);
        let result = CopyObjectResult {
            e_tag: Some(self.note(node, hex(&summed.md5), headers).await),
            last_modified: modified,
            ..CopyObjectResult::default()
        };
        Ok(CopyObjectOutput { copy_object_result: Some(result), ..CopyObjectOutput::default() })
    }

    /// The object to copy from, if the conditions hold.
    pub async fn source(&self, source: &CopySource, conditions: &Conditions) -> Result<Object> {
        let CopySource::Bucket { bucket, key, version_id } = source else {
            return Err(not_offered("access points are not offered"));
        };
        demand_version(version_id.as_deref())?;
        let bucket = self.bucket(bucket, Right::Read).await?;
        let object = self.object(&bucket, key).await?;
        // A copy has no "not modified".
        match conditions.judge(&object) {
            Verdict::Proceed => Ok(object),
            Verdict::NotModified => Err(S3ErrorCode::PreconditionFailed.into()),
            Verdict::Failed => demand(&object, conditions).map(|()| object),
        }
    }
}

/// All of `source` into `draft`, stored; summed by this algorithm too.
pub async fn pour(mut source: Source, draft: &mut Draft, algorithm: Option<Algorithm>) -> Result<Summed> {
    let mut sums = Sums::new(&HeaderMap::new(), Trailer::default())?.with(algorithm);
    loop {
        let bytes = source.next().await?;
        if bytes.is_empty() {
            break;
        }
        sums.update(&bytes);
        draft.append(bytes).await.map_err(s3)?;
    }
    let summed = sums.check()?;
    draft.store().await.map_err(s3)?;
    Ok(summed)
}
