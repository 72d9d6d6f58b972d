//! Handles of files as NFS servers use them, above a mount: `name_to_handle_at` and `open_by_handle_at`.

use std::ffi::{CString, c_char, c_int};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::OFlags;

use crate::harness::mount_writable;

/// The kernel's `struct file_handle`, with room.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: c_int,
    handle: [u8; 128],
}

#[expect(unsafe_code, reason = "no library wraps these calls")]
mod calls {
    use super::{Handle, c_char, c_int};
    unsafe extern "C" {
        pub unsafe fn name_to_handle_at(
            dir: c_int,
            name: *const c_char,
            handle: *mut Handle,
            mount: *mut c_int,
            flags: c_int,
        ) -> c_int;
        pub unsafe fn open_by_handle_at(mount: c_int, handle: *mut Handle, flags: c_int) -> c_int;
    }
}

#[expect(unsafe_code, reason = "no library wraps this call")]
fn handle_of(path: &Path) -> Handle {
    let mut handle = Handle { bytes: 128, kind: 0, handle: [0; 128] };
    let name = CString::new(path.as_os_str().as_bytes()).expect("no zero");
    let mut mount = 0;
    // SAFETY: the name ends with a zero; the kernel writes at most 128 bytes behind the header, and one number.
    let told = unsafe { calls::name_to_handle_at(-1, name.as_ptr(), &mut handle, &raw mut mount, 0) };
    assert_eq!(told, 0, "{}", std::io::Error::last_os_error());
    handle
}

#[expect(unsafe_code, reason = "no library wraps this call")]
fn open(mount: &File, handle: &mut Handle, flags: OFlags) -> std::io::Result<File> {
    let flags = flags.bits().cast_signed();
    // SAFETY: the kernel reads the handle, whose header says how long it is, and gives a descriptor that is ours.
    unsafe {
        let fd = calls::open_by_handle_at(mount.as_raw_fd(), handle, flags);
        if fd < 0 { Err(std::io::Error::last_os_error()) } else { Ok(File::from_raw_fd(fd)) }
    }
}

#[test]
fn a_handle_leads_to_its_object_when_the_kernel_has_forgotten_it_and_never_to_another() {
    let name = "a_handle_leads_to_its_object_when_the_kernel_has_forgotten_it_and_never_to_another";
    let Some(mut tier) = mount_writable(name) else { return };
    fs::create_dir_all(tier.path("one/two")).expect("made");
    fs::write(tier.path("one/two/file"), b"by its handle").expect("written");
    fs::write(tier.path("one/gone"), b"x").expect("written");
    let (mut file, mut dir) = (handle_of(&tier.path("one/two/file")), handle_of(&tier.path("one/two")));
    let mut gone = handle_of(&tier.path("one/gone"));
    let inode = fs::metadata(tier.path("one/two")).expect("there").ino();
    fs::remove_file(tier.path("one/gone")).expect("removed");
    // Another mount of the same tree: its kernel side knows the root alone.
    tier.unmount();
    tier.mount();
    let mount = File::open(tier.mount_point()).expect("opened");
    let mut text = String::new();
    let opened = open(&mount, &mut file, OFlags::RDONLY);
    opened.expect("found again").read_to_string(&mut text).expect("read");
    assert_eq!(text, "by its handle");
    let opened = open(&mount, &mut dir, OFlags::RDONLY | OFlags::DIRECTORY).expect("found again");
    assert_eq!(opened.metadata().expect("there").ino(), inode);
    // Its way up is found too.
    let up = rustix::fs::openat(&opened, "../..", OFlags::RDONLY, rustix::fs::Mode::empty()).expect("opened");
    assert_eq!(File::from(up).metadata().expect("there").ino(), mount.metadata().expect("there").ino());
    let refused = open(&mount, &mut gone, OFlags::RDONLY).expect_err("removed");
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::STALE.raw_os_error()), "{refused}");
}
