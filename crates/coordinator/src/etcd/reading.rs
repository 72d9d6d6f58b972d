//! Prefixes and single keys, as they are at one revision.

use bytes::Bytes;
use etcd_client::{Client, GetOptions, GetResponse, KeyValue};
use futures_util::future::try_join_all;
use types::{Error, ErrorKind, Result};

use super::EtcdShared;
use super::endpoints::error_of;
use super::failure::EtcdFailure;
use crate::{KeyEntry, LeaseId, PrefixState, Revision};

/// Keys of one answer.
const PAGE: i64 = 1000;
/// A cluster has a few keys for each node and junction; more than this is somebody else's prefix.
const MAX_KEYS: usize = 200_000;
/// Between two pages of a prefix the revision that is read may be compacted; then it is read from its beginning.
const READ_TRIES: usize = 3;
/// Of one answer. The values of a cluster have some hundreds of bytes; a page of larger ones that does not fit is asked for by halves.
pub const MAX_ANSWER: usize = 64 * 1024 * 1024;

/// Of a prefix at a revision. Two histories that are the same up to a revision have the same one there; two that are not differ
/// in it, unless they changed as many keys, and at the same revision last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// When the newest of its keys was put.
    pub newest: Revision,
    pub keys: i64,
}

impl EtcdShared {
    pub async fn read(&self, prefix: &str) -> Result<(PrefixState, Fingerprint)> {
        let mut failures = Vec::new();
        for _ in 0..READ_TRIES {
            match self.read_pages(prefix).await? {
                Ok(read) => return Ok(read),
                Err(compacted) => failures = compacted,
            }
        }
        Err(error_of("read from etcd", &self.shown(prefix), &failures))
    }

    /// `Err` inside: the revision of the first page was compacted meanwhile.
    async fn read_pages(
        &self,
        prefix: &str,
    ) -> Result<std::result::Result<(PrefixState, Fingerprint), Vec<EtcdFailure>>> {
        let mut from = self.full(prefix);
        let end = prefix_end(&from);
        let mut entries = Vec::new();
        let mut revision = None;
        let mut limit = PAGE;
        let mut print = Fingerprint { newest: Revision(0), keys: 0 };
        loop {
            let (key, end) = (from.clone(), end.clone());
            let at = revision.map_or(0, wire_revision);
            let page = self.endpoints.call(|client| {
                let options = GetOptions::new().with_range(end.clone()).with_limit(limit).with_revision(at);
                get(client, key.clone(), options)
            });
            let page = match page.await {
                Ok(page) => page,
                Err(failures) if limit > 1 && failures.iter().any(|failure| failure.too_large) => {
                    limit /= 2;
                    continue;
                }
                Err(failures) if revision.is_some() && failures.iter().any(|f| f.missing.is_some()) => {
                    return Ok(Err(failures));
                }
                Err(failures) => return Err(error_of("read from etcd", &self.shown(prefix), &failures)),
            };
            let of_page = self.header_revision(&page, prefix)?;
            let first_page = revision.is_none();
            let revision = *revision.get_or_insert(of_page);
            if first_page {
                print.keys = page.count();
            }
            let newest = page.kvs().iter().map(KeyValue::mod_revision).max().unwrap_or(0);
            print.newest = print.newest.max(known_revision(newest));
            entries.extend(page.kvs().iter().filter_map(|kv| self.entry(kv)));
            if entries.len() > MAX_KEYS {
                let context = format!("{}: more than {MAX_KEYS} keys", self.shown(prefix));
                return Err(Error::new(ErrorKind::NotSupported, "read from etcd", context));
            }
            match page.kvs().last() {
                Some(last) if page.more() => {
                    from = last.key().to_vec();
                    from.push(0);
                }
                _ => return Ok(Ok((PrefixState { entries, revision }, print))),
            }
        }
    }

    /// These keys, all at the revision at which the first one was read.
    pub async fn look(
        &self,
        keys: &[&str],
    ) -> std::result::Result<(Vec<Option<KeyEntry>>, Revision), Vec<EtcdFailure>> {
        let Some((first, rest)) = keys.split_first() else {
            return Ok((Vec::new(), Revision(0)));
        };
        let mut tries = READ_TRIES;
        loop {
            tries -= 1;
            let (first, revision) = self.look_at(first, Revision(0)).await?;
            match try_join_all(rest.iter().map(|key| self.look_at(key, revision))).await {
                Ok(rest) => {
                    let rest = rest.into_iter().map(|(entry, _)| entry);
                    return Ok((std::iter::once(first).chain(rest).collect(), revision));
                }
                // It was compacted meanwhile.
                Err(failures) if tries > 0 && failures.iter().any(|f| f.missing.is_some()) => {}
                Err(failures) => return Err(failures),
            }
        }
    }

    /// One key, as it was at a revision; now, if that is 0.
    pub async fn look_at(
        &self,
        key: &str,
        revision: Revision,
    ) -> std::result::Result<(Option<KeyEntry>, Revision), Vec<EtcdFailure>> {
        let key = self.full(key);
        let answer = self.endpoints.call(|client| {
            get(client, key.clone(), GetOptions::new().with_revision(wire_revision(revision)))
        });
        let answer = answer.await?;
        let Some(header) = answer.header() else {
            return Err(vec![EtcdFailure::malformed(&self.root, "an answer without a head")]);
        };
        let entry = answer.kvs().first().and_then(|kv| self.entry(kv));
        Ok((entry, known_revision(header.revision())))
    }

    fn header_revision(&self, answer: &GetResponse, prefix: &str) -> Result<Revision> {
        let header = answer.header().ok_or_else(|| {
            let context = format!("{}: an answer without a head", self.shown(prefix));
            Error::new(ErrorKind::Corrupt, "read from etcd", context)
        })?;
        Ok(known_revision(header.revision()))
    }

    /// A key as its users know it. One that is not UTF-8 is none of ours, and is left out.
    pub fn entry(&self, kv: &KeyValue) -> Option<KeyEntry> {
        let key = self.relative(kv.key())?;
        let lease = (kv.lease() != 0).then(|| LeaseId(kv.lease()));
        let (value, revision) = (Bytes::copy_from_slice(kv.value()), known_revision(kv.mod_revision()));
        Some(KeyEntry { key, value, revision, lease })
    }

    pub fn relative(&self, key: &[u8]) -> Option<String> {
        let key = std::str::from_utf8(key).ok()?.strip_prefix(&self.root)?;
        Some(key.to_owned())
    }

    pub fn full(&self, key: &str) -> Vec<u8> {
        [self.root.as_bytes(), key.as_bytes()].concat()
    }

    /// The key's full name, for messages.
    pub fn shown(&self, key: &str) -> String {
        format!("{}{key}", self.root)
    }
}

pub async fn get(
    client: Client,
    key: Vec<u8>,
    options: GetOptions,
) -> std::result::Result<GetResponse, etcd_client::Error> {
    client.kv_client().max_decoding_message_size(MAX_ANSWER).get(key, Some(options)).await
}

/// The first name behind all that begin with `prefix`: where the range of a prefix ends. A prefix begins with the cluster's root, so
/// it has a byte below 0xff; to one that had none etcd would be told 0, which stands for no end.
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

pub fn wire_revision(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

pub fn known_revision(revision: i64) -> Revision {
    Revision(u64::try_from(revision).unwrap_or(0))
}
