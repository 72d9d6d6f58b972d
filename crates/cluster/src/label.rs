//! Labels of nodes: which failure domains a node is in.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use types::{Error, ErrorKind, Result};

/// Longest label, in bytes.
const LABEL_MAX: usize = 255;
/// Longest name of one failure domain, in bytes.
const DOMAIN_MAX: usize = 63;

/// A path of failure domains from the widest to the narrowest, such as `/dc1/rack2`. `/` is the label of a node that
/// was given none.
///
/// Always in one form, so that equal labels are equal strings: it begins with a slash and does not end with one (but
/// for `/`), and no domain is empty. Two nodes with the same label may fail together.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeLabel(String);

impl NodeLabel {
    /// `/`, within which every label is.
    pub fn root() -> NodeLabel {
        NodeLabel("/".to_string())
    }

    pub fn is_root(&self) -> bool {
        self.0 == "/"
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `/dc1/rack2` is within `/dc1/rack2`, `/dc1` and `/`, and not within `/dc1/rack` or `/dc1/rack2/shelf`.
    pub fn is_within(&self, prefix: &NodeLabel) -> bool {
        if prefix.is_root() {
            return true;
        }
        self.0.strip_prefix(&prefix.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl Default for NodeLabel {
    fn default() -> NodeLabel {
        NodeLabel::root()
    }
}

/// Letters, digits, `.`, `_` and `-`, and something else than dots.
fn is_domain(domain: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    domain.len() <= DOMAIN_MAX && domain.bytes().all(known) && !domain.bytes().all(|byte| byte == b'.')
}

impl FromStr for NodeLabel {
    type Err = Error;

    fn from_str(text: &str) -> Result<NodeLabel> {
        let wrong = |why: String| Err(Error::new(ErrorKind::InvalidArgument, "read a node's label", why));
        if text.len() > LABEL_MAX {
            return wrong(format!("{} bytes; {LABEL_MAX} is the most", text.len()));
        }
        if text == "/" {
            return Ok(NodeLabel::root());
        }
        let domains = text.strip_prefix('/');
        if !domains.is_some_and(|domains| domains.split('/').all(is_domain)) {
            return wrong(format!(
                "{text:?}; a label is a path such as /dc1/rack2, of letters, digits and . _ -, each part of at most \
                 {DOMAIN_MAX} bytes"
            ));
        }
        Ok(NodeLabel(text.to_string()))
    }
}

impl TryFrom<String> for NodeLabel {
    type Error = Error;

    fn try_from(text: String) -> Result<NodeLabel> {
        text.parse()
    }
}

impl From<NodeLabel> for String {
    fn from(label: NodeLabel) -> String {
        label.0
    }
}

impl fmt::Display for NodeLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for NodeLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeLabel({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(text: &str) -> NodeLabel {
        text.parse().expect("a label")
    }

    #[test]
    fn a_label_has_one_form() {
        for good in ["/", "/dc1", "/dc1/rack2", "/a.b/c_d/e-f/..g", &format!("/{}", "x".repeat(DOMAIN_MAX))] {
            assert_eq!(label(good).to_string(), good);
        }
        let long = format!("/{}", "x".repeat(DOMAIN_MAX + 1));
        let deep = "/x".repeat(LABEL_MAX / 2 + 1);
        for bad in
            ["", "dc1", "//", "/dc1/", "/dc1//rack2", "/dc 1", "/.", "/dc1/..", "/ü", "/a\0", &long, &deep]
        {
            let error = bad.parse::<NodeLabel>().expect_err(bad);
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{bad:?}");
        }
    }

    #[test]
    fn a_label_is_within_its_prefixes_by_whole_domains() {
        let rack = label("/dc1/rack2");
        for prefix in ["/", "/dc1", "/dc1/rack2"] {
            assert!(rack.is_within(&label(prefix)), "{prefix}");
        }
        for other in ["/dc", "/dc1/rack", "/dc1/rack2/shelf", "/dc2", "/rack2"] {
            assert!(!rack.is_within(&label(other)), "{other}");
        }
        assert!(NodeLabel::root().is_within(&NodeLabel::default()));
        assert!(!NodeLabel::root().is_within(&rack));
    }

    #[test]
    fn a_label_is_a_string_in_json() {
        let rack = label("/dc1/rack2");
        let text = serde_json::to_string(&rack).expect("a string");
        assert_eq!(text, "\"/dc1/rack2\"");
        assert_eq!(serde_json::from_str::<NodeLabel>(&text).expect("a label"), rack);
        assert!(serde_json::from_str::<NodeLabel>("\"dc1\"").is_err());
    }
}
