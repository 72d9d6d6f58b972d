//! From `[s3]` and `--s3` to what the S3 front takes.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use front_s3::{AccessKey, AccessKeys, BucketMap, BucketSet, Certificate, Secret};
use origin_object::secret_file;
use types::{Caller, Result};

use super::{normal_path, refuse};
use crate::config;

/// Read below the configuration file, for a tier that is started by hand: the key's id and its secret.
const ID_VARIABLE: &str = "FOREBAY_S3_ACCESS_KEY_ID";
const SECRET_VARIABLE: &str = "FOREBAY_S3_SECRET_ACCESS_KEY";
/// Shorter ones can be found by trying.
const SECRET_BYTES_MIN: usize = 16;

#[derive(Clone, Debug)]
pub struct S3Settings {
    pub listen: SocketAddr,
    pub region: String,
    pub keys: AccessKeys,
    pub buckets: BucketMap,
    pub certificate: Option<Certificate>,
    pub domain: Option<String>,
}

impl S3Settings {
    /// `None`: no address is given, so S3 is not served. `junctions`: their paths.
    pub fn build(
        typed: config::S3,
        listen: Option<SocketAddr>,
        junctions: &[&str],
    ) -> Result<Option<S3Settings>> {
        let Some(listen) = listen.or(typed.listen.map(|address| address.0)) else { return Ok(None) };
        let mut keys = typed.key.into_iter().map(access_key).collect::<Result<Vec<_>>>()?;
        keys.extend(key_of_environment()?);
        let mut ids: Vec<_> = keys.iter().map(|key| &key.id).collect();
        ids.sort();
        if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return refuse(format!(
                "the S3 access key {} is there twice; give each an id of its own",
                twice[0]
            ));
        }
        if keys.is_empty() {
            return refuse(format!(
                "S3 is to be served without any access key; write a [[s3.key]] table, or set {ID_VARIABLE} and \
                 {SECRET_VARIABLE}"
            ));
        }
        let certificate = match (typed.certificate, typed.private_key) {
            (Some(chain), Some(key)) => {
                secret_file::warn_if_open(&key);
                Some(Certificate { chain, key })
            }
            (None, None) => None,
            _ => {
                return refuse(
                    "[s3] certificate and private_key belong together; name both files".to_owned(),
                );
            }
        };
        let region = typed.region.unwrap_or_else(|| "us-east-1".to_owned());
        if region.is_empty()
            || !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        {
            return refuse(format!("\"{region}\" is no region; write one such as \"us-east-1\""));
        }
        let buckets = buckets(typed.bucket)?;
        check_rights(&keys, &buckets, junctions)?;
        let domain = typed.domain.map(domain).transpose()?;
        Ok(Some(S3Settings { listen, region, keys: AccessKeys::new(keys), buckets, certificate, domain }))
    }
}

