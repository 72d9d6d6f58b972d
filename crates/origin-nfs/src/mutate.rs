//! The calls that make, name, remove and alter objects: each one NFS call, or one and a look at what it made.
//!
//! They are sent again after a lost connection as all calls are, under their old number, but most of them must
//! not be carried out twice: see `delivery.rs` for what an answer is then worth.

use bytes::Bytes;
use origin::{Object, Reference};
use rpc_nfs3::Encoder;
use rpc_nfs3::nfs3::create::{self, CreateArgs, CreateOk, MkdirArgs, MknodArgs, NodeData, SymlinkArgs};
use rpc_nfs3::nfs3::file::TARGET_MAX;
use rpc_nfs3::nfs3::names::{self, LinkArgs, RenameArgs};
use rpc_nfs3::nfs3::setattr::SetattrArgs;
use rpc_nfs3::nfs3::{DirOp, FileHandle, procedure, wcc};
use types::{Attr, ErrorKind, Name, Result, Timestamp};

use crate::attributes::{SetAttr, TimeChange, wire_time};
use crate::delivery::{Change, Done, Twice, doubtful};
use crate::errors::failure;
use crate::origin::{NfsOrigin, attr_of, handle_of, object};
use crate::pool::Lane;

/// Chosen by the caller, another one for each file: with it the server knows a repeated exclusive create.
pub type CreateVerifier = [u8; 8];

/// What `create` does with a name that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// Takes the file, and cuts it if a size is given.
    Unchecked,
    /// `Exists`.
    Guarded,
    /// `Exists`, unless it was created with this very verifier and not touched since: so this create may be
    /// repeated without fear. Servers keep the verifier in the file's times until these are set.
    Exclusive(CreateVerifier),
}

impl CreateHow {
    fn twice(self) -> Twice {
        match self {
            CreateHow::Guarded => Twice::Matters,
            CreateHow::Unchecked | CreateHow::Exclusive(_) => Twice::Harmless,
        }
    }
}

/// What `mknod` makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewNode {
    /// Major and minor number.
    CharDevice(u32, u32),
    BlockDevice(u32, u32),
    Socket,
    Fifo,
}

fn change(what: &'static str, procedure: u32, twice: Twice) -> Change {
    Change { what, procedure, lane: Lane::Metadata, twice }
}

fn dir_op(dir: &Reference, name: &Name) -> Result<DirOp> {
    Ok(DirOp { dir: handle_of(dir)?, name: Bytes::copy_from_slice(name.as_bytes()) })
}

impl NfsOrigin {
    /// Makes a regular file. `Exclusive` cannot carry attributes: if any are given they are set by a second
    /// call, and the times with them.
    pub async fn create(
        &self,
        dir: &Reference,
        name: &Name,
        how: CreateHow,
        attributes: SetAttr,
    ) -> Result<Done<Object>> {
        let wire = attributes.to_wire()?;
        let wire_how = match how {
            CreateHow::Unchecked => create::CreateHow::Unchecked(wire),
            CreateHow::Guarded => create::CreateHow::Guarded(wire),
            CreateHow::Exclusive(verifier) => create::CreateHow::Exclusive(verifier),
        };
        let args = CreateArgs { place: dir_op(dir, name)?, how: wire_how };
        let create = change("create a file at", procedure::CREATE, how.twice());
        let made = self.make(create, &args.place, |e| args.encode(e)).await?;
        if !matches!(how, CreateHow::Exclusive(_)) || attributes == SetAttr::default() {
            return Ok(made);
        }
        // With its times set the verifier is gone: this create cannot be repeated any more.
        let set = self.dress(&made.value.reference, attributes).await;
        let set = set.map_err(|error| doubtful(create.what, &self.place(), error))?;
        Ok(Done { value: set.value, resent: made.resent || set.resent })
    }

    /// The attributes that an exclusive create could not take along.
    async fn dress(&self, reference: &Reference, attributes: SetAttr) -> Result<Done<Object>> {
        let set = self.setattr(reference, with_times(attributes), None).await?;
        let handle = handle_of(reference)?;
        let attr = match set.value {
            Some(attr) => attr,
            None => self.getattr_of(&handle).await?,
        };
        Ok(Done { value: object(handle, attr), resent: set.resent })
    }

    pub async fn mkdir(&self, dir: &Reference, name: &Name, attributes: SetAttr) -> Result<Done<Object>> {
        let args = MkdirArgs { place: dir_op(dir, name)?, attributes: attributes.to_wire()? };
        let mkdir = change("make a directory at", procedure::MKDIR, Twice::Matters);
        self.make(mkdir, &args.place, |e| args.encode(e)).await
    }

    /// `target` is 1 to 4096 bytes.
    pub async fn symlink(
        &self,
        dir: &Reference,
        name: &Name,
        target: &[u8],
        attributes: SetAttr,
    ) -> Result<Done<Object>> {
        const WHAT: &str = "make a symbolic link at";
        if target.is_empty() || target.len() > TARGET_MAX {
            let reason = format!("a target has 1 to {TARGET_MAX} bytes, this one {}", target.len());
            return Err(failure(ErrorKind::InvalidArgument, WHAT, self.place(), reason));
        }
        let target = Bytes::copy_from_slice(target);
        let args = SymlinkArgs { place: dir_op(dir, name)?, attributes: attributes.to_wire()?, target };
        let symlink = change(WHAT, procedure::SYMLINK, Twice::Matters);
        self.make(symlink, &args.place, |e| args.encode(e)).await
    }

