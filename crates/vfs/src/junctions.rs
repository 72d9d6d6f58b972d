//! Junctions that come and go, and their rules, while clients are served.

use std::time::Duration;

use namespace::{Junction, JunctionRules};
use types::{Durability, Error, ErrorKind, JunctionId, Result};
use writeback::FlushPolicy;

use crate::{Vfs, WritePolicy};

/// A call that is writing to the journal has this long; longer than anybody waits for room in it.
const ENDING: Duration = Duration::from_secs(30);
/// What was written through and is not stored yet is given this long.
const STORING: Duration = Duration::from_secs(10);

/// A junction that is served from now on.
pub struct NewJunction {
    pub junction: Junction,
    pub write: WritePolicy,
    /// If it is written `back`.
    pub flush: FlushPolicy,
    /// Likewise.
    pub durability: Durability,
}

impl Vfs {
    /// Serve one more junction, by all fronts. One that is written `back` needs a journal that is open.
    pub async fn add_junction(&self, new: NewJunction) -> Result<()> {
        let id = self.namespace.junction_id(&new.junction).await?;
        let needed = || Error::new(ErrorKind::Config, "write back:", "there is no journal to write to");
        let writer = self.writers.with_policy(new.write).ok_or_else(needed)?;
        let whole_files = new.junction.origin.traits().commits_whole_files;
        writer.serve(id, FlushPolicy { whole_files, ..new.flush }, new.durability);
        self.writers.set_policy(id, new.write);
        self.leaving.comes(id);
        self.namespace.graft(id, new.junction)?;
        writer.follow_recoveries(id, self.namespace.recoveries(id)?);
        Ok(())
    }

    /// Serve it no more: whoever asks for something of it is told that it is not there. Calls that are under way end, what
    /// was written through is stored first, and what is cached stays on the disk. While its origin does not have all that
    /// was acknowledged, it is refused, and the junction stays.
    pub async fn remove_junction(&self, path: &str) -> Result<()> {
        let missing = || Error::new(ErrorKind::NotFound, "find the junction", path);
        let known = self.namespace.junctions().into_iter().find(|junction| junction.path == path);
        let id = known.ok_or_else(missing)?.id;
        let writer = self.writer(id);
        let stays = |why: String| {
            Error::new(ErrorKind::Busy, "take away the junction", path)
                .with_source(std::io::Error::other(why))
        };
        let has_dirty = |bytes| {
            stays(format!(
                "its origin does not have yet what was acknowledged here ({bytes} bytes of data); run forebay flush \
                 --wait {path}, then send SIGHUP again"
            ))
        };
        // Before anybody has to wait.
        if let Some(bytes) = writer.unflushed_bytes(id).await? {
            return Err(has_dirty(bytes));
        }
        let closed = self.leaving.close(id, ENDING).await;
        let closed = closed.ok_or_else(|| stays("changes of it are under way".into()))?;
        if let Some(bytes) = writer.settle(id, STORING).await {
            return Err(stays(format!(
                "{bytes} bytes that clients wrote to it are not stored at its origin yet"
            )));
        }
        if let Some(bytes) = writer.unflushed_bytes(id).await? {
            return Err(has_dirty(bytes));
        }
        self.namespace.ungraft(path)?;
        closed.take_away();
        Ok(())
    }

    /// It was taken away since the start.
    pub fn has_gone(&self, junction: JunctionId) -> bool {
        self.leaving.has_gone(junction)
    }

    /// From now on. What clients were told to keep is taken back as far as their protocol can.
    pub fn set_rules(&self, path: &str, rules: JunctionRules) -> Result<()> {
        self.namespace.set_rules(path, rules)
    }
}
