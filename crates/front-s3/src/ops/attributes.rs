//! GetObjectAttributes.

use s3s::S3ErrorCode;
use s3s::dto::*;

use super::get::object_size;
use super::{RequestContext, require_null_version, to_i64};
use crate::access_keys::Right;
use crate::errors::S3Result;
use crate::internal_headers;
use crate::object::S3Object;
use crate::part_checksums::{Algorithm, ChecksumFields};

/// The most parts in one answer.
const PARTS_MAX: i32 = 1000;

impl RequestContext {
    pub async fn attributes(&self, input: GetObjectAttributesInput) -> S3Result<GetObjectAttributesOutput> {
        require_null_version(input.version_id.as_deref())?;
        let bucket = self.bucket(&input.bucket, Right::Read).await?;
        let object = self.object(&bucket, &input.key).await?;
        let mut output = GetObjectAttributesOutput {
            last_modified: Some(object.last_modified()),
            ..GetObjectAttributesOutput::default()
        };
        // Clients send the names in one header with commas, or in several headers.
        let lines = input.object_attributes.iter().map(ObjectAttributes::as_str);
        for wanted in lines.flat_map(|line| line.split(',')).map(str::trim) {
            match wanted {
                ObjectAttributes::ETAG => output.e_tag = Some(object.etag()),
                ObjectAttributes::CHECKSUM => output.checksum = checksum(&object),
                ObjectAttributes::OBJECT_PARTS => {
                    output.object_parts = parts(&object, input.max_parts, input.part_number_marker);
                }
                ObjectAttributes::OBJECT_SIZE => output.object_size = Some(to_i64(object_size(&object))),
                ObjectAttributes::STORAGE_CLASS => {
                    output.storage_class = Some(StorageClass::from_static(StorageClass::STANDARD));
                }
                _ => return Err(S3ErrorCode::InvalidArgument.into()),
            }
        }
        Ok(output)
    }
}

fn checksum(object: &S3Object) -> Option<Checksum> {
    let sums = ChecksumFields::of_headers(&object.headers);
    sums.all().next()?;
    let kind = object.headers.iter().find(|(name, _)| name == "x-amz-checksum-type");
    let kind = kind.map_or(ChecksumType::FULL_OBJECT.to_owned(), |(_, kind)| kind.clone());
    Some(Checksum {
        checksum_crc32: sums.crc32,
        checksum_crc32c: sums.crc32c,
        checksum_crc64nvme: sums.crc64nvme,
        checksum_sha1: sums.sha1,
        checksum_sha256: sums.sha256,
        checksum_type: Some(ChecksumType::from(kind)),
    })
}

/// The parts of an object that is known to have been uploaded in parts.
fn parts(object: &S3Object, max: Option<i32>, marker: Option<i32>) -> Option<GetObjectAttributesParts> {
    let sizes = internal_headers::parts(&object.headers)
        .filter(|sizes| sizes.iter().sum::<u64>() == object_size(object))?;
    let sums = internal_headers::part_sums(&object.headers);
    let algorithm = object.headers.iter().find_map(|(name, _)| Algorithm::of_header(name));
    let max = max.unwrap_or(PARTS_MAX).clamp(0, PARTS_MAX);
    let after = usize::try_from(marker.unwrap_or(0)).unwrap_or(0).min(sizes.len());
    let end = sizes.len().min(after + usize::try_from(max).unwrap_or(0));
    let part = |at: usize| {
        let sum =
            algorithm.zip(sums.get(at)).map(|(algorithm, sum)| ChecksumFields::of(algorithm, sum.clone()));
        let sum = sum.unwrap_or_default();
        ObjectPart {
            part_number: i32::try_from(at + 1).ok(),
            size: Some(to_i64(sizes[at])),
            checksum_crc32: sum.crc32,
            checksum_crc32c: sum.crc32c,
            checksum_crc64nvme: sum.crc64nvme,
            checksum_sha1: sum.sha1,
            checksum_sha256: sum.sha256,
        }
    };
    let number = |at: usize| i32::try_from(at).ok();
    Some(GetObjectAttributesParts {
        is_truncated: Some(end < sizes.len()),
        max_parts: Some(max),
        next_part_number_marker: number(end),
        part_number_marker: number(after),
        parts: Some((after..end).map(part).collect()),
        total_parts_count: number(sizes.len()),
    })
}
