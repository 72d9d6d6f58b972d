//! What a process has used, as the kernel tells it.

use std::ops::Sub;

/// Of one process; seconds and bytes since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// User and system time.
    pub cpu_seconds: f64,
    /// Most that was ever resident.
    pub peak_bytes: u64,
}

impl Usage {
    /// All zero if there is no such process any more.
    pub fn of(pid: u32) -> Usage {
        let cpu_seconds = cpu_seconds_in(&format!("/proc/{pid}/stat"));
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib: u64 = peak.and_then(|v| v.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
        Usage { cpu_seconds, peak_bytes: kib * 1024 }
    }

    pub fn of_us() -> Usage {
        Usage::of(std::process::id())
    }
}

/// What was used between two looks; the peak is the later one.
impl Sub for Usage {
    type Output = Usage;

    fn sub(self, before: Usage) -> Usage {
        Usage { cpu_seconds: self.cpu_seconds - before.cpu_seconds, peak_bytes: self.peak_bytes }
    }
}

/// CPU time of the relay threads of this process: the line's, not the client's.
pub fn relay_cpu_seconds() -> f64 {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return 0.0 };
    threads
        .flatten()
        .filter(|thread| {
            std::fs::read_to_string(thread.path().join("comm"))
                .is_ok_and(|name| name.trim().starts_with(relay::THREADS))
        })
        .map(|thread| cpu_seconds_in(&thread.path().join("stat").to_string_lossy()))
        .sum()
}

/// Fields 14 and 15 of a stat file, in ticks of 10 ms (USER_HZ, the same on every Linux).
fn cpu_seconds_in(path: &str) -> f64 {
    let stat = std::fs::read_to_string(path).unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_and_a_missing_process_is_no_panic() {
        let (before, start) = (Usage::of_us(), std::time::Instant::now());
        let (mut sum, mut used) = (0_u64, Usage::default());
        // As long as it takes on a processor that others use, too.
        while used.cpu_seconds < 0.05 {
            assert!(start.elapsed().as_secs() < 60, "{used:?}");
            for _ in 0..1_000_000 {
                sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
            }
            used = Usage::of_us() - before;
        }
        assert!(used.cpu_seconds < 10.0, "{used:?}");
        assert!(used.peak_bytes > 100_000);
        assert_eq!(Usage::of(u32::MAX), Usage::default());
    }
}
