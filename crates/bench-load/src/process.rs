//! What this process costs, from /proc: the bench must tell when it is itself the bottleneck.

use serde::{Deserialize, Serialize};

/// User and system time since the process began, seconds, to a hundredth. 0 where /proc does not tell.
pub fn cpu_seconds() -> f64 {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return 0.0 };
    cpu_ticks(&stat).map_or(0.0, |ticks| ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Most memory that the process ever held, bytes. 0 where /proc does not tell.
pub fn rss_max_bytes() -> u64 {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return 0 };
    kilobytes(&status, "VmHWM:").unwrap_or(0).saturating_mul(1024)
}

/// How often threads left the processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switches {
    /// To wait for something.
    pub voluntary: u64,
    /// Because others were to have it.
    pub involuntary: u64,
}

impl Switches {
    /// Of this process, all threads that are there; one that has ended takes its count with it.
    pub fn of_us() -> Switches {
        Switches::of("/proc/self/task", |_| true)
    }

    /// Of another process; none if it is gone.
    pub fn of_process(id: u32) -> Switches {
        Switches::of(&format!("/proc/{id}/task"), |_| true)
    }

    /// Of this process's threads with such a name.
    pub fn of_threads(named: impl Fn(&str) -> bool) -> Switches {
        Switches::of("/proc/self/task", named)
    }

    /// The counts in a status file of a process are those of its first thread alone.
    fn of(tasks: &str, named: impl Fn(&str) -> bool) -> Switches {
        let threads = std::fs::read_dir(tasks).into_iter().flatten().flatten();
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok()).fold(
            Switches::default(),
            |sum, status| {
                let name = field(&status, "Name:").unwrap_or_default();
                if named(name) { sum + Switches::in_status(&status) } else { sum }
            },
        )
    }

    fn in_status(status: &str) -> Switches {
        let count = |key| field(status, key).and_then(|text| text.parse().ok()).unwrap_or(0);
        Switches {
            voluntary: count("voluntary_ctxt_switches:"),
            involuntary: count("nonvoluntary_ctxt_switches:"),
        }
    }

    pub fn all(self) -> u64 {
        self.voluntary.saturating_add(self.involuntary)
    }

    pub fn since(self, before: Switches) -> Switches {
        Switches {
            voluntary: self.voluntary.saturating_sub(before.voluntary),
            involuntary: self.involuntary.saturating_sub(before.involuntary),
        }
    }
}

impl std::ops::Add for Switches {
    type Output = Switches;

    fn add(self, other: Switches) -> Switches {
        Switches {
            voluntary: self.voluntary.saturating_add(other.voluntary),
            involuntary: self.involuntary.saturating_add(other.involuntary),
        }
    }
}

fn field<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}

fn cpu_ticks(stat: &str) -> Option<u64> {
    // The second field is the program's name, in parentheses, and may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11).map(|field| field.parse::<u64>().ok());
    times.next()??.checked_add(times.next()??)
}

fn kilobytes(status: &str, key: &str) -> Option<u64> {
    field(status, key)?.strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_program_name() {
        let stat = "7 (a) b (c) R 1 1 1 0 -1 0 10 0 0 0 250 50 3 4 20 0 9 0 55";
        assert_eq!(cpu_ticks(stat), Some(300));
        assert_eq!(cpu_ticks("nonsense"), None);
        assert_eq!(cpu_ticks("7 (x) R 1"), None);
    }

    #[test]
    fn a_thread_that_waits_is_seen_to_leave_the_processor() {
        let status = "Name:\ta b\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t3\n";
        let told = Switches::in_status(status);
        assert_eq!((told, told.all()), (Switches { voluntary: 7, involuntary: 3 }, 10));
        // One thread by its name: others, of other tests, end meanwhile and take their counts with them.
        const NAME: &str = "sleeps-often";
        let sleeper = std::thread::Builder::new().name(NAME.to_owned()).spawn(|| {
            let before = Switches::of_threads(|name| name == NAME);
            for _ in 0..20 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            Switches::of_threads(|name| name == NAME).since(before)
        });
        let slept = sleeper.expect("a thread").join().expect("it ends");
        assert!(slept.voluntary >= 20, "{slept:?}");
        assert!(Switches::of_us().all() > 0);
        assert_eq!(Switches::of_process(u32::MAX), Switches::default());
        assert_eq!(Switches::of_threads(|name| name == "no such thread"), Switches::default());
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
        assert_eq!(kilobytes("VmRSS:\t 5 kB\nVmHWM:\t   12 kB\n", "VmHWM:"), Some(12));
    }
}
