//! Names that are made, moved and removed, by the kernel's rules. Each is done relative to the opened directory that
//! the reference means, and is on the disk before it is answered.

use std::ffi::OsStr;
use std::io::Error as Io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, makedev};
use rustix::io::Errno;
use types::{CreateHow, Error, ErrorKind, FileKind, Name, NewNode, Result, SetAttr};

use super::inode::{attr_of, stat};
use super::path::{demand_fits, in_proc, join};
use super::set;
use super::tree::PosixTree;
use crate::change::check_target;
use crate::{Around, Before, Change, Changed, Object, Reference, exclusive};

/// How often a create begins again because others make and remove the same name at the same time.
const CREATE_ATTEMPTS: u32 = 4;

/// A directory in which names are changed.
struct Dir {
    fd: OwnedFd,
    path: Vec<u8>,
    before: Option<Before>,
}

impl Dir {
    fn failed(&self, operation: &'static str, name: &Name, error: Errno) -> Error {
        let path = join(&self.path, name);
        if error == Errno::BUSY {
            // A mount point, or what a kernel uses for itself: it does not pass, as the kind for busy origins does.
            return Error::new(ErrorKind::NotPermitted, operation, path.escape_ascii())
                .with_source(Io::from(error));
        }
        Error::io(operation, path.escape_ascii(), error.into())
    }
}

fn os(name: &Name) -> &OsStr {
    OsStr::from_bytes(name.as_bytes())
}

/// Besides the mode that is set afterwards.
fn first_mode(set: &SetAttr, default: u32) -> Mode {
    Mode::from_raw_mode(set.mode.unwrap_or(default) & 0o777)
}

/// With all bits of the mode that is asked for, whatever the mask of this process: if it ends now, what is made is not
/// less than was asked for. Where a thread may not have a mask of its own, its bits come afterwards.
fn unmasked<T>(make: impl FnOnce() -> T) -> T {
    thread_local! { static OWN_MASK: bool = own_mask(); }
    if !OWN_MASK.with(|own| *own) {
        return make();
    }
    let before = rustix::process::umask(Mode::empty());
    let made = make();
    rustix::process::umask(before);
    made
}

#[expect(deprecated, reason = "unsafe is what may be done with it to descriptors, and this does not")]
fn own_mask() -> bool {
    rustix::thread::unshare(rustix::thread::UnshareFlags::FS).is_ok()
}

impl PosixTree {
    /// A mount that does not answer in time (`ETIMEDOUT`, `EINTR`) may have carried the call out.
    pub fn change(&self, change: &Change) -> Result<Changed> {
        self.attempt(change).map_err(|error| match error.kind() {
            ErrorKind::Unavailable if !change.is_repeatable() => {
                Error::doubtful(change.kind(), self.shown(change.place()), error)
            }
            _ => error,
        })
    }

    fn attempt(&self, change: &Change) -> Result<Changed> {
        match change {
            Change::Create { dir, name, how, set } => {
                self.make(dir, name, |dir| self.create(dir, name, *how, set))
            }
            Change::Mkdir { dir, name, set } => self.make(dir, name, |dir| self.mkdir(dir, name, set)),
            Change::Symlink { dir, name, target, set } => {
                self.make(dir, name, |dir| self.symlink(dir, name, target, set))
            }
            Change::Mknod { dir, name, node, set } => {
                self.make(dir, name, |dir| self.mknod(dir, name, *node, set))
            }
            Change::Link { file, dir, name } => self.make(dir, name, |dir| self.link(file, dir, name)),
            Change::Remove { dir, name } => self.in_dir(dir, |dir| self.unlink(dir, name, AtFlags::empty())),
            Change::Rmdir { dir, name } => self.in_dir(dir, |dir| self.unlink(dir, name, AtFlags::REMOVEDIR)),
            Change::Rename { from_dir, from, to_dir, to, identity: _ } => {
                let (from_dir, to_dir) = (self.dir(from_dir)?, self.dir(to_dir)?);
                demand_fits(&to_dir.path, to)?;
                let object = self.rename(&from_dir, from, &to_dir, to)?;
                let (dir, to_dir) = (self.around(&from_dir), self.around(&to_dir));
                Ok(Changed { object, dir, to_dir, ..Changed::default() })
            }
            Change::Set { object, set, guard } => self.set(object, set, *guard),
            Change::SetXattr { object, name, set } => self.set_xattr(object, name, set),
            Change::Publish { .. } => {
                Err(Error::new(ErrorKind::NotSupported, "publish a draft in", "a local directory"))
            }
        }
    }

    /// What cannot be addressed afterwards is not made.
    fn make(
        &self,
        dir: &Reference,
        name: &Name,
        make: impl FnOnce(&Dir) -> Result<Object>,
    ) -> Result<Changed> {
        self.in_dir(dir, |dir| {
            demand_fits(&dir.path, name)?;
            make(dir).map(Some)
        })
    }

