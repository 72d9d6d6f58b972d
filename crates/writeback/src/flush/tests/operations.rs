//! Random operations of clients, and of others at the origin.

use bytes::Bytes;
use origin::{Change, Object, Origin, Reference};
use types::{CreateHow, FileId, FileKind, Name, NewNode, SetAttr, Stability, TimeChange, Timestamp};

use super::test_target::JUNCTION;
use super::world::{World, change, name, now};
use crate::operation::{Action, Attributes, NewObject, Rename, ReplacedObject};

/// A name in the tree that clients see.
#[derive(Clone, Debug)]
pub struct Entry {
    pub dir: FileId,
    pub name: Name,
    pub id: FileId,
    pub object: Object,
}

/// What others did.
pub struct Interference {
    pub object: Object,
    pub wrote: Option<String>,
    /// The bytes that this put an end to.
    pub before: Vec<u8>,
}

impl World {
    fn wanted_id(&self, object: &Object) -> FileId {
        let known = self.wanted.iter().find(|(_, reference)| **reference == object.reference);
        *known.expect("each object of the model has an id").0
    }

    pub fn entries(&self) -> (Vec<FileId>, Vec<Entry>) {
        let (mut dirs, mut entries) = (vec![self.root], Vec::new());
        let mut at = 0;
        while at < dirs.len() {
            let dir = dirs[at];
            let page = now(self.want.readdir(&self.wanted[&dir], Default::default())).unwrap();
            for entry in page.entries {
                let object = entry.object.unwrap();
                let id = self.wanted_id(&object);
                if object.attr.is_dir() {
                    dirs.push(id);
                }
                entries.push(Entry { dir, name: entry.name, id, object });
            }
            at += 1;
        }
        (dirs, entries)
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        let at = self.random.below(from.len().max(1) as u64) as usize;
        from.get(at).cloned()
    }

    fn any_name(&mut self) -> Name {
        if self.odd_names && self.random.below(4) == 0 {
            return name(["x", "y"][self.random.below(2) as usize]);
        }
        name(["a", "b", "c", "d", "e", "f", "g"][self.random.below(7) as usize])
    }

    /// One operation of a client, where the model allows it. Returns what it was.
    pub fn operate(&mut self, token: u64) -> Option<String> {
        let (dirs, entries) = self.entries();
        let files: Vec<Entry> = entries.iter().filter(|entry| entry.object.attr.is_file()).cloned().collect();
        let at = self.clock.wall();
        let dir = self.pick(&dirs)?;
        let given = self.any_name();
        let what = self.random.below(16);
        let (action, data) = match what {
            0..=2 => (self.make(dir, given, NewObject::File, at)?, Vec::new()),
            3 if dirs.len() < 6 => (self.make(dir, given, NewObject::Directory, at)?, Vec::new()),
            4 => (self.make(dir, given, NewObject::Symlink(Bytes::from_static(b"to")), at)?, Vec::new()),
            5 if self.random.below(3) == 0 => {
                (self.make(dir, given, NewObject::Special(NewNode::Fifo), at)?, Vec::new())
            }
            6 | 7 => self.write(&files, at, token)?,
            8 => (self.truncate(&files, at)?, Vec::new()),
            9 => (self.set(&entries, at)?, Vec::new()),
            10 => (self.link(&files, dir, given)?, Vec::new()),
            11 | 12 => (self.remove(&entries)?, Vec::new()),
            _ => (self.rename(&entries, dir, given)?, Vec::new()),
        };
        let told = format!("{action:?} with {} bytes", data.len());
        self.journal(action, &data);
        Some(told)
    }

    fn make(&mut self, dir: FileId, name: Name, what: NewObject, at: Timestamp) -> Option<Action> {
        let mode = [0o600, 0o644, 0o755][self.random.below(3) as usize];
        let mode = Some(mode).filter(|_| what.kind() != FileKind::Symlink);
        let (uid, gid) = (Some(self.random.below(3) as u32), Some(7));
        let set = Attributes { mode, uid, gid, ..Attributes::default() };
        let times = Attributes { atime: Some(at), mtime: Some(at), ..set };
        let (parent, given, all) = (self.wanted[&dir].clone(), name.clone(), times.to_set(None));
        let made = match &what {
            NewObject::File => Change::Create { dir: parent, name: given, how: CreateHow::Guarded, set: all },
            NewObject::Directory => Change::Mkdir { dir: parent, name: given, set: all },
            NewObject::Symlink(target) => {
                Change::Symlink { dir: parent, name: given, target: target.clone(), set: all }
            }
            NewObject::Special(node) => Change::Mknod { dir: parent, name: given, node: *node, set: all },
        };
        let object = change(&self.want, made).ok()??;
        let id = self.ids.give(JUNCTION);
        self.wanted.insert(id, object.reference);
        Some(Action::Make { dir, name, id, what, set })
    }

    pub fn set_mtime(&self, object: &Reference, at: Timestamp) {
        let set = SetAttr { mtime: TimeChange::To(at), ..SetAttr::default() };
        change(&self.want, Change::Set { object: object.clone(), set, guard: None }).unwrap();
    }

    fn write(&mut self, files: &[Entry], at: Timestamp, token: u64) -> Option<(Action, Vec<u8>)> {
        let file = self.pick(files)?;
        let offset = [0, self.random.below(200), self.random.below(6000)][self.random.below(3) as usize];
        let times = 1 + self.random.below(20) as usize;
        let data = format!("<ours-{token}>").repeat(times).into_bytes();
        let written =
            self.want.write(&file.object.reference, offset, data.clone().into(), Stability::FileSync);
        now(written).ok()?;
        self.set_mtime(&file.object.reference, at);
        let size_before = file.object.attr.size;
        Some((Action::Write { file: file.id, offset, size_before, base: self.base(file.id) }, data))
    }

