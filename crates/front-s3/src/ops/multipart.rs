//! Uploads in parts. One lies in a directory of its own, `.forebay-s3/ID` in the bucket's: what it will be (`upload`), its
//! bytes (`data`, as `layout.rs` says), and a mark for each part that is stored. Parts are as durable as objects are.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::HeaderMap;
use md5::{Digest, Md5};
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode};
use types::{CreateHow, ErrorKind, FileId, Name, SetAttr};
use vfs::Node;

use super::copy::pour;
use super::get::{Source, range_of, size_of};
use super::put::{PUT_BYTES_MAX, fill, refuse_other_conditions};
use super::{Work, headers_to_keep, signed, to_its_end};
use crate::checksums::{Summed, Sums};
use crate::draft::Draft;
use crate::errors::{Result, invalid, s3};
use crate::facts::{Headers, decode_texts, encode_texts, pairs};
use crate::key::Key;
use crate::keys::Right;
use crate::layout::{Layout, NUMBER_MAX, PART_BYTES_MIN, Part, Place, is_in_place, newest};
use crate::object::{Conditions, last_modified};
use crate::tree::{self, Bucket, name_of};
use crate::verify::{encode, hex};
use crate::walk::common_prefix;

/// In a bucket's directory.
const UPLOADS: &str = ".forebay-s3";
const RECORD: &str = "upload";
const DATA: &str = "data";
/// A key and its headers.
const RECORD_BYTES_MAX: u32 = 32 << 10;
/// Of one listing.
const LISTED_MAX: i32 = 1000;
/// Uploads of a bucket that are looked at for a listing of them.
const UPLOADS_MAX: usize = 10_000;
/// Uploads whose layout is remembered.
const KNOWN_MAX: usize = 4096;

/// The layouts of uploads that are under way, by their ids. What is not here is read from the marks.
#[derive(Default)]
pub struct Uploads(Mutex<HashMap<String, Arc<Ongoing>>>);

#[derive(Default)]
pub struct Ongoing {
    layout: tokio::sync::Mutex<Option<Layout>>,
    /// Completing and aborting, one at a time.
    ending: tokio::sync::Mutex<()>,
}

