//! The calls whose body is JSON. Fields that a later version adds are passed over.

use bytes::Bytes;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use types::{FileId, JunctionId, NodeId, Result, Version};

use super::SMALL_BODY_MAX;
use super::fields::{self, wrong};
use super::read::REFERENCE_MAX;
use super::told_copies::ToldCopies;

/// The longest name of a build.
pub const BUILD_MAX: usize = 64;
/// The most files of one notice.
pub const NOTICE_FILES_MAX: usize = 1024;
/// The most names of a path.
pub const PATH_NAMES_MAX: usize = 512;
/// The longest name of a path.
const NAME_MAX: usize = 255;
/// The most stripes of one feed.
pub const FEED_MAX: usize = 32;
/// The most blocks of one report: those of the largest READ.
pub const CORRUPT_BLOCKS_MAX: usize = 64;

/// PING and its answer: that a node is there, and as which.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    #[serde(with = "in_text")]
    pub node: NodeId,
    /// New at each start of the node.
    #[serde(with = "in_text")]
    pub incarnation: u64,
    /// The number of the map that the node goes by.
    pub map: u64,
    pub build: String,
    /// For operators, who ask any node.
    #[serde(default)]
    pub figures: NodeFigures,
}

/// What a node tells of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeFigures {
    /// Bytes in its cache, and those that it may have.
    pub cached: u64,
    pub cache_max: u64,
    /// Bytes that it has read from far origins since it was started.
    pub far_bytes: u64,
    /// Of the stripes that it counts: those that have had too few copies for so long that it is an alarm, what is to be copied of
    /// them, and for how many seconds that has been so.
    pub missing_stripes: u64,
    pub missing_bytes: u64,
    pub missing_seconds: u64,
    /// The number of the map by which it has last looked at all that it holds. 0: it has not since a node came, went or fell silent.
    pub counted_map: u64,
    /// What nodes of the map are to copy of the stripes that it counts.
    pub to_copy_bytes: u64,
}

/// PATH: by which names a file is reached. For a node that has a client with the file's handle and does not know the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRequest {
    #[serde(with = "in_text")]
    pub junction: JunctionId,
    #[serde(with = "in_text")]
    pub file: FileId,
}

/// The answer to PATH: the names from the root of the junction down to the file. A hint: who asked looks there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownPath {
    #[serde(with = "list_in_text")]
    pub names: Vec<Bytes>,
}

/// NOTICE: these files changed. Best effort: who does not hear of it goes by the junction's ttl.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeNotice {
    #[serde(with = "list_in_text")]
    pub files: Vec<FileId>,
}

/// FEED: stripes of which the calling node holds more than the called one, which keeps them too and pulls what it lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedNotice {
    pub filled: Vec<FilledStripe>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilledStripe {
    #[serde(with = "in_text")]
    pub file: FileId,
    #[serde(with = "in_text")]
    pub version: Version,
    pub size: u64,
    #[serde(with = "in_text")]
    pub junction: JunctionId,
    #[serde(with = "in_text")]
    pub reference: Bytes,
    pub stripe: u64,
    /// How many hundredths of the stripe the calling node holds.
    #[serde(default)]
    pub percent: u8,
    #[serde(default)]
    pub reason: FeedReason,
    /// `None`: the junction has no rules, or the calling node does not know which one is about the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<ToldCopies>,
}

/// Why a stripe is told: what it may push out at the called node, and whether its version is the file's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeedReason {
    /// A scan found it on the calling node's disk.
    Held,
    /// A scan found it, and the calling node was asked for this version since it was started.
    Read,
    /// It was just filled, for a reader.
    #[default]
    Filled,
}

/// CORRUPT: blocks that arrived from the called node and did not pass; it checks its own copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorruptReport {
    #[serde(with = "in_text")]
    pub file: FileId,
    #[serde(with = "in_text")]
    pub version: Version,
    pub size: u64,
    pub blocks: Vec<u64>,
}

/// What a call's lists and texts may hold.
trait Bounded {
    fn is_bounded(&self) -> bool;
}

impl Bounded for Heartbeat {
    fn is_bounded(&self) -> bool {
        self.build.len() <= BUILD_MAX
    }
}

impl Bounded for PathRequest {
    fn is_bounded(&self) -> bool {
        true
    }
}

impl Bounded for KnownPath {
    fn is_bounded(&self) -> bool {
        self.names.len() <= PATH_NAMES_MAX && self.names.iter().all(|name| name.len() <= NAME_MAX)
    }
}

