//! AWS Signature Version 4: the one verifier of signatures, for all requests and for the zero-copy path.
//!
//! The protocol crate has a verifier of its own, but it cannot be asked for the signature alone, accepts SigV2 and
//! any lifetime of a presigned URL, does not check the region, and logs the right signature at debug level. So it
//! gets no keys: what reaches it was verified here and has lost all that belongs to the signature. No signature and
//! no secret is ever put into an error or a log.

mod canonical;
mod query;
mod request;
mod scope;

use std::sync::Arc;

use fair::Offence;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, Method};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::access_keys::{AccessKey, AccessKeys, Secret};

use canonical::Blanks;
pub use query::{Query, decode, encode};
pub use request::{SignatureClaim, is_auth_parameter};
pub use scope::{AmzDate, CredentialScope};

/// The most that a client's clock may be off.
pub const SKEW_SECONDS: i64 = 15 * 60;
/// The longest life of a presigned URL.
pub const PRESIGNED_SECONDS_MAX: u64 = 7 * 24 * 3600;

/// The SHA-256 of an empty body.
pub const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// A request's head, as it was sent.
#[derive(Clone, Copy)]
pub struct RequestHead<'a> {
    pub method: &'a Method,
    /// Percent-encoded.
    pub path: &'a str,
    pub query: &'a str,
    pub headers: &'a HeaderMap,
}

/// The scope that a signature must have.
#[derive(Clone, Debug)]
pub struct ExpectedScope {
    pub region: String,
}

/// How the signature covers the body.
#[derive(Clone, Debug)]
pub enum PayloadSigning {
    /// It does not cover the body.
    Unsigned,
    Sha256([u8; 32]),
    /// The body comes in chunks, each signed.
    Chunks {
        signer: ChunkSigner,
        trailer: bool,
    },
    /// The body comes in chunks that are not signed, with a trailer.
    UnsignedChunks,
}

/// The result of a verified signature.
#[derive(Clone, Debug)]
pub struct VerifiedRequest {
    pub key: Arc<AccessKey>,
    pub payload: PayloadSigning,
}

/// Why a signature is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignatureError {
    /// The request is not signed.
    Anonymous,
    /// It is signed with SigV2.
    OldVersion,
    /// The signature is malformed, or there are several: what is wrong.
    Malformed(&'static str),
    UnknownKey,
    /// It has a security token of temporary credentials, which do not exist here.
    SecurityToken,
    /// It is signed for another region.
    WrongRegion {
        expected: String,
    },
    WrongSignature,
    /// The clocks differ by more than [`SKEW_SECONDS`].
    Skewed,
    /// The presigned URL has expired.
    Expired,
    /// A header that changes the request is not covered by the signature.
    UnsignedHeader(String),
    /// The kind of signed body is not known.
    UnknownPayload,
}

impl SignatureError {
    /// The offence, for log and metrics.
    pub fn offence(&self) -> Offence {
        match self {
            SignatureError::Anonymous => Offence::Unsigned,
            SignatureError::UnknownKey => Offence::UnknownKey,
            SignatureError::Skewed => Offence::WrongClock,
            _ => Offence::WrongSignature,
        }
    }
}

/// Verifies a request's signature. `now`: seconds since 1970.
pub fn verify(
    head: &RequestHead<'_>,
    keys: &AccessKeys,
    expected: &ExpectedScope,
    now: i64,
) -> Result<VerifiedRequest, SignatureError> {
    let query = Query::parse(head.query);
    let claim = SignatureClaim::of(head, &query)?;
    let scope = &claim.scope;
    if scope.service != "s3" {
        return Err(SignatureError::Malformed("the credential's service is not s3"));
    }
    if scope.region != expected.region {
        return Err(SignatureError::WrongRegion { expected: expected.region.clone() });
    }
    if scope.date != claim.date.day() {
        return Err(SignatureError::Malformed("the credential's date is not that of the request"));
    }
    claim.demand_time(now)?;
    claim.demand_covered(head)?;
    let key = keys.get(&claim.key_id).ok_or(SignatureError::UnknownKey)?;
    let signing_key = signing_key(&key.secret, scope);
    let is_right = |blanks: Blanks| {
        let Some(canonical) = canonical::request(head, &query, &claim, blanks) else { return false };
        let hash = hex(&Sha256::digest(canonical));
        let text = string_to_sign("AWS4-HMAC-SHA256", &claim.date, scope, &[&hash]);
        matches(&signing_key, &text, &claim.signature)
    };
    let is_signed = is_right(Blanks::Spaces) || claim.has_tab(head) && is_right(Blanks::All);
    if !is_signed {
        return Err(SignatureError::WrongSignature);
    }
    if claim.has_token(head, &query) {
        return Err(SignatureError::SecurityToken);
    }
    let signer = ChunkSigner {
        key: signing_key,
        date: claim.date.clone(),
        scope: scope.clone(),
        previous: claim.signature.clone(),
    };
    Ok(VerifiedRequest { key, payload: payload(&claim, signer)? })
}

