//! Checksums that clients send with a body, besides the signature: `Content-MD5` and those of the SDKs.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use md5::{Digest, Md5};
use s3s::crypto::{self, Checksum, Crc32, Crc32c, Crc64Nvme, Sha1, Sha256};
use s3s::{S3Error, S3ErrorCode};

use crate::checked_body::Trailer;
use crate::errors::{self, S3Result};
use crate::metadata_store::Headers;
use crate::part_checksums::Algorithm;

/// The checksums of one body, computed while its bytes pass.
pub struct BodyChecksums {
    md5: Md5,
    expected_md5: Option<String>,
    expected: Vec<ExpectedChecksum>,
    trailer: Trailer,
}

struct ExpectedChecksum {
    /// The name of the header or of the trailer line.
    name: String,
    /// In base64. `None`: the trailer will bring it, or (`is_own`) nobody will.
    value: Option<String>,
    /// Computed for ourselves, to be combined into the checksum of the multipart object; the client need not send
    /// it.
    is_own: bool,
    hasher: Box<dyn ChecksumHasher>,
}

/// The checksums of a whole body that matched those that the client sent.
pub struct ComputedChecksums {
    pub md5: [u8; 16],
    /// The checksum headers to store and to return, one for each algorithm that the client used.
    pub checksums: Headers,
}

impl ComputedChecksums {
    pub fn headers(&self) -> HeaderMap {
        let pairs = self.checksums.iter().filter_map(|(name, value)| {
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
        });
        pairs.collect()
    }
}

impl BodyChecksums {
    /// For a body of which only `Content-MD5` is checked; other checksum headers describe something else.
    pub fn of_md5_alone(headers: &HeaderMap) -> S3Result<BodyChecksums> {
        let expected_md5 = text(headers, "content-md5")?.map(str::to_owned);
        Ok(BodyChecksums { md5: Md5::new(), expected_md5, expected: Vec::new(), trailer: Trailer::default() })
    }

    /// Takes the expected checksums from the headers. One that cannot be computed is refused, so that no client
    /// takes it for checked.
    pub fn new(headers: &HeaderMap, trailer: Trailer) -> S3Result<BodyChecksums> {
        let announced = text(headers, "x-amz-trailer")?.unwrap_or_default().to_ascii_lowercase();
        let announced = announced.split(',').map(str::trim);
        let names = headers.keys().map(HeaderName::as_str).chain(announced);
        let mut expected: Vec<ExpectedChecksum> = Vec::new();
        for name in names.filter(|name| is_checksum(name)) {
            if expected.iter().any(|known| known.name == name) {
                continue;
            }
            let hasher = hasher(name).ok_or_else(|| errors::header_not_offered(name))?;
            let value = text(headers, name)?.map(str::to_owned);
            expected.push(ExpectedChecksum { name: name.to_owned(), value, is_own: false, hasher });
        }
        Ok(BodyChecksums { expected, trailer, ..BodyChecksums::of_md5_alone(headers)? })
    }

    /// Computes this algorithm, too, whether the client sends its value or not.
    pub fn with(mut self, algorithm: Option<Algorithm>) -> BodyChecksums {
        if let Some(name) = algorithm.map(Algorithm::header)
            && !self.expected.iter().any(|known| known.name == name)
            && let Some(hasher) = hasher(name)
        {
            self.expected.push(ExpectedChecksum { name: name.to_owned(), value: None, is_own: true, hasher });
        }
        self
    }

    pub fn update(&mut self, data: &Bytes) {
        self.md5.update(data);
        self.expected.iter_mut().for_each(|expected| expected.hasher.update(data));
    }

    /// Compares the checksums after the end of the body.
    pub fn check(self) -> S3Result<ComputedChecksums> {
        let md5: [u8; 16] = self.md5.finalize().into();
        if let Some(expected) = &self.expected_md5 {
            if expected.len() != 24 {
                return Err(S3ErrorCode::InvalidDigest.into());
            }
            if *expected != BASE64_STANDARD.encode(md5) {
                return Err(S3ErrorCode::BadDigest.into());
            }
        }
        let mut checksums = Headers::new();
        for ExpectedChecksum { name, value, is_own, hasher } in self.expected {
            let expected = value.or_else(|| self.trailer.get(&name));
            if expected.is_none() && !is_own {
                return Err(S3Error::with_message(
                    S3ErrorCode::InvalidRequest,
                    "the trailer lacks the checksum that x-amz-trailer announced",
                ));
            }
            let computed = hasher.finish();
            if expected.is_some_and(|expected| expected != computed) {
                let message = format!("the {name} that was sent with the body is not of it");
                return Err(S3Error::with_message(S3ErrorCode::BadDigest, message));
            }
            checksums.push((name, computed));
        }
        let is_checked = |name: &str| checksums.iter().any(|(known, _)| known == name);
        if self.trailer.has(|name| is_checksum(name) && !is_checked(name)) {
            let message = "the trailer has a checksum that x-amz-trailer did not announce";
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, message));
        }
        Ok(ComputedChecksums { md5, checksums })
    }
}

