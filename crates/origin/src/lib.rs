//! Far storage as a trait, and its light implementations.
//!
//! An origin knows nothing of caches, clients or freshness: it answers what is true there *now*, one
//! call at a time, many calls at once. Everything that is slow in Forebay is behind this trait. Every
//! implementation passes the contract suite in `testkit::origin_contract`.
//!
//! - [`Origin`] is the trait: one method for each call. [`OriginTraits`] is what a store is like, told once.
//! - [`OriginKind`] and [`OriginConfig`] lead from an URL to a connected origin.
//! - [`memory`] and [`posix`] are origins; the others (NFS, object stores, Azure Files) are crates of their own.
//! - [`Layer`] is an origin that holds another one: [`retry`] over [`limit`] over [`count`] over the store is what every
//!   junction has ([`delay`] makes a near store far, for tests).
//! - [`Draft`] is a file that has no name yet, where a file can be made whole under its name at once; [`PartedFile`] is one
//!   whose parts are stored one by one before that.
//! - [`change`] has the changes of names and attributes as plain data, and what their answers tell.
//! - `limit` decides by `adaptive` (how many reads at once), `distance` (how far, how fast) and `pace`, which are pure;
//!   `retry` decides by `reconcile` what became of a change that had no answer.

pub mod adaptive;
pub mod change;
pub mod count;
pub mod deferred;
pub mod delay;
pub mod distance;
mod draft;
pub mod emulated;
pub mod exclusive;
pub mod identity;
mod kind;
mod layer;
pub mod limit;
mod limits;
pub mod memory;
pub mod pace;
mod parted;
mod pieces;
pub mod posix;
mod reconcile;
pub mod renewable_signer;
pub mod retry;
mod traits;

use async_trait::async_trait;
use bytes::Bytes;
use types::{
    Attr, ByteRange, Error, ErrorKind, FileId, FsStat, Name, Result, SetAttr, Stability, Supplier, Turn,
    Version, XattrName,
};

pub use change::{Around, Before, Change, Changed, Committed, Copied, Replacing, Written};
pub use draft::Draft;
pub use identity::OriginIdentity;
pub use kind::{OriginConfig, OriginKind};
pub use layer::{CallClass, Layer, OriginAnswer, OriginCall, Sending};
pub use limits::OriginLimits;
pub use parted::{PartReceipt, PartSource, PartedFile};
pub use pieces::read_in_pieces;
pub use traits::OriginTraits;

/// The origin's own way to address an object: an NFS file handle, a path. Opaque above the origin,
/// at most [`REFERENCE_MAX`] bytes, and still meaningful after both sides restarted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Reference(pub Bytes);

/// Longest reference that may be stored: a relative path plus some bookkeeping. Four times PATH_MAX: who goes down by
/// directories makes trees that are deeper than one call can name.
pub const REFERENCE_MAX: usize = 4 * 4096 + 64;

/// Bytes that stay the same for as long as this very object exists, and that no later object with a
/// reused inode number shares.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Identity(pub Bytes);

/// All that one look at an object tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub reference: Reference,
    pub identity: Identity,
    pub attr: Attr,
    pub version: Version,
}

/// A file whose bytes are wanted, as its reader knows it.
#[derive(Clone, Copy, Debug)]
pub struct FileToRead<'a> {
    pub id: FileId,
    pub reference: &'a Reference,
    pub version: Version,
    /// Bytes in this version.
    pub size: u64,
}

/// One name in a directory. `object` is absent where the origin listed the name without attributes;
/// the caller looks it up when somebody wants to know.
#[derive(Clone, Debug)]
pub struct DirEntry {
    pub name: Name,
    pub object: Option<Object>,
}

/// Where a listing goes on. Opaque; valid only for the directory and the origin that gave it, soon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirCursor {
    pub cookie: u64,
    pub verifier: [u8; 8],
}

/// A piece of a directory listing, without `.` and `..`.
#[derive(Clone, Debug)]
pub struct DirPage {
    pub entries: Vec<DirEntry>,
    /// `None` after the last piece.
    pub next: Option<DirCursor>,
}

