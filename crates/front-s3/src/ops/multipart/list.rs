//! ListMultipartUploads and ListParts.

use std::collections::HashMap;

use s3s::S3ErrorCode;
use s3s::dto::*;

use super::part_layout::newest_by_number;
use super::{UPLOADS, UploadRecord, internal_name, names_in};
use crate::access_keys::Right;
use crate::errors::{S3Result, s3_error};
use crate::key_listing::common_prefix;
use crate::object::last_modified;
use crate::ops::{RequestContext, to_i64};
use crate::part_checksums::ChecksumFields;
use crate::resolve::{self, OpenBucket};
use crate::sigv4::{encode, hex};

/// The most entries of one listing.
const LISTED_MAX: i32 = 1000;
/// The most uploads of a bucket that one listing looks at.
const UPLOADS_MAX: usize = 10_000;

impl RequestContext {
    pub async fn list_parts(&self, input: ListPartsInput) -> S3Result<ListPartsOutput> {
        let bucket = self.bucket(&input.bucket, Right::Write).await?;
        let upload = self.upload(&bucket, &input.upload_id, &input.key).await?;
        let max = input.max_parts.unwrap_or(LISTED_MAX).clamp(0, LISTED_MAX);
        let marker = input.part_number_marker.unwrap_or(0);
        let mut times = HashMap::new();
        let stored = self.parts(upload.dir).await?;
        let stored = newest_by_number(stored.into_iter().map(|(part, node)| {
            times.insert(part.sequence, last_modified(&node));
            part
        }));
        let after = stored.into_values().filter(|part| i64::from(part.number) > i64::from(marker));
        let mut parts: Vec<_> = after.take(usize::try_from(max).unwrap_or(0) + 1).collect();
        let is_truncated = parts.len() > usize::try_from(max).unwrap_or(0);
        parts.truncate(usize::try_from(max).unwrap_or(0));
        let last = parts.last().and_then(|part| i32::try_from(part.number).ok());
        let parts = parts.into_iter().map(|part| {
            let sum = part.sum.as_ref().filter(|sum| Some(sum.algorithm) == upload.algorithm());
            let sums = sum.map(|sum| ChecksumFields::of(sum.algorithm, sum.base64())).unwrap_or_default();
            s3s::dto::Part {
                part_number: i32::try_from(part.number).ok(),
                size: Some(to_i64(part.size)),
                e_tag: Some(ETag::Strong(hex(&part.md5))),
                last_modified: times.remove(&part.sequence),
                checksum_crc32: sums.crc32,
                checksum_crc32c: sums.crc32c,
                checksum_crc64nvme: sums.crc64nvme,
                checksum_sha1: sums.sha1,
                checksum_sha256: sums.sha256,
            }
        });
        Ok(ListPartsOutput {
            checksum_algorithm: upload
                .checksum
                .map(|checksum| ChecksumAlgorithm::from_static(checksum.algorithm.name())),
            checksum_type: upload.checksum.map(|checksum| ChecksumType::from_static(checksum.kind.name())),
            initiator: Some(self.initiator()),
            owner: Some(self.owner()),
            storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
            parts: Some(parts.collect()),
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            max_parts: Some(max),
            part_number_marker: Some(marker),
            next_part_number_marker: last.filter(|_| is_truncated),
            is_truncated: Some(is_truncated),
            ..ListPartsOutput::default()
        })
    }

    fn initiator(&self) -> Initiator {
        let Owner { id, display_name } = self.owner();
        Initiator { id, display_name }
    }

    pub async fn list_uploads(
        &self,
        input: ListMultipartUploadsInput,
    ) -> S3Result<ListMultipartUploadsOutput> {
        let bucket = self.bucket(&input.bucket, Right::Write).await?;
        let is_encoded = input.encoding_type.is_some();
        let told = |key: String| if is_encoded { encode(key.as_bytes(), true) } else { key };
        let prefix = input.prefix.clone().unwrap_or_default();
        let delimiter = input.delimiter.clone().unwrap_or_default();
        let key_marker = input.key_marker.clone().unwrap_or_default();
        let id_marker = input.upload_id_marker.clone().unwrap_or_default();
        let max = usize::try_from(input.max_uploads.unwrap_or(LISTED_MAX).clamp(0, LISTED_MAX)).unwrap_or(0);
        let mut found = self.uploads(&bucket).await?;
        found.retain(|upload| {
            let is_after = upload.key > key_marker || upload.key == key_marker && upload.id > id_marker;
            upload.key.starts_with(&prefix) && (is_after || key_marker.is_empty())
        });
        found.sort_by(|one, other| (&one.key, &one.id).cmp(&(&other.key, &other.id)));
        let mut prefixes: Vec<String> = Vec::new();
        let mut uploads = Vec::new();
        let mut last: Option<(String, String)> = None;
        let mut is_truncated = false;
        for upload in found {
            let common = common_prefix(upload.key.as_bytes(), prefix.as_bytes(), delimiter.as_bytes());
            let common = common.and_then(|common| String::from_utf8(common).ok());
            if common.is_some() && common.as_ref() == prefixes.last() {
                last = Some((upload.key, upload.id));
                continue;
            }
            if uploads.len() + prefixes.len() == max {
                is_truncated = true;
                break;
            }
            last = Some((upload.key.clone(), upload.id.clone()));
            match common {
                Some(common) => prefixes.push(common),
                None => uploads.push(MultipartUpload {
                    key: Some(told(upload.key)),
                    upload_id: Some(upload.id),
                    initiated: Some(upload.begun),
                    initiator: Some(self.initiator()),
                    owner: Some(self.owner()),
                    storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
                    ..MultipartUpload::default()
                }),
            }
        }
        let last = last.filter(|_| is_truncated);
        Ok(ListMultipartUploadsOutput {
            bucket: Some(input.bucket),
            uploads: Some(uploads),
            common_prefixes: Some(
                prefixes.into_iter().map(|prefix| CommonPrefix { prefix: Some(told(prefix)) }).collect(),
            ),
            prefix: input.prefix.map(told),
            delimiter: input.delimiter.map(told),
            key_marker: Some(told(key_marker)),
            upload_id_marker: Some(id_marker),
            next_key_marker: last.as_ref().map(|(key, _)| told(key.clone())),
            next_upload_id_marker: last.map(|(_, id)| id),
            max_uploads: i32::try_from(max).ok(),
            is_truncated: Some(is_truncated),
            encoding_type: input.encoding_type,
            ..ListMultipartUploadsOutput::default()
        })
    }

    async fn uploads(&self, bucket: &OpenBucket) -> S3Result<Vec<UploadRecord>> {
        let (vfs, caller) = (&self.shared.vfs, self.caller());
        let dir = match vfs.lookup(caller, bucket.root.id, &internal_name(UPLOADS)).await {
            Ok(dir) => dir.id,
            Err(e) if resolve::is_gone(&e) => return Ok(Vec::new()),
            Err(e) => return Err(s3_error(e)),
        };
        let mut uploads = Vec::new();
        for name in names_in(vfs, caller, dir).await.map_err(s3_error)?.into_iter().take(UPLOADS_MAX) {
            let Ok(id) = std::str::from_utf8(name.as_bytes()) else { continue };
            match self.find_upload(bucket, id).await {
                Ok(upload) => uploads.push(upload),
                Err(e) if *e.code() == S3ErrorCode::NoSuchUpload => {}
                Err(e) => return Err(e),
            }
        }
        Ok(uploads)
    }
}
