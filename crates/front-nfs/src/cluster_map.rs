//! MAP: a client that reads from the nodes of a cluster asks one of them where bytes lie. What the answer says is made by whoever
//! runs the node; this front only decides who gets it, and says which junctions that client may use.

use std::fmt::Debug;
use std::hash::Hasher as _;

use fair::MemoryPermit;
use rpc_nfs3::cluster_map::{self, DOCUMENT_MAX, MapAnswer, UNKNOWN_TAG, procedure};
use rpc_nfs3::rpc::ReplyStatus;
use rpc_nfs3::{WireError, XdrDecoder};
use siphasher::sip::SipHasher13;
use tracing::warn;
use types::{JunctionId, Result};

use crate::call::NfsCall;
use crate::message::{NfsReply, header_only, success_header};

/// A junction that a client may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedJunction {
    pub id: JunctionId,
    pub path: String,
    /// Its handles are good at this node alone.
    pub has_own_handles: bool,
}

/// Who makes the document that clients of a cluster read.
pub trait MapSource: Debug + Send + Sync + 'static {
    /// As it is now, for a client that may use these junctions. Equal states give equal bytes.
    fn document(&self, junctions: &[MappedJunction]) -> Result<Vec<u8>>;
}

pub async fn handle(call: &NfsCall, source: &dyn MapSource, xid: u32, mut arguments: XdrDecoder) -> NfsReply {
    match run(call, source, xid, &mut arguments).await {
        Ok(reply) => reply,
        Err(_) => {
            call.shared.metrics.malformed.inc();
            header_only(xid, ReplyStatus::GarbageArguments)
        }
    }
}

async fn run(
    call: &NfsCall,
    source: &dyn MapSource,
    xid: u32,
    d: &mut XdrDecoder,
) -> std::result::Result<NfsReply, WireError> {
    let mut e = success_header(xid);
    let mut permit = MemoryPermit::default();
    match call.procedure {
        procedure::NULL => {}
        procedure::MAP => {
            let known = cluster_map::decode_known(d)?;
            let answer = match call.is_admitted() {
                true => match source.document(&junctions(call)) {
                    Ok(json) => answer(known, json),
                    Err(error) => {
                        warn!("a client asked for the map of the cluster, and it cannot be written: {error}");
                        return Ok(header_only(xid, ReplyStatus::SystemError));
                    }
                },
                false => MapAnswer::Refused,
            };
            if let MapAnswer::Document { json, .. } = &answer {
                permit = call.peer.replies.acquire(json.len()).await;
            }
            answer.encode(&mut e);
        }
        _ => return Ok(header_only(xid, ReplyStatus::ProcedureUnavailable)),
    }
    Ok(NfsReply { permit, ..NfsReply::new(e.finish()) })
}

fn answer(known: u64, json: Vec<u8>) -> MapAnswer {
    if json.len() > DOCUMENT_MAX {
        return MapAnswer::TooLong;
    }
    match tag_of(&json) {
        tag if tag == known => MapAnswer::Unchanged,
        tag => MapAnswer::Document { tag, json: json.into() },
    }
}

fn tag_of(json: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(json);
    match hasher.finish() {
        UNKNOWN_TAG => UNKNOWN_TAG + 1,
        tag => tag,
    }
}

/// Those that this client may use.
fn junctions(call: &NfsCall) -> Vec<MappedJunction> {
    let (rules, vfs) = (&call.shared.config.exports, &call.shared.vfs);
    let admitted =
        vfs.junctions().into_iter().filter(|junction| rules.admits(junction.id, call.peer.address));
    let mapped = admitted.map(|junction| MappedJunction {
        has_own_handles: vfs.ids_are_own(junction.id),
        id: junction.id,
        path: junction.path,
    });
    mapped.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_sent_once_and_named_by_its_tag_then() {
        let MapAnswer::Document { tag, json } = answer(UNKNOWN_TAG, b"{}".to_vec()) else {
            panic!("a client that knows none gets it")
        };
        assert_eq!((json.as_ref(), answer(tag, b"{}".to_vec())), (&b"{}"[..], MapAnswer::Unchanged));
        assert!(
            matches!(answer(tag, b"{ }".to_vec()), MapAnswer::Document { tag: other, .. } if other != tag)
        );
        assert_eq!(answer(tag, vec![b' '; DOCUMENT_MAX + 1]), MapAnswer::TooLong);
    }
}
