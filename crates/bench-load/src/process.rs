//! What this process costs: the bench must tell when it is itself the bottleneck.

use std::collections::HashMap;

use rustix::time::{ClockId, clock_gettime};

/// User and system time since the process began, seconds.
pub fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Most memory that the process ever held, bytes. 0 where /proc does not tell.
pub fn rss_max_bytes() -> u64 {
    peak_kib(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
        .unwrap_or(0)
        .saturating_mul(1024)
}

/// Memory of this machine, bytes.
pub fn memory_bytes() -> u64 {
    let told = rustix::system::sysinfo();
    told.totalram.saturating_mul(told.mem_unit.into())
}

/// By thread of a process: how often it left the processor since it began, to wait or because others were to have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Threads(HashMap<String, u64>);

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
        let threads = std::fs::read_dir(tasks).into_iter().flatten().flatten();
        let told = threads.filter_map(|thread| {
            let status = std::fs::read_to_string(thread.path().join("status")).ok()?;
            let id = thread.file_name().to_string_lossy().into_owned();
            named(field(&status, "Name:").unwrap_or_default()).then(|| (id, switches(&status)))
        });
        Threads(told.collect())
    }

    /// Of the threads that are there. One that has ended meanwhile takes its count with it, but none of the others'.
    pub fn since(&self, before: &Threads) -> u64 {
        let since = |(id, now): (&String, &u64)| now.saturating_sub(before.0.get(id).copied().unwrap_or(0));
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
            Threads(counts.iter().map(|(id, count)| ((*id).to_owned(), *count)).collect())
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
}
