//! `nfs://host[:port]/export?nconnect=4&mountport=N&uid=U&gid=G`, both ways.

use std::fmt::Write as _;

use rpc_nfs3::mount;
use types::{Error, ErrorKind, Result};

use crate::config::{Config, NCONNECT_MAX};

const FORM: &str = "nfs://host[:port]/export?nconnect=4&mountport=N&uid=N&gid=N";

fn wrong(url: &str, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Config, "origin", format!("{url}: {why}"))
}

impl Config {
    /// Errors say what would be right.
    pub fn from_url(url: &str) -> Result<Config> {
        let rest = url.strip_prefix("nfs://").ok_or_else(|| wrong(url, format!("expected {FORM}")))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let Some((authority, path)) = place.split_once('/') else {
            return Err(wrong(url, format!("which export? expected {FORM}")));
        };
        let (host, port) = host_and_port(url, authority)?;
        let mut config = Config { host, port, export: export_of_url(url, path)?, ..Config::default() };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            option(url, &mut config, pair)?;
        }
        Ok(config)
    }

    /// Which export this is, without how it is reached: handles given to clients hang on it, and must not go stale
    /// because the number of connections was changed. There are no secrets in it.
    pub fn url(&self) -> String {
        let mut out = String::from("nfs://");
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        out.push_str(&host);
        // Writing to a String cannot fail.
        if let Some(port) = self.port {
            let _ = write!(out, ":{port}");
        }
        out.push_str(&export_to_url(&self.export));
        out
    }
}

/// The path of an export as an URL has it.
pub fn export_to_url(export: &[u8]) -> String {
    let mut out = String::new();
    for byte in export {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => {
                out.push(char::from(*byte));
            }
            // Writing to a String cannot fail.
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

fn host_and_port(url: &str, authority: &str) -> Result<(String, Option<u16>)> {
    if authority.contains('@') {
        return Err(wrong(url, "NFS has no user or password; give uid= and gid= instead"));
    }
    host_of_url(url, authority, "nfs://[::1]/export", &format!("which host? expected {FORM}"))
}

/// A host and its port as an URL has them. `in_brackets`: an URL with an IPv6 address, as an example; `missing`: what is told where
/// there is no host.
pub fn host_of_url(url: &str, text: &str, in_brackets: &str, missing: &str) -> Result<(String, Option<u16>)> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(|| wrong(url, "'[' without ']'"))?;
        match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if rest.is_empty() => (host, None),
            None => return Err(wrong(url, "after ']' there may only be :port")),
        }
    } else {
        match text.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err(wrong(url, format!("write an IPv6 address in brackets: {in_brackets}")));
            }
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    if host.is_empty() {
        return Err(wrong(url, missing));
    }
    let port = port.map(|port| parse_port(url, "port", port)).transpose()?;
    Ok((host.to_owned(), port))
}

fn parse_port(url: &str, key: &str, value: &str) -> Result<u16> {
    match value.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(wrong(url, format!("{key} '{value}' should be a number from 1 to 65535"))),
    }
}

/// The path of an export from the part of an URL behind the authority: percent-decoded, with one slash in front and none at the end.
pub fn export_of_url(url: &str, path: &str) -> Result<Vec<u8>> {
    let mut out = vec![b'/'];
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        out.push(if byte == b'%' {
            let digits = [bytes.next(), bytes.next()].map(|d| d.and_then(|d| char::from(d).to_digit(16)));
            match digits {
                [Some(high), Some(low)] => (high * 16 + low) as u8,
                _ => return Err(wrong(url, "'%' should be followed by two hexadecimal digits")),
            }
        } else {
            byte
        });
    }
    while out.len() > 1 && out.last() == Some(&b'/') {
        out.pop();
    }
    if out.contains(&0) || out.len() > mount::PATH_MAX {
        return Err(wrong(url, format!("an export path has no NUL and at most {} bytes", mount::PATH_MAX)));
    }
    Ok(out)
}

fn option(url: &str, config: &mut Config, pair: &str) -> Result<()> {
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    let id = || -> Result<u32> {
        value
            .parse()
            .map_err(|_| wrong(url, format!("{key} '{value}' should be a number from 0 to {}", u32::MAX)))
    };
    match key {
        "nconnect" => {
            config.nconnect =
                value.parse().ok().filter(|n| (1..=NCONNECT_MAX).contains(n)).ok_or_else(|| {
                    wrong(url, format!("nconnect '{value}' should be a number from 1 to {NCONNECT_MAX}"))
                })?;
        }
        "mountport" => config.mount_port = Some(parse_port(url, key, value)?),
        "uid" => {
            config.identity.uid = id()?;
            config.identity.groups.clear();
        }
        "gid" => {
            config.identity.gid = id()?;
            config.identity.groups.clear();
        }
        _ => {
            return Err(wrong(
                url,
                format!("unknown option '{key}'; there are nconnect, mountport, uid and gid"),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_url_is_understood() {
        let config =
            Config::from_url("nfs://nas.example:2050/vol/sh%20ow/?nconnect=8&mountport=20048&uid=7&gid=9")
                .expect("valid");
        assert_eq!(
            (config.host.as_str(), config.port, config.mount_port),
            ("nas.example", Some(2050), Some(20048))
        );
        assert_eq!((config.export.as_slice(), config.nconnect), (&b"/vol/sh ow"[..], 8));
        assert_eq!((config.identity.uid, config.identity.gid), (7, 9));
        assert_eq!(config.url(), "nfs://nas.example:2050/vol/sh%20ow");
    }

    #[test]
    fn an_ipv6_host_stands_in_brackets() {
        let config = Config::from_url("nfs://[fd00::1]:2049/x").expect("valid");
        assert_eq!((config.host.as_str(), config.port), ("fd00::1", Some(2049)));
        assert_eq!(config.url(), "nfs://[fd00::1]:2049/x");
    }

    #[test]
    fn the_root_can_be_the_export() {
        assert_eq!(Config::from_url("nfs://nas/").expect("valid").export, b"/");
    }

    #[test]
    fn each_mistake_is_told_with_what_would_be_right() {
        let mistakes = [
            ("http://nas/x", "expected nfs://host"),
            ("nfs://nas", "which export?"),
            ("nfs:///x", "which host?"),
            ("nfs://nas:0/x", "from 1 to 65535"),
            ("nfs://nas:http/x", "'http' should be a number"),
            ("nfs://fd00::1/x", "in brackets"),
            ("nfs://me@nas/x", "uid="),
            ("nfs://nas/x?nconnect=17", "from 1 to 16"),
            ("nfs://nas/x?nconnect=0", "from 1 to 16"),
            ("nfs://nas/x?mountport=70000", "mountport '70000'"),
            ("nfs://nas/x?uid=-1", "uid '-1'"),
            ("nfs://nas/x?speed=9", "unknown option 'speed'"),
            ("nfs://nas/x%2", "hexadecimal"),
            ("nfs://nas/x%00y", "no NUL"),
        ];
        for (url, told) in mistakes {
            let error = Config::from_url(url).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Config);
            let text = error.to_string();
            assert!(text.contains(told) && !text.contains('\n'), "{url}: {text}");
        }
    }
}
