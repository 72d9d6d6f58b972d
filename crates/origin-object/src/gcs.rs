//! Google Cloud Storage: objects of one bucket, by its JSON interface (`gcs_calls.rs`).
//!
//! An upload has no name there that could be completed on a condition: its parts are objects of their own, in a directory of
//! the URL's prefix that no listing shows (`keys::UPLOADS`). They are composed, 32 at a time, and what is composed again,
//! until one call is left: that makes the object, on the condition and with the metadata. Then the parts go. Those of a
//! process that ended before go when they are a week old and a listing meets them.

use std::sync::{Arc, Mutex, PoisonError};

use ::origin::renewed::{Renewed, ShutOut};
use async_trait::async_trait;
use bytes::Bytes;
use chrono::{NaiveDate, TimeDelta, Utc};
use types::{ByteRange, Error, ErrorKind, Result};

use crate::gcs_calls::{Bucket, COMPOSE_MAX, Piece, random};
use crate::gcs_place::Place;
use crate::http::Http;
use crate::keys::{Base, UPLOADS};
use crate::listings::{Course, HIDDEN_MAX};
use crate::rest::{Ask, Rest};
use crate::sign::{Environment, owned};
use crate::store::{BucketMark, Condition, Got, Made, Metadata, Page, Part, Source, Stat, Store, Upload};
use crate::together::{TOGETHER, some_at_a_time};
use crate::url::Config;

/// Of a range that is copied through here: what waits in memory at a time.
const PIECE: u64 = 32 << 20;
/// Keys that are listed at a time to be removed, or passed over.
const PAGE: u32 = 1000;
/// Uploads that began before this are nobody's any more.
const OLD: TimeDelta = TimeDelta::days(7);
/// The day on which an upload began is the beginning of its name.
const DAY: &str = "%Y%m%d";
const DAY_LENGTH: usize = 8;

pub struct Gcs {
    bucket: Arc<Bucket>,
    /// The directory of what is being uploaded, with a slash at its end.
    uploads: String,
    /// The last day on which old uploads were looked for.
    swept: Mutex<Option<NaiveDate>>,
}

impl Gcs {
    pub fn new(config: &Config, http: Http, environment: Option<&Environment>) -> Result<Gcs> {
        let Place { signer, endpoint } = Place::of(config, &http, environment)?;
        let signer = {
            let (config, http, environment) = (config.clone(), http.clone(), owned(environment));
            let make = move || Place::of(&config, &http, environment.as_deref()).map(|place| place.signer);
            Renewed::new(signer, make)
        };
        let base = Base::new(&config.prefix, config.dialect);
        let proof =
            Ask::new("list", ::http::Method::GET, "").query("maxResults", "1").query("prefix", base.as_str());
        let proof = (Some(format!("/storage/v1/b/{}/o", config.bucket)), proof.into_query());
        let (root, url, meta) = (endpoint, config.url(), "x-goog-meta-");
        let rest = Rest { http, signer, proof, shut_out: ShutOut::default(), root, url, meta };
        let uploads = format!("{}{UPLOADS}/", base.as_str());
        Ok(Gcs {
            bucket: Arc::new(Bucket { rest, name: config.bucket.clone() }),
            uploads,
            swept: Mutex::new(None),
        })
    }

    fn dir(&self, upload: &Upload) -> String {
        format!("{}{}/", self.uploads, upload.id)
    }

    /// Without what is being uploaded, of whoever.
    async fn page(&self, prefix: &str, by_directory: bool, after: Option<&str>, most: u32) -> Result<Page> {
        let mut page = self.bucket.list(prefix, by_directory, after, most).await?;
        if page.prefixes.contains(&self.uploads) {
            self.sweep();
        }
        page.objects.retain(|object| !is_of_upload(&object.key));
        page.prefixes.retain(|prefix| !is_of_upload(prefix));
        page.unclear.retain(|key| !is_of_upload(key));
        Ok(page)
    }

    /// Once a day: what was left by processes that ended.
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

    /// One level up: each 32 are one then.
    async fn composed(&self, dir: &str, pieces: Vec<Piece>) -> Result<Vec<Piece>> {
        let groups = pieces.chunks(COMPOSE_MAX).map(|group| {
            let (bucket, group, dir) = (self.bucket.clone(), group.to_vec(), dir.to_owned());
            async move {
                if let [alone] = &group[..] {
                    return Ok(alone.clone());
                }
                let key = format!("{dir}composed-{}", random()?);
                let (word, _) = bucket.compose(&group, &key, &Metadata::new(), Condition::Always).await?;
                Ok(Piece { key, generation: word.generation })
            }
        });
        some_at_a_time(TOGETHER, groups.collect::<Vec<_>>().into_iter()).await
    }
}

/// Whether a key, or what keys begin with, lies in a directory of uploads.
fn is_of_upload(key: &str) -> bool {
    key.split('/').any(|part| part == UPLOADS)
}

/// Whether the upload began so long ago that nobody goes on with it. What has no day in its name is not ours.
fn is_old(id: &str, today: NaiveDate) -> bool {
    let day = id.get(..DAY_LENGTH).and_then(|day| NaiveDate::parse_from_str(day, DAY).ok());
    day.is_some_and(|day| today - day > OLD)
}

