//! A node's membership, as the rest of the node sees it: the map, the ids of junctions, alarms.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cluster::ClusterMap;
use coordinator::Coordinator;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use types::{Error, ErrorKind, JunctionId, NodeId, Result};

use crate::alarms::RaisedAlarm;
use crate::copy_rules::CopyRules;
use crate::identity::{new_incarnation, new_node_id};
use crate::junctions::JunctionProfile;
use crate::member_task::MemberTask;
use crate::node_file::NodeFile;
use crate::records::{ClusterId, Incarnation};
use crate::register::NodeProfile;

const LEASE: Duration = Duration::from_secs(8);
const DOWN_AFTER: Duration = Duration::from_secs(60);
const AWAY_AFTER: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(500);

/// Who a node is by its certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertifiedNode {
    pub cluster: ClusterId,
    pub node: NodeId,
}

#[derive(Clone, Debug)]
pub struct MembershipConfig {
    /// Where `cluster.json` is.
    pub dir: PathBuf,
    pub node: NodeProfile,
    pub junctions: Vec<JunctionProfile>,
    /// `None`: it has no certificate, and its id is drawn at its first start.
    pub certified: Option<CertifiedNode>,
    /// How long a dead node's sign of life lasts. 8 s unless set.
    pub lease: Duration,
    /// A node without a sign of life is marked out after this. 60 s unless set.
    pub down_after: Duration,
    /// An etcd that was not heard for so long is away. 10 s unless set.
    pub away_after: Duration,
    /// How often the task looks for what time alone has changed. 0.5 s unless set.
    pub tick: Duration,
}

