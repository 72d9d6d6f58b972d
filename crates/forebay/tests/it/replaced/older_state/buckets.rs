//! Stores whose administrator copies objects out and puts them back by the store's own interface; and one whose disk is
//! set back below it.

use std::collections::BTreeMap;

use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::request::Builder;
use hyper::{Response, StatusCode};
use testkit::azurite::{self, Azurite};
use testkit::lab::NotRun;
use testkit::minio::Minio;

use super::places::{Rewound, text};
use crate::http::ask;

const OBJECTS_MAX: usize = 1000;

/// What is spoken to a store by who needs no signature.
struct Speech {
    /// Of the bucket.
    url: String,
    list: &'static str,
    /// What every question ends with.
    query: String,
    /// Around a key in a listing.
    tags: [&'static str; 2],
    metadata: &'static str,
    put: &'static [(&'static str, &'static str)],
    /// Whether it looks at If-Match and If-None-Match of a change.
    conditions: bool,
}

/// An object as it was found.
struct Found {
    etag: String,
    headers: Vec<(String, String)>,
    bytes: Vec<u8>,
}

pub struct Bucket<S> {
    _store: S,
    /// The tier's.
    junction: String,
    speech: Speech,
    kept: BTreeMap<String, Found>,
}

impl<S> Bucket<S> {
    fn at(&self, key: &str) -> String {
        format!("{}/{key}?{}", self.speech.url, self.speech.query)
    }

    fn keys(&self) -> Vec<String> {
        let url = format!("{}?{}&{}", self.speech.url, self.speech.list, self.speech.query);
        let answer = ask("GET", &url, |request| request, &[]).expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
        let (listed, [begin, end]) = (text(answer.body()), self.speech.tags);
        let keys = listed.split(begin).skip(1).map(|rest| rest.split(end).next().expect("an end").to_owned());
        let keys: Vec<String> = keys.collect();
        assert!(keys.len() < OBJECTS_MAX, "more than one listing tells");
        keys
    }

    fn get(&self, key: &str) -> Option<Found> {
        let answer = ask("GET", &self.at(key), |request| request, &[]).expect("an answer");
        if answer.status() == StatusCode::NOT_FOUND {
            return None;
        }
        assert_eq!(answer.status(), StatusCode::OK, "{key}");
        let header = |(name, value): (&HeaderName, &HeaderValue)| {
            let is_kept = name.as_str().starts_with(self.speech.metadata) || name == "content-type";
            is_kept.then(|| (name.to_string(), value.to_str().expect("text").to_owned()))
        };
        let headers = answer.headers().iter().filter_map(header).collect();
        let etag = answer.headers()["etag"].to_str().expect("text").to_owned();
        Some(Found { etag, headers, bytes: answer.into_body().into() })
    }

    /// In place of what was found. Where the store looks at conditions: false, if that is not there any more.
    fn put(&self, key: &str, object: &Found, there: Option<&Found>) -> bool {
        let mut headers: Vec<(&str, &str)> =
            object.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        headers.extend(self.speech.put);
        headers.extend(match there.filter(|_| self.speech.conditions) {
            Some(there) => Some(("If-Match", there.etag.as_str())),
            None if self.speech.conditions => Some(("If-None-Match", "*")),
            None => None,
        });
        let with = |request| {
            headers.iter().fold(request, |request: Builder, (name, value)| request.header(*name, *value))
        };
        self.is_done(key, &ask("PUT", &self.at(key), with, &object.bytes).expect("an answer"))
    }

    fn delete(&self, key: &str, there: &Found) -> bool {
        let with = |request: Builder| match self.speech.conditions {
            true => request.header("If-Match", &there.etag),
            false => request,
        };
        self.is_done(key, &ask("DELETE", &self.at(key), with, &[]).expect("an answer"))
    }

    fn is_done(&self, key: &str, answer: &Response<Bytes>) -> bool {
        let is_other = matches!(answer.status().as_u16(), 404 | 409 | 412) && self.speech.conditions;
        assert!(answer.status().is_success() || is_other, "{key}: {answer:?}");
        !is_other
    }