    fn in_dir(&self, dir: &Reference, make: impl FnOnce(&Dir) -> Result<Option<Object>>) -> Result<Changed> {
        let dir = self.dir(dir)?;
        let object = make(&dir)?;
        Ok(Changed { object, dir: self.around(&dir), ..Changed::default() })
    }

    fn dir(&self, dir: &Reference) -> Result<Dir> {
        let (fd, path) = self.open(dir, OFlags::PATH)?;
        let before = stat(&fd).ok().map(|found| Before::from_weak(attr_of(&found).weak()));
        Ok(Dir { fd, path, before })
    }

    fn around(&self, dir: &Dir) -> Around {
        let after = self.look(&dir.fd).ok().and_then(|found| self.object(&dir.path, &found).ok());
        Around { before: dir.before, after }
    }

    fn create(&self, dir: &Dir, name: &Name, how: CreateHow, set: &SetAttr) -> Result<Object> {
        const WHAT: &str = "create";
        let dress = match how {
            CreateHow::Exclusive(verifier) if *set == SetAttr::default() => exclusive::set_of(verifier),
            _ => *set,
        };
        for _ in 0..CREATE_ATTEMPTS {
            match self.create_new(dir, name, &dress) {
                Ok(made) => return made,
                Err(Errno::EXIST) if how == CreateHow::Guarded => return Err(exists(dir, name)),
                Err(Errno::EXIST) => {}
                Err(e) => return Err(dir.failed(WHAT, name, e)),
            }
            if let Some(found) = self.take(dir, name, how, set)? {
                return Ok(found);
            }
        }
        Err(Error::new(ErrorKind::Busy, WHAT, "a name that comes and goes"))
    }

