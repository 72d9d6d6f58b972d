//! How many bytes may be in flight, from each supplier.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use types::Supplier;

/// One budget for each supplier, in KiB: see [`Supplier`].
pub struct FetchBudgets {
    origin: FetchBudget,
    primary: FetchBudget,
    copy: FetchBudget,
}

struct FetchBudget {
    kib: u32,
    free: Arc<Semaphore>,
}

impl FetchBudget {
    fn new(bytes: u64) -> FetchBudget {
        let kib = u32::try_from(bytes / 1024).unwrap_or(u32::MAX >> 4).max(1);
        FetchBudget { kib, free: Arc::new(Semaphore::new(kib as usize)) }
    }

    /// A request larger than the whole budget takes all of it.
    fn permits(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).min(self.kib)
    }
}

impl FetchBudgets {
    /// `inflight_max` bytes from the origin, and half as many from primaries and from copies.
    pub fn new(inflight_max: u64) -> FetchBudgets {
        FetchBudgets {
            origin: FetchBudget::new(inflight_max),
            primary: FetchBudget::new(inflight_max / 2),
            copy: FetchBudget::new(inflight_max / 2),
        }
    }

    fn of(&self, supplier: Supplier) -> &FetchBudget {
        match supplier {
            Supplier::Origin => &self.origin,
            Supplier::Primary => &self.primary,
            Supplier::Copy => &self.copy,
        }
    }

    /// Room for `bytes`, waited for in turn.
    pub async fn acquire(&self, supplier: Supplier, bytes: u64) -> OwnedSemaphorePermit {
        let budget = self.of(supplier);
        let permit = budget.free.clone().acquire_many_owned(budget.permits(bytes)).await;
        permit.expect("the budget is never closed")
    }

    /// Room that demand will hardly miss: a quarter of the budget stays free for it.
    pub fn try_spare(&self, supplier: Supplier, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let budget = self.of(supplier);
        let wanted = budget.permits(bytes);
        if budget.free.available_permits() < (budget.kib / 4).saturating_add(wanted) as usize {
            return None;
        }
        budget.free.clone().try_acquire_many_owned(wanted).ok()
    }
}
