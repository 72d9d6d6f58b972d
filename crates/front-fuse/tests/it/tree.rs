//! The tree looks as it does at the origin.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use crate::harness::*;

#[test]
fn the_tree_is_the_origins() {
    let odd = b"not utf-8 \xff\xfe\\ \n";
    let Some(tier) = mount("the_tree_is_the_origins", |far| {
        far.memory.mkdir(b"sub").expect("made");
        far.memory.mkdir(b"sub/deep").expect("made");
        far.memory.write_file(b"empty", b"").expect("written");
        far.memory.generate_file(b"sub/big", 7, 5 * MIB + 4321).expect("written");
        far.memory.write_file(b"sub/deep/small", b"0123456789").expect("written");
        far.memory.write_file(odd, b"odd").expect("written");
        far.memory.symlink(b"sub/link", b"deep/small").expect("linked");
        far.memory.symlink(b"nowhere", b"/no/such\xff").expect("linked");
        far.memory.link(b"sub/deep/small", b"second name").expect("linked");
        // In this order: a new owner costs a file its setuid bit.
        far.memory.chown(b"sub/deep/small", 123, 456).expect("changed");
        far.memory.chmod(b"sub/deep/small", 0o4751).expect("changed");
    }) else {
        return;
    };
    let mut seen = BTreeMap::new();
    walk(&tier.mount_point(), Path::new(""), &mut seen);
    let odd = OsStr::from_bytes(odd).to_owned();
    let names =
        ["empty", "nowhere", "second name", "sub", "sub/big", "sub/deep", "sub/deep/small", "sub/link"];
    let mut wanted: Vec<OsString> = names.iter().map(OsString::from).collect();
    wanted.push(odd.clone());
    wanted.sort();
    assert_eq!(seen.keys().cloned().collect::<Vec<_>>(), wanted);

    assert_same(&fs::read(tier.path("sub/big")).expect("read"), &bytes_of(7, 5 * MIB + 4321), "sub/big");
    assert_eq!(fs::read(tier.path("empty")).expect("read"), b"");
    assert_eq!(fs::read(tier.mount_point().join(odd)).expect("read"), b"odd");
    assert_eq!(fs::read(tier.path("sub/link")).expect("followed"), b"0123456789");
    assert_eq!(fs::read_link(tier.path("nowhere")).expect("read").as_os_str().as_bytes(), b"/no/such\xff");
    let small = fs::metadata(tier.path("sub/deep/small")).expect("there");
    assert_eq!((small.mode(), small.nlink(), small.uid(), small.gid()), (0o104_751, 2, 123, 456));
    assert_eq!(small.mtime() / 100_000_000, 17, "the origin's time");
    let second = fs::metadata(tier.path("second name")).expect("there");
    assert_eq!(second.ino(), small.ino(), "one file");
    let known = tier.run(tier.vfs.resolve(b"/sub/deep/small")).expect("there");
    assert_eq!(small.ino(), known.attr.fileid, "the same number as over NFS");
    assert_eq!(fs::metadata(tier.path("missing")).expect_err("absent").kind(), ErrorKind::NotFound);
    assert_eq!(
        fs::metadata(tier.path("empty/x")).expect_err("no directory").kind(),
        ErrorKind::NotADirectory
    );
    let long = "n".repeat(256);
    assert_eq!(fs::metadata(tier.path(&long)).expect_err("too long").kind(), ErrorKind::InvalidFilename);
    assert_eq!(fs::read(tier.path("sub")).expect_err("a directory").kind(), ErrorKind::IsADirectory);
}

fn walk(root: &Path, below: &Path, seen: &mut BTreeMap<OsString, u64>) {
    for entry in fs::read_dir(root.join(below)).expect("listed") {
        let entry = entry.expect("listed");
        let path = below.join(entry.file_name());
        let meta = entry.metadata().expect("there");
        assert_eq!(entry.file_type().expect("told").is_dir(), meta.is_dir());
        let inode = std::os::unix::fs::DirEntryExt::ino(&entry);
        assert_eq!(inode, meta.ino(), "{}: listed and looked up", path.display());
        assert_eq!(seen.insert(path.clone().into_os_string(), inode), None, "{} twice", path.display());
        if meta.is_dir() {
            walk(root, &path, seen);
        }
    }
}

#[test]
fn a_large_directory_is_listed_whole_and_its_files_need_no_questions() {
    let name = "a_large_directory_is_listed_whole_and_its_files_need_no_questions";
    let files = 5000;
    let Some(tier) = mount(name, |far| {
        far.memory.mkdir(b"many").expect("made");
        for i in 0..files {
            far.memory.write_file(format!("many/file-{i}").as_bytes(), &[0; 3]).expect("written");
        }
    }) else {
        return;
    };
    let mut names: Vec<_> =
        fs::read_dir(tier.path("many")).expect("listed").map(|e| e.expect("listed").file_name()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), files);
    tier.far.forget_calls();
    for entry in fs::read_dir(tier.path("many")).expect("listed") {
        assert_eq!(entry.expect("listed").metadata().expect("there").len(), 3);
    }
    assert_eq!(tier.far.calls_of_all_kinds(), 0, "attributes came with the names");
}

