//! What is made, named and removed through the mount, and whose it is.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, RenameFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;

use crate::harness::*;

fn code<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

fn is(errno: Errno) -> Option<i32> {
    Some(errno.raw_os_error())
}

/// The command as another user, with no privileges.
fn as_user(uid: u32, gid: u32, script: &str, dir: &Path) -> std::process::Output {
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(dir).uid(uid).gid(gid);
    command.output().expect("a shell is installed")
}

#[test]
fn what_is_made_is_at_the_origin_when_it_is_answered() {
    let Some(tier) = mount_writable("what_is_made_is_at_the_origin_when_it_is_answered") else { return };
    fs::create_dir(tier.path("dir")).expect("made");
    fs::write(tier.path("dir/file"), b"bytes").expect("written");
    symlink("dir/file", tier.path("soft")).expect("linked");
    fs::hard_link(tier.path("dir/file"), tier.path("hard")).expect("linked");
    rustix::fs::mkfifoat(CWD, tier.path("fifo"), Mode::from(0o600)).expect("made");
    rustix::fs::mknodat(CWD, tier.path("plain"), rustix::fs::FileType::RegularFile, Mode::from(0o640), 0)
        .expect("made");
    let device = rustix::fs::makedev(0x123, 0x45678);
    let kind = rustix::fs::FileType::CharacterDevice;
    rustix::fs::mknodat(CWD, tier.path("device"), kind, Mode::from(0o600), device).expect("made");
    for place in [tier.mount_point(), tier.at_origin("")] {
        assert_eq!(fs::read(place.join("hard")).expect("there"), b"bytes");
        assert_eq!(fs::metadata(place.join("hard")).expect("there").nlink(), 2);
        assert_eq!(fs::read_link(place.join("soft")).expect("there"), Path::new("dir/file"));
        assert!(fs::metadata(place.join("fifo")).expect("there").file_type().is_fifo());
        assert_eq!(fs::metadata(place.join("plain")).expect("there").mode() & 0o7777, 0o640);
        assert_eq!(fs::metadata(place.join("device")).expect("there").rdev(), device);
    }
    assert_eq!(
        fs::metadata(tier.path("hard")).expect("there").ino(),
        fs::metadata(tier.path("dir/file")).expect("there").ino()
    );
    fs::rename(tier.path("dir"), tier.path("moved")).expect("renamed");
    assert_eq!(code(fs::metadata(tier.path("dir/file"))), is(Errno::NOENT));
    assert_eq!(fs::read(tier.path("moved/file")).expect("there"), b"bytes");
    assert_eq!(code(fs::remove_dir(tier.path("moved"))), is(Errno::NOTEMPTY));
    fs::remove_file(tier.path("moved/file")).expect("removed");
    fs::remove_dir(tier.path("moved")).expect("removed");
    let mut left: Vec<_> =
        fs::read_dir(tier.at_origin("")).expect("listed").map(|e| e.expect("one").file_name()).collect();
    left.sort();
    assert_eq!(left, ["device", "fifo", "hard", "plain", "soft"]);
    assert_eq!(fs::metadata(tier.path("hard")).expect("there").nlink(), 1);
}

#[test]
fn a_name_that_is_taken_is_told_and_an_exclusive_create_has_one_winner() {
    let name = "a_name_that_is_taken_is_told_and_an_exclusive_create_has_one_winner";
    let Some(tier) = mount_writable(name) else { return };
    assert!(!tier.path("file").exists(), "the kernel knows that it is absent");
    fs::write(tier.at_origin("file"), b"of another").expect("written");
    assert_eq!(code(fs::File::create_new(tier.path("file"))), is(Errno::EXIST));
    assert_eq!(fs::read(tier.path("file")).expect("there"), b"of another");
    assert!(!tier.path("second").exists());
    fs::write(tier.at_origin("second"), b"of another").expect("written");
    // Without O_EXCL what is there is opened, and cut.
    fs::write(tier.path("second"), b"ours").expect("opened");
    assert_eq!(fs::read(tier.at_origin("second")).expect("there"), b"ours");
    let winners = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| match fs::File::create_new(tier.path("lock")) {
                Ok(_) => drop(winners.fetch_add(1, std::sync::atomic::Ordering::Relaxed)),
                Err(e) => assert_eq!(e.kind(), ErrorKind::AlreadyExists),
            });
        }
    });
    assert_eq!(winners.into_inner(), 1);
}

