//! Google Cloud Storage: objects of one bucket, by its JSON interface (`gcs_api.rs`).
//!
//! The JSON interface has no multipart upload that could be completed on a condition: parts are objects of their
//! own, in a directory below the URL's prefix that no listing shows (`keys::UPLOADS`). They are composed, 32 at a
//! time, level by level, until one call is left: that makes the object, on the condition and with the metadata. Then
//! the parts are removed. Parts that a killed process left are removed when they are a week old and a listing meets
//! them.

use std::sync::{Arc, Mutex, PoisonError};

use ::origin::renewable_signer::ShutOut;
use async_trait::async_trait;
use bytes::Bytes;
use chrono::{NaiveDate, TimeDelta, Utc};
use types::{ByteRange, Error, ErrorKind, Result};

use crate::bounded_tasks::{TOGETHER, run_bounded};
use crate::credential_env::CredentialEnv;
use crate::gcs_api::{COMPOSE_MAX, ComposePiece, GcsBucket, random};
use crate::gcs_endpoint::GcsEndpoint;
use crate::http::Http;
use crate::keys::{KeyBase, UPLOADS};
use crate::listing_progress::{HIDDEN_MAX, ListingProgress};
use crate::rest_client::{RestClient, StoreRequest};
use crate::store::{
    BucketMark, CopySource, GetResult, ListPage, Metadata, MultipartUpload, ObjectStat, ObjectStore,
    Precondition, PutResult, UploadedPart,
};
use crate::url::Config;

/// The bytes in memory while a range is copied through here.
const PIECE: u64 = 32 << 20;
/// The keys of one page while uploads are removed or skipped.
const PAGE: u32 = 1000;
/// Uploads older than this are abandoned.
const OLD: TimeDelta = TimeDelta::days(7);
/// An upload's name begins with the day on which it began.
const DAY: &str = "%Y%m%d";
const DAY_LENGTH: usize = 8;

pub struct GcsStore {
    bucket: Arc<GcsBucket>,
    /// The directory of uploads, with a slash at its end.
    uploads: String,
    /// The last day on which abandoned uploads were looked for.
    swept: Mutex<Option<NaiveDate>>,
}

impl GcsStore {
    pub fn new(config: &Config, http: Http, environment: Option<&CredentialEnv>) -> Result<GcsStore> {
        let GcsEndpoint { signer, endpoint } = GcsEndpoint::of(config, &http, environment)?;
        let find = |config: &Config, http: &Http, environment: Option<&CredentialEnv>| {
            GcsEndpoint::of(config, http, environment).map(|place| place.signer)
        };
        let signer = signer.renewed_by(find, (config, &http, environment));
        let base = KeyBase::new(&config.prefix, config.dialect);
        let proof = StoreRequest::new("list", ::http::Method::GET, "")
            .query("maxResults", "1")
            .query("prefix", base.as_str());
        let proof = (Some(format!("/storage/v1/b/{}/o", config.bucket)), proof.into_query());
        let (root, url, meta) = (endpoint, config.url(), "x-goog-meta-");
        let rest = RestClient { http, signer, proof, shut_out: ShutOut::default(), root, url, meta };
        let uploads = format!("{}{UPLOADS}/", base.as_str());
        Ok(GcsStore {
            bucket: Arc::new(GcsBucket { rest, name: config.bucket.clone() }),
            uploads,
            swept: Mutex::new(None),
        })
    }

    fn dir(&self, upload: &MultipartUpload) -> String {
        format!("{}{}/", self.uploads, upload.id)
    }

    /// Lists without the uploads of anybody.
    async fn page(
        &self,
        prefix: &str,
        by_directory: bool,
        after: Option<&str>,
        most: u32,
    ) -> Result<ListPage> {
        let mut page = self.bucket.list(prefix, by_directory, after, most).await?;
        if page.prefixes.contains(&self.uploads) {
            self.sweep();
        }
        page.objects.retain(|object| !is_of_upload(&object.key));
        page.prefixes.retain(|prefix| !is_of_upload(prefix));
        page.unclear.retain(|key| !is_of_upload(key));
        Ok(page)
    }

