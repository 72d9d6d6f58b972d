//! The endpoint of Google's store and our identity there: from the URL, a file, the environment or the machine.

use std::path::{Path, PathBuf};

use types::{Error, ErrorKind, Result};

use crate::credential_env::CredentialEnv;
use crate::gcs_tokens::{AccessTokens, TokenSource};
use crate::http::Http;
use crate::secret_file;
use crate::sign::StoreSigner;
use crate::url::Config;

const ENDPOINT: &str = "https://storage.googleapis.com";
const METADATA_HOST: &str = "metadata.google.internal";

pub struct GcsEndpoint {
    pub signer: StoreSigner,
    /// Without a slash at its end.
    pub endpoint: String,
}

/// Where our identity comes from.
#[derive(Debug, PartialEq, Eq)]
enum GcsIdentity {
    Nobody,
    /// A credentials file. It must exist if somebody named it.
    File(PathBuf),
    /// The machine's own identity, from its metadata server.
    Machine(String),
}

impl GcsEndpoint {
    /// In the order of Google's tools: a named file, gcloud's file, the machine. An emulator gets no credentials,
    /// nor does any endpoint over plain HTTP, unless the URL names a file for it.
    pub fn of(config: &Config, http: &Http, environment: Option<&CredentialEnv>) -> Result<GcsEndpoint> {
        let variable = |name: &str| match environment {
            Some(given) => {
                given.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            }
            None => std::env::var(name).ok(),
        };
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let endpoint = endpoint(config.endpoint.as_deref(), &variable);
        let way = match find_identity(config, &endpoint, &variable, &|path| path.is_file()) {
            GcsIdentity::Nobody => None,
            GcsIdentity::Machine(host) => Some(TokenSource::Machine { host }),
            GcsIdentity::File(path) => {
                let wrong = |why: String| {
                    let message = format!("cannot use the credentials in {}: {why}", path.display());
                    Error::new(ErrorKind::Config, "origin", message)
                };
                let text = secret_file::read(&path)?;
                Some(TokenSource::of_file(&text).map_err(wrong)?)
            }
        };
        let signer = way.map_or(StoreSigner::Nobody, |way| {
            StoreSigner::Google(Box::new(AccessTokens::new(http.clone(), way)))
        });
        Ok(GcsEndpoint { signer, endpoint })
    }
}

fn endpoint(of_url: Option<&str>, variable: &dyn Fn(&str) -> Option<String>) -> String {
    let emulator = || variable("STORAGE_EMULATOR_HOST");
    let endpoint = of_url.map(str::to_owned).or_else(emulator).unwrap_or_else(|| ENDPOINT.to_owned());
    let endpoint = endpoint.trim_end_matches('/');
    if endpoint.contains("://") { endpoint.to_owned() } else { format!("http://{endpoint}") }
}

fn find_identity(
    config: &Config,
    endpoint: &str,
    variable: &dyn Fn(&str) -> Option<String>,
    is_file: &dyn Fn(&Path) -> bool,
) -> GcsIdentity {
    if let Some(path) = config.credentials.clone().filter(|_| !config.anonymous) {
        return GcsIdentity::File(path);
    }
    if config.anonymous || endpoint.starts_with("http://") {
        return GcsIdentity::Nobody;
    }
    if let Some(path) = variable("GOOGLE_APPLICATION_CREDENTIALS") {
        return GcsIdentity::File(PathBuf::from(path));
    }
    let gcloud = variable("CLOUDSDK_CONFIG").map(PathBuf::from);
    let gcloud = gcloud.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".config/gcloud")));
    let gcloud = gcloud.map(|dir| dir.join("application_default_credentials.json"));
    match gcloud.filter(|path| is_file(path)) {
        Some(path) => GcsIdentity::File(path),
        None => {
            GcsIdentity::Machine(variable("GCE_METADATA_HOST").unwrap_or_else(|| METADATA_HOST.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_we_are_is_looked_for_where_googles_tools_look() {
        let of = |url: &str, variables: &[(&str, &str)], file: &str| {
            let config = Config::from_url(url).unwrap();
            let variable = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            let endpoint = endpoint(config.endpoint.as_deref(), &variable);
            (find_identity(&config, &endpoint, &variable, &|path| path == Path::new(file)), endpoint)
        };
        let google = |who| (who, ENDPOINT.to_owned());
        let file = |path: &str| GcsIdentity::File(PathBuf::from(path));
        let adc = ("GOOGLE_APPLICATION_CREDENTIALS", "/adc.json");
        assert_eq!(of("gs://bucket?credentials=/k", &[adc], ""), google(file("/k")));
        assert_eq!(of("gs://bucket", &[adc, ("HOME", "/h")], ""), google(file("/adc.json")));
        let gcloud = "/h/.config/gcloud/application_default_credentials.json";
        assert_eq!(of("gs://bucket", &[("HOME", "/h")], gcloud), google(file(gcloud)));
        let moved = "/c/application_default_credentials.json";
        let both = [("HOME", "/h"), ("CLOUDSDK_CONFIG", "/c")];
        assert_eq!(of("gs://bucket", &both, moved), google(file(moved)));
        assert_eq!(
            of("gs://bucket", &[("HOME", "/h")], ""),
            google(GcsIdentity::Machine(METADATA_HOST.into()))
        );
        let metadata = [("GCE_METADATA_HOST", "127.0.0.1:8")];
        assert_eq!(of("gs://bucket", &metadata, ""), google(GcsIdentity::Machine("127.0.0.1:8".into())));
        assert_eq!(of("gs://bucket?anonymous=yes&credentials=/k", &[adc], ""), google(GcsIdentity::Nobody));
        // An emulator, and a private endpoint.
        let emulator = [adc, ("STORAGE_EMULATOR_HOST", "localhost:9023")];
        assert_eq!(of("gs://bucket", &emulator, ""), (GcsIdentity::Nobody, "http://localhost:9023".into()));
        let own = "gs://bucket?endpoint=http://127.0.0.1:1";
        assert_eq!(of(own, &emulator, ""), (GcsIdentity::Nobody, "http://127.0.0.1:1".into()));
        let named = format!("{own}&credentials=/k");
        assert_eq!(of(&named, &[], ""), (file("/k"), "http://127.0.0.1:1".into()));
        let private = of("gs://bucket?endpoint=https://restricted.googleapis.com", &[adc], "");
        assert_eq!(private, (file("/adc.json"), "https://restricted.googleapis.com".into()));
    }
}