#[test]
fn attributes_are_set_to_the_nanosecond_and_now_is_now() {
    let Some(tier) = mount_writable("attributes_are_set_to_the_nanosecond_and_now_is_now") else { return };
    let path = tier.path("file");
    fs::write(&path, b"x").expect("written");
    let at = |seconds, nanos| Timespec { tv_sec: seconds, tv_nsec: nanos };
    let set = |last_access, last_modification| {
        let times = Timestamps { last_access, last_modification };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).expect("set");
        let (here, there) =
            (fs::metadata(&path).expect("there"), fs::metadata(tier.at_origin("file")).expect("there"));
        assert_eq!((here.atime(), here.atime_nsec()), (there.atime(), there.atime_nsec()));
        assert_eq!((here.mtime(), here.mtime_nsec()), (there.mtime(), there.mtime_nsec()));
        (here.atime(), here.atime_nsec(), here.mtime(), here.mtime_nsec())
    };
    assert_eq!(set(at(1, 2), at(3, 123_456_789)), (1, 2, 3, 123_456_789));
    assert_eq!(set(at(7, 8), at(0, UTIME_OMIT)), (7, 8, 3, 123_456_789));
    assert_eq!(set(at(-2, 500_000_000), at(-1, 0)), (-2, 500_000_000, -1, 0));
    let before =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs() as i64;
    let now = set(at(0, UTIME_OMIT), at(0, UTIME_NOW)).2;
    assert!(now >= before - 1 && now < before + DEADLINE.as_secs() as i64, "{now} is not {before}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4711)).expect("set");
    rustix::fs::chownat(CWD, &path, Some(Uid::from_raw(12)), Some(Gid::from_raw(34)), AtFlags::empty())
        .expect("set");
    for place in [path.clone(), tier.at_origin("file")] {
        let meta = fs::metadata(place).expect("there");
        assert_eq!((meta.uid(), meta.gid()), (12, 34));
    }
}

#[test]
fn what_a_user_makes_is_his_less_his_umask_and_of_a_setgid_directorys_group() {
    let name = "what_a_user_makes_is_his_less_his_umask_and_of_a_setgid_directorys_group";
    let Some(tier) = mount_writable(name) else { return };
    fs::set_permissions(tier.dir.path(), fs::Permissions::from_mode(0o755)).expect("set");
    for (dir, mode) in [("open", 0o777), ("group", 0o2777), ("sticky", 0o1777)] {
        fs::create_dir(tier.path(dir)).expect("made");
        fs::set_permissions(tier.path(dir), fs::Permissions::from_mode(mode)).expect("set");
        rustix::fs::chownat(CWD, tier.path(dir), None, Some(Gid::from_raw(77)), AtFlags::empty())
            .expect("set");
    }
    let script =
        "umask 027; for d in open group sticky; do echo x > $d/file; mkdir $d/sub; ln -s x $d/link; done";
    let output = as_user(1234, 5678, script, &tier.mount_point());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (dir, gid, mode) in [("open", 5678, 0o750), ("group", 77, 0o2750), ("sticky", 5678, 0o750)] {
        for place in [tier.path(dir), tier.at_origin(dir)] {
            let of = |name| {
                let meta = fs::symlink_metadata(place.join(name)).expect("there");
                (meta.uid(), meta.gid(), meta.mode() & 0o7777)
            };
            assert_eq!(of("file"), (1234, gid, 0o640), "{dir}");
            assert_eq!(of("sub"), (1234, gid, mode), "{dir}");
            assert_eq!((of("link").0, of("link").1), (1234, gid), "{dir}");
        }
    }
    // Another user: not in a sticky directory, and not where he may not write.
    for (script, allowed) in [
        ("rm -f sticky/file", false),
        ("mv sticky/file sticky/other", false),
        ("rm -f open/file", true),
        ("echo y >> group/file", false),
        ("echo y > open/sub/file", false),
        ("chmod 777 group/file", false),
        ("chown 4321 group/file", false),
        ("touch group/file", false),
    ] {
        let output = as_user(4321, 4321, script, &tier.mount_point());
        assert_eq!(output.status.success(), allowed, "{script}");
    }
    assert!(tier.at_origin("sticky/file").exists() && !tier.at_origin("open/file").exists());
}

