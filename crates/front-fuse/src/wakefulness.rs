//! Keeps the processors of this machine awake between the requests of a busy mount, where `Config::low_latency` wants it.
//!
//! A process that asks something of a mount sleeps until it has its answer, and the thread that answers sleeps until it is asked.
//! Both find their processor asleep, and to wake it takes longer than to answer: on a virtual machine some 20 us each time. Linux
//! lets no processor sleep as long as a process has /dev/cpu_dma_latency open and has written a 0 to it. That costs power,
//! and on a virtual machine time of its host. So it is open while requests come in quick succession, and a little longer.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use crate::FuseState;

const DEVICE: &str = "/dev/cpu_dma_latency";
/// Requests are counted over so long.
const WINDOW: Duration = Duration::from_millis(50);
/// So many of them in one window make a mount busy: 1,000 a second.
const BUSY: u64 = 50;
/// After so many windows with fewer it is not busy any more.
const PATIENCE: u32 = 10;

/// Whether a mount is busy. Pure: looked at once in each window.
#[derive(Debug, Default)]
struct Activity {
    /// At the last look.
    requests: u64,
    /// Windows that the mount will still count as busy.
    left: u32,
}

impl Activity {
    /// `requests`: all until now.
    fn is_busy(&mut self, requests: u64) -> bool {
        let new = requests.saturating_sub(self.requests);
        self.requests = requests;
        self.left = if new >= BUSY { PATIENCE } else { self.left.saturating_sub(1) };
        self.left > 0
    }
}

/// Lets no processor of this machine sleep until it is dropped.
#[derive(Debug)]
struct SleeplessProcessors {
    _device: File,
}

impl SleeplessProcessors {
    fn demand(device: &Path) -> std::io::Result<SleeplessProcessors> {
        let mut file = File::options().write(true).open(device)?;
        file.write_all(&0i32.to_ne_bytes())?;
        Ok(SleeplessProcessors { _device: file })
    }
}

/// Until it is aborted. Where the device cannot be had, that is logged once and the mount is as it is without this.
pub async fn stay_awake(shared: Arc<FuseState>) {
    let mut activity = Activity::default();
    let mut awake = None;
    loop {
        tokio::time::sleep(WINDOW).await;
        match activity.is_busy(shared.metrics.requests()) {
            false => awake = None,
            true if awake.is_some() => {}
            true => match SleeplessProcessors::demand(Path::new(DEVICE)) {
                Ok(demanded) => awake = Some(demanded),
                Err(e) => {
                    warn!("[mount] low_latency: {DEVICE}: {e}; processors go on sleeping between requests");
                    return;
                }
            },
        }
        shared.metrics.awake.set(i64::from(awake.is_some()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_busy_from_its_first_full_window_until_half_a_second_after_its_last() {
        let mut activity = Activity::default();
        assert!(!activity.is_busy(BUSY - 1));
        assert!(activity.is_busy(2 * BUSY - 1));
        for _ in 1..PATIENCE {
            assert!(activity.is_busy(2 * BUSY - 1));
        }
        assert!(
            !activity.is_busy(2 * BUSY - 1) && !activity.is_busy(0),
            "nor does a count that runs backwards hurt"
        );
        assert!(activity.is_busy(BUSY));
    }
}
