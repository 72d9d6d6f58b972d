//! The way of bytes into the write buffer: the pending file that takes them is found or begun, with its sender.

use std::sync::Arc;

use bytes::Bytes;
use fetch::key_of;
use namespace::Found;
use types::{Error, ErrorKind, FileId, Result, Stability};
use write_buffer::{BudgetPermit, BufferedWrite};
use write_buffer::{BufferedFile, ExclusiveAccess, Waiter};

use super::buffer::WriteBuffer;
use super::sender;

impl WriteBuffer {
    /// Takes the bytes in. A write that wants more than `Unstable` gets something to wait by.
    pub fn take(
        self: &Arc<Self>,
        id: FileId,
        (offset, data): (u64, &Bytes),
        stability: Stability,
        permit: &BudgetPermit,
    ) -> Result<(Arc<BufferedFile>, BufferedWrite, Option<Waiter>)> {
        loop {
            let (file, found, fresh) = self.file(id)?;
            let taken = {
                let mut state = file.lock();
                if state.closed {
                    continue;
                }
                if let Some(error) = state.take_error() {
                    return Err(error);
                }
                let times = (self.now_ms(), self.origin_clock(file.junction));
                let mut attr = *found.attr();
                if !state.is_changing()
                    && let Found::Node(node) = &found
                {
                    self.told.view(id, node.version(), &mut attr, times.0);
                }
                let taken = state.take(&attr, (offset, data), stability, times, permit);
                let waiter =
                    (stability > Stability::Unstable).then(|| Waiter::new(&file, &mut state, taken.sequence));
                (taken, waiter)
            };
            if fresh {
                sender::start(self, &file);
            }
            file.wake.notify_one();
            return Ok((file, taken.0, taken.1));
        }
    }

    /// To have a file alone at the origin, whether anything of it is pending or not.
    pub fn request(self: &Arc<Self>, id: FileId) -> Result<ExclusiveAccess> {
        loop {
            let (file, _, fresh) = self.file(id)?;
            let wanted = file.request();
            if fresh {
                sender::start(self, &file);
            }
            if let Some(wanted) = wanted {
                return Ok(wanted);
            }
        }
    }

    /// The pending file, what is known of it, and whether it was made now: then its sender is to be started. It is known
    /// what the last one left before that is closed, and so what is known now is what lies below.
    fn file(&self, id: FileId) -> Result<(Arc<BufferedFile>, Found, bool)> {
        let mut files = self.files();
        let found = self.namespace.getattr_known(id)?;
        let Found::Node(node) = &found else {
            return Err(Error::new(ErrorKind::ReadOnly, "write to", id));
        };
        if let Some(file) = files.get(&id) {
            return Ok((file.clone(), found, false));
        }
        let (clean, (origin, _)) = (key_of(&found)?, self.namespace.origin_of(node)?);
        let file = BufferedFile::new(
            id,
            node.junction(),
            clean,
            origin.traits().write_max,
            origin.traits().commits_whole_files,
        );
        files.insert(id, file.clone());
        Ok((file, found, true))
    }
}
