//! An origin with the limits of a service in front of it.

use std::fmt::Write;
use std::sync::Arc;

use types::Result;

use super::{EmulatedService, ServiceClient, ServiceLimits};
use crate::{CallClass, Layer, Origin, OriginAnswer, OriginCall, Reference, Sending};

pub struct LimitedOrigin {
    inner: Arc<dyn Origin>,
    client: ServiceClient,
}

impl LimitedOrigin {
    pub fn new(inner: Arc<dyn Origin>, limits: ServiceLimits) -> Arc<LimitedOrigin> {
        Arc::new(LimitedOrigin { inner, client: EmulatedService::new(limits).client() })
    }

    async fn request<T>(
        &self,
        object: &Reference,
        bytes: u64,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let name = object.0.iter().fold(String::new(), |mut name, byte| {
            let _ = write!(name, "{byte:02x}");
            name
        });
        self.client.limited(&name, bytes, call).await
    }
}

impl Layer for LimitedOrigin {
    fn inner(&self) -> &dyn Origin {
        self.inner.as_ref()
    }

    async fn around<'a, A: OriginAnswer + 'a>(
        &'a self,
        call: OriginCall<'a>,
        send: impl Fn() -> Sending<'a, A> + Send + Sync + 'a,
    ) -> Result<A> {
        match call.object() {
            Some(object) if call.class() != CallClass::Local => {
                self.request(object, call.bytes(), send()).await
            }
            // Calls about the store as a whole are made when it is set up, by nobody who is measured.
            _ => send().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use types::{ByteRange, Name};

    use super::*;

    #[tokio::test]
    async fn it_tells_what_the_directory_behind_it_can_never_take() {
        let dir = tempfile::tempdir().expect("directory");
        let plain = Arc::new(crate::posix::PosixOrigin::open(dir.path()).expect("opened"));
        let limited = LimitedOrigin::new(plain.clone(), "file=2MiB/s".parse().expect("limits"));
        assert_eq!(limited.limits().await.expect("told"), plain.limits().await.expect("told"));
        assert!(limited.demand_path(&[b'x'; 20_000], false).is_err());
    }

    /// How much slower it may be is this machine's business.
    #[tokio::test]
    async fn a_file_is_read_no_faster_than_its_limit() {
        let dir = tempfile::tempdir().expect("directory");
        std::fs::write(dir.path().join("a"), vec![7; 1 << 20]).expect("written");
        let plain = crate::posix::PosixOrigin::open(dir.path()).expect("opened");
        let limited = LimitedOrigin::new(Arc::new(plain), "file=2MiB/s".parse().expect("limits"));
        let root = limited.root().await.expect("there").reference;
        let file = limited.lookup(&root, &Name::new(b"a".to_vec()).expect("a name")).await.expect("there");
        let begun = std::time::Instant::now();
        for block in 0..4 {
            let range = ByteRange::new(block << 18, 1 << 18);
            let bytes = limited.read(&file.reference, file.version, range).await.expect("read");
            assert_eq!(bytes.len(), 1 << 18);
        }
        assert!(begun.elapsed().as_secs_f64() > 0.4, "{:?} for half a second's worth", begun.elapsed());
    }
}
