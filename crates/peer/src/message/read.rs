//! READ: bytes of one version of a file.

use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode, header, request, response};
use types::{BLOCK_SIZE, ByteRange, Distance, FileId, JunctionId, Result, Version};

use super::fields::{self, wrong};
use super::told_copies::ToldCopies;

/// The most bytes of one READ.
pub const READ_MAX: u64 = 4 << 20;
/// The longest file, 1 PiB: what is longer is a mistake.
pub const FILE_BYTES_MAX: u64 = 1 << 50;
/// The longest reference of an origin (`origin::REFERENCE_MAX`), and 16 bytes that a cluster puts in front of it.
pub const REFERENCE_MAX: usize = 4 * 4096 + 64 + 16;
/// How often a READ is handed on: nodes whose maps differ make no circle.
pub const HOPS_MAX: u8 = 2;

/// As what the other node is asked. It decides which budget the bytes count in, and whom it may ask in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadRole {
    /// One of the nodes that keep the stripe, or, when none of them can be asked, one of the two ranks after them. It may ask the
    /// ranks before it.
    Rank,
    /// The one node that asks the far origin.
    Primary,
    /// A node that may have the bytes from before the map changed, or from when it stood in for another one. It asks nobody,
    /// and says `NotFound` if it does not have them all.
    Holder,
}

/// Who waits for the bytes. A READ as holder with `Warm` is for a copy, and is served at the repair rate; else it changes nothing for
/// now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadUrgency {
    /// A client.
    Demand,
    /// Nobody yet: read-ahead.
    Ahead,
    /// A copy that is being made, or an operator who warms the cache.
    Warm,
}

/// Where the bytes of an answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServedFrom {
    /// The answering node had them.
    Hit,
    /// It fetched them from another node.
    Filled,
    /// It asked the far origin.
    Origin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    pub file: FileId,
    pub version: Version,
    /// The file's size in this version.
    pub size: u64,
    /// Whole blocks, [`READ_MAX`] bytes at most; the last block of the file may be short.
    pub range: ByteRange,
    pub junction: JunctionId,
    /// How the origin addresses the file; opaque.
    pub reference: Bytes,
    pub role: ReadRole,
    /// How many nodes have handed the request on already.
    pub hops: u8,
    pub urgency: ReadUrgency,
    /// The number of the map that the asking node goes by.
    pub map: u64,
    /// `None`: the junction has no rules, or the asking node does not know which one is about the file.
    pub copies: Option<ToldCopies>,
}

/// What stands before the bytes of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadHead {
    /// One for each block of the range ([`super::checksum::block_checksum`]).
    pub checksums: Vec<u32>,
    pub served_from: ServedFrom,
    /// How far the far origin is, if the answering node knows.
    pub distance: Option<Distance>,
    /// The number of the map that the answering node goes by.
    pub map: u64,
    pub hot: Option<HotStripe>,
}

/// The stripe is read so much that reads of it are spread over this many of its ranks, for so long from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotStripe {
    pub ranks: u8,
    pub lasts: Duration,
}

/// The names of a choice on the wire.
macro_rules! named {
    ($type:ty, $($value:path => $name:literal),+) => {
        impl $type {
            pub fn name(self) -> &'static str {
                match self { $($value => $name),+ }
            }

            fn from_name(name: &str) -> Result<$type> {
                match name { $($name => Ok($value),)+ _ => Err(wrong(format!("{name:.20?} is not known here"))) }
            }
        }
    };
}

named!(ReadRole, ReadRole::Rank => "rank", ReadRole::Primary => "primary", ReadRole::Holder => "holder");
named!(ReadUrgency, ReadUrgency::Demand => "demand", ReadUrgency::Ahead => "ahead", ReadUrgency::Warm => "warm");
named!(ServedFrom, ServedFrom::Hit => "hit", ServedFrom::Filled => "filled", ServedFrom::Origin => "origin");