impl Uploads {
    fn get(&self, id: &str) -> Arc<Ongoing> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_MAX {
            known.retain(|_, ongoing| Arc::strong_count(ongoing) > 1);
        }
        known.entry(id.to_owned()).or_default().clone()
    }

    fn forget(&self, id: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

/// One that was found.
struct Upload {
    id: String,
    dir: FileId,
    key: String,
    headers: Headers,
    begun: Timestamp,
    ongoing: Arc<Ongoing>,
}

impl Work {
    pub async fn create_upload(
        &self,
        input: CreateMultipartUploadInput,
        headers: &HeaderMap,
    ) -> Result<CreateMultipartUploadOutput> {
        let bucket = self.bucket(&input.bucket, Right::Write).await?;
        let key = tree::parse_key(&input.key)?;
        if key.is_dir {
            return Err(invalid("a key with a slash at its end is a directory here, and has no bytes"));
        }
        let id = self.shared.unique.next();
        let kept = headers_to_keep(headers)?;
        self.make_upload(&bucket, &id, &input.key, &kept).await.map_err(s3)?;
        Ok(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id),
            checksum_algorithm: input.checksum_algorithm,
            checksum_type: input.checksum_type,
            ..CreateMultipartUploadOutput::default()
        })
    }

    async fn make_upload(&self, bucket: &Bucket, id: &str, key: &str, kept: &Headers) -> types::Result<()> {
        let (vfs, caller) = (&self.shared.vfs, self.caller());
        let names = [own_name(UPLOADS), own_name(id)];
        let dir = tree::make_dirs(vfs, caller, bucket.root.id, &names).await?;
        let set = SetAttr { mode: Some(0o644), ..SetAttr::default() };
        vfs.create(caller, dir, &own_name(DATA), CreateHow::Guarded, set).await?;
        let mut record = Vec::new();
        let key = key.to_owned();
        let texts = kept.iter().flat_map(|(name, value)| [name, value]);
        encode_texts(std::iter::once(&key).chain(texts), &mut record);
        // Last: with its record the upload is there.
        let mut draft = Draft::create(vfs, caller, dir, own_name(RECORD)).await?;
        draft.append(Bytes::from(record)).await?;
        draft.store().await?;
        Ok(())
    }

    pub async fn upload_part(&self, input: UploadPartInput, headers: &HeaderMap) -> Result<UploadPartOutput> {
        let bucket = self.bucket(&input.bucket, Right::Write).await?;
        let upload = self.upload(&bucket, &input.upload_id, &input.key).await?;
        let number = part_number(input.part_number)?;
        let length = input.content_length.ok_or(S3ErrorCode::MissingContentLength)?;
        if length > PUT_BYTES_MAX {
            return Err(S3ErrorCode::EntityTooLarge.into());
        }
        let sums = Sums::new(headers, self.asker.trailer.clone())?;
        let body = input.body;
        let length = u64::try_from(length).unwrap_or(0);
        let write = async |draft: &mut Draft| fill(draft, body, sums).await;
        let (summed, _) = self.take_part(&upload, number, length, write).await?;
        let checksum = summed.checksum;
        Ok(UploadPartOutput {
            e_tag: Some(ETag::Strong(hex(&summed.md5))),
            checksum_crc32: checksum.checksum_crc32,
            checksum_crc32c: checksum.checksum_crc32c,
            checksum_crc64nvme: checksum.checksum_crc64nvme,
            checksum_sha1: checksum.checksum_sha1,
            checksum_sha256: checksum.checksum_sha256,
            ..UploadPartOutput::default()
        })
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
        };
        let source = self.source(&input.copy_source, &conditions).await?;
        let size = size_of(&source);
        let range = input.copy_source_range.as_deref().map(s3s::dto::Range::parse).transpose();
        let range = range.map_err(|_| invalid("x-amz-copy-source-range is no range"))?;
        let range = range_of(range.as_ref(), None, size)?.unwrap_or(0..size);
        let length = range.end - range.start;
        if signed(length) > PUT_BYTES_MAX {
            return Err(S3ErrorCode::EntityTooLarge.into());
        }
        let bytes = Source::new(&self.shared.vfs, self.caller(), source.node, range);
        let write = async |draft: &mut Draft| pour(bytes, draft).await;
        let (summed, node) = self.take_part(&upload, number, length, write).await?;
        let result = CopyPartResult {
            e_tag: Some(ETag::Strong(hex(&summed.md5))),
            last_modified: Some(last_modified(&node)),
            ..CopyPartResult::default()
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
        let sequence = now_nanos();
        let place = self.place(upload, number, length).await?;
        let taken = self.write_part(upload, (number, sequence), place, write).await;
        if taken.is_err() && place != Place::Own {
            self.give_back(upload, number).await;
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
        let mut draft = match place {
            Place::Slot(offset) => {
                let data = vfs.lookup(caller, upload.dir, &own_name(DATA)).await.map_err(no_upload)?;
                Draft::part(vfs, caller, (upload.dir, own_name(DATA)), data.id, offset)
            }
            Place::Own => {
                let name = own_name(&Part::own_file(number, sequence));
                Draft::create(vfs, caller, upload.dir, name).await.map_err(no_upload)?
            }
        };
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
        let part = Part { number, sequence, size: draft.length(), md5: summed.md5, place };
        let set = SetAttr { mode: Some(0o644), ..SetAttr::default() };
        let mark = own_name(&part.mark());
        let made = vfs.create(caller, upload.dir, &mark, CreateHow::Guarded, set).await.map_err(no_upload)?;
        Ok((summed, made.node))
    }

    async fn place(&self, upload: &Upload, number: u32, length: u64) -> Result<Place> {
        let mut layout = upload.ongoing.layout.lock().await;
        if layout.is_none() {
            let parts = self.parts(upload.dir).await?;
            *layout = Some(Layout::of(parts.iter().map(|(part, _)| part)));
        }
        let layout = layout.get_or_insert_with(Layout::default);
        Ok(layout.place(number, length))
    }

    async fn give_back(&self, upload: &Upload, number: u32) {
        if let Some(layout) = upload.ongoing.layout.lock().await.as_mut() {
            layout.give_back(number);
        }
    }

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
        let _ending = ongoing.ending.lock().await;
        let stored = newest(self.parts(upload.dir).await?.into_iter().map(|(part, _)| part));
        let wanted = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        let parts = chosen(&stored, &wanted)?;
        let whole = self.whole(&upload, &parts).await?;
        let node = self.publish_whole(&bucket, &key, &upload, whole, &conditions).await?;
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
        if is_in_place(parts.iter()) {
            // Parts that were uploaded and are not wanted lie behind.
            if data.attr.size != size {
                let cut = SetAttr { size: Some(size), ..SetAttr::default() };
                vfs.setattr(caller, data.id, cut, None).await.map_err(s3)?;
            }
            return Ok((own_name(DATA), data.id));
        }
        let name = own_name(&format!("whole.{}", self.shared.unique.next()));
        let mut draft = Draft::create(vfs, caller, upload.dir, name.clone()).await.map_err(s3)?;
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
        draft.store().await.map_err(s3)?;
        Ok((name, draft.id()))
    }

    async fn publish_whole(
        &self,
        bucket: &Bucket,
        key: &Key,
        upload: &Upload,
        (name, id): (Name, FileId),
        conditions: &Conditions,
    ) -> Result<Node> {
        let (vfs, caller) = (&self.shared.vfs, self.caller());
        let dir = tree::make_dirs(vfs, caller, bucket.root.id, &key.dirs).await.map_err(s3)?;
        let lock = self.shared.locks.lock(dir, &key.name).await;
        self.demand(bucket, key, conditions).await?;
        let moved = if conditions.if_none_match.is_some() {
            match vfs.link(caller, id, dir, &key.name).await {
                // Before its state is noted: it is another one with a name less.
                Ok(_) => vfs.remove(caller, upload.dir, &name).await.map(|_| ()),
                Err(e) => Err(e),
            }
        } else {
            vfs.rename(caller, upload.dir, &name, dir, &key.name).await.map(|_| ())
        };
        match moved {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::Exists => return Err(S3ErrorCode::PreconditionFailed.into()),
            // The key is on another file system than its bucket's directory, or links are not to be had.
            Err(e) if matches!(e.kind(), ErrorKind::CrossDevice | ErrorKind::NotSupported) => {
                drop(lock);
                let node = vfs.getattr(id).await.map_err(s3)?;
                let root = (bucket.root.id, key.dirs.as_slice());
                let begun = Draft::begin(vfs, caller, root, &self.shared.unique).await;
                let mut draft = begun.map_err(s3)?;
                let size = node.attr.size;
                if let Err(e) = pour(Source::new(vfs, caller, node, 0..size), &mut draft).await {
                    draft.discard().await;
                    return Err(e);
                }
                return self.publish(bucket, key, draft, conditions).await;
            }
            Err(e) => return Err(s3(e)),
        }
        vfs.getattr(id).await.map_err(s3)
    }

    pub async fn abort_upload(&self, input: AbortMultipartUploadInput) -> Result<()> {
        let bucket = self.bucket(&input.bucket, Right::Write).await?;
        let upload = self.upload(&bucket, &input.upload_id, &input.key).await?;
        let ongoing = upload.ongoing.clone();
        let _ending = ongoing.ending.lock().await;
        self.forget_upload(&bucket, upload).await;
        Ok(())
    }

    /// Its record first: then it is no upload any more. The rest takes its time.
    async fn forget_upload(&self, bucket: &Bucket, upload: Upload) {
        let shared = self.shared.clone();
        let caller = self.caller().clone();
        shared.uploads.forget(&upload.id);
        let record = shared.vfs.remove(&caller, upload.dir, &own_name(RECORD)).await;
        if let Err(e) = record {
            tracing::warn!("remove the record of an upload: {e}");
        }
        let root = bucket.root.id;
        tokio::spawn(to_its_end(async move {
            let names = names_in(&shared.vfs, &caller, upload.dir).await?;
            for name in names {
                if let Err(e) = shared.vfs.remove(&caller, upload.dir, &name).await {
                    tracing::debug!("remove {name} of an upload that ended: {e}");
                }
            }
            let names = [own_name(UPLOADS), own_name(&upload.id)];
            tree::remove_empty(&shared.vfs, &caller, root, &names).await;
            Ok(())
        }));
    }

    /// With its bucket; not if uploads are under way.
    pub async fn remove_upload_directory(&self, bucket: &Name) {
        let (vfs, caller) = (&self.shared.vfs, self.caller());
        let names = [bucket.clone(), own_name(UPLOADS)];
        if let Ok(dir) = tree::find_dir(vfs, caller, vfs.root(), &names[..1]).await {
            let _ = vfs.rmdir(caller, dir, &names[1]).await; // not there, or not empty
        }
    }

    pub async fn list_parts(&self, input: ListPartsInput) -> Result<ListPartsOutput> {
        let bucket = self.bucket(&input.bucket, Right::Write).await?;
        let upload = self.upload(&bucket, &input.upload_id, &input.key).await?;
        let max = input.max_parts.unwrap_or(LISTED_MAX).clamp(0, LISTED_MAX);
        let marker = input.part_number_marker.unwrap_or(0);
        let mut times = HashMap::new();
        let stored = self.parts(upload.dir).await?;
        let stored = newest(stored.into_iter().map(|(part, node)| {
            times.insert(part.sequence, last_modified(&node));
            part
        }));
        let after = stored.into_values().filter(|part| i64::from(part.number) > i64::from(marker));
        let mut parts: Vec<_> = after.take(usize::try_from(max).unwrap_or(0) + 1).collect();
        let is_truncated = parts.len() > usize::try_from(max).unwrap_or(0);
        parts.truncate(usize::try_from(max).unwrap_or(0));
        let last = parts.last().and_then(|part| i32::try_from(part.number).ok());
        let parts = parts.into_iter().map(|part| s3s::dto::Part {
            part_number: i32::try_from(part.number).ok(),
            size: Some(signed(part.size)),
            e_tag: Some(ETag::Strong(hex(&part.md5))),
            last_modified: times.remove(&part.sequence),
            ..s3s::dto::Part::default()
        });
        Ok(ListPartsOutput {
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

    pub async fn list_uploads(&self, input: ListMultipartUploadsInput) -> Result<ListMultipartUploadsOutput> {
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

    async fn uploads(&self, bucket: &Bucket) -> Result<Vec<Upload>> {
        let (vfs, caller) = (&self.shared.vfs, self.caller());
        let dir = match vfs.lookup(caller, bucket.root.id, &own_name(UPLOADS)).await {
            Ok(dir) => dir.id,
            Err(e) if tree::is_gone(&e) => return Ok(Vec::new()),
            Err(e) => return Err(s3(e)),
        };
        let mut uploads = Vec::new();
        for name in names_in(vfs, caller, dir).await?.into_iter().take(UPLOADS_MAX) {
            let Ok(id) = std::str::from_utf8(name.as_bytes()) else { continue };
            match self.find_upload(bucket, id).await {
                Ok(upload) => uploads.push(upload),
                Err(e) if *e.code() == S3ErrorCode::NoSuchUpload => {}
                Err(e) => return Err(e),
            }
        }
        Ok(uploads)
    }

    async fn upload(&self, bucket: &Bucket, id: &str, key: &str) -> Result<Upload> {
        let upload = self.find_upload(bucket, id).await?;
        if upload.key == key { Ok(upload) } else { Err(S3ErrorCode::NoSuchUpload.into()) }
    }

    async fn find_upload(&self, bucket: &Bucket, id: &str) -> Result<Upload> {
        // As `Unique` makes them: nothing else may become a path.
        if crate::verify::unhex::<16>(id).is_none() {
            return Err(S3ErrorCode::NoSuchUpload.into());
        }
        let (vfs, caller) = (&self.shared.vfs, self.caller());
        let names = [own_name(UPLOADS), own_name(id)];
        let dir = tree::find_dir(vfs, caller, bucket.root.id, &names).await.map_err(no_upload)?;
        let record = vfs.lookup(caller, dir, &own_name(RECORD)).await.map_err(no_upload)?;
        let begun = last_modified(&record);
        let length = u32::try_from(record.attr.size).unwrap_or(u32::MAX).min(RECORD_BYTES_MAX);
        let mut source = Source::new(vfs, caller, record, 0..u64::from(length));
        let texts = decode_texts(&source.next().await?).ok_or(S3ErrorCode::NoSuchUpload)?;
        let mut texts = texts.into_iter();
        let key = texts.next().ok_or(S3ErrorCode::NoSuchUpload)?;
        let headers = pairs(texts).ok_or(S3ErrorCode::NoSuchUpload)?;
        let ongoing = self.shared.uploads.get(id);
        Ok(Upload { id: id.to_owned(), dir, key, headers, begun, ongoing })
    }

    /// All that are marked as stored, with their marks.
    async fn parts(&self, dir: FileId) -> Result<Vec<(Part, Node)>> {
        let mut parts = Vec::new();
        let mut cookie = 0;
        loop {
            let listing =
                self.shared.vfs.readdir(self.caller(), dir, cookie, 1024).await.map_err(no_upload)?;
            for item in listing.items {
                cookie = item.cookie;
                if let (Some(part), Some(node)) = (Part::parse(&item.name), item.node) {
                    parts.push((part, node));
                }
            }
            if listing.eof {
                return Ok(parts);
            }
        }
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

fn part_number(number: i32) -> Result<u32> {
    let number = u32::try_from(number).ok().filter(|number| (1..=NUMBER_MAX).contains(number));
    number.ok_or_else(|| invalid("a part number is between 1 and 10000"))
}

fn no_upload(error: types::Error) -> S3Error {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::Stale => S3ErrorCode::NoSuchUpload.into(),
        _ => s3(error),
    }
}

fn own_name(text: &str) -> Name {
    name_of(text.to_owned())
}

async fn names_in(vfs: &vfs::Vfs, caller: &types::Caller, dir: FileId) -> Result<Vec<Name>> {
    let mut names = Vec::new();
    let mut cookie = 0;
    loop {
        let listing = vfs.readdir(caller, dir, cookie, 1024).await.map_err(s3)?;
        for item in listing.items {
            cookie = item.cookie;
            names.extend(Name::new(item.name)); // not those of the directory itself and of its parent
        }
        if listing.eof {
            return Ok(names);
        }
    }
}

fn now_nanos() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
