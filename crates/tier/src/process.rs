//! What the kernel tells of this process, and which program it is. Bytes that it had its disks read are told beside the tier's
//! own counters, because only the two together say whether a hit came from memory or from a disk.

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// Registers `process_*` as Prometheus' own client libraries name them, and `forebay_build_info`.
pub fn register(registry: &mut Registry, commit: &'static str) {
    let labels = vec![("version", env!("CARGO_PKG_VERSION")), ("commit", commit)];
    registry.register("forebay_build", "The program that runs", Info::new(labels));
    registry.register_collector(Box::new(ProcessCollector));
}

#[derive(Debug)]
struct ProcessCollector;

impl Collector for ProcessCollector {
    /// Nothing is told where the kernel tells nothing: no figure is not a zero.
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        if let Some(bytes) = read_bytes(&read("io")) {
            let (counter, help) =
                (ConstCounter::new(bytes), "Bytes that this process had block devices read");
            let name = "forebay_process_read_bytes";
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let stat = Stat::read(&read("stat"));
        if let Some(stat) = &stat {
            let counter = ConstCounter::new(stat.cpu_seconds());
            let help = "User and system time of this process";
            counter.encode(encoder.encode_descriptor(
                "process_cpu_seconds",
                help,
                None,
                counter.metric_type(),
            )?)?;
        }
        let mut gauge = |name: &str, help: &str, value: Option<f64>| -> Result<(), std::fmt::Error> {
            let Some(value) = value else { return Ok(()) };
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
        let resident =
            stat.as_ref().map(|stat| stat.resident_pages as f64 * rustix::param::page_size() as f64);
        gauge("process_resident_memory_bytes", "Resident memory of this process", resident)?;
        let started = stat.as_ref().and_then(Stat::started);
        gauge("process_start_time_seconds", "When this process began, in seconds since 1970", started)?;
        let open = std::fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as f64);
        gauge("process_open_fds", "Descriptors that this process has open", open)?;
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        gauge("process_max_fds", "Descriptors that it may have open", limit.map(|limit| limit as f64))
    }
}

fn read_bytes(io: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix("read_bytes:"))?.trim().parse().ok()
}

/// Of `/proc/self/stat`; times are in ticks.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu: u64,
    start: u64,
    resident_pages: u64,
}

impl Stat {
    fn read(stat: &str) -> Option<Stat> {
        // The name before it may hold anything.
        let fields: Vec<_> = stat.rsplit_once(") ")?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Stat { cpu: number(11)? + number(12)?, start: number(19)?, resident_pages: number(21)? })
    }

    fn cpu_seconds(&self) -> f64 {
        self.cpu as f64 / rustix::param::clock_ticks_per_second() as f64
    }

    /// The kernel tells it since the machine's start.
    fn started(&self) -> Option<f64> {
        let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
        let up: f64 = uptime.split_whitespace().next()?.parse().ok()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
        Some(now - up + self.start as f64 / rustix::param::clock_ticks_per_second() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_what_the_kernel_tells_and_otherwise_nothing() {
        assert_eq!(read_bytes("rchar: 5\nread_bytes: 4096\nwrite_bytes: 7\n"), Some(4096));
        assert_eq!(read_bytes("rchar: 5\n"), None);
        let line =
            "7 (a) b) S 1 7 7 0 -1 4194560 5 0 0 0 30 12 0 0 20 0 4 0 900 1000000 250 18446744073709551615";
        assert_eq!(Stat::read(line), Some(Stat { cpu: 42, start: 900, resident_pages: 250 }));
        assert_eq!(Stat::read("7 (a) S 1"), None);
        let mut registry = Registry::default();
        register(&mut registry, "abc1234");
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).expect("a page");
        let told = page.lines().any(|line| line.starts_with("forebay_process_read_bytes_total "));
        assert_eq!(told, std::fs::read_to_string("/proc/self/io").is_ok_and(|io| read_bytes(&io).is_some()));
        let value = |name: &str| -> f64 {
            let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("{name} in {page}")).parse().expect("a number")
        };
        assert!(value("process_resident_memory_bytes") > 1e6 && value("process_open_fds") >= 3.0, "{page}");
        assert!(value("process_cpu_seconds_total") >= 0.0 && value("process_max_fds") > 3.0, "{page}");
        let age = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64()
            - value("process_start_time_seconds");
        assert!((-2.0..86_400.0).contains(&age), "{age}");
        assert!(page.contains("forebay_build_info{version="), "{page}");
    }
}
