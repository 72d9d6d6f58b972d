//! A client that reads files one after the other, and tells what it saw.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bench_load::target::{TargetFile, from_url};
use bytes::Bytes;
use testkit::lab::net::LabHost;
use tokio::runtime::Runtime;

use super::pattern::Pattern;

/// By what a client reads.
#[derive(Clone, Debug)]
pub enum Way {
    /// A client of its own at an NFS or S3 server, by its URL.
    Called(String),
    /// In this directory, in which a node is mounted.
    Mounted(PathBuf),
}

/// A file of the pattern, by its path below the junction.
#[derive(Clone, Debug)]
pub struct PatternFile {
    pub number: usize,
    pub path: String,
    pub size: u64,
}

/// What readers of one proof share.
#[derive(Default)]
pub struct Course {
    /// Bytes that all of them got.
    pub read: AtomicU64,
    /// From here on pauses count as those of a loss.
    pub lost: OnceLock<Instant>,
    /// They end after the answer that they wait for.
    pub ends: AtomicBool,
}

/// What a reader saw.
#[derive(Debug, Default)]
pub struct Told {
    pub bytes: u64,
    /// The longest time without an answer that had bytes, before and after the loss.
    pub before: Duration,
    pub after: Duration,
    /// Errors, and answers whose bytes were not those of the file.
    pub wrong: Vec<String>,
}

pub struct Reader {
    thread: JoinHandle<Told>,
}

impl Reader {
    /// In the network of this host: reads the files once, `piece` bytes at a time, and begins anew as long as the course goes on if it
    /// is to read `forever`.
    pub fn start(
        host: &LabHost,
        way: Way,
        files: Vec<PatternFile>,
        (piece, forever): (usize, bool),
        pattern: &Arc<Pattern>,
        course: &Arc<Course>,
    ) -> Reader {
        let (pattern, course) = (pattern.clone(), course.clone());
        let read = move || {
            let mut told = Told::default();
            let client = OpenClient::new(&way);
            let mut last = Instant::now();
            loop {
                for file in &files {
                    let read = client.and_then_read(file, piece, &mut |offset, bytes: &[u8]| {
                        let now = Instant::now();
                        let pause = now - last;
                        let is_after = course.lost.get().is_some_and(|lost| now > *lost);
                        let longest = if is_after { &mut told.after } else { &mut told.before };
                        (*longest, last) = (pause.max(*longest), now);
                        told.bytes += bytes.len() as u64;
                        course.read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                        if !pattern.is(file.number, offset, bytes) {
                            let what = pattern.tell(file.number, offset, bytes);
                            told.wrong.push(format!("{way:?} {} at {offset}: {what}", file.path));
                        }
                        !course.ends.load(Ordering::Relaxed)
                    });
                    if let Err(e) = read {
                        told.wrong.push(format!("{way:?} {}: {e}", file.path));
                    }
                    if course.ends.load(Ordering::Relaxed) {
                        return told;
                    }
                }
                if !forever || !told.wrong.is_empty() {
                    return told;
                }
            }
        };
        Reader { thread: host.within(|| std::thread::spawn(read)) }
    }

    pub fn is_done(&self) -> bool {
        self.thread.is_finished()
    }

    /// What it saw, once it has ended.
    pub fn told(self) -> Told {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// What is open of a way.
enum OpenClient {
    Called(Box<Runtime>, Arc<dyn bench_load::target::Client>),
    Mounted(PathBuf),
    Failed(String),
}

impl OpenClient {
    fn new(way: &Way) -> OpenClient {
        match way {
            Way::Mounted(dir) => OpenClient::Mounted(dir.clone()),
            Way::Called(url) => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let runtime = runtime.expect("a runtime");
                let connected = runtime.block_on(async { from_url(url)?.client(0).await });
                match connected {
                    Ok(client) => OpenClient::Called(Box::new(runtime), client),
                    Err(e) => OpenClient::Failed(e.to_string()),
                }
            }
        }
    }

    /// From the first byte to the last, or until `each` says that it is enough.
    fn and_then_read(
        &self,
        file: &PatternFile,
        piece: usize,
        each: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<(), String> {
        let open: Box<dyn Fn(u64) -> Result<Bytes, String>> = match self {
            OpenClient::Failed(e) => return Err(e.clone()),
            OpenClient::Called(runtime, client) => {
                let open = runtime.block_on(client.open(&file.path)).map_err(|e| e.to_string())?;
                let read = move |at| {
                    runtime.block_on(TargetFile::read(&*open, at, piece)).map_err(|e| e.to_string())
                };
                Box::new(read)
            }
            OpenClient::Mounted(dir) => {
                let open = File::open(dir.join(&file.path)).map_err(|e| e.to_string())?;
                let read = move |at| {
                    let mut bytes = vec![0; piece];
                    let count = open.read_at(&mut bytes, at).map_err(|e| e.to_string())?;
                    bytes.truncate(count);
                    Ok(bytes.into())
                };
                Box::new(read)
            }
        };
        let mut at = 0;
        while at < file.size {
            let bytes = open(at)?;
            if bytes.is_empty() || bytes.len() as u64 > file.size - at {
                return Err(format!("{} bytes at {at} of {}", bytes.len(), file.size));
            }
            if !each(at, &bytes) {
                return Ok(());
            }
            at += bytes.len() as u64;
        }
        Ok(())
    }
}
