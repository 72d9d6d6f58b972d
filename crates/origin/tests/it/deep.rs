//! Trees that are deeper than one call of the kernel can name, in a directory as an origin.

use std::sync::Arc;

use bytes::Bytes;
use origin::posix::PosixOrigin;
use origin::{Change, DirCursor, Object, Origin, REFERENCE_MAX, Reference};
use rustix::fs::{Mode, OFlags};
use types::{ByteRange, CreateHow, ErrorKind, Name, SetAttr, Stability};

fn name(text: &str) -> Name {
    Name::new(text.as_bytes().to_vec()).expect("a name")
}

struct Tree {
    origin: Arc<dyn Origin>,
    dir: tempfile::TempDir,
}

impl Tree {
    fn new() -> Tree {
        let dir = tempfile::tempdir().expect("temporary directory");
        Tree { origin: Arc::new(PosixOrigin::open(dir.path()).expect("opened")), dir }
    }

    async fn change(&self, change: Change) -> types::Result<Option<Object>> {
        self.origin.change(&change).await.map(|changed| changed.object)
    }

    async fn mkdir(&self, dir: &Reference, text: &str) -> types::Result<Object> {
        let change = Change::Mkdir { dir: dir.clone(), name: name(text), set: SetAttr::default() };
        self.change(change).await.map(|made| made.expect("told"))
    }

    async fn create(&self, dir: &Reference, text: &str) -> types::Result<Object> {
        let (how, set) = (CreateHow::Guarded, SetAttr::default());
        let change = Change::Create { dir: dir.clone(), name: name(text), how, set };
        self.change(change).await.map(|made| made.expect("told"))
    }

    async fn names(&self, dir: &Reference) -> Vec<(String, bool)> {
        let page = self.origin.readdir(dir, DirCursor::default()).await.expect("listed");
        assert!(page.next.is_none());
        let named = |entry: origin::DirEntry| (entry.name.to_string(), entry.object.is_some());
        let mut names: Vec<_> = page.entries.into_iter().map(named).collect();
        names.sort();
        names
    }

    /// The root, and the directories below it, one in the other.
    async fn dug(&self, depth: usize, length: usize) -> Vec<Object> {
        let mut way = vec![self.origin.root().await.expect("there")];
        let text = "d".repeat(length);
        for level in 0..depth {
            let above = &way[level].reference;
            way.push(self.mkdir(above, &text).await.unwrap_or_else(|e| panic!("level {level}: {e}")));
        }
        way
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_deeper_than_one_call_can_name_is_made_listed_changed_renamed_and_removed() {
    for (depth, length) in [(60, 100), (25, 200)] {
        let t = Tree::new();
        let way = t.dug(depth, length).await;
        let bottom = way[depth].reference.clone();
        let file = t.create(&bottom, "file").await.expect("made");
        let origin = &t.origin;
        let wrote = origin.write(&file.reference, 0, Bytes::from_static(b"hello"), Stability::FileSync).await;
        wrote.expect("written");
        let set =
            SetAttr { mode: Some(0o640), uid: Some(7), gid: Some(8), size: Some(4), ..SetAttr::default() };
        let change = Change::Set { object: file.reference.clone(), set, guard: None };
        let set = t.change(change).await.expect("set").expect("told");
        assert_eq!((set.attr.mode, set.attr.size), (0o640, 4));
        let change = Change::Link { file: file.reference.clone(), dir: bottom.clone(), name: name("link") };
        assert_eq!(t.change(change).await.expect("linked").expect("told").attr.nlink, 2);
        let change = Change::Rename {
            from_dir: bottom.clone(),
            from: name("file"),
            to_dir: bottom.clone(),
            to: name("renamed"),
            identity: None,
        };
        let moved = t.change(change).await.expect("renamed").expect("told");
        let read = origin.read(&moved.reference, moved.version, ByteRange::new(0, 4)).await;
        assert_eq!(read.expect("read"), b"hell"[..]);
        assert_eq!(t.names(&bottom).await, [("link".to_owned(), true), ("renamed".to_owned(), true)]);
        assert_eq!(origin.getattr(&bottom).await.expect("there").attr.nlink, 2);
        for gone in ["link", "renamed"] {
            let change = Change::Remove { dir: bottom.clone(), name: name(gone) };
            t.change(change).await.expect("removed");
        }
        for level in (0..depth).rev() {
            let dir = way[level].reference.clone();
            let change = Change::Rmdir { dir, name: name(&"d".repeat(length)) };
            t.change(change).await.expect("removed");
        }
        assert!(t.names(&way[0].reference).await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_could_not_be_addressed_is_refused_before_it_is_made_and_spoils_no_listing() {
    let t = Tree::new();
    // 24 bytes of a reference are no path.
    let reach = REFERENCE_MAX - 24;
    let way = t.dug(reach / 201, 200).await;
    let bottom = way.last().expect("some").reference.clone();
    let left = reach - (way.len() - 1) * 201;
    let (fits, too_long) = ("n".repeat(left), "m".repeat(left + 1));
    let file = t.create(&bottom, &fits).await.expect("it fits");
    let refused = Some(ErrorKind::NameTooLong);
    assert_eq!(t.mkdir(&bottom, &too_long).await.err().map(|e| e.kind()), refused);
    assert_eq!(t.create(&bottom, &too_long).await.err().map(|e| e.kind()), refused);
    let place = || (bottom.clone(), name(&too_long));
    let (dir, to) = place();
    let link = Change::Link { file: file.reference.clone(), dir, name: to };
    let (to_dir, to) = place();
    let rename = Change::Rename { from_dir: bottom.clone(), from: name(&fits), to_dir, to, identity: None };
    for change in [link, rename] {
        assert_eq!(t.change(change).await.err().map(|e| e.kind()), refused);
    }
    assert_eq!(t.names(&bottom).await, [(fits.clone(), true)]);
    // Others can make it: it is listed, without its attributes, and asking for it says why.
    let mut fd = rustix::fs::open(t.dir.path(), OFlags::PATH, Mode::empty()).expect("opened");
    for _ in 1..way.len() {
        fd = rustix::fs::openat(&fd, "d".repeat(200), OFlags::PATH, Mode::empty()).expect("opened");
    }
    rustix::fs::mkdirat(&fd, too_long.as_str(), Mode::RWXU).expect("made");
    assert_eq!(t.names(&bottom).await, [(too_long.clone(), false), (fits, true)]);
    let asked = t.origin.lookup(&bottom, &name(&too_long)).await;
    assert_eq!(asked.err().map(|e| e.kind()), refused);
}
