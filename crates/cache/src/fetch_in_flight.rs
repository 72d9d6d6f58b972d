//! A fetch on its way, as those who wait for its bytes see it.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;
use types::{Error, ErrorKind, Result, Supplier};

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
    supplier: Arc<FetchSupplier>,
    pub(crate) landed: watch::Receiver<Option<Result<Landed>>>,
}

/// Whom a fetch waits for. That may change while it waits for room.
pub struct FetchSupplier(Mutex<Supplier>);

impl FetchSupplier {
    pub fn new(supplier: Supplier) -> Arc<FetchSupplier> {
        Arc::new(FetchSupplier(Mutex::new(supplier)))
    }

    pub fn get(&self) -> Supplier {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set(&self, supplier: Supplier) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = supplier;
    }
}

impl FetchInFlight {
    /// Shares `supplier` with the task that fetches. That task does not hold the flight itself: who holds it waits for it.
    pub fn new(
        blocks: Range<u64>,
        supplier: Arc<FetchSupplier>,
        landed: watch::Receiver<Option<Result<Landed>>>,
    ) -> FetchInFlight {
        FetchInFlight { blocks, supplier, landed }
    }

    pub fn supplier(&self) -> Supplier {
        self.supplier.get()
    }

    pub async fn wait(&self) -> Result<Landed> {
        let mut landed = self.landed.clone();
        match landed.wait_for(Option::is_some).await {
            Ok(result) => result.clone().expect("waited until it is there"),
            Err(_) => Err(Error::new(ErrorKind::Io, "fetch blocks", "the fetching task has failed")),
        }
    }
}
