//! The endpoint, the region and the credentials of an S3 store: from the URL, the environment, a profile or the machine,
//! as the store's own tools find them.

use std::path::{Path, PathBuf};

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use types::{Error, ErrorKind, Result};

use crate::connector::Connector;
use crate::credential_env::CredentialEnv;
use crate::http::Http;
use crate::profile::AwsProfile;
use crate::secret_file;
use crate::sign::StoreSigner;
use crate::url::Config;

const REGION: &str = "us-east-1";

/// What environment and files say of an S3 store, besides its keys.
pub struct S3Endpoint {
    pub signer: StoreSigner,
    pub region: String,
    pub endpoint: Option<String>,
}

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
