//! A call as the procedures see it: its handles resolved, its caller admitted, its failure kept apart from its result.

use std::sync::Arc;

use fair::MemoryPermit;
use rpc_nfs3::WireError;
use rpc_nfs3::cluster_map::READER;
use rpc_nfs3::nfs3::{FileHandle, NfsStatus, PostOpAttr};
use rpc_nfs3::rpc::Credentials;
use tracing::debug;
use types::{Caller, FileId, JunctionId};
use vfs::{Node, Piece, WritePolicy};

use crate::attr::fattr3;
use crate::exports::ExportRefusal;
use crate::message::NfsPeer;
use crate::{NfsState, errors};

/// A call as the procedures see it.
pub struct NfsCall {
    pub shared: Arc<NfsState>,
    pub peer: NfsPeer,
    pub procedure: u32,
    pub credentials: Credentials,
}

/// What follows the encoded part of a reply, and the memory that it holds.
#[derive(Default)]
pub struct ReplyPayload {
    pub body: Vec<Piece>,
    pub permit: MemoryPermit,
}

/// Why a procedure failed.
pub enum CallFailure {
    /// The arguments could not be decoded.
    Garbage,
    /// The credentials are of the wrong kind.
    Credentials,
    Status(NfsStatus),
    /// The failure of a change, with the attributes of its directories as far as they are known.
    Change(NfsStatus, Box<[PostOpAttr; 2]>),
}

impl From<WireError> for CallFailure {
    fn from(_: WireError) -> CallFailure {
        CallFailure::Garbage
    }
}

impl From<NfsStatus> for CallFailure {
    fn from(status: NfsStatus) -> CallFailure {
        CallFailure::Status(status)
    }
}

impl From<types::Error> for CallFailure {
    fn from(error: types::Error) -> CallFailure {
        debug!("{error}");
        CallFailure::Status(errors::status_of(error.kind()))
    }
}

impl NfsCall {
    /// Resolves a handle to a file id, and the credentials to a caller by this client's export rule. The handle may be of another
    /// node of the cluster.
    pub async fn open(&self, handle: &FileHandle) -> Result<(FileId, Caller), CallFailure> {
        let (junction, id) = self.decode(handle)?;
        let caller = self.caller(junction)?;
        self.meet(junction, id).await?;
        Ok((id, caller))
    }

    /// Has the file looked up whose handle another node gave out.
    ///
    /// While a node that may know it is silent, a client that knows the map is told that the handle is stale: it finds the file by its
    /// path at once. To another one that would be an error; it is asked to come again.
    async fn meet(&self, junction: JunctionId, id: FileId) -> Result<(), CallFailure> {
        match self.shared.vfs.meet(junction, id).await {
            Err(error) if error.is_retryable() && self.reads_by_the_map() => Err(NfsStatus::STALE.into()),
            met => Ok(met?),
        }
    }

    fn decode(&self, handle: &FileHandle) -> Result<(JunctionId, FileId), NfsStatus> {
        let NfsState { handles, vfs, .. } = &*self.shared;
        handles.decode(handle, |junction| vfs.ids_are_own(junction))
    }

    /// As `open`, for a file that the call changes.
    pub async fn open_to_change(&self, handle: &FileHandle) -> Result<(FileId, Caller), CallFailure> {
        let (junction, id) = self.decode(handle)?;
        let caller = self.caller(junction)?;
        if self.is_read_only(junction) {
            return Err(CallFailure::Status(NfsStatus::ROFS));
        }
        self.meet(junction, id).await?;
        Ok((id, caller))
    }

    /// Whether this client may not change the junction.
    pub fn is_read_only(&self, junction: JunctionId) -> bool {
        self.shared.vfs.write_policy(junction) == WritePolicy::ReadOnly
            || self.shared.config.exports.is_read_only(junction, self.peer.address)
    }

    /// The failure of a change, with the known attributes of its directories in the order of its result.
    pub fn not_changed(&self, error: types::Error, dirs: [Option<FileId>; 2]) -> CallFailure {
        debug!("{error}");
        let known = |dir: Option<FileId>| Some(fattr3(&self.shared.vfs.known(dir?)?.attr));
        CallFailure::Change(errors::status_of(error.kind()), Box::new(dirs.map(known)))
    }

    pub fn caller(&self, junction: JunctionId) -> Result<Caller, CallFailure> {
        let rules = &self.shared.config.exports;
        rules.caller(junction, self.peer.address, &self.credentials).map_err(|refused| match refused {
            // The export rules of a removed junction are gone, too.
            ExportRefusal::Client if self.shared.vfs.has_gone(junction) => {
                CallFailure::Status(NfsStatus::STALE)
            }
            ExportRefusal::Client => CallFailure::Status(NfsStatus::ACCES),
            ExportRefusal::Credentials => CallFailure::Credentials,
        })
    }

    /// Whether any export rule admits this client.
    pub fn is_admitted(&self) -> bool {
        self.shared.config.exports.group_of(self.peer.address).is_some()
    }

    /// Whether the client knows the map of the cluster, and reads ahead from the nodes that keep what follows.
    pub fn reads_by_the_map(&self) -> bool {
        let is_reader = matches!(&self.credentials, Credentials::Sys(sys) if sys.machine_name == READER);
        is_reader && self.shared.config.map.is_some()
    }

    /// The handle of a node, if this client may use its junction.
    pub fn handle(&self, node: &Node) -> Option<FileHandle> {
        let admitted = self.shared.config.exports.admits(node.junction, self.peer.address);
        let NfsState { handles, vfs, .. } = &*self.shared;
        admitted.then(|| handles.encode(node.junction, node.id, |junction| vfs.ids_are_own(junction)))
    }
}