    /// Removes abandoned uploads, once a day.
    fn sweep(&self) {
        let today = Utc::now().date_naive();
        let last = self.swept.lock().unwrap_or_else(PoisonError::into_inner).replace(today);
        if last == Some(today) {
            return;
        }
        let (bucket, uploads) = (self.bucket.clone(), self.uploads.clone());
        tokio::spawn(async move {
            if let Err(e) = remove_old(&bucket, &uploads).await {
                tracing::debug!("what is left of old uploads stays: {e}");
            }
        });
    }

    /// Composes each 32 pieces into one.
    async fn composed(&self, dir: &str, pieces: Vec<ComposePiece>) -> Result<Vec<ComposePiece>> {
        let groups = pieces.chunks(COMPOSE_MAX).map(|group| {
            let (bucket, group, dir) = (self.bucket.clone(), group.to_vec(), dir.to_owned());
            async move {
                if let [alone] = &group[..] {
                    return Ok(alone.clone());
                }
                let key = format!("{dir}composed-{}", random()?);
                let (word, _) = bucket.compose(&group, &key, &Metadata::new(), Precondition::Always).await?;
                Ok(ComposePiece { key, generation: word.generation })
            }
        });
        run_bounded(TOGETHER, groups.collect::<Vec<_>>().into_iter()).await
    }
}

/// Whether a key, or a prefix, lies in a directory of uploads.
fn is_of_upload(key: &str) -> bool {
    key.split('/').any(|part| part == UPLOADS)
}

/// Whether the upload is abandoned. A name without a day is not ours.
fn is_old(id: &str, today: NaiveDate) -> bool {
    let day = id.get(..DAY_LENGTH).and_then(|day| NaiveDate::parse_from_str(day, DAY).ok());
    day.is_some_and(|day| today - day > OLD)
}

