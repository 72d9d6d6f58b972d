//! From what an operator types to a target. Every mistake is answered in one line that says what would be right.

use std::path::Path;
use std::sync::Arc;

use types::{Error, ErrorKind, Result};

use super::limited::LimitedTarget;
use super::object::ObjectTarget;
use super::posix::{DirectoryOptions, PosixTarget};
use super::server::ServerTarget;
use super::spread::SpreadTarget;
use super::{Target, without_options};

const FORMS: &str = "/path, file:///path[?direct=1&drop=0], nfs://host[:port]/export, s3://bucket[/prefix], az://account/container[/prefix], gs://bucket[/prefix] or azfile://account/share[/dir]";

fn wrong(url: &str, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Config, "target", format!("{url}: {why}"))
}

/// From one of the [`FORMS`]: `nfs` with whatever options `origin-nfs` takes and those of a transfer, buckets with what
/// `origin-object` takes and `part`, `azfile` with what `origin-azfile` takes. Nothing is connected yet, but a directory must be there.
/// `limits:LIMITS:URL` is any of these behind the limits of a [`origin::emulated::ServiceLimits`]; `spread:URL URL` is several of
/// these with the same files.
pub fn from_url(url: &str) -> Result<Arc<dyn Target>> {
    if url.is_empty() {
        return Err(wrong("target", format!("none given; expected {FORMS}")));
    }
    if url.starts_with('/') {
        return Ok(PosixTarget::open(Path::new(url), DirectoryOptions::default())?);
    }
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(wrong(url, format!("expected {FORMS}; a path must be absolute")));
    };
    match (scheme, rest.strip_prefix("//")) {
        ("spread", _) => {
            if rest.contains("spread:") {
                return Err(wrong(url, "spread once is enough"));
            }
            let ways: Result<Vec<_>> = rest.split(' ').filter(|way| !way.is_empty()).map(from_url).collect();
            Ok(SpreadTarget::new(ways?)?)
        }
        ("limits", _) => {
            let limited = rest.split_once(':').ok_or_else(|| wrong(url, "expected limits:LIMITS:URL"));
            let (limits, inner) = limited?;
            if inner.starts_with("limits:") {
                return Err(wrong(url, "limits once is enough"));
            }
            Ok(LimitedTarget::new(from_url(inner)?, limits.parse()?))
        }
        ("file", Some(rest)) => posix(url, rest),
        ("nfs", Some(_)) => Ok(ServerTarget::nfs(url)?),
        ("azfile", Some(_)) => Ok(ServerTarget::azfile(url)?),
        ("s3" | "az" | "gs", Some(_)) => Ok(ObjectTarget::from_url(url)?),
        _ => Err(wrong(url, format!("unknown scheme '{scheme}'; expected {FORMS}"))),
    }
}

fn posix(url: &str, rest: &str) -> Result<Arc<dyn Target>> {
    let mut options = DirectoryOptions::default();
    let path = without_options(rest, |pair| {
        match pair {
            "direct=1" => options.direct = true,
            "direct=0" => options.direct = false,
            "drop=1" => options.drop_pages = true,
            "drop=0" => options.drop_pages = false,
            _ => {
                let why = format!("unknown option '{pair}'; there are direct=0|1 and drop=0|1");
                return Err(wrong(url, why));
            }
        }
        Ok(true)
    })?;
    if !path.starts_with('/') {
        return Err(wrong(url, "expected file:///absolute/path"));
    }
    Ok(PosixTarget::open(Path::new(&path), options)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::parse_size;

    #[test]
    fn each_mistake_is_told_in_one_line_with_what_would_be_right() {
        let mistakes = [
            ("", "expected /path"),
            ("relative/path", "must be absolute"),
            ("gs://b", "is no bucket"),
            ("ftp://host", "unknown scheme 'ftp'"),
            ("s3://", "is no bucket"),
            ("s3://key:secret@bucket", "do not belong into a URL"),
            ("s3://bucket?part=1m", "part '1m'"),
            ("s3://bucket?speed=1", "unknown option 'speed'"),
            ("az://account", "is no container"),
            ("azfile://account", "is no share"),
            ("azfile://account/share?rsize=1", "rsize '1' should be"),
            ("azfile://account/share?speed=1", "unknown option 'speed'"),
            ("az://account/container?part=32k", "part '32k' should be from 64k"),
            ("/no/such/directory/anywhere", "no such directory"),
            ("file:///dev/null", "not a directory"),
            ("file://tmp", "file:///absolute"),
            ("file:///tmp?fast=1", "unknown option 'fast=1'"),
            ("spread:", "URLs with spaces between"),
            ("spread:/tmp spread:/tmp", "spread once is enough"),
            ("spread:/tmp ftp://host", "unknown scheme 'ftp'"),
            ("nfs://host", "which export?"),
            ("nfs://host/x?rsize=1", "rsize '1'"),
            ("nfs://host/x?readahead=-1", "readahead '-1'"),
            ("nfs://host/x?speed=1", "unknown option 'speed'"),
            ("limits:file=60MiB/s", "limits:LIMITS:URL"),
            ("limits:file=60:/tmp", "file=60MiB/s"),
            ("limits:busy=1%:ftp://host", "unknown scheme 'ftp'"),
            ("limits:busy=1%:limits:busy=1%:/tmp", "once"),
        ];
        for (url, told) in mistakes {
            let error = from_url(url).map(|_| ()).expect_err(url);
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}: {text}");
            assert!(text.contains(told) && !text.contains('\n'), "{url}: {text}");
        }
    }

    #[test]
    fn sizes_are_powers_of_1024_and_never_wrap() {
        assert_eq!(parse_size("64k"), Some(65_536));
        assert_eq!(parse_size("10G"), Some(10 << 30));
        assert_eq!(parse_size("7"), Some(7));
        for bad in ["", "k", "-1", "1.5g", "99999999999t", "1kk"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }
}