    pub async fn mknod(
        &self,
        dir: &Reference,
        name: &Name,
        node: NewNode,
        attributes: SetAttr,
    ) -> Result<Done<Object>> {
        let attributes = attributes.to_wire()?;
        let node = match node {
            NewNode::CharDevice(major, minor) => NodeData::CharDevice { attributes, rdev: (major, minor) },
            NewNode::BlockDevice(major, minor) => NodeData::BlockDevice { attributes, rdev: (major, minor) },
            NewNode::Socket => NodeData::Socket(attributes),
            NewNode::Fifo => NodeData::Fifo(attributes),
        };
        let args = MknodArgs { place: dir_op(dir, name)?, node };
        let mknod = change("make a special file at", procedure::MKNOD, Twice::Matters);
        self.make(mknod, &args.place, |e| args.encode(e)).await
    }

    async fn make(
        &self,
        change: Change,
        place: &DirOp,
        encode: impl FnOnce(&mut Encoder),
    ) -> Result<Done<Object>> {
        let done = self.change(change, encode, Bytes::new(), create::decode_create).await?;
        let value = self.made(place, &done.value).await.map_err(|error| match change.twice {
            Twice::Harmless => error,
            // It is there, whatever this error says.
            Twice::Matters => doubtful(change.what, &self.place(), error),
        })?;
        Ok(Done { value, resent: done.resent })
    }

    /// What a server left out of its reply is asked for.
    async fn made(&self, place: &DirOp, ok: &CreateOk) -> Result<Object> {
        let Some(handle) = &ok.object else {
            let name = Name::new(place.name.clone())?;
            return self.lookup_plainly(&place.dir, &name).await.map(|(object, _)| object);
        };
        // A copy: a handle lives long, the record it came in must not.
        let handle = FileHandle(Bytes::copy_from_slice(&handle.0));
        let attr = match &ok.attr {
            Some(attr) => attr_of(attr),
            None => self.getattr_of(&handle).await?,
        };
        Ok(object(handle, attr))
    }

    /// Removes a name that is no directory. The object goes with its last name.
    pub async fn remove(&self, dir: &Reference, name: &Name) -> Result<Done<()>> {
        self.unname(change("remove a file at", procedure::REMOVE, Twice::Matters), dir, name).await
    }

    /// Removes an empty directory; `NotEmpty` if it is not.
    pub async fn rmdir(&self, dir: &Reference, name: &Name) -> Result<Done<()>> {
        self.unname(change("remove a directory at", procedure::RMDIR, Twice::Matters), dir, name).await
    }

    async fn unname(&self, change: Change, dir: &Reference, name: &Name) -> Result<Done<()>> {
        let args = dir_op(dir, name)?;
        let done = self.change(change, |e| args.encode(e), Bytes::new(), wcc::decode_wcc_result).await?;
        Ok(done.map(|_| ()))
    }

    /// Gives an object another name. What has that name already is replaced, if both are directories (that
    /// one empty) or neither is.
    pub async fn rename(
        &self,
        from_dir: &Reference,
        from: &Name,
        to_dir: &Reference,
        to: &Name,
    ) -> Result<Done<()>> {
        let args = RenameArgs { from: dir_op(from_dir, from)?, to: dir_op(to_dir, to)? };
        let rename = change("rename at", procedure::RENAME, Twice::Matters);
        let done = self.change(rename, |e| args.encode(e), Bytes::new(), names::decode_rename).await?;
        Ok(done.map(|_| ()))
    }

    /// Gives a file one more name.
    pub async fn link(&self, file: &Reference, dir: &Reference, name: &Name) -> Result<Done<()>> {
        let args = LinkArgs { object: handle_of(file)?, place: dir_op(dir, name)? };
        let link = change("link at", procedure::LINK, Twice::Matters);
        let done = self.change(link, |e| args.encode(e), Bytes::new(), names::decode_link).await?;
        Ok(done.map(|_| ()))
    }

    /// Sets attributes, and gives them as they are after it if the server tells. With `guard` only if that is
    /// still the object's ctime; `VersionChanged` otherwise. Servers may look at its whole seconds only (Linux
    /// 6.1 does).
    pub async fn setattr(
        &self,
        reference: &Reference,
        attributes: SetAttr,
        guard: Option<Timestamp>,
    ) -> Result<Done<Option<Attr>>> {
        // Set twice is set once, but a guard does not let the second one pass.
        let twice = if guard.is_some() { Twice::Matters } else { Twice::Harmless };
        let args = SetattrArgs {
            object: handle_of(reference)?,
            attributes: attributes.to_wire()?,
            guard: guard.map(wire_time).transpose()?,
        };
        let setattr = change("set attributes at", procedure::SETATTR, twice);
        let done = self.change(setattr, |e| args.encode(e), Bytes::new(), wcc::decode_wcc_result).await?;
        Ok(done.map(|wcc| wcc.after.as_ref().map(attr_of)))
    }
}

/// Times that hold a create's verifier are nobody's: they are set with whatever else is.
fn with_times(attributes: SetAttr) -> SetAttr {
    let real = |change| if change == TimeChange::Keep { TimeChange::Now } else { change };
    SetAttr { atime: real(attributes.atime), mtime: real(attributes.mtime), ..attributes }
}
