//! Multipart uploads. An upload is a directory of its own, `.forebay-s3/ID`, in the bucket's directory: the record
//! of the object to be (`upload`), its bytes (`data`, laid out by `part_layout.rs`), and a mark for each part that
//! is stored. Parts are as durable as objects.
//!
//! Where the origin keeps parts itself (`vfs::PartedFile`), the record says so, and a part goes there under its own number:
//! there are no `data`, and a completion moves no bytes. Only what cannot be held in memory until it is checked, or comes
//! under a number that is taken, is a file of its own, which the origin copies at the completion.

mod complete;
mod list;
mod part;
mod part_layout;
mod part_room;
mod staged_part;

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::HeaderMap;
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode};
use tokio::sync::RwLockReadGuard;
use types::{CreateHow, ErrorKind, FileId, Name, SetAttr};
use vfs::{Access, Node, PartedFile};

use super::get::RangeReader;
use super::{RequestContext, object_headers, run_to_completion};
use crate::access_keys::Right;
use crate::errors::{self, S3Result, invalid, s3_error};
use crate::metadata_store::{Headers, decode_texts, encode_texts, pairs};
use crate::object::last_modified;
use crate::object_key::{ObjectKey, is_hidden};
use crate::part_checksums::{Algorithm, UploadChecksum};
use crate::resolve::{self, OpenBucket, name_of};
use crate::sigv4::{hex, unhex_all};
use crate::staged_file::StagedFile;
use crate::staged_object::ByteSink;
use crate::unique_ids::now_nanos;
use crate::write_fence::WriteFence;
pub use part_layout::NUMBER_MAX;
use part_layout::{PartLayout, StoredPart};
use part_room::PartRoom;

/// The directory of all uploads, in a bucket's directory.
const UPLOADS: &str = ".forebay-s3";
const RECORD: &str = "upload";
const DATA: &str = "data";
/// The header in an upload's record that names its checksum algorithm.
const ALGORITHM: &str = "x-amz-checksum-algorithm";
const KIND: &str = "x-amz-checksum-type";
/// What the origin tells of the upload where it keeps the parts, in hexadecimal digits.
const AT_ORIGIN: &str = "x-forebay-at-origin";
/// The largest part that is held in memory until it is whole.
pub const HELD_PART_BYTES_MAX: usize = 64 << 20;
/// The bytes of all parts that are held.
pub const HELD_PARTS_BYTES: usize = 256 << 20;
/// The largest record: a key and its headers.
const RECORD_BYTES_MAX: u32 = 32 << 10;
/// The most uploads whose layout is kept in memory.
const ONGOING_MAX: usize = 4096;

#[derive(Default)]
pub struct OngoingUploads {
    /// Their layouts, by id. One that is not here is read from the marks.
    known: Mutex<HashMap<String, Arc<OngoingUpload>>>,
    /// The directory [`UPLOADS`] of a bucket is removed with its last upload. Held shared by who begins one: it would
    /// be in a directory that is known to be gone.
    begins: tokio::sync::RwLock<()>,
}

#[derive(Default)]
pub struct OngoingUpload {
    layout: tokio::sync::Mutex<Option<PartLayout>>,
    /// Closed when the upload is completed or aborted. Without it, parts that are still arriving would be written
    /// into the finished object.
    fence: Arc<WriteFence>,
    /// How often a completion has begun to copy parts into the upload at the origin. A part that was stored there before
    /// and is noted after that may have been overwritten.
    copies: AtomicU64,
    room: PartRoom,
}

impl OngoingUploads {
    fn get(&self, id: &str) -> Arc<OngoingUpload> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= ONGOING_MAX {
            known.retain(|_, ongoing| Arc::strong_count(ongoing) > 1);
        }
        known.entry(id.to_owned()).or_default().clone()
    }

    fn forget(&self, id: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

/// An upload that exists, as its record says.
struct UploadRecord {
    id: String,
    dir: FileId,
    key: String,
    headers: Headers,
    /// The checksum of the whole object, if the client chose one.
    checksum: Option<UploadChecksum>,
    /// The upload at the origin, if that keeps the parts.
    at_origin: Option<PartedFile>,
    begun: Timestamp,
    ongoing: Arc<OngoingUpload>,
}

impl UploadRecord {
    fn algorithm(&self) -> Option<Algorithm> {
        self.checksum.map(|checksum| checksum.algorithm)
    }

    /// Keeps the upload from being completed or aborted while it is held.
    async fn write_guard(&self) -> S3Result<RwLockReadGuard<'_, bool>> {
        Ok(self.ongoing.fence.enter().await.ok_or(S3ErrorCode::NoSuchUpload)?)
    }
}

