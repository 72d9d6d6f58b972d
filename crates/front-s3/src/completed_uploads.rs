//! Multipart uploads that were completed lately. A client whose answer was lost sends the completion again, and gets
//! the same answer although the upload is gone. The records lie in the metadata database and are synced before the
//! first answer is sent.

use std::hash::Hasher as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redb::{Database, ReadableDatabase, ReadableTableMetadata, TableDefinition};
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::metadata_store::{DbResult, Headers, MetadataStore, decode_texts, encode_texts, pairs};

const TABLE: TableDefinition<[u8; 16], &[u8]> = TableDefinition::new("completed-uploads");
/// How long a completed upload is remembered.
pub const REMEMBERED: Duration = Duration::from_secs(3600);
/// The most records, of up to some 1,200 bytes each.
const ENTRIES_MAX: u64 = 10_000;
const EVICTED: u64 = 1_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedUpload {
    pub bucket: String,
    pub key: String,
    /// Without quotes.
    pub etag: String,
    /// The checksum headers of the answer.
    pub checksums: Headers,
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl MetadataStore {
    /// Records that upload `id` was completed. `now`: seconds since 1970.
    pub fn record_completed(&self, id: [u8; 16], completed: &CompletedUpload, now: u64) {
        let bytes = encode(&id, completed, now);
        if let Err(e) = self.call(|database| write(database, id, &bytes, now)) {
            tracing::warn!("note that an upload was completed: {e}");
        }
    }

    pub fn completed(&self, id: [u8; 16], now: u64) -> Option<CompletedUpload> {
        let read = |database: &Database| {
            let transaction = database.begin_read()?;
            let table = match transaction.open_table(TABLE) {
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
                other => other?,
            };
            Ok(table.get(id)?.and_then(|bytes| decode(&id, bytes.value())))
        };
        match self.call(read) {
            Ok(found) => found.filter(|(at, _)| is_remembered(*at, now)).map(|(_, completed)| completed),
            Err(e) => {
                tracing::warn!("read whether an upload was completed: {e}");
                None
            }
        }
    }
}

fn write(database: &Database, id: [u8; 16], bytes: &[u8], now: u64) -> DbResult<()> {
    let transaction = database.begin_write()?;
    {
        let mut table = transaction.open_table(TABLE)?;
        if table.len()? >= ENTRIES_MAX {
            // Ids are hashes: where all are young, the first ones are as good as any.
            let mut evicted = 0;
            table.retain(|id, bytes| {
                let is_young = decode(&id, bytes).is_some_and(|(at, _)| is_remembered(at, now));
                let is_kept = is_young && evicted >= EVICTED;
                evicted += u64::from(!is_kept);
                is_kept
            })?;
        }
        table.insert(id, bytes)?;
    }
    transaction.commit()?;
    Ok(())
}

/// Holds whichever way the clock was set meanwhile.
fn is_remembered(at: u64, now: u64) -> bool {
    at.abs_diff(now) <= REMEMBERED.as_secs()
}

/// A checksum over id and rest; the time; bucket, key, ETag, and the names and values of checksums.
fn encode(id: &[u8; 16], completed: &CompletedUpload, now: u64) -> Vec<u8> {
    let mut rest = now.to_le_bytes().to_vec();
    let sums = completed.checksums.iter().flat_map(|(name, value)| [name, value]);
    encode_texts([&completed.bucket, &completed.key, &completed.etag].into_iter().chain(sums), &mut rest);
    let mut bytes = sum(id, &rest).to_vec();
    bytes.extend_from_slice(&rest);
    bytes
}

fn decode(id: &[u8; 16], bytes: &[u8]) -> Option<(u64, CompletedUpload)> {
    let (known, rest) = bytes.split_first_chunk::<16>()?;
    if *known != sum(id, rest) {
        return None;
    }
    let (at, rest) = rest.split_first_chunk::<8>()?;
    let mut texts = decode_texts(rest)?.into_iter();
    let (bucket, key, etag) = (texts.next()?, texts.next()?, texts.next()?);
    Some((u64::from_le_bytes(*at), CompletedUpload { bucket, key, etag, checksums: pairs(texts)? }))
}

fn sum(id: &[u8; 16], rest: &[u8]) -> [u8; 16] {
    let mut hasher = SipHasher13::new_with_keys(0x656e_6465, 1);
    hasher.write(id);
    hasher.write(rest);
    hasher.finish128().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed() -> CompletedUpload {
        let checksums = vec![("x-amz-checksum-crc32".to_owned(), "AAAAAA==-2".to_owned())];
        CompletedUpload { bucket: "data".into(), key: "a/b".into(), etag: "0-2".into(), checksums }
    }

    #[test]
    fn a_completed_upload_is_remembered_over_a_restart_and_for_its_time() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("facts");
        let store = MetadataStore::open(&path).expect("opened");
        assert_eq!(store.completed([1; 16], 1000), None);
        store.record_completed([1; 16], &completed(), 1000);
        drop(store);
        let store = MetadataStore::open(&path).expect("opened");
        assert_eq!(store.completed([1; 16], 1000), Some(completed()));
        assert_eq!(store.completed([2; 16], 1000), None);
        assert_eq!(store.completed([1; 16], 1000 + REMEMBERED.as_secs() + 1), None);
        assert_eq!(store.completed([1; 16], 0), Some(completed()), "the clock was set back a little");
    }

    #[test]
    fn a_record_that_is_damaged_is_none() {
        let bytes = encode(&[1; 16], &completed(), 5);
        assert_eq!(decode(&[1; 16], &bytes), Some((5, completed())));
        assert_eq!(decode(&[2; 16], &bytes), None, "of another upload");
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert_eq!(decode(&[1; 16], &damaged), None, "byte {at}");
            assert_eq!(decode(&[1; 16], &bytes[..at]), None, "cut at {at}");
        }
    }
}
