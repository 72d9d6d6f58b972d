//! What this process had its disks read, as the kernel counts it: bytes that no page cache gave. Told beside the tier's
//! own counters, because only the two together say whether a hit came from memory or from a disk.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;

#[derive(Debug)]
pub struct ProcessIo;

impl Collector for ProcessIo {
    /// Nothing is told where the kernel tells nothing: no figure is not a zero.
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
        let Some(bytes) = read_bytes(&io) else { return Ok(()) };
        let (counter, help) = (ConstCounter::new(bytes), "Bytes that this process had block devices read");
        let metric =
            encoder.encode_descriptor("forebay_process_read_bytes", help, None, counter.metric_type())?;
        counter.encode(metric)
    }
}

fn read_bytes(io: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix("read_bytes:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn a_page_has_what_the_kernel_tells_and_otherwise_nothing() {
        assert_eq!(read_bytes("rchar: 5\nread_bytes: 4096\nwrite_bytes: 7\n"), Some(4096));
        assert_eq!(read_bytes("rchar: 5\n"), None);
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ProcessIo));
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).expect("a page");
        let told = page.lines().any(|line| line.starts_with("forebay_process_read_bytes_total "));
        assert_eq!(told, std::fs::read_to_string("/proc/self/io").is_ok_and(|io| read_bytes(&io).is_some()));
    }
}
