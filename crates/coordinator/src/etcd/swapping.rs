//! A transaction, tried until its outcome is known.

use etcd_client::{Compare, CompareOp, DeleteOptions, PutOptions, Txn, TxnOp};
use tokio::time::Instant;
use types::{Error, Result};

use super::EtcdShared;
use super::endpoints::error_of;
use super::failure::{EtcdFailure, RequestFate};
use super::reading::{known_revision, wire_revision};
use crate::swap::SwapVerdict;
use crate::{Expected, KeyEntry, KeySwap, Revision, Swap, SwapAction, SwapLoss, SwapOutcome};

const SWAP: &str = "swap keys in etcd";

impl EtcdShared {
    pub async fn swap(&self, swap: &Swap) -> Result<SwapOutcome> {
        let keys: Vec<&str> = swap.keys().iter().map(|key| key.key.as_str()).collect();
        let begun = Instant::now();
        let mut failures = Vec::new();
        let mut doubt = false;
        for index in self.endpoints.round() {
            // Reading back takes its time, too.
            if begun.elapsed() > self.endpoints.whole_round() {
                break;
            }
            let txn = self.transaction(swap);
            let sent = self.endpoints.attempt(index, self.endpoints.attempt, |client| async move {
                client.kv_client().txn(txn).await
            });
            match sent.await {
                Ok(answer) if answer.succeeded() => {
                    if let Some(header) = answer.header() {
                        return Ok(SwapOutcome::Won(known_revision(header.revision())));
                    }
                    failures
                        .push(EtcdFailure::malformed(self.endpoints.url(index), "an answer without a head"));
                    doubt = true;
                }
                Ok(_) if !doubt => {
                    let (current, revision) = self.look(&keys).await.map_err(|failures| {
                        error_of("read what a lost swap met", &self.shown(swap.name()), &failures)
                    })?;
                    return Ok(SwapOutcome::Lost(SwapLoss { current, revision }));
                }
                // An earlier request may have been what this one met.
                Ok(_) => {}
                Err(failure) => {
                    let fate = failure.fate;
                    failures.push(failure);
                    match fate {
                        RequestFate::NotDone => continue,
                        RequestFate::Refused if !doubt => {
                            return Err(error_of(SWAP, &self.shown(swap.name()), &failures));
                        }
                        RequestFate::Refused => {}
                        RequestFate::Doubtful => doubt = true,
                    }
                }
            }
            match self.read_back(swap, &keys).await {
                Ok((SwapVerdict::Done(revision), ..)) => return Ok(SwapOutcome::Won(revision)),
                Ok((SwapVerdict::Never, current, revision)) => {
                    return Ok(SwapOutcome::Lost(SwapLoss { current, revision }));
                }
                Ok((SwapVerdict::NotYet, ..)) => {}
                Ok(_) => break,
                Err(more) => {
                    failures.extend(more);
                    break;
                }
            }
        }
        let error = error_of(SWAP, &self.shown(swap.name()), &failures);
        if doubt { Err(Error::doubtful(SWAP, self.shown(swap.name()), error)) } else { Err(error) }
    }

    /// What the keys say about a swap that may have been done.
    async fn read_back(
        &self,
        swap: &Swap,
        keys: &[&str],
    ) -> std::result::Result<(SwapVerdict, Vec<Option<KeyEntry>>, Revision), Vec<EtcdFailure>> {
        let patience = self.endpoints.whole_round();
        match tokio::time::timeout(patience, self.judge(swap, keys)).await {
            Ok(judged) => judged,
            Err(_) => Err(vec![EtcdFailure::silent("reading back", patience)]),
        }
    }

    /// `Overtaken` is looked into and not handed on.
    async fn judge(
        &self,
        swap: &Swap,
        keys: &[&str],
    ) -> std::result::Result<(SwapVerdict, Vec<Option<KeyEntry>>, Revision), Vec<EtcdFailure>> {
        let (current, revision) = self.look(keys).await?;
        let verdict = match swap.judge(&current) {
            SwapVerdict::Overtaken { key } => {
                let overtaken = swap.keys().get(key).zip(current.get(key).and_then(Option::as_ref));
                match overtaken {
                    Some((swapped, now)) if self.came_next(swapped, now).await? => SwapVerdict::Never,
                    _ => SwapVerdict::Unclear,
                }
            }
            verdict => verdict,
        };
        Ok((verdict, current, revision))
    }

    /// Between the revision that was expected of the key and the one that it has there was none.
    async fn came_next(
        &self,
        swapped: &KeySwap,
        now: &KeyEntry,
    ) -> std::result::Result<bool, Vec<EtcdFailure>> {
        let before = Revision(now.revision.0.saturating_sub(1));
        match self.look_at(&swapped.key, before).await {
            Ok((before, _)) => Ok(swapped.expected.is_met_by(before.as_ref())),
            Err(failures) if failures.iter().any(|failure| failure.missing.is_some()) => Ok(false),
            Err(failures) => Err(failures),
        }
    }

    fn transaction(&self, swap: &Swap) -> Txn {
        let when = |key: &KeySwap| {
            // A key that is not there compares as one of revision 0.
            let revision = match key.expected {
                Expected::Absent => 0,
                Expected::At(revision) => wire_revision(revision),
            };
            Compare::mod_revision(self.full(&key.key), CompareOp::Equal, revision)
        };
        let then = |key: &KeySwap| match &key.action {
            SwapAction::Put { value, lease } => {
                let options = lease.map(|lease| PutOptions::new().with_lease(lease.0));
                Some(TxnOp::put(self.full(&key.key), value.to_vec(), options))
            }
            SwapAction::Delete => Some(TxnOp::delete(self.full(&key.key), None::<DeleteOptions>)),
            SwapAction::Keep => None,
        };
        let keys = swap.keys();
        Txn::new()
            .when(keys.iter().map(when).collect::<Vec<_>>())
            .and_then(keys.iter().filter_map(then).collect::<Vec<_>>())
    }
}
