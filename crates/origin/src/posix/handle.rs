//! The handle that a file system gives an inode: its number, and a generation that another inode which gets this number
//! later does not have. Births do not tell two such inodes apart, for they have the resolution of a clock tick (4 ms
//! and more before Linux 6.13), and the number of a removed file is given again at once.

use std::ffi::{CStr, c_char, c_int};
use std::hash::Hasher;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::AtFlags;
use siphasher::sip::SipHasher13;

/// File systems whose handles stay the same for as long as the inode is there, whatever is mounted anew or forgotten by
/// the kernel. Of others (FUSE numbers what it has in memory) the handle says nothing.
const LASTING: [u64; 7] = [
    0xef53,      // ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0x0102_1994, // tmpfs
    0xf2f5_2010, // F2FS
    0x2fc1_2fc1, // ZFS
    0x6969,      // NFS: the handle of the server
];

/// `MAX_HANDLE_SZ` of the kernel.
const HANDLE_MAX: usize = 128;

/// The kernel's `struct file_handle`, with room.
#[repr(C)]
struct KernelFileHandle {
    bytes: u32,
    kind: c_int,
    handle: [u8; HANDLE_MAX],
}

/// Handles of what is on the same file system as this can be told apart, and last.
pub fn last(root: &OwnedFd) -> bool {
    let known = rustix::fs::fstatfs(root).is_ok_and(|found| LASTING.contains(&found.f_type.cast_unsigned()));
    known && hash_of(root).is_some()
}

/// Of what is opened. `None`: this file system has none.
pub fn hash_of(fd: &OwnedFd) -> Option<u64> {
    let mut found = KernelFileHandle { bytes: HANDLE_MAX as u32, kind: 0, handle: [0; HANDLE_MAX] };
    if !ask(fd, c"", &mut found, AtFlags::EMPTY_PATH) {
        return None;
    }
    let mut hasher = SipHasher13::new_with_keys(0x6861_6e64_6c65_0000, 1);
    hasher.write_i32(found.kind);
    hasher.write(found.handle.get(..found.bytes as usize)?);
    Some(hasher.finish())
}

#[expect(unsafe_code, reason = "no library wraps this call")]
fn ask(fd: &OwnedFd, name: &CStr, found: &mut KernelFileHandle, flags: AtFlags) -> bool {
    unsafe extern "C" {
        fn name_to_handle_at(
            dirfd: c_int,
            name: *const c_char,
            handle: *mut KernelFileHandle,
            mount: *mut c_int,
            flags: c_int,
        ) -> c_int;
    }
    let mut mount = 0;
    let flags = flags.bits().cast_signed();
    // SAFETY: the name ends with a zero, and the kernel writes at most `found.bytes` behind the header of `found`, which
    // says how many there are, and one number to `mount`. It keeps none of the pointers.
    let answer =
        unsafe { name_to_handle_at(fd.as_fd().as_raw_fd(), name.as_ptr(), found, &raw mut mount, flags) };
    answer == 0
}

#[cfg(test)]
mod tests {
    use super::super::PosixOrigin;

    /// Most file systems give the number of a file that was removed to the next one; births are as close as they come.
    #[test]
    fn an_inode_number_that_is_given_again_within_a_clock_tick_is_another_object() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let origin = PosixOrigin::open(dir.path()).expect("opened");
        let path = dir.path().join("file");
        let mut seen = Vec::new();
        for _ in 0..64 {
            let made = std::fs::File::create_new(&path).expect("made");
            seen.push(origin.tree.look(&made.into()).expect("looked at"));
            std::fs::remove_file(&path).expect("removed");
        }
        let birth = seen[0].stx_btime;
        seen.iter_mut().for_each(|found| found.stat.stx_btime = birth);
        let mut identities: Vec<_> =
            seen.iter().map(|found| origin.tree.object(b"file", found).expect("short").identity.0).collect();
        identities.sort_unstable();
        identities.dedup();
        assert_eq!(identities.len(), seen.len());
    }
}
