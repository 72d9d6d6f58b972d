//! A client's operations carried out over NFS, as the kernel's client would: it keeps what it wrote UNSTABLE until a
//! COMMIT is answered with the verifier of the writes, and sends it again otherwise. Handles are kept as long as the
//! files are there, over all crashes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use origin::{Change, Origin, Reference};
use origin_nfs::{Config, NfsOrigin};
use tokio::task::JoinSet;
use types::{
    ByteRange, CreateHow, Error, ErrorKind, Name, Result, SetAttr, Stability, TimeChange, Timestamp,
    WriteVerifier,
};

use crate::crash::chance::Chance;
use crate::crash::client::Told;
use crate::crash::ledger::Loss;
use crate::crash::look;
use crate::crash::model::{Ino, Op, Part, Refusal, Tree, split};

/// Longer than a busy machine needs to start a tier again: calls wait for it.
const PATIENCE: Duration = Duration::from_secs(90);

pub async fn connect(port: u16) -> Result<Arc<NfsOrigin>> {
    let config = Config {
        host: "127.0.0.1".to_owned(),
        port: Some(port),
        mount_port: Some(port),
        nconnect: 2,
        call_timeout: PATIENCE,
        stall_timeout: PATIENCE,
        outage_grace: PATIENCE,
        backoff_max: Duration::from_millis(50),
        ..Config::default()
    };
    NfsOrigin::connect(config).await
}

/// Between two tries of what is to be tried again later.
const LATER: Duration = Duration::from_millis(50);

fn is_later<T>(told: &Result<T>) -> bool {
    told.as_ref().is_err_and(|e| e.kind() == ErrorKind::Busy)
}

struct Unstable {
    part: Part,
    verifier: WriteVerifier,
    /// Of the tier that answered.
    life: u32,
}

/// What was written to a file since its last COMMIT, in order.
#[derive(Default)]
struct Uncommitted {
    writes: Vec<Unstable>,
    /// From here on it is to be sent again: a later write of the same bytes as well.
    resend_from: Option<usize>,
}

pub struct Nfs {
    port: u16,
    loss: Loss,
    /// "Try again later" is no failure, but waited out as the kernel's client does.
    waits: bool,
    chance: Chance,
    nfs: Option<Arc<NfsOrigin>>,
    handles: HashMap<Ino, Reference>,
    uncommitted: HashMap<Ino, Uncommitted>,
    /// The write under way is the one that is sent again.
    resending: Option<(Ino, usize)>,
    /// Of the last write that was answered: one that is sent again is not the last of its file.
    last_verifier: Option<WriteVerifier>,
    life: u32,
    pub resent: u64,
    pub stale: u64,
}

impl Nfs {
    pub fn new(port: u16, loss: Loss, waits: bool, chance: Chance) -> Nfs {
        Nfs {
            port,
            loss,
            waits,
            chance,
            nfs: None,
            handles: HashMap::new(),
            uncommitted: HashMap::new(),
            resending: None,
            last_verifier: None,
            life: 0,
            resent: 0,
            stale: 0,
        }
    }

    pub async fn begin(&mut self, life: u32) -> Result<()> {
        self.life = life;
        if self.nfs.is_none() {
            self.nfs = Some(connect(self.port).await?);
        }
        Ok(())
    }

    /// The last write to this file was perhaps answered by the next tier already.
    pub fn answered_late(&mut self, ino: Ino) {
        let (Some(file), Some(last)) = (self.uncommitted.get_mut(&ino), self.last_verifier) else { return };
        file.writes
            .iter_mut()
            .filter(|write| write.verifier == last)
            .for_each(|write| write.life = self.life + 1);
    }

    /// `tree` is what is left. Who was not `patient` knows nothing any more of the call that was under way, and comes
    /// over a connection of its own.
    pub fn crashed(&mut self, tree: &Tree, patient: bool) {
        if !patient {
            self.nfs = None;
        }
        self.resending = None;
        self.handles.retain(|ino, _| tree.nodes.contains_key(ino));
        self.uncommitted.retain(|ino, _| tree.nodes.contains_key(ino));
        self.uncommitted.values_mut().for_each(|file| file.resend_from = None);
    }

    /// What has to be done before anything else: what the tier lost is sent again.
    pub fn owed(&mut self, tree: &Tree) -> Option<Op> {
        let (ino, file) = self.uncommitted.iter_mut().find(|(_, file)| file.resend_from.is_some())?;
        let Some((path, _)) = tree.names.iter().find(|(_, there)| *there == ino) else {
            file.resend_from = None;
            return None;
        };
        let path = path.clone();
        let Some(Unstable { part, .. }) = file.resend_from.and_then(|at| file.writes.get(at)) else {
            file.resend_from = None;
            return Some(Op::Sync { path });
        };
        self.resending = Some((*ino, file.resend_from.unwrap_or_default()));
        self.resent += 1;
        Some(Op::Write { path, parts: vec![part.clone()], sync: self.chance.one_in(3) })
    }

