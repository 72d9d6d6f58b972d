//! The calls of Google Cloud Storage's JSON interface, one function each.
//! <https://cloud.google.com/storage/docs/json_api>
//!
//! An object's contents have a generation, and its metadata a metageneration that begins anew with each: the two
//! together are our ETag, since a change can be made conditional on them.

use std::collections::BTreeMap;

use ::http::Method;
use ::http::header;
use bytes::{Bytes, BytesMut};
use chrono::{DateTime, FixedOffset};
use percent_encoding::utf8_percent_encode;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use types::{ByteRange, Error, ErrorKind, Result, Timestamp};

use crate::errors::garbled;
use crate::listing_progress::UnclearEntries;
use crate::rest_client::{RestClient, StoreRequest, time_of};
use crate::store::{
    CopySource, GetResult, ListPage, ListedObject, Metadata, ObjectStat, Precondition, PutResult,
};
use crate::url_encoding::QUERY;

const JSON: &str = "application/json; charset=UTF-8";
const BYTES: &str = "application/octet-stream";
/// The fields of an object that are requested.
const FIELDS: &str = "name,size,generation,metageneration,updated,metadata";
/// The bytes that one call of a copy may move: a few seconds' worth.
const COPY_AT_ONCE: u64 = 256 << 20;
/// The most objects that one call composes.
pub const COMPOSE_MAX: usize = 32;

pub struct GcsBucket {
    pub rest: RestClient,
    pub name: String,
}

/// An object with these contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComposePiece {
    pub key: String,
    pub generation: u64,
}

/// The ETag: `"generation/metageneration"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationTag {
    pub generation: u64,
    pub metageneration: u64,
}

impl GenerationTag {
    /// `None`: it is not an ETag of this store.
    pub fn of(etag: &str) -> Option<GenerationTag> {
        let (generation, metageneration) = etag.trim_matches('"').split_once('/')?;
        Some(GenerationTag {
            generation: generation.parse().ok()?,
            metageneration: metageneration.parse().ok()?,
        })
    }

    pub fn etag(self) -> String {
        format!("\"{}/{}\"", self.generation, self.metageneration)
    }
}

#[derive(Deserialize)]
struct ObjectJson {
    #[serde(default)]
    name: String,
    #[serde(default, deserialize_with = "number")]
    size: u64,
    #[serde(deserialize_with = "number")]
    generation: u64,
    #[serde(deserialize_with = "number")]
    metageneration: u64,
    #[serde(default)]
    updated: String,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BucketJson {
    #[serde(default)]
    time_created: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListJson {
    /// An entry that makes no sense spoils itself, and not the listing.
    #[serde(default)]
    items: Vec<Value>,
    #[serde(default)]
    prefixes: Vec<String>,
    next_page_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RewriteJson {
    rewrite_token: Option<String>,
    resource: Option<ObjectJson>,
}

/// 64-bit numbers are strings in JSON.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<u64, D::Error> {
    let told = Value::deserialize(deserializer)?;
    let number = told.as_u64().or_else(|| told.as_str()?.parse().ok());
    number.ok_or_else(|| serde::de::Error::custom("no number"))
}

impl ObjectJson {
    fn tag(&self) -> GenerationTag {
        GenerationTag { generation: self.generation, metageneration: self.metageneration }
    }

    fn modified(&self) -> std::result::Result<Timestamp, chrono::ParseError> {
        DateTime::parse_from_rfc3339(&self.updated).map(time_of)
    }

    fn made(&self) -> (GenerationTag, PutResult) {
        (self.tag(), PutResult { etag: self.tag().etag(), modified: self.modified().ok() })
    }

    fn into_listed(self) -> std::result::Result<ListedObject, String> {
        let modified = self.modified().map_err(|e| format!("{:?}: {e}", self.updated))?;
        if i64::try_from(self.size).is_err() {
            return Err(format!("the size {}", self.size));
        }
        let (key, size, etag) = (self.name.clone(), self.size, self.tag().etag());
        Ok(ListedObject { key, size, etag, modified, metadata: Some(self.metadata()) })
    }

    /// Metadata names keep their case at the store, and lose it here.
    fn metadata(self) -> Metadata {
        self.metadata.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect()
    }
}

fn encoded(key: &str) -> String {
    utf8_percent_encode(key, QUERY).to_string()
}

/// Random hexadecimal digits.
pub fn random() -> Result<String> {
    let mut random = [0; 16];
    SystemRandom::new()
        .fill(&mut random)
        .map_err(|e| Error::new(ErrorKind::Io, "draw", "a random number").with_source(e))?;
    Ok(format!("{:032x}", u128::from_be_bytes(random)))
}

impl GcsBucket {
    fn object(&self, key: &str) -> String {
        format!("/storage/v1/b/{}/o/{}", self.name, encoded(key))
    }

    /// `of`: the middle of the condition parameters' names, for a source.
    fn unchanged<'a>(
        &self,
        ask: StoreRequest<'a>,
        key: &str,
        of: &str,
        etag: &str,
    ) -> Result<StoreRequest<'a>> {
        let word = GenerationTag::of(etag).ok_or_else(|| {
            Error::new(ErrorKind::VersionChanged, "compare", format!("{} with {etag}", self.rest.place(key)))
        })?;
        Ok(ask
            .query(&format!("if{of}GenerationMatch"), &word.generation.to_string())
            .query(&format!("if{of}MetagenerationMatch"), &word.metageneration.to_string()))
    }

