//! Whether the server admits us: told apart from a no about one file.
//!
//! An export that was withdrawn, or that squashes us since, answers to each file as if that file were denied or gone. So
//! a no of that kind is asked about the root of the export: who is refused there, or has fewer rights on it than when it
//! was mounted, is refused as a whole, and everything is an outage until that is over. Nothing is changed meanwhile: what
//! a squashed user makes would be somebody else's.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use origin::renewed::ShutOut;
use rpc_nfs3::nfs3::file::{self, AccessArgs, access};
use rpc_nfs3::nfs3::{FileHandle, procedure};
use types::{Error, ErrorKind, OutageReason, Result};

use crate::errors::Reason;
use crate::origin::NfsOrigin;
use crate::pool::{Lane, Pool};

const ALL: u32 =
    access::READ | access::LOOKUP | access::MODIFY | access::EXTEND | access::DELETE | access::EXECUTE;

#[derive(Default)]
pub struct Admission {
    /// On the root, when it was mounted; 0: the server did not say.
    rights: AtomicU32,
    shut: AtomicBool,
    asked: ShutOut,
}

impl Admission {
    pub async fn learn(&self, pool: &Pool, root: &FileHandle) {
        self.rights.store(rights_on(pool, root).await.unwrap_or(0), Ordering::Relaxed);
    }
}

/// `None`: it is not to be had from this server.
async fn rights_on(pool: &Pool, root: &FileHandle) -> Option<u32> {
    let args = AccessArgs { object: root.clone(), wanted: ALL };
    let encode = |e: &mut _| args.encode(e);
    let what = "ask for our rights at";
    let reply = pool.call(Lane::Metadata, what, procedure::ACCESS, encode, file::decode_access).await;
    reply.ok()?.ok().map(|ok| ok.granted & ALL)
}

impl NfsOrigin {
    /// Before a call: when it begins. While we are shut out, it is looked now and then whether that is over.
    pub(crate) async fn admitted(&self) -> Result<Instant> {
        let began = Instant::now();
        if self.admission.shut.load(Ordering::Relaxed) && self.is_shut_out(began).await {
            return Err(self.outage(Reason("we are not admitted".into())));
        }
        Ok(began)
    }

    /// After it: what it failed with, or that we are refused whatever we ask for.
    pub(crate) async fn judged<T>(&self, began: Instant, answer: Result<T>) -> Result<T> {
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
            // Withdrawn, or set up anew: the mount tells.
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
