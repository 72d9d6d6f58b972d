//! Keeps the map current: it is asked for every few seconds, and at once when a node failed.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tracing::{debug, info, warn};
use types::NodeId;

use crate::client_view::ClientView;
use crate::map_call::{MapTold, ask_map};
use crate::origin::ClusterOrigin;
use crate::url::NamedHost;

const EVERY: Duration = Duration::from_secs(3);
/// However many nodes fail, the map is asked for no more often.
const AT_MOST_EVERY: Duration = Duration::from_millis(200);

/// Until the origin is gone.
pub async fn keep_current(origin: Weak<ClusterOrigin>, wanted: Arc<tokio::sync::Notify>) {
    loop {
        let _ = tokio::time::timeout(EVERY, wanted.notified()).await; // either is a reason to look
        let Some(origin) = origin.upgrade() else { return };
        origin.look().await;
        drop(origin);
        tokio::time::sleep(AT_MOST_EVERY).await;
    }
}

impl ClusterOrigin {
    /// Asks for the map: the home, then other nodes, then those that the URL names.
    async fn look(&self) {
        let view = self.view();
        view.all_links().for_each(|link| link.close_if_idle());
        let homes = view.homes(self.client, self.home());
        let links = homes.iter().flat_map(|node| view.links_to(*node));
        let mut places: Vec<NamedHost> = links.map(|link| link.at.clone()).collect();
        places.extend(self.url.hosts.iter().cloned());
        let mut asked: Vec<NamedHost> = Vec::new();
        for at in places {
            if asked.contains(&at) {
                continue;
            }
            match ask_map(&at, view.tag, &self.url).await {
                Ok(MapTold::Unchanged) => return,
                Ok(MapTold::Map { map, .. }) if map.cluster != view.told.cluster => {
                    warn!(%at, "a node of another cluster is at this address now: {}", map.cluster);
                }
                Ok(MapTold::Map { tag, map }) => {
                    self.note_name(map.teller, &at);
                    if map.map.number() != view.told.map.number() {
                        info!(
                            number = map.map.number(),
                            nodes = map.map.nodes().len(),
                            "the map of the cluster"
                        );
                    }
                    self.take_view(ClientView::new(*map, tag, &self.named(), &self.url, Some(&view)));
                    return;
                }
                Err(error) => debug!("{error}"),
            }
            asked.push(at);
        }
        debug!("no node tells the map; it stays as it is");
    }

    /// Which node answers under a name of the URL.
    pub(crate) fn note_name(&self, node: NodeId, at: &NamedHost) {
        if self.url.hosts.contains(at) {
            self.lock_named().insert(node, at.clone());
        }
    }
}
