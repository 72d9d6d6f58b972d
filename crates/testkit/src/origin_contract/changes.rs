//! What every origin must do with changes: each operation, what it answers, what is there afterwards, and how it fails.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use origin::{Around, Before, Change, Changed, Committed, DirCursor, Object, Origin, Reference, Written};
use types::{
    Attr, ByteRange, CreateHow, ErrorKind, FileKind, NewNode, Result, SetAttr, SetXattr, Stability,
    TimeChange, Timestamp, XattrName,
};

use super::{Has, kind_of, name, pattern};

/// The part of the suite for changes. The store is empty, and empty again afterwards.
pub async fn run_changes(origin: &Arc<dyn Origin>) {
    run_changes_with(origin, Has::ALL).await;
}

pub async fn run_changes_with(origin: &Arc<dyn Origin>, has: Has) {
    let root = origin.root().await.expect("the root is there").reference;
    let suite = Changes { origin: origin.clone(), root, has };
    suite.creates_as_asked().await;
    suite.repeats_an_exclusive_create().await;
    suite.makes_and_removes_directories().await;
    suite.makes_links_and_special_files().await;
    suite.gives_a_file_more_names().await;
    suite.renames_over_what_may_be_replaced().await;
    suite.refuses_a_rename_that_cannot_be().await;
    suite.sets_attributes_and_times().await;
    suite.sets_under_guard().await;
    suite.keeps_extended_attributes().await;
    suite.cuts_and_lengthens().await;
    suite.writes_where_it_is_told().await;
    suite.tells_its_own_changes_from_others().await;
    suite.stores_what_was_written().await;
    suite.refuses_what_is_no_file().await;
    suite.refuses_what_is_gone().await;
    let page = origin.readdir(&suite.root, DirCursor::default()).await.expect("listed");
    assert!(page.entries.is_empty(), "nothing is left: {:?}", page.entries);
}

/// What is changed after this has another time than what was changed before: the clock of most file systems moves 100
/// to 1,000 times in a second.
async fn the_clock_moves() {
    tokio::time::sleep(Duration::from_millis(25)).await;
}

