//! Our rights on the root of the export, as they were when it was mounted and as they are now (`admission.rs`).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use origin::renewable_signer::ShutOut;
use rpc_nfs3::nfs3::file::{self, AccessArgs, access};
use rpc_nfs3::nfs3::{FileHandle, procedure};

use crate::connection_pool::{ConnectionPool, Lane};

const ALL: u32 =
    access::READ | access::LOOKUP | access::MODIFY | access::EXTEND | access::DELETE | access::EXECUTE;

#[derive(Default)]
pub struct ExportAdmission {
    /// Our rights on the root when it was mounted; 0: the server did not say.
    pub rights: AtomicU32,
    pub shut: AtomicBool,
    pub asked: ShutOut,
}

impl ExportAdmission {
    pub async fn learn(&self, pool: &ConnectionPool, root: &FileHandle) {
        self.rights.store(rights_on(pool, root).await.unwrap_or(0), Ordering::Relaxed);
    }
}

/// `None`: the server does not tell.
pub async fn rights_on(pool: &ConnectionPool, root: &FileHandle) -> Option<u32> {
    let args = AccessArgs { object: root.clone(), wanted: ALL };
    let encode = |e: &mut _| args.encode(e);
    let what = "ask for our rights at";
    let reply = pool.call(Lane::Metadata, what, procedure::ACCESS, encode, file::decode_access).await;
    reply.ok()?.ok().map(|ok| ok.granted & ALL)
}
