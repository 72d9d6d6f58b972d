//! The mapping of the service's errors to error kinds, in one place.
//! <https://learn.microsoft.com/rest/api/storageservices/file-service-error-codes>

use ::http::{HeaderMap, StatusCode};
use origin_object::http::Lost;
use serde::Deserialize;
use types::{Error, ErrorKind, OutageReason};

/// An error answer of the service.
#[derive(Clone, Debug)]
pub struct AzFileRefusal {
    pub status: StatusCode,
    pub code: String,
    pub message: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct AzFileErrorBody {
    code: String,
    message: String,
}

impl AzFileRefusal {
    pub fn of(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> AzFileRefusal {
        let text = String::from_utf8_lossy(body);
        let told: AzFileErrorBody =
            quick_xml::de::from_str(text.trim_start_matches('\u{feff}')).unwrap_or_default();
        // An answer to HEAD has only the header.
        let header = headers.get("x-ms-error-code").and_then(|value| value.to_str().ok());
        let code = header.map_or(told.code, str::to_owned);
        // Further lines are the request's ids.
        let message = told.message.lines().next().unwrap_or_default().to_owned();
        AzFileRefusal { status, code, message }
    }

    pub fn kind(&self) -> ErrorKind {
        use ErrorKind as K;
        match self.code.as_str() {
            "ResourceNotFound" | "ParentNotFound" => return K::NotFound,
            // A file instead of a directory, or the other way round: the caller knows which.
            "ResourceTypeMismatch" => return K::NotADirectory,
            "ResourceAlreadyExists" => return K::Exists,
            "DirectoryNotEmpty" => return K::NotEmpty,
            "ReadOnlyAttribute" | "CannotDeleteFileOrDirectory" => return K::NotPermitted,
            "InvalidResourceName" | "InvalidUri" | "InvalidInput" => return K::InvalidArgument,
            "InvalidFileOrDirectoryPathName" => return K::NameTooLong,
            "OutOfRangeInput" | "FileSizeLimitReached" => return K::FileTooLarge,
            "InvalidRange" => return K::VersionChanged,
            "ShareSizeLimitReached" => return K::NoSpace,
            // It is open over SMB, or leased: perhaps later.
            "SharingViolation"
            | "FileLockConflict"
            | "FileOpenBySmbClient"
            | "DeletePending"
            | "LeaseIdMissing"
            | "ClientCacheFlushDelay"
            | "ServerBusy"
            // What was sent did not arrive whole.
            | "Md5Mismatch" => return K::Busy,
            "OperationTimedOut" | "InternalError" => return K::Unavailable,
            // They concern the share, not an object in it: never "not found".
            "ShareNotFound" | "ShareBeingDeleted" | "ShareDisabled" | "AccountIsDisabled" => {
                return K::Unavailable;
            }
            _ => {}
        }
        match self.status.as_u16() {
            404 => K::NotFound,
            401 | 403 => K::AccessDenied,
            409 | 429 | 503 => K::Busy,
            412 | 416 => K::VersionChanged,
            413 => K::FileTooLarge,
            408 | 500 | 502 | 504 => K::Unavailable,
            501 => K::NotSupported,
            507 => K::NoSpace,
            _ => K::Io,
        }
    }

    /// Whether it concerns the credentials, and so every call.
    pub fn is_of_credentials(&self) -> bool {
        matches!(
            self.code.as_str(),
            "AuthenticationFailed"
                | "AuthorizationFailure"
                | "InvalidAuthenticationInfo"
                | "NoAuthenticationInformation"
                | "KeyBasedAuthenticationNotPermitted"
        ) || self.status == StatusCode::UNAUTHORIZED
    }

    /// Whether it may concern one file or everything: credentials that may not look at the served directory either
    /// may do nothing.
    pub fn may_be_of_credentials(&self) -> bool {
        self.status == StatusCode::FORBIDDEN && self.kind() == ErrorKind::AccessDenied
    }

    /// Advice for the operator.
    fn advice(&self) -> Option<&'static str> {
        Some(match self.code.as_str() {
            "AuthenticationFailed" => {
                "the key or SAS is not this account's, has expired, or the clock of this machine is wrong"
            }
            "NoAuthenticationInformation" | "AuthorizationFailure" => "the account refuses these credentials",
            "AuthorizationPermissionMismatch" | "AuthorizationResourceTypeMismatch" => {
                "the SAS does not permit that: it needs read, write, create, delete and list on service, container and \
                 object"
            }
            "ShareNotFound" => "there is no such share in this account",
            "SharingViolation" | "FileLockConflict" => "an SMB client has it open",
            "ReadOnlyAttribute" => "it has the attribute ReadOnly",
            _ => return None,
        })
    }

    pub fn into_error(self, operation: &'static str, context: impl std::fmt::Display) -> Error {
        let kind = self.kind();
        self.with_detail(Error::new(kind, operation, context))
    }

    /// The outage of credentials that the service does not accept.
    pub fn into_outage(self, operation: &'static str, context: impl std::fmt::Display) -> Error {
        self.with_detail(Error::outage(OutageReason::Credentials, operation, context))
    }

    fn with_detail(&self, error: Error) -> Error {
        let advice = self.advice().map(|advice| format!(" ({advice})")).unwrap_or_default();
        let code = if self.code.is_empty() { String::new() } else { format!(" {}", self.code) };
        let message = if self.message.is_empty() { String::new() } else { format!(": {}", self.message) };
        let said = format!("the service said {}{code}{message}{advice}", self.status.as_u16());
        error.with_source(std::io::Error::other(said))
    }
}

/// No answer came to a request that may be repeated.
pub fn unanswered(operation: &'static str, context: impl std::fmt::Display, lost: Lost) -> Error {
    Error::new(ErrorKind::Unavailable, operation, context).with_source(lost)
}

/// An answer that does not follow the interface.
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

    fn refusal(status: u16, code: &str) -> AzFileRefusal {
        let body = format!(
            "\u{feff}<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>No.\nTime:2026</Message></Error>"
        );
        AzFileRefusal::of(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body.as_bytes())
    }

    #[test]
    fn only_what_is_on_the_share_is_ever_not_found() {
        assert_eq!(refusal(404, "ResourceNotFound").kind(), ErrorKind::NotFound);
        assert_eq!(refusal(404, "ParentNotFound").kind(), ErrorKind::NotFound);
        assert_eq!(refusal(404, "ShareNotFound").kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn a_refusal_is_one_line_with_advice() {
        let text = refusal(403, "AuthenticationFailed").into_error("list", "share").to_string();
        assert!(
            text.contains("403 AuthenticationFailed: No. (the key or SAS") && !text.contains('\n'),
            "{text}"
        );
        assert!(refusal(409, "SharingViolation").into_error("write to", "f").is_retryable());
        assert!(refusal(400, "Md5Mismatch").into_error("write to", "f").is_retryable());
        assert!(!refusal(400, "InvalidResourceName").into_error("create", "f").is_retryable());
    }
}
