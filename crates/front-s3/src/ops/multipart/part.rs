//! UploadPart and UploadPartCopy.

use http::HeaderMap;
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Response};
use types::{CreateHow, SetAttr};
use vfs::Node;

use super::{DATA, UploadRecord, internal_name, part_number, upload_error};
use crate::access_keys::Right;
use crate::checksums::{BodyChecksums, ComputedChecksums};
use crate::errors::{S3Result, invalid};
use crate::object::{Conditions, last_modified};
use crate::ops::copy::copy_into;
use crate::ops::get::{RangeReader, object_size};
use crate::ops::put::{PUT_BYTES_MAX, receive_body};
use crate::ops::{RequestContext, to_i64};
use crate::part_checksums::{ChecksumFields, PartChecksum};
use crate::part_layout::{PartLayout, PartPlace, StoredPart};
use crate::range::for_copy;
use crate::sigv4::hex;
use crate::staged_file::StagedFile;
use crate::unique_ids::now_nanos;

impl RequestContext {
    pub async fn upload_part(
        &self,
        input: UploadPartInput,
        headers: &HeaderMap,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let bucket = self.bucket(&input.bucket, Right::Write).await?;
        let upload = self.upload(&bucket, &input.upload_id, &input.key).await?;
        let number = part_number(input.part_number)?;
        let length = input.content_length.ok_or(S3ErrorCode::MissingContentLength)?;
        if length > PUT_BYTES_MAX {
            return Err(S3ErrorCode::EntityTooLarge.into());
        }
        let sums = BodyChecksums::new(headers, self.requester.trailer.clone())?.with(upload.algorithm());
        let body = input.body;
        let length = u64::try_from(length).unwrap_or(0);
        let write = async |staged: &mut StagedFile| receive_body(staged, body, sums).await;
        let (summed, _) = self.receive_part(&upload, number, length, write).await?;
        let etag = Some(ETag::Strong(hex(&summed.md5)));
        let output = UploadPartOutput { e_tag: etag, ..UploadPartOutput::default() };
        Ok(S3Response::with_headers(output, summed.headers()))
    }

    pub async fn upload_part_copy(&self, input: UploadPartCopyInput) -> S3Result<UploadPartCopyOutput> {
        let bucket = self.bucket(&input.bucket, Right::Write).await?;
        let upload = self.upload(&bucket, &input.upload_id, &input.key).await?;
        let number = part_number(input.part_number)?;
        let conditions = Conditions {
            if_match: input.copy_source_if_match,
            if_none_match: input.copy_source_if_none_match,
            if_modified_since: input.copy_source_if_modified_since,
            if_unmodified_since: input.copy_source_if_unmodified_since,
            ..Conditions::default()
        };
        let source = self.source(&input.copy_source, &conditions).await?;
        let size = object_size(&source);
        let range = input.copy_source_range.as_deref().map(|range| for_copy(range, size)).transpose();
        let range = range.map_err(|fault| invalid(fault.why()))?.unwrap_or(0..size);
        let length = range.end - range.start;
        if to_i64(length) > PUT_BYTES_MAX {
            return Err(S3ErrorCode::EntityTooLarge.into());
        }
        let bytes = RangeReader::new(&self.shared.vfs, self.caller(), source.node, range);
        let algorithm = upload.algorithm();
        let write = async |staged: &mut StagedFile| copy_into(bytes, staged, algorithm).await;
        let (summed, node) = self.receive_part(&upload, number, length, write).await?;
        let sums = ChecksumFields::of_headers(&summed.checksums);
        let result = CopyPartResult {
            e_tag: Some(ETag::Strong(hex(&summed.md5))),
            last_modified: Some(last_modified(&node)),
            checksum_crc32: sums.crc32,
            checksum_crc32c: sums.crc32c,
            checksum_crc64nvme: sums.crc64nvme,
            checksum_sha1: sums.sha1,
            checksum_sha256: sums.sha256,
        };
        Ok(UploadPartCopyOutput { copy_part_result: Some(result), ..UploadPartCopyOutput::default() })
    }

    /// Receives a part of `length` bytes, which `write` stores. Returns when its mark exists.
    async fn receive_part(
        &self,
        upload: &UploadRecord,
        number: u32,
        length: u64,
        write: impl AsyncFnOnce(&mut StagedFile) -> S3Result<ComputedChecksums>,
    ) -> S3Result<(ComputedChecksums, Node)> {
        let (place, sequence) = self.assign_place(upload, number, length).await?;
        let taken = self.write_part(upload, (number, sequence), place, write).await;
        if taken.is_err() {
            // If the upload has ended meanwhile, that is the reason to report.
            drop(upload.write_guard().await?);
            if place != PartPlace::Own {
                self.release_slot(upload, number).await;
            }
        }
        taken
    }

    async fn write_part(
        &self,
        upload: &UploadRecord,
        (number, sequence): (u32, u64),
        place: PartPlace,
        write: impl AsyncFnOnce(&mut StagedFile) -> S3Result<ComputedChecksums>,
    ) -> S3Result<(ComputedChecksums, Node)> {
        let (vfs, caller) = (&self.shared.vfs, self.caller());
        let not_ended = upload.write_guard().await?;
        let staged = match place {
            PartPlace::Slot(offset) => {
                let data =
                    vfs.lookup(caller, upload.dir, &internal_name(DATA)).await.map_err(upload_error)?;
                StagedFile::at_offset(vfs, caller, (upload.dir, internal_name(DATA)), data.id, offset)
            }
            PartPlace::Own => {
                let name = internal_name(&StoredPart::own_file(number, sequence));
                StagedFile::create(vfs, caller, upload.dir, name).await.map_err(upload_error)?
            }
        };
        drop(not_ended);
        let mut staged = staged.fenced_by(&upload.ongoing.fence);
        let written = write(&mut staged).await;
        let summed = match written {
            Ok(summed) => summed,
            Err(e) => {
                if place == PartPlace::Own {
                    staged.discard().await;
                }
                return Err(e);
            }
        };
        self.shared.metrics.written_bytes.inc_by(staged.length());
        let sum = PartChecksum::of(&summed.checksums, upload.algorithm());
        let part = StoredPart { number, sequence, size: staged.length(), md5: summed.md5, place, sum };
        let set = SetAttr { mode: Some(0o644), ..SetAttr::default() };
        let mark = internal_name(&part.mark_name());
        let _not_ended = upload.write_guard().await?;
        let made =
            vfs.create(caller, upload.dir, &mark, CreateHow::Guarded, set).await.map_err(upload_error)?;
        Ok((summed, made.node))
    }

    async fn assign_place(
        &self,
        upload: &UploadRecord,
        number: u32,
        length: u64,
    ) -> S3Result<(PartPlace, u64)> {
        let mut layout = upload.ongoing.layout.lock().await;
        if layout.is_none() {
            let parts = self.parts(upload.dir).await?;
            *layout = Some(PartLayout::of(parts.iter().map(|(part, _)| part)));
        }
        let layout = layout.get_or_insert_with(PartLayout::default);
        Ok((layout.place(number, length), layout.sequence(now_nanos())))
    }

    async fn release_slot(&self, upload: &UploadRecord, number: u32) {
        if let Some(layout) = upload.ongoing.layout.lock().await.as_mut() {
            layout.release_slot(number);
        }
    }
}