    fn truncate(&mut self, files: &[Entry], at: Timestamp) -> Option<Action> {
        let file = self.pick(files)?;
        let size = [0, self.random.below(300), self.random.below(7000)][self.random.below(3) as usize];
        let set = SetAttr { size: Some(size), mtime: TimeChange::To(at), ..SetAttr::default() };
        change(&self.want, Change::Set { object: file.object.reference, set, guard: None }).ok()?;
        let size_before = file.object.attr.size;
        Some(Action::Truncate { file: file.id, size, size_before, base: self.base(file.id) })
    }

    fn set(&mut self, entries: &[Entry], at: Timestamp) -> Option<Action> {
        let entry = self.pick(entries)?;
        let mut set = Attributes { gid: Some(self.random.below(9) as u32), ..Attributes::default() };
        if entry.object.attr.kind != FileKind::Symlink {
            set.mode = [None, Some(0o640), Some(0o711)][self.random.below(3) as usize];
        }
        set.mtime = [None, Some(Timestamp { seconds: 5, ..at })][self.random.below(2) as usize];
        let all = set.to_set(None);
        change(&self.want, Change::Set { object: entry.object.reference, set: all, guard: None }).ok()?;
        Some(Action::Set { object: entry.id, set, base: self.base(entry.id) })
    }

    fn link(&mut self, files: &[Entry], dir: FileId, name: Name) -> Option<Action> {
        let file = self.pick(files)?;
        let (of, parent) = (file.object.reference.clone(), self.wanted[&dir].clone());
        change(&self.want, Change::Link { file: of, dir: parent, name: name.clone() }).ok()?;
        let links = file.object.attr.nlink + 1;
        Some(Action::Link { file: file.id, dir, name, links, base: self.base(file.id) })
    }

    pub fn remove(&mut self, entries: &[Entry]) -> Option<Action> {
        let Entry { dir, name, id: object, object: seen } = self.pick(entries)?;
        let (parent, given) = (self.wanted[&dir].clone(), name.clone());
        if seen.attr.is_dir() {
            change(&self.want, Change::Rmdir { dir: parent, name: given }).ok()?;
            return Some(Action::Rmdir { dir, name, object });
        }
        change(&self.want, Change::Remove { dir: parent, name: given }).ok()?;
        let links = seen.attr.nlink - 1;
        Some(Action::Remove { dir, name, object, links, base: self.base(object) })
    }

    pub fn rename(&mut self, entries: &[Entry], to_dir: FileId, to: Name) -> Option<Action> {
        let Entry { dir: from_dir, name: from, id: object, object: seen } = self.pick(entries)?;
        let target = entries.iter().find(|entry| entry.dir == to_dir && entry.name == to);
        if target.is_some_and(|target| target.id == object) {
            return None;
        }
        let replaced = target.map(|target| ReplacedObject {
            object: target.id,
            links: target.object.attr.nlink - 1,
            base: self.base(target.id),
        });
        let made = Change::Rename {
            from_dir: self.wanted[&from_dir].clone(),
            from: from.clone(),
            to_dir: self.wanted[&to_dir].clone(),
            to: to.clone(),
            identity: None,
        };
        change(&self.want, made).ok()?;
        let (is_dir, base) = (seen.attr.is_dir(), self.base(object));
        Some(Action::Rename(Rename { from_dir, from, to_dir, to, object, is_dir, base, replaced }))
    }

    /// Somebody else changes the origin: overwrites a file, makes one, or removes one.
    pub fn interfere(&mut self, token: u64) -> Interference {
        let origin = self.target.origin.clone();
        let before = super::tree::tree(&origin);
        let paths: Vec<String> = before
            .iter()
            .filter(|(path, shown)| shown.kind == FileKind::Regular && !path.contains(".conflict-"))
            .map(|(path, _)| path.clone())
            .collect();
        let new = format!("/{}", self.any_name());
        let path = match self.random.below(4) {
            0 if !before.contains_key(&new) => new,
            _ => self.pick(&paths).unwrap_or("/h".into()),
        };
        let before = before.get(&path).map(|shown| shown.bytes.clone());
        if before.is_some() && self.random.below(4) == 0 {
            let object = self.object_at(&path);
            super::world::tell(|| format!("others remove {path}, {}", self.target.database().id(&object)));
            origin.remove(path.as_bytes()).unwrap();
            return Interference { object, wrote: None, before: before.unwrap_or_default() };
        }
        let text = format!("<theirs-{token}>");
        origin.write_file(path.as_bytes(), text.as_bytes()).unwrap();
        let object = self.object_at(&path);
        let id = self.target.database().id(&object);
        super::world::tell(|| format!("others write {path}, {id}: {text}, {:?}", object.version));
        Interference { object, wrote: Some(text), before: before.unwrap_or_default() }
    }

    fn object_at(&self, path: &str) -> Object {
        let mut object = now(self.target.origin.root()).unwrap();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            object = now(self.target.origin.lookup(&object.reference, &name(part))).unwrap();
        }
        object
    }

    /// All bytes of all files at the origin, conflict copies included.
    pub fn all_bytes(&self) -> Vec<u8> {
        let tree = super::tree::tree(&self.target.origin);
        tree.into_values().flat_map(|shown| [shown.bytes, b"|".to_vec()].concat()).collect()
    }

    /// The bytes of one file at the origin.
    pub fn at_origin(&self, path: &str) -> Option<Vec<u8>> {
        super::tree::tree(&self.target.origin).get(path).map(|shown| shown.bytes.clone())
    }
}