impl MembershipConfig {
    pub fn new(dir: PathBuf, node: NodeProfile, junctions: Vec<JunctionProfile>) -> MembershipConfig {
        MembershipConfig {
            dir,
            node,
            junctions,
            certified: None,
            lease: LEASE,
            down_after: DOWN_AFTER,
            away_after: AWAY_AFTER,
            tick: TICK,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub enum MembershipStatus {
    #[default]
    Starting,
    /// It has never been a member, and cannot become one for this reason at the moment.
    Waiting(String),
    /// It goes by what its file has, for this reason, and joins as soon as it can.
    FromFile(String),
    /// It has been in since its start. Alarms tell if it is not at the moment.
    Joined,
    /// It gave up. This is final.
    Refused(Error),
}

/// All that a node knows from its membership.
#[derive(Clone, Debug, Default)]
pub struct MembershipNews {
    pub status: MembershipStatus,
    pub cluster: Option<ClusterId>,
    pub map: Option<Arc<ClusterMap>>,
    /// Where nodes listen for NFS, of those that say so. An unspecified IP: at all the node's addresses. Empty while a node that
    /// was started without etcd goes by its file.
    pub nfs: BTreeMap<NodeId, SocketAddr>,
    /// Counted up when the numbers of maps begin anew, because etcd was restored from a backup or wiped: a map of a later history is
    /// newer, whatever its number. Whoever drives a node calls `node::ClusterView::begin_anew` when this has risen, and `advance`
    /// otherwise.
    pub history: u64,
    /// By path.
    pub junctions: BTreeMap<String, JunctionId>,
    /// The paths of junctions that this process serves under an id that the cluster does not have for them: until it is started again,
    /// no peer may be asked for their bytes, and no peer answered.
    pub conflicted: BTreeSet<String>,
    /// Which files have another number of copies than their junction says, of the junctions that have such rules.
    pub copy_rules: BTreeMap<JunctionId, Arc<CopyRules>>,
    pub alarms: Vec<RaisedAlarm>,
}

impl MembershipNews {
    /// Whether there is nothing in `now` that was not told.
    pub(crate) fn says(&self, now: &MembershipNews) -> bool {
        let same_status = match (&self.status, &now.status) {
            (MembershipStatus::FromFile(a), MembershipStatus::FromFile(b))
            | (MembershipStatus::Waiting(a), MembershipStatus::Waiting(b)) => a == b,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        };
        same_status
            && self.cluster == now.cluster
            && self.map == now.map
            && self.nfs == now.nfs
            && self.history == now.history
            && self.junctions == now.junctions
            && self.conflicted == now.conflicted
            && self.copy_rules == now.copy_rules
            && self.alarms == now.alarms
    }
}

/// Dropped, it is as if the process had died: the node's sign of life ends with its lease.
pub struct Membership {
    node: NodeId,
    incarnation: Incarnation,
    news: watch::Receiver<Arc<MembershipNews>>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Membership {
    /// Reads the node's file and begins to join. Must be called inside of a runtime.
    ///
    /// Errors: `Config` for settings of the node that no record can have, a lease or tick of no length, and a node's file that is
    /// malformed or of another node than the certificate; `InvalidArgument` for a junction; those of [`NodeFile::load`]; `Io` when the system gives no random numbers. What
    /// goes wrong later is in the news.
    pub fn start(coordinator: Arc<dyn Coordinator>, config: MembershipConfig) -> Result<Membership> {
        config.node.check()?;
        config.junctions.iter().try_for_each(JunctionProfile::check)?;
        if config.lease.is_zero() || config.tick.is_zero() {
            return Err(Error::new(ErrorKind::Config, "join the cluster:", "a lease or a tick of no length"));
        }
        let file = NodeFile::load(&config.dir)?;
        let node = match (&file, config.certified) {
            (Some(file), Some(certified)) => {
                check_certified(file, certified, &config.dir)?;
                file.node
            }
            (Some(file), None) => file.node,
            (None, Some(certified)) => certified.node,
            (None, None) => new_node_id()?,
        };
        let incarnation = new_incarnation()?;
        let (told, news) = watch::channel(Arc::new(MembershipNews::default()));
        let (stop, stopped) = oneshot::channel();
        let task = MemberTask::new(coordinator, config, node, incarnation, file, told);
        let task = tokio::spawn(task.run(stopped));
        Ok(Membership { node, incarnation, news, stop: Some(stop), task })
    }

    pub fn node(&self) -> NodeId {
        self.node
    }

    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    pub fn news(&self) -> watch::Receiver<Arc<MembershipNews>> {
        self.news.clone()
    }

    pub fn now(&self) -> Arc<MembershipNews> {
        self.news.borrow().clone()
    }

    /// Waits for the first map, however long that takes: from etcd, or from the node's file while etcd is away.
    ///
    /// Errors: why the node gave up ([`MembershipStatus::Refused`]): `NotFound`, there is no cluster; `Config`, the node is of another
    /// one; `NotSupported`, its nodes speak a wire that this build does not know; `Exists`, another node has the name; `Busy`, another
    /// process runs as this node; `NoSpace`, there are too many nodes; `Corrupt`, the cluster's record cannot be read. `Unavailable`
    /// when the membership ends.
    pub async fn first_map(&self) -> Result<Arc<ClusterMap>> {
        let mut news = self.news.clone();
        loop {
            let now = news.borrow_and_update().clone();
            if let MembershipStatus::Refused(error) = &now.status {
                return Err(error.clone());
            }
            if let Some(map) = &now.map {
                return Ok(map.clone());
            }
            let over = |_| Error::new(ErrorKind::Unavailable, "join the cluster:", "the node ends");
            news.changed().await.map_err(over)?;
        }
    }

    /// Ends the node's sign of life at once, so that it can be started again without a wait. It stays in the map.
    pub async fn stop(mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        let _ = (&mut self.task).await;
    }
}

/// Under another id it would be a second node that serves what the first one holds.
fn check_certified(file: &NodeFile, certified: CertifiedNode, dir: &Path) -> Result<()> {
    let CertifiedNode { cluster, node } = certified;
    if (file.cluster, file.node) == (cluster, node) {
        return Ok(());
    }
    let what = format!(
        "{} is of node {} of the cluster {}, and the node's token is of node {node} of the cluster {cluster}; give it its own \
         token, or another directory",
        dir.display(),
        file.node,
        file.cluster
    );
    Err(Error::new(ErrorKind::Config, "join the cluster:", what))
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.task.abort();
    }
}
