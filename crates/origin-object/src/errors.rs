//! The mapping of the stores' and HTTP's errors to error kinds, in one place.

use ::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use types::{Error, ErrorKind, OutageReason};

use crate::http::Lost;

/// The most characters of an answer that is neither XML nor JSON.
const PLAIN_MAX: usize = 300;

/// A store's error answer: its own words, and our kind.
#[derive(Clone, Debug)]
pub struct StoreRefusal {
    pub status: StatusCode,
    /// Empty where the answer had no body (HEAD).
    pub code: String,
    pub message: String,
    /// The bucket's real region, where the store told it.
    pub region: Option<String>,
}

/// Google's: `{"error": {"message": …, "errors": [{"reason": …}]}}`.
#[derive(Deserialize)]
struct ErrorJson {
    error: ErrorInJson,
}

#[derive(Deserialize)]
struct ErrorInJson {
    #[serde(default)]
    message: String,
    #[serde(default)]
    errors: Vec<ReasonInJson>,
}

#[derive(Deserialize)]
struct ReasonInJson {
    #[serde(default)]
    reason: String,
}

impl From<ErrorJson> for StoreErrorBody {
    fn from(told: ErrorJson) -> StoreErrorBody {
        let code = told.error.errors.into_iter().next().map(|first| first.reason).unwrap_or_default();
        StoreErrorBody { code, message: told.error.message, region: None }
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct StoreErrorBody {
    code: String,
    message: String,
    region: Option<String>,
}

impl StoreRefusal {
    pub fn of(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> StoreRefusal {
        let text = String::from_utf8_lossy(body);
        let text = text.trim_start_matches('\u{feff}');
        let told = match text.trim_start().as_bytes().first() {
            Some(b'{') => {
                serde_json::from_str::<ErrorJson>(text).map(StoreErrorBody::from).unwrap_or_default()
            }
            Some(b'<') => quick_xml::de::from_str(text).unwrap_or_default(),
            // Google's, for a read.
            _ => StoreErrorBody {
                message: text.chars().take(PLAIN_MAX).collect(),
                ..StoreErrorBody::default()
            },
        };
        let header = |name: &str| Some(headers.get(name)?.to_str().ok()?.to_owned());
        let region = told.region.or_else(|| header("x-amz-bucket-region"));
        // Azure's header, which is all there is if the answer has no body.
        let code = header("x-ms-error-code").unwrap_or(told.code);
        // Some stores add the time and the request's id behind the first line.
        let message = told.message.lines().next().unwrap_or_default().to_owned();
        StoreRefusal { status, code, message, region }
    }

    pub fn kind(&self) -> ErrorKind {
        use ErrorKind as K;
        match self.code.as_str() {
            "NoSuchKey" | "BlobNotFound" => return K::NotFound,
            "SlowDown"
            | "TooManyRequests"
            | "rateLimitExceeded"
            | "userRateLimitExceeded"
            | "ServerBusy"
            | "ConditionalRequestConflict"
            | "PendingCopyOperation"
            | "LeaseIdMissing" => return K::Busy,
            // What was sent did not arrive whole: the line was cut, or the store ended.
            "IncompleteBody" | "BadDigest" | "XAmzContentSHA256Mismatch" | "Md5Mismatch" => return K::Busy,
            "RequestTimeout" | "OperationTimedOut" => return K::Unavailable,
            "XMinioStorageFull" | "InsufficientCapacity" => return K::NoSpace,
            "QuotaExceeded" | "XMinioAdminBucketQuotaExceeded" => return K::QuotaExceeded,
            "EntityTooLarge" => return K::FileTooLarge,
            "KeyTooLongError" => return K::NameTooLong,
            "NotImplemented" | "InvalidBlobType" => return K::NotSupported,
            "BlobImmutableDueToPolicy"
            | "SnapshotsPresent"
            | "BlobArchived"
            | "BlobBeingRehydrated"
            | "retentionPolicyNotMet"
            | "objectUnderActiveHold" => return K::NotPermitted,
            // Another writer's change of the blob dropped our blocks.
            "InvalidBlockList" => return K::VersionChanged,
            // They concern the bucket and us, not an object: never "not found".
            "NoSuchBucket" | "ContainerNotFound" | "ContainerBeingDeleted" | "ContainerDisabled" => {
                return K::Unavailable;
            }
            // Google has no code for it.
            "notFound" | "" if self.is_of_bucket() => return K::Unavailable,
            _ => {}
        }
        match self.status.as_u16() {
            404 => K::NotFound,
            401 | 403 => K::AccessDenied,
            409 | 412 | 416 => K::VersionChanged,
            413 => K::FileTooLarge,
            429 | 503 => K::Busy,
            408 | 500 | 502 | 504 => K::Unavailable,
            501 => K::NotSupported,
            507 => K::NoSpace,
            _ => K::Io,
        }
    }

    /// Google reports a missing bucket in words only.
    fn is_of_bucket(&self) -> bool {
        self.message.contains("bucket does not exist")
    }

    /// Whether it concerns the credentials, and so every call: no answer about one object.
    pub fn is_of_credentials(&self) -> bool {
        matches!(
            self.code.as_str(),
            // S3.
            "InvalidAccessKeyId"
                | "SignatureDoesNotMatch"
                | "ExpiredToken"
                | "TokenRefreshRequired"
                | "InvalidToken"
                | "RequestTimeTooSkewed"
                | "RequestExpired"
                | "InvalidSecurity"
                | "AccountProblem"
                | "AllAccessDisabled"
                | "NotSignedUp"
                // Azure.
                | "AuthenticationFailed"
                | "AuthorizationFailure"
                | "InvalidAuthenticationInfo"
                | "NoAuthenticationInformation"
                | "KeyBasedAuthenticationNotPermitted"
                | "AccountIsDisabled"
                // Google.
                | "authError"
                | "required"
                | "accountDisabled"
                | "insufficientPermissions"
        ) || self.status == StatusCode::UNAUTHORIZED
    }

    /// Whether it may concern one object or everything: credentials that may not list the prefix either may do
    /// nothing.
    pub fn may_be_of_credentials(&self) -> bool {
        self.status == StatusCode::FORBIDDEN && self.kind() == ErrorKind::AccessDenied
    }

    /// Advice for the operator.
    fn advice(&self) -> Option<String> {
        // A signature for another region is no fault of the credentials.
        let wrong_region = matches!(self.status.as_u16(), 301 | 307 | 400) && self.region.is_some();
        if wrong_region {
            return self.region.as_ref().map(|region| {
                format!("the bucket is in region {region}: write ?region={region} behind its URL")
            });
        }
        let text = match self.code.as_str() {
            "InvalidAccessKeyId" => "the store does not know this access key",
            "SignatureDoesNotMatch" => "the secret does not belong to the access key, or the region is wrong",
            "ExpiredToken" | "TokenRefreshRequired" => "the session's credentials have expired",
            "RequestTimeTooSkewed" => "the clock of this machine is wrong: the store refuses its signatures",
            "NoSuchBucket" => "there is no such bucket",
            "ContainerNotFound" => "there is no such container",
            "AuthorizationPermissionMismatch" => {
                "this identity may not do that: give it the role Storage Blob Data Contributor"
            }
            "AuthenticationFailed" | "AuthorizationFailure" => {
                "the key is not the account's, the SAS token does not allow that or is over, or the account's network rules \
                 do not, or the clock of this machine is wrong"
            }
            "NoAuthenticationInformation" | "PublicAccessNotPermitted" => "the container is not public",
            "KeyBasedAuthenticationNotPermitted" => "the account takes no keys: give an identity",
            "SnapshotsPresent" => "the blob has snapshots, which are not removed with it",
            "BlobArchived" | "BlobBeingRehydrated" => "the blob is in the archive tier: rehydrate it",
            "LeaseIdMissing" => "somebody holds a lease on it",
            "InvalidBlobOrBlock" => "another program has an upload of this blob under way",
            "AccessDenied" | "AllAccessDisabled" => "these credentials may not do that",
            "notFound" | "" if self.is_of_bucket() => "there is no such bucket",
            "authError" | "required" => "the store does not take these credentials, or wants some",
            "insufficientPermissions" => {
                "the access scope of this machine's identity is too small: give it cloud-platform"
            }
            "forbidden" => "this identity may not do that: give it the role Storage Object User",
            "retentionPolicyNotMet" => "the bucket's retention policy keeps what is stored",
            "objectUnderActiveHold" => "there is a hold on it",
            _ => return None,
        };
        Some(text.to_owned())
    }

    pub fn to_error(
        &self,
        kind: ErrorKind,
        operation: &'static str,
        context: impl std::fmt::Display,
    ) -> Error {
        self.with_detail(Error::new(kind, operation, context))
    }

    /// The outage of credentials that the store does not accept.
    pub fn to_outage(&self, operation: &'static str, context: impl std::fmt::Display) -> Error {
        self.with_detail(Error::outage(OutageReason::Credentials, operation, context))
    }

    fn with_detail(&self, error: Error) -> Error {
        let advice = self.advice().map(|advice| format!(" ({advice})")).unwrap_or_default();
        let code = if self.code.is_empty() { String::new() } else { format!(" {}", self.code) };
        let message = if self.message.is_empty() { String::new() } else { format!(": {}", self.message) };
        let said = format!("the store said {}{code}{message}{advice}", self.status.as_u16());
        error.with_source(std::io::Error::other(said))
    }
}

/// No answer came to a request that may be repeated.
pub fn unanswered(operation: &'static str, context: impl std::fmt::Display, lost: Lost) -> Error {
    Error::new(ErrorKind::Unavailable, operation, context).with_source(lost)
}

/// An answer that does not follow the protocol.
pub fn garbled(
    operation: &'static str,
    context: impl std::fmt::Display,
    why: impl std::fmt::Display,
) -> Error {
    Error::new(ErrorKind::Corrupt, operation, context).with_source(std::io::Error::other(why.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, body: &str) -> StoreRefusal {
        StoreRefusal::of(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body.as_bytes())
    }

    #[test]
    fn only_a_key_is_ever_not_found() {
        assert_eq!(refusal(404, "").kind(), ErrorKind::NotFound);
        assert_eq!(refusal(404, "<Error><Code>NoSuchKey</Code></Error>").kind(), ErrorKind::NotFound);
        assert_eq!(refusal(404, "<Error><Code>NoSuchBucket</Code></Error>").kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn google_says_it_in_json() {
        let of = |status, reason: &str, message: &str| {
            let errors = format!("[{{\"domain\":\"global\",\"reason\":\"{reason}\"}}]");
            refusal(
                status,
                &format!("{{\"error\":{{\"code\":{status},\"message\":\"{message}\",\"errors\":{errors}}}}}"),
            )
        };
        let table = [
            (of(404, "notFound", "No such object: b/k"), ErrorKind::NotFound),
            (of(404, "notFound", "The specified bucket does not exist."), ErrorKind::Unavailable),
            (of(412, "conditionNotMet", "At least one of the pre-conditions"), ErrorKind::VersionChanged),
            (of(403, "userRateLimitExceeded", "slower"), ErrorKind::Busy),
            (of(429, "rateLimitExceeded", "slower"), ErrorKind::Busy),
            (of(403, "forbidden", "x does not have storage.objects.get access"), ErrorKind::AccessDenied),
            (of(401, "authError", "Invalid Credentials"), ErrorKind::AccessDenied),
            (of(503, "backendError", "later"), ErrorKind::Busy),
            (refusal(404, "No such object: b/k"), ErrorKind::NotFound),
            (refusal(404, "The specified bucket does not exist."), ErrorKind::Unavailable),
            // The form of a token endpoint's answer.
            (refusal(400, "{\"error\":\"invalid_grant\"}"), ErrorKind::Io),
        ];
        for (refused, kind) in table {
            assert_eq!(refused.kind(), kind, "{refused:?}");
        }
    }

    #[test]
    fn a_wrong_region_is_told_with_the_right_one() {
        let body = "<Error><Code>AuthorizationHeaderMalformed</Code><Message>m</Message><Region>eu-west-3</Region></Error>";
        let refused = refusal(400, body);
        let text = refused.to_error(refused.kind(), "list", "bucket").to_string();
        assert!(text.contains("?region=eu-west-3") && !text.contains('\n'), "{text}");
    }

    #[test]
    fn a_refusal_without_a_body_says_its_code_in_a_header() {
        let headers = HeaderMap::from_iter([(
            ::http::HeaderName::from_static("x-ms-error-code"),
            ::http::HeaderValue::from_static("ContainerNotFound"),
        )]);
        let refused = StoreRefusal::of(StatusCode::NOT_FOUND, &headers, b"");
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        let body = "\u{feff}<?xml version=\"1.0\"?><Error><Code>BlobNotFound</Code><Message>no.\nRequestId:1</Message></Error>";
        let refused = refusal(404, body);
        assert_eq!((refused.kind(), refused.message.as_str()), (ErrorKind::NotFound, "no."));
    }

    #[test]
    fn what_passes_is_retryable_and_what_does_not_is_not() {
        let kinds = [
            (503, "SlowDown", true),
            (503, "ServerBusy", true),
            (500, "InternalError", true),
            (400, "IncompleteBody", true),
            (400, "Md5Mismatch", true),
            (400, "InvalidArgument", false),
            (403, "AccessDenied", false),
            (403, "AuthenticationFailed", false),
        ];
        for (status, code, retryable) in kinds {
            let refused = refusal(status, &format!("<Error><Code>{code}</Code></Error>"));
            let error = refused.to_error(refused.kind(), "get", "k");
            assert_eq!(error.is_retryable(), retryable, "{error}");
        }
        assert_eq!(refusal(400, "no xml at all <<<").kind(), ErrorKind::Io);
    }
}
