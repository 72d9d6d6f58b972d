//! A store whose calls are counted, by kind.

use std::sync::{Arc, Mutex, PoisonError};

use origin_object::ObjectStore;
use types::Result;

use crate::target::Calls;

pub struct Counted {
    pub store: Arc<dyn ObjectStore>,
    calls: Mutex<Calls>,
}

impl Counted {
    pub fn new(store: Arc<dyn ObjectStore>) -> Counted {
        Counted { store, calls: Mutex::default() }
    }

    pub async fn call<T>(&self, kind: &'static str, call: impl Future<Output = Result<T>>) -> Result<T> {
        *self.calls.lock().unwrap_or_else(PoisonError::into_inner).entry(kind).or_default() += 1;
        call.await
    }

    pub fn calls(&self) -> Calls {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
