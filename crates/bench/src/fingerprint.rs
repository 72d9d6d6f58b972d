//! What was measured on: what another person needs to know to believe a figure or to repeat it.

mod clock;
mod tier;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;
use std::time::SystemTime;

use chrono::{DateTime, SecondsFormat, Utc};
pub use tier::{of_status, of_tier};

use crate::{Nic, TargetMount, is_http_store, mounts};

/// Commit and profile, as the program's own package knows them.
static BUILT: OnceLock<(&str, &str)> = OnceLock::new();

/// Which commit the program was built from, and by which profile; said once, when it starts.
pub fn built_from(commit: &'static str, profile: &'static str) {
    let _ = BUILT.set((commit, profile));
}

/// `kernel`, `cpu`, `cores`, `memory`, `tool`, ... by name; what cannot be found out is left out.
pub fn of_this_machine() -> BTreeMap<String, String> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_once(':').map(|(_, value)| value.trim().to_owned())
    };
    let found = [
        ("kernel", read("/proc/sys/kernel/osrelease").map(|v| format!("Linux {}", v.trim()))),
        ("cpu", read("/proc/cpuinfo").and_then(|t| field(&t, "model name"))),
        ("cores", std::thread::available_parallelism().ok().map(|n| n.to_string())),
        ("memory", read("/proc/meminfo").and_then(|t| field(&t, "MemTotal"))),
        ("load before", read("/proc/loadavg").map(|t| t.split(' ').take(3).collect::<Vec<_>>().join(" "))),
        (
            "tcp congestion control",
            read("/proc/sys/net/ipv4/tcp_congestion_control").map(|t| t.trim().into()),
        ),
        ("tool", Some(format!("forebay {}", env!("CARGO_PKG_VERSION")))),
        ("tool commit", Some(BUILT.get().map_or("unknown", |(commit, _)| *commit).to_owned())),
        ("network links", links()),
        ("clock error", Some(clock::error())),
        ("scratch directory", of_directory(&std::env::temp_dir())),
        ("build", Some(BUILT.get().map_or("unknown", |(_, profile)| *profile).to_owned())),
        ("data generator", Some(format!("version {}", bench_load::data::GENERATOR))),
    ];
    found.into_iter().filter_map(|(name, value)| value.map(|value| (name.to_owned(), value))).collect()
}

fn links() -> Option<String> {
    let told: Vec<String> = Nic::all().iter().map(Nic::to_string).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

/// The command line of a process that the bench has started.
pub fn of_process(id: u32) -> Option<String> {
    let line = std::fs::read(format!("/proc/{id}/cmdline")).ok()?;
    let words = line.split(|byte| *byte == 0).skip(1).filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// What a directory lies on: `/tmp: ext4 (/dev/sda1 on /; rw,relatime)`.
pub fn of_directory(path: &Path) -> Option<String> {
    TargetMount::of(path).map(|mount| format!("{}: {mount}", path.display()))
}

/// What a load's target is, as far as this machine knows: its mount, or that there is none.
pub fn of_target(url: &str) -> Option<String> {
    if url.starts_with("nfs://") {
        return Some("no mount: NFSv3 calls of the bench's own".to_owned());
    }
    if is_http_store(url) {
        return Some("no mount: HTTP requests of the bench's own".to_owned());
    }
    of_directory(mounts::path_of(url))
}

/// RFC 3339, UTC, seconds.
pub fn timestamp(at: SystemTime) -> String {
    DateTime::<Utc>::from(at).to_rfc3339_opts(SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn times_are_written_as_calendars_have_them() {
        let at = |seconds| timestamp(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_795_265_123), "2026-11-21T12:45:23Z");
    }

    #[test]
    fn what_cannot_be_known_is_unknown_and_the_rest_is_there() {
        let found = of_this_machine();
        for name in ["kernel", "cores", "memory", "tool", "tool commit", "clock error", "scratch directory"] {
            assert!(found.get(name).is_some_and(|value| !value.is_empty()), "{name}: {found:?}");
        }
        let scratch = &found["scratch directory"];
        assert!(scratch.contains(" on /") && scratch.contains("; "), "type, place and options: {scratch}");
        assert_eq!(of_target("file:///tmp?direct=1"), of_directory(Path::new("/tmp")));
        assert!(of_target("nfs://nas/x").is_some_and(|told| told.contains("no mount")));
        assert_eq!(of_target("/no such directory"), None);
    }
}