impl RequestContext {
    pub async fn create_upload(
        &self,
        input: CreateMultipartUploadInput,
        headers: &HeaderMap,
    ) -> S3Result<CreateMultipartUploadOutput> {
        let bucket = self.bucket(&input.bucket, Right::Write).await?;
        let key = resolve::parse_key(&input.key)?;
        if key.is_dir {
            return Err(invalid("a key with a slash at its end is a directory here, and has no bytes"));
        }
        let checksum = summing_of(&input)?;
        // Ids are in time order, because S3 lists the uploads of a key by the time that they began.
        let id = self.shared.ids.next_in_order(now_nanos());
        let mut kept = object_headers(headers)?;
        if let Some(checksum) = checksum {
            kept.push((ALGORITHM.to_owned(), checksum.algorithm.name().to_owned()));
            kept.push((KIND.to_owned(), checksum.kind.name().to_owned()));
        }
        let at_origin = self.begin_at_origin(&bucket, &key).await?;
        kept.extend(at_origin.iter().map(|file| (AT_ORIGIN.to_owned(), hex(&file.0))));
        if let Err(e) = self.make_upload(&bucket, &id, (&input.key, &kept), at_origin.is_none()).await {
            if let Err(e) = self.drop_at_origin(&bucket, at_origin.as_ref()).await {
                tracing::warn!("an upload that could not be noted stays at the origin: {e}");
            }
            return Err(s3_error(e));
        }
        Ok(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id),
            checksum_algorithm: input.checksum_algorithm,
            checksum_type: checksum.map(|checksum| ChecksumType::from_static(checksum.kind.name())),
            ..CreateMultipartUploadOutput::default()
        })
    }

    /// Begins the upload at the origin, if it keeps parts. The directories of the key are not made before the object is.
    async fn begin_at_origin(&self, bucket: &OpenBucket, key: &ObjectKey) -> S3Result<Option<PartedFile>> {
        let (vfs, caller) = (&self.shared.vfs, self.caller());
        let (mut dir, mut missing) = (bucket.root.id, key.dirs.as_slice());
        while let Some((name, below)) = missing.split_first() {
            match vfs.lookup(caller, dir, name).await {
                Ok(node) if node.attr.is_dir() && node.junction == bucket.root.junction => dir = node.id,
                // Another junction, or no directory: the completion sees to that.
                Ok(_) => return Ok(None),
                Err(e) if e.kind() == ErrorKind::NotFound => break,
                Err(e) => return Err(s3_error(e)),
            }
            missing = below;
        }
        let path: Vec<Name> = missing.iter().chain([&key.name]).cloned().collect();
        let set = SetAttr { mode: Some(0o644), ..SetAttr::default() };
        vfs.begin_parts(caller, dir, &path, set).await.map_err(s3_error)
    }

    /// Gives up an upload at the bucket's origin; one that is not there any more, too.
    async fn drop_at_origin(&self, bucket: &OpenBucket, at_origin: Option<&PartedFile>) -> types::Result<()> {
        let Some(file) = at_origin else { return Ok(()) };
        match self.shared.vfs.drop_parts(bucket.root.id, file).await {
            // It is no upload of this bucket: the note is damaged, or of another place.
            Err(e) if e.kind() == ErrorKind::InvalidArgument => {
                tracing::warn!("an upload is ended here alone: {e}");
                Ok(())
            }
            dropped => dropped,
        }
    }

    async fn make_upload(
        &self,
        bucket: &OpenBucket,
        id: &str,
        (key, kept): (&str, &Headers),
        has_data: bool,
    ) -> types::Result<()> {
        let (vfs, caller) = (&self.shared.vfs, self.caller());
        let names = [internal_name(UPLOADS), internal_name(id)];
        let _stays = self.shared.uploads.begins.read().await;
        let dir = resolve::make_dirs(vfs, caller, bucket.root.id, &names).await?;
        let set = SetAttr { mode: Some(0o644), ..SetAttr::default() };
        if has_data {
            vfs.create(caller, dir, &internal_name(DATA), CreateHow::Guarded, set).await?;
        }
        let mut record = Vec::new();
        let key = key.to_owned();
        let texts = kept.iter().flat_map(|(name, value)| [name, value]);
        encode_texts(std::iter::once(&key).chain(texts), &mut record);
        // The record comes last: an upload exists as soon as its record does.
        let mut staged = StagedFile::create(vfs, caller, dir, internal_name(RECORD)).await?;
        staged.append(Bytes::from(record)).await?;
        staged.store().await?;
        Ok(())
    }

    pub async fn abort_upload(&self, input: AbortMultipartUploadInput) -> S3Result<()> {
        let bucket = self.bucket(&input.bucket, Right::Write).await?;
        let upload = self.upload(&bucket, &input.upload_id, &input.key).await?;
        let ongoing = upload.ongoing.clone();
        let mut has_ended = ongoing.fence.lock_to_end().await.ok_or(S3ErrorCode::NoSuchUpload)?;
        // Where that fails the upload is still known, and can be aborted again.
        self.drop_at_origin(&bucket, upload.at_origin.as_ref()).await.map_err(s3_error)?;
        *has_ended = true;
        self.discard_upload(&bucket, upload).await;
        Ok(())
    }

    /// Removes the record first: without it the upload does not exist. The rest is removed in the background. At the origin
    /// the upload has ended before.
    async fn discard_upload(&self, bucket: &OpenBucket, upload: UploadRecord) {
        let shared = self.shared.clone();
        let caller = self.caller().clone();
        let record = shared.vfs.remove(&caller, upload.dir, &internal_name(RECORD)).await;
        if let Err(e) = record {
            tracing::warn!("remove the record of an upload: {e}");
        }
        // The fence is forgotten only after the record is gone: a request that still finds the record finds the
        // fence closed.
        shared.uploads.forget(&upload.id);
        let root = bucket.root.id;
        tokio::spawn(run_to_completion(async move {
            let names = names_in(&shared.vfs, &caller, upload.dir).await.map_err(s3_error)?;
            for name in names {
                if let Err(e) = shared.vfs.remove(&caller, upload.dir, &name).await {
                    tracing::debug!("remove {name} of an upload that ended: {e}");
                }
            }
            let all = shared.vfs.lookup(&caller, root, &internal_name(UPLOADS)).await.map_err(s3_error)?;
            let removed = shared.vfs.rmdir(&caller, all.id, &internal_name(&upload.id)).await;
            // While another one begins it is not empty, and goes with that.
            if removed.is_ok()
                && let Ok(_alone) = shared.uploads.begins.try_write()
            {
                resolve::remove_empty(&shared.vfs, &caller, root, &[internal_name(UPLOADS)]).await;
            }
            Ok(())
        }));
    }

    /// Removes all uploads and unfinished objects of a bucket that is being deleted, if there is nothing else in it.
    pub async fn remove_hidden(&self, bucket: &OpenBucket) -> S3Result<()> {
        let (vfs, caller) = (&self.shared.vfs, self.caller());
        let root = vfs.getattr(vfs.root()).await.map_err(s3_error)?;
        let (granted, _) = vfs.access(caller, vfs.root(), Access::DELETE).await.map_err(s3_error)?;
        // The root directory of a junction cannot be removed, nor one that the caller may not remove: then nothing
        // is.
        if root.junction != bucket.root.junction || !granted.contains(Access::DELETE) {
            return Ok(());
        }
        let Some(names) = self.hidden_names_only(bucket).await? else { return Ok(()) };
        for name in names {
            if name == internal_name(UPLOADS) {
                self.remove_uploads(bucket).await?;
                continue;
            }
            let removed = vfs.remove(caller, bucket.root.id, &name).await;
            removed.map(drop).or_else(ignore_gone).map_err(s3_error)?;
        }
        Ok(())
    }

    /// The names in the bucket's directory, if all of them are hidden ones.
    async fn hidden_names_only(&self, bucket: &OpenBucket) -> S3Result<Option<Vec<Name>>> {
        let mut names = Vec::new();
        let mut cookie = 0;
        loop {
            let listing = self
                .shared
                .vfs
                .readdir(self.caller(), bucket.root.id, cookie, 1024)
                .await
                .map_err(s3_error)?;
            for item in listing.items {
                cookie = item.cookie;
                let Ok(name) = Name::new(item.name) else { continue }; // of the directory itself and of its parent
                if !is_hidden(name.as_bytes()) {
                    return Ok(None);
                }
                names.push(name);
            }
            if listing.eof {
                return Ok(Some(names));
            }
        }
    }

    async fn remove_uploads(&self, bucket: &OpenBucket) -> S3Result<()> {
        let (vfs, caller) = (&self.shared.vfs, self.caller());
        let uploads = internal_name(UPLOADS);
        let dir = match vfs.lookup(caller, bucket.root.id, &uploads).await {
            Ok(dir) => dir.id,
            Err(e) => return ignore_gone(e).map_err(s3_error),
        };
        for name in names_in(vfs, caller, dir).await.map_err(s3_error)? {
            let id = String::from_utf8_lossy(name.as_bytes()).into_owned();
            let ongoing = self.shared.uploads.get(&id);
            // Parts that are still arriving are refused from here on. An upload that has ended is being removed
            // already.
            if let Some(mut has_ended) = ongoing.fence.lock_to_end().await {
                *has_ended = true;
            }
            let removed = self.end_and_remove(bucket, (dir, &name), &id).await;
            self.shared.uploads.forget(&id);
            removed?;
        }
        let removed = vfs.rmdir(caller, bucket.root.id, &uploads).await;
        removed.map(drop).or_else(ignore_gone).map_err(s3_error)
    }

    /// As an abort does. What has no record is only what an upload left.
    async fn end_and_remove(&self, bucket: &OpenBucket, place: (FileId, &Name), id: &str) -> S3Result<()> {
        match self.find_upload(bucket, id).await {
            Ok(upload) => {
                self.drop_at_origin(bucket, upload.at_origin.as_ref()).await.map_err(s3_error)?;
            }
            Err(e) if matches!(e.code(), S3ErrorCode::NoSuchUpload | S3ErrorCode::NoSuchKey) => {}
            Err(e) => return Err(e),
        }
        remove_upload(&self.shared.vfs, self.caller(), place).await.map_err(s3_error)
    }

    async fn upload(&self, bucket: &OpenBucket, id: &str, key: &str) -> S3Result<UploadRecord> {
        let upload = self.find_upload(bucket, id).await?;
        if upload.key == key { Ok(upload) } else { Err(S3ErrorCode::NoSuchUpload.into()) }
    }

    async fn find_upload(&self, bucket: &OpenBucket, id: &str) -> S3Result<UploadRecord> {
        // Only ids of the form that `UniqueIds` makes may become a path.
        if crate::sigv4::unhex::<16>(id).is_none() {
            return Err(S3ErrorCode::NoSuchUpload.into());
        }
        let ongoing = self.shared.uploads.get(id);
        let (vfs, caller) = (&self.shared.vfs, self.caller());
        let names = [internal_name(UPLOADS), internal_name(id)];
        let dir = resolve::find_dir(vfs, caller, bucket.root.id, &names).await.map_err(upload_error)?;
        let record = vfs.lookup(caller, dir, &internal_name(RECORD)).await.map_err(upload_error)?;
        let begun = last_modified(&record);
        let length = u32::try_from(record.attr.size).unwrap_or(u32::MAX).min(RECORD_BYTES_MAX);
        let mut source = RangeReader::new(vfs, caller, record, 0..u64::from(length));
        let texts = decode_texts(&source.next().await?).ok_or(S3ErrorCode::NoSuchUpload)?;
        let mut texts = texts.into_iter();
        let key = texts.next().ok_or(S3ErrorCode::NoSuchUpload)?;
        let headers = pairs(texts).ok_or(S3ErrorCode::NoSuchUpload)?;
        let (own, headers): (Headers, Headers) =
            headers.into_iter().partition(|(name, _)| [ALGORITHM, KIND, AT_ORIGIN].contains(&name.as_str()));
        let own = |wanted: &str| own.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        let algorithm = own(ALGORITHM).and_then(Algorithm::parse);
        let checksum = algorithm.and_then(|algorithm| UploadChecksum::new(algorithm, own(KIND)).ok());
        let at_origin = match own(AT_ORIGIN).map(unhex_all) {
            Some(None) => return Err(S3ErrorCode::NoSuchUpload.into()),
            known => known.flatten().map(|bytes| PartedFile(bytes.into())),
        };
        Ok(UploadRecord { id: id.to_owned(), dir, key, headers, checksum, at_origin, begun, ongoing })
    }

    /// All stored parts, with the nodes of their marks.
    async fn parts(&self, dir: FileId) -> S3Result<Vec<(StoredPart, Node)>> {
        let mut parts = Vec::new();
        let mut cookie = 0;
        loop {
            let listing =
                self.shared.vfs.readdir(self.caller(), dir, cookie, 1024).await.map_err(upload_error)?;
            for item in listing.items {
                cookie = item.cookie;
                if let (Some(part), Some(node)) = (StoredPart::parse(&item.name), item.node) {
                    parts.push((part, node));
                }
            }
            if listing.eof {
                return Ok(parts);
            }
        }
    }
}

