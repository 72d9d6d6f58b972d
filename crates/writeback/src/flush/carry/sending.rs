//! Bytes of one unit on their way, several parts at a time.

use std::sync::{Mutex, PoisonError};

use types::{Error, ErrorKind, FileId, Result};

use super::Carry;
use super::foreign_write::{ComparedVersion, StatesTold};
use super::parts::{part_bytes, parts, together};
use crate::conflict::ConflictPolicy;
use crate::flush_target::{TargetObject, TargetPresence};
use crate::operation::Attributes;
use crate::plan::ContentChange;

/// Commits that say that something was lost, one after another, before the origin is left alone for a while.
const COMMITS_MAX: u32 = 3;
/// Parts of one unit under way. 32 of 1 MiB at 221 ms is 1.2 Gbit/s.
const TOGETHER: usize = 32;

impl Carry<'_> {
    /// Also whether it has these attributes then. `found`: the object before.
    pub(super) async fn write(
        &mut self,
        object: FileId,
        found: &TargetObject,
        content: &ContentChange,
        set: &Attributes,
    ) -> Result<(TargetObject, bool)> {
        let target = self.shared.target.clone();
        let (written, ()) =
            tokio::join!(self.send(object, found, content, set), target.travels(object, content));
        written
    }

    /// The first part goes alone: it tells whether the object still is what was looked at. The answers to all parts
    /// together tell whether somebody else may have written between them; then what is there is compared.
    async fn send(
        &mut self,
        object: FileId,
        found: &TargetObject,
        content: &ContentChange,
        set: &Attributes,
    ) -> Result<(TargetObject, bool)> {
        let target = self.shared.target.clone();
        let parts = parts(&content.pieces);
        let Some((first, others)) = parts.split_first() else {
            return Err(Error::new(ErrorKind::InvalidArgument, "write nothing to", object));
        };
        let mut version = found.version;
        let end = content.pieces.iter().map(|piece| piece.range().end()).max().unwrap_or(0);
        let size = content.size.map(|_| end.max(found.attr.size));
        let mut is_sent_again = false;
        for _ in 0..COMMITS_MAX {
            let (offset, data) = part_bytes(self.shared, first).await?;
            let written = target.write(object, offset, data).await?;
            if let Some(before) = written.before
                && before != version
                && !self.is_ours(before).await?
            {
                self.overtaken(object, written.before).await?;
            }
            let mut states = StatesTold::new(written.before.unwrap_or(version));
            states.note(&written);
            let is_set = set.is_nothing() || target.set_at_commit(object, set).await?;
            let shared = self.shared;
            let turn = shared.turn(self.unit.junction, others.len().min(TOGETHER)).await;
            let told = &Mutex::new(states);
            let send = |part| async move {
                let (offset, data) = part_bytes(shared, part).await?;
                let answer = shared.target.write(object, offset, data).await?;
                told.lock().unwrap_or_else(PoisonError::into_inner).note(&answer);
                Ok(())
            };
            together(TOGETHER, others.iter().map(|part| send(part.as_slice()))).await?;
            drop(turn);
            let may_be_mixed = told.lock().unwrap_or_else(PoisonError::into_inner).leave_a_gap();
            if let Some(found) = target.commit(object).await? {
                if !may_be_mixed || is_sent_again {
                    return Ok((found, is_set));
                }
                let ComparedVersion { found, is_ours } = self.read_back(object, found, &parts, size).await?;
                if is_ours {
                    self.is_alone = false;
                    return Ok((found, is_set));
                }
                if self.policy != ConflictPolicy::Ours {
                    self.is_mixed = true;
                    return Ok((found, is_set));
                }
                self.overtaken(object, Some(found.version)).await?;
                (version, is_sent_again) = (found.version, true);
                continue;
            }
            // What was lost took its version with it.
            if let TargetPresence::Found(found) = self.shared.look(object).await? {
                version = found.version;
            }
        }
        let context = format!("{object}: the origin keeps losing what it has not stored");
        Err(Error::new(ErrorKind::Unavailable, "commit", context))
    }
}
