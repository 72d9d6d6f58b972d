//! Where Google's store is, and who we are there: from the URL, a file, the environment or the machine.

use std::path::{Path, PathBuf};

use types::{Error, ErrorKind, Result};

use crate::gcs_token::{Tokens, Way};
use crate::http::Http;
use crate::secret_file;
use crate::sign::{Environment, Signer};
use crate::url::Config;

const ENDPOINT: &str = "https://storage.googleapis.com";
const METADATA_HOST: &str = "metadata.google.internal";

pub struct Place {
    pub signer: Signer,
    /// Without a slash at its end.
    pub endpoint: String,
}

/// What tells who we are.
#[derive(Debug, PartialEq, Eq)]
enum Who {
    Nobody,
    /// What this file says. It has to be there where somebody named it.
    File(PathBuf),
    /// What this machine is, by its metadata server.
    Machine(String),
}

impl Place {
    /// As Google's tools look for it: a file that is named, gcloud's file, the machine. An emulator is not told who asks,
    /// nor is anybody else over plain HTTP, unless the URL names a file for it.
    pub fn of(config: &Config, http: &Http, environment: Option<&Environment>) -> Result<Place> {
        let variable = |name: &str| match environment {
            Some(given) => {
                given.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            }
            None => std::env::var(name).ok(),
        };
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let endpoint = endpoint(config.endpoint.as_deref(), &variable);
        let way = match who(config, &endpoint, &variable, &|path| path.is_file()) {
            Who::Nobody => None,
            Who::Machine(host) => Some(Way::Machine { host }),
            Who::File(path) => {
                let wrong = |why: String| {
                    let message = format!("cannot use the credentials in {}: {why}", path.display());
                    Error::new(ErrorKind::Config, "origin", message)
                };
                let text = secret_file::read(&path)?;
                Some(Way::of_file(&text).map_err(wrong)?)
            }
        };
        let signer =
            way.map_or(Signer::Nobody, |way| Signer::Google(Box::new(Tokens::new(http.clone(), way))));
        Ok(Place { signer, endpoint })
    }
}

fn endpoint(of_url: Option<&str>, variable: &dyn Fn(&str) -> Option<String>) -> String {
    let emulator = || variable("STORAGE_EMULATOR_HOST");
    let endpoint = of_url.map(str::to_owned).or_else(emulator).unwrap_or_else(|| ENDPOINT.to_owned());
    let endpoint = endpoint.trim_end_matches('/');
    if endpoint.contains("://") { endpoint.to_owned() } else { format!("http://{endpoint}") }
}

fn who(
    config: &Config,
    endpoint: &str,
    variable: &dyn Fn(&str) -> Option<String>,
    is_file: &dyn Fn(&Path) -> bool,
) -> Who {
    if let Some(path) = config.credentials.clone().filter(|_| !config.anonymous) {
        return Who::File(path);
    }
    if config.anonymous || endpoint.starts_with("http://") {
        return Who::Nobody;
    }
    if let Some(path) = variable("GOOGLE_APPLICATION_CREDENTIALS") {
        return Who::File(PathBuf::from(path));
    }
    let gcloud = variable("CLOUDSDK_CONFIG").map(PathBuf::from);
    let gcloud = gcloud.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".config/gcloud")));
    let gcloud = gcloud.map(|dir| dir.join("application_default_credentials.json"));
    match gcloud.filter(|path| is_file(path)) {
        Some(path) => Who::File(path),
        None => Who::Machine(variable("GCE_METADATA_HOST").unwrap_or_else(|| METADATA_HOST.to_owned())),
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
            (who(&config, &endpoint, &variable, &|path| path == Path::new(file)), endpoint)
        };
        let google = |who| (who, ENDPOINT.to_owned());
        let file = |path: &str| Who::File(PathBuf::from(path));
        let adc = ("GOOGLE_APPLICATION_CREDENTIALS", "/adc.json");
        assert_eq!(of("gs://bucket?credentials=/k", &[adc], ""), google(file("/k")));
        assert_eq!(of("gs://bucket", &[adc, ("HOME", "/h")], ""), google(file("/adc.json")));
        let gcloud = "/h/.config/gcloud/application_default_credentials.json";
        assert_eq!(of("gs://bucket", &[("HOME", "/h")], gcloud), google(file(gcloud)));
        let moved = "/c/application_default_credentials.json";
        let both = [("HOME", "/h"), ("CLOUDSDK_CONFIG", "/c")];
        assert_eq!(of("gs://bucket", &both, moved), google(file(moved)));
        assert_eq!(of("gs://bucket", &[("HOME", "/h")], ""), google(Who::Machine(METADATA_HOST.into())));
        let metadata = [("GCE_METADATA_HOST", "127.0.0.1:8")];
        assert_eq!(of("gs://bucket", &metadata, ""), google(Who::Machine("127.0.0.1:8".into())));
        assert_eq!(of("gs://bucket?anonymous=yes&credentials=/k", &[adc], ""), google(Who::Nobody));
        // An emulator, and a private endpoint.
        let emulator = [adc, ("STORAGE_EMULATOR_HOST", "localhost:9023")];
        assert_eq!(of("gs://bucket", &emulator, ""), (Who::Nobody, "http://localhost:9023".into()));
        let own = "gs://bucket?endpoint=http://127.0.0.1:1";
        assert_eq!(of(own, &emulator, ""), (Who::Nobody, "http://127.0.0.1:1".into()));
        let named = format!("{own}&credentials=/k");
        assert_eq!(of(&named, &[], ""), (file("/k"), "http://127.0.0.1:1".into()));
        let private = of("gs://bucket?endpoint=https://restricted.googleapis.com", &[adc], "");
        assert_eq!(private, (file("/adc.json"), "https://restricted.googleapis.com".into()));
    }
}
