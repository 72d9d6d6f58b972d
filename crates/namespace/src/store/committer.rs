//! The one thread that changes the database: it gathers all that waits into one commit, and sees to a database that failed.

use std::sync::Arc;

use bytes::Bytes;
use redb::{MultimapTable, ReadableTable, WriteTransaction};
use tokio::sync::mpsc;
use tracing::{error, warn};
use types::{Error, ErrorKind, FileId, Result};

use super::found::FoundEntries;
use super::keeper::Keeper;
use super::objects::Objects;
use super::{
    ALIASES, CommitRequest, ENTRIES, LISTINGS, NAMES, NOTES, NoteChange, StoreChange, entry_key, stopped,
};
use crate::cookie;

/// Changes that go into one commit at most; keeps a commit well under a second.
const GROUP_MAX: usize = 50_000;

/// The directory of a change that alters which object a name stands for.
fn renamed_in(change: &StoreChange) -> Option<FileId> {
    match change {
        StoreChange::PutEntry { dir, .. }
        | StoreChange::RemoveEntry { dir, .. }
        | StoreChange::RemoveName { dir, .. } => Some(*dir),
        _ => None,
    }
}

/// Commits what waits, on a thread of its own.
pub struct Committer {
    pub keeper: Arc<Keeper>,
    pub found: Arc<FoundEntries>,
}

impl Committer {
    /// Runs until the queue is closed and empty. False: some changes could not be committed.
    pub fn run(&self, mut queue: mpsc::Receiver<CommitRequest>) -> bool {
        let mut all = true;
        while let Some(first) = queue.blocking_recv() {
            let mut size = first.changes.len();
            let mut group = vec![first];
            while size < GROUP_MAX {
                let Ok(job) = queue.try_recv() else { break };
                size += job.changes.len();
                group.push(job);
            }
            let result = self.commit(&group, &mut queue);
            if let Err(e) = &result {
                all = false;
                error!("{e}");
            }
            for done in group.into_iter().filter_map(|job| job.done) {
                let _ = done.send(result.clone());
            }
        }
        all
    }

    /// Commits a group. A disk that fails is waited for. A damaged database is begun anew, and changes that belong to the old
    /// one are dropped: a listing without the entries that were in it would say that they are gone.
    fn commit(&self, group: &[CommitRequest], queue: &mut mpsc::Receiver<CommitRequest>) -> Result<()> {
        loop {
            if !self.keeper.is_broken() {
                if group.iter().all(|job| job.changes.is_empty()) {
                    return Ok(());
                }
                let changes = || group.iter().flat_map(|job| &job.changes);
                let changing = self.found.change(changes().filter_map(renamed_in));
                let written = self.keeper.write(|txn| apply(txn, changes()));
                drop(changing);
                match written {
                    Ok(()) => return Ok(()),
                    Err(failure) => {
                        let error = self.keeper.failed("commit metadata", failure);
                        if !self.keeper.is_broken() {
                            return Err(error);
                        }
                    }
                }
            }
            let drop_queued = || {
                while let Ok(job) = queue.try_recv() {
                    if let Some(done) = job.done {
                        let _ = done.send(Err(begun_anew()));
                    }
                }
            };
            let is_anew = self.keeper.mend(|| self.found.forget(), drop_queued);
            if is_anew {
                return Err(begun_anew());
            }
            if self.keeper.is_broken() {
                return Err(stopped());
            }
        }
    }
}

fn begun_anew() -> Error {
    Error::new(ErrorKind::Busy, "store metadata", "the database is begun anew")
}

fn apply<'a>(
    txn: &mut WriteTransaction,
    changes: impl Iterator<Item = &'a StoreChange>,
) -> std::result::Result<(), redb::Error> {
    {
        let mut objects = Objects::open(txn)?;
        let mut entries = txn.open_table(ENTRIES)?;
        let mut names = txn.open_multimap_table(NAMES)?;
        let mut listings = txn.open_table(LISTINGS)?;
        let mut aliases = txn.open_table(ALIASES)?;
        let mut notes = txn.open_table(NOTES)?;
        for change in changes {
            match change {
                StoreChange::PutNode(id, record) => objects.put(*id, record)?,
                StoreChange::RemoveNode(id) => objects.remove(*id)?,
                StoreChange::PutEntry { dir, name, child } => put_entry(&mut entries, *dir, name, *child)?,
                StoreChange::PutName { file, dir, name } => {
                    names.insert(file.0, [&dir.0, name.as_ref()].concat().as_slice())?;
                }
                StoreChange::RemoveEntry { dir, cookie } => {
                    remove_entry(&mut entries, &mut names, *dir, *cookie)?;
                }
                StoreChange::RemoveName { dir, name } => remove_name(&mut entries, &mut names, *dir, name)?,
                StoreChange::PutListing(dir, listing) => {
                    listings.insert(dir.0, listing.encode().as_slice())?;
                }
                StoreChange::RemoveListing(dir) => {
                    listings.remove(dir.0)?;
                }
                StoreChange::PutAlias { computed, known } => {
                    aliases.insert(computed.0, known.0)?;
                }
                StoreChange::AlterNote(id, NoteChange(alter)) => {
                    let note = alter(notes.get(id.0)?.as_ref().map(|note| note.value()));
                    match note {
                        Some(note) => drop(notes.insert(id.0, note.as_ref())?),
                        None => drop(notes.remove(id.0)?),
                    }
                }
            }
        }
    }
    Ok(())
}

fn remove_entry(
    entries: &mut redb::Table<'_, [u8; 24], &[u8]>,
    names: &mut MultimapTable<'_, [u8; 16], &[u8]>,
    dir: FileId,
    cookie: u64,
) -> std::result::Result<(), redb::Error> {
    let removed = entries.remove(entry_key(dir, cookie))?;
    if let Some(value) = &removed
        && let Some((child, name)) = value.value().split_first_chunk::<16>()
    {
        names.remove(*child, [&dir.0, name].concat().as_slice())?;
    }
    Ok(())
}

fn remove_name(
    entries: &mut redb::Table<'_, [u8; 24], &[u8]>,
    names: &mut MultimapTable<'_, [u8; 16], &[u8]>,
    dir: FileId,
    name: &Bytes,
) -> std::result::Result<(), redb::Error> {
    let first = cookie::first_slot(name);
    for slot in first..first + cookie::SLOTS {
        let key = entry_key(dir, slot);
        if entries.get(key)?.is_some_and(|v| v.value().get(16..) == Some(name.as_ref())) {
            remove_entry(entries, names, dir, slot)?;
        }
    }
    Ok(())
}

/// Puts the entry into the slot that holds this name already, else into the first free one.
fn put_entry(
    entries: &mut redb::Table<'_, [u8; 24], &[u8]>,
    dir: FileId,
    name: &Bytes,
    child: Option<FileId>,
) -> std::result::Result<(), redb::Error> {
    let first = cookie::first_slot(name);
    let mut free = None;
    let mut own = None;
    for slot in first..first + cookie::SLOTS {
        match entries.get(entry_key(dir, slot))?.map(|v| v.value().get(16..) == Some(name.as_ref())) {
            Some(true) => own = own.or(Some(slot)),
            Some(false) => {}
            None => free = free.or(Some(slot)),
        }
    }
    let Some(slot) = own.or(free) else {
        warn!(%dir, name = %name.escape_ascii(), "left out of its directory: no cookie is free for it");
        return Ok(());
    };
    let value = [&child.unwrap_or(FileId([0; 16])).0, name.as_ref()].concat();
    entries.insert(entry_key(dir, slot), value.as_slice())?;
    Ok(())
}