/// What stands where a rename that had no answer was to bring an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameLeftover {
    /// Somebody else's object, as far as can be told.
    Foreign,
    /// The rename's own work. The rename can be asked for again: it completes, and overwrites nobody else's bytes. This is
    /// also the answer where nothing is at the old place any more.
    Ours,
    /// The rename's own copy, while the original is still at the old place: the copy may be removed.
    SpareCopy,
}

#[async_trait]
pub trait Origin: Send + Sync + 'static {
    /// The URL it was made from, for logs and `status`. Without secrets.
    fn url(&self) -> String;

    fn traits(&self) -> OriginTraits;

    /// How many connections have answered so far, of a storage whose references are names: behind the next one that does
    /// there may be another storage, where the same names are good. An answer is counted before it is handed on.
    fn connections(&self) -> u64 {
        0
    }

    /// Of an origin that commits whole files: the file gets these attributes, but for its size, with what was written to
    /// it and is not committed. `false`: it cannot, and they are to be set afterwards, which costs a copy of it.
    async fn set_at_commit(&self, object: &Reference, set: &SetAttr) -> Result<bool> {
        let _ = (object, set);
        Ok(false)
    }

    /// How far it is, if somebody in the stack measures that.
    fn distance(&self) -> Option<types::Distance> {
        None
    }

    /// Which storage answers at the URL now; asked anew by each call. Where it should be and nothing is (no such
    /// directory, no such bucket), that is an outage with the reason `Replaced`.
    async fn identity(&self) -> Result<OriginIdentity>;

    /// Whether there is no name at all in the root, as it is now.
    async fn is_empty(&self) -> Result<bool>;

    /// What it can never take, as far as it tells or that can be found out without a trace. Costs calls.
    async fn limits(&self) -> Result<OriginLimits> {
        Ok(OriginLimits::default())
    }

    /// Refuses a path below the root, its last name with it, that no object can ever have here. Pure: asks nobody.
    fn demand_path(&self, path: &[u8], is_dir: bool) -> Result<()> {
        let _ = (path, is_dir);
        Ok(())
    }

    /// The directory that the URL names.
    async fn root(&self) -> Result<Object>;

    /// Fails with `NotFound` only if the origin itself said that the name does not exist.
    async fn lookup(&self, dir: &Reference, name: &Name) -> Result<Object>;

    /// Fails with `Stale` if the reference names nothing any more, or another object than it did.
    async fn getattr(&self, object: &Reference) -> Result<Object>;

    async fn readlink(&self, link: &Reference) -> Result<Bytes>;

    /// One piece of the listing of `dir`; start with the default cursor. Names that are not safe
    /// (a slash, a NUL, too long) are left out with a warning, never passed on.
    async fn readdir(&self, dir: &Reference, cursor: DirCursor) -> Result<DirPage>;

    /// Exactly the bytes of `range`, if all of them belong to `version`; the range lies inside the file as
    /// `version` describes it. Fails with `VersionChanged` when the object's contents are another version
    /// now. Never short, never a mix.
    async fn read(&self, object: &Reference, version: Version, range: ByteRange) -> Result<Bytes>;

    /// As `read`, of a range of any length, by somebody who knows which file it is: a layer may have the bytes from nearer than the
    /// store.
    async fn read_file(&self, file: &FileToRead<'_>, range: ByteRange) -> Result<Bytes> {
        pieces::in_pieces(range, self.read_file_max(), |piece| self.read(file.reference, file.version, piece))
            .await
    }

    /// The most bytes that `read_file` gets by one call.
    fn read_file_max(&self) -> u32 {
        self.traits().read_max
    }

    /// Whom `read_file` will ask for these bytes.
    fn supplier(&self, file: FileId, range: ByteRange) -> Supplier {
        let _ = (file, range);
        Supplier::Origin
    }

    /// Whether this node is to keep what `read_file` gets of these bytes. Another node keeps the others.
    fn keeps(&self, file: FileId, range: ByteRange) -> bool {
        let _ = (file, range);
        true
    }

    async fn statfs(&self, object: &Reference) -> Result<FsStat>;

    /// All that users gave this object, in no order.
    async fn xattrs(&self, object: &Reference) -> Result<Vec<(XattrName, Bytes)>> {
        let _ = object;
        Err(Error::new(ErrorKind::NotSupported, "read extended attributes of", self.url()))
    }

    /// Makes one change of names or attributes, durably. An error says that it was not made, or that it may be asked
    /// for again without a difference ([`Change::is_repeatable`]), but for two: `OutcomeUnknown`, and `Io`, after which
    /// nobody knows what is on the origin's disk.
    ///
    /// A rename onto what cannot be replaced is `NotEmpty`, `IsADirectory` or `NotADirectory`; an NFS server may say
    /// `Exists` to each.
    async fn change(&self, change: &Change) -> Result<Changed>;

    /// Where an object's identity is its place: what a rename of ours that had no answer left at `there`, of what was at
    /// `from` in the version `was`.
    async fn left_by_rename(
        &self,
        from: &Reference,
        was: Version,
        there: &Reference,
    ) -> Result<RenameLeftover> {
        let _ = (from, was, there);
        Ok(RenameLeftover::Foreign)
    }

    /// Writes all of `data` at `offset`, behind the end too: what lies between is zeros. May be asked for again, as
    /// long as nothing else was written there meanwhile. Of the bytes in front of an error some may be written; after
    /// `OutcomeUnknown` some may be written even later.
    async fn write(
        &self,
        object: &Reference,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<Written>;

    /// Begins a file that is to have this name, and that nobody sees before it is published ([`Change::Publish`]).
    /// Nothing travels. `None`: the origin has no drafts; a file becomes visible at once there by being renamed when it
    /// is complete.
    async fn draft(&self, dir: &Reference, name: &Name, set: &SetAttr) -> Result<Option<Draft>> {
        let _ = (dir, name, set);
        Ok(None)
    }

    /// Gives up what was written to a draft. One that was published, or is not known, is left alone.
    async fn discard(&self, draft: &Reference) -> Result<()> {
        let _ = draft;
        Ok(())
    }

    /// Begins a file in parts, which is to have the path `path` below `dir`: the last name is the file's, and the
    /// directories need not be there yet. Nobody sees it before a draft of it is published. `None`: the origin has none
    /// that keep their parts until they are assembled or dropped, whatever others do.
    async fn begin_parts(&self, dir: &Reference, path: &[Name], set: &SetAttr) -> Result<Option<PartedFile>> {
        let _ = (dir, path, set);
        Ok(None)
    }

    /// Stores a part, in place of one that had its number; returns its receipt. Durable when it is answered, and may be
    /// asked for again. `NotFound`: the file was assembled or dropped, or the origin has given it up.
    async fn store_part(&self, file: &PartedFile, number: u32, source: &PartSource) -> Result<String> {
        let _ = (file, number, source);
        Err(parted::none_here("store a part"))
    }

    /// A draft that has all its bytes: those of these parts, in order. Nothing travels. Published ([`Change::Publish`]), it
    /// is the file `name` in `dir`, which is where the file was begun; after an error, or discarded, it leaves the parts as
    /// they are. `InvalidArgument`, here or then: it was begun elsewhere, or the origin does not have it any more. A draft
    /// with a part whose receipt is unknown can be published only if the file of its name was made of this file's parts
    /// already; nothing is made then, and otherwise it is `InvalidArgument`.
    async fn draft_of_parts(
        &self,
        file: &PartedFile,
        (dir, name): (&Reference, &Name),
        parts: &[PartReceipt],
    ) -> Result<Draft> {
        let _ = (file, dir, name, parts);
        Err(parted::none_here("assemble a file"))
    }

    /// Gives up a file in parts. One that is assembled, or not known, is left alone.
    async fn drop_parts(&self, file: &PartedFile) -> Result<()> {
        let _ = file;
        Ok(())
    }

    /// Has what was written to `range` put on stable storage. A range of no length goes to the end of the file.
    async fn commit(&self, object: &Reference, range: ByteRange) -> Result<Committed>;

    /// Wait until a read may be sent for whose answer nobody waits. Only `limit` lets anyone wait; what is above it
    /// passes the question on.
    async fn turn(&self) -> Turn {
        Turn::default()
    }
}
