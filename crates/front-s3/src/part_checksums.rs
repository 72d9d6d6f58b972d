//! The checksum of a multipart object, combined from those of its parts. Pure.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use crc_fast::{CrcAlgorithm, checksum_combine};
use s3s::crypto::{Checksum, Crc32, Crc32c, Crc64Nvme, Sha1, Sha256};

/// The algorithms that S3 combines over parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
}

const ALL: [(Algorithm, &str, &str); 5] = [
    (Algorithm::Crc32, "CRC32", "x-amz-checksum-crc32"),
    (Algorithm::Crc32c, "CRC32C", "x-amz-checksum-crc32c"),
    (Algorithm::Crc64Nvme, "CRC64NVME", "x-amz-checksum-crc64nvme"),
    (Algorithm::Sha1, "SHA1", "x-amz-checksum-sha1"),
    (Algorithm::Sha256, "SHA256", "x-amz-checksum-sha256"),
];

impl Algorithm {
    pub fn parse(name: &str) -> Option<Algorithm> {
        ALL.iter().find(|(_, known, _)| known.eq_ignore_ascii_case(name)).map(|(algorithm, ..)| *algorithm)
    }

    pub fn of_header(header: &str) -> Option<Algorithm> {
        ALL.iter().find(|(.., known)| *known == header).map(|(algorithm, ..)| *algorithm)
    }

    /// S3's name of the algorithm.
    pub fn name(self) -> &'static str {
        self.entry().1
    }

    pub fn header(self) -> &'static str {
        self.entry().2
    }

    fn entry(self) -> (Algorithm, &'static str, &'static str) {
        ALL[self as usize]
    }

    fn bytes(self) -> usize {
        match self {
            Algorithm::Crc32 | Algorithm::Crc32c => 4,
            Algorithm::Crc64Nvme => 8,
            Algorithm::Sha1 => 20,
            Algorithm::Sha256 => 32,
        }
    }

    /// The checksum of these bytes.
    fn sum(self, data: &[u8]) -> Vec<u8> {
        fn of<C: Checksum>(data: &[u8]) -> Vec<u8>
        where
            C::Output: AsRef<[u8]>,
        {
            let mut sum = C::new();
            sum.update(data);
            sum.finalize().as_ref().to_vec()
        }
        match self {
            Algorithm::Crc32 => of::<Crc32>(data),
            Algorithm::Crc32c => of::<Crc32c>(data),
            Algorithm::Crc64Nvme => of::<Crc64Nvme>(data),
            Algorithm::Sha1 => of::<Sha1>(data),
            Algorithm::Sha256 => of::<Sha256>(data),
        }
    }

    fn crc(self) -> Option<CrcAlgorithm> {
        match self {
            Algorithm::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
            Algorithm::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
            Algorithm::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
            Algorithm::Sha1 | Algorithm::Sha256 => None,
        }
    }
}

/// What an object's checksum is computed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumKind {
    /// Over the checksums of the parts.
    Composite,
    /// Over the bytes.
    FullObject,
}

impl ChecksumKind {
    pub fn name(self) -> &'static str {
        match self {
            ChecksumKind::Composite => "COMPOSITE",
            ChecksumKind::FullObject => "FULL_OBJECT",
        }
    }
}

/// The checksum that a multipart upload asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadChecksum {
    pub algorithm: Algorithm,
    pub kind: ChecksumKind,
}

impl UploadChecksum {
    /// Applies S3's defaults. The error names the combination that does not exist.
    pub fn new(algorithm: Algorithm, kind: Option<&str>) -> Result<UploadChecksum, &'static str> {
        let kind = match kind {
            None if algorithm == Algorithm::Crc64Nvme => ChecksumKind::FullObject,
            None | Some("COMPOSITE") => ChecksumKind::Composite,
            Some("FULL_OBJECT") => ChecksumKind::FullObject,
            Some(_) => return Err("x-amz-checksum-type is COMPOSITE or FULL_OBJECT"),
        };
        match (kind, algorithm) {
            (ChecksumKind::FullObject, _) if algorithm.crc().is_none() => {
                Err("of SHA-1 and SHA-256 there is no FULL_OBJECT checksum of an upload in parts")
            }
            (ChecksumKind::Composite, Algorithm::Crc64Nvme) => {
                Err("of CRC64NVME there is no COMPOSITE checksum")
            }
            _ => Ok(UploadChecksum { algorithm, kind }),
        }
    }

    /// The object's checksum in base64. `None` if a part has none of this algorithm.
    pub fn of_parts<'a>(
        self,
        parts: impl Iterator<Item = (Option<&'a PartChecksum>, u64)>,
    ) -> Option<String> {
        let own = |sum: Option<&'a PartChecksum>| {
            sum.filter(|sum| sum.algorithm == self.algorithm).map(|sum| sum.value.as_slice())
        };
        match self.kind {
            ChecksumKind::Composite => {
                let (mut all, mut count) = (Vec::new(), 0);
                for (sum, _) in parts {
                    all.extend_from_slice(own(sum)?);
                    count += 1;
                }
                Some(format!("{}-{count}", BASE64_STANDARD.encode(self.algorithm.sum(&all))))
            }
            ChecksumKind::FullObject => {
                let crc = self.algorithm.crc()?;
                let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
                let mut whole = None;
                for (sum, size) in parts {
                    let part = number(own(sum)?);
                    whole = Some(whole.map_or(part, |before| checksum_combine(crc, before, part, size)));
                }
                let bytes = whole?.to_be_bytes();
                Some(BASE64_STANDARD.encode(&bytes[bytes.len() - self.algorithm.bytes()..]))
            }
        }
    }
}

