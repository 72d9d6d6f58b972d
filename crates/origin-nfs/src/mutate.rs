//! The calls that make, name, remove and alter objects: each one NFS call, or one and a look at what it made.
//!
//! They are sent again after a lost connection as all calls are, under their old number, but most of them must
//! not be carried out twice: see `delivery.rs` for what an answer is then worth.

use bytes::Bytes;
use origin::change::check_target;
use origin::{Around, Before, Change, Changed, Object, Origin, Reference};
use rpc_nfs3::XdrEncoder;
use rpc_nfs3::nfs3::create::{self, CreateArgs, CreateOk, MkdirArgs, MknodArgs, NodeData, SymlinkArgs};
use rpc_nfs3::nfs3::names::{self, LinkArgs, RenameArgs};
use rpc_nfs3::nfs3::setattr::SetattrArgs;
use rpc_nfs3::nfs3::wcc::{self, WccAttr, WccData};
use rpc_nfs3::nfs3::{DirOp, FileHandle, procedure};
use types::{CreateHow, Error, ErrorKind, Name, NewNode, Result, SetAttr, Timestamp, WeakAttr};

use crate::attributes::{to_nfstime3, to_sattr3};
use crate::connection_pool::Lane;
use crate::delivery::{Procedure, Repetition};
use crate::errors::failure;
use crate::origin::{NfsOrigin, attr_of, handle_of, object, time_of};

/// Whether a create that is carried out twice leaves the same as once. (An exclusive one has no attributes.)
fn twice(how: CreateHow) -> Repetition {
    match how {
        CreateHow::Guarded => Repetition::Matters,
        CreateHow::Unchecked | CreateHow::Exclusive(_) => Repetition::Harmless,
    }
}

fn metadata(what: &'static str, number: u32, twice: Repetition) -> Procedure {
    Procedure { what, number, lane: Lane::Metadata, twice }
}

fn dir_op(dir: &Reference, name: &Name) -> Result<DirOp> {
    Ok(DirOp { dir: handle_of(dir)?, name: Bytes::copy_from_slice(name.as_bytes()) })
}

impl NfsOrigin {
    pub(crate) async fn make_change(&self, change: &Change) -> Result<Changed> {
        match change {
            Change::Create { dir, name, how, set } => self.create(dir, name, *how, set).await,
            Change::Mkdir { dir, name, set } => self.mkdir(dir, name, set).await,
            Change::Symlink { dir, name, target, set } => self.symlink(dir, name, target, set).await,
            Change::Mknod { dir, name, node, set } => self.mknod(dir, name, *node, set).await,
            Change::Link { file, dir, name } => self.link(file, dir, name).await,
            Change::Remove { dir, name } => {
                self.remove_name(
                    metadata("remove a file at", procedure::REMOVE, Repetition::Matters),
                    dir,
                    name,
                )
                .await
            }
            Change::Rmdir { dir, name } => {
                let rmdir = metadata("remove a directory at", procedure::RMDIR, Repetition::Matters);
                self.remove_name(rmdir, dir, name).await
            }
            Change::Rename { from_dir, from, to_dir, to, identity: _ } => {
                self.rename(from_dir, from, to_dir, to).await
            }
            Change::Set { object, set, guard } => self.setattr(object, set, *guard).await,
            Change::SetXattr { .. } => {
                Err(Error::new(ErrorKind::NotSupported, "set extended attributes by", "NFS version 3"))
            }
            Change::Publish { .. } => {
                Err(Error::new(ErrorKind::NotSupported, "publish a draft by", "NFS version 3"))
            }
        }
    }