impl ReadRequest {
    /// Refuses what no READ can be.
    pub fn check(&self) -> Result<()> {
        let (range, end) = (self.range, self.range.end());
        if range.is_empty() || range.length > READ_MAX {
            return Err(wrong(format!("{} bytes; a READ is of 1 to {READ_MAX}", range.length)));
        }
        let is_whole = range.offset % BLOCK_SIZE == 0 && (end % BLOCK_SIZE == 0 || end == self.size);
        if !is_whole || end > self.size {
            let (first, size) = (range.offset, self.size);
            return Err(wrong(format!("{first}-{end} are not whole blocks of a file of {size} bytes")));
        }
        if self.size > FILE_BYTES_MAX {
            return Err(wrong(format!("a file of {} bytes; {FILE_BYTES_MAX} are the most", self.size)));
        }
        if self.reference.len() > REFERENCE_MAX {
            return Err(wrong(format!("a reference of {} bytes", self.reference.len())));
        }
        if self.copies.is_some_and(|told| !told.is_legal()) {
            return Err(wrong("a rule that asks for no copies"));
        }
        if self.hops > HOPS_MAX {
            return Err(wrong(format!("it was handed on {} times; the maps of the nodes differ", self.hops)));
        }
        Ok(())
    }

    pub(super) fn encode(&self, request: request::Builder) -> Result<request::Builder> {
        self.check()?;
        let (first, last) = (self.range.offset, self.range.end() - 1);
        let request = request
            .method(Method::GET)
            .uri(format!("/v1/bytes/{}/{}", self.file, self.version))
            .header(header::RANGE, format!("bytes={first}-{last}"))
            .header(fields::SIZE, self.size)
            .header(fields::JUNCTION, self.junction.0)
            .header(fields::REFERENCE, fields::base64(&self.reference))
            .header(fields::ROLE, self.role.name())
            .header(fields::HOPS, u16::from(self.hops))
            .header(fields::URGENCY, self.urgency.name())
            .header(fields::MAP, self.map);
        Ok(match &self.copies {
            None => request,
            Some(told) => request.header(fields::COPIES, told.write()),
        })
    }

    pub(super) fn decode(parts: &Parts) -> Result<ReadRequest> {
        let headers = &parts.headers;
        let (file, version) = fields::file_and_version(parts.uri.path(), "bytes")?;
        let range = fields::text(headers, header::RANGE)?.strip_prefix("bytes=");
        let range = range.and_then(fields::first_to_last).ok_or_else(|| wrong("Range is not bytes=a-b"))?;
        let junction = u32::try_from(fields::number(headers, fields::JUNCTION)?);
        let hops = u8::try_from(fields::number(headers, fields::HOPS)?);
        let reference = fields::from_base64(fields::text(headers, fields::REFERENCE)?, REFERENCE_MAX);
        let copies = match headers.contains_key(fields::COPIES) {
            true => Some(copies_in(fields::text(headers, fields::COPIES)?)?),
            false => None,
        };
        let request = ReadRequest {
            file,
            version,
            size: fields::number(headers, fields::SIZE)?,
            range: from_first_to_last(range),
            junction: JunctionId(junction.map_err(|_| wrong("no junction has this number"))?),
            reference: reference.ok_or_else(|| wrong("the reference is no base64, or too long"))?,
            role: ReadRole::from_name(fields::text(headers, fields::ROLE)?)?,
            hops: hops.unwrap_or(u8::MAX),
            urgency: ReadUrgency::from_name(fields::text(headers, fields::URGENCY)?)?,
            map: fields::number(headers, fields::MAP)?,
            copies,
        };
        request.check()?;
        Ok(request)
    }
}

/// The end is one behind the last; of a range up to 2^64 - 1 it saturates, and is refused as longer than any READ or
/// file.
fn from_first_to_last((first, last): (u64, u64)) -> ByteRange {
    ByteRange::new(first, (last - first).saturating_add(1))
}