/// By the store's clock: ours may be wrong, and what others are uploading is theirs.
async fn remove_old(bucket: &Arc<Bucket>, uploads: &str) -> Result<()> {
    let now = bucket.time().await?;
    let (today, young) = (now.date_naive(), (now - OLD).timestamp());
    let (mut after, mut course) = (None, Course::new(HIDDEN_MAX));
    loop {
        let page = bucket.list(uploads, true, after.as_deref(), PAGE).await?;
        let old = |prefix: &&String| prefix.strip_prefix(uploads).is_some_and(|id| is_old(id, today));
        for dir in page.prefixes.iter().filter(old) {
            // The day in its name is by the clock of who began it.
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
async fn has_young(bucket: &Arc<Bucket>, prefix: &str, second: i64) -> Result<bool> {
    let (mut after, mut course) = (None, Course::new(HIDDEN_MAX));
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

/// All objects whose keys begin with this.
async fn remove_all(bucket: &Arc<Bucket>, prefix: &str) -> Result<()> {
    let (mut after, mut course) = (None, Course::new(HIDDEN_MAX));
    loop {
        let page = bucket.list(prefix, false, after.as_deref(), PAGE).await?;
        let removed = page.objects.clone().into_iter().map(|object| {
            let bucket = bucket.clone();
            async move { bucket.delete(&object.key, Condition::Always).await }
        });
        some_at_a_time(TOGETHER, removed).await?;
        after = course.after(&page, || bucket.rest.place(prefix))?;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// What names a part: its pieces in the directory of the upload, one after the other.
fn part_of_pieces(number: u32, dir: &str, pieces: &[Piece]) -> Part {
    let words = pieces.iter().map(|piece| {
        let name = piece.key.strip_prefix(dir).unwrap_or(&piece.key);
        format!("{name}/{}", piece.generation)
    });
    Part { number, etag: words.collect::<Vec<_>>().join(",") }
}

/// `None`: no part of ours.
fn pieces_of_part(dir: &str, part: &Part) -> Option<Vec<Piece>> {
    let piece = |word: &str| {
        let (name, generation) = word.split_once('/')?;
        Some(Piece { key: format!("{dir}{name}"), generation: generation.parse().ok()? })
    };
    part.etag.split(',').map(piece).collect()
}

/// A key that no other piece has, nor another try of the same one: that one would change an object that is there, which
/// Google allows once in a second.
fn piece_key(dir: &str, number: u32) -> Result<String> {
    Ok(format!("{dir}{number:05}-{}", random()?))
}

#[async_trait]
impl Store for Gcs {
    fn joins(&self) -> bool {
        true
    }

    async fn bucket_mark(&self) -> Result<Option<BucketMark>> {
        Ok(self.bucket.made().await?.map(BucketMark::Made))
    }

    fn connections(&self) -> u64 {
        self.bucket.connections()
    }

    async fn head(&self, key: &str) -> Result<Option<Stat>> {
        self.bucket.head(key).await
    }

    async fn get(&self, key: &str, etag: Option<&str>, range: ByteRange) -> Result<Got> {
        self.bucket.get(key, etag, range).await
    }

    async fn list(&self, prefix: &str, by_directory: bool, after: Option<&str>, most: u32) -> Result<Page> {
        let mut page = self.page(prefix, by_directory, after, most).await?;
        // Nothing in it is to be shown: past that in large steps.
        let mut course = Course::new(HIDDEN_MAX);
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
        condition: Condition<'_>,
    ) -> Result<Made> {
        self.bucket.put(key, data, metadata, condition).await.map(|(_, made)| made)
    }

    async fn delete(&self, key: &str, etag: Option<&str>) -> Result<()> {
        self.bucket.delete(key, Condition::unchanged(etag)).await
    }

    async fn copy(&self, from: Source<'_>, to: &str) -> Result<String> {
        self.bucket.rewrite(from, to).await.map(|word| word.etag())
    }

    async fn describe(&self, object: Source<'_>, metadata: &Metadata) -> Result<String> {
        self.bucket.patch(object, metadata).await.map(|word| word.etag())
    }

    async fn begin(&self, key: &str, metadata: &Metadata) -> Result<Upload> {
        let id = format!("{}-{}", Utc::now().format(DAY), random()?);
        Ok(Upload { key: key.to_owned(), id, metadata: metadata.clone() })
    }

    async fn part(&self, upload: &Upload, number: u32, data: Bytes) -> Result<Part> {
        let dir = self.dir(upload);
        let piece = self.bucket.put_piece(&piece_key(&dir, number)?, data).await?;
        Ok(part_of_pieces(number, &dir, &[piece]))
    }

    /// The store copies whole objects only: of others the bytes come here.
    async fn part_of(
        &self,
        upload: &Upload,
        number: u32,
        from: Source<'_>,
        range: ByteRange,
    ) -> Result<Part> {
        let dir = self.dir(upload);
        if range == ByteRange::new(0, from.size) {
            let key = piece_key(&dir, number)?;
            let word = self.bucket.rewrite(from, &key).await?;
            return Ok(part_of_pieces(number, &dir, &[Piece { key, generation: word.generation }]));
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

    async fn complete(&self, upload: &Upload, parts: &[Part], condition: Condition<'_>) -> Result<Made> {
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

    async fn abort(&self, upload: &Upload) -> Result<()> {
        remove_all(&self.bucket, &self.dir(upload)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_names_its_pieces() {
        let piece = |key: &str, generation| Piece { key: key.into(), generation };
        let pieces = [piece("p/u/1/00007-ab", 5), piece("p/u/1/00007-cd", u64::MAX)];
        let part = part_of_pieces(7, "p/u/1/", &pieces);
        assert_eq!(part.etag, "00007-ab/5,00007-cd/18446744073709551615");
        assert_eq!(pieces_of_part("p/u/1/", &part).as_deref(), Some(&pieces[..]));
        for foreign in ["", "\"etag\"", "a/", "a/1,b"] {
            assert_eq!(pieces_of_part("d/", &Part { number: 1, etag: foreign.into() }), None, "{foreign}");
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
