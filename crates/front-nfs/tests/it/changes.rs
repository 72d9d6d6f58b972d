//! Each procedure that changes something, as a client uses it; and those calls, for the other tests.

use std::sync::Arc;

use bytes::Bytes;
use origin::Origin;
use rpc_nfs3::nfs3::attr::FileType;
use rpc_nfs3::nfs3::create::{
    self, CreateArgs, CreateHow3, CreateOk, CreateResult, MkdirArgs, MknodArgs, NodeData, SymlinkArgs,
};
use rpc_nfs3::nfs3::file::{self, AccessArgs, ReadArgs, access};
use rpc_nfs3::nfs3::names::{self, LinkArgs, LinkResult, RenameArgs, RenameResult};
use rpc_nfs3::nfs3::setattr::{Sattr3, SetTime, SetattrArgs};
use rpc_nfs3::nfs3::wcc::{self, WccResult};
use rpc_nfs3::nfs3::write::{self, CommitArgs, CommitResult, StableHow, WriteArgs, WriteResult};
use rpc_nfs3::nfs3::{DirOp, Fattr3, FileHandle, NfsStatus, Nfstime3, fs, procedure};
use testkit::far_origin::Far;
use types::{ByteRange, Name};

use crate::client::{Client, Served, serve_writable};

pub fn place(dir: &FileHandle, name: &[u8]) -> DirOp {
    DirOp { dir: dir.clone(), name: Bytes::copy_from_slice(name) }
}

pub fn mode(mode: u32) -> Sattr3 {
    Sattr3 { mode: Some(mode), ..Sattr3::default() }
}

/// A writable tree, its origin, and a client that is root.
pub struct Tree {
    pub served: Served,
    pub far: Arc<Far>,
    pub client: Client,
    pub root: FileHandle,
}

pub async fn tree() -> Tree {
    let (served, far) = serve_writable(|_| {}, |_| {}).await;
    let mut client = Client::connect(&served).await;
    let root = client.root().await;
    Tree { served, far, client, root }
}

impl Client {
    pub async fn create(&mut self, dir: &FileHandle, name: &[u8], how: CreateHow3) -> CreateResult {
        let arguments = CreateArgs { place: place(dir, name), how };
        let mut d = self.nfs(procedure::CREATE, |e| arguments.encode(e)).await;
        create::decode_create(&mut d).expect("well-formed")
    }

    pub async fn mkdir(&mut self, dir: &FileHandle, name: &[u8]) -> CreateResult {
        let arguments = MkdirArgs { place: place(dir, name), attributes: mode(0o755) };
        let mut d = self.nfs(procedure::MKDIR, |e| arguments.encode(e)).await;
        create::decode_create(&mut d).expect("well-formed")
    }

    pub async fn symlink(&mut self, dir: &FileHandle, name: &[u8], target: &[u8]) -> CreateResult {
        let (attributes, target) = (Sattr3::default(), Bytes::copy_from_slice(target));
        let arguments = SymlinkArgs { place: place(dir, name), attributes, target };
        let mut d = self.nfs(procedure::SYMLINK, |e| arguments.encode(e)).await;
        create::decode_create(&mut d).expect("well-formed")
    }

    pub async fn mknod(&mut self, dir: &FileHandle, name: &[u8], node: NodeData) -> CreateResult {
        let arguments = MknodArgs { place: place(dir, name), node };
        let mut d = self.nfs(procedure::MKNOD, |e| arguments.encode(e)).await;
        create::decode_create(&mut d).expect("well-formed")
    }

    pub async fn remove(&mut self, dir: &FileHandle, name: &[u8]) -> WccResult {
        let mut d = self.nfs(procedure::REMOVE, |e| place(dir, name).encode(e)).await;
        wcc::decode_wcc_result(&mut d).expect("well-formed")
    }

    pub async fn rmdir(&mut self, dir: &FileHandle, name: &[u8]) -> WccResult {
        let mut d = self.nfs(procedure::RMDIR, |e| place(dir, name).encode(e)).await;
        wcc::decode_wcc_result(&mut d).expect("well-formed")
    }