/// The checksum of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartChecksum {
    pub algorithm: Algorithm,
    pub value: Vec<u8>,
}

impl PartChecksum {
    pub fn new(algorithm: Algorithm, value: Vec<u8>) -> Option<PartChecksum> {
        (value.len() == algorithm.bytes()).then_some(PartChecksum { algorithm, value })
    }

    /// The checksum to store of those computed: the upload's, else the first.
    pub fn of(headers: &[(String, String)], wanted: Option<Algorithm>) -> Option<PartChecksum> {
        let mut known = headers.iter().filter_map(|(name, value)| {
            PartChecksum::new(Algorithm::of_header(name)?, BASE64_STANDARD.decode(value).ok()?)
        });
        match wanted {
            Some(wanted) => known.find(|sum| sum.algorithm == wanted),
            None => known.next(),
        }
    }

    pub fn base64(&self) -> String {
        BASE64_STANDARD.encode(&self.value)
    }
}

/// Checksums as the fields of the protocol crate's structs.
#[derive(Clone, Debug, Default)]
pub struct ChecksumFields {
    pub crc32: Option<String>,
    pub crc32c: Option<String>,
    pub crc64nvme: Option<String>,
    pub sha1: Option<String>,
    pub sha256: Option<String>,
}

impl ChecksumFields {
    pub fn of(algorithm: Algorithm, value: String) -> ChecksumFields {
        let mut fields = ChecksumFields::default();
        fields.put(algorithm, value);
        fields
    }

    pub fn put(&mut self, algorithm: Algorithm, value: String) {
        let field = match algorithm {
            Algorithm::Crc32 => &mut self.crc32,
            Algorithm::Crc32c => &mut self.crc32c,
            Algorithm::Crc64Nvme => &mut self.crc64nvme,
            Algorithm::Sha1 => &mut self.sha1,
            Algorithm::Sha256 => &mut self.sha256,
        };
        *field = Some(value);
    }

    pub fn of_headers(headers: &[(String, String)]) -> ChecksumFields {
        let mut fields = ChecksumFields::default();
        for (name, value) in headers {
            if let Some(algorithm) = Algorithm::of_header(name) {
                fields.put(algorithm, value.clone());
            }
        }
        fields
    }

    /// The fields that are set.
    pub fn all(&self) -> impl Iterator<Item = (Algorithm, &str)> {
        let fields = [&self.crc32, &self.crc32c, &self.crc64nvme, &self.sha1, &self.sha256];
        ALL.iter().zip(fields).filter_map(|((algorithm, ..), field)| Some((*algorithm, field.as_deref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: [&[u8]; 3] = [b"hello ", b"", b"world"];

    fn sums(algorithm: Algorithm) -> Vec<(PartChecksum, u64)> {
        let sum = |part: &&[u8]| (PartChecksum { algorithm, value: algorithm.sum(part) }, part.len() as u64);
        PARTS.iter().map(sum).collect()
    }

    fn of(algorithm: Algorithm, kind: &str) -> Option<String> {
        let checksum = UploadChecksum::new(algorithm, Some(kind)).expect("can be");
        checksum.of_parts(sums(algorithm).iter().map(|(sum, size)| (Some(sum), *size)))
    }

    #[test]
    fn a_full_object_crc_is_that_of_the_bytes() {
        for algorithm in [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme] {
            let whole = BASE64_STANDARD.encode(algorithm.sum(b"hello world"));
            assert_eq!(of(algorithm, "FULL_OBJECT"), Some(whole), "{algorithm:?}");
        }
        assert_eq!(of(Algorithm::Crc32, "FULL_OBJECT").as_deref(), Some("DUoRhQ=="), "a known value");
    }

    #[test]
    fn a_composite_sum_is_that_of_the_sums_and_says_how_many() {
        for algorithm in [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Sha1, Algorithm::Sha256] {
            let all: Vec<u8> = PARTS.iter().flat_map(|part| algorithm.sum(part)).collect();
            let expected = format!("{}-3", BASE64_STANDARD.encode(algorithm.sum(&all)));
            assert_eq!(of(algorithm, "COMPOSITE"), Some(expected), "{algorithm:?}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_and_what_is_not_known_is_not_told() {
        assert!(UploadChecksum::new(Algorithm::Sha256, Some("FULL_OBJECT")).is_err());
        assert!(UploadChecksum::new(Algorithm::Crc64Nvme, Some("COMPOSITE")).is_err());
        assert!(UploadChecksum::new(Algorithm::Crc32, Some("WHATEVER")).is_err());
        assert_eq!(
            UploadChecksum::new(Algorithm::Crc64Nvme, None).expect("can be").kind,
            ChecksumKind::FullObject
        );
        let checksum = UploadChecksum::new(Algorithm::Crc32, None).expect("can be");
        assert_eq!(checksum.of_parts([(None, 5)].into_iter()), None);
        let other = PartChecksum { algorithm: Algorithm::Crc32c, value: vec![0; 4] };
        assert_eq!(checksum.of_parts([(Some(&other), 5)].into_iter()), None);
    }
}
