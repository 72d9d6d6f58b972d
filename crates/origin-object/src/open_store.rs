//! From a URL to its store.

use std::sync::Arc;

use types::Result;

use crate::azure::AzureStore;
use crate::credential_env::CredentialEnv;
use crate::gcs::GcsStore;
use crate::http::Http;
use crate::s3::S3Store;
use crate::store::ObjectStore;
use crate::url::{Config, Dialect};

/// The store that a URL names, with the credentials of this machine. Makes no request yet.
pub fn open_store(config: &Config) -> Result<Arc<dyn ObjectStore>> {
    open_store_as(config, None)
}

/// With these variables instead of the environment's.
pub fn open_store_as(config: &Config, environment: Option<&CredentialEnv>) -> Result<Arc<dyn ObjectStore>> {
    open_store_over(config, Http::new()?, environment)
}

/// With no connections but those that requests are waiting for, as a client of a load has them.
pub fn open_store_without_spares(config: &Config) -> Result<Arc<dyn ObjectStore>> {
    open_store_over(config, Http::with_spares(0)?, None)
}

fn open_store_over(
    config: &Config,
    http: Http,
    environment: Option<&CredentialEnv>,
) -> Result<Arc<dyn ObjectStore>> {
    Ok(match config.dialect {
        Dialect::S3 => Arc::new(S3Store::new(config, http, environment)?),
        Dialect::Azure => Arc::new(AzureStore::new(config, http, environment)?),
        Dialect::Gcs => Arc::new(GcsStore::new(config, http, environment)?),
    })
}