/// Whether this header is a checksum, of any algorithm.
pub fn is_checksum(header: &str) -> bool {
    let kind = header.strip_prefix("x-amz-checksum-");
    kind.is_some_and(|kind| !["algorithm", "mode", "type"].contains(&kind))
}

/// All algorithms of the SDKs but XXHash, which needs a package of its own and which no SDK uses by default.
fn hasher(header: &str) -> Option<Box<dyn ChecksumHasher>> {
    Some(match header.strip_prefix("x-amz-checksum-")? {
        "crc32" => Box::new(Crc32::new()),
        "crc32c" => Box::new(Crc32c::new()),
        "crc64nvme" => Box::new(Crc64Nvme::new()),
        "md5" => Box::new(crypto::Md5::new()),
        "sha1" => Box::new(Sha1::new()),
        "sha256" => Box::new(Sha256::new()),
        "sha512" => Box::new(Sha512::new()),
        _ => return None,
    })
}

trait ChecksumHasher: Send {
    fn update(&mut self, data: &[u8]);
    /// In base64.
    fn finish(self: Box<Self>) -> String;
}

impl<T: Checksum + Send> ChecksumHasher for T {
    fn update(&mut self, data: &[u8]) {
        Checksum::update(self, data);
    }

    fn finish(self: Box<Self>) -> String {
        BASE64_STANDARD.encode(self.finalize().as_ref())
    }
}

/// SHA-512, which the protocol crate lacks.
struct Sha512(sha2::Sha512);

impl Checksum for Sha512 {
    type Output = [u8; 64];

    fn new() -> Sha512 {
        Sha512(Digest::new())
    }

    fn update(&mut self, data: &[u8]) {
        Digest::update(&mut self.0, data);
    }

    fn finalize(self) -> [u8; 64] {
        Digest::finalize(self.0).into()
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> S3Result<Option<&'a str>> {
    let value = headers.get(name).map(|value| value.to_str());
    value.transpose().map_err(|_| S3ErrorCode::InvalidDigest.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_rfc_4648() {
        for (plain, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(BASE64_STANDARD.encode(plain.as_bytes()), text);
            assert_eq!(BASE64_STANDARD.decode(text).as_deref(), Ok(plain.as_bytes()));
        }
        for text in ["Zg=", "Zg", "Z===", "====", "Zh==", "Zm9v=", "Zg==Zg==", "Z g=", "\u{e4}"] {
            assert!(BASE64_STANDARD.decode(text).is_err(), "{text}");
        }
    }

    #[test]
    fn each_checksum_is_checked_in_header_and_trailer() {
        let right = [
            ("content-md5", "XrY7u+Ae7tCTyyK7j1rNww=="),
            ("x-amz-checksum-crc32", "DUoRhQ=="),
            ("x-amz-checksum-crc32c", "yZRlqg=="),
            ("x-amz-checksum-crc64nvme", "jSnVw/bqjr4="),
            ("x-amz-checksum-md5", "XrY7u+Ae7tCTyyK7j1rNww=="),
            ("x-amz-checksum-sha1", "Kq5sNclPz7QV2+lfQIuc6R7oRu0="),
            ("x-amz-checksum-sha256", "uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek="),
            (
                "x-amz-checksum-sha512",
                "MJ7MSJwS1utMxA9QyQLytNDtd+5RGnx6m808qG1M2G+YndNbxf9JlnDaNCVbRbDP2DDoH2Bdz33FVC6TrpzXbw==",
            ),
        ];
        for (name, value) in right {
            let check = |value: &str, body: &'static [u8]| {
                let name: http::HeaderName = name.parse().expect("a name");
                let headers = HeaderMap::from_iter([(name, value.parse().expect("a value"))]);
                let mut sums = BodyChecksums::new(&headers, Trailer::default()).expect("understood");
                sums.update(&Bytes::from_static(body));
                sums.check()
            };
            assert!(check(value, b"hello world").is_ok(), "{name}");
            assert!(check(value, b"hello worlD").is_err(), "{name}");
            assert!(check("AAAAAA==", b"hello world").is_err(), "{name}");
        }
    }
}
