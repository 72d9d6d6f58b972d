//! A target with the limits of a service in front of it (`origin::emulated`): shapes that were measured against a cloud run
//! without one. The clients of another process have limits of their own.

use std::sync::Arc;

use async_trait::async_trait;
use origin::emulated::{EmulatedService, ServiceClient, ServiceLimits};
use types::Result;

use super::guarded::{CallGuard, GuardedClient};
use super::{Calls, Client, Target, TargetAbout};

/// The name by which a busy answer is counted among a client's calls.
pub const BUSY_CALL: &str = "busy";

pub struct LimitedTarget {
    inner: Arc<dyn Target>,
    limits: ServiceLimits,
    service: Arc<EmulatedService>,
}

impl LimitedTarget {
    pub fn new(inner: Arc<dyn Target>, limits: ServiceLimits) -> Arc<LimitedTarget> {
        Arc::new(LimitedTarget { inner, limits, service: EmulatedService::new(limits) })
    }
}

#[async_trait]
impl Target for LimitedTarget {
    async fn about(&self) -> Result<TargetAbout> {
        let inner = self.inner.about().await?;
        Ok(TargetAbout { url: format!("limits:{}:{}", self.limits, inner.url), ..inner })
    }

    fn room_for(&self, clients: u32) -> Result<()> {
        self.inner.room_for(clients)
    }

    async fn client(&self, id: u32) -> Result<Arc<dyn Client>> {
        let guard = Arc::new(self.service.client());
        Ok(Arc::new(GuardedClient { inner: self.inner.client(id).await?, guard }))
    }
}

impl CallGuard for ServiceClient {
    async fn call<T: Send>(
        &self,
        _kind: &'static str,
        path: &str,
        bytes: u64,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        self.limited(path, bytes, call).await
    }

    fn count(&self, calls: &mut Calls) {
        calls.insert(BUSY_CALL, self.busy());
    }
}