    /// Returns what was in its place.
    fn set_back(&self, key: &str) -> Option<Found> {
        loop {
            let there = self.get(key);
            let done = match (self.kept.get(key), &there) {
                (None, None) => true,
                (Some(kept), Some(there)) if kept.etag == there.etag => true,
                (Some(kept), there) => self.put(key, kept, there.as_ref()),
                (None, Some(there)) => self.delete(key, there),
            };
            if done {
                return there;
            }
        }
    }
}

impl<S> Rewound for Bucket<S> {
    fn url(&self) -> String {
        self.junction.clone()
    }

    fn snapshot(&mut self) {
        let with_object = |key: String| {
            let found = self.get(&key).expect("nobody is at it");
            (key, found)
        };
        self.kept = self.keys().into_iter().map(with_object).collect();
    }

    fn restore(&mut self) -> String {
        // Nothing is removed before all is there: the bucket is never empty.
        let mut keys: Vec<String> = self.kept.keys().cloned().collect();
        keys.extend(self.keys().into_iter().filter(|key| !self.kept.contains_key(key)));
        keys.iter().filter_map(|key| Some(text(&self.set_back(key)?.bytes))).collect()
    }
}

pub fn container() -> Result<Bucket<Azurite>, NotRun> {
    let store = Azurite::start()?;
    store.make_container("bucket");
    let (account, credentials) = (azurite::ACCOUNT, store.credentials());
    let junction =
        format!("az://{account}/bucket?endpoint={}&credentials={}", store.endpoint(), credentials.display());
    let speech = Speech {
        url: format!("{}/{account}/bucket", store.endpoint()),
        list: "restype=container&comp=list",
        query: azurite::sas(),
        tags: ["<Name>", "</Name>"],
        metadata: "x-ms-meta-",
        put: &[("x-ms-blob-type", "BlockBlob")],
        conditions: true,
    };
    Ok(Bucket { _store: store, junction, speech, kept: BTreeMap::new() })
}

fn junction_of(store: &Minio) -> String {
    format!("s3://bucket?endpoint={}&credentials={}", store.endpoint(), store.credentials().display())
}

fn speech_of(store: &Minio, bucket: &str) -> Speech {
    store.open_to_anyone(bucket);
    Speech {
        url: format!("{}/{bucket}", store.endpoint()),
        list: "list-type=2",
        query: String::new(),
        tags: ["<Key>", "</Key>"],
        metadata: "x-amz-meta-",
        put: &[],
        conditions: false,
    }
}

/// Not while the tier is at it: a removal has no condition here, and would take what came in the meantime unseen.
pub fn s3_bucket() -> Result<Bucket<Minio>, NotRun> {
    let store = Minio::start()?;
    store.create_bucket("bucket");
    let (junction, speech) = (junction_of(&store), speech_of(&store, "bucket"));
    Ok(Bucket { _store: store, junction, speech, kept: BTreeMap::new() })
}

/// An S3 store whose disk is set back in one step: dates and ETags are those of then.
pub struct DiskOfBucket {
    store: Minio,
    restored: u32,
}

impl DiskOfBucket {
    pub fn new() -> Result<DiskOfBucket, NotRun> {
        let store = Minio::start()?;
        store.create_bucket("bucket");
        Ok(DiskOfBucket { store, restored: 0 })
    }
}

impl Rewound for DiskOfBucket {
    fn url(&self) -> String {
        junction_of(&self.store)
    }

    fn snapshot(&mut self) {
        self.store.copy_bucket("bucket", "kept");
    }

    fn restore(&mut self) -> String {
        self.restored += 1;
        let lost = format!("lost{}", self.restored);
        self.store.copy_bucket("kept", &lost);
        self.store.exchange("bucket", &lost);
        let speech = speech_of(&self.store, &lost);
        let lost = Bucket { _store: (), junction: String::new(), speech, kept: BTreeMap::new() };
        lost.keys().iter().filter_map(|key| Some(text(&lost.get(key)?.bytes))).collect()
    }
}