    pub async fn rename(&mut self, from: DirOp, to: DirOp) -> RenameResult {
        let mut d = self.nfs(procedure::RENAME, |e| RenameArgs { from, to }.encode(e)).await;
        names::decode_rename(&mut d).expect("well-formed")
    }

    pub async fn link(&mut self, object: &FileHandle, place: DirOp) -> LinkResult {
        let arguments = LinkArgs { object: object.clone(), place };
        let mut d = self.nfs(procedure::LINK, |e| arguments.encode(e)).await;
        names::decode_link(&mut d).expect("well-formed")
    }

    pub async fn setattr(
        &mut self,
        object: &FileHandle,
        attributes: Sattr3,
        guard: Option<Nfstime3>,
    ) -> WccResult {
        let arguments = SetattrArgs { object: object.clone(), attributes, guard };
        let mut d = self.nfs(procedure::SETATTR, |e| arguments.encode(e)).await;
        wcc::decode_wcc_result(&mut d).expect("well-formed")
    }

    pub async fn write_at(
        &mut self,
        file: &FileHandle,
        offset: u64,
        data: &[u8],
        stable: StableHow,
    ) -> WriteResult {
        let arguments = WriteArgs { file: file.clone(), offset, stable, data: Bytes::copy_from_slice(data) };
        let mut d = self.nfs(procedure::WRITE, |e| arguments.encode(e)).await;
        write::decode_write(&mut d, data.len()).expect("well-formed")
    }

    pub async fn commit(&mut self, file: &FileHandle, offset: u64, count: u32) -> CommitResult {
        let arguments = CommitArgs { file: file.clone(), offset, count };
        let mut d = self.nfs(procedure::COMMIT, |e| arguments.encode(e)).await;
        write::decode_commit(&mut d).expect("well-formed")
    }

    pub async fn getattr(&mut self, object: &FileHandle) -> Fattr3 {
        let mut d = self.nfs(procedure::GETATTR, |e| object.encode(e)).await;
        file::decode_getattr(&mut d).expect("well-formed").expect("it is there")
    }

    pub async fn find(&mut self, dir: &FileHandle, name: &[u8]) -> Result<FileHandle, NfsStatus> {
        let mut d = self.nfs(procedure::LOOKUP, |e| place(dir, name).encode(e)).await;
        let found = file::decode_lookup(&mut d).expect("well-formed");
        found.map(|ok| ok.object).map_err(|(status, _)| status)
    }

    pub async fn contents(&mut self, file: &FileHandle) -> Bytes {
        let arguments = ReadArgs { file: file.clone(), offset: 0, count: 1 << 20 };
        let mut d = self.nfs(procedure::READ, |e| arguments.encode(e)).await;
        file::decode_read(&mut d, 1 << 20).expect("well-formed").expect("read").data
    }

    pub async fn granted(&mut self, object: &FileHandle) -> u32 {
        let arguments = AccessArgs { object: object.clone(), wanted: u32::MAX };
        let mut d = self.nfs(procedure::ACCESS, |e| arguments.encode(e)).await;
        file::decode_access(&mut d).expect("well-formed").expect("told").granted
    }

    pub async fn fsinfo(&mut self, object: &FileHandle) -> fs::FsinfoOk {
        let mut d = self.nfs(procedure::FSINFO, |e| object.encode(e)).await;
        fs::decode_fsinfo(&mut d).expect("well-formed").expect("told")
    }
}

/// What was made: its handle, which every answer to a success has, and its attributes, likewise.
pub fn made(result: CreateResult) -> (FileHandle, Fattr3) {
    let CreateOk { object, attr, dir_wcc } = result.expect("made");
    assert!(dir_wcc.after.is_some_and(|dir| dir.kind == FileType::Directory), "the directory is told of");
    (object.expect("a handle"), attr.expect("attributes"))
}

