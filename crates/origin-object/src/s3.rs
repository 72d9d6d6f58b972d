//! The calls of S3's REST interface: one function each. <https://docs.aws.amazon.com/AmazonS3/latest/API/>

use std::fmt::Write as _;

use ::http::Method;
use ::http::header::{self, HeaderMap, HeaderName};
use ::origin::renewable_signer::ShutOut;
use async_trait::async_trait;
use bytes::Bytes;
use chrono::DateTime;
use percent_encoding::{percent_decode_str, utf8_percent_encode};
use serde::Deserialize;
use types::{ByteRange, Error, ErrorKind, Result};

use crate::credential_env::CredentialEnv;
use crate::http::Http;
use crate::keys::KeyBase;
use crate::listing_progress::UnclearEntries;
use crate::rest_client::{RestClient, StoreRequest, etag_in_xml, quoted, size_in, time_of};
use crate::s3_endpoint::S3Endpoint;
use crate::store::{
    BucketMark, CopySource, GetResult, ListPage, ListedObject, Metadata, MultipartUpload, ObjectStat,
    ObjectStore, Precondition, PutResult, UploadedPart,
};
use crate::url::{Addressing, Config};
use crate::url_encoding::PATH;

const META: &str = "x-amz-meta-";
const COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");
const COPY_SOURCE_IF_MATCH: HeaderName = HeaderName::from_static("x-amz-copy-source-if-match");
/// The headers of an object that a store forgets when it gets other metadata.
const KEPT: [&str; 10] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-server-side-encryption-bucket-key-enabled",
    "x-amz-website-redirect-location",
];
const STORAGE_CLASS: HeaderName = HeaderName::from_static("x-amz-storage-class");
/// The storage classes that can be read at once. An object restored from an archive would be archived again, and
/// stores that move objects elsewhere name that place.
const CLASSES_KEPT: [&str; 7] = [
    "EXPRESS_ONEZONE",
    "GLACIER_IR",
    "INTELLIGENT_TIERING",
    "ONEZONE_IA",
    "OUTPOSTS",
    "REDUCED_REDUNDANCY",
    "STANDARD_IA",
];
/// The longest object that a store copies in one call.
const COPY_MAX: u64 = 5 << 30;

pub struct S3Store {
    rest: RestClient,
    /// The bucket, which a copy's source begins with.
    bucket: String,
    /// The service's endpoint, for the list of buckets.
    endpoint: String,
}

impl S3Store {
    pub fn new(config: &Config, http: Http, environment: Option<&CredentialEnv>) -> Result<S3Store> {
        let S3Endpoint { signer, region, endpoint } = S3Endpoint::of_s3(config, &http, environment)?;
        let bucket = &config.bucket;
        let own = endpoint.is_some();
        let addressing =
            config.addressing.unwrap_or(if own { Addressing::Path } else { Addressing::Virtual });
        let endpoint = endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let endpoint = endpoint.trim_end_matches('/');
        let root = match (addressing, endpoint.split_once("://")) {
            (Addressing::Virtual, Some((scheme, host))) => format!("{scheme}://{bucket}.{host}"),
            _ => format!("{endpoint}/{bucket}"),
        };
        let find = |config: &Config, http: &Http, environment: Option<&CredentialEnv>| {
            S3Endpoint::of_s3(config, http, environment).map(|place| place.signer)
        };
        let signer = signer.renewed_by(find, (config, &http, environment));
        let base = KeyBase::new(&config.prefix, config.dialect);
        let proof = StoreRequest::new("list", Method::GET, "").query("list-type", "2").query("max-keys", "1");
        let proof = (None, proof.query("prefix", base.as_str()).into_query());
        let shut_out = ShutOut::default();
        let rest = RestClient { http, signer, proof, shut_out, root, url: config.url(), meta: META };
        Ok(S3Store { rest, bucket: bucket.clone(), endpoint: endpoint.to_owned() })
    }

