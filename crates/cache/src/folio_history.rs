//! What the processes before this one may have left of cached files in the kernel's memory. Each tells the next one in the file LOCK.
//!
//! Folios of many blocks must leave the kernel's memory before pages of them are lent (`file/pages.rs`). What leaves it comes back from
//! the disk in folios of a single page, and from these the kernel sends at four fifths of the rate (docs/benchmarks.md). So where all
//! processes of this boot made folios of one block only, what they left stays.
//!
//! The file has one line: `folios: one block`, or `folios: any size, boot ID`. It is empty where a build was started last that does not
//! know this, since each start empties it. It is not synced: after a power cut nothing is left in memory anyway.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::file::pages::FolioRule;

const ONE_BLOCK: &str = "folios: one block\n";
const ANY_SIZE: &str = "folios: any size, boot ";

/// Of one cache directory.
pub struct FolioHistory {
    rule: FolioRule,
    /// The file LOCK, and what it says. `None`: there is no directory.
    note: Option<(PathBuf, AtomicBool)>,
    forgets_former: bool,
}

impl FolioHistory {
    /// Of a cache that keeps nothing.
    pub fn none(rule: FolioRule) -> FolioHistory {
        FolioHistory { rule, note: None, forgets_former: false }
    }

    /// Reads what the former process said, and says what this one does. The caller has the lock. `is_new`: nobody used the directory before.
    pub fn begin(path: &Path, rule: FolioRule, is_new: bool) -> FolioHistory {
        let (said, boot) = (read(path), read(Path::new("/proc/sys/kernel/random/boot_id")));
        let is_known = is_new || had_one_block(&said, boot.trim());
        let is_one_block = is_known && rule == FolioRule::OneBlock;
        say(path, is_one_block);
        let note = Some((path.to_owned(), AtomicBool::new(is_one_block)));
        FolioHistory { rule, note, forgets_former: !is_one_block }
    }

    pub fn rule(&self) -> FolioRule {
        self.rule
    }

    /// What former processes left of a file is to leave the kernel's memory when the file is first opened.
    pub fn forgets_former(&self) -> bool {
        self.forgets_former
    }

    /// The kernel is about to read a file in folios of any size.
    pub fn note_any_size(&self) {
        if let Some((path, is_one_block)) = &self.note
            && is_one_block.swap(false, Ordering::SeqCst)
        {
            say(path, false);
        }
    }
}

/// All folios that are in memory now and were made by former processes have bytes of one block.
fn had_one_block(said: &str, boot: &str) -> bool {
    let other_boot = said.strip_prefix(ANY_SIZE).map(|of| of.trim() != boot);
    said == ONE_BLOCK || !boot.is_empty() && other_boot == Some(true)
}

fn read(path: &Path) -> String {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(256).read_to_string(&mut text));
    if read.is_ok() { text } else { String::new() }
}

/// What could not be written is as if nothing had been said: the next process drops what it finds.
fn say(path: &Path, is_one_block: bool) {
    let text = match is_one_block {
        true => ONE_BLOCK.to_owned(),
        false => format!("{ANY_SIZE}{}", read(Path::new("/proc/sys/kernel/random/boot_id"))),
    };
    let said = OpenOptions::new().write(true).truncate(true).open(path);
    if let Err(e) = said.and_then(|mut file| file.write_all(text.as_bytes())) {
        tracing::debug!("write {}: {e}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(path: &Path, rule: FolioRule) -> FolioHistory {
        FolioHistory::begin(path, rule, false)
    }

    #[test]
    fn folios_of_former_processes_are_kept_where_each_has_one_block() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("LOCK");
        std::fs::write(&lock, "").unwrap();
        let (one, any) = (FolioRule::OneBlock, FolioRule::AnySize);
        assert!(begin(&lock, one).forgets_former(), "a build that says nothing came before");
        assert!(begin(&lock, one).forgets_former(), "what that left is still there");
        assert!(!FolioHistory::begin(&lock, one, true).forgets_former(), "a new directory");
        let history = begin(&lock, one);
        assert!(!history.forgets_former());
        history.note_any_size();
        history.note_any_size();
        assert!(begin(&lock, one).forgets_former(), "the kernel read by itself");
        std::fs::write(&lock, format!("{ANY_SIZE}before\n")).unwrap();
        assert!(!begin(&lock, one).forgets_former(), "that was before the machine was started");
        assert!(begin(&lock, any).forgets_former(), "programs of a mount may hold pages");
        assert!(begin(&lock, one).forgets_former(), "folios of that mount");
        std::fs::write(&lock, "folios: one blo").unwrap();
        assert!(begin(&lock, one).forgets_former(), "cut short");
        std::fs::remove_file(&lock).unwrap();
        assert!(begin(&lock, one).forgets_former(), "nothing can be read or written");
    }
}