    /// The error of making it, or what became of what was made. Where the file system can, it has its name when it has
    /// its attributes: whatever ends this process leaves no other file under this name.
    fn create_new(&self, dir: &Dir, name: &Name, set: &SetAttr) -> rustix::io::Result<Result<Object>> {
        let mode = first_mode(set, 0o644);
        let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        match rustix::fs::openat(&dir.fd, c".", flags, mode) {
            Ok(nameless) => {
                let kind = FileKind::Regular;
                if let Err(e) = set::apply(&nameless, kind, set) {
                    // Only if the name is free is this what is wrong.
                    return match open_child(dir, name) {
                        Ok(_) => Err(Errno::EXIST),
                        Err(_) => Ok(Err(dir.failed("set attributes of the new", name, e))),
                    };
                }
                let place = (&dir.fd, os(name));
                rustix::fs::linkat(CWD, in_proc(&nameless), place.0, place.1, AtFlags::SYMLINK_FOLLOW)?;
                Ok(self.settled(dir, name, &nameless))
            }
            // Not on this file system.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                rustix::fs::openat(&dir.fd, os(name), flags, mode)?;
                Ok(self.dress(dir, name, set, AtFlags::empty()))
            }
            Err(e) => Err(e),
        }
    }

    /// A file that is there already, if this create may have it. `None`: it is not there any more.
    fn take(&self, dir: &Dir, name: &Name, how: CreateHow, set: &SetAttr) -> Result<Option<Object>> {
        let failed = |e: Errno| dir.failed("create", name, e);
        let fd = match open_child(dir, name) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(failed(e)),
        };
        let attr = attr_of(&stat(&fd).map_err(failed)?);
        let set = match how {
            CreateHow::Unchecked if attr.is_file() => SetAttr { size: set.size, ..SetAttr::default() },
            CreateHow::Exclusive(verifier) if exclusive::is_repetition(&attr, verifier) => match set {
                set if *set == SetAttr::default() => *set,
                set => set.with_times(),
            },
            _ => return Err(exists(dir, name)),
        };
        set::apply(&fd, attr.kind, &set).map_err(failed)?;
        self.settled(dir, name, &fd).map(Some)
    }

    fn symlink(&self, dir: &Dir, name: &Name, target: &[u8], set: &SetAttr) -> Result<Object> {
        check_target(target)?;
        let made = rustix::fs::symlinkat(OsStr::from_bytes(target), &dir.fd, os(name));
        made.map_err(|e| dir.failed("make a link", name, e))?;
        self.dress(dir, name, set, AtFlags::empty())
    }

    fn mkdir(&self, dir: &Dir, name: &Name, set: &SetAttr) -> Result<Object> {
        let made = unmasked(|| rustix::fs::mkdirat(&dir.fd, os(name), first_mode(set, 0o755)));
        made.map_err(|e| dir.failed("make directory", name, e))?;
        self.dress(dir, name, set, AtFlags::REMOVEDIR)
    }

    fn mknod(&self, dir: &Dir, name: &Name, node: NewNode, set: &SetAttr) -> Result<Object> {
        let (kind, device) = match node {
            NewNode::CharDevice(major, minor) => (FileType::CharacterDevice, makedev(major, minor)),
            NewNode::BlockDevice(major, minor) => (FileType::BlockDevice, makedev(major, minor)),
            NewNode::Socket => (FileType::Socket, 0),
            NewNode::Fifo => (FileType::Fifo, 0),
        };
        let mode = first_mode(set, 0o644);
        let made = unmasked(|| rustix::fs::mknodat(&dir.fd, os(name), kind, mode, device));
        made.map_err(|e| dir.failed("make special file", name, e))?;
        self.dress(dir, name, set, AtFlags::empty())
    }

    /// Sets what was asked for of an object just made. Where that cannot be, it is not made.
    fn dress(&self, dir: &Dir, name: &Name, set: &SetAttr, how_to_remove: AtFlags) -> Result<Object> {
        let dressed = open_child(dir, name).and_then(|fd| {
            let attr = attr_of(&stat(&fd)?);
            let size = set.size.filter(|_| attr.is_file());
            // A directory has setgid from the one it is in.
            let inherited = if attr.is_dir() { attr.mode & 0o2000 } else { 0 };
            let mode = set.mode.map(|mode| mode | inherited);
            set::apply(&fd, attr.kind, &SetAttr { size, mode, ..*set })?;
            Ok(fd)
        });
        let fd = dressed.map_err(|e| {
            let error = dir.failed("set attributes of the new", name, e);
            match rustix::fs::unlinkat(&dir.fd, os(name), how_to_remove) {
                Ok(()) => error,
                Err(_) => Error::doubtful("make", join(&dir.path, name).escape_ascii(), error),
            }
        })?;
        self.settled(dir, name, &fd)
    }

    /// What `fd` shows, once it and its name are on the disk.
    fn settled(&self, dir: &Dir, name: &Name, fd: &OwnedFd) -> Result<Object> {
        let path = join(&dir.path, name);
        self.store(fd, &path)?;
        self.store(&dir.fd, &dir.path)?;
        let look = || {
            let found = self.look(fd).map_err(|e| dir.failed("look at the new", name, e))?;
            self.object(&path, &found)
        };
        look().map_err(|error| Error::doubtful("make", path.escape_ascii(), error))
    }

    fn link(&self, file: &Reference, dir: &Dir, name: &Name) -> Result<Object> {
        const WHAT: &str = "link";
        let (fd, _) = self.open(file, OFlags::PATH)?;
        let failed = |e: Errno| dir.failed(WHAT, name, e);
        if attr_of(&stat(&fd).map_err(failed)?).is_dir() {
            return Err(Error::new(ErrorKind::IsADirectory, WHAT, self.shown(file)));
        }
        // The opened file and not its path, without the privilege that AT_EMPTY_PATH takes here.
        let linked = rustix::fs::linkat(CWD, in_proc(&fd), &dir.fd, os(name), AtFlags::SYMLINK_FOLLOW);
        linked.map_err(failed)?;
        self.store(&dir.fd, &dir.path)?;
        let found = self.look(&fd).map_err(failed);
        let object = found.and_then(|found| self.object(&join(&dir.path, name), &found));
        object.map_err(|e| Error::doubtful(WHAT, self.shown(file), e))
    }

    fn unlink(&self, dir: &Dir, name: &Name, how: AtFlags) -> Result<Option<Object>> {
        const WHAT: &str = "remove";
        rustix::fs::unlinkat(&dir.fd, os(name), how).map_err(|e| match e {
            Errno::EXIST => Error::new(ErrorKind::NotEmpty, WHAT, join(&dir.path, name).escape_ascii()),
            e => dir.failed(WHAT, name, e),
        })?;
        self.store(&dir.fd, &dir.path)?;
        Ok(None)
    }

    fn rename(&self, from_dir: &Dir, from: &Name, to_dir: &Dir, to: &Name) -> Result<Option<Object>> {
        const WHAT: &str = "rename";
        rustix::fs::renameat(&from_dir.fd, os(from), &to_dir.fd, os(to)).map_err(|e| match e {
            // Some file systems' word for a directory with names in it.
            Errno::EXIST => Error::new(ErrorKind::NotEmpty, WHAT, join(&to_dir.path, to).escape_ascii()),
            e => from_dir.failed(WHAT, from, e),
        })?;
        // The new name first: whatever a crash leaves, it is not nothing.
        self.store(&to_dir.fd, &to_dir.path)?;
        self.store(&from_dir.fd, &from_dir.path)?;
        let found = self.child(&to_dir.fd, &to_dir.path, to);
        found.map(Some).map_err(|e| Error::doubtful(WHAT, from, e))
    }
}

fn exists(dir: &Dir, name: &Name) -> Error {
    Error::new(ErrorKind::Exists, "create", join(&dir.path, name).escape_ascii())
}

fn open_child(dir: &Dir, name: &Name) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(&dir.fd, os(name), flags, Mode::empty())
}
