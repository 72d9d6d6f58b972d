//! The signature that a request claims, in its header or in its query.

use http::HeaderMap;

use super::query::Query;
use super::scope::{AmzDate, CredentialScope};
use super::{PRESIGNED_SECONDS_MAX, RequestHead, SKEW_SECONDS, SignatureError};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SIGNED_HEADERS_MAX: usize = 64;

#[derive(Clone)]
pub struct SignatureClaim {
    pub key_id: String,
    pub scope: CredentialScope,
    pub date: AmzDate,
    /// In lower case, sorted.
    pub signed_headers: Vec<String>,
    /// 64 hexadecimal digits.
    pub signature: String,
    /// The value of `x-amz-content-sha256`: a hash, or a word that stands for one.
    pub content_sha256: String,
    /// The lifetime of a presigned URL, in seconds.
    pub expires: Option<u64>,
}

/// Whether this query parameter belongs to the signature.
pub fn is_auth_parameter(name: &[u8]) -> bool {
    let names =
        ["Algorithm", "Credential", "Date", "Expires", "SignedHeaders", "Signature", "Security-Token"];
    let name = name.strip_prefix(b"X-Amz-");
    name.is_some_and(|name| names.iter().any(|known| known.as_bytes() == name))
        || name == Some(b"Content-Sha256")
}

/// The only parameter that a signature does not cover.
pub fn is_signature_parameter(name: &[u8]) -> bool {
    name == b"X-Amz-Signature"
}

impl SignatureClaim {
    pub fn of(head: &RequestHead<'_>, query: &Query) -> Result<SignatureClaim, SignatureError> {
        let by_header = head.headers.get_all("authorization").iter().count();
        let by_query = query.has("X-Amz-Signature") || query.has("X-Amz-Algorithm");
        if query.has("Signature") && query.has("AWSAccessKeyId") {
            return Err(SignatureError::OldVersion);
        }
        match (by_header, by_query) {
            (0, false) => Err(SignatureError::Anonymous),
            (0, true) => SignatureClaim::of_query(head, query),
            (1, false) => SignatureClaim::of_header(head),
            _ => Err(SignatureError::Malformed("it is signed more than once")),
        }
    }

    fn of_header(head: &RequestHead<'_>) -> Result<SignatureClaim, SignatureError> {
        let text = only(head.headers, "authorization")
            .ok_or(SignatureError::Malformed("Authorization is no text"))?;
        if text.starts_with("AWS ") {
            return Err(SignatureError::OldVersion);
        }
        let fields = text.strip_prefix(ALGORITHM).filter(|rest| rest.starts_with([' ', ',']));
        let fields = fields.ok_or(SignatureError::Malformed("Authorization is not AWS4-HMAC-SHA256"))?;
        let (mut credential, mut signed, mut signature) = (None, None, None);
        for field in fields.split(',').map(str::trim).filter(|field| !field.is_empty()) {
            let slot = match field.split_once('=') {
                Some(("Credential", value)) => credential.replace(value),
                Some(("SignedHeaders", value)) => signed.replace(value),
                Some(("Signature", value)) => signature.replace(value),
                _ => return Err(SignatureError::Malformed("Authorization has a field that is not known")),
            };
            if slot.is_some() {
                return Err(SignatureError::Malformed("Authorization has a field twice"));
            }
        }
        let (Some(credential), Some(signed), Some(signature)) = (credential, signed, signature) else {
            return Err(SignatureError::Malformed("Authorization lacks a field"));
        };
        let date =
            only(head.headers, "x-amz-date").ok_or(SignatureError::Malformed("x-amz-date is missing"))?;
        let sha256 = only(head.headers, "x-amz-content-sha256");
        let sha256 = sha256.ok_or(SignatureError::Malformed("x-amz-content-sha256 is missing"))?;
        SignatureClaim::new((credential, signed, signature), date, sha256, None)
    }

