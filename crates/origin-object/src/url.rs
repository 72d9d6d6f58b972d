//! `s3://bucket/prefix?endpoint=…&region=…`, `az://account/container/prefix?…` and `gs://bucket/prefix?…`, both ways.

use std::path::PathBuf;

use types::{Error, ErrorKind, Result};

const S3_FORM: &str = "s3://bucket[/prefix]?endpoint=URL&region=NAME&profile=NAME&credentials=FILE&addressing=path|virtual\
                       &anonymous=yes&attributes=listed|stored&uid=N&gid=N&mode=0644&dirmode=0755";
const AZURE_FORM: &str = "az://account/container[/prefix]?endpoint=URL&credentials=FILE&addressing=path|virtual\
                          &anonymous=yes&attributes=listed|stored&uid=N&gid=N&mode=0644&dirmode=0755";
const GCS_FORM: &str = "gs://bucket[/prefix]?endpoint=URL&credentials=FILE&anonymous=yes&attributes=listed|stored&uid=N\
                        &gid=N&mode=0644&dirmode=0755";

/// The dialect of REST calls that a store speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    S3,
    /// Azure Blob Storage.
    Azure,
    /// Google Cloud Storage.
    Gcs,
}

impl Dialect {
    fn scheme(self) -> &'static str {
        match self {
            Dialect::S3 => "s3",
            Dialect::Azure => "az",
            Dialect::Gcs => "gs",
        }
    }

    fn form(self) -> &'static str {
        match self {
            Dialect::S3 => S3_FORM,
            Dialect::Azure => AZURE_FORM,
            Dialect::Gcs => GCS_FORM,
        }
    }
}

/// Whether the bucket's name (at Azure, the account's) is in the URL's path or in its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    Path,
    Virtual,
}

/// Where a file's mode, owner and times come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeSource {
    /// From the listing: size and mtime; stored attributes count once the object was looked at singly. A thousand
    /// files cost one call.
    Listed,
    /// From the metadata of each object, as s3fs keeps it. Each file costs a call.
    Stored,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub dialect: Dialect,
    /// The account at Azure; else empty.
    pub account: String,
    /// The bucket; at Azure the container.
    pub bucket: String,
    pub prefix: String,
    /// `None`: AWS, Azure, Google.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub profile: Option<String>,
    /// A file that replaces `~/.aws/credentials`, Azure's variables or Google's default credentials, and keys in the
    /// environment.
    pub credentials: Option<PathBuf>,
    /// `None`: virtual at AWS and Azure, path elsewhere.
    pub addressing: Option<Addressing>,
    pub anonymous: bool,
    pub attributes: AttributeSource,
    /// The owner of objects without a stored one.
    pub uid: u32,
    pub gid: u32,
    /// The mode of objects without a stored one.
    pub file_mode: u32,
    pub dir_mode: u32,
}

fn wrong(url: &str, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Config, "origin", format!("{url}: {why}"))
}

