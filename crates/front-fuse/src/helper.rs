//! Mounting and unmounting: by system calls where this process may, otherwise through `fusermount3`, which is
//! installed set-uid root for this purpose and hands the opened device back over a socket.

use std::ffi::CString;
use std::fs::File;
use std::io::{Error, ErrorKind, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::READ_MAX;

/// Shown as `fuse.forebay` among the mounts; a mount left behind is recognized by it as ours.
pub const SUBTYPE: &str = "forebay";
const HELPER: &str = "fusermount3";

/// Opens the device of a new mount at `dir`, with the source `source`. Everybody may use it if root mounted it,
/// otherwise only the user that did.
pub fn mount(dir: &Path, source: &str, writable: bool) -> Result<OwnedFd> {
    match mount_directly(dir, source, writable) {
        Err(e) if e.kind() == ErrorKind::PermissionDenied => mount_with_helper(dir, source, writable),
        other => other,
    }
}

fn mount_directly(dir: &Path, source: &str, writable: bool) -> Result<OwnedFd> {
    if !rustix::process::geteuid().is_root() {
        return Err(Errno::PERM.into());
    }
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let mode = std::fs::metadata(dir)?.mode();
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let data = format!(
        "fd={},rootmode={mode:o},user_id={uid},group_id={gid},max_read={READ_MAX},default_permissions,allow_other",
        device.as_raw_fd()
    );
    let data = CString::new(data).map_err(Error::other)?;
    let access = if writable { MountFlags::empty() } else { MountFlags::RDONLY };
    let flags = access | MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOATIME;
    rustix::mount::mount(source, dir, format!("fuse.{SUBTYPE}"), flags, data.as_c_str())?;
    Ok(device.into())
}

fn mount_with_helper(dir: &Path, source: &str, writable: bool) -> Result<OwnedFd> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let access = if writable { "rw" } else { "ro" };
    let source = escaped(source);
    let options = format!(
        "{access},nosuid,nodev,noatime,default_permissions,max_read={READ_MAX},fsname={source},subtype={SUBTYPE}"
    );
    let child = Command::new(HELPER)
        .args(["-o", &options, "--"])
        .arg(dir)
        // The socket becomes its standard input: nothing else inherits it.
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| Error::new(e.kind(), format!("{HELPER}: {e} (Debian's fuse3 has it)")))?;
    let device = receive(&ours);
    let output = child.wait_with_output()?;
    match device? {
        Some(device) if output.status.success() => Ok(device),
        _ => Err(Error::other(one_line(&output.stderr))),
    }
}

/// Escapes a value among options, which commas separate.
fn escaped(source: &str) -> String {
    source.replace('\\', "\\\\").replace(',', "\\,")
}

/// Receives the descriptor; `None` if the socket is closed without one.
fn receive(socket: &OwnedFd) -> Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut byte)];
    rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let device = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(device)
}

/// Removes the mount at `dir`. If it is in use, it leaves the tree at once and ends with its last user.
pub fn unmount(dir: &Path) -> Result<()> {
    match rustix::mount::unmount(dir, UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => unmount_with_helper(dir),
        Err(_) => Ok(rustix::mount::unmount(dir, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?),
    }
}

/// Aborts the mount at `dir`: all that wait for its answers get an error, and its process is released.
pub fn abort(dir: &Path) -> Result<()> {
    match rustix::mount::unmount(dir, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW) {
        // EBUSY, but aborted all the same.
        Ok(()) | Err(Errno::BUSY) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

fn unmount_with_helper(dir: &Path) -> Result<()> {
    let run = |lazy: &[&str]| {
        let command =
            Command::new(HELPER).arg("-u").args(lazy).arg("--").arg(dir).stdin(Stdio::null()).output();
        let output = command.map_err(|e| Error::new(e.kind(), format!("{HELPER}: {e}")))?;
        if output.status.success() { Ok(()) } else { Err(Error::other(one_line(&output.stderr))) }
    };
    run(&[]).or_else(|_| run(&["-z"]))
}

fn one_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or("fusermount3 did not say why").to_owned()
}