    fn of_query(head: &RequestHead<'_>, query: &Query) -> Result<SignatureClaim, SignatureError> {
        let get =
            |name| query.get(name).flatten().ok_or(SignatureError::Malformed("a parameter of the signature"));
        if get("X-Amz-Algorithm")? != ALGORITHM {
            return Err(SignatureError::Malformed("X-Amz-Algorithm is not AWS4-HMAC-SHA256"));
        }
        let fields = (get("X-Amz-Credential")?, get("X-Amz-SignedHeaders")?, get("X-Amz-Signature")?);
        let expires: u64 = get("X-Amz-Expires")?
            .parse()
            .map_err(|_| SignatureError::Malformed("X-Amz-Expires is no number"))?;
        if !(1..=PRESIGNED_SECONDS_MAX).contains(&expires) {
            return Err(SignatureError::Malformed("X-Amz-Expires is not between 1 and 604800 seconds"));
        }
        // The hash is signed where it is sent: in the query, else in a header, else the body is not signed.
        let sha256 = match query.get("X-Amz-Content-Sha256") {
            Some(value) => value.ok_or(SignatureError::UnknownPayload)?,
            None if head.headers.contains_key("x-amz-content-sha256") => {
                only(head.headers, "x-amz-content-sha256").ok_or(SignatureError::UnknownPayload)?
            }
            None => "UNSIGNED-PAYLOAD",
        };
        SignatureClaim::new(fields, get("X-Amz-Date")?, sha256, Some(expires))
    }

    fn new(
        (credential, signed, signature): (&str, &str, &str),
        date: &str,
        content_sha256: &str,
        expires: Option<u64>,
    ) -> Result<SignatureClaim, SignatureError> {
        let (key_id, scope) = CredentialScope::of_credential(credential)
            .ok_or(SignatureError::Malformed("the credential is no scope"))?;
        let date = AmzDate::parse(date).ok_or(SignatureError::Malformed("the date is none"))?;
        let signed_headers: Vec<String> = signed.split(';').map(str::to_owned).collect();
        let in_order = signed_headers.windows(2).all(|pair| pair[0] < pair[1]);
        let lower = signed_headers.iter().all(|name| !name.bytes().any(|byte| byte.is_ascii_uppercase()));
        if !in_order || !lower || signed_headers.len() > SIGNED_HEADERS_MAX {
            return Err(SignatureError::Malformed("the signed headers are not sorted, or too many"));
        }
        if signature.len() != 64 {
            return Err(SignatureError::WrongSignature);
        }
        Ok(SignatureClaim {
            key_id,
            scope,
            date,
            signed_headers,
            signature: signature.to_owned(),
            content_sha256: content_sha256.to_owned(),
            expires,
        })
    }

    pub fn demand_time(&self, now: i64) -> Result<(), SignatureError> {
        let age = now - self.date.seconds();
        match self.expires {
            None if age.abs() > SKEW_SECONDS => Err(SignatureError::Skewed),
            Some(_) if age < -SKEW_SECONDS => Err(SignatureError::Skewed),
            Some(expires) if age > i64::try_from(expires).unwrap_or(i64::MAX) => Err(SignatureError::Expired),
            _ => Ok(()),
        }
    }

    /// Whether a signed header has a tab, which signers fold in two ways.
    pub fn has_tab(&self, head: &RequestHead<'_>) -> bool {
        let values = self.signed_headers.iter().flat_map(|name| head.headers.get_all(name.as_str()));
        values.into_iter().any(|value| value.as_bytes().contains(&b'\t'))
    }

    /// Whether it has a security token; clients without one may send it empty.
    pub fn has_token(&self, head: &RequestHead<'_>, query: &Query) -> bool {
        let by_header = head.headers.get_all("x-amz-security-token").iter().any(|value| !value.is_empty());
        by_header || query.0.iter().any(|(name, value)| name == b"X-Amz-Security-Token" && !value.is_empty())
    }

    /// Requires that the signature covers the host and all `x-amz-` headers.
    pub fn demand_covered(&self, head: &RequestHead<'_>) -> Result<(), SignatureError> {
        let covered = |name: &str| self.signed_headers.iter().any(|signed| signed == name);
        if !covered("host") {
            return Err(SignatureError::UnsignedHeader("host".to_owned()));
        }
        let amz = head.headers.keys().map(http::HeaderName::as_str).filter(|name| name.starts_with("x-amz-"));
        for name in amz {
            if !covered(name) {
                return Err(SignatureError::UnsignedHeader(name.to_owned()));
            }
        }
        Ok(())
    }
}

fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    value.to_str().ok()
}
