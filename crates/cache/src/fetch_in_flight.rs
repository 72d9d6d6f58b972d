//! A fetch on its way, as those who wait for its bytes see it.

use std::ops::Range;

use bytes::Bytes;
use tokio::sync::watch;
use types::{Error, ErrorKind, Result};

/// Where the bytes of a flight are when it has landed.
#[derive(Clone, Debug)]
pub enum Landed {
    /// In the cache file.
    Stored,
    /// Only here: the disk did not take them.
    Passed(Bytes),
}

/// One part on its way.
pub struct FetchInFlight {
    pub blocks: Range<u64>,
    pub(crate) landed: watch::Receiver<Option<Result<Landed>>>,
}

impl FetchInFlight {
    pub async fn wait(&self) -> Result<Landed> {
        let mut landed = self.landed.clone();
        match landed.wait_for(Option::is_some).await {
            Ok(result) => result.clone().expect("waited until it is there"),
            Err(_) => Err(Error::new(ErrorKind::Io, "fetch blocks", "the fetching task has failed")),
        }
    }
}
