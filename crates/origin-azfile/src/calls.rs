//! The calls of the interface, one function each.
//! <https://learn.microsoft.com/rest/api/storageservices/file-service-rest-api>

use ::http::Method;
use ::http::header::{self, HeaderMap};
use bytes::Bytes;
use origin_object::http::body_of;
use origin_object::store::Metadata;
use serde::Deserialize;
use types::{ByteRange, Error, ErrorKind, Result, Timestamp};

use crate::api::{Api, AzFileRequest};
use crate::attributes::{FileStat, format_time, of_read};
use crate::errors::{garbled, unanswered};
use crate::listing::EntryPage;

/// The most bytes of one Put Range.
pub const RANGE_MAX: usize = 4 << 20;
/// The names of one page of a listing.
const PAGE: &str = "1000";

/// Bytes of a file.
pub struct FileRange {
    pub etag: String,
    pub written: i64,
    /// The file's id, if the answer has it.
    pub id: Option<u64>,
    /// The size of the whole file.
    pub size: u64,
    pub data: Bytes,
}

/// What Set Properties sets; `None` keeps it.
#[derive(Clone, Copy, Default)]
pub struct FileProperties {
    pub size: Option<u64>,
    pub written: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ShareStats {
    share_usage_bytes: u64,
}

impl Api {
    /// `None`: there is no such file or directory.
    pub async fn stat(&self, path: &str, is_dir: bool) -> Result<Option<FileStat>> {
        let ask = AzFileRequest::new("look at", Method::HEAD, path).directory(is_dir);
        match self.ask_headers(ask).await {
            Ok(headers) => self.parse_stat("look at", path, &headers, is_dir, None).map(Some),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn parse_stat(
        &self,
        operation: &'static str,
        path: &str,
        headers: &HeaderMap,
        is_dir: bool,
        size: Option<u64>,
    ) -> Result<FileStat> {
        FileStat::of(headers, is_dir, size).ok_or_else(|| {
            garbled(operation, self.place(Some(path)), "an answer without id, ETag, size or times")
        })
    }

    pub async fn list(&self, path: &str, marker: Option<&str>) -> Result<EntryPage> {
        let mut ask = AzFileRequest::new("list", Method::GET, path)
            .directory(true)
            .query("comp", "list")
            .query("include", "Timestamps,ETag,Attributes")
            .query("maxresults", PAGE)
            .header("x-ms-file-extended-info", "true")?;
        if let Some(marker) = marker {
            ask = ask.query("marker", marker);
        }
        self.ask_xml(ask).await
    }

    /// Exactly the bytes of `range`, which is not empty. There are no conditions: the answer says what it is of.
    pub async fn get(&self, path: &str, range: ByteRange) -> Result<FileRange> {
        let last = range.end() - 1;
        let asked = format!("bytes={}-{last}", range.offset);
        let answer =
            self.ask(AzFileRequest::new("read", Method::GET, path).header("x-ms-range", &asked)?).await?;
        let place = || self.place(Some(path));
        let headers = answer.headers();
        let (etag, written, id) =
            of_read(headers).ok_or_else(|| garbled("read", place(), "an answer without ETag or time"))?;
        let told = headers.get(header::CONTENT_RANGE).and_then(|told| told.to_str().ok()).unwrap_or_default();
        let rest =
            told.strip_prefix(&format!("bytes {}-", range.offset)).and_then(|rest| rest.split_once('/'));
        let size = match rest {
            Some((end, size)) if end.parse() == Ok(last) => size.parse().ok(),
            // The file is shorter than it was.
            Some(_) => return Err(Error::new(ErrorKind::VersionChanged, "read", place())),
            None => None,
        };
        let Some(size) = size else {
            let why = format!("{} bytes from {} were asked for, {told:?} came", range.length, range.offset);
            return Err(garbled("read", place(), why));
        };
        let most = range.length as usize;
        let data = body_of(answer, most).await.map_err(|lost| unanswered("read", place(), lost))?;
        if data.len() != most {
            let why = std::io::Error::other(format!("{} bytes came of {most}", data.len()));
            return Err(Error::new(ErrorKind::Unavailable, "read", place()).with_source(why));
        }
        Ok(FileRange { etag, written, id, size, data })
    }

    /// Replaces what has the name, so the name must be unused. Both times are `at`.
    pub async fn make_file(
        &self,
        path: &str,
        size: u64,
        metadata: &Metadata,
        at: Timestamp,
    ) -> Result<FileStat> {
        let time = format_time(at)?;
        let ask = AzFileRequest::new("create", Method::PUT, path)
            .header("x-ms-type", "file")?
            .header("x-ms-content-length", &size.to_string())?
            .header("x-ms-file-creation-time", &time)?
            .header("x-ms-file-last-write-time", &time)?
            .metadata(metadata)?;
        let headers = self.ask_headers(ask).await?;
        let stat = self.parse_stat("create", path, &headers, false, Some(size))?;
        Ok(FileStat { metadata: Some(metadata.clone()), ..stat })
    }

    /// Fails with `Exists` if something has the name.
    pub async fn make_directory(&self, path: &str, metadata: &Metadata) -> Result<FileStat> {
        let ask =
            AzFileRequest::new("make directory", Method::PUT, path).directory(true).metadata(metadata)?;
        let headers = self.ask_headers(ask).await?;
        let stat = self.parse_stat("make directory", path, &headers, true, None)?;
        Ok(FileStat { metadata: Some(metadata.clone()), ..stat })
    }

    pub async fn remove(&self, path: &str, is_dir: bool) -> Result<()> {
        self.ask_headers(AzFileRequest::new("remove", Method::DELETE, path).directory(is_dir)).await.map(drop)
    }

    /// With `replace`, a file that has the new name is replaced; otherwise `Exists`.
    pub async fn rename(&self, from: (&str, &FileStat), to: &str, replace: bool) -> Result<FileStat> {
        let (from, was) = from;
        let ask = AzFileRequest::new("rename", Method::PUT, to)
            .directory(was.is_dir)
            .query("comp", "rename")
            .header("x-ms-file-rename-source", &self.source(from))?
            .header("x-ms-file-rename-replace-if-exists", if replace { "true" } else { "false" })?
            .header("x-ms-source-allow-trailing-dot", "true")?;
        let headers = self.ask_headers(ask).await?;
        let stat = self.parse_stat("rename", to, &headers, was.is_dir, Some(was.size))?;
        Ok(FileStat { metadata: was.metadata.clone(), kept: was.kept.clone(), ..stat })
    }

    /// `of` is the last stat: properties that are not sent again would be reset.
    pub async fn set_properties(&self, path: &str, of: &FileStat, set: FileProperties) -> Result<()> {
        let mut ask = AzFileRequest::new("set attributes of", Method::PUT, path)
            .directory(of.is_dir)
            .query("comp", "properties")
            .headers(&of.kept);
        if let Some(size) = set.size {
            ask = ask.header("x-ms-content-length", &size.to_string())?;
        }
        if let Some(time) = set.written {
            ask = ask.header("x-ms-file-last-write-time", &format_time(time)?)?;
        }
        self.ask_headers(ask).await.map(drop)
    }

    /// Replaces all metadata.
    pub async fn set_metadata(&self, path: &str, is_dir: bool, metadata: &Metadata) -> Result<()> {
        let ask = AzFileRequest::new("set attributes of", Method::PUT, path)
            .directory(is_dir)
            .query("comp", "metadata")
            .metadata(metadata)?;
        self.ask_headers(ask).await.map(drop)
    }

    /// Puts a range inside the file; `VersionChanged` behind its end.
    pub async fn put_range(&self, path: &str, offset: u64, data: Bytes) -> Result<()> {
        let range = format!("bytes={offset}-{}", offset + data.len() as u64 - 1);
        let ask = AzFileRequest::new("write to", Method::PUT, path)
            .query("comp", "range")
            .header("x-ms-write", "update")?
            .header("x-ms-range", &range)?
            .data(data);
        self.ask_headers(ask).await.map(drop)
    }

    /// The share's quota and its used bytes.
    pub async fn capacity(&self) -> Result<(u64, u64)> {
        let quota = self.ask_headers(AzFileRequest::of_share("look at")).await?;
        let quota = quota.get("x-ms-share-quota").and_then(|quota| quota.to_str().ok()?.parse::<u64>().ok());
        let quota = quota.ok_or_else(|| garbled("look at", self.place(None), "an answer without quota"))?;
        let told: ShareStats =
            self.ask_xml(AzFileRequest::of_share("look at").query("comp", "stats")).await?;
        Ok((quota.saturating_mul(1 << 30), told.share_usage_bytes))
    }
}
