//! Whether the export admits us, as opposed to a refusal of one file.
//!
//! An export that was withdrawn, or that squashes us since, answers as if each file were denied or gone. So after
//! such a refusal the root of the export is asked: if we are refused there, or have fewer rights on it than when it
//! was mounted, we are shut out, and everything is an outage until that is over. Nothing is changed meanwhile: what
//! a squashed user creates would be somebody else's.

use std::sync::atomic::Ordering;
use std::time::Instant;

use types::{Error, ErrorKind, OutageReason, Result};

use crate::errors::TextReason;
use crate::export_rights::rights_on;
use crate::origin::NfsOrigin;

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
