//! The map of a cluster, for clients that read from its nodes: an ONC RPC program of Forebay's own, on the port of NFS.
//! `docs/design/map-wire.md` has its bytes.

use bytes::Bytes;

use crate::xdr::{WireError, WireResult, XdrDecoder, XdrEncoder};

/// Of the range that RFC 5531 leaves to whoever wants a number.
pub const PROGRAM: u32 = 0x2066_6279;
pub const VERSION: u32 = 1;

/// The longest document. One of a thousand nodes has a quarter of it.
pub const DOCUMENT_MAX: usize = 1 << 20;

/// The machine name in the AUTH_SYS credentials of clients that read by the map: they read ahead themselves, from the nodes that keep
/// what follows. A node that they ask does not.
pub const READER: &str = "forebay-map-reader";

pub mod procedure {
    pub const NULL: u32 = 0;
    pub const MAP: u32 = 1;
}

/// The tag of no document: who knows none asks with it.
pub const UNKNOWN_TAG: u64 = 0;

const MAP: u32 = 0;
const UNCHANGED: u32 = 1;
const REFUSED: u32 = 2;
const TOO_LONG: u32 = 3;

pub fn encode_known(e: &mut XdrEncoder, tag: u64) {
    e.u64(tag);
}

/// The tag of the document that the caller knows.
pub fn decode_known(d: &mut XdrDecoder) -> WireResult<u64> {
    d.u64()
}

/// The answer to MAP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapAnswer {
    /// Another document than the caller knows; equal ones have equal tags at one node.
    Document { tag: u64, json: Bytes },
    /// The caller knows it.
    Unchanged,
    /// No export rule of this node admits the caller.
    Refused,
    /// The document is longer than any may be.
    TooLong,
}

impl MapAnswer {
    pub fn encode(&self, e: &mut XdrEncoder) {
        match self {
            MapAnswer::Document { tag, json } => {
                e.u32(MAP);
                e.u64(*tag);
                e.opaque(json);
            }
            MapAnswer::Unchanged => e.u32(UNCHANGED),
            MapAnswer::Refused => e.u32(REFUSED),
            MapAnswer::TooLong => e.u32(TOO_LONG),
        }
    }

    pub fn decode(d: &mut XdrDecoder) -> WireResult<MapAnswer> {
        match d.u32()? {
            MAP => Ok(MapAnswer::Document { tag: d.u64()?, json: d.opaque(DOCUMENT_MAX)? }),
            UNCHANGED => Ok(MapAnswer::Unchanged),
            REFUSED => Ok(MapAnswer::Refused),
            TOO_LONG => Ok(MapAnswer::TooLong),
            _ => Err(WireError::BadValue),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(answer: &MapAnswer) -> Bytes {
        let mut e = XdrEncoder::default();
        answer.encode(&mut e);
        e.finish()
    }

    #[test]
    fn an_answer_with_the_map_is_read_back_and_no_part_of_it_is() {
        let document = MapAnswer::Document { tag: 7 << 40, json: Bytes::from_static(b"{\"v\":1}") };
        for answer in [document, MapAnswer::Unchanged, MapAnswer::Refused, MapAnswer::TooLong] {
            let bytes = encoded(&answer);
            assert_eq!(MapAnswer::decode(&mut XdrDecoder::new(bytes.clone())), Ok(answer));
            for length in 0..bytes.len() {
                let cut = MapAnswer::decode(&mut XdrDecoder::new(bytes.slice(..length)));
                assert_eq!(cut, Err(WireError::Truncated), "{length}");
            }
        }
    }

    #[test]
    fn a_map_that_claims_too_much_is_refused_before_it_is_read() {
        let mut e = XdrEncoder::default();
        e.u32(MAP);
        e.u64(1);
        e.u32(DOCUMENT_MAX as u32 + 1);
        assert_eq!(MapAnswer::decode(&mut XdrDecoder::new(e.finish())), Err(WireError::TooLong));
    }

    proptest! {
        #[test]
        fn whatever_bytes_come_as_a_map_are_an_answer_that_is_written_alike_or_an_error(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut d = XdrDecoder::new(Bytes::from(bytes.clone()));
            if let Ok(answer) = MapAnswer::decode(&mut d) {
                let taken = bytes.len() - d.remaining();
                prop_assert_eq!(encoded(&answer).len(), taken);
            }
        }
    }
}
