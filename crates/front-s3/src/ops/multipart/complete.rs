//! CompleteMultipartUpload: the stored parts become one object.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use md5::{Digest, Md5};
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode};
use tokio::task::{JoinError, JoinSet};
use types::{ErrorKind, FileId, Name};
use vfs::{Node, PartReceipt, PartedFile};

use super::part_layout::{PART_BYTES_MIN, PartPlace, StoredPart, is_in_place, newest_by_number};
use super::{DATA, KIND, UploadRecord, internal_name, part_number, upload_error};
use crate::access_keys::Right;
use crate::completed_uploads::{self, CompletedUpload};
use crate::errors::{S3Result, s3_error};
use crate::internal_headers;
use crate::metadata_store::Headers;
use crate::object::Conditions;
use crate::object_key::ObjectKey;
use crate::ops::copy::copy_into;
use crate::ops::get::RangeReader;
use crate::ops::{RequestContext, to_i64};
use crate::part_checksums::{Algorithm, ChecksumFields, PartChecksum, UploadChecksum};
use crate::resolve::{self, OpenBucket};
use crate::sigv4::{encode, hex};
use crate::staged_file::{StagedFile, published_node};
use crate::staged_object::{ByteSink, PublishMode, StagedObject};

/// The most parts that are copied at a time.
const COPIES_MAX: usize = 8;

/// What is to become of an upload: these parts of it, in order, the object of that key.
struct Completion<'a> {
    bucket: &'a OpenBucket,
    key: &'a ObjectKey,
    upload: &'a UploadRecord,
    parts: &'a [StoredPart],
    conditions: &'a Conditions,
}

impl RequestContext {
    /// Completes an upload. A repeated request (its answer was lost) gets the first answer again.
    pub async fn complete_upload(
        &self,
        input: CompleteMultipartUploadInput,
    ) -> S3Result<CompleteMultipartUploadOutput> {
        let again = CompletionIdentity::of(&input);
        match self.complete_once(input).await {
            Err(e) if *e.code() == S3ErrorCode::NoSuchUpload => {
                self.repeated_completion(again).await.ok_or(e)
            }
            other => other,
        }
    }

    async fn repeated_completion(&self, again: CompletionIdentity) -> Option<CompleteMultipartUploadOutput> {
        let shared = self.shared.clone();
        let id = crate::sigv4::unhex(&again.id)?;
        let read =
            tokio::task::spawn_blocking(move || shared.metadata.completed(id, completed_uploads::now()));
        let known = read.await.ok()??;
        let is_same = (&known.bucket, &known.key, Some(&known.etag))
            == (&again.bucket, &again.key, again.etag.as_ref());
        is_same.then(|| completion_output(known))
    }