    /// Makes a regular file. `Exclusive` cannot carry attributes: if any are given they are set by a second
    /// call, and the times with them.
    async fn create(&self, dir: &Reference, name: &Name, how: CreateHow, set: &SetAttr) -> Result<Changed> {
        let wire = to_sattr3(set)?;
        let wire_how = match how {
            CreateHow::Unchecked => create::CreateHow3::Unchecked(wire),
            CreateHow::Guarded => create::CreateHow3::Guarded(wire),
            CreateHow::Exclusive(verifier) => create::CreateHow3::Exclusive(verifier),
        };
        let args = CreateArgs { place: dir_op(dir, name)?, how: wire_how };
        let create = metadata("create a file at", procedure::CREATE, twice(how));
        let made = self.make(create, &args.place, |e| args.encode(e)).await?;
        let file = made.clone().made()?;
        if !file.attr.is_file() {
            // Linux's server takes whatever has the name, and says so as if it were a new file.
            return Err(failure(ErrorKind::Exists, create.what, self.place(), "the name is that of no file"));
        }
        if !matches!(how, CreateHow::Exclusive(_)) || *set == SetAttr::default() {
            return Ok(made);
        }
        // With its times set the verifier is gone: this create cannot be repeated any more.
        let dressed = self.set_after_create(&file.reference, set).await;
        let dressed = dressed.map_err(|error| Error::doubtful(create.what, self.place(), error))?;
        Ok(Changed { object: Some(dressed), ..made })
    }

    /// The attributes that an exclusive create could not take along.
    async fn set_after_create(&self, reference: &Reference, set: &SetAttr) -> Result<Object> {
        match self.setattr(reference, &set.with_times(), None).await?.object {
            Some(object) => Ok(object),
            None => self.getattr(reference).await,
        }
    }

    async fn mkdir(&self, dir: &Reference, name: &Name, set: &SetAttr) -> Result<Changed> {
        let args = MkdirArgs { place: dir_op(dir, name)?, attributes: to_sattr3(set)? };
        let mkdir = metadata("make a directory at", procedure::MKDIR, Repetition::Matters);
        self.make(mkdir, &args.place, |e| args.encode(e)).await
    }

    async fn symlink(&self, dir: &Reference, name: &Name, target: &Bytes, set: &SetAttr) -> Result<Changed> {
        check_target(target)?;
        let target = target.clone();
        let args = SymlinkArgs { place: dir_op(dir, name)?, attributes: to_sattr3(set)?, target };
        let symlink = metadata("make a symbolic link at", procedure::SYMLINK, Repetition::Matters);
        self.make(symlink, &args.place, |e| args.encode(e)).await
    }

    async fn mknod(&self, dir: &Reference, name: &Name, node: NewNode, set: &SetAttr) -> Result<Changed> {
        let attributes = to_sattr3(set)?;
        let node = match node {
            NewNode::CharDevice(major, minor) => NodeData::CharDevice { attributes, rdev: (major, minor) },
            NewNode::BlockDevice(major, minor) => NodeData::BlockDevice { attributes, rdev: (major, minor) },
            NewNode::Socket => NodeData::Socket(attributes),
            NewNode::Fifo => NodeData::Fifo(attributes),
        };
        let args = MknodArgs { place: dir_op(dir, name)?, node };
        let mknod = metadata("make a special file at", procedure::MKNOD, Repetition::Matters);
        self.make(mknod, &args.place, |e| args.encode(e)).await
    }

    async fn make(
        &self,
        procedure: Procedure,
        place: &DirOp,
        encode: impl FnOnce(&mut XdrEncoder),
    ) -> Result<Changed> {
        let done = self.deliver(procedure, encode, Bytes::new(), create::decode_create).await?;
        let object =
            self.created_object(place, &done.value).await.map_err(|error| match procedure.twice {
                Repetition::Harmless => error,
                // It exists, whatever this error says.
                Repetition::Matters => Error::doubtful(procedure.what, self.place(), error),
            })?;
        let dir = around(&place.dir, &done.value.dir_wcc);
        Ok(as_reported(Changed { object: Some(object), dir, ..Changed::default() }, done.resent))
    }

