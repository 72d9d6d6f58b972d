//! Two programs that go together: `forebay bench ...` goes on as `forebay-bench ...`, as git does with its parts, and that
//! one starts `forebay` for the tiers that it measures.
//!
//! Each lies beside the other, or is found on PATH. The tier that is measured is the very program that was typed, also if
//! its file has another content by then: `forebay` hands an open file of itself on.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use types::{Error, ErrorKind, Result};

const FOREBAY: &str = "forebay";
const BENCH: &str = "forebay-bench";
/// Which commit the `forebay` was built from that goes on as the bench.
const COMMIT_VARIABLE: &str = "FOREBAY_PROGRAM_COMMIT";
/// Its open file: the descriptor's number, the device and the inode, with colons between them.
const FILE_VARIABLE: &str = "FOREBAY_PROGRAM_FILE";

/// The bench's arguments, if the command line `typed` (with the program's name) is the bench's: `forebay bench ...`, or
/// `forebay help bench ...`.
pub fn bench_arguments(typed: impl IntoIterator<Item = OsString>) -> Option<Vec<OsString>> {
    let mut words = typed.into_iter().skip(1);
    let first = words.next()?;
    if first == "bench" {
        return Some(words.collect());
    }
    if first != "help" || words.next()? != "bench" {
        return None;
    }
    let of_what: Vec<OsString> = words.collect();
    Some(match of_what.is_empty() {
        true => vec!["--help".into()],
        false => [OsString::from("help")].into_iter().chain(of_what).collect(),
    })
}

/// This process, which is `forebay` of this commit, becomes the bench: same id, same signals, its exit code. Returns only if
/// that fails.
pub fn become_bench(arguments: &[OsString], commit: &str) -> Error {
    let Some(bench) = find(BENCH) else {
        let message =
            format!("there is no program {BENCH} beside {FOREBAY} or on PATH; make release builds both");
        return Error::new(ErrorKind::Config, "bench:", message);
    };
    let mut command = Command::new(&bench);
    command.args(arguments).env(COMMIT_VARIABLE, commit);
    // Open in the program that we become.
    let own = rustix::fs::open("/proc/self/exe", OFlags::PATH, Mode::empty());
    if let Ok(name) = own.as_ref().map_err(|e| *e).and_then(told) {
        command.env(FILE_VARIABLE, name);
    }
    Error::io("start", bench.display(), command.exec())
}

/// Refuses to be the bench of a `forebay` that was built from another commit: what is measured would not be what the results
/// say.
pub fn check_commit(commit: &str) -> Result<()> {
    match std::env::var(COMMIT_VARIABLE) {
        Ok(theirs) if theirs != commit => {
            let message = format!(
                "{FOREBAY} was built from commit {theirs} and {BENCH} from {commit}; make release builds both"
            );
            Err(Error::new(ErrorKind::Config, "bench:", message))
        }
        _ => Ok(()),
    }
}

/// To start the `forebay` that this bench belongs to.
pub fn forebay() -> Result<Command> {
    static HELD: OnceLock<Result<(OwnedFd, PathBuf)>> = OnceLock::new();
    let (file, name) =
        HELD.get_or_init(|| handed_on().map_or_else(found, Ok)).as_ref().map_err(Error::clone)?;
    let mut command = Command::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
    command.arg0(name);
    Ok(command)
}

/// The file that `forebay` has left open for us.
fn handed_on() -> Option<(OwnedFd, PathBuf)> {
    let given = std::env::var(FILE_VARIABLE).ok()?;
    let number: u32 = given.split(':').next()?.parse().ok()?;
    let place = format!("/proc/self/fd/{number}");
    let file = rustix::fs::open(&place, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    // The variable may be older than this process, and the number another file's.
    let is_it = told_as(number, &file).is_ok_and(|now| now == given);
    is_it.then(|| std::fs::read_link(place).ok().map(|name| (file, without_mark(&name))))?
}

fn found() -> Result<(OwnedFd, PathBuf)> {
    let Some(path) = find(FOREBAY) else {
        let message =
            format!("there is no program {FOREBAY} beside {BENCH} or on PATH; make release builds both");
        return Err(Error::new(ErrorKind::Config, "bench:", message));
    };
    let file = File::open(&path).map_err(|e| Error::io("open", path.display(), e))?;
    Ok((file.into(), path))
}

fn told(file: &OwnedFd) -> rustix::io::Result<String> {
    told_as(file.as_raw_fd().unsigned_abs(), file)
}

fn told_as(number: u32, file: impl AsFd) -> rustix::io::Result<String> {
    let stat = rustix::fs::fstat(file)?;
    Ok(format!("{number}:{}:{}", stat.st_dev, stat.st_ino))
}

/// Beside the file of this process, or on PATH.
fn find(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok().map(|path| without_mark(&path));
    let beside = own.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    beside
        .into_iter()
        .chain(std::env::split_paths(&path))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// The name that a file had before another one took its place.
fn without_mark(path: &Path) -> PathBuf {
    let name = path.as_os_str().to_str().and_then(|path| path.strip_suffix(" (deleted)"));
    PathBuf::from(name.map_or(path.as_os_str(), OsStr::new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_of_the_bench_is_handed_on_as_it_was_typed() {
        let of = |line: &str| {
            let arguments = bench_arguments(line.split(' ').map(OsString::from))?;
            Some(
                arguments
                    .iter()
                    .map(|word| word.to_string_lossy().into_owned())
                    .collect::<Vec<_>>()
                    .join(" "),
            )
        };
        for (line, arguments) in [
            ("forebay bench", ""),
            ("forebay bench --help", "--help"),
            ("forebay bench show -- -x --json", "show -- -x --json"),
            ("forebay help bench", "--help"),
            ("forebay help bench render", "help render"),
        ] {
            assert_eq!(of(line).as_deref(), Some(arguments), "{line}");
        }
        for line in
            ["forebay", "forebay help", "forebay help serve", "forebay serve bench", "forebay --help bench"]
        {
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[test]
    fn the_mark_of_a_file_that_is_gone_is_no_part_of_its_name() {
        assert_eq!(without_mark(Path::new("/x/forebay (deleted)")), Path::new("/x/forebay"));
        assert_eq!(without_mark(Path::new("/x/forebay")), Path::new("/x/forebay"));
    }
}
