//! What the kernel asks when a file is closed, and what a close still does where it asks nothing.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};

use crate::bytes::python;
use crate::harness::{Tier, eventually, mount_back, mount_writable, mount_writable_far};

const FILES: u64 = 20;

/// The requests for this by `work`, which closes `files`. A request is counted after its answer; the last one of an open is
/// RELEASE. One more comes for each open file that a process has which another test starts meanwhile: until it runs its own program it
/// has them all, and closes them then.
fn flushes(tier: &Tier, files: u64, work: impl FnOnce()) -> u64 {
    let all_counted = || tier.metrics.inflight.get() == 0;
    eventually("all is counted", all_counted);
    let (before, released) = (tier.requests("flush"), tier.requests("release"));
    work();
    eventually("all is closed", || tier.requests("release") == released + files && all_counted());
    tier.requests("flush") - before
}

fn write_all(tier: &Tier) {
    for n in 0..FILES {
        fs::write(tier.path(&format!("file{n}")), b"bytes").expect("written");
    }
}

fn read_all(tier: &Tier) {
    for n in 0..FILES {
        let mut bytes = Vec::new();
        let mut file = fs::File::open(tier.path(&format!("file{n}"))).expect("there");
        file.read_to_end(&mut bytes).expect("read");
        assert_eq!(bytes, b"bytes");
    }
}

fn change_one(tier: &Tier, options: &mut OpenOptions) {
    let mut file = options.write(true).open(tier.path("file0")).expect("there");
    file.write_all(b"b").expect("written");
}

#[test]
fn a_close_that_has_nothing_to_store_is_not_asked_for() {
    let name = "a_close_that_has_nothing_to_store_is_not_asked_for";
    let Some(tier) = mount_back(name) else { return };
    assert_eq!(flushes(&tier, FILES, || write_all(&tier)), 0, "all is in the journal when it is written");
    assert_eq!(flushes(&tier, FILES, || read_all(&tier)), 0);
    assert_eq!(flushes(&tier, 1, || change_one(&tier, OpenOptions::new().append(true))), 0);
    // It may have been mapped, and its pages are written out by the close.
    assert!(flushes(&tier, 1, || change_one(&tier, OpenOptions::new().read(true))) >= 1);
    let Some(tier) = mount_writable(name) else { return };
    assert!(flushes(&tier, FILES, || write_all(&tier)) >= FILES, "a close stores what was written");
    assert_eq!(fs::read(tier.at_origin("file0")).expect("there"), b"bytes");
    assert_eq!(flushes(&tier, FILES, || read_all(&tier)), 0);
    assert!(flushes(&tier, 1, || change_one(&tier, OpenOptions::new().append(true))) >= 1);
}

/// They are the kernel's own: it needs no request for that.
#[test]
fn a_close_that_is_not_asked_for_ends_locks() {
    let Some(tier) = mount_back("a_close_that_is_not_asked_for_ends_locks") else { return };
    fs::write(tier.path("file"), b"0123456789").expect("written");
    let script = "\
import fcntl, os, subprocess, sys
path = sys.argv[1]
other = '''
import fcntl, sys
f = open(sys.argv[1], 'r+b')
try: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 0)
except BlockingIOError: sys.exit(7)
'''
def try_(): return subprocess.run([sys.executable, '-c', other, path]).returncode
f, g = os.open(path, os.O_WRONLY), os.open(path, os.O_WRONLY)
fcntl.lockf(f, fcntl.LOCK_EX, 5, 0)
assert try_() == 7, 'locked'
os.close(g)
assert try_() == 0, 'any close of the file by the process ends its locks'
fcntl.lockf(f, fcntl.LOCK_EX, 5, 0)
assert try_() == 7, 'locked again'
os.close(f)
assert try_() == 0, 'closed'
";
    let before = tier.requests("flush");
    let Some(output) = python(script, &[&tier.path("file")]) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Each of the others could have mapped it.
    eventually("the closes are counted", || tier.requests("flush") - before >= 4);
    assert_eq!(tier.requests("flush") - before, 4, "not of those that write alone");
}

#[test]
fn what_cannot_be_stored_is_told_by_a_close() {
    let fill = |far: &testkit::far_origin::Far| far.memory.write_file(b"file", b"x").expect("written");
    let Some(tier) = mount_writable_far("what_cannot_be_stored_is_told_by_a_close", fill) else { return };
    tier.far.fail("write", types::ErrorKind::NoSpace, 1);
    let script = "import os, sys
f = os.open(sys.argv[1], os.O_WRONLY)
os.write(f, b'y')
try: os.close(f)
except OSError as e: sys.exit(e.errno)
";
    let Some(output) = python(script, &[&tier.path("file")]) else { return };
    assert_eq!(output.status.code(), Some(rustix::io::Errno::NOSPC.raw_os_error()));
}
