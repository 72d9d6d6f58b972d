//! From parts to an object.

use std::collections::BTreeMap;

use md5::{Digest, Md5};
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode};
use types::{ErrorKind, FileId, Name};
use vfs::Node;

use super::{DATA, Upload, no_upload, own_name, part_number};
use crate::draft::{Draft, published};
use crate::errors::{Result, s3};
use crate::key::Key;
use crate::keys::Right;
use crate::layout::{PART_BYTES_MIN, Part, Place, is_in_place, newest};
use crate::object::Conditions;
use crate::ops::copy::pour;
use crate::ops::get::Source;
use crate::ops::put::refuse_other_conditions;
use crate::ops::{Work, signed};
use crate::tree::{self, Bucket};
use crate::verify::{encode, hex};

impl Work {
    pub async fn complete_upload(
        &self,
        input: CompleteMultipartUploadInput,
    ) -> Result<CompleteMultipartUploadOutput> {
        let bucket = self.bucket(&input.bucket, Right::Write).await?;
        let key = tree::parse_key(&input.key)?;
        let conditions = Conditions {
            if_match: input.if_match,
            if_none_match: input.if_none_match,
            ..Conditions::default()
        };
        refuse_other_conditions(&conditions)?;
        let upload = self.upload(&bucket, &input.upload_id, &input.key).await?;
        let ongoing = upload.ongoing.clone();
        let mut has_ended = ongoing.ending.alone().await.ok_or(S3ErrorCode::NoSuchUpload)?;
        let stored = newest(self.parts(upload.dir).await?.into_iter().map(|(part, _)| part));
        let wanted = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        let parts = chosen(&stored, &wanted)?;
        let size: u64 = parts.iter().map(|part| part.size).sum();
        if input.mpu_object_size.is_some_and(|said| said != signed(size)) {
            let message = "the parts are not as long as x-amz-mp-object-size says";
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, message));
        }
        let whole = self.whole(&upload, &parts).await?;
        let name = whole.0.clone();
        let published = self.publish_whole(&bucket, &key, &upload, whole, &conditions).await;
        if published.is_err() {
            self.remove_empty(&bucket, &key).await;
            if name != own_name(DATA) {
                // It may have the key's name by now.
                let _ = self.shared.vfs.remove(self.caller(), upload.dir, &name).await;
            }
        }
        let node = published?;
        *has_ended = true;
        let etag = self.note(node, etag_of(&parts), upload.headers.clone()).await;
        self.forget_upload(&bucket, upload).await;
        Ok(CompleteMultipartUploadOutput {
            location: Some(format!("/{}/{}", input.bucket, encode(input.key.as_bytes(), true))),
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(etag),
            ..CompleteMultipartUploadOutput::default()
        })
    }

    /// The file with all bytes, under the name it has in the upload's directory.
    async fn whole(&self, upload: &Upload, parts: &[Part]) -> Result<(Name, FileId)> {
        let (vfs, caller) = (&self.shared.vfs, self.caller());
        let data = vfs.lookup(caller, upload.dir, &own_name(DATA)).await.map_err(no_upload)?;
        let size: u64 = parts.iter().map(|part| part.size).sum();
        // Where parts that are not wanted lie behind, nothing is cut: this may fail yet, and they may be wanted then.
        if is_in_place(parts.iter()) && data.attr.size == size {
            return Ok((own_name(DATA), data.id));
        }
        let name = own_name(&format!("whole.{}", self.shared.unique.next()));
        let mut draft = Draft::create(vfs, caller, upload.dir, name.clone()).await.map_err(s3)?;
        if let Err(e) = self.gather(upload, parts, &data, &mut draft).await {
            draft.discard().await;
            return Err(e);
        }
        Ok((name, draft.id()))
    }

    /// The bytes of the parts, one after the other.
    async fn gather(&self, upload: &Upload, parts: &[Part], data: &Node, draft: &mut Draft) -> Result<()> {
        let (vfs, caller) = (&self.shared.vfs, self.caller());
        for part in parts {
            let (node, start) = match part.place {
                Place::Slot(offset) => (data.clone(), offset),
                Place::Own => {
                    let name = own_name(&Part::own_file(part.number, part.sequence));
                    (vfs.lookup(caller, upload.dir, &name).await.map_err(s3)?, 0)
                }
            };
            let mut source = Source::new(vfs, caller, node, start..start + part.size);
            loop {
                let bytes = source.next().await?;
                if bytes.is_empty() {
                    break;
                }
                draft.append(bytes).await.map_err(s3)?;
            }
        }
        draft.store().await.map(drop).map_err(s3)
    }

    async fn publish_whole(
        &self,
        bucket: &Bucket,
        key: &Key,
        upload: &Upload,
        (name, id): (Name, FileId),
        conditions: &Conditions,
    ) -> Result<Option<Node>> {
        let vfs = &self.shared.vfs;
        let from = (upload.dir, &name);
        let mut tries = 0;
        loop {
            tries += 1;
            match self.take_name(bucket, key, from, id, conditions).await? {
                Ok(()) => return Ok(published(vfs, id).await),
                // The directory went with its last object just before this one came.
                Err(e) if tree::is_gone(&e) && tries < tree::TRIES_MAX => {}
                Err(e) if tree::is_gone(&e) => return Err(S3ErrorCode::SlowDown.into()),
                Err(e) if e.kind() == ErrorKind::Exists => {
                    return Err(S3ErrorCode::PreconditionFailed.into());
                }
                // The key is on another file system than its bucket's directory, or links are not to be had.
                Err(e) if matches!(e.kind(), ErrorKind::CrossDevice | ErrorKind::NotSupported) => break,
                Err(e) => return Err(s3(e)),
            }
        }
        let node = vfs.getattr(id).await.map_err(s3)?;
        let root = (bucket.root.id, key.dirs.as_slice());
        let begun = Draft::begin(vfs, self.caller(), root, &self.shared.unique).await;
        let mut draft = begun.map_err(s3)?;
        let size = node.attr.size;
        if let Err(e) = pour(Source::new(vfs, self.caller(), node, 0..size), &mut draft).await {
            draft.discard().await;
            return Err(e);
        }
        self.publish(bucket, key, draft, conditions).await
    }

    /// The inner result: whether it has the key's name.
    async fn take_name(
        &self,
        bucket: &Bucket,
        key: &Key,
        (from_dir, from): (FileId, &Name),
        id: FileId,
        conditions: &Conditions,
    ) -> Result<types::Result<()>> {
        let (vfs, caller) = (&self.shared.vfs, self.caller());
        let dir = tree::make_dirs(vfs, caller, bucket.root.id, &key.dirs).await.map_err(s3)?;
        let _lock = self.shared.locks.lock(dir, &key.name).await;
        self.demand(bucket, key, conditions).await?;
        if conditions.if_none_match.is_none() {
            return Ok(vfs.rename(caller, from_dir, from, dir, &key.name).await.map(|_| ()));
        }
        let linked = vfs.link(caller, id, dir, &key.name).await;
        if linked.is_ok() {
            // Before its state is noted: it is another one with a name less. What is left goes with the upload.
            let _ = vfs.remove(caller, from_dir, from).await;
        }
        Ok(linked.map(|_| ()))
    }
}

