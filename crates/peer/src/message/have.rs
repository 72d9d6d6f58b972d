//! HAVE: which stripes of a version of a file a node holds, and whether it would keep more of them.

use bytes::Bytes;
use http::request::Parts;
use http::{Method, request};
use serde::{Deserialize, Serialize};
use types::{FileId, JunctionId, Result, Version};

use super::fields::{self, wrong};
use super::stripe_blocks::StripeBlocks;

/// The most stripes of one question: 1 TiB in stripes of 64 MiB.
pub const HAVE_STRIPES_MAX: u64 = 16_384;
/// A question about more stripes than this is answered without their blocks.
pub const HAVE_BLOCKS_MAX: u64 = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HaveRequest {
    pub file: FileId,
    pub version: Version,
    /// The file's size in this version.
    pub size: u64,
    /// The junction that the file is of, which an id does not tell. `None`: the calling node's build does not say.
    pub junction: Option<JunctionId>,
    /// The first stripe that is asked about.
    pub first: u64,
    pub stripes: u64,
}

/// What a node has of other versions of the file than the one that it is asked about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OtherVersion {
    #[default]
    None,
    /// It holds some of another version, which nobody has asked it for since it was started.
    Held,
    /// Another version was asked for there since it was started.
    Read,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HaveAnswer {
    /// The number of the map that the answering node goes by.
    pub map: u64,
    /// Of each stripe how many hundredths are there, rounded down.
    pub percent: Vec<u8>,
    /// Of each stripe which blocks are there; empty for a question about more than [`HAVE_BLOCKS_MAX`] stripes, and from a node that
    /// does not tell.
    #[serde(default)]
    pub blocks: Vec<StripeBlocks>,
    /// Whether the node has room for copies that it was not asked for by readers.
    #[serde(default)]
    pub has_room: bool,
    #[serde(default)]
    pub other: OtherVersion,
}

impl HaveRequest {
    fn check(&self) -> Result<()> {
        let is_good = (1..=HAVE_STRIPES_MAX).contains(&self.stripes);
        if is_good && self.first.checked_add(self.stripes).is_some() {
            return Ok(());
        }
        Err(wrong(format!("{} stripes; a question is about 1 to {HAVE_STRIPES_MAX}", self.stripes)))
    }

    pub(super) fn encode(&self, request: request::Builder) -> Result<request::Builder> {
        self.check()?;
        let last = self.first + self.stripes - 1;
        let request = match self.junction {
            Some(junction) => request.header(fields::JUNCTION, junction.0),
            None => request,
        };
        Ok(request
            .method(Method::GET)
            .uri(format!("/v1/have/{}/{}", self.file, self.version))
            .header(fields::SIZE, self.size)
            .header(fields::STRIPES, format!("{}-{last}", self.first)))
    }

    pub(super) fn decode(parts: &Parts) -> Result<HaveRequest> {
        let headers = &parts.headers;
        let (file, version) = fields::file_and_version(parts.uri.path(), "have")?;
        let stripes = fields::first_to_last(fields::text(headers, fields::STRIPES)?);
        let (first, last) = stripes.ok_or_else(|| wrong("the stripes are not a-b"))?;
        let size = fields::number(headers, fields::SIZE)?;
        let stripes = (last - first).saturating_add(1);
        let junction = match headers.contains_key(fields::JUNCTION) {
            true => {
                let number = u32::try_from(fields::number(headers, fields::JUNCTION)?);
                Some(JunctionId(number.map_err(|_| wrong("the junction's id is too large"))?))
            }
            false => None,
        };
        let request = HaveRequest { file, version, size, junction, first, stripes };
        request.check()?;
        Ok(request)
    }
}

impl HaveAnswer {
    fn check(&self, request: &HaveRequest) -> Result<()> {
        let is_whole = self.percent.len() as u64 == request.stripes;
        let blocks = self.blocks.len() as u64;
        let blocks_fit = blocks == 0 || (blocks == request.stripes && blocks <= HAVE_BLOCKS_MAX);
        if is_whole && blocks_fit && self.percent.iter().all(|percent| *percent <= 100) {
            return Ok(());
        }
        Err(wrong("the answer is not one percentage for each stripe that was asked about"))
    }

    pub fn encode(&self, request: &HaveRequest) -> Result<Bytes> {
        self.check(request)?;
        serde_json::to_vec(self).map(Bytes::from).map_err(wrong)
    }

    pub fn decode(request: &HaveRequest, body: &[u8]) -> Result<HaveAnswer> {
        let answer: HaveAnswer = serde_json::from_slice(body).map_err(wrong)?;
        answer.check(request)?;
        Ok(answer)
    }
}
