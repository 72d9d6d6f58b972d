//! A client's operations as the system calls of programs, on a mount of the tier.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Result};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::crash::chance::Chance;
use crate::crash::client::Told;
use crate::crash::model::{Ino, Op, Part, Refusal, Tree};

/// When a system call is durable although nobody called fsync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// None is (policy `back`, `durability = "fsync"`, and the power is cut).
    Synced,
    /// Names and attributes are, bytes are not (policy `through`, and `back` with `durability = "always"` when the power is
    /// cut).
    Names,
    /// All is: it is in the journal's file, and the kernel goes on (policy `back`, the process is killed).
    All,
}

pub struct Programs {
    mount: PathBuf,
    promise: Promise,
    chance: Chance,
    /// Files that stay open, and were written since the last fsync.
    open: HashMap<Ino, (File, bool)>,
}

impl Programs {
    pub fn new(mount: PathBuf, promise: Promise, chance: Chance) -> Programs {
        Programs { mount, promise, chance, open: HashMap::new() }
    }

    pub fn crashed(&mut self) {
        self.open.clear();
    }

    pub fn unsettled(&self, tree: &Tree) -> Option<Op> {
        let written = |ino: &Ino| self.open.get(ino).is_some_and(|(_, written)| *written);
        let path = tree.names.iter().find(|(_, ino)| written(ino))?.0.clone();
        Some(Op::Sync { path })
    }

    pub fn carry_out(&mut self, tree: &Tree, id: Ino, op: &Op) -> Told {
        let done = match self.try_once(tree, id, op) {
            Ok(synced) => {
                let bytes = matches!(op, Op::Write { .. });
                let durable = match self.promise {
                    Promise::Synced => synced,
                    Promise::Names => synced || !bytes,
                    Promise::All => true,
                };
                return Told::Done { durable };
            }
            Err(e) => e,
        };
        // The last: of a request that the kernel was handing over when the tier was killed. Who tells it of a tier that
        // lives on is found out: nobody killed that.
        let gone = [Errno::NOTCONN, Errno::CONNABORTED, Errno::IO].map(|errno| Some(errno.raw_os_error()));
        if gone.contains(&done.raw_os_error()) {
            return Told::Unanswered;
        }
        match done.kind() {
            ErrorKind::AlreadyExists => Told::Refused(Refusal::Exists),
            ErrorKind::NotFound => Told::Refused(Refusal::NotFound),
            ErrorKind::DirectoryNotEmpty => Told::Refused(Refusal::NotEmpty),
            ErrorKind::IsADirectory | ErrorKind::NotADirectory => Told::Refused(Refusal::Kind),
            _ => Told::Failed(done.to_string()),
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.mount.join(path)
    }

    /// What is about to lose a name is closed first: it would get a hidden one otherwise.
    fn close(&mut self, tree: &Tree, path: &str) {
        if let Some(ino) = tree.names.get(path) {
            self.open.remove(ino);
        }
    }

    fn opened(&mut self, tree: &Tree, path: &str) -> Result<(Ino, File)> {
        let ino = tree.ino(path);
        match self.open.get(&ino) {
            Some((file, _)) => Ok((ino, file.try_clone()?)),
            None => Ok((ino, OpenOptions::new().read(true).write(true).open(self.at(path))?)),
        }
    }

    /// Whether all of it is synced.
    fn try_once(&mut self, tree: &Tree, id: Ino, op: &Op) -> Result<bool> {
        let done = |result: Result<()>| result.map(|()| false);
        match op {
            Op::Create { path, mode, .. } => {
                let mode = mode.unwrap_or(0o600);
                let made = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create_new(true)
                    .mode(mode)
                    .open(self.at(path))?;
                if self.chance.one_in(3) {
                    self.open.insert(id, (made, false));
                }
                Ok(false)
            }
            Op::Mkdir { path, mode } => done(DirBuilder::new().mode(*mode).create(self.at(path))),
            Op::Symlink { path, target } => done(std::os::unix::fs::symlink(target, self.at(path))),
            Op::Link { from, to } => done(fs::hard_link(self.at(from), self.at(to))),
            Op::Rename { from, to } => {
                self.close(tree, to);
                done(fs::rename(self.at(from), self.at(to)))
            }
            Op::Remove { path } => {
                self.close(tree, path);
                done(fs::remove_file(self.at(path)))
            }
            Op::Rmdir { path } => done(fs::remove_dir(self.at(path))),
            Op::Write { path, parts, sync } => self.write(tree, path, parts, *sync).map(|()| *sync),
            Op::Sync { path } => self.sync(tree, path).map(|()| true),
            Op::Truncate { path, size: 0 } if self.chance.one_in(2) => {
                done(OpenOptions::new().write(true).truncate(true).open(self.at(path)).map(drop))
            }
            Op::Truncate { path, size } => done(self.opened(tree, path)?.1.set_len(*size)),
            Op::Chmod { path, mode } => {
                done(fs::set_permissions(self.at(path), fs::Permissions::from_mode(*mode)))
            }
            Op::Touch { path, mtime } => {
                let file = self.opened(tree, path)?.1;
                done(file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_nanos(*mtime)))
            }
        }
    }

    fn write(&mut self, tree: &Tree, path: &str, parts: &[Part], sync: bool) -> Result<()> {
        let (ino, file) = match sync {
            true => {
                let flags = OFlags::SYNC.bits() as i32;
                let file =
                    OpenOptions::new().read(true).write(true).custom_flags(flags).open(self.at(path))?;
                (tree.ino(path), file)
            }
            false => self.opened(tree, path)?,
        };
        for Part { offset, bytes } in parts {
            // The kernel may send it in pieces; the rest is tried again, so that it is known why it was not taken.
            file.write_all_at(bytes, *offset)?;
        }
        if !sync && (self.open.contains_key(&ino) || self.chance.one_in(2)) {
            self.open.insert(ino, (file, true));
        }
        Ok(())
    }

    fn sync(&mut self, tree: &Tree, path: &str) -> Result<()> {
        // Who is killed in between is no file.
        if fs::metadata(self.at(path))?.is_dir() {
            return File::open(self.at(path))?.sync_all();
        }
        let (ino, file) = self.opened(tree, path)?;
        if self.chance.one_in(2) {
            file.sync_data()?
        } else {
            file.sync_all()?
        }
        if self.chance.one_in(2) {
            self.open.remove(&ino);
        } else if let Some((_, written)) = self.open.get_mut(&ino) {
            *written = false;
        }
        Ok(())
    }

    pub fn read(&mut self, tree: &Tree, path: &str) -> Result<Vec<u8>> {
        match self.open.get(&tree.ino(path)) {
            Some((file, _)) => {
                let (mut bytes, mut at) = (vec![0; 1 << 20], 0);
                // To the end: where the tier dies in the middle of it, what was read so far is answered.
                loop {
                    match file.read_at(&mut bytes[at..], at as u64)? {
                        0 => break,
                        count => at += count,
                    }
                }
                bytes.truncate(at);
                Ok(bytes)
            }
            None => fs::read(self.at(path)),
        }
    }
}
