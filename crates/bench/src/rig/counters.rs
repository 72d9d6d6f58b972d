//! What a tier has counted, read from its /metrics.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use types::{Error, ErrorKind, Result};

use super::operator;

/// Every sample of a page, by its name with labels as it stands there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters(BTreeMap<String, f64>);

impl Counters {
    /// Of the tier whose operator's interface is at `admin`.
    pub fn of(admin: SocketAddr) -> Result<Counters> {
        let refuse = |why: String| {
            let message = format!("the tier at {admin}: {why}; name a running one with --admin ADDR");
            Error::new(ErrorKind::Unavailable, "read the counters of", message)
        };
        let text = operator::page(admin, "/metrics").map_err(refuse)?;
        Ok(Counters::parse(&text))
    }

    fn parse(text: &str) -> Counters {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let pairs = samples.filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Counters(pairs.collect())
    }

    /// What was counted since `before`.
    pub fn since(&self, before: &Counters) -> Counters {
        let changed = self
            .0
            .iter()
            .map(|(name, value)| (name.clone(), value - before.0.get(name).copied().unwrap_or(0.0)));
        Counters(changed.collect())
    }

    /// The sum over all labels.
    pub fn total(&self, name: &str) -> u64 {
        let mine = self.0.iter().filter(|(key, _)| {
            key.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
        });
        mine.map(|(_, value)| *value).sum::<f64>().max(0.0) as u64
    }

    /// The sum over the samples with this label, as it stands on the page: `kind="read"`.
    pub fn labelled(&self, name: &str, label: &str) -> u64 {
        let mine = self.0.iter().filter(|(key, _)| {
            key.strip_prefix(name).is_some_and(|rest| rest.starts_with('{') && rest.contains(label))
        });
        mine.map(|(_, value)| *value).sum::<f64>().max(0.0) as u64
    }

    /// None if the tier tells no such thing.
    pub fn told(&self, name: &str) -> Option<u64> {
        self.0.contains_key(name).then(|| self.total(name))
    }

    /// Calls to the origin, of every kind that there were any of.
    pub fn origin_kinds(&self) -> BTreeMap<String, u64> {
        let mut kinds = BTreeMap::new();
        for (key, value) in &self.0 {
            let labels = key.strip_prefix("forebay_origin_calls_total{");
            let kind = labels.and_then(|labels| labels.split("kind=\"").nth(1)?.split('"').next());
            if let (Some(kind), true) = (kind, *value >= 1.0) {
                *kinds.entry(kind.to_owned()).or_default() += *value as u64;
            }
        }
        kinds
    }

    /// Bytes of reads that were in the cache when they were asked for.
    pub fn hit_bytes(&self) -> u64 {
        self.total("forebay_cache_hit_bytes_total")
    }

    /// Bytes of reads that waited for the origin.
    pub fn miss_bytes(&self) -> u64 {
        self.total("forebay_cache_miss_bytes_total")
    }

    /// Bytes in the cache now: not of counters that were subtracted.
    pub fn used_bytes(&self) -> u64 {
        self.total("forebay_cache_used_bytes")
    }

    /// Bytes that may be in the cache; None of a tier that does not tell.
    pub fn max_bytes(&self) -> Option<u64> {
        self.told("forebay_cache_max_bytes")
    }

    /// Bytes that were fetched ahead and that nobody has read.
    pub fn ahead_unread_bytes(&self) -> u64 {
        let ahead = self.total("forebay_cache_readahead_bytes_total");
        ahead.saturating_sub(self.total("forebay_cache_readahead_used_bytes_total"))
    }

    pub fn evicted_bytes(&self) -> u64 {
        self.total("forebay_cache_evicted_bytes_total")
    }

    /// Bytes that the tier's process had its disks read; None where that is not known.
    pub fn disk_bytes(&self) -> Option<u64> {
        self.told("forebay_process_read_bytes_total")
    }

    /// Bytes read from the origin.
    pub fn origin_bytes(&self) -> u64 {
        self.total("forebay_origin_bytes_total")
    }

    /// Calls of every kind to the origin.
    pub fn origin_calls(&self) -> u64 {
        self.total("forebay_origin_calls_total")
    }

    pub fn origin_reads(&self) -> u64 {
        self.labelled("forebay_origin_calls_total", "kind=\"read\"")
    }

    /// Bytes sent to clients.
    pub fn served_bytes(&self) -> u64 {
        self.total("forebay_nfs_read_bytes_total") + self.total("forebay_s3_read_bytes_total")
    }

    /// Reads that had to wait for bytes that were not there, fetched for them or for another.
    pub fn waits(&self) -> u64 {
        self.total("forebay_cache_misses_total")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"# HELP forebay_origin_calls Calls to the origin.
# TYPE forebay_origin_calls counter
forebay_origin_calls_total{junction="/",kind="read"} 7
forebay_origin_calls_total{junction="/",kind="lookup"} 5
forebay_origin_bytes_total{junction="/"} 1000
forebay_cache_misses_total 3
forebay_nfs_read_bytes_total 2e3
forebay_s3_read_bytes_total 500
# EOF
"#;

    #[test]
    fn a_page_is_read_and_subtracted() {
        let page = Counters::parse(PAGE);
        assert_eq!((page.origin_calls(), page.origin_reads(), page.origin_bytes()), (12, 7, 1000));
        assert_eq!((page.served_bytes(), page.waits()), (2500, 3));
        assert_eq!(page.origin_kinds(), BTreeMap::from([("lookup".to_owned(), 5), ("read".to_owned(), 7)]));
        assert_eq!((page.disk_bytes(), page.told("forebay_cache_misses_total")), (None, Some(3)));
        let later = Counters::parse(&PAGE.replace("} 7", "} 9"));
        assert_eq!(later.since(&page).origin_calls(), 2);
        assert_eq!(Counters::parse("nonsense\n\n{} x").origin_calls(), 0);
    }
}
