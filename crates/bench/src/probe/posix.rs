//! The measurement of a mounted directory. No relay can be put in front of a mount that is there already, so there is no
//! slope; where the server behind the mount is known, its round trip is measured and the times are put against it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{Advice, fadvise};
use types::{Error, Result};

use super::calls::{Seconds, answered_handshakes};
use super::samples::Sampling;
use super::{Config, wrong};
use crate::TargetMount;
use crate::entries::entries_below;

/// Entries that are looked at in search of files.
const ENTRIES_MAX: usize = 4096;
/// Small files that are used in turn, so that a client's cache does not answer for the server, where there are many.
const FILES_MAX: usize = 64;
const SMALL_MAX: u64 = 64 << 10;
const ADVICE: &str = "No distance can be added in front of what is mounted already: for round trips give the server as \
                      nfs://HOST/EXPORT, or mount it through `forebay bench relay`.";

/// What is measured where it is, without a relay in front of it.
pub struct LocalProbe {
    /// "a mount of type nfs4", "a bucket"; and what its small files are called.
    pub kind: String,
    pub small: &'static str,
    /// What is behind it, if that can be told, and handshakes with it in seconds.
    pub server: Option<(SocketAddr, Seconds)>,
    /// How its round trips can be counted.
    pub advice: &'static str,
    pub operations: Vec<(&'static str, Seconds)>,
    pub files: usize,
}

pub async fn measure(config: &Config) -> Result<LocalProbe> {
    if config.near.is_some() {
        return Err(wrong("--near compares two servers; give the target as nfs://HOST/EXPORT, too"));
    }
    let path = PathBuf::from(&config.target);
    let name = path.display();
    let absent = |e| wrong(format!("{name}: {e}; give a mounted directory, or nfs://HOST/EXPORT"));
    if !fs::metadata(&path).map_err(absent)?.is_dir() {
        return Err(wrong(format!("{name} is no directory; give a directory or nfs://HOST/EXPORT")));
    }
    let mount = TargetMount::of(&path).unwrap_or_default();
    let server = match mount.server {
        Some(address) => answered_handshakes(address).await,
        None => None,
    };
    let (dir, config) = (path.clone(), config.clone());
    let work = tokio::task::spawn_blocking(move || operations(&dir, &config)).await;
    let work = work.map_err(io::Error::other).flatten();
    let (operations, files) = work.map_err(|e| Error::io("probe", path.display(), e))?;
    let kind = format!("a mount of type {}", mount.kind);
    Ok(LocalProbe { kind, small: "small files", server, advice: ADVICE, operations, files })
}

fn operations(dir: &Path, config: &Config) -> io::Result<(Vec<(&'static str, Seconds)>, usize)> {
    let files = small_files(dir, config.small_file.as_deref())?;
    let nth = |n: usize| &files[n % files.len()];
    let mut all = Vec::new();
    if !files.is_empty() {
        all.push(("stat", sampled(config, |n| timed(|| fs::metadata(nth(n)).map(drop)))?));
        let open_read_close = |n| {
            forget(nth(n))?;
            timed(|| {
                let mut buffer = Vec::new();
                File::open(nth(n))?.take(SMALL_MAX).read_to_end(&mut buffer).map(drop)
            })
        };
        all.push(("open, read, close a small file", sampled(config, open_read_close)?));
    }
    let list = |_| timed(|| fs::read_dir(dir)?.take(ENTRIES_MAX).try_for_each(|entry| entry.map(drop)));
    all.push(("list the directory", sampled(config, list)?));
    if config.write {
        let name = dir.join(format!(".forebay-probe-{}", std::process::id()));
        let create_write_close = |_| {
            let took = timed(|| {
                let mut file = File::create_new(&name)?;
                file.write_all(&[0x5a; 4096])?;
                file.sync_all()
            });
            let removed = fs::remove_file(&name);
            took.and_then(|took| removed.map(|()| took))
        };
        all.push(("create, write 4 KiB, sync, close", sampled(config, create_write_close)?));
    }
    Ok((all, files.len()))
}

fn sampled(config: &Config, mut operation: impl FnMut(usize) -> io::Result<f64>) -> io::Result<Seconds> {
    let mut sampling = Sampling::start(config);
    while sampling.goes_on() {
        sampling.times.push(operation(sampling.times.len())?);
    }
    Ok(sampling.times)
}

fn timed(operation: impl FnOnce() -> io::Result<()>) -> io::Result<f64> {
    let start = Instant::now();
    operation()?;
    Ok(start.elapsed().as_secs_f64())
}

/// The pages of the file, as far as the system lets go of them.
fn forget(file: &Path) -> io::Result<()> {
    let file = File::open(file)?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

fn small_files(dir: &Path, named: Option<&str>) -> io::Result<Vec<PathBuf>> {
    if let Some(named) = named {
        let path = dir.join(named);
        File::open(&path)?;
        return Ok(vec![path]);
    }
    let entries = entries_below(dir)?.take(ENTRIES_MAX);
    let small = entries.filter(|(_, meta)| meta.is_file() && (1..=SMALL_MAX).contains(&meta.len()));
    Ok(small.map(|(path, _)| path).take(FILES_MAX).collect())
}
