//! Credentials, found as the stores' own tools find them, and signatures with them.
//!
//! Both are `object_store`'s but for Google's (`gcs_tokens.rs`); its calls are not used
//! (docs/decisions/0005-own-object-calls.md).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::http::Request;
use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::BodyExt;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsAuthorizer};
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use ring::digest::{self, Digest};
use types::{Error, ErrorKind, OutageReason, Result};

use crate::azure_endpoint;
use crate::gcs_tokens::AccessTokens;
use crate::http::Http;
use crate::profile::AwsProfile;
use crate::secret_file;
use crate::url::Config;

type AwsCredentials = Arc<dyn CredentialProvider<Credential = AwsCredential>>;

/// [`CredentialEnv`], kept for when credentials are looked for anew.
pub fn owned(environment: Option<&CredentialEnv>) -> Option<Vec<(&'static str, &'static str)>> {
    environment.map(<[_]>::to_vec)
}

/// How requests to a store are signed.
pub enum StoreSigner {
    /// Unsigned, for a public bucket.
    Nobody,
    Aws {
        credentials: AwsCredentials,
        region: String,
    },
    Azure(azure_endpoint::AzureSigner),
    Google(Box<AccessTokens>),
}

/// What environment and files say of an S3 store, besides its keys.
pub struct S3Endpoint {
    pub signer: StoreSigner,
    pub region: String,
    pub endpoint: Option<String>,
}

const HASH_AT_ONCE_MAX: usize = 64 << 10;
const REGION: &str = "us-east-1";

/// Variables that replace those of this process.
pub type CredentialEnv = [(&'static str, &'static str)];

impl S3Endpoint {
    /// First the URL, then the environment, then the profile, then the machine (web identity, container, instance
    /// metadata).
    pub fn of_s3(config: &Config, http: &Http, environment: Option<&CredentialEnv>) -> Result<S3Endpoint> {
        let wrong = |e: object_store::Error| {
            Error::new(ErrorKind::Config, "origin", format!("{}: {e}", config.url()))
        };
        let mut builder = match environment {
            None => AmazonS3Builder::from_env(),
            Some(variables) => variables.iter().fold(AmazonS3Builder::new(), |builder, (name, value)| {
                match name.to_ascii_lowercase().parse() {
                    Ok(key) => builder.with_config(key, *value),
                    Err(_) => builder,
                }
            }),
        };
        let has = |builder: &AmazonS3Builder, key| builder.get_config_value(&key).is_some();
        let asked = config.profile.clone().or_else(|| std::env::var("AWS_PROFILE").ok());
        let of_a_file = config.profile.is_some() || config.credentials.is_some();
        let keys_in_environment = has(&builder, AmazonS3ConfigKey::AccessKeyId) && !of_a_file;
        let profile = profile(asked.as_deref(), config.credentials.as_deref())?;
        if !keys_in_environment
            && let Some(profile) = &profile
            && let (Some(key_id), Some(secret)) = (&profile.key_id, &profile.secret)
        {
            builder = builder.with_access_key_id(key_id).with_secret_access_key(secret);
            if let Some(token) = &profile.token {
                builder = builder.with_token(token);
            }
        }
        let told = |key| builder.get_config_value(&key);
        let of_profile = |take: fn(&AwsProfile) -> Option<String>| profile.as_ref().and_then(take);
        let region = config.region.clone().or_else(|| told(AmazonS3ConfigKey::Region));
        let region = region.or_else(|| told(AmazonS3ConfigKey::DefaultRegion));
        let region = region.or_else(|| of_profile(|profile| profile.region.clone()));
        let region = region.unwrap_or_else(|| REGION.to_owned());
        let endpoint = config.endpoint.clone().or_else(|| told(AmazonS3ConfigKey::Endpoint));
        let endpoint = endpoint.or_else(|| of_profile(|profile| profile.endpoint.clone()));
        if config.anonymous {
            return Ok(S3Endpoint { signer: StoreSigner::Nobody, region, endpoint });
        }
        let builder = builder.with_bucket_name(&config.bucket).with_region(&region);
        let store = builder.with_http_connector(Connector(http.clone())).build().map_err(wrong)?;
        let credentials = store.credentials().clone();
        Ok(S3Endpoint { signer: StoreSigner::Aws { credentials, region: region.clone() }, region, endpoint })
    }
}

/// The requested profile, or the one named default if there is one.
fn profile(asked: Option<&str>, credentials: Option<&Path>) -> Result<Option<AwsProfile>> {
    let file = |variable: &str, name: &str| {
        let path = std::env::var_os(variable).map(PathBuf::from);
        let path = path.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".aws").join(name)));
        path.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default()
    };
    let credentials = match credentials {
        None => file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
        Some(path) => secret_file::read(path)?,
    };
    let config = file("AWS_CONFIG_FILE", "config");
    let found = AwsProfile::find(asked.unwrap_or("default"), &credentials, &config)?;
    match (asked, found) {
        (Some(name), None) => {
            let message = format!("there is no profile \"{name}\" in the files of AWS profiles (~/.aws)");
            Err(Error::new(ErrorKind::Config, "origin", message))
        }
        (_, found) => Ok(found),
    }
}

impl StoreSigner {
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

/// Our connections, for `object_store`'s requests for credentials.
#[derive(Clone, Debug)]
pub struct Connector(pub Http);

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Connector {
    async fn call(&self, request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let data = body.collect().await?.to_bytes();
        let answer = self.0.send(Request::from_parts(parts, data)).await.map_err(|lost| {
            let kind = if lost.sent { HttpErrorKind::Interrupted } else { HttpErrorKind::Connect };
            HttpError::new(kind, lost)
        })?;
        let (parts, body) = answer.into_parts();
        let body = body.map_err(|e| HttpError::new(HttpErrorKind::Interrupted, e));
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
    }
}
