//! Random system calls, on the mount and on a directory of the machine: each ends in the same way, and so does the
//! tree. The seed is printed; `FOREBAY_TEST_SEED` makes the same calls again.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Error, Result};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, RenameFlags};

use crate::harness::*;

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        let mut x = self.0;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.0 = x;
        (x >> 11) % bound
    }

    /// Mostly of few values, so that steps meet.
    fn name(&mut self) -> String {
        let file = ["a", "b", "c"][self.below(3) as usize];
        match self.below(4) {
            0 => format!("d/{file}"),
            1 => format!("e/{file}"),
            2 => ["d", "e", "d/s"][self.below(3) as usize].into(),
            _ => file.into(),
        }
    }

    fn offset(&mut self) -> u64 {
        [0, 1, 4095, 4096, 70_000, 300_000][self.below(6) as usize] + self.below(3)
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = [1, 10, 4096, 5000, 150_000][self.below(5) as usize];
        let first = self.below(251);
        (0..length).map(|i| ((first + i) % 251) as u8).collect()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(String, u64, Vec<u8>),
    Replace(String, Vec<u8>),
    Append(String, Vec<u8>),
    CreateNew(String),
    Cut(String, u64),
    Mkdir(String),
    Rmdir(String),
    Remove(String),
    Rename(String, String),
    RenameToFree(String, String),
    Link(String, String),
    Symlink(String),
    Chmod(String, u32),
    Times(String, u64),
    Read(String),
    /// Of one of the files that are kept open: 0 to 3.
    Open(usize, String),
    Close(usize),
    WriteOpen(usize, u64, Vec<u8>),
    ReadOpen(usize, u64),
    CutOpen(usize, u64),
    SyncOpen(usize),
}

fn step(chance: &mut Chance) -> Step {
    let name = chance.name();
    let which = chance.below(4) as usize;
    match chance.below(30) {
        0 | 1 => Step::Write(name, chance.offset(), chance.bytes()),
        2 | 3 => Step::Replace(name, chance.bytes()),
        4 => Step::Append(name, chance.bytes()),
        5 => Step::CreateNew(name),
        6 => Step::Cut(name, chance.offset()),
        7 | 8 => Step::Mkdir(name),
        9 => Step::Rmdir(name),
        10 | 11 => Step::Remove(name),
        12 | 13 => Step::Rename(name, chance.name()),
        14 => Step::RenameToFree(name, chance.name()),
        15 => Step::Link(name, chance.name()),
        16 => Step::Symlink(name),
        17 => Step::Chmod(name, chance.below(0o1000) as u32 | 0o600),
        18 => Step::Times(name, chance.below(2_000_000_000)),
        19 | 20 => Step::Read(name),
        21 | 22 => Step::Open(which, ["a", "b", "c"][chance.below(3) as usize].into()),
        23 => Step::Close(which),
        24 | 25 => Step::WriteOpen(which, chance.offset(), chance.bytes()),
        26 | 27 => Step::ReadOpen(which, chance.offset()),
        28 => Step::CutOpen(which, chance.offset()),
        _ => Step::SyncOpen(which),
    }
}

struct Side {
    root: PathBuf,
    open: [Option<File>; 4],
}

impl Side {
    fn new(root: PathBuf) -> Side {
        Side { root, open: [const { None }; 4] }
    }

    /// What a program is told.
    fn carry_out(&mut self, step: &Step) -> Result<Vec<u8>> {
        let at = |name: &String| self.root.join(name);
        let done = |result: Result<()>| result.map(|()| Vec::new());
        let none = || Error::other("not open");
        match step {
            Step::Write(name, offset, bytes) => {
                let file = OpenOptions::new().write(true).create(true).truncate(false).open(at(name))?;
                done(file.write_all_at(bytes, *offset))
            }
            Step::Replace(name, bytes) => done(fs::write(at(name), bytes)),
            Step::Append(name, bytes) => {
                let mut file = OpenOptions::new().append(true).open(at(name))?;
                done(std::io::Write::write_all(&mut file, bytes))
            }
            Step::CreateNew(name) => done(File::create_new(at(name)).map(drop)),
            Step::Cut(name, size) => done(OpenOptions::new().write(true).open(at(name))?.set_len(*size)),
            Step::Mkdir(name) => done(fs::create_dir(at(name))),
            Step::Rmdir(name) => {
                // A hidden name would keep the directory, as over NFS.
                self.open = [const { None }; 4];
                done(fs::remove_dir(self.root.join(name)))
            }
            Step::Remove(name) => done(fs::remove_file(at(name))),
            Step::Rename(from, to) => {
                let (from, to) = (at(from), at(to));
                if to.is_dir() {
                    self.open = [const { None }; 4];
                }
                done(fs::rename(from, to))
            }
            Step::RenameToFree(from, to) => {
                let renamed = rustix::fs::renameat_with(CWD, at(from), CWD, at(to), RenameFlags::NOREPLACE);
                done(renamed.map_err(Error::from))
            }
            Step::Link(from, to) => done(fs::hard_link(at(from), at(to))),
            Step::Symlink(name) => done(symlink("a", at(name))),
            Step::Chmod(name, mode) => {
                // Directories stay searchable for whoever cleans up.
                done(fs::set_permissions(at(name), fs::Permissions::from_mode(*mode | 0o700)))
            }
            Step::Times(name, seconds) => {
                let time = SystemTime::UNIX_EPOCH + Duration::new(*seconds, *seconds as u32 % 1_000_000_000);
                let file = File::open(at(name))?;
                file.set_times(fs::FileTimes::new().set_modified(time).set_accessed(time))?;
                let meta = fs::metadata(at(name))?;
                Ok(format!("{} {}", meta.mtime(), meta.mtime_nsec()).into_bytes())
            }
            Step::Read(name) => fs::read(at(name)),
            Step::Open(which, name) => {
                let opened = OpenOptions::new().read(true).write(true).open(at(name));
                self.open[*which] = None;
                self.open[*which] = Some(opened?);
                Ok(Vec::new())
            }
            Step::Close(which) => {
                self.open[*which] = None;
                Ok(Vec::new())
            }
            Step::WriteOpen(which, offset, bytes) => {
                done(self.open[*which].as_ref().ok_or_else(none)?.write_all_at(bytes, *offset))
            }
            Step::ReadOpen(which, offset) => {
                let file = self.open[*which].as_ref().ok_or_else(none)?;
                let mut bytes = vec![0; 10_000];
                let read = file.read_at(&mut bytes, *offset)?;
                bytes.truncate(read);
                bytes.extend_from_slice(described(&file.metadata()?).as_bytes());
                Ok(bytes)
            }
            Step::CutOpen(which, size) => done(self.open[*which].as_ref().ok_or_else(none)?.set_len(*size)),
            Step::SyncOpen(which) => done(self.open[*which].as_ref().ok_or_else(none)?.sync_all()),
        }
    }
}