    fn condition<'a>(
        &self,
        ask: StoreRequest<'a>,
        key: &str,
        condition: Precondition<'_>,
    ) -> Result<StoreRequest<'a>> {
        match condition {
            Precondition::Always => Ok(ask),
            Precondition::Absent => Ok(ask.query("ifGenerationMatch", "0")),
            Precondition::Unchanged(etag) => self.unchanged(ask, key, "", etag),
        }
    }

    /// `None`: nothing has this key.
    async fn fetch(&self, key: &str) -> Result<Option<ObjectJson>> {
        let ask = StoreRequest::new("look at", Method::GET, key).at(self.object(key)).query("fields", FIELDS);
        match self.rest.ask_json(ask).await {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            told => told.map(Some),
        }
    }

    pub fn connections(&self) -> u64 {
        self.rest.connections()
    }

    /// When the bucket was created, if the credentials may see that.
    pub async fn made(&self) -> Result<Option<String>> {
        let path = format!("/storage/v1/b/{}", utf8_percent_encode(&self.name, QUERY));
        let ask = StoreRequest::new("look at", Method::GET, "").at(path).query("fields", "timeCreated");
        match self.rest.ask_json(ask).await {
            Ok(BucketJson { time_created }) => Ok(Some(time_created).filter(|told| !told.is_empty())),
            Err(e) if e.outage_reason().is_none() => Ok(None),
            Err(e) => Err(e),
        }
    }

    pub async fn head(&self, key: &str) -> Result<Option<ObjectStat>> {
        let Some(told) = self.fetch(key).await? else { return Ok(None) };
        let modified = told.modified().map_err(|e| garbled("look at", self.rest.place(key), e))?;
        let (size, etag) = (told.size, told.tag().etag());
        Ok(Some(ObjectStat { size, etag, modified, metadata: told.metadata() }))
    }

    pub async fn get(&self, key: &str, etag: Option<&str>, range: ByteRange) -> Result<GetResult> {
        // Without decompression, or a range would be of something else.
        let ask = StoreRequest::new("read", Method::GET, key)
            .at(self.object(key))
            .query("alt", "media")
            .header(header::ACCEPT_ENCODING, "gzip")?;
        let ask = self.condition(ask, key, Precondition::unchanged(etag))?;
        let (headers, size, data) = self.rest.ask_range(ask, range).await?;
        let told = |name: &str| headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
        let generation = told("x-goog-generation")
            .ok_or_else(|| garbled("read", self.rest.place(key), "an answer without a generation"))?;
        if let Some(metageneration) = told("x-goog-metageneration") {
            return Ok(GetResult { etag: GenerationTag { generation, metageneration }.etag(), size, data });
        }
        // Emulators leave it out.
        let now = self.fetch(key).await?.map(|told| told.tag()).filter(|word| word.generation == generation);
        let etag = now.ok_or_else(|| Error::new(ErrorKind::VersionChanged, "read", self.rest.place(key)))?;
        Ok(GetResult { etag: etag.etag(), size, data })
    }

    /// A page as the store returns it, uploads included.
    pub async fn list(
        &self,
        prefix: &str,
        by_directory: bool,
        after: Option<&str>,
        most: u32,
    ) -> Result<ListPage> {
        let mut ask = StoreRequest::new("list", Method::GET, "").at(format!("/storage/v1/b/{}/o", self.name));
        if by_directory {
            ask = ask.query("delimiter", "/");
        }
        if let Some(token) = after {
            ask = ask.query("pageToken", token);
        }
        if !prefix.is_empty() {
            ask = ask.query("prefix", prefix);
        }
        let ask = ask
            .query("maxResults", &most.to_string())
            .query("fields", &format!("nextPageToken,prefixes,items({FIELDS})"));
        let told: ListJson = self.rest.ask_json(ask).await?;
        let next = self.rest.next_token(prefix, after, told.next_page_token)?;
        let mut unclear = UnclearEntries::default();
        let mut page = ListPage { prefixes: told.prefixes, next, ..ListPage::default() };
        for item in told.items {
            let name = item["name"].as_str().filter(|name| !name.is_empty()).map(str::to_owned);
            let listed = ObjectJson::deserialize(item).map_err(|e| e.to_string());
            let listed = listed.and_then(|item| item.into_listed());
            match (name, listed) {
                (Some(_), Ok(listed)) => page.objects.push(listed),
                (name, Err(why)) => unclear.note(name, &why),
                (None, Ok(_)) => unclear.note(None, "it has no name"),
            }
        }
        page.unclear = unclear.report(|| self.rest.place(prefix));
        Ok(page)
    }

    /// The time by the store's clock.
    pub async fn time(&self) -> Result<DateTime<FixedOffset>> {
        let ask = StoreRequest::new("list", Method::GET, "").at(format!("/storage/v1/b/{}/o", self.name));
        let answer = self.rest.ask(ask.query("maxResults", "1").query("fields", "nextPageToken")).await?;
        let date = answer.headers().get(header::DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| DateTime::parse_from_rfc2822(date).ok());
        date.ok_or_else(|| garbled("list", self.rest.place(""), "an answer without its time"))
    }

    pub async fn put(
        &self,
        key: &str,
        data: Bytes,
        metadata: &Metadata,
        condition: Precondition<'_>,
    ) -> Result<(GenerationTag, PutResult)> {
        let head = json!({ "name": key, "contentType": BYTES, "metadata": metadata });
        let boundary = random()?;
        let begin = format!(
            "--{boundary}\r\nContent-Type: {JSON}\r\n\r\n{head}\r\n--{boundary}\r\nContent-Type: {BYTES}\r\n\r\n"
        );
        let end = format!("\r\n--{boundary}--\r\n");
        let mut body = BytesMut::with_capacity(begin.len() + data.len() + end.len());
        [begin.as_bytes(), &data, end.as_bytes()].into_iter().for_each(|part| body.extend_from_slice(part));
        let ask = StoreRequest::new("store", Method::POST, key)
            .at(format!("/upload/storage/v1/b/{}/o", self.name))
            .query("uploadType", "multipart")
            .query("fields", FIELDS)
            .header(header::CONTENT_TYPE, &format!("multipart/related; boundary={boundary}"))?
            .data(body.freeze());
        let ask = self.condition(ask, key, condition)?;
        self.rest.ask_json(ask).await.map(|told: ObjectJson| told.made())
    }

    /// Puts bytes without metadata, under a unique key.
    pub async fn put_piece(&self, key: &str, data: Bytes) -> Result<ComposePiece> {
        let ask = StoreRequest::new("store a part as", Method::POST, key)
            .at(format!("/upload/storage/v1/b/{}/o", self.name))
            .query("uploadType", "media")
            .query("name", key)
            .query("fields", FIELDS)
            .header(header::CONTENT_TYPE, BYTES)?
            .data(data);
        let told: ObjectJson = self.rest.ask_json(ask).await?;
        Ok(ComposePiece { key: key.to_owned(), generation: told.generation })
    }

    /// Without an error where nothing has the key.
    pub async fn delete(&self, key: &str, condition: Precondition<'_>) -> Result<()> {
        let ask = StoreRequest::new("remove", Method::DELETE, key).at(self.object(key));
        self.rest.delete(self.condition(ask, key, condition)?).await
    }

    /// Copies at the store, without moving bytes if both are stored alike; else in several calls.
    pub async fn rewrite(&self, from: CopySource<'_>, to: &str) -> Result<GenerationTag> {
        let path = format!("{}/rewriteTo/b/{}/o/{}", self.object(from.key), self.name, encoded(to));
        let mut token: Option<String> = None;
        loop {
            let ask = StoreRequest::new("copy", Method::POST, to)
                .at(path.clone())
                .query("maxBytesRewrittenPerCall", &COPY_AT_ONCE.to_string())
                .query("fields", "rewriteToken,resource(generation,metageneration)")
                .header(header::CONTENT_LENGTH, "0")?;
            let ask = self.unchanged(ask, from.key, "Source", from.etag)?;
            let ask = match &token {
                Some(token) => ask.query("rewriteToken", token),
                None => ask,
            };
            let told: RewriteJson = self.rest.ask_json(ask).await?;
            match (told.resource, told.rewrite_token) {
                (Some(copy), _) => return Ok(copy.tag()),
                (None, Some(next)) => token = Some(next),
                (None, None) => {
                    return Err(garbled("copy", self.rest.place(to), "neither done nor to be gone on with"));
                }
            }
        }
    }

    /// Concatenates at most 32 objects into a new one.
    pub async fn compose(
        &self,
        pieces: &[ComposePiece],
        to: &str,
        metadata: &Metadata,
        condition: Precondition<'_>,
    ) -> Result<(GenerationTag, PutResult)> {
        let sources = pieces
            .iter()
            .map(|piece| json!({ "name": piece.key, "generation": piece.generation.to_string() }));
        let body = json!({
            "sourceObjects": sources.collect::<Vec<_>>(),
            "destination": { "contentType": BYTES, "metadata": metadata },
        });
        let ask = StoreRequest::new("complete", Method::POST, to)
            .at(format!("{}/compose", self.object(to)))
            .query("fields", FIELDS)
            .header(header::CONTENT_TYPE, JSON)?
            .data(body.to_string().into());
        let ask = self.condition(ask, to, condition)?;
        self.rest.ask_json(ask).await.map(|told: ObjectJson| told.made())
    }

    /// Replaces all metadata; the contents are not copied.
    pub async fn patch(&self, object: CopySource<'_>, metadata: &Metadata) -> Result<GenerationTag> {
        let changed = || Error::new(ErrorKind::VersionChanged, "describe", self.rest.place(object.key));
        let gone = || Error::new(ErrorKind::NotFound, "describe", self.rest.place(object.key));
        let told = self.fetch(object.key).await?.ok_or_else(gone)?;
        if GenerationTag::of(object.etag) != Some(told.tag()) {
            return Err(changed());
        }
        // What is not named stays; what must go is named with null.
        let mut patch: BTreeMap<&str, Option<&str>> =
            told.metadata.keys().map(|name| (name.as_str(), None)).collect();
        patch.extend(metadata.iter().map(|(name, value)| (name.as_str(), Some(value.as_str()))));
        let ask = StoreRequest::new("describe", Method::PATCH, object.key)
            .at(self.object(object.key))
            .query("fields", FIELDS)
            .header(header::CONTENT_TYPE, JSON)?
            .data(json!({ "metadata": patch }).to_string().into());
        let ask = self.unchanged(ask, object.key, "", object.etag)?;
        self.rest.ask_json(ask).await.map(|told: ObjectJson| told.tag())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_by_both_its_generations() {
        let word = GenerationTag { generation: 1_595_002_920_000_000, metageneration: 3 };
        assert_eq!(word.etag(), "\"1595002920000000/3\"");
        assert_eq!(GenerationTag::of(&word.etag()), Some(word));
        for never_said in ["", "\"0x1\"", "\"1\"", "\"1/\"", "1/2/3", "-1/2"] {
            assert_eq!(GenerationTag::of(never_said), None, "{never_said}");
        }
    }

    #[test]
    fn a_listing_is_understood_as_the_store_writes_it() {
        let told: ListJson = serde_json::from_str(
            r#"{"kind":"storage#objects","nextPageToken":"more","prefixes":["d/"],"items":[{"name":"a","size":"3",
            "generation":"1595002920000000","metageneration":"2","updated":"2026-01-02T03:04:05.678Z",
            "metadata":{"Colour":"blue"}},{"name":"b","size":"0","generation":"7","metageneration":"1",
            "updated":"2026-01-02T03:04:05Z"}]}"#,
        )
        .unwrap();
        let items = told.items.into_iter().map(|item| ObjectJson::deserialize(item).expect("an object"));
        let [a, b] = <[ObjectJson; 2]>::try_from(items.collect::<Vec<_>>()).ok().expect("two");
        assert_eq!((a.tag().etag().as_str(), a.size), ("\"1595002920000000/2\"", 3));
        assert_eq!(a.modified().unwrap().nanos, 678_000_000);
        assert_eq!(a.metadata(), Metadata::from([("colour".into(), "blue".into())]));
        assert!(b.metadata.is_empty());
        let empty: ListJson = serde_json::from_str(r#"{"kind":"storage#objects"}"#).unwrap();
        assert!(empty.items.is_empty() && empty.prefixes.is_empty() && empty.next_page_token.is_none());
    }
}
