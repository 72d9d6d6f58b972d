//! The calls of Azure Blob Storage: block blobs of one container.
//! <https://learn.microsoft.com/rest/api/storageservices/blob-service-rest-api>
//!
//! An upload has no name there: blocks are put beside the blob, and a list of them becomes it. Our upload's id is
//! the first part of its blocks' ids, so that two writers of one blob never take each other's. The store drops
//! blocks that no list named with the next change of the blob, or after a week; there is no call for it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ::http::Method;
use ::http::header::{self, HeaderName};
use ::origin::renewable_signer::ShutOut;
use async_trait::async_trait;
use bytes::Bytes;
use chrono::DateTime;
use percent_encoding::{percent_decode_str, utf8_percent_encode};
use ring::rand::{SecureRandom, SystemRandom};
use serde::Deserialize;
use types::{ByteRange, Error, ErrorKind, Result};

use crate::azure_endpoint::AzureEndpoint;
use crate::credential_env::CredentialEnv;
use crate::http::Http;
use crate::keys::KeyBase;
use crate::listing_progress::{HIDDEN_MAX, ListingProgress, UnclearEntries};
use crate::rest_client::{RestClient, StoreRequest, quoted, size_in, time_of};
use crate::store::{
    BucketMark, CopySource, GetResult, ListPage, ListedObject, Metadata, MultipartUpload, ObjectStat,
    ObjectStore, Precondition, PutResult, UploadedPart,
};
use crate::url::Config;
use crate::url_encoding::PATH;

const META: &str = "x-ms-meta-";
const COPY_SOURCE: HeaderName = HeaderName::from_static("x-ms-copy-source");
const SOURCE_IF_MATCH: HeaderName = HeaderName::from_static("x-ms-source-if-match");
/// The longest blob, and part, that is copied by one call. Azure takes 256 MiB, and answers when it is done: a call
/// on which nothing moves is given up.
const COPY_AT_ONCE: u64 = 64 << 20;
/// The metadata by which azcopy, blobfuse2, rclone and Hadoop know a directory's marker.
const FOLDER: &str = "hdi_isfolder";

pub struct AzureStore {
    rest: RestClient,
}

impl AzureStore {
    pub fn new(config: &Config, http: Http, environment: Option<&CredentialEnv>) -> Result<AzureStore> {
        let AzureEndpoint { signer, root } = AzureEndpoint::of(config, &http, environment)?;
        let find = |config: &Config, http: &Http, environment: Option<&CredentialEnv>| {
            AzureEndpoint::of(config, http, environment).map(|place| place.signer)
        };
        let signer = signer.renewed_by(find, (config, &http, environment));
        let base = KeyBase::new(&config.prefix, config.dialect);
        let proof =
            StoreRequest::new("list", Method::GET, "").query("restype", "container").query("comp", "list");
        let proof = proof.query("maxresults", "1").query("prefix", base.as_str());
        let (proof, shut_out) = ((None, proof.into_query()), ShutOut::default());
        Ok(AzureStore {
            rest: RestClient { http, signer, proof, shut_out, root, url: config.url(), meta: META },
        })
    }

    /// The store reads the source itself, and needs a permission of its own for that.
    async fn copies<'a>(&self, ask: StoreRequest<'a>, from: CopySource<'_>) -> Result<StoreRequest<'a>> {
        let url = format!("{}/{}", self.rest.root, utf8_percent_encode(from.key, PATH));
        let (url, authorization) = self.rest.signer.get().copy_source(url).await?;
        let ask = ask.header(COPY_SOURCE, &url)?.header(SOURCE_IF_MATCH, from.etag)?;
        match authorization {
            Some(token) => ask.header(HeaderName::from_static("x-ms-copy-source-authorization"), &token),
            None => Ok(ask),
        }
    }

    async fn page(
        &self,
        prefix: &str,
        by_directory: bool,
        after: Option<&str>,
        most: u32,
    ) -> Result<ListPage> {
        let mut ask =
            StoreRequest::new("list", Method::GET, "").query("restype", "container").query("comp", "list");
        if by_directory {
            ask = ask.query("delimiter", "/");
        }
        if let Some(marker) = after {
            ask = ask.query("marker", marker);
        }
        if !prefix.is_empty() {
            ask = ask.query("prefix", prefix);
        }
        let ask = ask.query("include", "metadata").query("maxresults", &most.to_string());
        let told: AzureListXml = self.rest.ask_xml(ask).await?;
        let next = self.rest.next_token(prefix, after, told.next_marker)?;
        let (mut page, mut unclear) = (ListPage { next, ..ListPage::default() }, UnclearEntries::default());
        for entry in told.blobs.entries {
            match entry {
                BlobEntry::BlobPrefix { name } => match name.and_then(NameXml::text) {
                    Some(name) => page.prefixes.push(name),
                    None => unclear.note(None, "the name of a directory that is no text"),
                },
                BlobEntry::Blob { name, properties, metadata } => {
                    let Some(key) = name.and_then(NameXml::text) else {
                        unclear.note(None, "a name that is no text");
                        continue;
                    };
                    let BlobProperties { last_modified, etag, content_length } = properties;
                    let size = size_in(content_length.as_deref());
                    let modified = last_modified.as_deref().map(DateTime::parse_from_rfc2822);
                    let (Some(size), Some(Ok(modified)), Some(etag)) = (size, modified, etag) else {
                        let why = format!("the size {content_length:?}, the time {last_modified:?}");
                        unclear.note(Some(key), &why);
                        continue;
                    };
                    let names = metadata.into_iter().filter(|(name, _)| !name.starts_with('@'));
                    let metadata = names.map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
                    let (etag, modified, metadata) = (quoted(&etag), time_of(modified), Some(metadata));
                    page.objects.push(ListedObject { key, size, etag, modified, metadata });
                }
                BlobEntry::Other => {}
            }
        }
        page.unclear = unclear.report(|| self.rest.place(prefix));
        Ok(page)
    }
}