/// In lower case.
fn domain(typed: String) -> Result<String> {
    let is_label = |label: &str| {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(is_letter)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if typed.len() > 253 || !typed.split('.').all(is_label) || typed.parse::<IpAddr>().is_ok() {
        return refuse(format!("\"{typed}\" is no domain; write a name such as \"s3.example\""));
    }
    Ok(typed.to_ascii_lowercase())
}

fn buckets(typed: Vec<config::BucketTable>) -> Result<BucketMap> {
    if typed.is_empty() {
        return Ok(BucketMap::Top);
    }
    let mut named = BTreeMap::new();
    for bucket in typed {
        if !front_s3::is_bucket_name(&bucket.name) {
            return refuse(format!(
                "\"{}\" cannot be the name of a bucket; write 3 to 63 lower-case letters, digits and hyphens",
                bucket.name
            ));
        }
        let path = normal_path(&bucket.path)?;
        if named.insert(bucket.name.clone(), path).is_some() {
            return refuse(format!("two buckets are named {}; give each a name of its own", bucket.name));
        }
    }
    Ok(BucketMap::Named(named))
}

/// Rights on a bucket that cannot be there are a spelling mistake. Where the top of the tree is an origin's, any name may be
/// there some day.
fn check_rights(keys: &[AccessKey], buckets: &BucketMap, junctions: &[&str]) -> Result<()> {
    let first_part = |path: &str| path.split('/').nth(1).unwrap_or_default().to_owned();
    let known: Option<Vec<String>> = match buckets {
        BucketMap::Named(named) => Some(named.keys().cloned().collect()),
        BucketMap::Top if junctions.contains(&"/") => None,
        BucketMap::Top => Some(junctions.iter().map(|path| first_part(path)).collect()),
    };
    for key in keys {
        let named = [&key.read, &key.write].into_iter().filter_map(|rights| match rights {
            BucketSet::All => None,
            BucketSet::These(names) => Some(names),
        });
        for name in named.flatten() {
            let there = front_s3::is_bucket_name(name)
                && known.as_ref().is_none_or(|known| known.iter().any(|bucket| bucket == name));
            if !there {
                let known = known.as_ref().filter(|known| !known.is_empty()).map(|known| known.join(", "));
                return refuse(format!(
                    "the S3 access key {} has rights on the bucket \"{name}\", which is not there; there are {}",
                    key.id,
                    known.unwrap_or_else(|| {
                        "those of the origin, whose names have 3 to 63 lower-case letters".into()
                    })
                ));
            }
        }
    }
    Ok(())
}

fn access_key(typed: config::KeyTable) -> Result<AccessKey> {
    let id = typed.id;
    let secret = match (typed.secret, typed.secret_file) {
        (Some(secret), None) => secret,
        (None, Some(path)) => secret_of_file(&path)?,
        _ => {
            return refuse(format!(
                "the S3 access key {id} needs secret or secret_file, and one of them only"
            ));
        }
    };
    // A change is on stable storage when S3 answers it.
    let caller = Caller { uid: typed.uid, gid: typed.gid, ..Caller::root() };
    checked(AccessKey {
        id,
        secret: Secret::new(secret),
        read: BucketSet::of(typed.read),
        write: BucketSet::of(typed.write),
        caller,
    })
}

fn secret_of_file(path: &Path) -> Result<String> {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            secret_file::warn_if_open(path);
            Ok(text.trim().to_owned())
        }
        Err(e) => {
            refuse(format!("the secret of an S3 access key: {}: {e}; name an existing file", path.display()))
        }
    }
}

fn key_of_environment() -> Result<Option<AccessKey>> {
    match (std::env::var(ID_VARIABLE), std::env::var(SECRET_VARIABLE)) {
        (Ok(id), Ok(secret)) => checked(AccessKey {
            id,
            secret: Secret::new(secret),
            read: BucketSet::All,
            write: BucketSet::All,
            caller: Caller::root(),
        })
        .map(Some),
        (Err(_), Err(_)) => Ok(None),
        _ => refuse(format!("{ID_VARIABLE} and {SECRET_VARIABLE} belong together; set both")),
    }
}

