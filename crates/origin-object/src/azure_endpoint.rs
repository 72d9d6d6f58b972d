//! The endpoint and the credentials of a container: from the URL, a file, the environment or the machine.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use object_store::RetryConfig;
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use ring::hmac;
use types::{Error, ErrorKind, Result};

use crate::azure_signer::AzureSigner;
use crate::connection_string::ConnectionString;
use crate::connector::Connector;
use crate::credential_env::CredentialEnv;
use crate::http::Http;
use crate::secret_file;
use crate::sign::StoreSigner;
use crate::url::{Addressing, Config};

const SUFFIX: &str = "core.windows.net";

pub struct AzureEndpoint {
    pub signer: StoreSigner,
    /// The container's URL, without a slash at its end.
    pub root: String,
}

/// What variables say. A connection string replaces the variables for its parts.
#[derive(Debug, Default, PartialEq, Eq)]
struct EnvSettings {
    account: Option<String>,
    /// The URL of the account.
    endpoint: Option<String>,
    /// Credentials, by `object_store`'s names.
    credentials: Vec<(AzureConfigKey, String)>,
}

impl EnvSettings {
    fn by(variables: &[(String, String)]) -> std::result::Result<EnvSettings, String> {
        let mut said = EnvSettings::default();
        for (name, value) in variables.iter().filter(|(_, value)| !value.is_empty()) {
            let text = || Some(value.clone());
            match name.as_str() {
                "AZURE_STORAGE_ACCOUNT" | "AZURE_STORAGE_ACCOUNT_NAME" => said.account = text(),
                "AZURE_STORAGE_ENDPOINT" => said.endpoint = text(),
                "AZURE_STORAGE_CONNECTION_STRING" => {
                    let parsed = ConnectionString::parse(value);
                    said.connection(&parsed.map_err(|why| format!("{name}: {why}"))?);
                }
                "AZURE_STORAGE_KEY" => said.credentials.push((AzureConfigKey::AccessKey, value.clone())),
                name => {
                    if let Some(key) = name.to_ascii_lowercase().parse().ok().filter(is_credential) {
                        said.credentials.push((key, value.clone()));
                    }
                }
            }
        }
        Ok(said)
    }

    fn connection(&mut self, string: &ConnectionString) {
        let part = |name: &str| string.get(name);
        let suffix = |account: &String| {
            let (scheme, suffix) = (part("DefaultEndpointsProtocol"), part("EndpointSuffix")?);
            Some(format!("{}://{account}.blob.{suffix}", scheme.as_deref().unwrap_or("https")))
        };
        self.account = part("AccountName").or(self.account.take());
        let endpoint = part("BlobEndpoint").or_else(|| self.account.as_ref().and_then(suffix));
        self.endpoint = endpoint.or(self.endpoint.take());
        let key = part("AccountKey").map(|key| (AzureConfigKey::AccessKey, key));
        let sas = part("SharedAccessSignature").map(|sas| (AzureConfigKey::SasKey, sas));
        self.credentials.extend(key.or(sas));
    }

    fn key(&self) -> Option<&str> {
        let key = self.credentials.iter().find(|(name, _)| *name == AzureConfigKey::AccessKey);
        key.map(|(_, value)| value.as_str())
    }
}

fn is_credential(key: &AzureConfigKey) -> bool {
    use AzureConfigKey as K;
    matches!(
        key,
        K::AccessKey
            | K::SasKey
            | K::Token
            | K::ClientId
            | K::ClientSecret
            | K::AuthorityId
            | K::AuthorityHost
            | K::FederatedTokenFile
            | K::MsiEndpoint
            | K::ObjectId
            | K::MsiResourceId
            | K::UseAzureCli
            | K::CredentialType
    )
}

impl AzureEndpoint {
    /// From a file's variables, if the URL names one, else from the environment's; without any the machine is asked
    /// (workload identity, managed identity).
    pub fn of(config: &Config, http: &Http, environment: Option<&CredentialEnv>) -> Result<AzureEndpoint> {
        let wrong = |why: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Config, "origin", format!("{}: {why}", config.url()))
        };
        let said = EnvSettings::by(&variables(config, environment)?).map_err(|why| wrong(&why))?;
        let account = &config.account;
        let root = root_of(config, said.endpoint.as_deref());
        let azure = |credentials, key| {
            let (account, container) = (account.clone(), config.bucket.clone());
            StoreSigner::Azure(AzureSigner { account, container, credentials, key })
        };
        if config.anonymous {
            return Ok(AzureEndpoint { signer: azure(None, None), root });
        }
        if let (Some(other), Some(_)) = (said.account.as_ref().filter(|other| *other != account), said.key())
        {
            return Err(wrong(&format!("the key that is given is of account {other}, not of {account}")));
        }
        let key = said.key().map(|key| {
            let bytes = BASE64_STANDARD.decode(key);
            bytes.map_err(|_| wrong(&"the account's key should be Base64, as the portal shows it"))
        });
        let key = key.transpose()?.map(|bytes| hmac::Key::new(hmac::HMAC_SHA256, &bytes));
        let mut builder = MicrosoftAzureBuilder::new()
            .with_account(account)
            .with_container_name(&config.bucket)
            .with_http_connector(Connector(http.clone()))
            // Without credentials the machine is asked for some, and may have none.
            .with_retry(RetryConfig {
                max_retries: 2,
                retry_timeout: std::time::Duration::from_secs(10),
                ..RetryConfig::default()
            });
        for (name, value) in said.credentials {
            builder = builder.with_config(name, value);
        }
        let store = builder.build().map_err(|e| wrong(&e))?;
        Ok(AzureEndpoint { signer: azure(Some(store.credentials().clone()), key), root })
    }
}