#[test]
fn who_writes_cuts_allocates_in_or_gives_away_a_program_takes_its_setuid() {
    let name = "who_writes_cuts_allocates_in_or_gives_away_a_program_takes_its_setuid";
    type Mount = fn(&str) -> Option<Tier>;
    for (mount, is_through) in [(mount_writable as Mount, true), (mount_back, false)] {
        let Some(tier) = mount(name) else { return };
        setuid_ends(&tier, is_through);
    }
}

fn setuid_ends(tier: &Tier, is_through: bool) {
    fs::set_permissions(tier.dir.path(), fs::Permissions::from_mode(0o755)).expect("set");
    let mode = |name: &str| {
        let here = fs::metadata(tier.path(name)).expect("there").mode() & 0o7777;
        let there = fs::metadata(tier.at_origin(name)).map_or(0, |there| there.mode() & 0o7777);
        assert!(here == there || !is_through, "{name}: {here:o}, {there:o}");
        here
    };
    let copy = "perl -e 'open(my $from, \"<\", \"write\"); open(my $to, \"+<\", \"copied\"); \
                syscall(326, fileno($from), 0, fileno($to), 0, 1, 0) == 1 or die $!'";
    for (name, script) in [
        ("write", "echo x >> write"),
        ("cut", "truncate -s 1 cut"),
        ("open", "echo x > open"),
        ("zeroed", "fallocate --zero-range --offset 0 --length 4 zeroed"),
        ("longer", "fallocate --offset 0 --length 4096 longer"),
        ("copied", copy),
    ] {
        if name == "copied" && !cfg!(target_arch = "x86_64") {
            continue; // the number of copy_file_range is another one
        }
        fs::write(tier.path(name), b"#!/bin/sh\n").expect("written");
        fs::set_permissions(tier.path(name), fs::Permissions::from_mode(0o6777)).expect("set");
        assert_eq!(mode(name), 0o6777);
        let output = as_user(1234, 1234, script, &tier.mount_point());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(mode(name), 0o777, "{script}");
    }
    fs::write(tier.path("given"), b"x").expect("written");
    fs::set_permissions(tier.path("given"), fs::Permissions::from_mode(0o6755)).expect("set");
    rustix::fs::chownat(CWD, tier.path("given"), Some(Uid::from_raw(5)), None, AtFlags::empty())
        .expect("set");
    assert_eq!(mode("given"), 0o755, "also by root");
    // Who has the right to leaves them.
    let without = "setpriv --bounding-set=-fsetid";
    for (script, expected) in [
        ("echo x >> kept".to_owned(), 0o6777),
        ("truncate -s 1 kept".to_owned(), 0o6777),
        ("fallocate --offset 0 --length 4096 kept".to_owned(), 0o6777),
        (format!("{without} truncate -s 1 kept"), 0o777),
        (format!("{without} sh -c 'echo x >> kept'"), 0o777),
        (format!("{without} fallocate --offset 0 --length 9999 kept"), 0o777),
    ] {
        fs::write(tier.path("kept"), b"#!/bin/sh\n").expect("written");
        fs::set_permissions(tier.path("kept"), fs::Permissions::from_mode(0o6777)).expect("set");
        let done = Command::new("sh").args(["-c", &script]).current_dir(tier.mount_point()).status();
        assert!(done.expect("it runs").success(), "{script}");
        assert_eq!(mode("kept"), expected, "{script}");
    }
}

/// The kernel asked for them before each write.
#[test]
fn a_file_is_asked_for_its_capabilities_once_and_not_before_each_write() {
    let name = "a_file_is_asked_for_its_capabilities_once_and_not_before_each_write";
    let Some(tier) = mount_writable(name) else { return };
    let mut file = fs::File::create(tier.path("file")).expect("made");
    for _ in 0..50 {
        std::io::Write::write_all(&mut file, &[7; 5000]).expect("written");
    }
    assert!(tier.requests("write") >= 50);
    assert!(tier.requests("getxattr") <= 3, "{}", tier.requests("getxattr"));
}

