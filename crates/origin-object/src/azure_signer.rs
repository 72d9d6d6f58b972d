//! Signatures of requests to one Azure account, and the permissions that let the store read the source of a copy.

use ::http::header::{self, HeaderName, HeaderValue};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use chrono::{SecondsFormat, TimeDelta, Utc};
use object_store::azure::{AzureAuthorizer, AzureCredential, AzureCredentialProvider};
use object_store::client::HttpRequest;
use percent_encoding::utf8_percent_encode;
use ring::hmac;
use types::{Error, ErrorKind, OutageReason, Result};

use crate::url_encoding::QUERY;

/// The protocol version, the first in which names that XML cannot hold are encoded in listings.
const VERSION: &str = "2021-12-02";
const X_MS_VERSION: HeaderName = HeaderName::from_static("x-ms-version");
/// How long the store may read a copy's source, by the permission (SAS) that we give it.
const COPY_MAY_TAKE: TimeDelta = TimeDelta::hours(1);

/// Signs requests to one account.
pub struct AzureSigner {
    pub account: String,
    pub container: String,
    /// `None`: unsigned, for a public container.
    pub credentials: Option<AzureCredentialProvider>,
    /// The account's key, if we have it: it also signs permissions.
    pub key: Option<hmac::Key>,
}

impl AzureSigner {
    async fn credential(&self) -> Result<Option<std::sync::Arc<AzureCredential>>> {
        let Some(credentials) = &self.credentials else { return Ok(None) };
        credentials.get_credential().await.map(Some).map_err(|e| {
            let advice = "give AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CONNECTION_STRING, an identity \
                          to this machine, or ?anonymous=yes";
            Error::outage(OutageReason::Credentials, "find credentials", advice).with_source(e)
        })
    }

    pub async fn sign(&self, request: ::http::Request<Bytes>) -> Result<::http::Request<Bytes>> {
        let (mut parts, data) = request.into_parts();
        parts.headers.insert(X_MS_VERSION, HeaderValue::from_static(VERSION));
        // Azure requires the length of an empty body, too, and it is signed.
        if parts.method == ::http::Method::PUT {
            parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(data.len()));
        }
        let mut unsigned = HttpRequest::from_parts(parts, Bytes::new().into());
        if let Some(credential) = self.credential().await? {
            AzureAuthorizer::new(&credential, &self.account)
                .try_authorize(&mut unsigned)
                .map_err(|e| Error::new(ErrorKind::Io, "sign", "a request").with_source(e))?;
        }
        Ok(unsigned.map(|_| data))
    }

    /// The URL by which the store reads the source of a copy, and the authorization for it.
    pub async fn copy_source(&self, url: String) -> Result<(String, Option<String>)> {
        let Some(credential) = self.credential().await? else { return Ok((url, None)) };
        let with = |pairs: &[(String, String)]| {
            let pairs =
                pairs.iter().map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, QUERY)));
            format!("{url}?{}", pairs.collect::<Vec<_>>().join("&"))
        };
        Ok(match (&*credential, &self.key) {
            (AzureCredential::SASToken(pairs), _) => (with(pairs), None),
            (AzureCredential::BearerToken(token), _) => (url, Some(format!("Bearer {token}"))),
            (AzureCredential::AccessKey(_), Some(key)) => (with(&self.may_read(key)), None),
            (AzureCredential::AccessKey(_), None) => (url, None),
        })
    }

    /// A service SAS: permits reading the container's blobs for a while.
    fn may_read(&self, key: &hmac::Key) -> Vec<(String, String)> {
        let until = (Utc::now() + COPY_MAY_TAKE).to_rfc3339_opts(SecondsFormat::Secs, true);
        let place = format!("/blob/{}/{}", self.account, self.container);
        // In the order of the protocol; empty fields are left out.
        let said = ["r", "", &until, &place, "", "", "", VERSION, "c", "", "", "", "", "", "", ""].join("\n");
        let signature = BASE64_STANDARD.encode(hmac::sign(key, said.as_bytes()));
        [("sv", VERSION), ("se", &until), ("sr", "c"), ("sp", "r"), ("sig", &signature)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec()
    }
}
