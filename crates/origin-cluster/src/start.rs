//! How a client begins: any one of the named nodes that answers is enough.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use origin::Origin;
use rpc_nfs3::cluster_map::UNKNOWN_TAG;
use tokio::task::JoinSet;
use tracing::{info, warn};
use types::{Error, ErrorKind, NodeId, Result};

use crate::client_view::ClientView;
use crate::map_call::{MapTold, ask_map};
use crate::origin::ClusterOrigin;
use crate::url::{ClusterUrl, NamedHost};

/// After the first answer, those of other named nodes are waited for so long: they tell which node has which name.
const OTHERS: Duration = Duration::from_millis(300);
/// Reasons that an error names.
const REASONS_TOLD: usize = 8;

impl ClusterOrigin {
    /// Asks the named nodes for the map, and one of the cluster's nodes for the root.
    ///
    /// Errors are one line each, for whoever mounts: they name each node with its reason.
    pub async fn connect(url: ClusterUrl) -> Result<Arc<ClusterOrigin>> {
        let (told, named) = first_maps(&url).await?;
        let (tag, map) = told;
        let (cluster, number, nodes) = (map.cluster.clone(), map.map.number(), map.map.nodes().len());
        info!(%cluster, number, nodes, "a client of this cluster");
        let view = ClientView::new(map, tag, &named, &url, None);
        // Nobody can guess it, and it need not be kept: it spreads clients.
        let client = RandomState::new().build_hasher().finish();
        let origin = ClusterOrigin::begin(url, client, view, named);
        origin.root().await?;
        Ok(origin)
    }
}

type FirstMap = (u64, cluster::ClientMap);

/// The first map that is told, and the nodes that answered under names of the URL.
async fn first_maps(url: &ClusterUrl) -> Result<(FirstMap, BTreeMap<NodeId, NamedHost>)> {
    let mut asking = JoinSet::new();
    for at in &url.hosts {
        let (at, url) = (at.clone(), url.clone());
        asking.spawn(async move {
            let told = ask_map(&at, UNKNOWN_TAG, &url).await;
            (at, told)
        });
    }
    let mut first: Option<FirstMap> = None;
    let (mut named, mut reasons) = (BTreeMap::new(), Vec::new());
    let mut until = None;
    loop {
        let next = match until {
            None => asking.join_next().await,
            Some(until) => tokio::time::timeout_at(until, asking.join_next()).await.unwrap_or(None),
        };
        match next {
            Some(Ok((at, Ok(MapTold::Map { tag, map })))) => {
                let known = first.as_ref().map(|(_, known)| known.cluster.clone());
                if known.as_ref().is_some_and(|known| *known != map.cluster) {
                    let what = format!(
                        "{}: {at} is a node of another cluster than the others that are named",
                        url.url()
                    );
                    return Err(Error::new(ErrorKind::Config, "mount", what));
                }
                named.insert(map.teller, at);
                until.get_or_insert_with(|| tokio::time::Instant::now() + OTHERS);
                first.get_or_insert((tag, *map));
            }
            // Nobody was told that a document is known.
            Some(Ok((at, Ok(MapTold::Unchanged)))) => {
                reasons.push(Error::new(ErrorKind::Corrupt, "ask for the map of the cluster:", at));
            }
            Some(Ok((_, Err(error)))) => reasons.push(error),
            Some(Err(ended)) => warn!("a task ended early: {ended}"),
            None => break,
        }
    }
    match first {
        Some(first) => Ok((first, named)),
        None => Err(nobody_answers(url, &reasons)),
    }
}

/// It may pass, unless each of them said that it will not.
fn nobody_answers(url: &ClusterUrl, reasons: &[Error]) -> Error {
    let lasts = !reasons.is_empty() && reasons.iter().all(|error| error.kind() == ErrorKind::Config);
    let mut told: Vec<String> = reasons.iter().take(REASONS_TOLD).map(Error::to_string).collect();
    if reasons.len() > REASONS_TOLD {
        told.push(format!("and {} more", reasons.len() - REASONS_TOLD));
    }
    let why = format!("none of the named nodes tells the map of its cluster: {}", told.join("; "));
    let kind = if lasts { ErrorKind::Config } else { ErrorKind::Unavailable };
    Error::new(kind, "mount", url.url()).with_source(std::io::Error::other(why))
}
