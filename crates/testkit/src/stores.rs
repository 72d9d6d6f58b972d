//! One store of each dialect, so that the same test runs over all of them: real ones, but for Google's.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::azurite::{self, Azurite};
use crate::gcs::Gcs;
use crate::lab::{NotRun, not_run};
use crate::minio::{self, Minio};

pub enum RealStore {
    S3(Minio),
    Azure(Azurite),
    Gcs(Gcs),
}

/// Run `scenario` with each store. Prints "not run" with the reason where one is not there, and fails then if
/// FOREBAY_MUST_RUN is set.
pub async fn on_each_store<F: Future<Output = ()>>(name: &str, scenario: impl Fn(RealStore) -> F) {
    for start in STARTS {
        on(start, name, &scenario).await;
    }
}

/// Run `scenario` with an S3 store alone: what it shows does not depend on the dialect.
pub async fn on_an_s3_store<F: Future<Output = ()>>(name: &str, scenario: impl Fn(RealStore) -> F) {
    on(STARTS[0], name, &scenario).await;
}

type Start = fn() -> Result<RealStore, NotRun>;

const STARTS: [Start; 3] = [
    || Minio::start().map(RealStore::S3),
    || Azurite::start().map(RealStore::Azure),
    || Gcs::start().map(RealStore::Gcs),
];

async fn on<F: Future<Output = ()>>(start: Start, name: &str, scenario: &impl Fn(RealStore) -> F) {
    match start() {
        Ok(store) => {
            // What is printed of a test that fails says over which one.
            println!("over {}", store.endpoint());
            scenario(store).await;
        }
        Err(NotRun(reason)) => not_run(name, &reason),
    }
}

impl RealStore {
    pub fn is_azure(&self) -> bool {
        matches!(self, RealStore::Azure(_))
    }

    pub fn is_s3(&self) -> bool {
        matches!(self, RealStore::S3(_))
    }

    pub fn address(&self) -> SocketAddr {
        match self {
            RealStore::S3(minio) => minio.address(),
            RealStore::Azure(azurite) => azurite.address(),
            RealStore::Gcs(gcs) => gcs.address(),
        }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address())
    }

    pub fn make_bucket(&self, name: &str) {
        match self {
            RealStore::S3(minio) => minio.make_bucket(name),
            RealStore::Azure(azurite) => azurite.make_container(name),
            RealStore::Gcs(gcs) => gcs.make_bucket(name),
        }
    }

    /// A bucket's URL; `options` begin with `&`.
    pub fn url(&self, bucket: &str, prefix: &str, options: &str) -> String {
        self.url_by(&self.endpoint(), bucket, prefix, options)
    }

    /// By another way to it.
    pub fn url_by(&self, endpoint: &str, bucket: &str, prefix: &str, options: &str) -> String {
        let place = match self {
            RealStore::S3(_) => format!("s3://{bucket}"),
            RealStore::Azure(_) => format!("az://{}/{bucket}", azurite::ACCOUNT),
            RealStore::Gcs(_) => format!("gs://{bucket}"),
        };
        format!("{place}/{prefix}?endpoint={endpoint}{options}")
    }

    /// A file with the keys, for a URL's `credentials`.
    pub fn credentials(&self) -> PathBuf {
        match self {
            RealStore::S3(minio) => minio.credentials(),
            RealStore::Azure(azurite) => azurite.credentials(),
            RealStore::Gcs(gcs) => gcs.credentials(),
        }
    }

    /// The keys, for clients that look for them in the environment.
    pub fn environment(&self) -> Vec<(&'static str, &'static str)> {
        match self {
            RealStore::S3(_) => minio::environment().to_vec(),
            RealStore::Azure(_) => azurite::environment().to_vec(),
            // Nobody: an emulator is not told who asks.
            RealStore::Gcs(_) => Vec::new(),
        }
    }
}
