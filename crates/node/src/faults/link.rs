//! The links of a run: a relay for each pair of nodes and each direction of calls, on which bytes are lost, slowed or altered.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cluster::{ClusterMap, MapNode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use types::NodeId;

const SLOW_PIECE: usize = 8 << 10;
const SLOW_PAUSE: Duration = Duration::from_millis(4);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkMode {
    #[default]
    Good,
    /// What goes in does not come out for as long as this lasts: a kernel sends it again until it arrives.
    Lost,
    /// About 2 MB/s.
    Slow,
    /// A bit of each piece is another one.
    Altered,
}

/// One way of a link.
#[derive(Default)]
pub struct LinkWay {
    mode: watch::Sender<LinkMode>,
    /// Bytes that its mode has hit.
    hit: AtomicU64,
}

/// What one node calls another one over.
pub struct Link {
    address: SocketAddr,
    /// From the calling node to the called one.
    pub there: Arc<LinkWay>,
    pub back: Arc<LinkWay>,
    running: JoinHandle<()>,
}

/// All links. A node's map has the addresses of the links in place of those of the nodes.
pub struct LinkTable {
    /// Of the stage: links outlive the nodes that call over them.
    runtime: Handle,
    /// Where the nodes listen that run.
    listening: Arc<Mutex<HashMap<NodeId, SocketAddr>>>,
    links: tokio::sync::Mutex<HashMap<(NodeId, NodeId), Arc<Link>>>,
}

impl LinkWay {
    pub fn set(&self, mode: LinkMode) {
        self.mode.send_replace(mode);
    }

    pub fn hit(&self) -> u64 {
        self.hit.load(Ordering::Relaxed)
    }

    async fn carry(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> std::io::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        let mut modes = self.mode.subscribe();
        loop {
            let length = from.read(&mut buffer).await?;
            if length == 0 {
                return Ok(());
            }
            let mode = *modes.borrow_and_update();
            if mode != LinkMode::Good {
                self.hit.fetch_add(length as u64, Ordering::Relaxed);
            }
            match mode {
                LinkMode::Lost => {
                    let _ = modes.wait_for(|mode| *mode != LinkMode::Lost).await; // its sender is here
                    to.write_all(&buffer[..length]).await?;
                }
                LinkMode::Slow => {
                    for piece in buffer[..length].chunks(SLOW_PIECE) {
                        tokio::time::sleep(SLOW_PAUSE).await;
                        to.write_all(piece).await?;
                    }
                }
                LinkMode::Altered => {
                    buffer[length / 2] ^= 4;
                    to.write_all(&buffer[..length]).await?;
                }
                LinkMode::Good => to.write_all(&buffer[..length]).await?,
            }
        }
    }
}

impl LinkTable {
    /// Its links run in the runtime that this is called in.
    pub fn new() -> LinkTable {
        LinkTable {
            runtime: Handle::current(),
            listening: Arc::default(),
            links: tokio::sync::Mutex::default(),
        }
    }

    /// The node listens there from now on, or (`None`) nowhere.
    pub fn set_listening(&self, node: NodeId, at: Option<SocketAddr>) {
        let mut listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
        match at {
            Some(at) => listening.insert(node, at),
            None => listening.remove(&node),
        };
    }

    pub fn listening(&self, node: NodeId) -> Option<SocketAddr> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner).get(&node).copied()
    }

    /// The link over which `from` calls `to`.
    pub async fn link(&self, from: NodeId, to: NodeId) -> Arc<Link> {
        let mut links = self.links.lock().await;
        if let Some(link) = links.get(&(from, to)) {
            return link.clone();
        }
        let bound = self.runtime.spawn(TcpListener::bind("127.0.0.1:0")).await;
        let listener = bound.expect("the stage is there").expect("bound");
        let address = listener.local_addr().expect("bound");
        let (there, back) = (Arc::<LinkWay>::default(), Arc::<LinkWay>::default());
        let relaying = relay(listener, self.listening.clone(), to, there.clone(), back.clone());
        let running = self.runtime.spawn(relaying);
        let link = Arc::new(Link { address, there, back, running });
        links.insert((from, to), link.clone());
        link
    }

    /// The map as `own` gets it: it calls the others over its links.
    pub async fn rewritten(&self, own: NodeId, map: &ClusterMap) -> Arc<ClusterMap> {
        let mut nodes: Vec<MapNode> = Vec::new();
        for node in map.nodes() {
            let mut node = node.clone();
            if node.id != own {
                node.addresses = vec![self.link(own, node.id).await.address];
            }
            nodes.push(node);
        }
        Arc::new(ClusterMap::new(map.number(), nodes).expect("a map"))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.running.abort();
    }
}

async fn relay(
    listener: TcpListener,
    listening: Arc<Mutex<HashMap<NodeId, SocketAddr>>>,
    to: NodeId,
    there: Arc<LinkWay>,
    back: Arc<LinkWay>,
) {
    let mut carrying = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while carrying.try_join_next().is_some() {}
        let at = listening.lock().unwrap_or_else(PoisonError::into_inner).get(&to).copied();
        let (there, back) = (there.clone(), back.clone());
        carrying.spawn(async move {
            // Dropped at once where nobody listens.
            let Some(at) = at else { return };
            let Ok(node) = TcpStream::connect(at).await else { return };
            let _ = (client.set_nodelay(true), node.set_nodelay(true));
            let ((from_client, to_client), (from_node, to_node)) = (client.into_split(), node.into_split());
            tokio::select! {
                _ = there.carry(from_client, to_node) => {}
                _ = back.carry(from_node, to_client) => {}
            }
        });
    }
}
