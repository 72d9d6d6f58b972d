//! What this process costs, from /proc: the bench must tell when it is itself the bottleneck.

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

fn cpu_ticks(stat: &str) -> Option<u64> {
    // The second field is the program's name, in parentheses, and may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11).map(|field| field.parse::<u64>().ok());
    times.next()??.checked_add(times.next()??)
}

fn kilobytes(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
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
