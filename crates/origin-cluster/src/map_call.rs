//! MAP: a node is asked where bytes lie.

use std::time::Duration;

use cluster::ClientMap;
use origin_nfs::{CallTarget, ask_program};
use rpc_nfs3::cluster_map::{MapAnswer, PROGRAM, VERSION, encode_known, procedure};
use types::{Error, ErrorKind, Result};

use crate::url::{ClusterUrl, NamedHost};

const WHAT: &str = "ask for the map of the cluster:";
/// For the connection, and for the answer.
const WITHIN: Duration = Duration::from_millis(1500);

/// What a node told.
#[derive(Debug)]
pub enum MapTold {
    Map {
        tag: u64,
        map: Box<ClientMap>,
    },
    /// It is as the caller knows it.
    Unchanged,
}

/// `known`: the tag of the document that is known, or `UNKNOWN_TAG`. Errors are sentences for whoever mounts, and of the kind
/// `Config` where asking again has no better answer.
pub async fn ask_map(at: &NamedHost, known: u64, url: &ClusterUrl) -> Result<MapTold> {
    let target = CallTarget { program: PROGRAM, version: VERSION, procedure: procedure::MAP };
    let place = (at.host.as_str(), at.port);
    let asked = ask_program(place, target, &url.identity, "ask", |e| encode_known(e, known), WITHIN).await;
    let mut results = asked.map_err(|error| match error.kind() {
        ErrorKind::NotSupported => refusal(format!(
            "{at} is no node of a cluster, or one of a version without a map for clients; mount it by {}",
            url.as_nfs(at)
        )),
        _ => error,
    })?;
    let garbled = |error| Error::new(ErrorKind::Corrupt, WHAT, at).with_source(error);
    match MapAnswer::decode(&mut results).map_err(garbled)? {
        MapAnswer::Document { tag, json } => {
            let map = ClientMap::from_json(&json)
                .map_err(|e| Error::new(ErrorKind::Corrupt, WHAT, at).with_source(e))?;
            Ok(MapTold::Map { tag, map: Box::new(map) })
        }
        MapAnswer::Unchanged => Ok(MapTold::Unchanged),
        MapAnswer::Refused => Err(refusal(format!(
            "{at} has no export rule for this machine; add one ([[nfs.export]]) at each node"
        ))),
        MapAnswer::TooLong => Err(refusal(format!(
            "the map that {at} tells is longer than clients read; mount a node by {}",
            url.as_nfs(at)
        ))),
    }
}

fn refusal(why: String) -> Error {
    Error::new(ErrorKind::Config, WHAT, why)
}
