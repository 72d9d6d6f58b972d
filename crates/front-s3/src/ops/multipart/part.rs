//! UploadPart and UploadPartCopy.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fair::MemoryPermit;
use http::HeaderMap;
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Response};
use types::{CreateHow, SetAttr};
use vfs::Node;

use super::part_layout::{PartLayout, PartPlace, PartTarget, StoredPart};
use super::staged_part::{HeldPart, PartFate, StagedPart};
use super::{DATA, HELD_PART_BYTES_MAX, UploadRecord, internal_name, part_number, upload_error};
use crate::access_keys::Right;
use crate::checksums::{BodyChecksums, ComputedChecksums};
use crate::errors::{S3Result, invalid, s3_error};
use crate::object::{Conditions, last_modified};
use crate::ops::copy::copy_into;
use crate::ops::get::{RangeReader, object_size};
use crate::ops::put::{PUT_BYTES_MAX, receive_body};
use crate::ops::{RequestContext, to_i64};
use crate::part_checksums::{ChecksumFields, PartChecksum};
use crate::range::for_copy;
use crate::sigv4::hex;
use crate::staged_file::StagedFile;
use crate::unique_ids::now_nanos;

/// The longest wait for room to hold a part.
const ROOM_PATIENCE: Duration = Duration::from_secs(10);

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
        let write = async |staged: &mut StagedPart| receive_body(staged, body, sums).await;
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
        let write = async |staged: &mut StagedPart| copy_into(bytes, staged, algorithm).await;
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
        write: impl AsyncFnOnce(&mut StagedPart) -> S3Result<ComputedChecksums>,
    ) -> S3Result<(ComputedChecksums, Node)> {
        let permit = self.permit_to_hold(upload, length).await;
        let (target, sequence) = self.assign_place(upload, (number, length), permit.is_some()).await?;
        let place = (target, permit.map(|permit| (length, permit)));
        let mut fate = PartFate::default();
        let taken = self.write_part(upload, (number, sequence), place, write, &mut fate).await;
        if taken.is_err() {
            // If the upload has ended meanwhile, that is the reason to report.
            drop(upload.write_guard().await?);
            if target != PartTarget::Own {
                self.settle_place(upload, number, fate).await;
            }
        }
        taken
    }

    async fn write_part(
        &self,
        upload: &UploadRecord,
        (number, sequence): (u32, u64),
        (target, permit): (PartTarget, Option<(u64, MemoryPermit)>),
        write: impl AsyncFnOnce(&mut StagedPart) -> S3Result<ComputedChecksums>,
        fate: &mut PartFate,
    ) -> S3Result<(ComputedChecksums, Node)> {
        let (vfs, caller) = (&self.shared.vfs, self.caller());
        let not_ended = upload.write_guard().await?;
        let copies = upload.ongoing.copies.load(Ordering::SeqCst);
        let fence = &upload.ongoing.fence;
        let mut staged = match (target, &upload.at_origin, permit) {
            (PartTarget::Slot(offset), ..) => {
                let data =
                    vfs.lookup(caller, upload.dir, &internal_name(DATA)).await.map_err(upload_error)?;
                let data = (upload.dir, internal_name(DATA), data.id);
                let file = StagedFile::at_offset(vfs, caller, (data.0, data.1), data.2, offset);
                StagedPart::File(Box::new(file.fenced_by(fence)), PartPlace::Slot(offset))
            }
            (PartTarget::AtOrigin, Some(file), Some(permit)) => {
                StagedPart::Held(HeldPart::new(vfs, (upload.dir, file.clone()), number, permit, fence))
            }
            (PartTarget::Own | PartTarget::AtOrigin, ..) => {
                let name = internal_name(&StoredPart::own_file(number, sequence));
                let file = StagedFile::create(vfs, caller, upload.dir, name).await.map_err(upload_error)?;
                StagedPart::File(Box::new(file.fenced_by(fence)), PartPlace::Own)
            }
        };
        drop(not_ended);
        let written = write(&mut staged).await;
        let summed = match written {
            Ok(summed) => summed,
            Err(e) => {
                let is_gone = staged.is_gone();
                *fate = staged.fate();
                staged.discard().await;
                return Err(if is_gone { S3ErrorCode::NoSuchUpload.into() } else { e });
            }
        };
        self.shared.metrics.written_bytes.inc_by(staged.length());
        let sum = PartChecksum::of(&summed.checksums, upload.algorithm());
        let place = staged.place().map_err(s3_error)?;
        let part = StoredPart { number, sequence, size: staged.length(), md5: summed.md5, place, sum };
        let set = SetAttr { mode: Some(0o644), ..SetAttr::default() };
        let mark = internal_name(&part.mark_name());
        let _not_ended = upload.write_guard().await?;
        if target == PartTarget::AtOrigin && upload.ongoing.copies.load(Ordering::SeqCst) != copies {
            // An older part of the number may have been copied over it, by a completion that was refused since.
            return Err(S3ErrorCode::SlowDown.into());
        }
        let made =
            vfs.create(caller, upload.dir, &mark, CreateHow::Guarded, set).await.map_err(upload_error)?;
        Ok((summed, made.node))
    }

    /// Room for a part that is held until it can be sent to the origin. `None`: it goes into a file.
    async fn permit_to_hold(&self, upload: &UploadRecord, length: u64) -> Option<MemoryPermit> {
        let length = usize::try_from(length).ok().filter(|length| *length <= HELD_PART_BYTES_MAX)?;
        upload.at_origin.as_ref()?;
        upload.ongoing.room.take(&self.requester.peer.parts, length, ROOM_PATIENCE).await
    }

    async fn assign_place(
        &self,
        upload: &UploadRecord,
        (number, length): (u32, u64),
        may_be_held: bool,
    ) -> S3Result<(PartTarget, u64)> {
        let mut layout = upload.ongoing.layout.lock().await;
        if layout.is_none() {
            let parts = self.parts(upload.dir).await?;
            *layout = Some(PartLayout::of(parts.iter().map(|(part, _)| part)));
        }
        let layout = layout.get_or_insert_with(PartLayout::default);
        let target = match (&upload.at_origin, may_be_held) {
            (None, _) => layout.place(number, length),
            (Some(_), true) => layout.place_at_origin(number),
            (Some(_), false) => PartTarget::Own,
        };
        Ok((target, layout.sequence(now_nanos())))
    }

    /// Frees the place of a part that was not taken, if nothing of it can come there any more.
    async fn settle_place(&self, upload: &UploadRecord, number: u32, fate: PartFate) {
        let mut layout = upload.ongoing.layout.lock().await;
        let Some(layout) = layout.as_mut() else { return };
        match fate {
            PartFate::NotStored => layout.release_slot(number),
            PartFate::Unknown => {}
            PartFate::NotNoted => layout.use_own_files(),
        }
    }
}