fn described(meta: &fs::Metadata) -> String {
    let size = if meta.is_dir() { 0 } else { meta.len() };
    let links = if meta.is_dir() { 0 } else { meta.nlink() };
    format!("{:o} {links} links {size} bytes of {}:{}", meta.mode(), meta.uid(), meta.gid())
}

/// The tree, by path: attributes and contents.
fn tree(root: &Path) -> BTreeMap<PathBuf, (String, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).expect("listed") {
            let path = entry.expect("listed").path();
            let meta = fs::symlink_metadata(&path).expect("there");
            let contents = if meta.is_dir() {
                left.push(path.clone());
                Vec::new()
            } else if meta.is_symlink() {
                fs::read_link(&path).expect("a link").into_os_string().into_encoded_bytes()
            } else {
                fs::read(&path).expect("read")
            };
            let name = path.strip_prefix(root).expect("below it").to_owned();
            found.insert(name, (described(&meta), contents));
        }
    }
    found
}

fn assert_same_tree(got: &Path, wanted: &Path, told: &str) {
    let (got, wanted) = (tree(got), tree(wanted));
    let names = |tree: &BTreeMap<PathBuf, (String, Vec<u8>)>| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&got), names(&wanted), "{told}");
    for (name, (wanted, contents)) in &wanted {
        let told = format!("{}: {told}", name.display());
        assert_eq!(&got[name].0, wanted, "{told}");
        assert_same(&got[name].1, contents, &told);
    }
}

#[test]
fn random_calls_end_as_on_a_local_file_system() {
    let name = "random_calls_end_as_on_a_local_file_system";
    let given = std::env::var("FOREBAY_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(testkit::origin_contract::seed) | 1;
    println!("FOREBAY_TEST_SEED={seed}");
    let Some(mut tier) = mount_writable(name) else { return };
    let local = tempfile::tempdir().expect("a directory");
    let (mut ours, mut theirs) = (Side::new(tier.mount_point()), Side::new(local.path().to_owned()));
    let mut chance = Chance(seed);
    let (mut done, mut refused) = (0, 0);
    for round in 0..3000 {
        let step = step(&mut chance);
        let (got, wanted) = (ours.carry_out(&step), theirs.carry_out(&step));
        let mut shown = format!("{step:?}");
        shown.truncate(100);
        let told = format!("seed {seed}, step {round}, {shown}");
        match (&got, &wanted) {
            (Ok(got), Ok(wanted)) => {
                assert_same(got, wanted, &told);
                done += 1;
            }
            (Err(got), Err(wanted)) => {
                assert_eq!(got.raw_os_error(), wanted.raw_os_error(), "{told}: {got}, not {wanted}");
                refused += 1;
            }
            (Err(got), Ok(_)) => panic!("{told}: {got}"),
            (Ok(_), Err(wanted)) => panic!("{told}: done, and it should be refused with {wanted}"),
        }
        if round % 100 == 99 {
            assert_same_tree(&ours.root, &theirs.root, &told);
        }
    }
    assert!(done > 500 && refused > 500, "{done} done, {refused} refused: the steps show nothing");
    drop((ours, theirs));
    tier.unmount();
    let told = format!("seed {seed}, at the origin");
    eventually("hidden names are gone", || {
        !tree(&tier.at_origin("")).keys().any(|path| path.to_string_lossy().contains(".forebay-"))
    });
    assert_same_tree(&tier.at_origin(""), local.path(), &told);
    tier.mount();
    assert_same_tree(&tier.mount_point(), local.path(), &format!("seed {seed}, mounted again"));
}