    async fn complete_once(
        &self,
        input: CompleteMultipartUploadInput,
    ) -> S3Result<CompleteMultipartUploadOutput> {
        let bucket = self.bucket(&input.bucket, Right::Write).await?;
        let key = resolve::parse_key(&input.key)?;
        let conditions = Conditions {
            if_match: input.if_match,
            if_none_match: input.if_none_match,
            ..Conditions::default()
        };
        let input_sums = ChecksumFields {
            crc32: input.checksum_crc32,
            crc32c: input.checksum_crc32c,
            crc64nvme: input.checksum_crc64nvme,
            sha1: input.checksum_sha1,
            sha256: input.checksum_sha256,
        };
        let upload = self.upload(&bucket, &input.upload_id, &input.key).await?;
        let ongoing = upload.ongoing.clone();
        let mut has_ended = ongoing.fence.lock_to_end().await.ok_or(S3ErrorCode::NoSuchUpload)?;
        let stored = newest_by_number(self.parts(upload.dir).await?.into_iter().map(|(part, _)| part));
        let wanted = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        let parts = select_parts(&stored, &wanted)?;
        let size: u64 = parts.iter().map(|part| part.size).sum();
        if input.mpu_object_size.is_some_and(|said| said != to_i64(size)) {
            let message = "the parts are not as long as x-amz-mp-object-size says";
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, message));
        }
        let sum = object_checksum(&upload, &input_sums, input.checksum_type.as_ref(), &parts)?;
        let completion = Completion {
            bucket: &bucket,
            key: &key,
            upload: &upload,
            parts: &parts,
            conditions: &conditions,
        };
        let node = match &upload.at_origin {
            Some(file) => self.publish_at_origin(&completion, file).await?,
            None => self.publish_assembled(&completion).await?,
        };
        *has_ended = true;
        let etag = etag_of(parts.iter().map(|part| part.md5));
        let checksums = sum.as_ref().map_or(Headers::new(), |(checksum, value)| {
            vec![
                (checksum.algorithm.header().to_owned(), value.clone()),
                (KIND.to_owned(), checksum.kind.name().to_owned()),
            ]
        });
        let completed = CompletedUpload {
            bucket: input.bucket,
            key: input.key,
            etag: etag.clone(),
            checksums: checksums.clone(),
        };
        self.record_completed(&upload.id, completed.clone()).await;
        let mut headers: Headers = upload.headers.iter().cloned().chain(checksums).collect();
        let sizes: Vec<u64> = parts.iter().map(|part| part.size).collect();
        let algorithm = sum.map(|(checksum, _)| checksum.algorithm);
        internal_headers::put_parts(
            &mut headers,
            &sizes,
            algorithm.and_then(|algorithm| checksums_by(algorithm, &parts)),
        );
        self.store_metadata(node, etag, headers).await;
        self.discard_upload(&bucket, upload).await;
        Ok(completion_output(completed))
    }

    /// Records the answer before anything of the upload is removed, for a repeated request.
    async fn record_completed(&self, id: &str, completed: CompletedUpload) {
        let Some(id) = crate::sigv4::unhex(id) else { return };
        let shared = self.shared.clone();
        let noted = tokio::task::spawn_blocking(move || {
            shared.metadata.record_completed(id, &completed, completed_uploads::now())
        });
        let _ = noted.await; // it said so itself if it failed
    }

    /// Completes the upload at the origin: no byte of what was sent there moves. Where that was done before, and the
    /// answer was lost, the object is found, whatever the conditions say of it.
    async fn publish_at_origin(
        &self,
        completion: &Completion<'_>,
        file: &PartedFile,
    ) -> S3Result<Option<Node>> {
        let published = self.publish_parts(completion, file).await;
        let Err(refusal) = published else { return published };
        if *refusal.code() != S3ErrorCode::PreconditionFailed {
            return Err(refusal);
        }
        let unknown = |part: &StoredPart| PartReceipt::unknown(part.number, part.size);
        let receipts: Vec<_> = completion.parts.iter().map(unknown).collect();
        let completion = Completion { conditions: &Conditions::default(), ..*completion };
        match self.publish_receipts(&completion, file, &receipts).await {
            Err(e) if *e.code() == S3ErrorCode::NoSuchUpload => Err(refusal),
            found => found,
        }
    }

    async fn publish_parts(&self, completion: &Completion<'_>, file: &PartedFile) -> S3Result<Option<Node>> {
        let Completion { bucket, key, conditions, .. } = *completion;
        // Before anything is copied or made; they are checked again when the object takes its key.
        self.check_conditions(bucket, key, conditions).await?;
        let receipts = self.receipts(completion, file).await?;
        self.publish_receipts(completion, file, &receipts).await
    }

    async fn publish_receipts(
        &self,
        completion: &Completion<'_>,
        file: &PartedFile,
        receipts: &[PartReceipt],
    ) -> S3Result<Option<Node>> {
        let Completion { bucket, key, conditions, .. } = *completion;
        let place = (bucket.root.id, key.dirs.as_slice(), &key.name);
        let (vfs, caller) = (&self.shared.vfs, self.caller());
        let published = match StagedObject::of_parts(vfs, caller, place, file, receipts).await {
            Ok(staged) => self.publish(bucket, key, staged, conditions).await,
            Err(e) => {
                self.remove_empty(bucket, key).await;
                Err(s3_error(e))
            }
        };
        published.map_err(|e| match e.code() {
            // The store has given up the upload, or the bucket's directory has another place since.
            S3ErrorCode::InvalidArgument => S3ErrorCode::NoSuchUpload.into(),
            _ => e,
        })
    }

    /// The receipts of all parts in order. What lies in a file of its own is copied at the origin first; where that
    /// cannot be, since the origin has the upload no more, its receipt is unknown: the upload may have been completed.
    async fn receipts(&self, completion: &Completion<'_>, file: &PartedFile) -> S3Result<Vec<PartReceipt>> {
        let Completion { upload, parts, .. } = *completion;
        let mut receipts = Vec::with_capacity(parts.len());
        let mut copies = JoinSet::new();
        for part in parts {
            let (number, size) = (part.number, part.size);
            match &part.place {
                PartPlace::AtOrigin(receipt) => {
                    receipts.push(PartReceipt { number, size, receipt: receipt.clone() });
                }
                PartPlace::Own => {
                    upload.ongoing.copies.fetch_add(1, Ordering::SeqCst);
                    if copies.len() >= COPIES_MAX {
                        receipts.extend(joined(copies.join_next().await)?);
                    }
                    let (vfs, caller, dir) = (self.shared.vfs.clone(), self.caller().clone(), upload.dir);
                    let name = internal_name(&StoredPart::own_file(number, part.sequence));
                    let file = file.clone();
                    copies.spawn(async move {
                        let own = vfs.lookup(&caller, dir, &name).await?;
                        match vfs.copy_part(&file, number, own.id).await {
                            Ok(receipt) => Ok(PartReceipt { number, size, receipt }),
                            Err(e) if resolve::is_gone(&e) => Ok(PartReceipt::unknown(number, size)),
                            Err(e) => Err(e),
                        }
                    });
                }
                PartPlace::Slot(_) => return Err(S3ErrorCode::NoSuchUpload.into()),
            }
        }
        while !copies.is_empty() {
            receipts.extend(joined(copies.join_next().await)?);
        }
        receipts.sort_by_key(|part| part.number);
        Ok(receipts)
    }

    /// The same where the parts lie in files: one that has all bytes takes the key.
    async fn publish_assembled(&self, completion: &Completion<'_>) -> S3Result<Option<Node>> {
        let Completion { bucket, key, upload, parts, .. } = *completion;
        let whole = self.assemble(upload, parts).await?;
        let name = whole.0.clone();
        let published_node = self.publish_whole(completion, whole).await;
        if published_node.is_err() {
            self.remove_empty(bucket, key).await;
            if name != internal_name(DATA) {
                // It may have been renamed to the key by now.
                let _ = self.shared.vfs.remove(self.caller(), upload.dir, &name).await;
            }
        }
        published_node
    }

    /// Returns the file that holds all bytes in order, with its name in the upload's directory; copies the parts if
    /// they are not in place.
    async fn assemble(&self, upload: &UploadRecord, parts: &[StoredPart]) -> S3Result<(Name, FileId)> {
        let (vfs, caller) = (&self.shared.vfs, self.caller());
        let data = vfs.lookup(caller, upload.dir, &internal_name(DATA)).await.map_err(upload_error)?;
        let size: u64 = parts.iter().map(|part| part.size).sum();
        // A data file with unselected parts at its end is not truncated: this completion may yet fail, and another
        // may select them.
        if is_in_place(parts.iter()) && data.attr.size == size {
            return Ok((internal_name(DATA), data.id));
        }
        let name = internal_name(&format!("whole.{}", self.shared.ids.next()));
        let mut staged = StagedFile::create(vfs, caller, upload.dir, name.clone()).await.map_err(s3_error)?;
        if let Err(e) = self.copy_parts(upload, parts, &data, &mut staged).await {
            staged.discard().await;
            return Err(e);
        }
        Ok((name, staged.id()))
    }

    /// Copies the parts, in order, into `staged`.
    async fn copy_parts(
        &self,
        upload: &UploadRecord,
        parts: &[StoredPart],
        data: &Node,
        staged: &mut impl ByteSink,
    ) -> S3Result<()> {
        let (vfs, caller) = (&self.shared.vfs, self.caller());
        for part in parts {
            let (node, start) = match part.place {
                PartPlace::Slot(offset) => (data.clone(), offset),
                PartPlace::AtOrigin(_) => return Err(S3ErrorCode::NoSuchUpload.into()),
                PartPlace::Own => {
                    let name = internal_name(&StoredPart::own_file(part.number, part.sequence));
                    (vfs.lookup(caller, upload.dir, &name).await.map_err(s3_error)?, 0)
                }
            };
            let mut source = RangeReader::new(vfs, caller, node, start..start + part.size);
            loop {
                let bytes = source.next().await?;
                if bytes.is_empty() {
                    break;
                }
                staged.append(bytes).await.map_err(s3_error)?;
            }
        }
        staged.store().await.map_err(s3_error)
    }

    async fn publish_whole(
        &self,
        completion: &Completion<'_>,
        (name, id): (Name, FileId),
    ) -> S3Result<Option<Node>> {
        let Completion { bucket, key, conditions, .. } = *completion;
        let vfs = &self.shared.vfs;
        let mut tries = 0;
        loop {
            tries += 1;
            match self.claim_key(completion, &name, id).await? {
                Ok(()) => return Ok(published_node(vfs, id).await),
                // The directory was removed with its last object, just before this one arrived.
                Err(e) if resolve::is_gone(&e) && tries < resolve::TRIES_MAX => {}
                Err(e) if resolve::is_gone(&e) => return Err(S3ErrorCode::SlowDown.into()),
                Err(e) if e.kind() == ErrorKind::Exists => {
                    return Err(S3ErrorCode::PreconditionFailed.into());
                }
                // The key is on another file system than the bucket's directory, or the origin has no links.
                Err(e) if matches!(e.kind(), ErrorKind::CrossDevice | ErrorKind::NotSupported) => break,
                Err(e) => return Err(s3_error(e)),
            }
        }
        let node = vfs.getattr(id).await.map_err(s3_error)?;
        let mut staged = self.stage(bucket, key).await?;
        let size = node.attr.size;
        if let Err(e) =
            copy_into(RangeReader::new(vfs, self.caller(), node, 0..size), &mut staged, None).await
        {
            staged.discard().await;
            return Err(e);
        }
        self.publish(bucket, key, staged, conditions).await
    }

    /// Renames or links the file, which has the name `from` in the upload's directory, to the key. The outer error is a failed condition, the inner one that of the file
    /// system.
    async fn claim_key(
        &self,
        completion: &Completion<'_>,
        from: &Name,
        id: FileId,
    ) -> S3Result<types::Result<()>> {
        let Completion { bucket, key, upload, conditions, .. } = *completion;
        let (vfs, caller) = (&self.shared.vfs, self.caller());
        let dir = resolve::make_dirs(vfs, caller, bucket.root.id, &key.dirs).await.map_err(s3_error)?;
        let _lock = self.shared.locks.lock(dir, &key.name).await;
        let how = self.check_conditions(bucket, key, conditions).await?;
        if how != PublishMode::IfAbsent {
            return Ok(vfs.rename(caller, upload.dir, from, dir, &key.name).await.map(|_| ()));
        }
        let linked = vfs.link(caller, id, dir, &key.name).await;
        if linked.is_ok() {
            // The other name is removed before the metadata is stored, since that changes the file's state. What is
            // left is removed with the upload.
            let _ = vfs.remove(caller, upload.dir, from).await;
        }
        Ok(linked.map(|_| ()))
    }
}

