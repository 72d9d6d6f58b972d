//! An object on its way to the store, written by one worker or by many.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use origin_object::{Metadata, ObjectStore, Precondition, UploadedPart};
use tokio::sync::OnceCell;
use types::{Error, ErrorKind, Result};

use super::Counted;
use super::parts::{Parts, Rest};
use crate::locked;

pub struct Upload {
    key: String,
    /// By which it is given up if nobody completes it.
    store: Arc<dyn ObjectStore>,
    state: Mutex<State>,
    /// Once there is more than a part of it. Of several writers one begins it.
    begun: OnceCell<origin_object::MultipartUpload>,
}

struct State {
    parts: Parts,
    /// Parts that the store has.
    stored: Vec<UploadedPart>,
    over: bool,
}

impl Upload {
    /// `size`: of the whole object, where that is known.
    pub fn new(key: String, store: Arc<dyn ObjectStore>, part_bytes: u64, size: Option<u64>) -> Upload {
        let state = State { parts: Parts::new(part_bytes, size), stored: Vec::new(), over: false };
        Upload { key, store, state: Mutex::new(state), begun: OnceCell::new() }
    }

    /// Stores the parts that have all their bytes with this block. By the connections of whoever writes.
    pub async fn write(&self, by: &Counted, offset: u64, data: Bytes) -> Result<()> {
        let full = {
            let mut state = locked(&self.state);
            state.parts.write(offset, data).map_err(|e| self.named(e))?;
            state.parts.full()
        };
        for (number, bytes) in full {
            self.store_part(by, number, bytes).await?;
        }
        Ok(())
    }

    async fn store_part(&self, by: &Counted, number: u32, bytes: Bytes) -> Result<()> {
        let none = Metadata::new();
        let begin = async || by.call("BEGIN", by.store.begin(&self.key, &none)).await;
        let begun: &origin_object::MultipartUpload = self.begun.get_or_try_init(begin).await?;
        let part = by.call("PART", by.store.part(begun, number, bytes)).await?;
        locked(&self.state).stored.push(part);
        Ok(())
    }

    /// Makes the object out of what was written. One that nothing was written to is there afterwards, as it was or empty:
    /// false says so.
    pub async fn finish(&self, by: &Counted) -> Result<bool> {
        if locked(&self.state).over {
            return Ok(true);
        }
        let rest = locked(&self.state).parts.finish().map_err(|e| self.named(e))?;
        let was_written = rest != Rest::Nothing;
        let none = Metadata::new();
        let put = |whole, only_if| by.call("PUT", by.store.put(&self.key, whole, &none, only_if));
        match rest {
            Rest::Nothing => match put(Bytes::new(), Precondition::Absent).await {
                Err(e) if e.kind() != ErrorKind::VersionChanged => return Err(e),
                _ => {}
            },
            Rest::Whole(whole) => drop(put(whole, Precondition::Always).await?),
            Rest::Parts(last) => {
                for (number, bytes) in last {
                    self.store_part(by, number, bytes).await?;
                }
                self.complete(by).await?;
            }
        }
        locked(&self.state).over = true;
        Ok(was_written)
    }

    async fn complete(&self, by: &Counted) -> Result<()> {
        let (mut parts, sent) = {
            let state = locked(&self.state);
            (state.stored.clone(), state.parts.sent())
        };
        let Some(begun) = self.begun.get().filter(|_| parts.len() == sent) else {
            let why = format!("{}: {} of {sent} parts were stored", self.key, parts.len());
            return Err(Error::new(ErrorKind::Io, "complete", why));
        };
        parts.sort_by_key(|part| part.number);
        by.call("COMPLETE", by.store.complete(begun, &parts, Precondition::Always)).await.map(drop)
    }

    fn named(&self, error: Error) -> Error {
        Error::new(error.kind(), "write", &self.key).with_source(error)
    }
}

/// What a store keeps of an upload costs money until it is completed or given up.
impl Drop for Upload {
    fn drop(&mut self) {
        let over = locked(&self.state).over;
        if let (false, Some(begun), Ok(runtime)) =
            (over, self.begun.get(), tokio::runtime::Handle::try_current())
        {
            let (store, begun) = (Arc::clone(&self.store), begun.clone());
            runtime.spawn(async move {
                if let Err(e) = store.abort(&begun).await {
                    tracing::warn!("an incomplete upload stays at the store: {e}");
                }
            });
        }
    }
}
