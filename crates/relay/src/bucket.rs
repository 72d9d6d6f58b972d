//! The bandwidth of a line: a transmitter that is busy until a known instant. Who has a chunk to send waits in turn, one
//! chunk each, so that connections share the line alike and a short question is not behind somebody's megabytes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::clock::RelayClock;

/// The time for which the transmitter is given work ahead, so that waking late costs no bandwidth. It is also what a
/// question may
/// wait longer than on a real line.
const AHEAD: Duration = Duration::from_millis(1);

pub struct TokenBucket {
    bytes_per_second: u64,
    /// When the last chunk will have left. The lock is fair: its queue is the round robin.
    busy_until: Mutex<Instant>,
}

impl TokenBucket {
    pub fn new(bytes_per_second: u64) -> TokenBucket {
        TokenBucket { bytes_per_second: bytes_per_second.max(1), busy_until: Mutex::new(Instant::now()) }
    }

    /// Bytes to pass at a time: a millisecond's worth, so that many share the line smoothly.
    pub fn chunk(&self, most: usize) -> usize {
        // 1460: what an Ethernet frame carries of a TCP stream.
        usize::try_from(self.bytes_per_second / 1000).unwrap_or(usize::MAX).clamp(1460, most.max(1460))
    }

    /// When the last of `bytes`, which were there at `ready`, has left. Returns about when the first one does.
    pub async fn pass(&self, clock: &Arc<RelayClock>, bytes: usize, ready: Instant) -> Instant {
        let mut busy_until = self.busy_until.lock().await;
        if let Some(begin) = busy_until.checked_sub(AHEAD).filter(|begin| *begin > ready) {
            clock.sleep_until(begin).await;
        }
        *busy_until = departure(*busy_until, ready, bytes, self.bytes_per_second);
        *busy_until
    }
}

/// What was ready while the line was busy leaves right behind, however late we woke: no bandwidth is lost, none is saved
/// up while nobody sends.
fn departure(busy_until: Instant, ready: Instant, bytes: usize, bytes_per_second: u64) -> Instant {
    let nanos = (bytes as u128) * 1_000_000_000 / u128::from(bytes_per_second);
    busy_until.max(ready) + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX >> 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_leave_back_to_back_and_idle_time_is_not_saved_up() {
        let start = Instant::now();
        let second = |s| start + Duration::from_secs(s);
        let first = departure(start, start, 1000, 1000);
        assert_eq!(first, second(1));
        assert_eq!(departure(first, start, 2000, 1000), second(3), "the line was busy");
        assert_eq!(
            departure(first, second(10), 1000, 1000),
            second(11),
            "the line was idle for nine seconds"
        );
    }

    #[test]
    fn a_chunk_is_a_millisecond_of_the_line() {
        assert_eq!(TokenBucket::new(12_500_000).chunk(65_536), 12_500);
        assert_eq!(TokenBucket::new(1_000).chunk(65_536), 1_460);
        assert_eq!(TokenBucket::new(u64::MAX).chunk(65_536), 65_536);
    }
}