/// The container's URL.
fn root_of(config: &Config, endpoint: Option<&str>) -> String {
    let (account, container) = (&config.account, &config.bucket);
    let of_account = match (&config.endpoint, endpoint) {
        (Some(endpoint), _) => match (config.addressing, endpoint.split_once("://")) {
            (Some(Addressing::Virtual), Some((scheme, host))) => format!("{scheme}://{account}.{host}"),
            _ => format!("{endpoint}/{account}"),
        },
        (None, Some(endpoint)) => endpoint.trim_end_matches('/').to_owned(),
        (None, None) => format!("https://{account}.blob.{SUFFIX}"),
    };
    format!("{of_account}/{container}")
}

fn variables(config: &Config, environment: Option<&CredentialEnv>) -> Result<Vec<(String, String)>> {
    if let Some(path) = &config.credentials {
        return Ok(assignments(&secret_file::read(path)?));
    }
    Ok(match environment {
        Some(given) => given.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        None => std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
    })
}

/// `NAME=value` lines, as systemd's environment files have them.
fn assignments(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';']));
    let pairs = lines.filter_map(|line| line.strip_prefix("export ").unwrap_or(line).split_once('='));
    let plain = |value: &str| {
        let value = value.trim();
        let inside = ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
        inside.unwrap_or(value).to_owned()
    };
    pairs.map(|(name, value)| (name.trim().to_owned(), plain(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(pairs: &[(&str, &str)]) -> EnvSettings {
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        EnvSettings::by(&pairs).unwrap()
    }

    #[test]
    fn a_connection_string_says_account_key_and_endpoint() {
        let text =
            "DefaultEndpointsProtocol=http;AccountName=acc;AccountKey=a2V5==;BlobEndpoint=http://h:1/acc;";
        let by_string = said(&[("AZURE_STORAGE_CONNECTION_STRING", text)]);
        assert_eq!((by_string.account.as_deref(), by_string.key()), (Some("acc"), Some("a2V5==")));
        assert_eq!(by_string.endpoint.as_deref(), Some("http://h:1/acc"));
        let text = "AccountName=acc;AccountKey=a2V5;EndpointSuffix=core.chinacloudapi.cn";
        let china = said(&[("AZURE_STORAGE_CONNECTION_STRING", text)]);
        assert_eq!(china.endpoint.as_deref(), Some("https://acc.blob.core.chinacloudapi.cn"));
        let sas = said(&[("AZURE_STORAGE_CONNECTION_STRING", "SharedAccessSignature=sv=1&sig=x%3D")]);
        assert_eq!(sas.credentials, [(AzureConfigKey::SasKey, "sv=1&sig=x%3D".into())]);
    }

    #[test]
    fn a_connection_string_that_cannot_be_read_is_no_reason_to_ask_the_machine() {
        let pairs = [("AZURE_STORAGE_CONNECTION_STRING".to_owned(), "AccountName=acc;Key=a2V5".to_owned())];
        let told = EnvSettings::by(&pairs).unwrap_err();
        assert!(told.starts_with("AZURE_STORAGE_CONNECTION_STRING: its part 2"), "{told}");
    }

    #[test]
    fn the_fields_variables_are_known_and_others_are_not() {
        let known = said(&[
            ("AZURE_STORAGE_ACCOUNT", "acc"),
            ("AZURE_STORAGE_KEY", "a2V5"),
            ("AZURE_TENANT_ID", "t"),
            ("AZURE_STORAGE_USE_EMULATOR", "true"),
            ("AZURE_STORAGE_SAS_TOKEN", ""),
            ("PATH", "/bin"),
        ]);
        assert_eq!((known.account.as_deref(), known.key()), (Some("acc"), Some("a2V5")));
        assert_eq!(known.credentials.len(), 2);
    }

    #[test]
    fn a_file_of_variables_is_read_as_systemd_reads_it() {
        let text = "# of the farm\nAZURE_STORAGE_KEY=a=b==\nexport A='x y'\n\nB = \"z\"\nnothing\n";
        let pairs = [("AZURE_STORAGE_KEY", "a=b=="), ("A", "x y"), ("B", "z")];
        assert_eq!(assignments(text), pairs.map(|(name, value)| (name.into(), value.into())));
    }

    #[test]
    fn a_container_is_where_the_url_says() {
        let root = |url: &str, endpoint| root_of(&Config::from_url(url).unwrap(), endpoint);
        assert_eq!(root("az://acc/con/p", None), "https://acc.blob.core.windows.net/con");
        assert_eq!(root("az://acc/con", Some("http://h:1/acc/")), "http://h:1/acc/con");
        assert_eq!(root("az://acc/con?endpoint=http://h:1", Some("http://i")), "http://h:1/acc/con");
        let own = "az://acc/con?endpoint=https://blob.core.usgovcloudapi.net&addressing=virtual";
        assert_eq!(root(own, None), "https://acc.blob.core.usgovcloudapi.net/con");
    }
}