impl Config {
    /// Parses a URL; errors say what would be right.
    pub fn from_url(url: &str) -> Result<Config> {
        let (dialect, rest) = [Dialect::S3, Dialect::Azure, Dialect::Gcs]
            .into_iter()
            .find_map(|dialect| Some((dialect, url.strip_prefix(dialect.scheme())?.strip_prefix("://")?)))
            .ok_or_else(|| wrong(url, format!("expected {S3_FORM} or {AZURE_FORM} or {GCS_FORM}")))?;
        let form = dialect.form();
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let split = |place| str::split_once(place, '/').unwrap_or((place, ""));
        let (account, in_account) = if dialect == Dialect::Azure { split(place) } else { ("", place) };
        let (bucket, prefix) = split(in_account);
        if place.split('/').next().is_some_and(|first| first.contains('@')) {
            return Err(wrong(
                url,
                "keys do not belong into a URL: put them into the environment or a profile",
            ));
        }
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        if dialect == Dialect::Azure && !((3..=24).contains(&account.len()) && account.bytes().all(fits)) {
            let why =
                format!("\"{account}\" is no account (3 to 24 small letters and digits); expected {form}");
            return Err(wrong(url, why));
        }
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        let called = if dialect == Dialect::Azure { "container" } else { "bucket" };
        // At Google a name with dots is a domain's.
        let longest = if dialect == Dialect::Gcs && bucket.contains('.') { 222 } else { 63 };
        if !(3..=longest).contains(&bucket.len()) || !bucket.bytes().all(fits) {
            let why = format!(
                "\"{bucket}\" is no {called} (3 to {longest} letters, digits, dots and dashes); expected {form}"
            );
            return Err(wrong(url, why));
        }
        let prefix = prefix.trim_matches('/');
        if prefix.split('/').any(|part| matches!(part, "." | "..")) || prefix.contains("//") {
            return Err(wrong(url, "a prefix has no empty parts, no . and no .."));
        }
        let mut config = Config {
            dialect,
            account: account.to_owned(),
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            endpoint: None,
            region: None,
            profile: None,
            credentials: None,
            addressing: None,
            anonymous: false,
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
        let number = || value.parse::<u32>().map_err(|_| expected("a number"));
        let mode = || {
            let mode = u32::from_str_radix(value, 8).ok().filter(|mode| *mode <= 0o7777);
            mode.ok_or_else(|| expected("a mode in octal, as 0644"))
        };
        match key {
            "endpoint" => {
                self.endpoint = Some(
                    endpoint(value).ok_or_else(|| expected("http://host[:port] or https://host[:port]"))?,
                )
            }
            "region" | "profile" if self.dialect != Dialect::S3 => return Err(self.unknown(url, key)),
            "addressing" if self.dialect == Dialect::Gcs => return Err(self.unknown(url, key)),
            "region" if !value.is_empty() => self.region = Some(value.to_owned()),
            "profile" if !value.is_empty() => self.profile = Some(value.to_owned()),
            "credentials" if value.starts_with('/') => self.credentials = Some(PathBuf::from(value)),
            "credentials" => return Err(expected("an absolute path")),
            "addressing" => {
                self.addressing = Some(match value {
                    "path" => Addressing::Path,
                    "virtual" => Addressing::Virtual,
                    _ => return Err(expected("path or virtual")),
                });
            }
            "anonymous" => {
                self.anonymous = match value {
                    "" | "yes" => true,
                    "no" => false,
                    _ => return Err(expected("yes or no")),
                };
            }
            "attributes" => {
                self.attributes = match value {
                    "listed" => AttributeSource::Listed,
                    "stored" => AttributeSource::Stored,
                    _ => return Err(expected("listed or stored")),
                };
            }
            "uid" => self.uid = number()?,
            "gid" => self.gid = number()?,
            "mode" => self.file_mode = mode()?,
            "dirmode" => self.dir_mode = mode()?,
            "region" | "profile" => return Err(expected("a name")),
            _ => return Err(self.unknown(url, key)),
        }
        Ok(())
    }

    fn unknown(&self, url: &str, key: &str) -> Error {
        wrong(url, format!("unknown option '{key}'; expected {}", self.dialect.form()))
    }

    /// The canonical URL of the bucket, without how it is reached and without secrets: handles given to clients
    /// depend on it.
    pub fn url(&self) -> String {
        let mut url = format!("{}://", self.dialect.scheme());
        if !self.account.is_empty() {
            url.push_str(&self.account);
            url.push('/');
        }
        url.push_str(&self.bucket);
        if !self.prefix.is_empty() {
            url.push('/');
            url.push_str(&self.prefix);
        }
        if let Some(endpoint) = &self.endpoint {
            url.push_str("?endpoint=");
            url.push_str(endpoint);
        }
        url
    }
}

/// Without a slash at its end.
fn endpoint(value: &str) -> Option<String> {
    let rest = value.strip_prefix("http://").or_else(|| value.strip_prefix("https://"))?;
    let host = rest.trim_end_matches('/');
    let fits =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']');
    let fits = !host.is_empty() && host.bytes().all(fits);
    fits.then(|| value.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_url_is_understood() {
        let url = "s3://show-1/a/b/?endpoint=http://10.1.2.3:9000/&region=eu-west-3&profile=farm&addressing=virtual\
                   &anonymous=no&attributes=stored&uid=7&gid=9&mode=0640&dirmode=0750";
        let config = Config::from_url(url).unwrap();
        assert_eq!((config.bucket.as_str(), config.prefix.as_str()), ("show-1", "a/b"));
        assert_eq!(config.endpoint.as_deref(), Some("http://10.1.2.3:9000"));
        assert_eq!((config.region.as_deref(), config.profile.as_deref()), (Some("eu-west-3"), Some("farm")));
        assert_eq!(
            (config.addressing, config.attributes),
            (Some(Addressing::Virtual), AttributeSource::Stored)
        );
        assert_eq!((config.uid, config.gid, config.file_mode, config.dir_mode), (7, 9, 0o640, 0o750));
        assert_eq!(config.url(), "s3://show-1/a/b?endpoint=http://10.1.2.3:9000");
        assert_eq!(Config::from_url("s3://bucket").unwrap().url(), "s3://bucket");
    }

    #[test]
    fn a_url_of_azure_or_google_is_understood() {
        let config = Config::from_url("az://films/show-1/a/b/?credentials=/etc/keys&uid=7").unwrap();
        assert_eq!((config.dialect, config.account.as_str()), (Dialect::Azure, "films"));
        assert_eq!((config.bucket.as_str(), config.prefix.as_str()), ("show-1", "a/b"));
        assert_eq!(config.url(), "az://films/show-1/a/b");
        let config = Config::from_url("gs://show.films.example.com/a/b/?credentials=/etc/key.json").unwrap();
        assert_eq!((config.dialect, config.bucket.as_str()), (Dialect::Gcs, "show.films.example.com"));
        assert_eq!(config.url(), "gs://show.films.example.com/a/b");
        let azurite = "az://devstoreaccount1/con?endpoint=http://127.0.0.1:10000";
        assert_eq!(Config::from_url(azurite).unwrap().url(), azurite);
    }

    #[test]
    fn each_mistake_is_told_with_what_would_be_right() {
        let mistakes = [
            ("http://bucket", "expected s3://bucket"),
            ("s3://", "is no bucket"),
            ("s3://a b", "is no bucket"),
            ("s3://key:secret@bucket", "do not belong into a URL"),
            ("s3://bucket/a//b", "no empty parts"),
            ("s3://bucket/a/../b", "no .."),
            ("s3://bucket?endpoint=minio:9000", "http://host[:port]"),
            ("s3://bucket?endpoint=http://", "http://host[:port]"),
            ("s3://bucket?region=", "a name"),
            ("s3://bucket?credentials=keys", "an absolute path"),
            ("s3://bucket?addressing=both", "path or virtual"),
            ("s3://bucket?mode=999", "in octal"),
            ("s3://bucket?uid=me", "a number"),
            ("s3://bucket?speed=9", "unknown option 'speed'"),
            ("az://films", "is no container"),
            ("az://Films/show", "is no account"),
            ("az://key@films/show", "do not belong into a URL"),
            ("az://films/show?region=eu", "unknown option 'region'"),
            ("gs://b", "is no bucket"),
            ("gs://bucket?profile=farm", "unknown option 'profile'"),
            ("gs://bucket?addressing=virtual", "unknown option 'addressing'"),
        ];
        for (url, told) in mistakes {
            let error = Config::from_url(url).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Config);
            let text = error.to_string();
            assert!(text.contains(told) && !text.contains('\n'), "{url}: {text}");
        }
    }
}
