//! `azfile://account/share/path?endpoint=…`, both ways.

use std::path::PathBuf;

use origin_object::AttributeSource;
use types::{Error, ErrorKind, Result};

const FORM: &str = "azfile://account/share[/path]?endpoint=URL&credentials=FILE&attributes=listed|stored&uid=N&gid=N\
                    &mode=0644&dirmode=0755";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub account: String,
    pub share: String,
    /// The path of the served directory, without slashes around it.
    pub path: String,
    /// Replaces `https://ACCOUNT.file.core.windows.net`.
    pub endpoint: Option<String>,
    /// A file of lines `NAME=value`, which replace the environment's variables.
    pub credentials: Option<PathBuf>,
    /// Listed: size and times from listings; mode and owner once a file was looked at singly. Stored: each file is
    /// looked at.
    pub attributes: AttributeSource,
    /// The owner of files without a stored one.
    pub uid: u32,
    pub gid: u32,
    /// The mode of files without a stored one.
    pub file_mode: u32,
    pub dir_mode: u32,
}

fn wrong(url: &str, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Config, "origin", format!("{url}: {why}"))
}

fn is_word(text: &str, lengths: std::ops::RangeInclusive<usize>, more: &[u8]) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || more.contains(&byte);
    lengths.contains(&text.len()) && text.bytes().all(fits)
}

impl Config {
    /// Parses a URL; errors say what would be right.
    pub fn from_url(url: &str) -> Result<Config> {
        let rest = url.strip_prefix("azfile://").ok_or_else(|| wrong(url, format!("expected {FORM}")))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (account, place) = place.split_once('/').unwrap_or((place, ""));
        let (share, path) = place.split_once('/').unwrap_or((place, ""));
        if account.contains('@') {
            return Err(wrong(
                url,
                "keys do not belong into a URL: put them into the environment or ?credentials=FILE",
            ));
        }
        if !is_word(account, 3..=24, b"") {
            let why = format!(
                "\"{account}\" is no storage account (3 to 24 lower-case letters and digits); expected {FORM}"
            );
            return Err(wrong(url, why));
        }
        if !is_word(share, 3..=63, b"-")
            || share.starts_with('-')
            || share.ends_with('-')
            || share.contains("--")
        {
            let why = format!(
                "\"{share}\" is no share (3 to 63 lower-case letters, digits and single dashes); expected {FORM}"
            );
            return Err(wrong(url, why));
        }
        let path = path.trim_matches('/');
        if !path.is_empty() {
            for part in path.split('/') {
                crate::names::check(part).map_err(|why| wrong(url, format!("\"{part}\": {why}")))?;
            }
        }
        let mut config = Config {
            account: account.to_owned(),
            share: share.to_owned(),
            path: path.to_owned(),
            endpoint: None,
            credentials: None,
            attributes: AttributeSource::Listed,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            file_mode: 0o644,
            dir_mode: 0o755,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            config.option(url, pair)?;
        }
        Ok(config)
    }

    fn option(&mut self, url: &str, pair: &str) -> Result<()> {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let expected = |what: &str| wrong(url, format!("{key} '{value}' should be {what}"));
        let mode = || u32::from_str_radix(value, 8).ok().filter(|mode| *mode <= 0o7777);
        let mode = || mode().ok_or_else(|| expected("a mode in octal, as 0644"));
        let id = || value.parse().map_err(|_| expected("a number"));
        match key {
            "endpoint" => {
                let given =
                    endpoint(value).ok_or_else(|| expected("http://host[:port] or https://host[:port]"))?;
                self.endpoint = Some(given);
            }
            "credentials" if value.starts_with('/') => self.credentials = Some(PathBuf::from(value)),
            "credentials" => return Err(expected("an absolute path")),
            "attributes" if value == "listed" => self.attributes = AttributeSource::Listed,
            "attributes" if value == "stored" => self.attributes = AttributeSource::Stored,
            "attributes" => return Err(expected("listed or stored")),
            "uid" => self.uid = id()?,
            "gid" => self.gid = id()?,
            "mode" => self.file_mode = mode()?,
            "dirmode" => self.dir_mode = mode()?,
            _ => return Err(wrong(url, format!("unknown option '{key}'; expected {FORM}"))),
        }
        Ok(())
    }

    /// The canonical URL of the directory, without secrets: handles given to clients depend on it.
    pub fn url(&self) -> String {
        let mut url = format!("azfile://{}/{}", self.account, self.share);
        if !self.path.is_empty() {
            url.push('/');
            url.push_str(&self.path);
        }
        if let Some(endpoint) = &self.endpoint {
            url.push_str("?endpoint=");
            url.push_str(endpoint);
        }
        url
    }
}

/// Without a slash at its end.
pub fn endpoint(value: &str) -> Option<String> {
    let value = value.trim_end_matches('/');
    let host = value.strip_prefix("http://").or_else(|| value.strip_prefix("https://"))?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    (!host.is_empty() && host.bytes().all(fits)).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_url_is_understood() {
        let url = "azfile://farm01/show-1/a/b/?endpoint=http://127.0.0.1:9000/&credentials=/etc/key&attributes=stored\
                   &uid=7&gid=9&mode=0640&dirmode=0750";
        let config = Config::from_url(url).unwrap();
        assert_eq!(
            (config.account.as_str(), config.share.as_str(), config.path.as_str()),
            ("farm01", "show-1", "a/b")
        );
        assert_eq!(config.attributes, AttributeSource::Stored);
        assert_eq!((config.uid, config.gid, config.file_mode, config.dir_mode), (7, 9, 0o640, 0o750));
        assert_eq!(config.url(), "azfile://farm01/show-1/a/b?endpoint=http://127.0.0.1:9000");
        assert_eq!(Config::from_url("azfile://farm01/show").unwrap().url(), "azfile://farm01/show");
    }

    #[test]
    fn each_mistake_is_told_with_what_would_be_right() {
        let mistakes = [
            ("https://farm01/show", "expected azfile://account/share"),
            ("azfile://", "is no storage account"),
            ("azfile://Farm/show", "lower-case letters"),
            ("azfile://farm01", "is no share"),
            ("azfile://farm01/a--b", "single dashes"),
            ("azfile://farm01:key@host/show", "do not belong into a URL"),
            ("azfile://farm01/show/a/../b", "\"..\""),
            ("azfile://farm01/show/a:b", "\"a:b\""),
            ("azfile://farm01/show?endpoint=farm", "http://host[:port]"),
            ("azfile://farm01/show?credentials=key", "an absolute path"),
            ("azfile://farm01/show?attributes=all", "listed or stored"),
            ("azfile://farm01/show?mode=999", "in octal"),
            ("azfile://farm01/show?speed=9", "unknown option 'speed'"),
        ];
        for (url, told) in mistakes {
            let error = Config::from_url(url).expect_err(url);
            let text = error.to_string();
            assert!(
                error.kind() == ErrorKind::Config && text.contains(told) && !text.contains('\n'),
                "{url}: {text}"
            );
        }
    }
}