fn joined(copied: Option<Result<types::Result<PartReceipt>, JoinError>>) -> S3Result<Option<PartReceipt>> {
    let copied = copied.transpose().map_err(S3Error::internal_error)?;
    copied.transpose().map_err(upload_error)
}

/// The stored parts that the client's list selects.
fn select_parts(stored: &BTreeMap<u32, StoredPart>, wanted: &[CompletedPart]) -> S3Result<Vec<StoredPart>> {
    if wanted.is_empty() {
        return Err(S3ErrorCode::MalformedXML.into());
    }
    let numbers = wanted.iter().map(|part| part_number(part.part_number.unwrap_or(0)));
    let numbers = numbers.collect::<S3Result<Vec<_>>>()?;
    if numbers.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(S3ErrorCode::InvalidPartOrder.into());
    }
    let mut parts: Vec<StoredPart> = Vec::with_capacity(wanted.len());
    for (at, (part, number)) in wanted.iter().zip(numbers).enumerate() {
        let known = stored.get(&number).ok_or(S3ErrorCode::InvalidPart)?;
        if part.e_tag.as_ref().map(ETag::value) != Some(&hex(&known.md5)) {
            return Err(S3ErrorCode::InvalidPart.into());
        }
        if claimed_checksums(part).all().any(|(algorithm, value)| !has_sum(known, algorithm, value)) {
            let message = "a checksum in the list is not that of the part as it was stored";
            return Err(S3Error::with_message(S3ErrorCode::InvalidPart, message));
        }
        if at + 1 < wanted.len() && known.size < PART_BYTES_MIN {
            return Err(S3ErrorCode::EntityTooSmall.into());
        }
        parts.push(known.clone());
    }
    Ok(parts)
}

