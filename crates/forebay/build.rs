//! Tells the programs `forebay` and `forebay-bench` which commit they were built from (FOREBAY_COMMIT, `unknown` where the
//! source is not a git checkout), and by which profile (FOREBAY_PROFILE), for results of the bench. It is read from git's own
//! files, so that no git is needed, and by the packages of the programs, on which no other depends: a commit rebuilds only
//! these two.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    // Of either package: the two programs share it.
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../..");
    println!("cargo::rerun-if-changed={}", root.join("crates/forebay/build.rs").display());
    println!("cargo::rerun-if-env-changed=FOREBAY_COMMIT");
    // Who builds from an archive may know better.
    let given = env::var("FOREBAY_COMMIT").ok().and_then(|text| commit(&text));
    let found = given.or_else(|| head(&root)).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=FOREBAY_COMMIT={found}");
    println!("cargo::rustc-env=FOREBAY_PROFILE={}", profile().unwrap_or_else(|| "unknown".to_owned()));
}

/// Its name. Cargo says only which of its own two a profile is like; the directory has the name: PROFILE/build/CRATE/out.
fn profile() -> Option<String> {
    let out = PathBuf::from(env::var_os("OUT_DIR")?);
    Some(out.ancestors().nth(3)?.file_name()?.to_string_lossy().into_owned())
}

/// Of the checkout whose top is `root`; and cargo is told which files change with it.
fn head(root: &Path) -> Option<String> {
    let git = git_dir(root)?;
    let common = fs::read_to_string(git.join("commondir")).map_or(git.clone(), |dir| git.join(dir.trim()));
    let head = fs::read_to_string(git.join("HEAD")).ok()?;
    watch(&git.join("HEAD"));
    let Some(reference) = head.trim().strip_prefix("ref: ") else { return commit(&head) };
    let (loose, packed) = (common.join(reference), common.join("packed-refs"));
    // Each commit writes a line here, whether or not the reference is packed.
    watch(&git.join("logs/HEAD"));
    watch(&loose);
    watch(&packed);
    let of_loose = fs::read_to_string(loose).ok().and_then(|text| commit(&text));
    of_loose.or_else(|| {
        let packed = fs::read_to_string(packed).ok()?;
        let line = packed.lines().find(|line| line.ends_with(&format!(" {reference}")))?;
        commit(line.split(' ').next()?)
    })
}

/// A directory, or the one that a file of this name leads to, as in a worktree.
fn git_dir(root: &Path) -> Option<PathBuf> {
    let path = root.join(".git");
    if path.is_dir() {
        return Some(path);
    }
    let text = fs::read_to_string(path).ok()?;
    Some(root.join(text.trim().strip_prefix("gitdir: ")?))
}

/// A file that is not there would make cargo build each time.
fn watch(path: &Path) {
    if path.exists() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

fn commit(text: &str) -> Option<String> {
    let text = text.trim();
    let is_hash = (7..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| text.to_owned())
}
