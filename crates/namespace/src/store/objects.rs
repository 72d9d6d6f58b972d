//! Records of objects in the database: those of one directory lie together.
//!
//! Ids are hashes, so records in the order of ids would have a page of their own for nearly each file that a listing brings:
//! each would be read, copied and written for one record. Who lists a directory, walks a tree or evicts one has the records
//! of a directory together instead, in a few pages. An object that is known by its id alone is found by its *home*, which
//! is a small entry of its own.
//!
//! Invariant: a record lies under the home that its parent gives it, and nowhere else; `HOMES` says which that is.

use redb::{ReadTransaction, ReadableTable, ReadableTableMetadata, Table, TableDefinition, WriteTransaction};
use types::FileId;

use crate::record::Record;

/// Home big-endian, then FileId -> [`Record`].
const OBJECTS: TableDefinition<[u8; 24], &[u8]> = TableDefinition::new("objects");
/// FileId -> home.
const HOMES: TableDefinition<[u8; 16], [u8; 8]> = TableDefinition::new("homes");
/// FileId -> [`Record`], of an older version.
const BY_ID: TableDefinition<[u8; 16], &[u8]> = TableDefinition::new("nodes");

type RedbResult<T> = std::result::Result<T, redb::Error>;

/// Where the records of a directory's objects lie. Two directories may share one; that is no harm.
type Home = [u8; 8];

fn home_of(parent: FileId) -> Home {
    let [home @ .., _, _, _, _, _, _, _, _] = parent.0;
    home
}

fn key(home: Home, id: FileId) -> [u8; 24] {
    let mut key = [0; 24];
    key[..8].copy_from_slice(&home);
    key[8..].copy_from_slice(&id.0);
    key
}

/// The object with this id. `near`: the directory that it is probably in, which spares the search for its home.
pub fn find(txn: &ReadTransaction, id: FileId, near: Option<FileId>) -> RedbResult<Option<Record>> {
    let objects = txn.open_table(OBJECTS)?;
    let read = |home| RedbResult::Ok(objects.get(key(home, id))?.and_then(|v| Record::decode(v.value())));
    if let Some(dir) = near
        && let Some(record) = read(home_of(dir))?
    {
        return Ok(Some(record));
    }
    let home = txn.open_table(HOMES)?.get(id.0)?.map(|home| home.value());
    home.map_or(Ok(None), read)
}

/// The first object whose id is one of these.
pub fn first_of(txn: &ReadTransaction, (lowest, highest): (FileId, FileId)) -> RedbResult<Option<FileId>> {
    let found = txn.open_table(HOMES)?.range(lowest.0..=highest.0)?.next().transpose()?;
    Ok(found.map(|(id, _)| FileId(id.value())))
}

/// The records, to be changed.
pub struct Objects<'txn> {
    objects: Table<'txn, [u8; 24], &'static [u8]>,
    homes: Table<'txn, [u8; 16], [u8; 8]>,
}

impl<'txn> Objects<'txn> {
    pub fn open(txn: &'txn WriteTransaction) -> RedbResult<Objects<'txn>> {
        Ok(Objects { objects: txn.open_table(OBJECTS)?, homes: txn.open_table(HOMES)? })
    }

    pub fn put(&mut self, id: FileId, record: &Record) -> RedbResult<()> {
        self.put_encoded(id, home_of(record.parent), &record.encode())
    }

    fn put_encoded(&mut self, id: FileId, home: Home, record: &[u8]) -> RedbResult<()> {
        // One that was there already has its home.
        if self.objects.insert(key(home, id), record)?.is_some() {
            return Ok(());
        }
        let before = self.homes.insert(id.0, home)?.map(|before| before.value());
        if let Some(before) = before.filter(|before| *before != home) {
            self.objects.remove(key(before, id))?;
        }
        Ok(())
    }

    pub fn remove(&mut self, id: FileId) -> RedbResult<()> {
        let home = self.homes.remove(id.0)?.map(|home| home.value());
        if let Some(home) = home {
            self.objects.remove(key(home, id))?;
        }
        Ok(())
    }
}

/// Takes over the records of an older version, whose order was that of ids: clients hold handles of them. Once, and as long as
/// they take to be written.
pub fn take_over(txn: &WriteTransaction) -> RedbResult<()> {
    {
        let before = txn.open_table(BY_ID)?;
        if !before.is_empty()? {
            tracing::info!(
                "{} objects of an older version's metadata database are put in order",
                before.len()?
            );
        }
        let mut objects = Objects::open(txn)?;
        for item in before.iter()? {
            let (id, bytes) = item?;
            if let Some(record) = Record::decode(bytes.value()) {
                objects.put_encoded(FileId(id.value()), home_of(record.parent), bytes.value())?;
            }
        }
    }
    txn.delete_table(BY_ID)?;
    Ok(())
}

#[cfg(test)]
mod tests;
