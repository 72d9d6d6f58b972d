//! The allow-list of operations: methods and their query parameters. Pure.
//!
//! S3 names most of its operations by a parameter (`DELETE /bucket/key?annotation`). A server that overlooks it
//! takes the request for the operation without it, which removes or replaces the object. So a request with a
//! parameter that is not listed here for its operation is refused, whatever its method.

use http::Method;

use crate::sigv4::{Query, decode, is_auth_parameter};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceLevel {
    Service,
    Bucket,
    Object,
}

impl ResourceLevel {
    /// The level of a percent-encoded path, split as the protocol crate does.
    pub fn of(path: &str) -> ResourceLevel {
        let path = decode(path);
        let path = path.strip_prefix(b"/").unwrap_or(&path);
        match path.iter().position(|byte| *byte == b'/') {
            _ if path.is_empty() => ResourceLevel::Service,
            Some(slash) if slash + 1 < path.len() => ResourceLevel::Object,
            _ => ResourceLevel::Bucket,
        }
    }
}

/// A setting that no bucket or object has here, with the error that clients know for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingSetting {
    pub code: &'static str,
    pub status: u16,
    pub message: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteVerdict {
    Offered,
    /// The request reads a setting that does not exist here.
    Unset(MissingSetting),
    /// A parameter is there twice.
    Twice(String),
    /// The method, and a parameter that is not offered with it.
    NotOffered(String),
}