#[async_trait]
impl ObjectStore for AzureStore {
    fn copy_max(&self) -> u64 {
        COPY_AT_ONCE
    }

    /// From the container's properties, which a service SAS may not read. Changes of blobs leave its ETag as it is.
    async fn bucket_mark(&self) -> Result<Option<BucketMark>> {
        let ask =
            StoreRequest::new("look at the container of", Method::HEAD, "").query("restype", "container");
        match self.rest.ask(ask).await {
            Ok(told) => {
                let etag = told.headers().get(header::ETAG).and_then(|etag| etag.to_str().ok());
                Ok(etag.map(|etag| BucketMark::Etag(etag.to_owned())))
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
        let mut page = self.page(prefix, by_directory, after, most).await?;
        // A page may be empty and not the last one.
        let mut course = ListingProgress::new(HIDDEN_MAX);
        while page.is_empty()
            && let Some(next) = course.after(&page, || self.rest.place(prefix))?
        {
            page = self.page(prefix, by_directory, Some(&next), most).await?;
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
        let mut ask = StoreRequest::new("store", Method::PUT, key)
            .header(HeaderName::from_static("x-ms-blob-type"), "BlockBlob")?
            .metadata(META, metadata)?
            .condition(condition)?;
        if key.ends_with('/') && data.is_empty() {
            let folder = Metadata::from([(FOLDER.to_owned(), "true".to_owned())]);
            ask = ask.metadata(META, &folder)?;
        }
        let answer = self.rest.ask(ask.data(data)).await?;
        self.rest.stored("store", key, answer.headers(), header::LAST_MODIFIED)
    }

    async fn delete(&self, key: &str, etag: Option<&str>) -> Result<()> {
        let ask = StoreRequest::new("remove", Method::DELETE, key);
        self.rest.delete(ask.condition(Precondition::unchanged(etag))?).await
    }

    async fn copy(&self, from: CopySource<'_>, to: &str) -> Result<String> {
        let ask = StoreRequest::new("copy", Method::PUT, to)
            .header(HeaderName::from_static("x-ms-requires-sync"), "true")?;
        let answer = self.rest.ask(self.copies(ask, from).await?).await?;
        self.rest.etag_of("copy", to, answer.headers())
    }

    async fn describe(&self, object: CopySource<'_>, metadata: &Metadata) -> Result<String> {
        let ask = StoreRequest::new("describe", Method::PUT, object.key)
            .query("comp", "metadata")
            .metadata(META, metadata)?
            .condition(Precondition::Unchanged(object.etag))?;
        let answer = self.rest.ask(ask).await?;
        self.rest.etag_of("describe", object.key, answer.headers())
    }

    async fn begin(&self, key: &str, metadata: &Metadata) -> Result<MultipartUpload> {
        let mut id = [0; 16];
        SystemRandom::new()
            .fill(&mut id)
            .map_err(|e| Error::new(ErrorKind::Io, "begin to store", key).with_source(e))?;
        let id = format!("{:032x}", u128::from_be_bytes(id));
        Ok(MultipartUpload { key: key.to_owned(), id, metadata: metadata.clone() })
    }

    async fn part(&self, upload: &MultipartUpload, number: u32, data: Bytes) -> Result<UploadedPart> {
        let id = block_id(upload, number);
        let ask = StoreRequest::new("store a part of", Method::PUT, &upload.key)
            .query("comp", "block")
            .query("blockid", &id)
            .data(data);
        self.rest.ask(ask).await?;
        Ok(UploadedPart { number, etag: id })
    }

    async fn part_of(
        &self,
        upload: &MultipartUpload,
        number: u32,
        from: CopySource<'_>,
        range: ByteRange,
    ) -> Result<UploadedPart> {
        let id = block_id(upload, number);
        let bytes = format!("bytes={}-{}", range.offset, range.end() - 1);
        let ask = StoreRequest::new("copy a part of", Method::PUT, &upload.key)
            .query("comp", "block")
            .query("blockid", &id)
            .header(HeaderName::from_static("x-ms-source-range"), &bytes)?;
        self.rest.ask(self.copies(ask, from).await?).await?;
        Ok(UploadedPart { number, etag: id })
    }

    async fn complete(
        &self,
        upload: &MultipartUpload,
        parts: &[UploadedPart],
        condition: Precondition<'_>,
    ) -> Result<PutResult> {
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>");
        for part in parts {
            // Writing to a String cannot fail.
            let _ = write!(xml, "<Uncommitted>{}</Uncommitted>", part.etag);
        }
        xml.push_str("</BlockList>");
        let ask = StoreRequest::new("complete", Method::PUT, &upload.key)
            .query("comp", "blocklist")
            .header(header::CONTENT_TYPE, "application/xml")?
            .metadata(META, &upload.metadata)?
            .condition(condition)?;
        let answer = self.rest.ask(ask.data(xml.into())).await?;
        self.rest.stored("complete", &upload.key, answer.headers(), header::LAST_MODIFIED)
    }

    async fn abort(&self, _upload: &MultipartUpload) -> Result<()> {
        Ok(())
    }
}

/// A block's id; all of a blob have the same length. Four digits or letters are valid Base64 as they are.
fn block_id(upload: &MultipartUpload, number: u32) -> String {
    format!("{}{number:08}", upload.id)
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AzureListXml {
    blobs: Blobs,
    #[serde(default)]
    next_marker: Option<String>,
}

#[derive(Deserialize)]
struct Blobs {
    #[serde(default, rename = "$value")]
    entries: Vec<BlobEntry>,
}

#[derive(Deserialize)]
enum BlobEntry {
    #[serde(rename_all = "PascalCase")]
    Blob {
        name: Option<NameXml>,
        #[serde(default)]
        properties: BlobProperties,
        #[serde(default)]
        metadata: BTreeMap<String, String>,
    },
    #[serde(rename_all = "PascalCase")]
    BlobPrefix { name: Option<NameXml> },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct NameXml {
    /// Percent-encoded, if it has characters that XML cannot hold.
    #[serde(default, rename = "@Encoded")]
    encoded: Option<String>,
    #[serde(default, rename = "$text")]
    text: String,
}

impl NameXml {
    /// `None`: it is no text, or not there.
    fn text(self) -> Option<String> {
        let text = if self.encoded.as_deref() == Some("true") {
            percent_decode_str(&self.text).decode_utf8().ok()?.into_owned()
        } else {
            self.text
        };
        Some(text).filter(|text| !text.is_empty())
    }
}

/// As text, and perhaps absent: a value that makes no sense spoils its own blob, and not the listing.
#[derive(Default, Deserialize)]
struct BlobProperties {
    #[serde(rename = "Last-Modified")]
    last_modified: Option<String>,
    #[serde(rename = "Etag")]
    etag: Option<String>,
    #[serde(rename = "Content-Length")]
    content_length: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ids_of_blocks_are_base64_of_one_length() {
        let upload = MultipartUpload { key: "k".into(), id: "0".repeat(32), metadata: Metadata::new() };
        for number in [1, 10_000] {
            let id = block_id(&upload, number);
            assert_eq!((id.len(), id.len() % 4), (40, 0));
            assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        }
        assert_ne!(block_id(&upload, 1), block_id(&upload, 2));
    }

    #[test]
    fn a_listing_is_understood_as_the_store_writes_it() {
        let blob = "<Blob><Name> a &amp; b </Name><Deleted>false</Deleted><Properties><Last-Modified>Fri, 02 Jan 2026 \
                    03:04:05 GMT</Last-Modified><Etag>0x8D</Etag><Content-Length>3</Content-Length><BlobType>BlockBlob\
                    </BlobType></Properties><Metadata><Mode>1</Mode></Metadata></Blob>";
        let xml = format!(
            "<EnumerationResults ContainerName=\"c\"><Prefix/><Blobs>{blob}<BlobPrefix><Name Encoded=\"true\">d%01/</Name>\
             </BlobPrefix>{blob}</Blobs><NextMarker>more</NextMarker></EnumerationResults>"
        );
        let told: AzureListXml = quick_xml::de::from_str(&xml).unwrap();
        let names = told.blobs.entries.into_iter().map(|entry| match entry {
            BlobEntry::Blob { name, metadata, properties } => {
                assert_eq!((metadata["Mode"].as_str(), properties.etag.as_deref()), ("1", Some("0x8D")));
                name.and_then(NameXml::text).unwrap()
            }
            BlobEntry::BlobPrefix { name } => name.and_then(NameXml::text).unwrap(),
            BlobEntry::Other => "other".into(),
        });
        assert_eq!(names.collect::<Vec<_>>(), [" a & b ", "d\u{1}/", " a & b "]);
        assert_eq!(told.next_marker.as_deref(), Some("more"));
        let empty = "<EnumerationResults><Blobs /><NextMarker /></EnumerationResults>";
        let told: AzureListXml = quick_xml::de::from_str(empty).unwrap();
        assert!(told.blobs.entries.is_empty() && told.next_marker.unwrap_or_default().is_empty());
    }
}