    /// The headers of a HEAD of the object.
    async fn head_headers(&self, object: CopySource<'_>) -> Result<HeaderMap> {
        let ask = StoreRequest::new("look at", Method::HEAD, object.key);
        let answer = self.rest.ask(ask.condition(Precondition::Unchanged(object.etag))?).await?;
        Ok(answer.headers().clone())
    }

    async fn begin_with(&self, key: &str, metadata: &Metadata, known: &HeaderMap) -> Result<MultipartUpload> {
        let ask = StoreRequest::new("begin to store", Method::POST, key).query("uploads", "");
        let told: BeginAnswer =
            self.rest.ask_xml(with_kept_headers(ask.metadata(META, metadata)?, known)?).await?;
        Ok(MultipartUpload { key: key.to_owned(), id: told.upload_id, metadata: metadata.clone() })
    }

    fn copies<'a>(
        &self,
        operation: &'static str,
        from: CopySource<'_>,
        to: &'a str,
    ) -> Result<StoreRequest<'a>> {
        let source = format!("/{}/{}", self.bucket, utf8_percent_encode(from.key, PATH));
        StoreRequest::new(operation, Method::PUT, to)
            .header(COPY_SOURCE, &source)?
            .header(COPY_SOURCE_IF_MATCH, from.etag)
    }
}

fn with_kept_headers<'a>(mut ask: StoreRequest<'a>, known: &HeaderMap) -> Result<StoreRequest<'a>> {
    for name in KEPT.map(HeaderName::from_static).into_iter().chain([STORAGE_CLASS]) {
        let value = known.get(&name).and_then(|value| value.to_str().ok());
        if let Some(value) = value.filter(|value| name != STORAGE_CLASS || CLASSES_KEPT.contains(value)) {
            ask = ask.header(name, value)?;
        }
    }
    Ok(ask)
}

#[async_trait]
impl ObjectStore for S3Store {
    fn copy_max(&self) -> u64 {
        COPY_MAX
    }

    fn describe_max(&self) -> u64 {
        COPY_MAX
    }

    fn keeps_parts(&self) -> bool {
        true
    }

