//! What one stream carries over a distance, and several: each stream is a client on a connection of its own that keeps a
//! few READs under way in one large file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bench_report::median;
use origin::{Object, Origin};
use origin_nfs::NfsOrigin;
use tokio::task::JoinSet;
use types::{ByteRange, Error, ErrorKind, Result};

use super::Config;
use super::far::FarNfs;
use super::losses::{Segments, share};
use crate::link::all_of;

/// A stream starts up for so many round trips, and so long at least, before it counts.
const START_ROUND_TRIPS: u32 = 4;
const START_MIN: Duration = Duration::from_millis(200);
/// No READ for this long after the end: it is given up.
const END: Duration = Duration::from_secs(30);

pub struct StreamRate {
    /// Added round trip; `None`: without a relay.
    pub added: Option<Duration>,
    pub streams: usize,
    /// All streams together; repeated.
    pub bytes_per_second: Vec<f64>,
    /// Share of segments that came out of order, each time; without those times that it could not be told.
    pub out_of_order: Vec<f64>,
}

impl StreamRate {
    /// 0 if nothing was measured.
    pub fn median(&self) -> f64 {
        median(&self.bytes_per_second).unwrap_or_default()
    }
}

/// Each number of streams reads `file` for a while, all in turns.
pub async fn measure(
    far: &FarNfs,
    added: Option<Duration>,
    file: &Object,
    config: &Config,
) -> Result<Vec<StreamRate>> {
    let mut clients = Vec::new();
    for _ in 0..config.streams.iter().copied().max().unwrap_or(0) {
        clients.push(far.another().await?);
    }
    let start_up = START_MIN.max(added.unwrap_or_default() * START_ROUND_TRIPS);
    let nothing =
        |&streams| StreamRate { added, streams, bytes_per_second: Vec::new(), out_of_order: Vec::new() };
    let mut rates: Vec<StreamRate> = config.streams.iter().map(nothing).collect();
    for _ in 0..config.stream_repetitions {
        for one in &mut rates {
            let used = clients.get(..one.streams).unwrap_or(&clients);
            let before = Segments::now();
            one.bytes_per_second.push(rate(used, file, start_up, config).await?);
            one.out_of_order.extend(share(before, Segments::now()));
        }
    }
    Ok(rates)
}

async fn rate(clients: &[Arc<NfsOrigin>], file: &Object, start_up: Duration, config: &Config) -> Result<f64> {
    let begin = Instant::now() + start_up;
    let end = begin + config.stream_time;
    let bytes = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for (number, client) in clients.iter().enumerate() {
        let block = u64::from(client.traits().read_max).min(file.attr.size).max(1);
        let blocks = file.attr.size.div_ceil(block).max(1);
        // The streams begin at different places, so that none reads what another has just brought near.
        let first = blocks / (clients.len() as u64) * (number as u64);
        let next = Arc::new(AtomicU64::new(first));
        for _ in 0..config.read_ahead {
            let (client, file) = (Arc::clone(client), file.clone());
            let (next, bytes) = (Arc::clone(&next), Arc::clone(&bytes));
            tasks.spawn(async move {
                while Instant::now() < end {
                    let at = next.fetch_add(1, Ordering::Relaxed) % blocks * block;
                    let range = ByteRange::new(at, block).clamp_to(file.attr.size);
                    let read = client.read(&file.reference, file.version, range).await?;
                    if (begin..end).contains(&Instant::now()) {
                        bytes.fetch_add(read.len() as u64, Ordering::Relaxed);
                    }
                }
                Ok::<_, Error>(())
            });
        }
    }
    let patience = start_up + config.stream_time + END;
    let late = |_| Err(Error::new(ErrorKind::Unavailable, "read with", "streams: no end of it"));
    tokio::time::timeout(patience, all_of(tasks)).await.unwrap_or_else(late)?;
    Ok(bytes.load(Ordering::Relaxed) as f64 / config.stream_time.as_secs_f64())
}
