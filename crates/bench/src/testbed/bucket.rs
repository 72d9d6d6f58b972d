//! A bucket, or a share of Azure Files, of the user's as the far storage: where its store listens, and the same by way of a
//! relay.

use std::net::SocketAddr;

use bench_load::target::from_url;
use types::{Error, ErrorKind, Result};

use crate::mounts::{is_bucket, with_port};
use crate::refuse;

/// What only the bench's own clients take.
const OURS: [&str; 5] = ["part=", "rsize=", "wsize=", "readahead=", "writebehind="];

pub struct HttpStore {
    /// Without its query.
    place: String,
    /// But for the endpoint and what only the bench's own client takes.
    options: Vec<String>,
    pub address: SocketAddr,
    /// Behind host and port, as the endpoint has it.
    path: String,
}

impl HttpStore {
    pub fn is_bucket(&self) -> bool {
        is_bucket(&self.place)
    }

    /// The relay stands in front of the endpoint, so that has to be in the URL, and must not be one of TLS: there is no
    /// certificate for a relay.
    pub async fn of(url: &str) -> Result<HttpStore> {
        from_url(url)?;
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let mut options: Vec<String> =
            query.split('&').filter(|pair| !pair.is_empty()).map(str::to_owned).collect();
        let at = options.iter().position(|pair| pair.starts_with("endpoint="));
        let endpoint = at.map(|at| options.remove(at).replacen("endpoint=", "", 1)).unwrap_or_default();
        let Some(host) = endpoint.strip_prefix("http://") else {
            return refuse(format!(
                "{url}: distance is made by a relay in front of the store, which has no certificate of its own; name the \
                 store by endpoint=http://host:port, or measure it as it is with bench load or shapes"
            ));
        };
        if options.iter().any(|pair| pair == "addressing=virtual") {
            let why = "by way of a relay a bucket is addressed in the path; leave addressing out";
            return refuse(format!("{url}: {why}"));
        }
        options.retain(|pair| !OURS.iter().any(|ours| pair.starts_with(ours)));
        let (host, path) = host.split_once('/').unwrap_or((host, ""));
        let unknown = |e| Error::new(ErrorKind::Unavailable, "find host", host).with_source(e);
        let mut found = tokio::net::lookup_host(with_port(host, 80)).await.map_err(unknown)?;
        let none = || Error::new(ErrorKind::Unavailable, "find host", format!("{host}: it has no address"));
        let address = found.next().ok_or_else(none)?;
        let path = if path.is_empty() { String::new() } else { format!("/{path}") };
        Ok(HttpStore { place: place.to_owned(), options, address, path })
    }

    /// The same, its store being reached at another address.
    pub fn at(&self, address: SocketAddr) -> String {
        let endpoint = format!("{}?endpoint=http://{address}{}", self.place, self.path);
        [&[endpoint], &self.options[..]].concat().join("&")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_bucket_behind_a_relay_differs_in_its_endpoint_alone() {
        let url = "s3://bucket/a/b?region=eu&endpoint=http://127.0.0.1:9000&part=16m&credentials=/keys";
        let bucket = HttpStore::of(url).await.expect("a bucket");
        assert_eq!(bucket.address, SocketAddr::from(([127, 0, 0, 1], 9000)));
        assert_eq!(
            bucket.at(SocketAddr::from(([127, 0, 0, 1], 77))),
            "s3://bucket/a/b?endpoint=http://127.0.0.1:77&region=eu&credentials=/keys"
        );
        assert!(bucket.is_bucket());
        let url = "azfile://account/share/dir?endpoint=http://127.0.0.1:9000&rsize=1m&credentials=/keys";
        let share = HttpStore::of(url).await.expect("a share");
        assert_eq!(
            share.at(SocketAddr::from(([127, 0, 0, 1], 77))),
            "azfile://account/share/dir?endpoint=http://127.0.0.1:77&credentials=/keys"
        );
        assert!(!share.is_bucket());
        let bucket =
            HttpStore::of("az://account/container?endpoint=http://127.0.0.1:10000").await.expect("one");
        assert_eq!(
            bucket.at(SocketAddr::from(([127, 0, 0, 1], 77))),
            "az://account/container?endpoint=http://127.0.0.1:77"
        );
    }

    #[tokio::test]
    async fn what_a_relay_cannot_stand_in_front_of_is_told() {
        for (url, told) in [
            ("s3://bucket", "endpoint=http://host:port"),
            ("s3://bucket?endpoint=https://store.example", "certificate"),
            ("s3://bucket?endpoint=http://127.0.0.1:9&addressing=virtual", "in the path"),
            ("s3://b?endpoint=http://127.0.0.1:9", "is no bucket"),
        ] {
            let error = HttpStore::of(url).await.map(drop).expect_err(url);
            let text = error.to_string();
            assert!(
                error.kind() == ErrorKind::Config && text.contains(told) && !text.contains('\n'),
                "{text}"
            );
        }
    }
}
