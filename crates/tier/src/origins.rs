//! The kinds of far storage that this tier knows. A new one is its crate and one line in `KINDS`.

use std::sync::Arc;

use origin::{OriginConfig, OriginKind};
use types::{Error, ErrorKind, Result};

const KINDS: [OriginKind; 5] = [
    origin::posix::kind::KIND,
    origin_nfs::KIND,
    origin_object::KIND,
    origin_azfile::KIND,
    origin_cluster::KIND,
];

/// Reads the URL of an origin; connects to nothing.
pub fn parse(url: &str) -> Result<Arc<dyn OriginConfig>> {
    let refuse = |wrong: String| Err(Error::new(ErrorKind::Config, "configuration", wrong));
    let Some((scheme, _)) = url.split_once("://") else {
        return refuse(format!("\"{url}\" is no origin; write one as {}", examples()));
    };
    match KINDS.iter().find(|kind| kind.schemes.contains(&scheme)) {
        Some(kind) => (kind.parse)(url),
        None => refuse(format!("\"{scheme}://\" is no origin; this version knows {}", examples())),
    }
}

/// How URLs of all kinds are written.
pub fn examples() -> String {
    let examples: Vec<_> = KINDS.iter().map(|kind| kind.examples).collect();
    examples.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_belongs_to_one_kind_and_is_named_when_an_url_is_wrong() {
        let schemes: Vec<_> = KINDS.iter().flat_map(|kind| kind.schemes).collect();
        for (at, scheme) in schemes.iter().enumerate() {
            assert!(!schemes[..at].contains(scheme), "{scheme} twice");
            assert!(examples().contains(&format!("{scheme}://")), "{scheme}");
        }
        for wrong in ["smb://nas/share", "nas:/export"] {
            let error = parse(wrong).expect_err("no such kind").to_string();
            assert!(error.contains(&examples()), "{error}");
        }
    }

    /// Before the store has answered, too: it may be away when the tier starts.
    #[test]
    fn an_url_alone_tells_what_the_store_is_like() {
        let traits = |url| parse(url).expect("an origin").traits();
        for url in ["s3://bucket", "az://account/container", "gs://bucket"] {
            assert!(traits(url).identity_is_place && traits(url).commits_whole_files, "{url}");
        }
        for url in ["file:///srv", "nfs://nas/export", "forebay://a,b/show"] {
            assert!(traits(url).directories_show_changes && !traits(url).identity_is_place, "{url}");
        }
    }
}