fn checked(key: AccessKey) -> Result<AccessKey> {
    let is_id = (3..=128).contains(&key.id.len())
        && key.id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_id {
        return refuse(format!(
            "\"{}\" is no id of an S3 access key; write 3 to 128 letters and digits",
            key.id
        ));
    }
    if key.secret.length() < SECRET_BYTES_MIN {
        return refuse(format!(
            "the secret of the S3 access key {} is too short; write {SECRET_BYTES_MIN} characters at least",
            key.id
        ));
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(text: &str) -> std::result::Result<Option<S3Settings>, String> {
        let file: config::ConfigFile = toml::from_str(text).expect("TOML of the right shape");
        S3Settings::build(file.s3, None, &["/show"]).map_err(|e| e.to_string())
    }

    #[test]
    fn a_domain_is_a_name_in_lower_case() {
        let key = "[[s3.key]]\nid = \"AKID\"\nsecret = \"do-not-show-this-secret\"\n";
        let settings = build(&format!("[s3]\nlisten = \"127.0.0.1:0\"\ndomain = \"S3.Example\"\n{key}"));
        assert_eq!(settings.expect("right").expect("served").domain.as_deref(), Some("s3.example"));
    }

    #[test]
    fn rights_on_a_bucket_that_is_not_there_are_refused() {
        let of = |rights: &str, buckets: &str, junctions: &[&str]| {
            let key = format!("[[s3.key]]\nid = \"AKID\"\nsecret = \"do-not-show-this-secret\"\n{rights}\n");
            let text = format!("[s3]\nlisten = \"127.0.0.1:0\"\n{key}{buckets}");
            let file: config::ConfigFile = toml::from_str(&text).expect("TOML of the right shape");
            S3Settings::build(file.s3, None, junctions).map(drop).map_err(|e| e.to_string())
        };
        let named = "[[s3.bucket]]\nname = \"films\"\npath = \"/show\"\n";
        for (rights, buckets, junctions, is_right) in [
            ("read = [\"films\"]", named, &["/show"][..], true),
            ("read = [\"*\"]", named, &["/show"], true),
            ("read = [\"films\", \"flims\"]", named, &["/show"], false),
            ("read = [\"*\"]\nwrite = [\"show\"]", named, &["/show"], false),
            ("write = [\"show\"]", "", &["/show/one", "/show/two"], true),
            ("write = [\"shows\"]", "", &["/show/one", "/show/two"], false),
            ("write = [\"any-name\"]", "", &["/"], true),
            ("write = [\"No Name\"]", "", &["/"], false),
        ] {
            let told = of(rights, buckets, junctions);
            assert_eq!(told.is_ok(), is_right, "{rights} {buckets} {junctions:?}: {told:?}");
            assert!(told.is_ok() || told.unwrap_err().contains("which is not there; there are"));
        }
    }

    #[test]
    fn what_is_wrong_is_refused_in_a_line_that_does_not_show_the_secret() {
        let key = "[[s3.key]]\nid = \"AKID\"\nsecret = \"do-not-show-this-secret\"\nread = [\"*\"]\n";
        let listen = "[s3]\nlisten = \"127.0.0.1:0\"\n";
        assert!(build("").expect("right").is_none(), "nothing is served unless it is asked for");
        let settings = build(&format!("{listen}{key}")).expect("right").expect("served");
        assert!(!format!("{settings:?}").contains("do-not-show"));
        for (text, right) in [
            (listen.to_owned(), "[[s3.key]]"),
            (format!("{listen}{key}{key}"), "twice"),
            (format!("{listen}certificate = \"x\"\n{key}"), "private_key"),
            (format!("{listen}region = \"\"\n{key}"), "us-east-1"),
            (format!("{listen}domain = \"10.0.0.1\"\n{key}"), "s3.example"),
            (format!("{listen}domain = \".s3.example\"\n{key}"), "s3.example"),
            (format!("{listen}{key}[[s3.bucket]]\nname = \"A\"\npath = \"/a\"\n"), "lower-case"),
            (format!("{listen}{key}[[s3.bucket]]\nname = \"abc\"\npath = \"a\"\n"), "absolute"),
            (format!("{listen}[[s3.key]]\nid = \"AKID\"\n"), "secret_file"),
            (format!("{listen}[[s3.key]]\nid = \"AKID\"\nsecret = \"short\"\n"), "16"),
            (format!("{listen}[[s3.key]]\nid = \"a/b\"\nsecret = \"do-not-show-this-secret\"\n"), "letters"),
            (format!("{listen}[[s3.key]]\nid = \"AKID\"\nsecret_file = \"/none\"\n"), "/none"),
        ] {
            let error = build(&text).expect_err(&text);
            assert!(error.contains(right) && !error.contains("do-not-show"), "{text} gave: {error}");
            assert_eq!(error.lines().count(), 1);
        }
    }
}