    /// A file with bytes that no COMMIT was answered for.
    pub fn unsettled(&self, tree: &Tree) -> Option<Op> {
        let path = tree.names.iter().find(|(_, ino)| self.is_uncommitted(**ino))?.0.clone();
        Some(Op::Sync { path })
    }

    fn is_uncommitted(&self, ino: Ino) -> bool {
        self.uncommitted.get(&ino).is_some_and(|file| !file.writes.is_empty())
    }

    /// What goes before `op`: sizes and times are set when the writes are through.
    pub fn first(&self, tree: &Tree, op: &Op) -> Option<Op> {
        let (Op::Truncate { path, .. } | Op::Touch { path, .. }) = op else { return None };
        let uncommitted = tree.names.get(path).is_some_and(|ino| self.is_uncommitted(*ino));
        uncommitted.then(|| Op::Sync { path: path.clone() })
    }

    fn nfs(&self) -> Arc<NfsOrigin> {
        self.nfs.clone().expect("connected at the beginning of a life")
    }

    pub async fn carry_out(&mut self, tree: &Tree, id: Ino, op: &Op) -> Told {
        let begun = Instant::now();
        let mut told = self.try_once(tree, id, op).await;
        while self.waits && is_later(&told) && begun.elapsed() < PATIENCE {
            tokio::time::sleep(LATER).await;
            told = self.try_once(tree, id, op).await;
        }
        if told.as_ref().is_err_and(|e| e.kind() == ErrorKind::Stale) {
            // As clients do: by name, once.
            self.stale += 1;
            self.handles.clear();
            told = self.try_once(tree, id, op).await;
        }
        if told.is_ok() {
            self.forget_what_is_gone(tree, id, op);
        }
        match told {
            Ok(told) => told,
            Err(e) => match e.kind() {
                ErrorKind::OutcomeUnknown => Told::Doubtful,
                ErrorKind::Exists => Told::Refused(Refusal::Exists),
                ErrorKind::NotFound => Told::Refused(Refusal::NotFound),
                ErrorKind::NotEmpty => Told::Refused(Refusal::NotEmpty),
                ErrorKind::IsADirectory | ErrorKind::NotADirectory => Told::Refused(Refusal::Kind),
                _ => Told::Failed(e.to_string()),
            },
        }
    }

    fn forget_what_is_gone(&mut self, tree: &Tree, id: Ino, op: &Op) {
        let mut after = tree.clone();
        if after.apply(id, op).is_ok() {
            self.handles.retain(|ino, _| after.nodes.contains_key(ino));
            self.uncommitted.retain(|ino, _| after.nodes.contains_key(ino));
        }
    }

    /// Of an object that is there, by the handle that was given for it first.
    async fn handle(&mut self, tree: &Tree, path: &str) -> Result<Reference> {
        let ino = tree.names.get(path).copied();
        if let Some(known) = ino.and_then(|ino| self.handles.get(&ino)) {
            return Ok(known.clone());
        }
        let found = look::walk(&self.nfs(), path).await?.reference;
        if let Some(ino) = ino {
            self.handles.insert(ino, found.clone());
        }
        Ok(found)
    }

    async fn place(&mut self, tree: &Tree, path: &str) -> Result<(Reference, Name)> {
        let (dir, name) = split(path);
        Ok((self.handle(tree, dir).await?, Name::new(name.to_owned())?))
    }

