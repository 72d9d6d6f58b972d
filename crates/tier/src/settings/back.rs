//! What is typed about junctions that are written `back`, and about their journal, as the parts take it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use types::{Durability, Result};
use vfs::{FlushPolicy, WritePolicy};

use super::refuse;
use crate::config;

/// A change waits this long before it may travel, unless said otherwise. Long enough that what programs make only to
/// replace or remove it at once (temporary files, write and rename) never travels; short enough that what one disk alone
/// has is a matter of seconds. A file system on a local disk writes back at this rhythm too.
const FLUSH_DELAY_DEFAULT: Duration = Duration::from_secs(5);
/// What the protocol of the call promises is enough.
pub const DURABILITY_DEFAULT: Durability = Durability::Fsync;
const JOURNAL_SIZE_DEFAULT: u64 = 10 << 30;

/// Where the journal is, whether anything is written to it or not: an earlier run may have left something there.
#[derive(Clone, Debug)]
pub struct JournalSettings {
    pub dir: PathBuf,
    pub size_max: u64,
    /// Go on with what can be read of a damaged one.
    pub accept_damage: bool,
}

impl JournalSettings {
    /// `cache`: the directory of everything else.
    pub fn build(typed: config::JournalTable, cache: &Path, accept_damage: bool) -> Result<JournalSettings> {
        let dir = typed.dir.unwrap_or_else(|| cache.join("journal"));
        let real = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).ok();
        let taken = [cache.to_owned(), cache.join("blocks"), cache.join("metadata")];
        if taken.iter().any(|taken| real(taken) == real(&dir)) {
            return refuse(format!(
                "[journal] dir = \"{}\" holds other things of the tier; give the journal a directory of its own, such as {}",
                dir.display(),
                cache.join("journal").display()
            ));
        }
        Ok(JournalSettings {
            dir,
            accept_damage,
            size_max: typed.size.map_or(JOURNAL_SIZE_DEFAULT, |size| size.0),
        })
    }
}

/// Of a junction that is typed so and, with the command line's word, is written so.
pub fn flush_policy(typed: &config::JunctionTable, write: WritePolicy) -> Result<FlushPolicy> {
    let keys = [
        ("flush_delay", typed.flush_delay.is_some()),
        ("flush_rate", typed.flush_rate.is_some()),
        ("flush_windows", typed.flush_windows.is_some()),
        ("conflicts", typed.conflicts.is_some()),
        ("durability", typed.durability.is_some()),
    ];
    let planned = typed.write.unwrap_or_default().0;
    if planned != WritePolicy::Back
        && write != WritePolicy::Back
        && let Some((key, _)) = keys.iter().find(|(_, is_typed)| *is_typed)
    {
        return refuse(format!(
            "{key} of the junction {} speaks of what is written back, and the junction is written {planned}; \
             set write = \"back\" there, or remove {key}",
            typed.path.get_ref()
        ));
    }
    let windows = typed.flush_windows.iter().flatten().map(|hours| hours.0);
    Ok(FlushPolicy {
        delay: typed.flush_delay.map_or(FLUSH_DELAY_DEFAULT, |span| span.0),
        bytes_per_second: typed.flush_rate.map(|rate| rate.0),
        windows: windows.collect(),
        conflict: typed.conflicts.map_or_else(Default::default, |conflicts| conflicts.0),
        ..FlushPolicy::default()
    })
}

/// Of a junction of which nothing is typed but its origin.
pub fn default_flush_policy() -> FlushPolicy {
    FlushPolicy { delay: FLUSH_DELAY_DEFAULT, ..FlushPolicy::default() }
}

#[cfg(test)]
mod tests {
    use vfs::ConflictPolicy;

    use super::*;

    fn policy(more: &str, write: WritePolicy) -> Result<FlushPolicy> {
        let text = format!("[[junction]]\npath = \"/show\"\norigin = \"file:///x\"\n{more}\n");
        let file: config::ConfigFile = toml::from_str(&text).expect("valid");
        flush_policy(&file.junction[0], write)
    }

    #[test]
    fn what_is_typed_is_what_is_flushed_by() {
        let typed = "write = \"back\"\nflush_delay = \"1m\"\nflush_rate = \"10MiB\"\n\
                     flush_windows = [\"22:00-06:00\", \"12:00-13:00\"]\nconflicts = \"theirs\"";
        let policy = policy(typed, WritePolicy::Back).expect("right");
        assert_eq!((policy.delay, policy.bytes_per_second), (Duration::from_secs(60), Some(10 << 20)));
        assert_eq!((policy.windows.len(), policy.conflict), (2, ConflictPolicy::Theirs));
    }

    #[test]
    fn nothing_typed_is_a_short_delay_no_limit_and_both_kept() {
        let policy = policy("write = \"back\"", WritePolicy::Back).expect("right");
        assert_eq!((policy.delay, policy.bytes_per_second), (FLUSH_DELAY_DEFAULT, None));
        assert_eq!((policy.windows.len(), policy.conflict), (0, ConflictPolicy::KeepBoth));
    }

    #[test]
    fn keys_of_back_need_a_junction_that_is_or_could_be_back() {
        let keys = [
            "flush_delay = \"1s\"",
            "flush_rate = \"1MiB\"",
            "flush_windows = []",
            "conflicts = \"ours\"",
            "durability = \"fsync\"",
        ];
        for key in keys {
            let through = policy(key, WritePolicy::Through).expect_err("refused").to_string();
            let name = key.split(' ').next().expect("a key");
            assert!(
                through.contains(name) && through.contains("/show") && through.contains("write = \"back\"")
            );
            assert!(policy(key, WritePolicy::Back).is_ok(), "--write back makes it so: {key}");
            let back = format!("write = \"back\"\n{key}");
            assert!(policy(&back, WritePolicy::ReadOnly).is_ok(), "--write read-only for a while: {key}");
        }
    }

    #[test]
    fn the_journal_lies_beside_the_blocks_and_in_nobody_elses_directory() {
        let cache = Path::new("/srv/forebay");
        let default = JournalSettings::build(config::JournalTable::default(), cache, false).expect("right");
        assert_eq!((default.dir, default.size_max), (cache.join("journal"), 10 << 30));
        let at = |dir: &str| config::JournalTable { dir: Some(dir.into()), size: None };
        for taken in ["/srv/forebay", "/srv/forebay/blocks", "/srv/forebay/metadata/"] {
            assert!(JournalSettings::build(at(taken), cache, false).is_err(), "{taken}");
        }
        assert!(JournalSettings::build(at("/nvme/journal"), cache, false).is_ok());
    }
}
