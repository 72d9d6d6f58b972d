//! What processes use, as the kernel tells it: the bench must tell when it is itself the bottleneck.

use std::collections::HashMap;
use std::ops::Sub;
use std::path::PathBuf;

use rustix::time::{ClockId, clock_gettime};

/// User and system time since the process began, seconds.
pub fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Most memory that the process ever held, bytes. 0 where /proc does not tell.
pub fn rss_max_bytes() -> u64 {
    Usage::of(std::process::id()).peak_bytes
}

/// Memory of this machine, bytes.
pub fn memory_bytes() -> u64 {
    let told = rustix::system::sysinfo();
    told.totalram.saturating_mul(told.mem_unit.into())
}

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
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let peak_bytes = peak_kib(&read("status")).unwrap_or(0).saturating_mul(1024);
        Usage { cpu_seconds: cpu_seconds_in(&read("stat")), peak_bytes }
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
    let relays = threads("/proc/self/task", |name| name.starts_with(relay::THREADS));
    let stat = |(thread, _): (PathBuf, String)| std::fs::read_to_string(thread.join("stat"));
    relays.filter_map(|thread| stat(thread).ok()).map(|stat| cpu_seconds_in(&stat)).sum()
}

/// The threads of a process with such names: their directories, and their status files.
fn threads(tasks: &str, named: impl Fn(&str) -> bool) -> impl Iterator<Item = (PathBuf, String)> {
    let threads = std::fs::read_dir(tasks).into_iter().flatten().flatten();
    threads.filter_map(move |thread| {
        let status = std::fs::read_to_string(thread.path().join("status")).ok()?;
        named(field(&status, "Name:").unwrap_or_default()).then(|| (thread.path(), status))
    })
}

/// By thread of a process: how often it left the processor since it began, to wait or because others were to have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Threads(HashMap<PathBuf, u64>);

impl Threads {
    /// Of this process, without those of its relays, which are no clients.
    pub fn of_us() -> Threads {
        Threads::of("/proc/self/task", |name| !name.starts_with(relay::THREADS))
    }

    /// Of another process; none if it is gone.
    pub fn of_process(id: u32) -> Threads {
        Threads::of(&format!("/proc/{id}/task"), |_| true)
    }

    /// The counts in a status file of a process are those of its first thread alone.
    fn of(tasks: &str, named: impl Fn(&str) -> bool) -> Threads {
        let told = |(thread, status): (PathBuf, String)| (thread, switches(&status));
        Threads(threads(tasks, named).map(told).collect())
    }

    /// Of the threads that are there. One that has ended meanwhile takes its count with it, but none of the others'.
    pub fn since(&self, before: &Threads) -> u64 {
        let since = |(id, now): (&PathBuf, &u64)| now.saturating_sub(before.0.get(id).copied().unwrap_or(0));
        self.0.iter().map(since).fold(0, u64::saturating_add)
    }
}

fn switches(status: &str) -> u64 {
    let kinds = ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"];
    kinds.into_iter().filter_map(|kind| field(status, kind)?.parse::<u64>().ok()).sum()
}

fn field<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}

/// Fields 14 and 15 of a stat file, in ticks of 10 ms (USER_HZ, the same on every Linux).
fn cpu_seconds_in(stat: &str) -> f64 {
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}

fn peak_kib(status: &str) -> Option<u64> {
    field(status, "VmHWM:")?.strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_is_seen_to_leave_the_processor() {
        let status = "Name:\ta b\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(switches(status), 10);
        let before = Threads::of_us();
        let sleeper = std::thread::spawn(|| {
            for _ in 0..20 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            Threads::of_us()
        });
        let slept = sleeper.join().expect("it ends").since(&before);
        assert!(slept >= 20, "{slept}");
        assert_eq!(Threads::of_process(u32::MAX), Threads::default());
        assert_eq!(Threads::of("/proc/self/task", |name| name == "no such thread"), Threads::default());
    }

    #[test]
    fn a_thread_that_ends_takes_nothing_from_the_others() {
        let threads = |counts: &[(&str, u64)]| {
            Threads(counts.iter().map(|(id, count)| (PathBuf::from(id), *count)).collect())
        };
        let before = threads(&[("busy", 10), ("ends", 1000)]);
        let after = threads(&[("busy", 15), ("new", 3)]);
        assert_eq!(after.since(&before), 8);
    }

    #[test]
    fn work_and_memory_show() {
        let (cpu, begin) = (cpu_seconds(), std::time::Instant::now());
        let mut hog = vec![1_u8; 64 << 20];
        while begin.elapsed().as_millis() < 200 || cpu_seconds() == cpu {
            hog.iter_mut().for_each(|byte| *byte = byte.wrapping_mul(3));
        }
        assert!(cpu_seconds() > cpu);
        assert!(rss_max_bytes() > 64 << 20);
        assert_eq!(peak_kib("VmRSS:\t 5 kB\nVmHWM:\t   12 kB\n"), Some(12));
    }

    #[test]
    fn work_shows_and_a_missing_process_is_no_panic() {
        let (before, start) = (Usage::of(std::process::id()), std::time::Instant::now());
        let (mut sum, mut used) = (0_u64, Usage::default());
        // As long as it takes on a processor that others use, too.
        while used.cpu_seconds < 0.05 {
            assert!(start.elapsed().as_secs() < 60, "{used:?}");
            for _ in 0..1_000_000 {
                sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
            }
            used = Usage::of(std::process::id()) - before;
        }
        assert!(used.cpu_seconds < 10.0, "{used:?}");
        assert!(used.peak_bytes > 100_000);
        assert_eq!(Usage::of(u32::MAX), Usage::default());
    }
}
