//! The mapping of our errors to S3's codes, in one place.

use http::StatusCode;
use s3s::{S3Error, S3ErrorCode};
use types::{Error, ErrorKind};

use crate::body_error::BodyError;
use crate::object_key::KeyError;
use crate::sigv4::SignatureError;

pub use s3s::S3Result;

pub fn code_of(kind: ErrorKind) -> S3ErrorCode {
    match kind {
        ErrorKind::NotFound | ErrorKind::Stale => S3ErrorCode::NoSuchKey,
        // Something exists under a name of the key, but it is no object.
        ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::Exists => S3ErrorCode::InvalidRequest,
        ErrorKind::AccessDenied | ErrorKind::NotPermitted | ErrorKind::ReadOnly => S3ErrorCode::AccessDenied,
        ErrorKind::NotEmpty => S3ErrorCode::BucketNotEmpty,
        ErrorKind::InvalidArgument => S3ErrorCode::InvalidArgument,
        ErrorKind::NameTooLong => S3ErrorCode::KeyTooLongError,
        // Clients retry these with a growing pause.
        ErrorKind::Busy => S3ErrorCode::SlowDown,
        ErrorKind::Unavailable => S3ErrorCode::ServiceUnavailable,
        // The file was replaced: the client must begin again.
        ErrorKind::VersionChanged => S3ErrorCode::OperationAborted,
        // An object is replaced as a whole, so a retry leaves what one request would have left.
        ErrorKind::OutcomeUnknown => S3ErrorCode::ServiceUnavailable,
        ErrorKind::FileTooLarge => S3ErrorCode::EntityTooLarge,
        ErrorKind::NotSupported => S3ErrorCode::NotImplemented,
        ErrorKind::Corrupt
        | ErrorKind::Io
        | ErrorKind::NoSpace
        | ErrorKind::QuotaExceeded
        | ErrorKind::TooManyLinks
        | ErrorKind::CrossDevice
        | ErrorKind::Config => S3ErrorCode::InternalError,
    }
}

/// The message for a person. It does not reveal the names of our paths and origins.
fn message_of(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::NotADirectory => Some("a part of the key before a slash is an object itself"),
        ErrorKind::IsADirectory => Some("the key is that of a directory with keys below it"),
        ErrorKind::ReadOnly => Some("this bucket is served read-only"),
        ErrorKind::NoSpace | ErrorKind::QuotaExceeded => Some("the storage behind this bucket is full"),
        ErrorKind::Unavailable => Some("the storage behind this bucket cannot be reached now"),
        _ => None,
    }
}

/// S3 has no code for a full storage; the HTTP status 507 says it, and clients do not retry that for long.
pub fn s3_error(error: Error) -> S3Error {
    let kind = error.kind();
    let mut answer = S3Error::new(code_of(kind));
    if let Some(message) = message_of(kind) {
        answer.set_message(message);
    }
    match kind {
        ErrorKind::NoSpace | ErrorKind::QuotaExceeded => {
            answer.set_status_code(StatusCode::INSUFFICIENT_STORAGE)
        }
        ErrorKind::VersionChanged => answer.set_status_code(StatusCode::CONFLICT),
        _ => {}
    }
    if answer.status_code().is_none_or(|status| status.is_server_error()) {
        tracing::warn!("{error}");
    }
    answer
}

pub fn key_error(key_error: KeyError) -> S3Error {
    let code = match key_error {
        KeyError::TooLong | KeyError::LongName => S3ErrorCode::KeyTooLongError,
        _ => S3ErrorCode::InvalidArgument,
    };
    S3Error::with_message(code, key_error.why())
}

pub fn body_error(error: BodyError) -> S3Error {
    let code = match error {
        BodyError::Incomplete => S3ErrorCode::IncompleteBody,
        BodyError::Stalled => S3ErrorCode::RequestTimeout,
        BodyError::NoRoom => S3ErrorCode::SlowDown,
        BodyError::TooLong => S3ErrorCode::EntityTooLarge,
        BodyError::WrongSha256 => S3ErrorCode::Custom("XAmzContentSHA256Mismatch".into()),
        BodyError::ChunkSignature => S3ErrorCode::SignatureDoesNotMatch,
        BodyError::TinyChunks => S3ErrorCode::Custom("InvalidChunkSizeError".into()),
        BodyError::Malformed(_) => S3ErrorCode::InvalidRequest,
    };
    let mut answer = S3Error::with_message(code, error.to_string());
    match error {
        BodyError::WrongSha256 => answer.set_status_code(StatusCode::BAD_REQUEST),
        BodyError::TinyChunks => answer.set_status_code(StatusCode::FORBIDDEN),
        _ => {}
    }
    answer
}

pub fn signature_error(refusal: &SignatureError) -> S3Error {
    use S3ErrorCode as Code;
    let (code, message) = match refusal {
        SignatureError::Anonymous => (Code::AccessDenied, "requests must be signed".to_owned()),
        SignatureError::OldVersion => {
            (Code::InvalidRequest, "sign with AWS4-HMAC-SHA256 (signature version 4)".into())
        }
        SignatureError::Malformed(what) => {
            (Code::AuthorizationHeaderMalformed, format!("the signature: {what}"))
        }
        SignatureError::SecurityToken => {
            (Code::InvalidToken, "access keys have no security token here; send none".to_owned())
        }
        SignatureError::UnknownKey => {
            (Code::InvalidAccessKeyId, "this access key is not known here".to_owned())
        }
        SignatureError::WrongRegion { expected } => {
            let message = format!("the region of the signature is wrong; expecting '{expected}'");
            (Code::AuthorizationHeaderMalformed, message)
        }
        SignatureError::WrongSignature => {
            let message =
                "the signature is not that of this request; check the secret key and the clock's zone";
            (Code::SignatureDoesNotMatch, message.to_owned())
        }
        SignatureError::Skewed => {
            (Code::RequestTimeTooSkewed, "the clocks of client and server differ by too much".to_owned())
        }
        SignatureError::Expired => (Code::AccessDenied, "Request has expired".to_owned()),
        SignatureError::UnsignedHeader(name) => {
            (Code::AccessDenied, format!("the header {name} is there, and is not signed"))
        }
        SignatureError::UnknownPayload => {
            (Code::InvalidRequest, "x-amz-content-sha256 is no SHA-256 and no word for one".to_owned())
        }
    };
    S3Error::with_message(code, message)
}

/// The error for an argument that is not understood.
pub fn invalid(message: &'static str) -> S3Error {
    S3Error::with_message(S3ErrorCode::InvalidArgument, message)
}

pub fn not_offered(message: &'static str) -> S3Error {
    S3Error::with_message(S3ErrorCode::NotImplemented, message)
}

pub fn header_not_offered(name: &str) -> S3Error {
    S3Error::with_message(S3ErrorCode::NotImplemented, format!("what {name} asks for is not offered"))
}