#[test]
fn nothing_can_be_changed() {
    let Some(tier) = mount("nothing_can_be_changed", |far| {
        far.memory.write_file(b"file", b"x").expect("written");
        far.memory.mkdir(b"dir").expect("made");
        far.memory.chmod(b"", 0o777).expect("changed");
        far.memory.chmod(b"file", 0o666).expect("changed");
    }) else {
        return;
    };
    let file = tier.path("file");
    let results = [
        fs::write(&file, b"y").map(drop),
        fs::OpenOptions::new().read(true).write(true).open(&file).map(drop),
        fs::write(tier.path("new"), b"y"),
        fs::create_dir(tier.path("new")),
        fs::remove_file(&file),
        fs::remove_dir(tier.path("dir")),
        fs::rename(&file, tier.path("new")),
        fs::hard_link(&file, tier.path("new")),
        std::os::unix::fs::symlink("x", tier.path("new")),
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)),
    ];
    for (index, result) in results.into_iter().enumerate() {
        assert_eq!(result.expect_err("refused").kind(), ErrorKind::ReadOnlyFilesystem, "change {index}");
    }
}

#[test]
fn statfs_shows_the_origins_room() {
    let Some(tier) = mount("statfs_shows_the_origins_room", |_| {}) else { return };
    let shown = rustix::fs::statvfs(tier.mount_point()).expect("told");
    let root = tier.vfs.root();
    let told = tier.run(tier.vfs.statfs(root)).expect("told");
    assert_eq!(shown.f_blocks * shown.f_frsize, told.bytes_total / 4096 * 4096);
    assert_eq!(shown.f_files, told.files_total);
}

#[test]
fn absence_is_kept_by_the_kernel_no_longer_than_the_rule_says() {
    let second = ttl(Duration::from_secs(1));
    let name = "absence_is_kept_by_the_kernel_no_longer_than_the_rule_says";
    let Some(tier) = mount_with(name, |o| (o.files, o.directories) = (second, second), |_| {}) else {
        return;
    };
    assert!(!tier.path("later").exists());
    tier.far.memory.write_file(b"later", b"now").expect("written");
    let start = std::time::Instant::now();
    eventually("the new name is seen", || tier.path("later").exists());
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn the_kernel_answers_what_it_was_told_by_itself() {
    let Some(tier) = mount("the_kernel_answers_what_it_was_told_by_itself", |far| {
        far.memory.mkdir(b"a").expect("made");
        far.memory.write_file(b"a/b", b"x").expect("written");
    }) else {
        return;
    };
    fs::metadata(tier.path("a/b")).expect("there");
    let before = tier.metrics.requests();
    for _ in 0..100 {
        fs::metadata(tier.path("a/b")).expect("there");
    }
    assert_eq!(tier.metrics.requests(), before);
}

#[test]
fn an_outage_serves_what_is_cached_fails_a_miss_and_ends() {
    let name = "an_outage_serves_what_is_cached_fails_a_miss_and_ends";
    let short = ttl(Duration::from_secs(1));
    let Some(tier) = mount_with(
        name,
        |o| {
            (o.files, o.directories) = (short, short);
            o.config.deadline = SHORT_PATIENCE;
        },
        |far| {
            far.memory.generate_file(b"cached", 1, 3 * MIB).expect("written");
            far.memory.generate_file(b"partly", 2, 64 * MIB).expect("written");
        },
    ) else {
        return;
    };
    let partly = fs::File::open(tier.path("partly")).expect("opened");
    let mut block = vec![0; 4096];
    partly.read_exact_at(&mut block, 0).expect("read");
    assert_eq!(fs::read(tier.path("cached")).expect("read").len() as u64, 3 * MIB);
    tier.far.set_down(true);
    std::thread::sleep(Duration::from_millis(1200)); // past the ttl
    assert_same(&fs::read(tier.path("cached")).expect("cached"), &bytes_of(1, 3 * MIB), "in an outage");
    partly.read_exact_at(&mut block, 0).expect("cached");
    let missed = partly.read_exact_at(&mut block, 60 * MIB).expect_err("nobody has it");
    assert_eq!(missed.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()), "{missed}");
    let absent = fs::metadata(tier.path("unknown")).expect_err("nobody knows");
    assert_eq!(absent.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()), "never absence: {absent}");
    tier.far.set_down(false);
    eventually("reads go on", || partly.read_exact_at(&mut block, 60 * MIB).is_ok());
    assert_same(&block, &bytes_of(2, 60 * MIB + 4096)[60 * MIB as usize..], "after the outage");
}