/// The bytes of a file at the origin itself.
pub async fn at_origin(far: &Far, path: &[&str]) -> Option<Bytes> {
    let mut object = far.memory.root().await.expect("a root");
    for name in path {
        let name = Name::new(name.as_bytes().to_vec()).expect("a name");
        object = far.memory.lookup(&object.reference, &name).await.ok()?;
    }
    let range = ByteRange::new(0, object.attr.size);
    far.memory.read(&object.reference, object.version, range).await.ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_made_written_and_stored() {
    let Tree { far, mut client, root, served } = tree().await;
    let (file, attr) = made(client.create(&root, b"file", CreateHow3::Guarded(mode(0o100_640))).await);
    assert_eq!((attr.kind, attr.mode, attr.size), (FileType::Regular, 0o640, 0));
    assert_eq!(client.find(&root, b"file").await, Ok(file.clone()));
    let ok = client.write_at(&file, 0, b"hello world", StableHow::FileSync).await.expect("written");
    assert_eq!((ok.count, ok.committed), (11, StableHow::FileSync));
    assert_eq!(ok.wcc.after.expect("told").size, 11);
    assert_eq!(ok.wcc.after.map(|attr| attr.fileid), Some(attr.fileid));
    assert_eq!(at_origin(&far, &["file"]).await.expect("stored"), "hello world");
    let first = client.write_at(&file, 6, b"there", StableHow::Unstable).await.expect("written");
    assert_eq!(client.contents(&file).await, "hello there", "readers see it at once");
    let stored = client.commit(&file, 0, 0).await.expect("stored");
    assert_eq!(stored.verifier, first.verifier);
    assert_eq!(at_origin(&far, &["file"]).await.expect("stored"), "hello there");
    let nothing = client.write_at(&file, 100, b"", StableHow::FileSync).await.expect("allowed");
    assert_eq!((nothing.count, nothing.wcc.after.expect("told").size), (0, 11));
    let large = vec![7; 1 << 20];
    let ok = client.write_at(&file, 1 << 20, &large, StableHow::FileSync).await.expect("written");
    assert_eq!((ok.count, ok.wcc.after.expect("told").size), (1 << 20, 2 << 20));
    assert_eq!(served.counted("forebay_nfs_written_bytes_total"), 11 + 5 + (1 << 20));
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_are_set_and_a_guard_holds() {
    let Tree { mut client, root, served: _served, .. } = tree().await;
    let (file, attr) = made(client.create(&root, b"file", CreateHow3::Unchecked(mode(0o644))).await);
    let time = Nfstime3 { seconds: 1_000_000_000, nanos: 123_456_789 };
    let set = Sattr3 {
        mode: Some(0o600),
        uid: Some(7),
        gid: Some(8),
        size: Some(5),
        atime: SetTime::ServerTime,
        mtime: SetTime::To(time),
    };
    let wcc = client.setattr(&file, set, Some(attr.ctime)).await.expect("set");
    let after = wcc.after.expect("told");
    assert_eq!((after.mode, after.uid, after.gid, after.size), (0o600, 7, 8, 5));
    assert_eq!(after.mtime, time);
    assert_eq!(client.getattr(&file).await, after);
    assert_eq!(client.contents(&file).await, &[0; 5][..]);
    let late = client.setattr(&file, mode(0o777), Some(attr.ctime)).await;
    assert_eq!(late.expect_err("its ctime is another one").0, NfsStatus::NOT_SYNC);
    assert_eq!(client.getattr(&file).await.mode, 0o600);
    // A file that is there is taken by an unchecked create, and cut.
    let cut = Sattr3 { size: Some(0), mode: Some(0o777), ..Sattr3::default() };
    let (same, attr) = made(client.create(&root, b"file", CreateHow3::Unchecked(cut)).await);
    assert_eq!((same, attr.size, attr.mode), (file, 0, 0o600));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exclusive_create_is_known_by_its_verifier() {
    let Tree { mut client, root, served: _served, .. } = tree().await;
    let (file, _) = made(client.create(&root, b"file", CreateHow3::Exclusive(*b"verifier")).await);
    let (again, _) = made(client.create(&root, b"file", CreateHow3::Exclusive(*b"verifier")).await);
    assert_eq!(again, file);
    let other = client.create(&root, b"file", CreateHow3::Exclusive(*b"another!")).await;
    assert_eq!(other.expect_err("somebody else's").0, NfsStatus::EXIST);
    // What a client does next.
    let times = Sattr3 { atime: SetTime::ServerTime, mtime: SetTime::ServerTime, ..mode(0o640) };
    let after = client.setattr(&file, times, None).await.expect("set").after.expect("told");
    assert_eq!(after.mode, 0o640);
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_links_and_special_files_are_made_named_and_removed() {
    let Tree { mut client, root, far, served: _served } = tree().await;
    let (dir, attr) = made(client.mkdir(&root, b"dir").await);
    assert_eq!((attr.kind, attr.mode), (FileType::Directory, 0o755));
    let (link, attr) = made(client.symlink(&dir, b"link", b"../file").await);
    assert_eq!(attr.kind, FileType::Link);
    let mut d = client.nfs(procedure::READLINK, |e| link.encode(e)).await;
    assert_eq!(file::decode_readlink(&mut d).expect("well-formed").expect("read").target, "../file");
    let (_, attr) = made(client.mknod(&dir, b"fifo", NodeData::Fifo(mode(0o600))).await);
    assert_eq!((attr.kind, attr.mode), (FileType::Fifo, 0o600));
    let device = NodeData::CharDevice { attributes: mode(0o666), rdev: (1, 3) };
    assert_eq!(made(client.mknod(&dir, b"null", device).await).1.rdev, (1, 3));

    let (file, _) = made(client.create(&root, b"file", CreateHow3::Guarded(mode(0o644))).await);
    client.write_at(&file, 0, b"contents", StableHow::FileSync).await.expect("written");
    let linked = client.link(&file, place(&dir, b"second")).await.expect("linked");
    assert_eq!(linked.attr.expect("told").nlink, 2);
    assert!(linked.dir.after.is_some());
    assert_eq!(client.find(&dir, b"second").await, Ok(file.clone()));

    let moved = client.rename(place(&root, b"file"), place(&dir, b"moved")).await.expect("renamed");
    assert!(moved.from.after.is_some() && moved.to.after.is_some());
    assert_eq!(client.find(&root, b"file").await, Err(NfsStatus::NOENT));
    assert_eq!(client.find(&dir, b"moved").await, Ok(file.clone()));
    assert_eq!(at_origin(&far, &["dir", "moved"]).await.expect("there"), "contents");

    let mut before = client.getattr(&dir).await;
    for name in [&b"link"[..], b"fifo", b"null", b"second", b"moved"] {
        let wcc = client.remove(&dir, name).await.expect("removed");
        // A client that knew the directory as it was takes over what it is now.
        if let Some(told) = wcc.before {
            assert_eq!((told.mtime, told.ctime), (before.mtime, before.ctime), "{}", name.escape_ascii());
        }
        before = wcc.after.expect("told");
        assert_eq!(client.find(&dir, name).await, Err(NfsStatus::NOENT));
    }
    let wcc = client.rmdir(&root, b"dir").await.expect("removed");
    assert!(wcc.after.is_some());
    assert_eq!(client.find(&root, b"dir").await, Err(NfsStatus::NOENT));
    assert!(at_origin(&far, &["dir"]).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writable_tree_says_so() {
    let Tree { mut client, root, served: _served, .. } = tree().await;
    let (file, _) = made(client.create(&root, b"file", CreateHow3::Guarded(mode(0o644))).await);
    let changes = access::MODIFY | access::EXTEND;
    assert_eq!(client.granted(&root).await & (changes | access::DELETE), changes | access::DELETE);
    assert_eq!(client.granted(&file).await & changes, changes);
    let info = client.fsinfo(&root).await;
    assert_eq!(info.properties & fs::properties::CAN_SET_TIME, fs::properties::CAN_SET_TIME);
    assert_eq!((info.write_max, info.write_preferred), (1 << 20, 1 << 20));
}
