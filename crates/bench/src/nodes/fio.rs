//! The disk below a cache, as fio measures it: the very files of the cache are read, past the page cache, and nothing is written.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use types::{Error, ErrorKind, Result};

use crate::entries::entries_below;
use crate::refuse;

/// Files that are read, the largest, each by a job of its own. A cache has far more, and smaller ones tell of seeks.
const FILES_MAX: usize = 8;
/// Smaller ones are over before a disk is at work.
const FILE_MIN: u64 = 1 << 20;
const SECONDS: u32 = 3;

/// Refuses if fio is not installed.
pub fn check_fio() -> Result<()> {
    let asked = Command::new("fio").arg("--version").stdin(Stdio::null()).output();
    match asked {
        Ok(asked) if asked.status.success() => Ok(()),
        _ => refuse(
            "disk= is held against what fio measures, and fio is not here; install Debian's fio, or leave disk= out",
        ),
    }
}

/// Bytes a second of the disk below a cache's directory: its largest files are read in order, for some seconds.
///
/// Errors: fio does not run, or cannot read them so; there is no file that is large enough.
pub fn fio_rate(dir: &Path) -> Result<f64> {
    let failed = |why: String| {
        Error::new(ErrorKind::Unavailable, "measure with fio", dir.display())
            .with_source(std::io::Error::other(why))
    };
    // The kernel counts in units of 512 bytes. A hole costs no disk anything.
    let is_whole = |meta: &Metadata| meta.is_file() && meta.blocks().saturating_mul(512) >= meta.len();
    // A colon would part two names.
    let is_plain = |path: &Path| !path.to_string_lossy().contains([':', '\\']);
    let entries = entries_below(dir).map_err(|e| failed(e.to_string()))?;
    let mut files: Vec<(u64, PathBuf)> = entries
        .filter(|(path, meta)| is_whole(meta) && meta.len() >= FILE_MIN && is_plain(path))
        .map(|(path, meta)| (meta.len(), path))
        .collect();
    files.sort_by(|a, b| b.cmp(a));
    files.truncate(FILES_MAX);
    if files.is_empty() {
        return Err(failed(format!("no file of {} bytes or more is there", FILE_MIN)));
    }
    let mut command = Command::new("fio");
    command.args([
        "--output-format=json",
        "--readonly",
        "--name=global",
        "--direct=1",
        "--rw=read",
        "--bs=1m",
    ]);
    command.args(["--ioengine=psync", "--thread", "--time_based", &format!("--runtime={SECONDS}")]);
    for (at, (_, file)) in files.iter().enumerate() {
        command.arg(format!("--name=read{at}")).arg(format!("--filename={}", file.display()));
    }
    let output = command.stdin(Stdio::null()).output().map_err(|e| failed(e.to_string()))?;
    let told = String::from_utf8_lossy(&output.stdout);
    let rate = bytes_per_second(&told).filter(|rate| output.status.success() && *rate > 0.0);
    rate.ok_or_else(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        let first = errors.lines().chain(told.lines()).find(|line| !line.trim().is_empty());
        failed(first.unwrap_or("fio said nothing").trim().to_owned())
    })
}

/// The sum over all jobs. Lines before the JSON are warnings.
fn bytes_per_second(told: &str) -> Option<f64> {
    let told: Value = serde_json::from_str(told.get(told.find('{')?..)?).ok()?;
    let jobs = told["jobs"].as_array()?.iter();
    jobs.map(|job| job["read"]["bw_bytes"].as_f64()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fio_says_is_the_sum_of_its_jobs() {
        let told =
            "fio: a warning\n{\"jobs\": [{\"read\": {\"bw_bytes\": 5}}, {\"read\": {\"bw_bytes\": 7}}]}";
        assert_eq!(bytes_per_second(told), Some(12.0));
        assert_eq!(bytes_per_second("{\"jobs\": [{}]}"), None);
        assert_eq!(bytes_per_second("nothing"), None);
    }

    #[test]
    fn a_cache_without_large_files_has_no_disk_to_measure() {
        let dir = tempfile::tempdir().expect("made");
        std::fs::write(dir.path().join("small"), "x").expect("written");
        let why = fio_rate(dir.path()).expect_err("too small").to_string();
        assert!(why.contains("no file"), "{why}");
    }
}
