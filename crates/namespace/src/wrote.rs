//! Taking in the answer to a write or commit of our own.

use std::sync::Arc;

use origin::Object;
use types::{Error, ErrorKind, FileId, Result, Version};

use crate::observe::QueryStamp;
use crate::{Found, Namespace};

/// A file after bytes of it were written.
#[derive(Clone, Debug)]
pub struct Wrote {
    pub found: Found,
    /// The version that was known just before this was taken in.
    pub known: Version,
    /// No foreign change lies between: the origin says that the file had the known version just before the write. With
    /// several writes in flight their answers come in any order, and the caller puts them in a row.
    pub alone: bool,
}

impl Namespace {
    /// The origin says that the file was `before` (if it tells) and is `after` now, because we wrote to it, which we
    /// began to do when it was `asked`. Answers to questions that were asked until now are not believed any more.
    pub async fn wrote(
        self: &Arc<Self>,
        id: FileId,
        asked: QueryStamp,
        before: Option<Version>,
        after: &Object,
    ) -> Result<Wrote> {
        let junction = &*self.junction(self.load(id)?.junction())?;
        let order = self.in_order(junction.id).await;
        let old = self.load(id)?;
        if !self.is_known_as(id, junction.id, &after.identity) && id != junction.root {
            return Err(Error::new(ErrorKind::Stale, "take in what was written to", id));
        }
        let known = old.version();
        let alone = before == Some(known);
        let (node, change) = self.observe_own(&order, junction, id, None, asked, (before, after))?;
        self.store.enqueue(change.into_iter().collect()).await?;
        Ok(Wrote { found: Found::Node(node), known, alone })
    }
}
