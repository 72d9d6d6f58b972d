//! What lies around an origin: a layer is an origin that holds another one.
//!
//! A layer implements [`Layer`]: one function, [`around`](Layer::around), sees every call and decides when, whether and
//! how often it is sent. The trait [`Origin`] follows from that for every layer, in this file only, so that a method
//! that is added to `Origin` cannot be lost in one of them.

use std::future::Future;
use std::pin::Pin;

use async_trait::async_trait;
use bytes::Bytes;
use types::{
    ByteRange, Distance, FileId, FsStat, Name, Result, SetAttr, Stability, Supplier, Turn, Version, XattrName,
};

use crate::pieces::in_pieces;
use crate::{
    Change, Changed, Committed, DirCursor, DirPage, Draft, FileToRead, Object, Origin, OriginIdentity,
    OriginLimits, OriginTraits, PartReceipt, PartSource, PartedFile, Reference, RenameLeftover, Written,
};

/// A call that is sent to the origin inside, until its answer is there.
pub type Sending<'a, A> = Pin<Box<dyn Future<Output = Result<A>> + Send + 'a>>;

/// A call, as a layer sees it.
#[derive(Clone, Copy, Debug)]
pub enum OriginCall<'a> {
    Identity,
    IsEmpty,
    Limits,
    Root,
    Lookup { dir: &'a Reference },
    Getattr { object: &'a Reference },
    Readlink { link: &'a Reference },
    Readdir { dir: &'a Reference, cursor: DirCursor },
    Read { object: &'a Reference, length: u64 },
    Statfs { object: &'a Reference },
    Xattrs { object: &'a Reference },
    Change(&'a Change),
    LeftByRename { there: &'a Reference },
    SetAtCommit { object: &'a Reference },
    Draft { dir: &'a Reference },
    Discard { draft: &'a Reference },
    BeginParts { dir: &'a Reference },
    StorePart { length: u64 },
    DraftOfParts { dir: &'a Reference },
    DropParts,
    Write { object: &'a Reference, length: u64 },
    Commit { object: &'a Reference },
}

/// What a call costs, by which layers treat it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallClass {
    /// The origin's client answers by itself: nothing travels.
    Local,
    Metadata,
    Read,
    /// Bytes written, or their commit.
    Write,
}

impl<'a> OriginCall<'a> {
    pub fn class(&self) -> CallClass {
        match self {
            OriginCall::SetAtCommit { .. } | OriginCall::Draft { .. } | OriginCall::DraftOfParts { .. } => {
                CallClass::Local
            }
            OriginCall::Read { .. } => CallClass::Read,
            OriginCall::Write { .. } | OriginCall::Commit { .. } | OriginCall::StorePart { .. } => {
                CallClass::Write
            }
            _ => CallClass::Metadata,
        }
    }

    /// Its name in metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            OriginCall::Identity => "identity",
            OriginCall::IsEmpty => "is_empty",
            OriginCall::Limits => "limits",
            OriginCall::Root => "root",
            OriginCall::Lookup { .. } => "lookup",
            OriginCall::Getattr { .. } | OriginCall::LeftByRename { .. } => "getattr",
            OriginCall::Readlink { .. } => "readlink",
            OriginCall::Readdir { .. } => "readdir",
            OriginCall::Read { .. } => "read",
            OriginCall::Statfs { .. } => "statfs",
            OriginCall::Xattrs { .. } => "xattrs",
            OriginCall::Change(change) => change.kind(),
            OriginCall::SetAtCommit { .. } => "set_at_commit",
            OriginCall::Draft { .. } => "draft",
            OriginCall::Discard { .. } => "discard",
            OriginCall::BeginParts { .. } => "begin_parts",
            OriginCall::StorePart { .. } => "store_part",
            OriginCall::DraftOfParts { .. } => "draft_of_parts",
            OriginCall::DropParts => "drop_parts",
            OriginCall::Write { .. } => "write",
            OriginCall::Commit { .. } => "commit",
        }
    }

    /// The object that it is about. `None`: the store as a whole, or its root.
    pub fn object(&self) -> Option<&'a Reference> {
        match *self {
            OriginCall::Identity
            | OriginCall::IsEmpty
            | OriginCall::Limits
            | OriginCall::Root
            | OriginCall::StorePart { .. }
            | OriginCall::DropParts => None,
            OriginCall::Lookup { dir: object }
            | OriginCall::Readdir { dir: object, .. }
            | OriginCall::Readlink { link: object }
            | OriginCall::LeftByRename { there: object }
            | OriginCall::Getattr { object }
            | OriginCall::Read { object, .. }
            | OriginCall::Statfs { object }
            | OriginCall::Xattrs { object }
            | OriginCall::SetAtCommit { object }
            | OriginCall::Draft { dir: object }
            | OriginCall::BeginParts { dir: object }
            | OriginCall::DraftOfParts { dir: object }
            | OriginCall::Discard { draft: object }
            | OriginCall::Write { object, .. }
            | OriginCall::Commit { object } => Some(object),
            OriginCall::Change(change) => Some(change.place()),
        }
    }

    /// Bytes of a file that travel with it or with its answer.
    pub fn bytes(&self) -> u64 {
        match self {
            OriginCall::Read { length, .. }
            | OriginCall::Write { length, .. }
            | OriginCall::StorePart { length } => *length,
            _ => 0,
        }
    }
}

/// What a layer learns from an answer without knowing which call it belongs to.
pub trait OriginAnswer: Send {
    /// The object as the origin has it now, where the answer tells.
    fn object(&self) -> Option<&Object> {
        None
    }
}

impl OriginAnswer for () {}
impl OriginAnswer for bool {}
impl OriginAnswer for Option<Draft> {}
impl OriginAnswer for Draft {}
impl OriginAnswer for Option<PartedFile> {}
impl OriginAnswer for String {}
impl OriginAnswer for Bytes {}
impl OriginAnswer for DirPage {}
impl OriginAnswer for FsStat {}
impl OriginAnswer for OriginIdentity {}
impl OriginAnswer for OriginLimits {}
impl OriginAnswer for RenameLeftover {}
impl OriginAnswer for Vec<(XattrName, Bytes)> {}

impl OriginAnswer for Object {
    fn object(&self) -> Option<&Object> {
        Some(self)
    }
}

impl OriginAnswer for Changed {
    fn object(&self) -> Option<&Object> {
        self.object.as_ref()
    }
}

impl OriginAnswer for Written {
    fn object(&self) -> Option<&Object> {
        self.after.as_ref()
    }
}

impl OriginAnswer for Committed {
    fn object(&self) -> Option<&Object> {
        self.after.as_ref()
    }
}

/// An origin that holds another one and adds something to its calls. Whoever implements this is an [`Origin`].
pub trait Layer: Send + Sync + 'static {
    /// The origin inside. What is true of the store (its URL, its traits) is asked there.
    fn inner(&self) -> &dyn Origin;

    /// Answers `call`. `send` sends it to the origin inside, each time that it is called, and returns what that answers.
    fn around<'a, A: OriginAnswer + 'a>(
        &'a self,
        call: OriginCall<'a>,
        send: impl Fn() -> Sending<'a, A> + Send + Sync + 'a,
    ) -> impl Future<Output = Result<A>> + Send + 'a;

    /// How far the store is, for a layer that measures it.
    fn around_distance(&self) -> Option<Distance> {
        self.inner().distance()
    }

    /// See [`Origin::supplier`].
    fn around_supplier(&self, file: FileId, range: ByteRange) -> Supplier {
        self.inner().supplier(file, range)
    }

    /// See [`Origin::keeps`].
    fn around_keeps(&self, file: FileId, range: ByteRange) -> bool {
        self.inner().keeps(file, range)
    }

    /// See [`Origin::turn`].
    fn around_turn(&self) -> impl Future<Output = Turn> + Send {
        async { self.inner().turn().await }
    }

    /// For a layer that has more to do with the answer than [`around`](Layer::around) can see; so the others below.
    fn around_identity(&self) -> impl Future<Output = Result<OriginIdentity>> + Send {
        self.around(OriginCall::Identity, || self.inner().identity())
    }

    fn around_root(&self) -> impl Future<Output = Result<Object>> + Send {
        self.around(OriginCall::Root, || self.inner().root())
    }

    fn around_readdir<'a>(
        &'a self,
        dir: &'a Reference,
        cursor: DirCursor,
    ) -> impl Future<Output = Result<DirPage>> + Send + 'a {
        self.around(OriginCall::Readdir { dir, cursor }, move || self.inner().readdir(dir, cursor))
    }

    /// See [`Origin::read_file`]. By default each piece goes around as a read of its own, to `read_file` of the origin inside.
    fn around_read_file<'a>(
        &'a self,
        file: &'a FileToRead<'a>,
        range: ByteRange,
    ) -> impl Future<Output = Result<Bytes>> + Send + 'a {
        in_pieces(range, self.around_read_file_max(), move |piece| {
            let call = OriginCall::Read { object: file.reference, length: piece.length };
            self.around(call, move || self.inner().read_file(file, piece))
        })
    }

    /// See [`Origin::read_file_max`].
    fn around_read_file_max(&self) -> u32 {
        self.inner().read_file_max()
    }

    fn around_change<'a>(&'a self, change: &'a Change) -> impl Future<Output = Result<Changed>> + Send + 'a {
        self.around(OriginCall::Change(change), move || self.inner().change(change))
    }
}

#[async_trait]
impl<L: Layer> Origin for L {
    fn url(&self) -> String {
        self.inner().url()
    }

    fn traits(&self) -> OriginTraits {
        self.inner().traits()
    }

    fn connections(&self) -> u64 {
        self.inner().connections()
    }

    fn distance(&self) -> Option<Distance> {
        self.around_distance()
    }

    fn supplier(&self, file: FileId, range: ByteRange) -> Supplier {
        self.around_supplier(file, range)
    }

    fn keeps(&self, file: FileId, range: ByteRange) -> bool {
        self.around_keeps(file, range)
    }

    fn demand_path(&self, path: &[u8], is_dir: bool) -> Result<()> {
        self.inner().demand_path(path, is_dir)
    }

    async fn identity(&self) -> Result<OriginIdentity> {
        self.around_identity().await
    }

    async fn is_empty(&self) -> Result<bool> {
        self.around(OriginCall::IsEmpty, || self.inner().is_empty()).await
    }

    async fn limits(&self) -> Result<OriginLimits> {
        self.around(OriginCall::Limits, || self.inner().limits()).await
    }

    async fn root(&self) -> Result<Object> {
        self.around_root().await
    }

    async fn lookup(&self, dir: &Reference, name: &Name) -> Result<Object> {
        self.around(OriginCall::Lookup { dir }, || self.inner().lookup(dir, name)).await
    }

    async fn getattr(&self, object: &Reference) -> Result<Object> {
        self.around(OriginCall::Getattr { object }, || self.inner().getattr(object)).await
    }

    async fn readlink(&self, link: &Reference) -> Result<Bytes> {
        self.around(OriginCall::Readlink { link }, || self.inner().readlink(link)).await
    }

    async fn readdir(&self, dir: &Reference, cursor: DirCursor) -> Result<DirPage> {
        self.around_readdir(dir, cursor).await
    }

    async fn read(&self, object: &Reference, version: Version, range: ByteRange) -> Result<Bytes> {
        let call = OriginCall::Read { object, length: range.length };
        self.around(call, || self.inner().read(object, version, range)).await
    }

    async fn read_file(&self, file: &FileToRead<'_>, range: ByteRange) -> Result<Bytes> {
        self.around_read_file(file, range).await
    }

    fn read_file_max(&self) -> u32 {
        self.around_read_file_max()
    }

    async fn statfs(&self, object: &Reference) -> Result<FsStat> {
        self.around(OriginCall::Statfs { object }, || self.inner().statfs(object)).await
    }

    async fn xattrs(&self, object: &Reference) -> Result<Vec<(XattrName, Bytes)>> {
        self.around(OriginCall::Xattrs { object }, || self.inner().xattrs(object)).await
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        self.around_change(change).await
    }

    async fn left_by_rename(
        &self,
        from: &Reference,
        was: Version,
        there: &Reference,
    ) -> Result<RenameLeftover> {
        self.around(OriginCall::LeftByRename { there }, || self.inner().left_by_rename(from, was, there))
            .await
    }

    async fn set_at_commit(&self, object: &Reference, set: &SetAttr) -> Result<bool> {
        self.around(OriginCall::SetAtCommit { object }, || self.inner().set_at_commit(object, set)).await
    }

    async fn write(
        &self,
        object: &Reference,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<Written> {
        let call = OriginCall::Write { object, length: data.len() as u64 };
        self.around(call, || self.inner().write(object, offset, data.clone(), stability)).await
    }

    async fn draft(&self, dir: &Reference, name: &Name, set: &SetAttr) -> Result<Option<Draft>> {
        self.around(OriginCall::Draft { dir }, || self.inner().draft(dir, name, set)).await
    }

    async fn discard(&self, draft: &Reference) -> Result<()> {
        self.around(OriginCall::Discard { draft }, || self.inner().discard(draft)).await
    }

    async fn begin_parts(&self, dir: &Reference, path: &[Name], set: &SetAttr) -> Result<Option<PartedFile>> {
        self.around(OriginCall::BeginParts { dir }, || self.inner().begin_parts(dir, path, set)).await
    }

    async fn store_part(&self, file: &PartedFile, number: u32, source: &PartSource) -> Result<String> {
        let call = OriginCall::StorePart { length: source.bytes() };
        self.around(call, || self.inner().store_part(file, number, source)).await
    }

    async fn draft_of_parts(
        &self,
        file: &PartedFile,
        (dir, name): (&Reference, &Name),
        parts: &[PartReceipt],
    ) -> Result<Draft> {
        let call = OriginCall::DraftOfParts { dir };
        self.around(call, || self.inner().draft_of_parts(file, (dir, name), parts)).await
    }

    async fn drop_parts(&self, file: &PartedFile) -> Result<()> {
        self.around(OriginCall::DropParts, || self.inner().drop_parts(file)).await
    }

    async fn commit(&self, object: &Reference, range: ByteRange) -> Result<Committed> {
        self.around(OriginCall::Commit { object }, || self.inner().commit(object, range)).await
    }

    async fn turn(&self) -> Turn {
        self.around_turn().await
    }
}