impl ReadHead {
    pub fn encode(&self, request: &ReadRequest) -> response::Builder {
        let (first, last) = (request.range.offset, request.range.end().saturating_sub(1));
        let mut sums = String::with_capacity(self.checksums.len() * 8);
        self.checksums.iter().for_each(|sum| sums.push_str(&format!("{sum:08x}")));
        let answer = Response::builder()
            .status(StatusCode::PARTIAL_CONTENT)
            .header(header::CONTENT_TYPE, "application/octet-stream")
            .header(header::CONTENT_RANGE, format!("bytes {first}-{last}/{}", request.size))
            .header(fields::CHECKSUMS, sums)
            .header(fields::SERVED_FROM, self.served_from.name())
            .header(fields::MAP, self.map);
        let answer = match self.distance {
            None => answer,
            Some(far) => {
                let latency = u64::try_from(far.latency.as_micros()).unwrap_or(u64::MAX);
                answer.header(fields::DISTANCE, format!("{latency}/{}", far.rate))
            }
        };
        match self.hot {
            None => answer,
            Some(hot) => {
                let lasts = u64::try_from(hot.lasts.as_millis()).unwrap_or(u64::MAX);
                answer.header(fields::HOT, format!("{}/{lasts}", hot.ranks))
            }
        }
    }

    /// Reads the head of an answer with status 206 to `request`; its body must be as long as the range.
    pub fn decode(request: &ReadRequest, headers: &HeaderMap) -> Result<ReadHead> {
        let (range, size) = (request.range, request.size);
        let told = fields::text(headers, header::CONTENT_RANGE)?.strip_prefix("bytes ");
        let told = told.and_then(|told| {
            let (told, size) = told.split_once('/')?;
            Some((from_first_to_last(fields::first_to_last(told)?), fields::digits(size)?))
        });
        if told != Some((range, size)) {
            return Err(wrong("the answer is about other bytes than were asked for"));
        }
        if fields::number(headers, header::CONTENT_LENGTH)? != range.length {
            return Err(wrong("the answer's length is not that of the range"));
        }
        let blocks = range.blocks().count();
        let sums = checksums_in(fields::text(headers, fields::CHECKSUMS)?, blocks);
        let distance = match headers.contains_key(fields::DISTANCE) {
            true => Some(distance_in(fields::text(headers, fields::DISTANCE)?)?),
            false => None,
        };
        let hot = match headers.contains_key(fields::HOT) {
            true => Some(hot_in(fields::text(headers, fields::HOT)?)?),
            false => None,
        };
        Ok(ReadHead {
            checksums: sums.ok_or_else(|| wrong(format!("there are not checksums of {blocks} blocks")))?,
            served_from: ServedFrom::from_name(fields::text(headers, fields::SERVED_FROM)?)?,
            distance,
            map: fields::number(headers, fields::MAP)?,
            hot,
        })
    }
}

fn copies_in(text: &str) -> Result<ToldCopies> {
    ToldCopies::read(text).ok_or_else(|| wrong("the copies are not <copies>/<revision of the rules>"))
}

/// Eight hexadecimal digits for each of so many blocks.
fn checksums_in(text: &str, blocks: usize) -> Option<Vec<u32>> {
    if text.len() != 8 * blocks || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let sum = |digits: &[u8]| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    text.as_bytes().chunks_exact(8).map(sum).collect()
}

/// `<ranks>/<milliseconds>`
fn hot_in(text: &str) -> Result<HotStripe> {
    let found = text.split_once('/').and_then(|(ranks, lasts)| {
        let ranks = u8::try_from(fields::digits(ranks)?).ok()?;
        Some(HotStripe { ranks, lasts: Duration::from_millis(fields::digits(lasts)?) })
    });
    found.ok_or_else(|| wrong("what is hot is not <ranks>/<milliseconds>"))
}

/// `<microseconds>/<bytes per second>`
fn distance_in(text: &str) -> Result<Distance> {
    let found = text.split_once('/').and_then(|(latency, rate)| {
        Some(Distance {
            latency: Duration::from_micros(fields::digits(latency)?),
            rate: fields::digits(rate)?,
        })
    });
    found.ok_or_else(|| wrong("the distance is not <microseconds>/<bytes per second>"))
}