fn claimed_checksums(part: &CompletedPart) -> ChecksumFields {
    ChecksumFields {
        crc32: part.checksum_crc32.clone(),
        crc32c: part.checksum_crc32c.clone(),
        crc64nvme: part.checksum_crc64nvme.clone(),
        sha1: part.checksum_sha1.clone(),
        sha256: part.checksum_sha256.clone(),
    }
}

fn has_sum(part: &StoredPart, algorithm: Algorithm, value: &str) -> bool {
    part.sum.as_ref().is_some_and(|sum| sum.algorithm == algorithm && sum.base64() == value)
}

/// The object's checksum, if all parts have one; checked against the client's.
fn object_checksum(
    upload: &UploadRecord,
    said: &ChecksumFields,
    kind: Option<&ChecksumType>,
    parts: &[StoredPart],
) -> S3Result<Option<(UploadChecksum, String)>> {
    let wrong = |why| S3Error::with_message(S3ErrorCode::InvalidRequest, why);
    let kind = kind.map(ChecksumType::as_str);
    let (checksum, is_declared) = match (upload.checksum, said.all().next()) {
        (Some(checksum), _) => (checksum, true),
        (None, Some((algorithm, _))) => (UploadChecksum::new(algorithm, kind).map_err(wrong)?, false),
        (None, None) => return Ok(None),
    };
    if is_declared && kind.is_some_and(|kind| kind != checksum.kind.name()) {
        return Err(wrong("x-amz-checksum-type is not that which the upload began with"));
    }
    let Some(value) = checksum.of_parts(parts.iter().map(|part| (part.sum.as_ref(), part.size))) else {
        return Ok(None);
    };
    let bare = value.split_once('-').map(|(sum, _)| sum);
    for (algorithm, expected) in said.all() {
        if algorithm == checksum.algorithm && expected != value && Some(expected) != bare {
            let message = format!("the {} of the object is not the one that was sent", algorithm.header());
            return Err(S3Error::with_message(S3ErrorCode::BadDigest, message));
        }
    }
    Ok(Some((checksum, value)))
}

