//! Signatures of requests to stores.
//!
//! They and most credentials are `object_store`'s, but for Google's (`gcs_tokens.rs`); its calls are not used
//! (docs/decisions/0005-own-object-calls.md). Where credentials are found: `s3_endpoint.rs`, `azure_endpoint.rs`,
//! `gcs_endpoint.rs`.

use std::sync::Arc;

use ::http::Request;
use ::origin::renewable_signer::RenewableSigner;
use bytes::Bytes;
use object_store::CredentialProvider;
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::{HttpRequest, HttpRequestBody};
use ring::digest::{self, Digest};
use types::{Error, ErrorKind, OutageReason, Result};

use crate::azure_signer::AzureSigner;
use crate::credential_env::CredentialEnv;
use crate::gcs_tokens::AccessTokens;
use crate::http::Http;
use crate::url::Config;

type AwsCredentials = Arc<dyn CredentialProvider<Credential = AwsCredential>>;

/// How requests to a store are signed.
pub enum StoreSigner {
    /// Unsigned, for a public bucket.
    Nobody,
    Aws {
        credentials: AwsCredentials,
        region: String,
    },
    Azure(AzureSigner),
    Google(Box<AccessTokens>),
}

const HASH_AT_ONCE_MAX: usize = 64 << 10;
/// Finds the signer of a store: in its URL, files, the environment or the machine, as they are now.
type FindSigner = fn(&Config, &Http, Option<&CredentialEnv>) -> Result<StoreSigner>;

impl StoreSigner {
    /// This signer, until a store refuses it: then credentials are looked for anew, in the same places.
    pub fn renewed_by(
        self,
        find: FindSigner,
        (config, http, environment): (&Config, &Http, Option<&CredentialEnv>),
    ) -> RenewableSigner<StoreSigner> {
        let (config, http, environment) = (config.clone(), http.clone(), environment.map(<[_]>::to_vec));
        RenewableSigner::new(self, move || find(&config, &http, environment.as_deref()))
    }

    /// Signs with the body's SHA-256, which the store compares with what arrives. Unsigned requests rely on TCP.
    pub async fn sign(&self, request: Request<Bytes>) -> Result<Request<Bytes>> {
        let (credentials, region) = match self {
            StoreSigner::Nobody => return Ok(request),
            StoreSigner::Azure(azure) => return azure.sign(request).await,
            StoreSigner::Google(tokens) => return tokens.sign(request).await,
            StoreSigner::Aws { credentials, region } => (credentials, region),
        };
        let credential = credentials.get_credential().await.map_err(|e| {
            let advice = "give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or ?anonymous=yes";
            Error::outage(OutageReason::Credentials, "find credentials", advice).with_source(e)
        })?;
        let (parts, data) = request.into_parts();
        let hashed = sha256(data.clone()).await?;
        let mut unsigned = HttpRequest::from_parts(parts, HttpRequestBody::empty());
        AwsAuthorizer::new(&credential, "s3", region)
            .try_authorize(&mut unsigned, Some(hashed.as_ref()))
            .map_err(|e| Error::new(ErrorKind::Io, "sign", "a request").with_source(e))?;
        Ok(unsigned.map(|_| data))
    }
}

impl StoreSigner {
    /// The URL by which the store reads one of its objects, and the authorization for it.
    pub async fn copy_source(&self, url: String) -> Result<(String, Option<String>)> {
        match self {
            StoreSigner::Azure(azure) => azure.copy_source(url).await,
            StoreSigner::Nobody | StoreSigner::Aws { .. } | StoreSigner::Google(_) => Ok((url, None)),
        }
    }
}

/// On a blocking thread if it takes long: 8 MiB are some milliseconds.
async fn sha256(data: Bytes) -> Result<Digest> {
    let hash = |data: &[u8]| digest::digest(&digest::SHA256, data);
    if data.len() <= HASH_AT_ONCE_MAX {
        return Ok(hash(&data));
    }
    let hashed = tokio::task::spawn_blocking(move || hash(&data)).await;
    hashed.map_err(|e| Error::new(ErrorKind::Io, "hash", "a request").with_source(e))
}
