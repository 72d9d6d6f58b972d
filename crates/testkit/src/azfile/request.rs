//! A request as the calls look at it, and the words of its headers.

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat, Utc};
use http::HeaderMap;
use percent_encoding::percent_decode_str;

use super::names::{refused, without_trailing_dots};
use super::tree::{AzFileRefused, BAD_INPUT, TICKS, Ticks, now};

/// What a request's URL names.
pub struct AzFileRequestSeen {
    pub share: String,
    /// Below the share, without slashes around it; empty: its root.
    pub path: String,
    /// Decoded, by lower-case names.
    pub query: BTreeMap<String, String>,
}

impl AzFileRequestSeen {
    pub fn of(uri: &http::Uri, headers: &HeaderMap) -> Result<AzFileRequestSeen, AzFileRefused> {
        let path = decoded(uri.path())?;
        let path = path.trim_matches('/');
        let (share, path) = path.split_once('/').unwrap_or((path, ""));
        let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let query = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decoded(name)?.to_lowercase(), decoded(value)?))
        });
        let path = named(path, headers, "x-ms-allow-trailing-dot")?;
        Ok(AzFileRequestSeen {
            share: share.to_owned(),
            path,
            query: query.collect::<Result<_, AzFileRefused>>()?,
        })
    }

    pub fn is(&self, restype: &str, comp: &str) -> bool {
        let of = |name: &str| self.query.get(name).map_or("", String::as_str);
        of("restype") == restype && of("comp") == comp
    }
}

fn decoded(text: &str) -> Result<String, AzFileRefused> {
    percent_decode_str(text).decode_utf8().map(|text| text.into_owned()).map_err(|_| (400, "InvalidUri"))
}

fn named(path: &str, headers: &HeaderMap, dots: &str) -> Result<String, AzFileRefused> {
    let dots = header(headers, dots).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let path = if dots { path.to_owned() } else { without_trailing_dots(path) };
    match refused(&path) {
        Some(code) if !path.is_empty() => Err((400, code)),
        _ => Ok(path),
    }
}

/// The path that a rename comes from: the header has a whole URL.
pub fn rename_source(headers: &HeaderMap, share: &str) -> Result<String, AzFileRefused> {
    let source: http::Uri =
        header(headers, "x-ms-file-rename-source").ok_or(MISSING)?.parse().map_err(|_| BAD_HEADER)?;
    let path = decoded(source.path())?;
    let path = path.trim_matches('/').strip_prefix(share).and_then(|path| path.strip_prefix('/'));
    named(path.ok_or(BAD_INPUT)?, headers, "x-ms-source-allow-trailing-dot")
}

pub const MISSING: AzFileRefused = (400, "MissingRequiredHeader");
pub const BAD_HEADER: AzFileRefused = (400, "InvalidHeaderValue");

pub fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

pub fn number(headers: &HeaderMap, name: &str) -> Result<Option<u64>, AzFileRefused> {
    header(headers, name).map(|text| text.parse().map_err(|_| BAD_HEADER)).transpose()
}

/// First and last byte; the last may be left out.
pub fn range(headers: &HeaderMap) -> Result<Option<(u64, Option<u64>)>, AzFileRefused> {
    let Some(text) = header(headers, "x-ms-range").or_else(|| header(headers, "range")) else {
        return Ok(None);
    };
    let (first, last) =
        text.strip_prefix("bytes=").and_then(|text| text.split_once('-')).ok_or(BAD_HEADER)?;
    let first = first.parse().map_err(|_| BAD_HEADER)?;
    let last = (!last.is_empty()).then(|| last.parse().map_err(|_| BAD_HEADER)).transpose()?;
    if last.is_some_and(|last: u64| last < first) {
        return Err(BAD_HEADER);
    }
    Ok(Some((first, last)))
}

pub fn metadata(headers: &HeaderMap) -> BTreeMap<String, String> {
    let own = headers.iter().filter_map(|(name, value)| {
        Some((name.as_str().strip_prefix("x-ms-meta-")?.to_owned(), value.to_str().ok()?.to_owned()))
    });
    own.collect()
}

/// Names of metadata are identifiers of C#.
pub fn is_metadata_name(name: &str) -> bool {
    let fits = |c: char| c == '_' || c.is_alphanumeric();
    name.chars().all(fits) && !name.starts_with(|c: char| c.is_ascii_digit()) && !name.is_empty()
}

/// `None`: as it is. Of a header that may say `now` or `preserve` too.
pub fn time(headers: &HeaderMap, name: &str) -> Result<Option<Ticks>, AzFileRefused> {
    match header(headers, name) {
        None | Some("preserve") => Ok(None),
        Some("now") => Ok(Some(now())),
        Some(text) => {
            let time = DateTime::parse_from_rfc3339(text).map_err(|_| BAD_HEADER)?;
            Ok(Some(time.timestamp() * TICKS + i64::from(time.timestamp_subsec_nanos() / 100)))
        }
    }
}

pub fn shown_time(ticks: Ticks) -> String {
    let (seconds, rest) = (ticks.div_euclid(TICKS), ticks.rem_euclid(TICKS));
    let whole = DateTime::<Utc>::from_timestamp(seconds, 0).unwrap_or_default();
    let text = whole.to_rfc3339_opts(SecondsFormat::Secs, true);
    format!("{}.{rest:07}Z", text.trim_end_matches('Z'))
}

pub fn http_time(ticks: Ticks) -> String {
    let time = DateTime::<Utc>::from_timestamp(ticks.div_euclid(TICKS), 0).unwrap_or_default();
    time.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}
