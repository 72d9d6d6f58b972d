//! What clients say of the bytes that they send, besides the signature: `Content-MD5` and the checksums of the SDKs.

use bytes::Bytes;
use http::HeaderMap;
use md5::{Digest, Md5};
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Sha1, Sha256};
use s3s::dto::Checksum;
use s3s::{S3Error, S3ErrorCode};

use crate::body::Trailer;
use crate::errors::Result;

const ALGORITHMS: [&str; 5] = ["crc32", "crc32c", "crc64nvme", "sha1", "sha256"];

/// Computed while the bytes pass.
pub struct Sums {
    md5: Md5,
    hasher: ChecksumHasher,
    expected_md5: Option<String>,
    /// Algorithm and base64; `None`: the trailer will say.
    expected: Vec<(&'static str, Option<String>)>,
    trailer: Trailer,
}

/// Of all the bytes, which are what the client said they would be.
pub struct Summed {
    pub md5: [u8; 16],
    /// Of the algorithms that the client used.
    pub checksum: Checksum,
}

impl Sums {
    /// Of a body of which nothing but `Content-MD5` is said: what else is in the headers is of something else.
    pub fn of_md5_alone(headers: &HeaderMap) -> Result<Sums> {
        let expected_md5 = text(headers, "content-md5")?.map(str::to_owned);
        Ok(Sums {
            md5: Md5::new(),
            hasher: ChecksumHasher::default(),
            expected_md5,
            expected: Vec::new(),
            trailer: Trailer::default(),
        })
    }

    pub fn new(headers: &HeaderMap, trailer: Trailer) -> Result<Sums> {
        let announced = text(headers, "x-amz-trailer")?.unwrap_or_default().to_ascii_lowercase();
        let mut hasher = ChecksumHasher::default();
        let mut expected = Vec::new();
        for algorithm in ALGORITHMS {
            let name = format!("x-amz-checksum-{algorithm}");
            let in_header = text(headers, &name)?.map(str::to_owned);
            if in_header.is_none() && !announced.split(',').any(|known| known.trim() == name) {
                continue;
            }
            expected.push((algorithm, in_header));
            match algorithm {
                "crc32" => hasher.crc32 = Some(Crc32::new()),
                "crc32c" => hasher.crc32c = Some(Crc32c::new()),
                "crc64nvme" => hasher.crc64nvme = Some(Crc64Nvme::new()),
                "sha1" => hasher.sha1 = Some(Sha1::new()),
                _ => hasher.sha256 = Some(Sha256::new()),
            }
        }
        Ok(Sums { hasher, expected, trailer, ..Sums::of_md5_alone(headers)? })
    }

    pub fn update(&mut self, data: &Bytes) {
        self.md5.update(data);
        self.hasher.update(data);
    }

    /// The body has come to its end.
    pub fn check(self) -> Result<Summed> {
        let md5: [u8; 16] = self.md5.finalize().into();
        if let Some(expected) = &self.expected_md5 {
            if expected.len() != 24 {
                return Err(S3ErrorCode::InvalidDigest.into());
            }
            if *expected != base64(&md5) {
                return Err(S3ErrorCode::BadDigest.into());
            }
        }
        let checksum = self.hasher.finalize();
        for (algorithm, in_header) in &self.expected {
            let expected =
                in_header.clone().or_else(|| self.trailer.get(&format!("x-amz-checksum-{algorithm}")));
            let Some(expected) = expected else {
                return Err(S3Error::with_message(
                    S3ErrorCode::InvalidRequest,
                    "the trailer lacks the checksum that x-amz-trailer announced",
                ));
            };
            if value(&checksum, algorithm) != Some(&expected) {
                let message = format!("the {algorithm} of the body is not the one that was sent with it");
                return Err(S3Error::with_message(S3ErrorCode::BadDigest, message));
            }
        }
        Ok(Summed { md5, checksum })
    }
}

/// Is the header of this name the checksum of something, by whatever algorithm?
pub fn is_checksum(header: &str) -> bool {
    let kind = header.strip_prefix("x-amz-checksum-");
    kind.is_some_and(|kind| !["algorithm", "mode", "type"].contains(&kind))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>> {
    let value = headers.get(name).map(|value| value.to_str());
    value.transpose().map_err(|_| S3ErrorCode::InvalidDigest.into())
}

fn value<'a>(checksum: &'a Checksum, algorithm: &str) -> Option<&'a String> {
    match algorithm {
        "crc32" => checksum.checksum_crc32.as_ref(),
        "crc32c" => checksum.checksum_crc32c.as_ref(),
        "crc64nvme" => checksum.checksum_crc64nvme.as_ref(),
        "sha1" => checksum.checksum_sha1.as_ref(),
        _ => checksum.checksum_sha256.as_ref(),
    }
}

/// As headers that are kept with the object.
pub fn headers_of(checksum: &Checksum) -> impl Iterator<Item = (String, String)> {
    ALGORITHMS.into_iter().filter_map(|algorithm| {
        value(checksum, algorithm).map(|value| (format!("x-amz-checksum-{algorithm}"), value.clone()))
    })
}

pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let word =
            part.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - part.len()));
        for digit in 0..4 {
            let index = (word >> (18 - 6 * digit)) & 63;
            text.push(if digit <= part.len() { char::from(DIGITS[index as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_rfc_4648() {
        for (plain, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(plain.as_bytes()), text);
        }
    }

    #[test]
    fn each_checksum_is_checked_in_header_and_trailer() {
        let right = [
            ("content-md5", "XrY7u+Ae7tCTyyK7j1rNww=="),
            ("x-amz-checksum-crc32", "DUoRhQ=="),
            ("x-amz-checksum-crc32c", "yZRlqg=="),
            ("x-amz-checksum-sha1", "Kq5sNclPz7QV2+lfQIuc6R7oRu0="),
            ("x-amz-checksum-sha256", "uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek="),
        ];
        for (name, value) in right {
            let check = |value: &str, body: &'static [u8]| {
                let name: http::HeaderName = name.parse().expect("a name");
                let headers = HeaderMap::from_iter([(name, value.parse().expect("a value"))]);
                let mut sums = Sums::new(&headers, Trailer::default()).expect("understood");
                sums.update(&Bytes::from_static(body));
                sums.check()
            };
            assert!(check(value, b"hello world").is_ok(), "{name}");
            assert!(check(value, b"hello worlD").is_err(), "{name}");
            assert!(check("AAAAAA==", b"hello world").is_err(), "{name}");
        }
    }
}
