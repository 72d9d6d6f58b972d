//! Taking parts: from a body, or from a range of another object.

use http::HeaderMap;
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Response};
use types::{CreateHow, SetAttr};
use vfs::Node;

use super::{DATA, Upload, no_upload, own_name, part_number};
use crate::checksums::{Summed, Sums};
use crate::draft::{Draft, now_nanos};
use crate::errors::{Result, invalid};
use crate::keys::Right;
use crate::layout::{Layout, Part, Place};
use crate::object::{Conditions, last_modified};
use crate::ops::copy::pour;
use crate::ops::get::{Source, size_of};
use crate::ops::put::{PUT_BYTES_MAX, fill};
use crate::ops::{Work, signed};
use crate::partsums::{PartSum, SumFields};
use crate::range::of_copy;
use crate::verify::hex;

impl Work {
    pub async fn upload_part(
        &self,
        input: UploadPartInput,
        headers: &HeaderMap,
    ) -> Result<S3Response<UploadPartOutput>> {
        let bucket = self.bucket(&input.bucket, Right::Write).await?;
        let upload = self.upload(&bucket, &input.upload_id, &input.key).await?;
        let number = part_number(input.part_number)?;
        let length = input.content_length.ok_or(S3ErrorCode::MissingContentLength)?;
        if length > PUT_BYTES_MAX {
            return Err(S3ErrorCode::EntityTooLarge.into());
        }
        let sums = Sums::new(headers, self.asker.trailer.clone())?.with(upload.algorithm());
        let body = input.body;
        let length = u64::try_from(length).unwrap_or(0);
        let write = async |draft: &mut Draft| fill(draft, body, sums).await;
        let (summed, _) = self.take_part(&upload, number, length, write).await?;
        let etag = Some(ETag::Strong(hex(&summed.md5)));
        let output = UploadPartOutput { e_tag: etag, ..UploadPartOutput::default() };
        Ok(S3Response::with_headers(output, summed.headers()))
    }

    pub async fn upload_part_copy(&self, input: UploadPartCopyInput) -> Result<UploadPartCopyOutput> {
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
        let size = size_of(&source);
        let range = input.copy_source_range.as_deref().map(|range| of_copy(range, size)).transpose();
        let range = range.map_err(|fault| invalid(fault.why()))?.unwrap_or(0..size);
        let length = range.end - range.start;
        if signed(length) > PUT_BYTES_MAX {
            return Err(S3ErrorCode::EntityTooLarge.into());
        }
        let bytes = Source::new(&self.shared.vfs, self.caller(), source.node, range);
        let algorithm = upload.algorithm();
        let write = async |draft: &mut Draft| pour(bytes, draft, algorithm).await;
        let (summed, node) = self.take_part(&upload, number, length, write).await?;
        let sums = SumFields::of_headers(&summed.checksums);
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

    /// A part of `length` bytes, which `write` stores. Returns when its mark is there.
    async fn take_part(
        &self,
        upload: &Upload,
        number: u32,
        length: u64,
        write: impl AsyncFnOnce(&mut Draft) -> Result<Summed>,
    ) -> Result<(Summed, Node)> {
        let (place, sequence) = self.place(upload, number, length).await?;
        let taken = self.write_part(upload, (number, sequence), place, write).await;
        if taken.is_err() {
            // However it failed, this is why.
            drop(upload.not_ended().await?);
            if place != Place::Own {
                self.give_back(upload, number).await;
            }
        }
        taken
    }

    async fn write_part(
        &self,
        upload: &Upload,
        (number, sequence): (u32, u64),
        place: Place,
        write: impl AsyncFnOnce(&mut Draft) -> Result<Summed>,
    ) -> Result<(Summed, Node)> {
        let (vfs, caller) = (&self.shared.vfs, self.caller());
        let not_ended = upload.not_ended().await?;
        let draft = match place {
            Place::Slot(offset) => {
                let data = vfs.lookup(caller, upload.dir, &own_name(DATA)).await.map_err(no_upload)?;
                Draft::part(vfs, caller, (upload.dir, own_name(DATA)), data.id, offset)
            }
            Place::Own => {
                let name = own_name(&Part::own_file(number, sequence));
                Draft::create(vfs, caller, upload.dir, name).await.map_err(no_upload)?
            }
        };
        drop(not_ended);
        let mut draft = draft.until(&upload.ongoing.ending);
        let written = write(&mut draft).await;
        let summed = match written {
            Ok(summed) => summed,
            Err(e) => {
                if place == Place::Own {
                    draft.discard().await;
                }
                return Err(e);
            }
        };
        self.shared.metrics.written_bytes.inc_by(draft.length());
        let sum = PartSum::of(&summed.checksums, upload.algorithm());
        let part = Part { number, sequence, size: draft.length(), md5: summed.md5, place, sum };
        let set = SetAttr { mode: Some(0o644), ..SetAttr::default() };
        let mark = own_name(&part.mark());
        let _not_ended = upload.not_ended().await?;
        let made = vfs.create(caller, upload.dir, &mark, CreateHow::Guarded, set).await.map_err(no_upload)?;
        Ok((summed, made.node))
    }

    async fn place(&self, upload: &Upload, number: u32, length: u64) -> Result<(Place, u64)> {
        let mut layout = upload.ongoing.layout.lock().await;
        if layout.is_none() {
            let parts = self.parts(upload.dir).await?;
            *layout = Some(Layout::of(parts.iter().map(|(part, _)| part)));
        }
        let layout = layout.get_or_insert_with(Layout::default);
        Ok((layout.place(number, length), layout.sequence(now_nanos())))
    }

    async fn give_back(&self, upload: &Upload, number: u32) {
        if let Some(layout) = upload.ongoing.layout.lock().await.as_mut() {
            layout.give_back(number);
        }
    }
}