/// Uses the store's clock: ours may be wrong, and running uploads belong to others.
async fn remove_old(bucket: &Arc<GcsBucket>, uploads: &str) -> Result<()> {
    let now = bucket.time().await?;
    let (today, young) = (now.date_naive(), (now - OLD).timestamp());
    let (mut after, mut course) = (None, ListingProgress::new(HIDDEN_MAX));
    loop {
        let page = bucket.list(uploads, true, after.as_deref(), PAGE).await?;
        let old = |prefix: &&String| prefix.strip_prefix(uploads).is_some_and(|id| is_old(id, today));
        for dir in page.prefixes.iter().filter(old) {
            // The day in its name is by its creator's clock.
            if has_young(bucket, dir, young).await? {
                continue;
            }
            tracing::info!("removing what is left of an upload: {dir}");
            remove_all(bucket, dir).await?;
        }
        after = course.after(&page, || bucket.rest.place(uploads))?;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// Whether anything below was stored after this second.
async fn has_young(bucket: &Arc<GcsBucket>, prefix: &str, second: i64) -> Result<bool> {
    let (mut after, mut course) = (None, ListingProgress::new(HIDDEN_MAX));
    loop {
        let page = bucket.list(prefix, false, after.as_deref(), PAGE).await?;
        if page.objects.iter().any(|object| object.modified.seconds > second) {
            return Ok(true);
        }
        after = course.after(&page, || bucket.rest.place(prefix))?;
        if after.is_none() {
            return Ok(false);
        }
    }
}

/// Removes all objects with this prefix.
async fn remove_all(bucket: &Arc<GcsBucket>, prefix: &str) -> Result<()> {
    let (mut after, mut course) = (None, ListingProgress::new(HIDDEN_MAX));
    loop {
        let page = bucket.list(prefix, false, after.as_deref(), PAGE).await?;
        let removed = page.objects.clone().into_iter().map(|object| {
            let bucket = bucket.clone();
            async move { bucket.delete(&object.key, Precondition::Always).await }
        });
        run_bounded(TOGETHER, removed).await?;
        after = course.after(&page, || bucket.rest.place(prefix))?;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// The id of a part: its pieces in the upload's directory, in order.
fn part_of_pieces(number: u32, dir: &str, pieces: &[ComposePiece]) -> UploadedPart {
    let words = pieces.iter().map(|piece| {
        let name = piece.key.strip_prefix(dir).unwrap_or(&piece.key);
        format!("{name}/{}", piece.generation)
    });
    UploadedPart { number, etag: words.collect::<Vec<_>>().join(",") }
}

/// `None`: it is no part of ours.
fn pieces_of_part(dir: &str, part: &UploadedPart) -> Option<Vec<ComposePiece>> {
    let piece = |word: &str| {
        let (name, generation) = word.split_once('/')?;
        Some(ComposePiece { key: format!("{dir}{name}"), generation: generation.parse().ok()? })
    };
    part.etag.split(',').map(piece).collect()
}

/// A unique key, also for each retry of a piece: overwriting an object is allowed once per second only.
fn piece_key(dir: &str, number: u32) -> Result<String> {
    Ok(format!("{dir}{number:05}-{}", random()?))
}

#[async_trait]
impl ObjectStore for GcsStore {
    fn composes(&self) -> bool {
        true
    }

    async fn bucket_mark(&self) -> Result<Option<BucketMark>> {
        Ok(self.bucket.made().await?.map(BucketMark::Made))
    }

    fn connections(&self) -> u64 {
        self.bucket.connections()
    }

    async fn head(&self, key: &str) -> Result<Option<ObjectStat>> {
        self.bucket.head(key).await
    }

    async fn get(&self, key: &str, etag: Option<&str>, range: ByteRange) -> Result<GetResult> {
        self.bucket.get(key, etag, range).await
    }

    async fn list(
        &self,
        prefix: &str,
        by_directory: bool,
        after: Option<&str>,
        most: u32,
    ) -> Result<ListPage> {
        let mut page = self.page(prefix, by_directory, after, most).await?;
        // Nothing in it is shown: it is skipped in large steps.
        let mut course = ListingProgress::new(HIDDEN_MAX);
        while page.is_empty()
            && let Some(next) = course.after(&page, || self.bucket.rest.place(prefix))?
        {
            page = self.page(prefix, by_directory, Some(&next), most.max(PAGE)).await?;
        }
        Ok(page)
    }

    async fn put(
        &self,
        key: &str,
        data: Bytes,
        metadata: &Metadata,
        condition: Precondition<'_>,
    ) -> Result<PutResult> {
        self.bucket.put(key, data, metadata, condition).await.map(|(_, made)| made)
    }

    async fn delete(&self, key: &str, etag: Option<&str>) -> Result<()> {
        self.bucket.delete(key, Precondition::unchanged(etag)).await
    }

    async fn copy(&self, from: CopySource<'_>, to: &str) -> Result<String> {
        self.bucket.rewrite(from, to).await.map(|word| word.etag())
    }

    async fn describe(&self, object: CopySource<'_>, metadata: &Metadata) -> Result<String> {
        self.bucket.patch(object, metadata).await.map(|word| word.etag())
    }

    async fn begin(&self, key: &str, metadata: &Metadata) -> Result<MultipartUpload> {
        let id = format!("{}-{}", Utc::now().format(DAY), random()?);
        Ok(MultipartUpload { key: key.to_owned(), id, metadata: metadata.clone() })
    }

    async fn part(&self, upload: &MultipartUpload, number: u32, data: Bytes) -> Result<UploadedPart> {
        let dir = self.dir(upload);
        let piece = self.bucket.put_piece(&piece_key(&dir, number)?, data).await?;
        Ok(part_of_pieces(number, &dir, &[piece]))
    }

    /// The store copies whole objects only: the bytes of a range come here.
    async fn part_of(
        &self,
        upload: &MultipartUpload,
        number: u32,
        from: CopySource<'_>,
        range: ByteRange,
    ) -> Result<UploadedPart> {
        let dir = self.dir(upload);
        if range == ByteRange::new(0, from.size) {
            let key = piece_key(&dir, number)?;
            let word = self.bucket.rewrite(from, &key).await?;
            return Ok(part_of_pieces(number, &dir, &[ComposePiece { key, generation: word.generation }]));
        }
        let (mut pieces, mut at) = (Vec::new(), range.offset);
        while at < range.end() {
            let some = ByteRange::new(at, PIECE.min(range.end() - at));
            let got = self.bucket.get(from.key, Some(from.etag), some).await?;
            pieces.push(self.bucket.put_piece(&piece_key(&dir, number)?, got.data).await?);
            at = some.end();
        }
        Ok(part_of_pieces(number, &dir, &pieces))
    }

    async fn complete(
        &self,
        upload: &MultipartUpload,
        parts: &[UploadedPart],
        condition: Precondition<'_>,
    ) -> Result<PutResult> {
        let dir = self.dir(upload);
        let pieces: Option<Vec<_>> = parts.iter().map(|part| pieces_of_part(&dir, part)).collect();
        let mut pieces = pieces.map(|pieces| pieces.concat()).ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, "complete", format!("{}: no parts of it", upload.key))
        })?;
        while pieces.len() > COMPOSE_MAX {
            pieces = self.composed(&dir, pieces).await?;
        }
        let (_, made) = self.bucket.compose(&pieces, &upload.key, &upload.metadata, condition).await?;
        let bucket = self.bucket.clone();
        tokio::spawn(async move {
            if let Err(e) = remove_all(&bucket, &dir).await {
                tracing::warn!("parts of an upload that is complete stay at the store for a week: {e}");
            }
        });
        Ok(made)
    }

    async fn abort(&self, upload: &MultipartUpload) -> Result<()> {
        remove_all(&self.bucket, &self.dir(upload)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_names_its_pieces() {
        let piece = |key: &str, generation| ComposePiece { key: key.into(), generation };
        let pieces = [piece("p/u/1/00007-ab", 5), piece("p/u/1/00007-cd", u64::MAX)];
        let part = part_of_pieces(7, "p/u/1/", &pieces);
        assert_eq!(part.etag, "00007-ab/5,00007-cd/18446744073709551615");
        assert_eq!(pieces_of_part("p/u/1/", &part).as_deref(), Some(&pieces[..]));
        for foreign in ["", "\"etag\"", "a/", "a/1,b"] {
            assert_eq!(
                pieces_of_part("d/", &UploadedPart { number: 1, etag: foreign.into() }),
                None,
                "{foreign}"
            );
        }
    }

    #[test]
    fn what_is_being_uploaded_is_told_from_what_is_stored() {
        for key in [".forebay-uploads/", ".forebay-uploads/20260102-ab/1", "show/.forebay-uploads/x"] {
            assert!(is_of_upload(key), "{key}");
        }
        for key in ["", "a/b", "forebay-uploads/x", ".forebay-uploads.txt", "a.forebay-uploads/x"] {
            assert!(!is_of_upload(key), "{key}");
        }
    }

    #[test]
    fn uploads_are_old_after_a_week() {
        let today = NaiveDate::from_ymd_opt(2026, 3, 10).unwrap();
        for (id, old) in [
            ("20260310-ab/", false),
            ("20260303-ab/", false),
            ("20260302-ab/", true),
            ("20251231-ab/", true),
            ("20270101-ab/", false),
            ("notes/", false),
            ("2026é", false),
        ] {
            assert_eq!(is_old(id, today), old, "{id}");
        }
    }
}
