//! Directories come and go while others walk the tree, on a mount that is written back and flushed at once: each call
//! ends as it would on a local file system, and the origin has the same tree at last. The seed is printed;
//! `FOREBAY_TEST_SEED` makes the same calls again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::crash::chance::Chance;
use crate::tier::Tier;

const MAKERS: u64 = 3;
const WALKERS: usize = 2;
const STEPS: usize = 3000;
/// Names drawn of: few, so that steps meet.
const NAMES: u64 = 6;

/// By directory, the files in it.
type Tree = BTreeMap<String, BTreeSet<String>>;

struct Maker {
    root: PathBuf,
    chance: Chance,
    tree: Tree,
}

impl Maker {
    fn name(&mut self) -> String {
        self.chance.below(NAMES).to_string()
    }

    /// What is done, how it ended, and how it would have ended on a local file system.
    fn step(&mut self) -> (String, Result<()>, std::result::Result<(), ErrorKind>) {
        let (dir, other, file) = (self.name(), self.name(), self.name());
        let at = |dir: &str| self.root.join(dir);
        let files = self.tree.get(&dir);
        let exists = |name: &str| files.is_some_and(|files| files.contains(name));
        match self.chance.below(6) {
            0 => {
                let done = fs::create_dir(at(&dir));
                let wanted = if files.is_some() { Err(ErrorKind::AlreadyExists) } else { Ok(()) };
                self.tree.entry(dir.clone()).or_default();
                (format!("mkdir {dir}"), done, wanted)
            }
            1 => {
                let done = fs::remove_dir(at(&dir));
                let wanted = match files {
                    None => Err(ErrorKind::NotFound),
                    Some(files) if files.is_empty() => Ok(()),
                    Some(_) => Err(ErrorKind::DirectoryNotEmpty),
                };
                if wanted.is_ok() {
                    self.tree.remove(&dir);
                }
                (format!("rmdir {dir}"), done, wanted)
            }
            2 => {
                let done = File::create_new(at(&dir).join(&file)).map(drop);
                let wanted = match files {
                    None => Err(ErrorKind::NotFound),
                    Some(_) if exists(&file) => Err(ErrorKind::AlreadyExists),
                    Some(_) => Ok(()),
                };
                if let Some(files) = self.tree.get_mut(&dir) {
                    files.insert(file.clone());
                }
                (format!("create {dir}/{file}"), done, wanted)
            }
            3 => {
                let done = fs::hard_link(at(&dir).join(&file), at(&dir).join(&other));
                let wanted = match (exists(&file), exists(&other)) {
                    (false, _) => Err(ErrorKind::NotFound),
                    (true, true) => Err(ErrorKind::AlreadyExists),
                    (true, false) => Ok(()),
                };
                if wanted.is_ok() {
                    self.tree.entry(dir.clone()).or_default().insert(other.clone());
                }
                (format!("link {dir}/{file} {dir}/{other}"), done, wanted)
            }
            4 => {
                // All of a directory, so that it can be removed; or of all of them, with them.
                let all = self.chance.one_in(4);
                let mut done = Ok(());
                for (dir, files) in self.tree.iter_mut().filter(|(name, _)| all || **name == dir) {
                    for file in std::mem::take(files) {
                        done = done.and(fs::remove_file(self.root.join(dir).join(file)));
                    }
                }
                for dir in self.tree.keys().filter(|_| all) {
                    done = done.and(fs::remove_dir(self.root.join(dir)));
                }
                if all {
                    self.tree.clear();
                }
                (format!("empty {}", if all { "all" } else { &dir }), done, Ok(()))
            }
            _ => {
                let done = fs::rename(at(&dir), at(&other));
                let replaced = self.tree.get(&other).map(BTreeSet::is_empty);
                let wanted = match (files, replaced) {
                    (None, _) => Err(ErrorKind::NotFound),
                    (Some(_), Some(false)) if dir != other => Err(ErrorKind::DirectoryNotEmpty),
                    (Some(_), _) => Ok(()),
                };
                if wanted.is_ok()
                    && let Some(files) = self.tree.remove(&dir)
                {
                    self.tree.insert(other.clone(), files);
                }
                (format!("rename {dir} {other}"), done, wanted)
            }
        }
    }