/// The checksum that the client chose; one that cannot be computed is refused.
fn summing_of(input: &CreateMultipartUploadInput) -> S3Result<Option<UploadChecksum>> {
    let Some(algorithm) = input.checksum_algorithm.as_ref().map(ChecksumAlgorithm::as_str) else {
        return Ok(None);
    };
    let algorithm = Algorithm::parse(algorithm).ok_or_else(|| errors::header_not_offered(ALGORITHM))?;
    let kind = input.checksum_type.as_ref().map(ChecksumType::as_str);
    UploadChecksum::new(algorithm, kind)
        .map(Some)
        .map_err(|why| S3Error::with_message(S3ErrorCode::InvalidRequest, why))
}

fn part_number(number: i32) -> S3Result<u32> {
    let number = u32::try_from(number).ok().filter(|number| (1..=NUMBER_MAX).contains(number));
    number.ok_or_else(|| invalid("a part number is between 1 and 10000"))
}

fn upload_error(error: types::Error) -> S3Error {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::Stale => S3ErrorCode::NoSuchUpload.into(),
        _ => s3_error(error),
    }
}

fn internal_name(text: &str) -> Name {
    name_of(text.to_owned())
}

/// Removes the record first: without it the upload does not exist.
async fn remove_upload(
    vfs: &vfs::Vfs,
    caller: &types::Caller,
    (above, name): (FileId, &Name),
) -> types::Result<()> {
    let dir = match vfs.lookup(caller, above, name).await {
        Ok(dir) => dir.id,
        Err(e) => return ignore_gone(e),
    };
    vfs.remove(caller, dir, &internal_name(RECORD)).await.map(drop).or_else(ignore_gone)?;
    for inner in names_in(vfs, caller, dir).await.or_else(|e| ignore_gone(e).map(|()| Vec::new()))? {
        vfs.remove(caller, dir, &inner).await.map(drop).or_else(ignore_gone)?;
    }
    vfs.rmdir(caller, above, name).await.map(drop).or_else(ignore_gone)
}

/// Somebody else's removal of the same name counts as success.
fn ignore_gone(error: types::Error) -> types::Result<()> {
    if resolve::is_gone(&error) { Ok(()) } else { Err(error) }
}

async fn names_in(vfs: &vfs::Vfs, caller: &types::Caller, dir: FileId) -> types::Result<Vec<Name>> {
    let mut names = Vec::new();
    let mut cookie = 0;
    loop {
        let listing = vfs.readdir(caller, dir, cookie, 1024).await?;
        for item in listing.items {
            cookie = item.cookie;
            names.extend(Name::new(item.name)); // not those of the directory itself and of its parent
        }
        if listing.eof {
            return Ok(names);
        }
    }
}