fn checksums_by(algorithm: Algorithm, parts: &[StoredPart]) -> Option<Vec<String>> {
    let sum = |part: &StoredPart| {
        part.sum.as_ref().filter(|sum| sum.algorithm == algorithm).map(PartChecksum::base64)
    };
    parts.iter().map(sum).collect()
}

/// S3's ETag of a multipart object: the MD5 of the parts' MD5s, and their number.
fn etag_of(parts: impl Iterator<Item = [u8; 16]>) -> String {
    let (mut md5, mut count) = (Md5::new(), 0);
    for part in parts {
        md5.update(part);
        count += 1;
    }
    format!("{}-{count}", hex(&md5.finalize()))
}

/// What identifies a completion: equal ones are repetitions.
struct CompletionIdentity {
    id: String,
    bucket: String,
    key: String,
    /// The ETag of the object that the listed parts make.
    etag: Option<String>,
}

impl CompletionIdentity {
    fn of(input: &CompleteMultipartUploadInput) -> CompletionIdentity {
        let parts =
            input.multipart_upload.as_ref().and_then(|upload| upload.parts.as_deref()).unwrap_or_default();
        let md5s = parts.iter().map(|part| crate::sigv4::unhex::<16>(part.e_tag.as_ref()?.value()));
        CompletionIdentity {
            id: input.upload_id.clone(),
            bucket: input.bucket.clone(),
            key: input.key.clone(),
            etag: md5s.collect::<Option<Vec<_>>>().map(|md5s| etag_of(md5s.into_iter())),
        }
    }
}

fn completion_output(completed: CompletedUpload) -> CompleteMultipartUploadOutput {
    let sums = ChecksumFields::of_headers(&completed.checksums);
    let kind = completed.checksums.into_iter().find(|(name, _)| name == KIND);
    CompleteMultipartUploadOutput {
        location: Some(format!("/{}/{}", completed.bucket, encode(completed.key.as_bytes(), true))),
        bucket: Some(completed.bucket),
        key: Some(completed.key),
        e_tag: Some(ETag::Strong(completed.etag)),
        checksum_crc32: sums.crc32,
        checksum_crc32c: sums.crc32c,
        checksum_crc64nvme: sums.crc64nvme,
        checksum_sha1: sums.sha1,
        checksum_sha256: sums.sha256,
        checksum_type: kind.map(|(_, kind)| ChecksumType::from(kind)),
        ..CompleteMultipartUploadOutput::default()
    }
}