    fn work(mut self) -> std::result::Result<(PathBuf, Tree), String> {
        let mut done = Vec::new();
        for _ in 0..STEPS {
            let (what, ended, wanted) = self.step();
            let got = ended.as_ref().copied().map_err(std::io::Error::kind);
            done.push(format!("{what}: {ended:?}"));
            if got != wanted {
                let last = done.split_off(done.len().saturating_sub(20));
                return Err(format!("in {}: {wanted:?} was due: {last:#?}", self.root.display()));
            }
        }
        Ok((self.root, self.tree))
    }
}

/// Below a directory that others change. What is gone by now is passed over.
fn walk(dir: &Path, seen: &mut u64) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        *seen += 1;
        let gone = |e: &std::io::Error| e.kind() == ErrorKind::NotFound;
        let walked = match fs::symlink_metadata(entry.path()) {
            Ok(found) if found.is_dir() => walk(&entry.path(), seen),
            told => told.map(drop),
        };
        match walked {
            Err(e) if gone(&e) => {}
            walked => walked?,
        }
    }
    Ok(())
}

fn tree_of(dir: &Path) -> Tree {
    let names = |dir: &Path| -> Vec<String> {
        let entries = fs::read_dir(dir).expect("listed");
        entries.map(|e| e.expect("one").file_name().to_string_lossy().into_owned()).collect()
    };
    names(dir).into_iter().map(|name| (name.clone(), names(&dir.join(name)).into_iter().collect())).collect()
}

#[test]
fn directories_come_and_go_under_those_who_walk_the_tree() {
    let name = "directories_come_and_go_under_those_who_walk_the_tree";
    if !Path::new("/dev/fuse").exists() {
        return testkit::lab::not_run(name, "there is no /dev/fuse");
    }
    let seed = testkit::origin_contract::seed();
    println!("FOREBAY_TEST_SEED={seed}");
    let mut chance = Chance::new(seed);
    let dir = tempfile::tempdir().expect("temporary directory");
    let (origin, mount) = (dir.path().join("origin"), dir.path().join("mnt"));
    for made in [&origin, &mount] {
        fs::create_dir(made).expect("made");
    }
    let rule = *chance.of(&["always", "1s", "30s"]);
    let junction = format!(
        "[[junction]]\npath = \"/\"\norigin = \"file://{}\"\nfiles = \"{rule}\"\ndirectories = \"{rule}\"\n\
         write = \"back\"\nflush_delay = \"0s\"\n",
        origin.display()
    );
    let mut tier = Tier::start_mounted(dir.path(), &junction, Some(&mount));
    let over = AtomicBool::new(false);
    let (made, walked) = std::thread::scope(|scope| {
        let walkers: Vec<_> = (0..WALKERS)
            .map(|_| {
                scope.spawn(|| {
                    let mut seen = 0;
                    while !over.load(Ordering::SeqCst) {
                        walk(&mount, &mut seen)?;
                    }
                    Result::Ok(seen)
                })
            })
            .collect();
        let makers: Vec<_> = (0..MAKERS)
            .map(|number| {
                let root = mount.join(format!("maker{number}"));
                fs::create_dir(&root).expect("made");
                let maker = Maker { root, chance: chance.fork(), tree: Tree::new() };
                scope.spawn(|| maker.work())
            })
            .collect();
        let made: Vec<_> = makers.into_iter().map(|maker| maker.join().expect("no panic")).collect();
        over.store(true, Ordering::SeqCst);
        (made, walkers.into_iter().map(|walker| walker.join().expect("no panic")).collect::<Vec<_>>())
    });
    for seen in walked {
        assert!(seen.as_ref().is_ok_and(|seen| *seen > 0), "rule {rule}: a walker: {seen:?}");
    }
    let made: Vec<_> = made.into_iter().map(|made| made.unwrap_or_else(|e| panic!("{rule}: {e}"))).collect();
    for (root, tree) in &made {
        assert_eq!(&tree_of(root), tree, "on the mount, rule {rule}");
    }
    tier.json(&["flush", "--wait"]);
    for (root, tree) in &made {
        assert_eq!(&tree_of(&origin.join(root.file_name().expect("named"))), tree, "at the origin");
    }
    assert_eq!(tier.stop(), Some(0), "a clean stop");
}