impl Bounded for ChangeNotice {
    fn is_bounded(&self) -> bool {
        self.files.len() <= NOTICE_FILES_MAX
    }
}

impl Bounded for FeedNotice {
    fn is_bounded(&self) -> bool {
        let fits = |it: &FilledStripe| {
            let is_legal = it.copies.is_none_or(|told| told.is_legal());
            it.reference.len() <= REFERENCE_MAX && it.percent <= 100 && is_legal
        };
        self.filled.len() <= FEED_MAX && self.filled.iter().all(fits)
    }
}

impl Bounded for CorruptReport {
    fn is_bounded(&self) -> bool {
        self.blocks.len() <= CORRUPT_BLOCKS_MAX
    }
}

fn demand_bounded<T: Bounded>(call: T) -> Result<T> {
    if call.is_bounded() { Ok(call) } else { Err(wrong("it holds more than one call may")) }
}

fn to_json<T: Bounded + Serialize>(call: &T) -> Result<Bytes> {
    if !call.is_bounded() {
        return Err(wrong("it holds more than one call may"));
    }
    serde_json::to_vec(call).map(Bytes::from).map_err(wrong)
}

fn from_json<T: Bounded + DeserializeOwned>(body: &[u8]) -> Result<T> {
    if body.len() > SMALL_BODY_MAX {
        return Err(wrong("its body is too long"));
    }
    demand_bounded(serde_json::from_slice(body).map_err(wrong)?)
}

macro_rules! json {
    ($($type:ty),+) => {
        $(impl $type {
            pub fn encode(&self) -> Result<Bytes> {
                to_json(self)
            }

            pub fn decode(body: &[u8]) -> Result<$type> {
                from_json(body)
            }
        })+
    };
}

json!(Heartbeat, PathRequest, KnownPath, ChangeNotice, FeedNotice, CorruptReport);

/// A value whose JSON is a text.
trait InText: Sized {
    fn write(&self) -> String;
    fn read(text: &str) -> Option<Self>;
}

impl InText for FileId {
    fn write(&self) -> String {
        self.to_string()
    }

    fn read(text: &str) -> Option<FileId> {
        fields::sixteen(text).map(FileId)
    }
}

impl InText for Version {
    fn write(&self) -> String {
        self.to_string()
    }

    fn read(text: &str) -> Option<Version> {
        fields::sixteen(text).map(Version)
    }
}

impl InText for NodeId {
    fn write(&self) -> String {
        self.to_string()
    }

    fn read(text: &str) -> Option<NodeId> {
        text.parse().ok()
    }
}

/// 16 hexadecimal digits: many programs keep a number of JSON as one of 53 bits.
impl InText for u64 {
    fn write(&self) -> String {
        NodeId(*self).to_string()
    }

    fn read(text: &str) -> Option<u64> {
        NodeId::read(text).map(|same| same.0)
    }
}

impl InText for JunctionId {
    fn write(&self) -> String {
        self.0.to_string()
    }

    fn read(text: &str) -> Option<JunctionId> {
        fields::digits(text).and_then(|id| u32::try_from(id).ok()).map(JunctionId)
    }
}

impl InText for Bytes {
    fn write(&self) -> String {
        fields::base64(self)
    }

    fn read(text: &str) -> Option<Bytes> {
        fields::from_base64(text, REFERENCE_MAX)
    }
}

mod in_text {
    use super::*;

    pub fn serialize<T: InText, S: Serializer>(value: &T, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_str(&value.write())
    }

    pub fn deserialize<'de, T: InText, D: Deserializer<'de>>(from: D) -> std::result::Result<T, D::Error> {
        let text = String::deserialize(from)?;
        T::read(&text).ok_or_else(|| D::Error::custom("an id or a reference is not written as it must be"))
    }
}

mod list_in_text {
    use super::*;

    pub fn serialize<T: InText, S: Serializer>(values: &[T], to: S) -> std::result::Result<S::Ok, S::Error> {
        to.collect_seq(values.iter().map(InText::write))
    }

    pub fn deserialize<'de, T: InText, D: Deserializer<'de>>(
        from: D,
    ) -> std::result::Result<Vec<T>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        let values: Option<Vec<T>> = texts.iter().map(|text| T::read(text)).collect();
        values.ok_or_else(|| D::Error::custom("an id is not written as it must be"))
    }
}