/// An operation: its method, its level, the parameters that select it, and those that are optional.
struct Offered(&'static str, ResourceLevel, &'static [&'static str], &'static [&'static str]);

/// `metadata` is an extension of MinIO's: its clients ask for it in listings, and do without it.
const LISTING: &[&str] = &["prefix", "delimiter", "encoding-type", "marker", "max-keys", "metadata"];
const LISTING_2: &[&str] = &[
    "prefix",
    "delimiter",
    "encoding-type",
    "max-keys",
    "continuation-token",
    "fetch-owner",
    "start-after",
    "metadata",
];
const VERSIONS: &[&str] =
    &["prefix", "delimiter", "encoding-type", "max-keys", "key-marker", "version-id-marker", "metadata"];
const UPLOADS: &[&str] =
    &["prefix", "delimiter", "encoding-type", "key-marker", "max-uploads", "upload-id-marker"];
const BUCKETS: &[&str] = &["max-buckets", "continuation-token", "prefix", "bucket-region"];
const READ: &[&str] = &[
    "versionId",
    "partNumber",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
];
const VERSION: &[&str] = &["versionId"];
const NONE: &[&str] = &[];

const OFFERED: [Offered; 24] = [
    Offered("GET", ResourceLevel::Service, NONE, BUCKETS),
    Offered("GET", ResourceLevel::Bucket, NONE, LISTING),
    Offered("GET", ResourceLevel::Bucket, &["list-type"], LISTING_2),
    Offered("GET", ResourceLevel::Bucket, &["versions"], VERSIONS),
    Offered("GET", ResourceLevel::Bucket, &["uploads"], UPLOADS),
    Offered("GET", ResourceLevel::Bucket, &["location"], NONE),
    Offered("GET", ResourceLevel::Bucket, &["versioning"], NONE),
    Offered("HEAD", ResourceLevel::Bucket, NONE, NONE),
    Offered("PUT", ResourceLevel::Bucket, NONE, NONE),
    Offered("DELETE", ResourceLevel::Bucket, NONE, NONE),
    Offered("POST", ResourceLevel::Bucket, &["delete"], NONE),
    Offered("GET", ResourceLevel::Object, NONE, READ),
    Offered("GET", ResourceLevel::Object, &["uploadId"], &["max-parts", "part-number-marker"]),
    Offered("GET", ResourceLevel::Object, &["tagging"], VERSION),
    Offered("GET", ResourceLevel::Object, &["attributes"], VERSION),
    Offered("HEAD", ResourceLevel::Object, NONE, READ),
    Offered("PUT", ResourceLevel::Object, NONE, NONE),
    Offered("PUT", ResourceLevel::Object, &["partNumber", "uploadId"], NONE),
    Offered("PUT", ResourceLevel::Object, &["tagging"], VERSION),
    Offered("POST", ResourceLevel::Object, &["uploads"], NONE),
    Offered("POST", ResourceLevel::Object, &["uploadId"], NONE),
    Offered("DELETE", ResourceLevel::Object, NONE, VERSION),
    Offered("DELETE", ResourceLevel::Object, &["uploadId"], NONE),
    Offered("DELETE", ResourceLevel::Object, &["tagging"], VERSION),
];

const fn unset(code: &'static str, message: &'static str) -> MissingSetting {
    MissingSetting { code, status: 404, message }
}

/// Bucket settings that a GET may read; they are answered as those of a bucket on which they were never set.
const OF_BUCKETS: [(&str, MissingSetting); 11] = [
    ("policy", unset("NoSuchBucketPolicy", "The bucket policy does not exist")),
    ("policyStatus", unset("NoSuchBucketPolicy", "The bucket policy does not exist")),
    ("cors", unset("NoSuchCORSConfiguration", "The CORS configuration does not exist")),
    ("lifecycle", unset("NoSuchLifecycleConfiguration", "The lifecycle configuration does not exist")),
    ("tagging", unset("NoSuchTagSet", "The TagSet does not exist")),
    ("website", unset("NoSuchWebsiteConfiguration", "The website configuration does not exist")),
    (
        "encryption",
        unset(
            "ServerSideEncryptionConfigurationNotFoundError",
            "The server side encryption configuration was not found",
        ),
    ),
    (
        "replication",
        unset("ReplicationConfigurationNotFoundError", "The replication configuration was not found"),
    ),
    (
        "object-lock",
        unset(
            "ObjectLockConfigurationNotFoundError",
            "Object Lock configuration does not exist for this bucket",
        ),
    ),
    (
        "publicAccessBlock",
        unset("NoSuchPublicAccessBlockConfiguration", "The public access block configuration was not found"),
    ),
    (
        "ownershipControls",
        unset("OwnershipControlsNotFoundError", "The bucket ownership controls were not found"),
    ),
];

/// S3's answer for a bucket without object locks.
const NO_LOCKS: MissingSetting = MissingSetting {
    code: "InvalidRequest",
    status: 400,
    message: "Bucket is missing Object Lock Configuration",
};

pub fn judge(method: &Method, level: ResourceLevel, query: &Query) -> RouteVerdict {
    let mut names: Vec<&[u8]> =
        query.0.iter().map(|(name, _)| name.as_slice()).filter(|name| !is_of_nobody(name)).collect();
    names.sort_unstable();
    let text = |name: &[u8]| name.escape_ascii().to_string();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return RouteVerdict::Twice(text(pair[0]));
    }
    let has = |wanted: &&str| names.contains(&wanted.as_bytes());
    let of_level = OFFERED.iter().filter(|Offered(known, at, ..)| method.as_str() == *known && *at == level);
    let mut unknown = None;
    for Offered(_, _, needed, optional) in of_level.filter(|Offered(_, _, needed, _)| needed.iter().all(has))
    {
        let is_listed = |name: &[u8]| needed.iter().chain(*optional).any(|known| known.as_bytes() == name);
        match names.iter().find(|name| !is_listed(name)) {
            None => return RouteVerdict::Offered,
            Some(other) => unknown = Some(text(other)),
        }
    }
    let is_read = *method == Method::GET && names.len() == 1;
    if is_read
        && level == ResourceLevel::Bucket
        && let Some((_, unset)) = OF_BUCKETS.iter().find(|(name, _)| has(name))
    {
        return RouteVerdict::Unset(*unset);
    }
    if *method == Method::GET && level == ResourceLevel::Object && (has(&"retention") || has(&"legal-hold")) {
        return RouteVerdict::Unset(NO_LOCKS);
    }
    RouteVerdict::NotOffered(
        unknown.map_or_else(|| method.to_string(), |name| format!("{method} with {name}")),
    )
}

/// Parameters that select no operation: of the signature, headers moved into the query, or a client's own (S3
/// ignores all that begin with `x-`).
fn is_of_nobody(name: &[u8]) -> bool {
    is_auth_parameter(name) || name.len() > 2 && name[..2].eq_ignore_ascii_case(b"x-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(method: &str, path: &str, query: &str) -> RouteVerdict {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        judge(&method, ResourceLevel::of(path), &Query::parse(query))
    }

    #[test]
    fn a_path_is_split_as_the_operations_split_it() {
        for (path, level) in [
            ("/", ResourceLevel::Service),
            ("/b", ResourceLevel::Bucket),
            ("/b/", ResourceLevel::Bucket),
            ("/b/k", ResourceLevel::Object),
            ("/b//", ResourceLevel::Object),
            ("/b%2Fk", ResourceLevel::Object),
            ("/b%2f", ResourceLevel::Bucket),
        ] {
            assert_eq!(ResourceLevel::of(path), level, "{path}");
        }
    }

    #[test]
    fn what_is_not_listed_is_refused_for_every_method() {
        for method in ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH"] {
            for path in ["/", "/b", "/b/k"] {
                for query in
                    ["annotation&annotationName=x", "acl", "of-tomorrow=1", "metadataConfiguration", "%61cl"]
                {
                    let judged = judged(method, path, query);
                    assert!(
                        matches!(judged, RouteVerdict::NotOffered(_)),
                        "{method} {path}?{query}: {judged:?}"
                    );
                }
            }
        }
        assert!(matches!(judged("DELETE", "/b/k", "uploadId=1&acl"), RouteVerdict::NotOffered(_)));
        assert!(matches!(judged("PUT", "/b/k", "partNumber=1"), RouteVerdict::NotOffered(_)));
        assert!(matches!(judged("DELETE", "/b", "versionId=1"), RouteVerdict::NotOffered(_)));
        assert!(matches!(judged("DELETE", "/b", "policy"), RouteVerdict::NotOffered(_)));
        assert_eq!(
            judged("PUT", "/b/k", "uploadId=1&uploadId=2&partNumber=1"),
            RouteVerdict::Twice("uploadId".into())
        );
    }

    #[test]
    fn what_is_offered_is_let_through() {
        for (method, path, query) in [
            ("GET", "/b", "list-type=2&prefix=a&delimiter=/&max-keys=5"),
            ("GET", "/b", "marker=x"),
            ("GET", "/b", "uploads"),
            ("GET", "/b/k", "partNumber=1&x-id=GetObject&X-Amz-Signature=1&x-mine=2"),
            ("HEAD", "/b/k", "versionId=null"),
            ("PUT", "/b/k", "partNumber=1&uploadId=2"),
            ("DELETE", "/b/k", ""),
            ("POST", "/b", "delete"),
        ] {
            assert_eq!(judged(method, path, query), RouteVerdict::Offered, "{method} {path}?{query}");
        }
    }

    #[test]
    fn a_setting_that_is_not_there_is_told_so() {
        let code = |judged| match judged {
            RouteVerdict::Unset(unset) => (unset.code, unset.status),
            other => panic!("{other:?}"),
        };
        assert_eq!(code(judged("GET", "/b", "policy")), ("NoSuchBucketPolicy", 404));
        assert_eq!(code(judged("GET", "/b", "tagging=")), ("NoSuchTagSet", 404));
        assert_eq!(code(judged("GET", "/b/k", "retention")), ("InvalidRequest", 400));
    }
}
