//! Makes a near origin far: every call takes a round trip more. For tests and demonstrations without a network.

use std::sync::Arc;
use std::time::Duration;

use types::Result;

use crate::{CallClass, Layer, Origin, OriginAnswer, OriginCall, Sending};

pub struct Delay {
    inner: Arc<dyn Origin>,
    round_trip: Duration,
}

impl Delay {
    pub fn new(inner: Arc<dyn Origin>, round_trip: Duration) -> Arc<Delay> {
        Arc::new(Delay { inner, round_trip })
    }
}

impl Layer for Delay {
    fn inner(&self) -> &dyn Origin {
        self.inner.as_ref()
    }

    async fn around<'a, A: OriginAnswer + 'a>(
        &'a self,
        call: OriginCall<'a>,
        send: impl Fn() -> Sending<'a, A> + Send + Sync + 'a,
    ) -> Result<A> {
        if call.class() != CallClass::Local {
            tokio::time::sleep(self.round_trip).await;
        }
        send().await
    }
}
