//! Whether the export admits us, as opposed to a refusal of one file.
//!
//! An export that was withdrawn, or that squashes us since, answers as if each file were denied or gone. So after
//! such a refusal the root of the export is asked: if we are refused there, or have fewer rights on it than when it
//! was mounted, we are shut out, and everything is an outage until that is over. Nothing is changed meanwhile: what
//! a squashed user creates would be somebody else's.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use origin::renewable_signer::ShutOut;
use rpc_nfs3::nfs3::file::{self, AccessArgs, access};
use rpc_nfs3::nfs3::{FileHandle, procedure};
use types::{Error, ErrorKind, OutageReason, Result};

use crate::connection_pool::{ConnectionPool, Lane};
use crate::errors::TextReason;
use crate::origin::NfsOrigin;

const ALL: u32 =
    access::READ | access::LOOKUP | access::MODIFY | access::EXTEND | access::DELETE | access::EXECUTE;

#[derive(Default)]
pub struct ExportAdmission {
    /// Our rights on the root when it was mounted; 0: the server did not say.
    rights: AtomicU32,
    shut: AtomicBool,
    asked: ShutOut,
}

impl ExportAdmission {
    pub async fn learn(&self, pool: &ConnectionPool, root: &FileHandle) {
        self.rights.store(rights_on(pool, root).await.unwrap_or(0), Ordering::Relaxed);
    }
}

/// `None`: the server does not tell.
async fn rights_on(pool: &ConnectionPool, root: &FileHandle) -> Option<u32> {
    let args = AccessArgs { object: root.clone(), wanted: ALL };
    let encode = |e: &mut _| args.encode(e);
    let what = "ask for our rights at";
    let reply = pool.call(Lane::Metadata, what, procedure::ACCESS, encode, file::decode_access).await;
    reply.ok()?.ok().map(|ok| ok.granted & ALL)
}

impl NfsOrigin {
    /// Checked before a call; returns its start. While we are shut out, the root is asked again now and then.
    pub(crate) async fn ensure_admitted(&self) -> Result<Instant> {
        let began = Instant::now();
        if self.admission.shut.load(Ordering::Relaxed) && self.is_shut_out(began).await {
            return Err(self.outage(TextReason("we are not admitted".into())));
        }
        Ok(began)
    }

    /// Checked after a call: its own error, or the outage if we are shut out.
    pub(crate) async fn check_admission<T>(&self, began: Instant, answer: Result<T>) -> Result<T> {
        match answer {
            Err(no) if matches!(no.kind(), ErrorKind::AccessDenied | ErrorKind::Stale) => {
                Err(if self.is_shut_out(began).await { self.outage(no) } else { no })
            }
            other => other,
        }
    }

    fn outage(&self, why: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::outage(OutageReason::Credentials, "use the export", self.place()).with_source(why)
    }

    async fn is_shut_out(&self, began: Instant) -> bool {
        let shut_out = self.admission.asked.decide(began, async || self.is_refused_at_the_root().await).await;
        self.admission.shut.store(shut_out, Ordering::Relaxed);
        shut_out
    }

    async fn is_refused_at_the_root(&self) -> bool {
        let root = self.root_handle();
        match self.getattr_of(&root).await {
            Ok(_) => {
                let before = self.admission.rights.load(Ordering::Relaxed);
                let now = rights_on(&self.pool, &root).await;
                now.is_some_and(|now| before & !now != 0)
            }
            // The export was withdrawn, or set up anew: a mount tells which.
            Err(no) if no.kind() == ErrorKind::Stale => {
                let mounted = self.mounter.mount(&self.config.export).await;
                mounted.is_err_and(|no| no.outage_reason() == Some(OutageReason::Credentials))
            }
            Err(no) => {
                no.kind() == ErrorKind::AccessDenied || no.outage_reason() == Some(OutageReason::Credentials)
            }
        }
    }
}