    /// Looks up what the server left out of its reply.
    async fn created_object(&self, place: &DirOp, ok: &CreateOk) -> Result<Object> {
        let Some(handle) = &ok.object else {
            let name = Name::new(place.name.clone())?;
            return self.lookup_direct(&place.dir, &name).await.map(|(object, _)| object);
        };
        // A copy: a handle lives long, the record it came in must not.
        let handle = FileHandle(Bytes::copy_from_slice(&handle.0));
        let attr = match &ok.attr {
            Some(attr) => attr_of(attr),
            None => self.getattr_of(&handle).await?,
        };
        Ok(object(handle, attr))
    }

    async fn remove_name(&self, procedure: Procedure, dir: &Reference, name: &Name) -> Result<Changed> {
        let args = dir_op(dir, name)?;
        let done = self.deliver(procedure, |e| args.encode(e), Bytes::new(), wcc::decode_wcc_result).await?;
        let dir = around(&args.dir, &done.value);
        Ok(as_reported(Changed { dir, ..Changed::default() }, done.resent))
    }

    /// A renamed object keeps its handle; the reply does not tell its attributes.
    async fn rename(
        &self,
        from_dir: &Reference,
        from: &Name,
        to_dir: &Reference,
        to: &Name,
    ) -> Result<Changed> {
        let args = RenameArgs { from: dir_op(from_dir, from)?, to: dir_op(to_dir, to)? };
        let rename = metadata("rename at", procedure::RENAME, Repetition::Matters);
        let done = self.deliver(rename, |e| args.encode(e), Bytes::new(), names::decode_rename).await?;
        let dir = around(&args.from.dir, &done.value.from);
        let to_dir = around(&args.to.dir, &done.value.to);
        Ok(as_reported(Changed { dir, to_dir, ..Changed::default() }, done.resent))
    }

    async fn link(&self, file: &Reference, dir: &Reference, name: &Name) -> Result<Changed> {
        let args = LinkArgs { object: handle_of(file)?, place: dir_op(dir, name)? };
        let link = metadata("link at", procedure::LINK, Repetition::Matters);
        let done = self.deliver(link, |e| args.encode(e), Bytes::new(), names::decode_link).await?;
        let dir = around(&args.place.dir, &done.value.dir);
        let attr = done.value.attr.as_ref().map(attr_of);
        let object = attr.map(|attr| object(args.object, attr));
        Ok(as_reported(Changed { object, dir, ..Changed::default() }, done.resent))
    }

    /// Servers may look at a guard's whole seconds only (Linux 6.1 does).
    async fn setattr(
        &self,
        reference: &Reference,
        set: &SetAttr,
        guard: Option<Timestamp>,
    ) -> Result<Changed> {
        // Set twice is set once, but a guard does not let the second one pass.
        let twice = if guard.is_some() { Repetition::Matters } else { Repetition::Harmless };
        let args = SetattrArgs {
            object: handle_of(reference)?,
            attributes: to_sattr3(set)?,
            guard: guard.map(to_nfstime3).transpose()?,
        };
        let setattr = metadata("set attributes at", procedure::SETATTR, twice);
        let done = self.deliver(setattr, |e| args.encode(e), Bytes::new(), wcc::decode_wcc_result).await?;
        let Around { before, after } = around(&args.object, &done.value);
        Ok(as_reported(Changed { object: after, before, ..Changed::default() }, done.resent))
    }
}

/// The state around a change, by the wcc_data of the object with this handle.
fn around(handle: &FileHandle, wcc: &WccData) -> Around {
    let after = wcc.after.as_ref().map(|after| object(handle.clone(), attr_of(after)));
    Around { before: wcc.before.as_ref().map(before_of), after }
}

/// The same as the version of the attributes that the server showed then.
pub fn before_of(wcc: &WccAttr) -> Before {
    let WccAttr { size, mtime, ctime } = *wcc;
    Before::from_weak(WeakAttr { size, mtime: time_of(mtime), ctime: time_of(ctime) })
}

fn as_reported(changed: Changed, resent: bool) -> Changed {
    if resent { changed.perhaps_again() } else { changed }
}
