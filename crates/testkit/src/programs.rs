//! Programs of other packages of this workspace. Cargo builds those of the package under test and tells where they are; what
//! they start lies beside them, and may be older than what it is made of, or not there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Whoever has built them says so by `built`: all tests of the workspace together do, before the first one runs.
const VARIABLE: &str = "FOREBAY_TEST_PROGRAMS";

/// The program of the package `name` beside `other`, which cargo has built for the tests. It is built by the same profile if it
/// is not there, or if something of the workspace is newer.
pub fn beside(other: &Path, name: &str) -> PathBuf {
    let dir = other.parent().expect("it is in a profile's directory");
    let program = dir.join(name);
    if std::env::var(VARIABLE).is_ok_and(|said| said == "built") && program.exists() {
        return program;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = program.metadata().and_then(|found| found.modified()).ok();
    if built.is_none_or(|built| changed(&root).is_some_and(|changed| changed > built)) {
        build(&root, dir, name);
        // By its time it is known to be what the sources say, which cargo itself leaves as it was if nothing was to be done.
        let file = std::fs::File::open(&program).expect("it was built");
        file.set_modified(SystemTime::now()).expect("it is ours");
    }
    program
}

fn build(root: &Path, dir: &Path, name: &str) {
    let profile = match dir.file_name().and_then(|name| name.to_str()).expect("a profile's name") {
        "debug" => "dev",
        other => other,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--locked", "--package", name, "--profile", profile]).current_dir(root);
    command.env("CARGO_TARGET_DIR", dir.parent().expect("it is in a target directory"));
    let output = command.output().expect("cargo runs");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
}

/// When a program could last have become another one: the newest source, manifest or commit.
fn changed(root: &Path) -> Option<SystemTime> {
    let mut newest = newest(&root.join("crates"));
    let commits = root.join(".git/logs/HEAD");
    for path in [root.join("Cargo.toml"), root.join("Cargo.lock"), commits] {
        newest = newest.max(path.metadata().and_then(|found| found.modified()).ok());
    }
    newest
}

/// Of the files below, but for tests.
fn newest(dir: &Path) -> Option<SystemTime> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let times = entries.map(|entry| match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
        true if entry.file_name() == "tests" => None,
        true => newest(&entry.path()),
        false => entry.metadata().and_then(|found| found.modified()).ok(),
    });
    times.max().flatten()
}