/// The parts that the client wants, as they are stored.
fn chosen(stored: &BTreeMap<u32, Part>, wanted: &[CompletedPart]) -> Result<Vec<Part>> {
    if wanted.is_empty() {
        return Err(S3ErrorCode::MalformedXML.into());
    }
    let numbers = wanted.iter().map(|part| part_number(part.part_number.unwrap_or(0)));
    let numbers = numbers.collect::<Result<Vec<_>>>()?;
    if numbers.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(S3ErrorCode::InvalidPartOrder.into());
    }
    let mut parts: Vec<Part> = Vec::with_capacity(wanted.len());
    for (at, (part, number)) in wanted.iter().zip(numbers).enumerate() {
        let known = stored.get(&number).ok_or(S3ErrorCode::InvalidPart)?;
        if part.e_tag.as_ref().map(ETag::value) != Some(&hex(&known.md5)) {
            return Err(S3ErrorCode::InvalidPart.into());
        }
        if at + 1 < wanted.len() && known.size < PART_BYTES_MIN {
            return Err(S3ErrorCode::EntityTooSmall.into());
        }
        parts.push(known.clone());
    }
    Ok(parts)
}

/// As S3 has it: the MD5 of the parts' MD5s, and how many there are.
fn etag_of(parts: &[Part]) -> String {
    let mut md5 = Md5::new();
    for part in parts {
        md5.update(part.md5);
    }
    format!("{}-{}", hex(&md5.finalize()), parts.len())
}