#[test]
fn extended_attributes_are_the_origins() {
    let Some(tier) = mount_writable("extended_attributes_are_the_origins") else { return };
    fs::write(tier.path("file"), b"some bytes").expect("written");
    fs::create_dir(tier.path("dir")).expect("made");
    let get = |path: std::path::PathBuf, name: &str| {
        let mut value = [0; 100];
        rustix::fs::getxattr(path, name, &mut value[..]).map(|length| value[..length].to_vec())
    };
    let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(tier.path("file"), name, value, flags);
    let any = XattrFlags::empty();
    if set("user.shot", b"sc010", any) == Err(Errno::OPNOTSUPP) {
        return testkit::lab::not_run("extended attributes", "the temporary directory has none");
    }
    assert_eq!(get(tier.at_origin("file"), "user.shot").expect("there"), b"sc010");
    assert_eq!(get(tier.path("file"), "user.shot").expect("there"), b"sc010");
    assert_eq!(rustix::fs::getxattr_query(tier.path("file"), "user.shot"), Ok(5));
    assert_eq!(rustix::fs::getxattr(tier.path("file"), "user.shot", &mut [0; 4][..]), Err(Errno::RANGE));
    // What others set is seen at once.
    rustix::fs::setxattr(tier.at_origin("file"), "user.artist", b"x", any).expect("set");
    let mut names = [0; 100];
    let length = rustix::fs::listxattr(tier.path("file"), &mut names[..]).expect("listed");
    let mut names: Vec<_> = names[..length - 1].split(|byte| *byte == 0).collect();
    names.sort_unstable();
    assert_eq!(names, [&b"user.artist"[..], b"user.shot"]);
    assert_eq!(set("user.shot", b"", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(set("user.none", b"", XattrFlags::REPLACE), Err(Errno::NODATA));
    assert_eq!(set("user.shot", b"sc020", XattrFlags::REPLACE), Ok(()));
    assert_eq!(rustix::fs::removexattr(tier.path("file"), "user.artist"), Ok(()));
    assert_eq!(rustix::fs::removexattr(tier.path("file"), "user.artist"), Err(Errno::NODATA));
    assert_eq!(get(tier.at_origin("file"), "user.shot").expect("there"), b"sc020");
    assert_eq!(get(tier.path("file"), "user.artist"), Err(Errno::NODATA));
    rustix::fs::setxattr(tier.path("dir"), "user.a", b"1", any).expect("directories have them too");
    // Others than those of users there are none.
    assert_eq!(get(tier.path("file"), "security.capability"), Err(Errno::NODATA));
    assert_eq!(set("trusted.a", b"1", any), Err(Errno::OPNOTSUPP));
    assert_eq!(fs::read(tier.path("file")).expect("read"), b"some bytes");
}

#[test]
fn a_rename_obeys_its_flags() {
    let Some(tier) = mount_writable("a_rename_obeys_its_flags") else { return };
    let rename = |from: &str, to: &str, flags| {
        rustix::fs::renameat_with(CWD, tier.path(from), CWD, tier.path(to), flags).err()
    };
    for name in ["a", "b"] {
        fs::write(tier.path(name), name).expect("written");
    }
    fs::create_dir(tier.path("dir")).expect("made");
    fs::create_dir(tier.path("other")).expect("made");
    assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Some(Errno::EXIST));
    assert_eq!(rename("a", "b", RenameFlags::EXCHANGE), Some(Errno::INVAL));
    assert_eq!(rename("a", "new", RenameFlags::NOREPLACE), None);
    assert_eq!(rename("dir", "other", RenameFlags::NOREPLACE), Some(Errno::EXIST));
    assert_eq!(rename("dir", "free", RenameFlags::NOREPLACE), None);
    // The kernel has not heard of this one.
    assert!(!tier.path("taken").exists());
    fs::write(tier.at_origin("taken"), b"of another").expect("written");
    assert_eq!(rename("new", "taken", RenameFlags::NOREPLACE), Some(Errno::EXIST));
    assert_eq!(fs::read(tier.at_origin("taken")).expect("there"), b"of another");
    assert_eq!(rename("new", "b", RenameFlags::empty()), None);
    assert_eq!(rename("free", "other", RenameFlags::empty()), None);
    assert_eq!(rename("other", "b", RenameFlags::empty()), Some(Errno::NOTDIR));
    assert_eq!(rename("b", "other", RenameFlags::empty()), Some(Errno::ISDIR));
    assert_eq!(rename("other", "other/inside", RenameFlags::empty()), Some(Errno::INVAL));
    assert_eq!(fs::read(tier.path("b")).expect("there"), b"a");
    assert_eq!(fs::metadata(tier.path("b")).expect("there").nlink(), 1);
}

#[test]
fn what_another_front_changes_the_kernel_hears_of() {
    let Some(tier) = mount_writable("what_another_front_changes_the_kernel_hears_of") else { return };
    fs::write(tier.path("file"), b"old").expect("written");
    assert_eq!(fs::read(tier.path("file")).expect("there"), b"old");
    assert!(!tier.path("new").exists());
    fs::create_dir(tier.path("dir")).expect("made");
    // More than are looked at one by one.
    for n in 0..100 {
        assert!(!tier.path("dir").join(n.to_string()).exists());
    }
    let caller = types::Caller { trusted: true, ..types::Caller::root() };
    let (root, of) =
        (tier.vfs.root(), |name: &str| types::Name::new(name.as_bytes().to_vec()).expect("a name"));
    tier.run(async {
        let file = tier.vfs.lookup(&caller, root, &of("file")).await.expect("there").id;
        let data = bytes::Bytes::from_static(b"newer");
        tier.vfs.write(&caller, file, 0, data, types::Stability::FileSync).await.expect("written");
        tier.vfs.mkdir(&caller, root, &of("new"), types::SetAttr::default()).await.expect("made");
        let dir = tier.vfs.lookup(&caller, root, &of("dir")).await.expect("there").id;
        tier.vfs.mkdir(&caller, dir, &of("57"), types::SetAttr::default()).await.expect("made");
    });
    // The rule would not ask for 30 s: only being told can show it this early.
    let start = std::time::Instant::now();
    eventually("the bytes are seen", || fs::read(tier.path("file")).expect("there") == b"newer");
    eventually("the name is seen", || tier.path("new").is_dir());
    eventually("one of many names is seen", || tier.path("dir/57").is_dir());
    assert!(start.elapsed() < Duration::from_secs(25), "by its timer");
    tier.run(tier.vfs.remove(&caller, root, &of("file"))).expect("removed");
    eventually("the name is gone", || !tier.path("file").exists());
    assert!(start.elapsed() < Duration::from_secs(28), "by its timer");
}

#[test]
fn who_works_in_a_directory_stays_in_it_whatever_changes_there() {
    let name = "who_works_in_a_directory_stays_in_it_whatever_changes_there";
    let Some(tier) = mount_writable(name) else { return };
    fs::create_dir_all(tier.path("dir/sub")).expect("made");
    // A name is given to the kernel's notices each time; they come a moment later.
    let script = r#"
        for i in $(seq 40); do touch file$i; sleep 0.01; /bin/pwd; done
        mv ../sub ../moved; sleep 0.2; /bin/pwd; cd ..; /bin/pwd
    "#;
    let output =
        Command::new("sh").args(["-c", script]).current_dir(tier.path("dir/sub")).output().expect("a shell");
    let printed = String::from_utf8_lossy(&output.stdout);
    let wanted = [vec!["dir/sub"; 40], vec!["dir/moved", "dir"]].concat();
    let wanted: Vec<_> = wanted.iter().map(|name| tier.path(name).display().to_string()).collect();
    assert_eq!(printed.lines().collect::<Vec<_>>(), wanted, "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn names_and_targets_have_the_lengths_that_the_origin_has() {
    let Some(tier) = mount_writable("names_and_targets_have_the_lengths_that_the_origin_has") else { return };
    let long = "n".repeat(255);
    fs::write(tier.path(&long), b"x").expect("written");
    assert!(tier.at_origin(&long).exists());
    assert_eq!(code(fs::write(tier.path(&"n".repeat(256)), b"x")), is(Errno::NAMETOOLONG));
    symlink("t".repeat(4095), tier.path("link")).expect("linked");
    assert_eq!(fs::read_link(tier.path("link")).expect("there").as_os_str().len(), 4095);
    let odd = std::os::unix::ffi::OsStrExt::from_bytes(b"\xff\x01 \n");
    let odd: &std::ffi::OsStr = odd;
    fs::write(tier.mount_point().join(odd), b"x").expect("written");
    assert!(tier.at_origin("").join(odd).exists(), "names are bytes");
    let closed = fs::OpenOptions::new().write(true).create_new(true).mode(0o000).open(tier.path("closed"));
    std::io::Write::write_all(&mut closed.expect("made"), b"its maker may").expect("written");
}