fn payload(claim: &SignatureClaim, signer: ChunkSigner) -> Result<PayloadSigning, SignatureError> {
    match claim.content_sha256.as_str() {
        "UNSIGNED-PAYLOAD" => Ok(PayloadSigning::Unsigned),
        // A presigned URL does not cover the body, so a chunk's signature would have nothing to chain to.
        _ if claim.expires.is_some() && claim.content_sha256.starts_with("STREAMING-") => {
            Err(SignatureError::UnknownPayload)
        }
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => Ok(PayloadSigning::Chunks { signer, trailer: false }),
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => Ok(PayloadSigning::Chunks { signer, trailer: true }),
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Ok(PayloadSigning::UnsignedChunks),
        hash => unhex(hash).map(PayloadSigning::Sha256).ok_or(SignatureError::UnknownPayload),
    }
}

/// Verifies the chunks of one body; each signature covers the one before it.
#[derive(Clone)]
pub struct ChunkSigner {
    key: [u8; 32],
    date: AmzDate,
    scope: CredentialScope,
    previous: String,
}

impl std::fmt::Debug for ChunkSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChunkSigner(..)")
    }
}

impl ChunkSigner {
    /// Whether `signature` is that of the next chunk, which has this SHA-256.
    pub fn accepts(&mut self, sha256: &[u8], signature: &str) -> bool {
        let parts = [self.previous.as_str(), EMPTY_SHA256, &hex(sha256)];
        let text = string_to_sign("AWS4-HMAC-SHA256-PAYLOAD", &self.date, &self.scope, &parts);
        self.is(&text, signature)
    }

    /// Whether `signature` is that of the trailer after the last chunk.
    pub fn accepts_trailer(&mut self, sha256: &[u8], signature: &str) -> bool {
        let parts = [self.previous.as_str(), &hex(sha256)];
        let text = string_to_sign("AWS4-HMAC-SHA256-TRAILER", &self.date, &self.scope, &parts);
        self.is(&text, signature)
    }

    fn is(&mut self, text: &str, signature: &str) -> bool {
        let right = matches(&self.key, text, signature);
        if right {
            self.previous = signature.to_owned();
        }
        right
    }
}

fn string_to_sign(algorithm: &str, date: &AmzDate, scope: &CredentialScope, parts: &[&str]) -> String {
    format!("{algorithm}\n{date}\n{scope}\n{}", parts.join("\n"))
}

/// Compares in constant time.
fn matches(key: &[u8], text: &str, signature: &str) -> bool {
    hex(&hmac(key, text.as_bytes())).as_bytes().ct_eq(signature.as_bytes()).into()
}

fn signing_key(secret: &Secret, scope: &CredentialScope) -> [u8; 32] {
    let start = format!("AWS4{}", secret.expose());
    let date = hmac(start.as_bytes(), scope.date.as_bytes());
    let region = hmac(&date, scope.region.as_bytes());
    let service = hmac(&region, scope.service.as_bytes());
    hmac(&service, b"aws4_request")
}

fn hmac(key: &[u8], data: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(data);
    mac.finalize().into_bytes().into()
}

pub fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble & 15)]);
    let mut text = String::with_capacity(2 * bytes.len());
    bytes.iter().for_each(|byte| text.extend([digit(byte >> 4), digit(*byte)]));
    text
}

/// The bytes of a text of any length.
pub fn unhex_all(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2).map(|pair| unhex::<1>(std::str::from_utf8(pair).ok()?));
    pairs.map(|byte| byte.map(|[byte]| byte)).collect()
}

/// Accepts lower-case digits only, as signers write them.
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
