//! Credentials, found as Azure's tools find them, and signatures with them, which are `object_store`'s.

use std::path::Path;

use ::http::Request;
use bytes::Bytes;
use object_store::azure::{AzureAccessKey, AzureAuthorizer, AzureCredential, split_sas};
use object_store::client::{HttpRequest, HttpRequestBody};
use origin_object::connection_string::ConnectionString;
use origin_object::secret_file;
use types::{Error, ErrorKind, Result};

use crate::url::{Config, endpoint};

const CONNECTION: &str = "AZURE_STORAGE_CONNECTION_STRING";
const ACCOUNT: &str = "AZURE_STORAGE_ACCOUNT";
const KEY: &str = "AZURE_STORAGE_KEY";
const SAS: &str = "AZURE_STORAGE_SAS_TOKEN";

/// Variables that replace those of this process.
pub type EnvVars = Vec<(String, String)>;

pub struct AzFileSigner {
    account: String,
    credential: AzureCredential,
    /// The SAS as it was given, for URLs in headers.
    sas: Option<String>,
}

fn wrong(config: &Config, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Config, "origin", format!("{}: {why}", config.url()))
}

/// The endpoint, and how to sign for it: first the URL, then a connection string, a key, a SAS.
pub fn find(config: &Config, environment: Option<&EnvVars>) -> Result<(String, AzFileSigner)> {
    let variables = match (&config.credentials, environment) {
        (Some(path), _) => Some(of_file(path)?),
        (None, given) => given.cloned(),
    };
    let of = |name: &str| match &variables {
        Some(all) => all.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()),
        None => std::env::var(name).ok(),
    };
    let of = |name: &str| of(name).filter(|value| !value.is_empty());
    let connection = of(CONNECTION).map(|text| ConnectionString::parse(&text)).transpose();
    let connection = connection.map_err(|why| wrong(config, format!("{CONNECTION}: {why}")))?;
    let part = |name: &str| connection.as_ref()?.get(name);
    let account = part("AccountName").or_else(|| of(ACCOUNT));
    if let Some(other) = account.filter(|account| *account != config.account) {
        return Err(wrong(config, format!("the credentials are those of the account \"{other}\"")));
    }
    let host =
        format!("{}.file.{}", config.account, part("EndpointSuffix").unwrap_or("core.windows.net".into()));
    let told = match part("FileEndpoint") {
        Some(told) => {
            Some(endpoint(&told).ok_or_else(|| wrong(config, format!("FileEndpoint={told} is no URL")))?)
        }
        None => None,
    };
    let endpoint = config.endpoint.clone().or(told).unwrap_or_else(|| format!("https://{host}"));
    let (credential, sas) = match (
        part("AccountKey").or_else(|| of(KEY)),
        part("SharedAccessSignature").or_else(|| of(SAS)),
    ) {
        (Some(key), _) => {
            let key = AzureAccessKey::try_new(key.trim());
            let key = key.map_err(|_| wrong(config, "the account's key is not base64: copy all of it"))?;
            (AzureCredential::AccessKey(key), None)
        }
        (None, Some(sas)) => {
            let sas = sas.trim().trim_start_matches('?').to_owned();
            let pairs = split_sas(&sas)
                .map_err(|_| wrong(config, "the SAS token is not one: it looks like sv=...&sig=..."))?;
            if !pairs.iter().any(|(name, _)| name == "sig") {
                return Err(wrong(config, "the SAS token has no signature: it looks like sv=...&sig=..."));
            }
            (AzureCredential::SASToken(pairs), Some(sas))
        }
        (None, None) => {
            let why = format!(
                "no credentials; give {KEY} or {SAS} or {CONNECTION}, or ?credentials=FILE with one of them"
            );
            return Err(wrong(config, why));
        }
    };
    Ok((endpoint, AzFileSigner { account: config.account.clone(), credential, sas }))
}

fn of_file(path: &Path) -> Result<EnvVars> {
    let text = secret_file::read(path)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once('='));
    Ok(pairs
        .map(|(name, value)| (name.trim().to_owned(), value.trim().trim_matches('"').to_owned()))
        .collect())
}

impl AzFileSigner {
    pub fn sign(&self, request: Request<Bytes>) -> Result<Request<Bytes>> {
        let (parts, data) = request.into_parts();
        let mut unsigned = HttpRequest::from_parts(parts, HttpRequestBody::empty());
        AzureAuthorizer::new(&self.credential, &self.account)
            .try_authorize(&mut unsigned)
            .map_err(|e| Error::new(ErrorKind::Io, "sign", "a request").with_source(e))?;
        Ok(unsigned.map(|_| data))
    }

    /// The query that a URL in a header needs.
    pub fn query(&self) -> String {
        self.sas.as_ref().map(|sas| format!("?{sas}")).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Result<(String, AzFileSigner)> {
        let config = Config::from_url("azfile://farm01/show").unwrap();
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        find(&config, Some(&variables.collect()))
    }

    #[test]
    fn a_connection_string_a_key_and_a_sas_are_understood() {
        let connection = "DefaultEndpointsProtocol=https;AccountName=farm01;AccountKey=a2V5;EndpointSuffix=core.chinacloudapi.cn";
        let (endpoint, signer) = found(&[(CONNECTION, connection)]).unwrap();
        assert_eq!(endpoint, "https://farm01.file.core.chinacloudapi.cn");
        assert_eq!(signer.query(), "");
        let own = "FileEndpoint=http://10.0.0.1:80/;SharedAccessSignature=sv=1&sig=a%2Bb%3D";
        let (endpoint, signer) = found(&[(CONNECTION, own)]).unwrap();
        assert_eq!(
            (endpoint.as_str(), signer.query().as_str()),
            ("http://10.0.0.1:80", "?sv=1&sig=a%2Bb%3D")
        );
        let (endpoint, _) = found(&[(ACCOUNT, "farm01"), (KEY, "a2V5")]).unwrap();
        assert_eq!(endpoint, "https://farm01.file.core.windows.net");
        assert_eq!(found(&[(SAS, "?sv=1&sig=x")]).unwrap().1.query(), "?sv=1&sig=x");
    }

    #[test]
    fn what_is_wrong_with_credentials_is_told_without_them() {
        let mistakes: [(&[(&str, &str)], &str); 6] = [
            (&[(CONNECTION, "secret")], "no Name=value"),
            (&[], "no credentials"),
            (&[(ACCOUNT, "other"), (KEY, "a2V5")], "account \"other\""),
            (&[(KEY, "no base64!secret")], "not base64"),
            (&[(SAS, "secret")], "looks like"),
            (&[(SAS, "sv=secret")], "no signature"),
        ];
        for (variables, told) in mistakes {
            let text = found(variables).map(drop).expect_err(told).to_string();
            assert!(text.contains(told) && !text.contains("secret") && !text.contains('\n'), "{text}");
        }
    }
}