/// An owner that a file can be given here: only root may give files away.
pub(super) fn owner() -> (u32, u32) {
    if rustix::process::geteuid().is_root() {
        return (12, 34);
    }
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

pub(super) fn with_mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

/// The second directory of a rename.
fn to_dir(change: &Change) -> Option<&Reference> {
    match change {
        Change::Rename { to_dir, .. } => Some(to_dir),
        _ => None,
    }
}

struct Changes {
    origin: Arc<dyn Origin>,
    root: Reference,
    has: Has,
}

impl Changes {
    async fn change(&self, change: Change) -> Result<Changed> {
        let (place, other) = (change.place().clone(), to_dir(&change));
        let was = [self.origin.getattr(&place).await.ok(), self.look_at(other).await];
        let changed = self.origin.change(&change).await?;
        if let Change::Set { .. } | Change::SetXattr { .. } = &change {
            assert_eq!(changed.dir, Around::default(), "a set changes no directory");
            self.check_before(&change, changed.before, was[0].as_ref(), changed.resent);
        } else {
            self.check_around(&change, &changed.dir, was[0].as_ref(), changed.resent).await;
        }
        match other {
            Some(_) => self.check_around(&change, &changed.to_dir, was[1].as_ref(), changed.resent).await,
            None => assert_eq!(changed.to_dir, Around::default(), "a {} has one directory", change.kind()),
        }
        // A look right after it sees the same.
        if let Some(object) = &changed.object {
            let now = self.origin.getattr(&object.reference).await.expect("it is there");
            // A server may look at what it made, and a look may set this time.
            let told = Attr { atime: now.attr.atime, ..object.attr };
            assert_eq!((&now.identity, now.attr), (&object.identity, told), "after {}", change.kind());
        }
        Ok(changed)
    }

    async fn look_at(&self, object: Option<&Reference>) -> Option<Object> {
        self.origin.getattr(object?).await.ok()
    }

    /// Nobody else is here: what a change tells of its directory is what looks before and after it see.
    async fn check_around(&self, change: &Change, told: &Around, was: Option<&Object>, resent: bool) {
        self.check_before(change, told.before, was, resent);
        if let Some(after) = &told.after {
            let now = self.origin.getattr(&after.reference).await.expect("the directory is there");
            assert_eq!((&now.identity, now.version), (&after.identity, after.version), "{}", change.kind());
            assert_eq!(Some(&now.identity), was.map(|was| &was.identity), "{}", change.kind());
        }
    }

    fn check_before(&self, change: &Change, told: Option<Before>, was: Option<&Object>, resent: bool) {
        if let Some(before) = told {
            assert!(!resent, "what was before a change that was made twice?");
            assert_eq!(Some(before), was.map(Before::from), "before {}", change.kind());
        }
    }

    /// Or says that it has none.
    async fn keeps_extended_attributes(&self) {
        let file =
            self.create_in(&self.root, "f", CreateHow::Guarded, SetAttr::default()).await.expect("made");
        let attribute = |text: &str| XattrName::new(text.as_bytes().to_vec()).expect("a name");
        let set = async |object: &Object, name: &str, set: SetXattr| {
            let (object, name) = (object.reference.clone(), attribute(name));
            self.change(Change::SetXattr { object, name, set }).await
        };
        let value = |text: &'static str| Bytes::from_static(text.as_bytes());
        if !self.origin.traits().has_xattrs {
            assert_eq!(kind_of(self.origin.xattrs(&file.reference).await), ErrorKind::NotSupported);
            let refused = set(&file, "user.a", SetXattr::To(value("1"))).await;
            assert_eq!(kind_of(refused), ErrorKind::NotSupported);
            self.remove("f").await.expect("removed");
            return;
        }
        set(&file, "user.a", SetXattr::To(value("1"))).await.expect("set");
        set(&file, "user.b", SetXattr::New(value(""))).await.expect("set");
        let again = set(&file, "user.a", SetXattr::New(value("2"))).await;
        assert_eq!(kind_of(again), ErrorKind::Exists);
        set(&file, "user.a", SetXattr::Replace(value("3"))).await.expect("set");
        for lacking in [SetXattr::Replace(value("4")), SetXattr::Remove] {
            assert_eq!(kind_of(set(&file, "user.c", lacking).await), ErrorKind::NotFound);
        }
        let mut all = self.origin.xattrs(&file.reference).await.expect("read");
        all.sort();
        assert_eq!(all, [(attribute("user.a"), value("3")), (attribute("user.b"), value(""))]);
        for name in ["user.a", "user.b"] {
            set(&file, name, SetXattr::Remove).await.expect("removed");
        }
        assert_eq!(self.origin.xattrs(&file.reference).await.expect("read"), []);
        self.remove("f").await.expect("removed");
        let gone = set(&file, "user.a", SetXattr::To(value("5"))).await;
        assert_eq!(kind_of(gone), ErrorKind::Stale);
        assert_eq!(kind_of(self.origin.xattrs(&file.reference).await), ErrorKind::Stale);
    }

    async fn make(&self, change: Change) -> Result<Object> {
        let object = self.change(change.clone()).await?.made()?;
        if let Change::Create { dir, name, .. } | Change::Mkdir { dir, name, .. } = &change {
            assert_eq!(
                self.origin.lookup(dir, name).await.expect("it has its name").identity,
                object.identity
            );
        }
        Ok(object)
    }

    async fn create_in(&self, dir: &Reference, file: &str, how: CreateHow, set: SetAttr) -> Result<Object> {
        self.make(Change::Create { dir: dir.clone(), name: name(file.as_bytes()), how, set }).await
    }

    async fn create(&self, file: &str, how: CreateHow, set: SetAttr) -> Result<Object> {
        self.create_in(&self.root, file, how, set).await
    }

    async fn file(&self, file: &str) -> Object {
        self.create(file, CreateHow::Guarded, with_mode(0o644)).await.expect("created")
    }

    async fn mkdir_in(&self, dir: &Reference, new: &str) -> Result<Object> {
        let set = with_mode(0o755);
        self.make(Change::Mkdir { dir: dir.clone(), name: name(new.as_bytes()), set }).await
    }

    async fn mkdir(&self, new: &str) -> Object {
        self.mkdir_in(&self.root, new).await.expect("made")
    }

    async fn symlink(&self, new: &str, target: &[u8]) -> Result<Object> {
        let (dir, name, target) = (self.root.clone(), name(new.as_bytes()), Bytes::copy_from_slice(target));
        self.make(Change::Symlink { dir, name, target, set: SetAttr::default() }).await
    }

    async fn link(&self, file: &Object, new: &str) -> Result<Changed> {
        let (file, dir) = (file.reference.clone(), self.root.clone());
        self.change(Change::Link { file, dir, name: name(new.as_bytes()) }).await
    }

    async fn remove_from(&self, dir: &Reference, old: &str) -> Result<Changed> {
        self.change(Change::Remove { dir: dir.clone(), name: name(old.as_bytes()) }).await
    }

    async fn remove(&self, old: &str) -> Result<Changed> {
        self.remove_from(&self.root, old).await
    }

    async fn rmdir(&self, old: &str) -> Result<Changed> {
        self.change(Change::Rmdir { dir: self.root.clone(), name: name(old.as_bytes()) }).await
    }

    async fn rename_between(
        &self,
        from_dir: &Reference,
        from: &str,
        to_dir: &Reference,
        to: &str,
    ) -> Result<Changed> {
        let (from_dir, to_dir) = (from_dir.clone(), to_dir.clone());
        let (from, to) = (name(from.as_bytes()), name(to.as_bytes()));
        self.change(Change::Rename { from_dir, from, to_dir, to, identity: None }).await
    }

    async fn rename(&self, from: &str, to: &str) -> Result<Changed> {
        self.rename_between(&self.root, from, &self.root, to).await
    }

    async fn set(&self, object: &Object, set: SetAttr, guard: Option<Timestamp>) -> Result<Changed> {
        self.change(Change::Set { object: object.reference.clone(), set, guard }).await
    }

    async fn look(&self, path: &str) -> Result<Object> {
        let mut at = self.origin.root().await?;
        for part in path.split('/') {
            at = self.origin.lookup(&at.reference, &name(part.as_bytes())).await?;
        }
        Ok(at)
    }

    async fn write(&self, file: &Object, offset: u64, data: &[u8], stability: Stability) -> Result<Written> {
        let written =
            self.origin.write(&file.reference, offset, Bytes::copy_from_slice(data), stability).await?;
        assert!(written.stability >= stability, "{:?} is less than {stability:?}", written.stability);
        Ok(written)
    }

    async fn commit(&self, file: &Object) -> Result<Committed> {
        self.origin.commit(&file.reference, ByteRange::new(0, 0)).await
    }

    async fn contents(&self, file: &Object) -> Bytes {
        let now = self.origin.getattr(&file.reference).await.expect("there");
        let all = ByteRange::new(0, now.attr.size);
        self.origin.read(&now.reference, now.version, all).await.expect("read")
    }

    async fn creates_as_asked(&self) {
        let (uid, gid) = owner();
        let set = SetAttr { mode: Some(0o640), uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        let file = self.create("file", CreateHow::Guarded, set).await.expect("new");
        let attr = file.attr;
        assert_eq!((attr.kind, attr.mode, attr.nlink, attr.size), (FileKind::Regular, 0o640, 1, 0));
        assert_eq!((attr.uid, attr.gid), (uid, gid));
        let again = self.create("file", CreateHow::Guarded, with_mode(0o600)).await;
        assert_eq!(kind_of(again), ErrorKind::Exists);
        self.write(&file, 0, b"twelve bytes", Stability::FileSync).await.expect("written");
        let taken = self.create("file", CreateHow::Unchecked, SetAttr::default()).await.expect("taken");
        assert_eq!((&taken.identity, taken.attr.size, taken.attr.mode), (&file.identity, 12, 0o640));
        let cut = SetAttr { size: Some(0), ..SetAttr::default() };
        let cut = self.create("file", CreateHow::Unchecked, cut).await.expect("taken and cut");
        assert_eq!((cut.identity, cut.attr.size), (file.identity.clone(), 0));
        let new = self.create("new", CreateHow::Unchecked, with_mode(0o604)).await.expect("new");
        assert_eq!(new.attr.mode, 0o604);
        let below_file = self.create_in(&file.reference, "x", CreateHow::Guarded, with_mode(0o600)).await;
        assert_eq!(kind_of(below_file), ErrorKind::NotADirectory);
        self.mkdir("dir").await;
        for how in [CreateHow::Unchecked, CreateHow::Guarded, CreateHow::Exclusive([1; 8])] {
            let over_dir = self.create("dir", how, with_mode(0o600)).await;
            assert!(over_dir.is_err(), "{how:?}: a directory is no file");
        }
        self.rmdir("dir").await.expect("removed");
        // No mask of a process narrows it.
        let open = self.create("open", CreateHow::Guarded, with_mode(0o666)).await.expect("new");
        assert_eq!(open.attr.mode, 0o666);
        let closed = self.create("closed", CreateHow::Guarded, with_mode(0)).await.expect("new");
        assert_eq!(closed.attr.mode, 0);
        for old in ["file", "new", "open", "closed"] {
            assert_eq!(self.remove(old).await.expect("removed").object, None);
            assert_eq!(kind_of(self.look(old).await), ErrorKind::NotFound);
        }
        assert_eq!(kind_of(self.remove("file").await), ErrorKind::NotFound);
    }

    async fn repeats_an_exclusive_create(&self) {
        let (mine, theirs) = (CreateHow::Exclusive(*b"verifier"), CreateHow::Exclusive(*b"another1"));
        let nothing = SetAttr::default();
        let first = self.create("only", mine, nothing).await.expect("created");
        let second = self.create("only", mine, nothing).await.expect("the same once more");
        assert_eq!(first.identity, second.identity);
        assert_eq!(kind_of(self.create("only", theirs, nothing).await), ErrorKind::Exists);
        assert_eq!(kind_of(self.create("only", CreateHow::Guarded, nothing).await), ErrorKind::Exists);
        self.write(&first, 0, b"x", Stability::FileSync).await.expect("written");
        assert_eq!(kind_of(self.create("only", mine, nothing).await), ErrorKind::Exists, "it is in use");
        self.remove("only").await.expect("removed");
        let dressed = self.create("only", mine, with_mode(0o604)).await.expect("created");
        assert_eq!(dressed.attr.mode, 0o604);
        assert!(dressed.attr.mtime.seconds.abs_diff(dressed.attr.ctime.seconds) < 3600, "{:?}", dressed.attr);
        assert_eq!(kind_of(self.create("only", mine, nothing).await), ErrorKind::Exists, "its times are set");
        self.remove("only").await.expect("removed");
        let bare = self.create("only", mine, nothing).await.expect("created");
        let dressed = self.create("only", mine, with_mode(0o731)).await.expect("the same, with attributes");
        assert_eq!((&dressed.identity, dressed.attr.mode), (&bare.identity, 0o731));
        assert_eq!(kind_of(self.create("only", mine, nothing).await), ErrorKind::Exists, "its times are set");
        self.remove("only").await.expect("removed");
    }

    async fn makes_and_removes_directories(&self) {
        let set = with_mode(0o1750);
        let made = self.make(Change::Mkdir { dir: self.root.clone(), name: name(b"dir"), set }).await;
        let dir = made.expect("made");
        the_clock_moves().await;
        assert_eq!((dir.attr.kind, dir.attr.mode), (FileKind::Directory, 0o1750));
        assert_eq!(kind_of(self.mkdir_in(&self.root, "dir").await), ErrorKind::Exists);
        let inside = self.create_in(&dir.reference, "inside", CreateHow::Guarded, with_mode(0o600)).await;
        let now = self.origin.getattr(&dir.reference).await.expect("there");
        assert_ne!(now.version, dir.version, "a new name shows in the directory");
        assert_eq!(kind_of(self.rmdir("dir").await), ErrorKind::NotEmpty);
        assert_eq!(kind_of(self.remove("dir").await), ErrorKind::IsADirectory);
        self.remove_from(&dir.reference, "inside").await.expect("removed");
        let gone = self.origin.getattr(&inside.expect("created").reference).await;
        assert_eq!(kind_of(gone), ErrorKind::Stale);
        assert_eq!(self.rmdir("dir").await.expect("empty now").object, None);
        assert_eq!(kind_of(self.rmdir("dir").await), ErrorKind::NotFound);
        let long = "n".repeat(255);
        self.mkdir(&long).await;
        self.file("file").await;
        assert_eq!(kind_of(self.rmdir("file").await), ErrorKind::NotADirectory);
        self.rmdir(&long).await.expect("removed");
        self.remove("file").await.expect("removed");
    }

    async fn makes_links_and_special_files(&self) {
        let link = self.symlink("link", b"../some where/\xff").await.expect("made");
        assert_eq!((link.attr.kind, link.attr.size), (FileKind::Symlink, 15));
        assert_eq!(self.origin.readlink(&link.reference).await.expect("read"), &b"../some where/\xff"[..]);
        assert_eq!(kind_of(self.symlink("link", b"x").await), ErrorKind::Exists);
        for nowhere in [&b""[..], &[b'x'; 4097]] {
            assert_eq!(kind_of(self.symlink("nowhere", nowhere).await), ErrorKind::InvalidArgument);
        }
        let (uid, gid) = owner();
        let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        self.set(&link, set, None).await.expect("the link's own");
        let now = self.look("link").await.expect("there");
        assert_eq!((now.attr.uid, now.attr.gid, now.attr.kind), (uid, gid, FileKind::Symlink));
        self.remove("link").await.expect("removed");
        let mut nodes = vec![(NewNode::Fifo, FileKind::Fifo), (NewNode::Socket, FileKind::Socket)];
        if rustix::process::geteuid().is_root() {
            nodes.push((NewNode::CharDevice(1, 3), FileKind::CharDevice));
            nodes.push((NewNode::BlockDevice(259, 70_000), FileKind::BlockDevice));
        }
        for (node, kind) in nodes {
            let (dir, set) = (self.root.clone(), with_mode(0o622));
            let made = self.make(Change::Mknod { dir, name: name(b"node"), node, set }).await;
            if !self.has.special_files {
                assert_eq!(kind_of(made), ErrorKind::NotSupported);
                continue;
            }
            let made = made.expect("made");
            assert_eq!((made.attr.kind, made.attr.mode), (kind, 0o622));
            if let NewNode::CharDevice(major, minor) | NewNode::BlockDevice(major, minor) = node {
                assert_eq!(made.attr.rdev, (major, minor));
            }
            self.remove("node").await.expect("removed");
        }
    }

    async fn gives_a_file_more_names(&self) {
        let file = self.file("one").await;
        if !self.has.hard_links {
            assert_eq!(kind_of(self.link(&file, "two").await), ErrorKind::NotSupported);
            self.remove("one").await.expect("removed");
            return;
        }
        the_clock_moves().await;
        if let Some(linked) = self.link(&file, "two").await.expect("linked").object {
            assert_eq!((&linked.identity, linked.attr.nlink), (&file.identity, 2));
        }
        let second = self.look("two").await.expect("there");
        assert_eq!((&second.identity, second.attr.nlink), (&file.identity, 2));
        assert_ne!(second.attr.ctime, file.attr.ctime, "another count of names is a change");
        assert_eq!(kind_of(self.link(&file, "two").await), ErrorKind::Exists);
        // Two names of one file stay both.
        self.rename("one", "two").await.expect("nothing to do");
        assert_eq!(self.look("one").await.expect("still there").attr.nlink, 2);
        self.remove("one").await.expect("removed");
        assert_eq!(self.look("two").await.expect("one name is left").attr.nlink, 1);
        let dir = self.mkdir("dir").await;
        let refused = kind_of(self.link(&dir, "three").await);
        let fitting = [
            ErrorKind::IsADirectory,
            ErrorKind::AccessDenied,
            ErrorKind::NotPermitted,
            ErrorKind::InvalidArgument,
            ErrorKind::NotSupported,
        ];
        assert!(fitting.contains(&refused), "a directory has one name: {refused:?}");
        self.remove("two").await.expect("removed");
        self.rmdir("dir").await.expect("removed");
    }

    async fn renames_over_what_may_be_replaced(&self) {
        let dir = self.mkdir("dir").await.reference;
        let file = self.file("from").await;
        let replaced =
            self.create_in(&dir, "to", CreateHow::Guarded, with_mode(0o600)).await.expect("created");
        let renamed = self.rename_between(&self.root, "from", &dir, "to").await.expect("over a file");
        let now = self.look("dir/to").await.expect("there");
        assert_eq!((&now.identity, now.attr.mode), (&file.identity, 0o644));
        if let Some(object) = renamed.object {
            let told = (object.reference, object.identity, object.version);
            assert_eq!(told, (now.reference, now.identity, now.version), "as it is at its new place");
        }
        assert_eq!(kind_of(self.look("from").await), ErrorKind::NotFound);
        match self.origin.getattr(&replaced.reference).await {
            // A path may be the reference of what is there now, but then says whose it is.
            Ok(object) => assert_eq!(object.attr.nlink, 0),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Stale),
        }
        self.rename("dir", "dir").await.expect("nothing to do");
        let (moved, empty) = (self.mkdir("moved").await, self.mkdir("empty").await);
        self.mkdir_in(&moved.reference, "sub").await.expect("made");
        self.rename("moved", "empty").await.expect("over an empty directory");
        let now = self.look("empty").await.expect("there");
        assert_eq!(now.identity, moved.identity);
        assert_ne!(now.identity, empty.identity);
        self.look("empty/sub").await.expect("it came along");
        self.change(Change::Rmdir { dir: now.reference, name: name(b"sub") }).await.expect("removed");
        self.rmdir("empty").await.expect("removed");
        self.remove_from(&self.look("dir").await.expect("there").reference, "to").await.expect("removed");
        self.rmdir("dir").await.expect("removed");
    }

    async fn refuses_a_rename_that_cannot_be(&self) {
        let full = self.mkdir("full").await.reference;
        let sub = self.mkdir_in(&full, "sub").await.expect("made").reference;
        self.mkdir("empty").await;
        self.file("file").await;
        let into_itself = self.rename_between(&self.root, "full", &sub, "x").await;
        assert_eq!(kind_of(into_itself), ErrorKind::InvalidArgument);
        assert_eq!(kind_of(self.rename("none", "x").await), ErrorKind::NotFound);
        for (from, to, wanted) in [
            ("empty", "full", ErrorKind::NotEmpty),
            ("file", "empty", ErrorKind::IsADirectory),
            ("empty", "file", ErrorKind::NotADirectory),
        ] {
            let kind = kind_of(self.rename(from, to).await);
            assert!(kind == wanted || kind == ErrorKind::Exists, "{from} to {to}: {kind:?}");
        }
        for path in ["full/sub", "empty", "file"] {
            self.look(path).await.expect("a rename that fails removes nothing");
        }
        self.change(Change::Rmdir { dir: full, name: name(b"sub") }).await.expect("removed");
        self.rmdir("full").await.expect("removed");
        self.rmdir("empty").await.expect("removed");
        self.remove("file").await.expect("removed");
    }

    async fn sets_attributes_and_times(&self) {
        let file = self.file("file").await;
        let mtime = Timestamp { seconds: 1_234_567_890, nanos: 123_456_789 };
        let atime = Timestamp { seconds: 4_000_000_000, nanos: 1 };
        let (uid, gid) = owner();
        let set = SetAttr {
            mode: Some(0o1711),
            uid: Some(uid),
            gid: Some(gid),
            size: Some(70_000),
            atime: TimeChange::To(atime),
            mtime: TimeChange::To(mtime),
        };
        the_clock_moves().await;
        self.set(&file, set, None).await.expect("set");
        let attr = self.look("file").await.expect("there").attr;
        assert_eq!((attr.mode, attr.uid, attr.gid, attr.size), (0o1711, uid, gid, 70_000));
        assert_eq!((attr.atime, attr.mtime), (atime, mtime), "to the nanosecond");
        assert_ne!(attr.ctime, file.attr.ctime);
        let now = SetAttr { mtime: TimeChange::Now, ..SetAttr::default() };
        self.set(&file, now, None).await.expect("set");
        let after = self.look("file").await.expect("there").attr;
        assert!(after.mtime > mtime && after.atime == atime, "{after:?}");
        assert_eq!((after.mode, after.size), (0o1711, 70_000), "the rest is left as it was");
        for nonsense in [Timestamp { seconds: 1, nanos: 1_000_000_000 }] {
            let set = SetAttr { mtime: TimeChange::To(nonsense), ..SetAttr::default() };
            assert_eq!(kind_of(self.set(&file, set, None).await), ErrorKind::InvalidArgument);
        }
        self.remove("file").await.expect("removed");
    }

    async fn sets_under_guard(&self) {
        let file = self.file("file").await;
        // Some servers compare whole seconds.
        let old = Timestamp { seconds: file.attr.ctime.seconds - 1, ..file.attr.ctime };
        let refused = self.set(&file, with_mode(0o600), Some(old)).await;
        assert_eq!(kind_of(refused), ErrorKind::VersionChanged);
        assert_eq!(self.look("file").await.expect("there").attr.mode, 0o644, "nothing was set");
        self.set(&file, with_mode(0o600), Some(file.attr.ctime)).await.expect("set");
        assert_eq!(self.look("file").await.expect("there").attr.mode, 0o600);
        self.remove("file").await.expect("removed");
    }

    async fn cuts_and_lengthens(&self) {
        let file = self.file("file").await;
        let bytes = pattern(100_000, 3);
        self.write(&file, 0, &bytes, Stability::FileSync).await.expect("written");
        let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
        self.set(&file, size(70_001), None).await.expect("cut");
        assert!(self.contents(&file).await == bytes[..70_001]);
        self.set(&file, size(90_000), None).await.expect("made longer");
        let now = self.contents(&file).await;
        assert!(now[..70_001] == bytes[..70_001] && now[70_001..].iter().all(|byte| *byte == 0));
        assert_eq!(now.len(), 90_000);
        self.set(&file, size(0), None).await.expect("cut");
        assert!(self.contents(&file).await.is_empty());
        self.remove("file").await.expect("removed");
    }

    async fn writes_where_it_is_told(&self) {
        let file = self.file("file").await;
        let bytes = pattern(200_003, 5);
        self.write(&file, 70_000, &bytes, Stability::Unstable).await.expect("written");
        self.write(&file, 10, b"front", Stability::DataSync).await.expect("written");
        self.write(&file, 100_000, b"middle", Stability::FileSync).await.expect("written");
        let mut wanted = vec![0; 70_000];
        wanted.extend_from_slice(&bytes);
        wanted[10..15].copy_from_slice(b"front");
        wanted[100_000..100_006].copy_from_slice(b"middle");
        assert!(self.contents(&file).await == wanted, "what lies between is zeros");
        let piece = usize::try_from(self.origin.traits().write_max).expect("fits");
        let large = pattern(piece, 9);
        let written = self.write(&file, 1, &large, Stability::Unstable).await.expect("the most at once");
        self.write(&file, 0, b"", Stability::Unstable).await.expect("nothing to do");
        assert!(self.contents(&file).await[1..=piece] == large);
        if let Some(after) = written.after {
            assert_eq!(after.attr.size, 270_003.max(1 + piece as u64));
        }
        let beyond = self.write(&file, u64::MAX, b"x", Stability::Unstable).await;
        assert_eq!(kind_of(beyond), ErrorKind::InvalidArgument);
        self.remove("file").await.expect("removed");
    }

    async fn tells_its_own_changes_from_others(&self) {
        let file = self.file("file").await;
        let mut version = file.version;
        for round in 0..5_u8 {
            let written = self.write(&file, 0, &[round; 100], Stability::Unstable).await.expect("written");
            let now = self.origin.getattr(&file.reference).await.expect("there");
            if let Some(before) = written.before {
                assert_eq!(before, version, "round {round}: nobody else was there");
            }
            if let Some(after) = written.after {
                assert_eq!((after.version, after.identity), (now.version, file.identity.clone()));
            }
            version = now.version;
            // Longer than the tick of any file system's clock that we test on.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let committed = self.commit(&file).await.expect("committed");
        if let (Some(before), Some(after)) = (committed.before, &committed.after) {
            assert_eq!((before, after.version), (version, version), "a commit changes nothing");
        }
        self.remove("file").await.expect("removed");
    }

    async fn stores_what_was_written(&self) {
        let file = self.file("file").await;
        let bytes = pattern(300_000, 7);
        let mut verifiers = Vec::new();
        for at in (0..bytes.len()).step_by(100_000).rev() {
            let piece = &bytes[at..at + 100_000];
            let written = self.write(&file, at as u64, piece, Stability::Unstable).await.expect("written");
            verifiers.push(written.verifier);
        }
        let committed = self.commit(&file).await.expect("committed");
        assert!(verifiers.iter().all(|verifier| *verifier == committed.verifier), "it did not restart");
        let part = self.origin.commit(&file.reference, ByteRange::new(5, 10)).await.expect("committed");
        assert_eq!(part.verifier, committed.verifier);
        assert!(self.contents(&file).await == bytes);
        self.remove("file").await.expect("removed");
    }

    async fn refuses_what_is_no_file(&self) {
        let dir = self.mkdir("dir").await;
        let set = with_mode(0o600);
        let fifo = Change::Mknod { dir: self.root.clone(), name: name(b"fifo"), node: NewNode::Fifo, set };
        let fifo = match self.has.special_files {
            true => Some(self.make(fifo).await.expect("made")),
            false => None,
        };
        for object in [Some(&dir), fifo.as_ref()].into_iter().flatten() {
            let kind = kind_of(self.write(object, 0, b"x", Stability::FileSync).await);
            let fitting = [ErrorKind::IsADirectory, ErrorKind::InvalidArgument];
            assert!(fitting.contains(&kind), "a write to {:?}: {kind:?}", object.attr.kind);
            let size = SetAttr { size: Some(1), ..SetAttr::default() };
            assert!(self.set(object, size, None).await.is_err(), "{:?} has no size", object.attr.kind);
        }
        if fifo.is_some() {
            self.remove("fifo").await.expect("removed");
        }
        self.rmdir("dir").await.expect("removed");
    }

    async fn refuses_what_is_gone(&self) {
        let (dir, file) = (self.mkdir("dir").await, self.file("file").await);
        self.rmdir("dir").await.expect("removed");
        self.remove("file").await.expect("removed");
        assert_eq!(kind_of(self.mkdir_in(&dir.reference, "x").await), ErrorKind::Stale);
        let created = self.create_in(&dir.reference, "x", CreateHow::Guarded, with_mode(0o600)).await;
        assert_eq!(kind_of(created), ErrorKind::Stale);
        assert_eq!(kind_of(self.set(&file, with_mode(0o600), None).await), ErrorKind::Stale);
        assert_eq!(kind_of(self.write(&file, 0, b"x", Stability::FileSync).await), ErrorKind::Stale);
        assert_eq!(kind_of(self.commit(&file).await), ErrorKind::Stale);
        assert_eq!(kind_of(self.link(&file, "x").await), ErrorKind::Stale);
    }
}