    /// From the list of buckets, which not all credentials may see.
    async fn bucket_mark(&self) -> Result<Option<BucketMark>> {
        let ask = StoreRequest::new("list buckets", Method::GET, "").at("/".into()).below(&self.endpoint);
        let told: Result<BucketsAnswer> = self.rest.ask_xml(ask).await;
        match told {
            Ok(told) => {
                let mut all = told.buckets.bucket.into_iter();
                let ours = all.find(|bucket| bucket.name == self.bucket);
                Ok(ours.map(|bucket| BucketMark::Made(bucket.creation_date)))
            }
            Err(e) if e.outage_reason().is_none() => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn connections(&self) -> u64 {
        self.rest.connections()
    }

    async fn head(&self, key: &str) -> Result<Option<ObjectStat>> {
        self.rest.head(key).await
    }

    async fn get(&self, key: &str, etag: Option<&str>, range: ByteRange) -> Result<GetResult> {
        self.rest.get(key, etag, range).await
    }

    async fn list(
        &self,
        prefix: &str,
        by_directory: bool,
        after: Option<&str>,
        most: u32,
    ) -> Result<ListPage> {
        let mut ask = StoreRequest::new("list", Method::GET, "").query("list-type", "2");
        if let Some(token) = after {
            ask = ask.query("continuation-token", token);
        }
        if by_directory {
            ask = ask.query("delimiter", "/");
        }
        // Makes keys with characters that XML cannot hold arrive.
        ask = ask.query("encoding-type", "url").query("max-keys", &most.to_string()).query("prefix", prefix);
        let told: S3ListXml = self.rest.ask_xml(ask).await?;
        let plain = told.encoding_type.is_none();
        let decoded = |text: String| {
            if plain {
                return Ok(text);
            }
            let spaced = text.replace('+', " ");
            let decoded = percent_decode_str(&spaced).decode_utf8();
            decoded.map(|text| text.into_owned())
        };
        let next = told.next_continuation_token.filter(|_| told.is_truncated);
        let mut page = ListPage { next: self.rest.next_token(prefix, after, next)?, ..ListPage::default() };
        let mut unclear = UnclearEntries::default();
        for told in told.common_prefixes {
            match told.prefix.map(decoded) {
                Some(Ok(prefix)) => page.prefixes.push(prefix),
                _ => unclear.note(None, "the name of a directory that is no text"),
            }
        }
        for object in told.contents {
            let Some(Ok(key)) = object.key.map(decoded) else {
                unclear.note(None, "a key that is no text");
                continue;
            };
            let size = size_in(object.size.as_deref());
            let modified = object.last_modified.as_deref().map(DateTime::parse_from_rfc3339);
            match (size, modified, object.e_tag) {
                (Some(size), Some(Ok(modified)), Some(etag)) => {
                    let (etag, modified) = (quoted(&etag), time_of(modified));
                    page.objects.push(ListedObject { key, size, etag, modified, metadata: None });
                }
                _ => {
                    let (size, time) = (object.size, object.last_modified);
                    unclear.note(Some(key), &format!("the size {size:?}, the time {time:?}"));
                }
            }
        }
        page.unclear = unclear.report(|| self.rest.place(prefix));
        Ok(page)
    }

    async fn put(
        &self,
        key: &str,
        data: Bytes,
        metadata: &Metadata,
        condition: Precondition<'_>,
    ) -> Result<PutResult> {
        let ask = StoreRequest::new("store", Method::PUT, key).data(data);
        let answer = self.rest.ask(ask.metadata(META, metadata)?.condition(condition)?).await?;
        self.rest.stored("store", key, answer.headers(), header::DATE)
    }

    /// A store that ignores the condition of a DELETE removes whatever is there: so a HEAD comes first.
    async fn delete(&self, key: &str, etag: Option<&str>) -> Result<()> {
        if let Some(etag) = etag {
            match self.rest.head(key).await? {
                None => return Ok(()),
                Some(stat) if stat.etag == etag => {}
                Some(_) => return Err(Error::new(ErrorKind::VersionChanged, "remove", self.rest.place(key))),
            }
        }
        let ask = StoreRequest::new("remove", Method::DELETE, key);
        self.rest.delete(ask.condition(Precondition::unchanged(etag))?).await
    }

    async fn copy(&self, from: CopySource<'_>, to: &str) -> Result<String> {
        let told: CopyAnswer = self.rest.ask_xml(self.copies("copy", from, to)?).await?;
        Ok(told.e_tag)
    }

    /// Copies the object onto itself.
    async fn describe(&self, object: CopySource<'_>, metadata: &Metadata) -> Result<String> {
        let known = self.head_headers(object).await?;
        let ask = self
            .copies("describe", object, object.key)?
            .header(HeaderName::from_static("x-amz-metadata-directive"), "REPLACE")?
            .metadata(META, metadata)?;
        let told: CopyAnswer = self.rest.ask_xml(with_kept_headers(ask, &known)?).await?;
        Ok(told.e_tag)
    }

    async fn begin(&self, key: &str, metadata: &Metadata) -> Result<MultipartUpload> {
        self.begin_with(key, metadata, &HeaderMap::new()).await
    }

    async fn begin_copy(
        &self,
        from: CopySource<'_>,
        to: &str,
        metadata: Option<&Metadata>,
    ) -> Result<MultipartUpload> {
        let known = self.head_headers(from).await?;
        let metadata = metadata.cloned().unwrap_or_else(|| self.rest.metadata_of(&known));
        self.begin_with(to, &metadata, &known).await
    }

    async fn part(&self, upload: &MultipartUpload, number: u32, data: Bytes) -> Result<UploadedPart> {
        let ask = StoreRequest::new("store a part of", Method::PUT, &upload.key)
            .query("partNumber", &number.to_string())
            .query("uploadId", &upload.id)
            .data(data);
        let answer = self.rest.ask(ask).await?;
        Ok(UploadedPart {
            number,
            etag: self.rest.etag_of("store a part of", &upload.key, answer.headers())?,
        })
    }

    async fn part_of(
        &self,
        upload: &MultipartUpload,
        number: u32,
        from: CopySource<'_>,
        range: ByteRange,
    ) -> Result<UploadedPart> {
        let ask = self
            .copies("copy a part of", from, &upload.key)?
            .query("partNumber", &number.to_string())
            .query("uploadId", &upload.id);
        // Of a source of 5 MiB or less AWS documents copies as a whole alone.
        let ask = match range == ByteRange::new(0, from.size) {
            true => ask,
            false => ask.header(
                HeaderName::from_static("x-amz-copy-source-range"),
                &format!("bytes={}-{}", range.offset, range.end() - 1),
            )?,
        };
        let told: CopyAnswer = self.rest.ask_xml(ask).await?;
        Ok(UploadedPart { number, etag: told.e_tag })
    }

    async fn complete(
        &self,
        upload: &MultipartUpload,
        parts: &[UploadedPart],
        condition: Precondition<'_>,
    ) -> Result<PutResult> {
        let mut xml = String::from("<CompleteMultipartUpload>");
        for part in parts {
            let etag = quick_xml::escape::escape(part.etag.as_str());
            let _ = write!(xml, "<Part><PartNumber>{}</PartNumber><ETag>{etag}</ETag>", part.number);
            xml.push_str("</Part>");
        }
        xml.push_str("</CompleteMultipartUpload>");
        let ask = StoreRequest::new("complete", Method::POST, &upload.key).query("uploadId", &upload.id);
        let told: CopyAnswer = self.rest.ask_xml(ask.condition(condition)?.data(xml.into())).await?;
        // Its time may be that of the upload's beginning.
        Ok(PutResult { etag: told.e_tag, modified: None })
    }

    async fn abort(&self, upload: &MultipartUpload) -> Result<()> {
        let ask =
            StoreRequest::new("give up storing", Method::DELETE, &upload.key).query("uploadId", &upload.id);
        self.rest.delete(ask).await
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BucketsAnswer {
    #[serde(default)]
    buckets: BucketsXml,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BucketsXml {
    #[serde(default)]
    bucket: Vec<BucketTold>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BucketTold {
    name: String,
    creation_date: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct S3ListXml {
    #[serde(default)]
    is_truncated: bool,
    #[serde(default)]
    encoding_type: Option<String>,
    #[serde(default)]
    next_continuation_token: Option<String>,
    #[serde(default)]
    contents: Vec<ListedXml>,
    #[serde(default)]
    common_prefixes: Vec<PrefixXml>,
}

/// As text, and perhaps absent: a value that makes no sense spoils its own object, and not the listing.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListedXml {
    key: Option<String>,
    size: Option<String>,
    last_modified: Option<String>,
    #[serde(rename = "ETag")]
    e_tag: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PrefixXml {
    prefix: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BeginAnswer {
    upload_id: String,
}

/// The answer to a copy, a copied part, or a completion.
#[derive(Deserialize)]
struct CopyAnswer {
    #[serde(rename = "ETag", deserialize_with = "etag_in_xml")]
    e_tag: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its listings told of another version than its answers to HEAD, and its copies were not known for copies.
    #[test]
    fn an_object_has_one_etag_however_a_store_spells_it() {
        for spelled in ["&quot;0a-2&quot;", "\"0a-2\"", "0a-2"] {
            let listed = format!(
                "<ListBucketResult><Contents><Key>k</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified><ETag>\
                 {spelled}</ETag><Size>3</Size></Contents></ListBucketResult>"
            );
            let listed: S3ListXml = quick_xml::de::from_str(&listed).unwrap();
            let listed = listed.contents[0].e_tag.as_deref().map(quoted);
            assert_eq!(listed.as_deref(), Some("\"0a-2\""), "{spelled}");
            let copied = format!("<CopyObjectResult><ETag>{spelled}</ETag></CopyObjectResult>");
            let copied: CopyAnswer = quick_xml::de::from_str(&copied).unwrap();
            assert_eq!(copied.e_tag, "\"0a-2\"", "{spelled}");
        }
    }
}