    async fn try_once(&mut self, tree: &Tree, id: Ino, op: &Op) -> Result<Told> {
        let with_mode = |mode| SetAttr { mode, ..SetAttr::default() };
        let change = match op {
            Op::Write { path, parts, sync } => return self.write(tree, path, parts, *sync).await,
            Op::Sync { path } => return self.commit(tree, path).await,
            Op::Create { path, mode, exclusive } => {
                let (dir, name) = self.place(tree, path).await?;
                let verifier = (u64::from(id) << 32 | self.chance.below(1 << 31)).to_be_bytes();
                let how = if *exclusive { CreateHow::Exclusive(verifier) } else { CreateHow::Guarded };
                Change::Create { dir, name, how, set: with_mode(*mode) }
            }
            Op::Mkdir { path, mode } => {
                let (dir, name) = self.place(tree, path).await?;
                Change::Mkdir { dir, name, set: with_mode(Some(*mode)) }
            }
            Op::Symlink { path, target } => {
                let (dir, name) = self.place(tree, path).await?;
                Change::Symlink { dir, name, target: Bytes::from(target.clone()), set: SetAttr::default() }
            }
            Op::Link { from, to } => {
                let file = self.handle(tree, from).await?;
                let (dir, name) = self.place(tree, to).await?;
                Change::Link { file, dir, name }
            }
            Op::Rename { from, to } => {
                let (from_dir, from) = self.place(tree, from).await?;
                let (to_dir, to) = self.place(tree, to).await?;
                Change::Rename { from_dir, from, to_dir, to, identity: None }
            }
            Op::Remove { path } => {
                let (dir, name) = self.place(tree, path).await?;
                Change::Remove { dir, name }
            }
            Op::Rmdir { path } => {
                let (dir, name) = self.place(tree, path).await?;
                Change::Rmdir { dir, name }
            }
            Op::Truncate { path, size } => {
                let set = SetAttr { size: Some(*size), ..SetAttr::default() };
                Change::Set { object: self.handle(tree, path).await?, set, guard: None }
            }
            Op::Chmod { path, mode } => Change::Set {
                object: self.handle(tree, path).await?,
                set: with_mode(Some(*mode)),
                guard: None,
            },
            Op::Touch { path, mtime } => {
                let (seconds, nanos) = ((mtime / 1_000_000_000) as i64, (mtime % 1_000_000_000) as u32);
                let mtime = TimeChange::To(Timestamp { seconds, nanos });
                let set = SetAttr { mtime, ..SetAttr::default() };
                Change::Set { object: self.handle(tree, path).await?, set, guard: None }
            }
        };
        let makes = matches!(change, Change::Create { .. } | Change::Mkdir { .. } | Change::Symlink { .. });
        let changed = self.nfs().change(&change).await?;
        if let Some(object) = changed.object.filter(|_| makes) {
            self.handles.insert(id, object.reference);
        }
        Ok(Told::Done { durable: true })
    }

    async fn write(&mut self, tree: &Tree, path: &str, parts: &[Part], sync: bool) -> Result<Told> {
        let (ino, file) = (tree.ino(path), self.handle(tree, path).await?);
        let wanted = if sync { Stability::FileSync } else { Stability::Unstable };
        let mut writing = JoinSet::new();
        for part in parts {
            let (nfs, file, part) = (self.nfs(), file.clone(), part.clone());
            writing.spawn(async move {
                let data = Bytes::copy_from_slice(&part.bytes);
                let written = nfs.write(&file, part.offset, data, wanted).await;
                (part, written)
            });
        }
        let mut durable = true;
        while let Some(done) = writing.join_next().await {
            let (part, written) = done.map_err(|e| Error::new(ErrorKind::Io, "write", e))?;
            let written = written?;
            durable &= written.stability != Stability::Unstable;
            let unstable = Unstable { part, verifier: written.verifier, life: self.life };
            self.keep(ino, unstable, written.stability != Stability::Unstable);
        }
        Ok(Told::Done { durable })
    }

    /// A stable write is kept, too, while what was written before it may be sent again after it.
    fn keep(&mut self, ino: Ino, write: Unstable, stable: bool) {
        self.last_verifier = Some(write.verifier);
        let file = self.uncommitted.entry(ino).or_default();
        if let Some((_, at)) = self.resending.take().filter(|(of, _)| *of == ino) {
            file.writes[at] = write;
            file.resend_from = Some(at + 1);
        } else if !stable || !file.writes.is_empty() {
            file.writes.push(write);
        }
    }

    async fn commit(&mut self, tree: &Tree, path: &str) -> Result<Told> {
        let (ino, handle) = (tree.ino(path), self.handle(tree, path).await?);
        let committed = self.nfs().commit(&handle, ByteRange::new(0, 0)).await?;
        let file = self.uncommitted.entry(ino).or_default();
        if file.writes.iter().any(|w| w.verifier == committed.verifier && w.life != self.life) {
            let told = format!("the verifier of a COMMIT of {path} is that of writes before the crash");
            return Ok(Told::Failed(told));
        }
        match file.writes.iter().position(|w| w.verifier != committed.verifier) {
            None => {
                file.writes.clear();
                Ok(Told::Done { durable: true })
            }
            lost => {
                file.resend_from = lost;
                // In a journal all that was written before is durable now, also what is sent again.
                Ok(Told::Done { durable: self.loss == Loss::InOrder })
            }
        }
    }

    /// One of its files, as it is shown.
    pub async fn read(&mut self, tree: &Tree, path: &str) -> Result<Vec<u8>> {
        let begun = Instant::now();
        loop {
            let read = self.read_once(tree, path).await;
            if !(self.waits && is_later(&read) && begun.elapsed() < PATIENCE) {
                return read;
            }
            tokio::time::sleep(LATER).await;
        }
    }

    async fn read_once(&mut self, tree: &Tree, path: &str) -> Result<Vec<u8>> {
        let file = self.handle(tree, path).await?;
        match look::read(&self.nfs(), &file).await {
            Err(e) if e.kind() == ErrorKind::Stale => {
                self.stale += 1;
                self.handles.clear();
                let file = self.handle(tree, path).await?;
                look::read(&self.nfs(), &file).await
            }
            read => read,
        }
    }
}
