//! One end of a stream: bytes are moved until the schedule ends, and noted in microseconds since an instant of this process.

use std::io;
use std::time::{Duration, Instant};

use relay::SplitMix;
use tokio::net::TcpStream;

use super::retransmits;
use super::wire::StreamLog;

const BUFFER: usize = 256 << 10;
/// Samples are this far apart at first, and twice as far each time there are too many.
const SAMPLE_US: u64 = 10_000;
const SAMPLES_MAX: usize = 2048;
/// What is in the buffers of the line at the end has so long to arrive.
const DRAIN: Duration = Duration::from_secs(10);

/// A meter counts bytes and notes how they came, in bounded memory.
struct Meter {
    epoch: Instant,
    log: StreamLog,
    apart_us: u64,
}

impl Meter {
    fn new(epoch: Instant, stream: u32) -> Meter {
        let log = StreamLog { stream, ..StreamLog::default() };
        Meter { epoch, log, apart_us: SAMPLE_US }
    }

    fn now_us(&self) -> u64 {
        micros(self.epoch.elapsed())
    }

    fn begin(&mut self) {
        let now = self.now_us();
        (self.log.start_us, self.log.end_us) = (now, now);
    }

    fn count(&mut self, bytes: usize) {
        self.count_at(self.now_us(), bytes as u64);
    }

    fn count_at(&mut self, now: u64, bytes: u64) {
        self.log.bytes = self.log.bytes.saturating_add(bytes);
        self.log.end_us = now;
        let last = self.log.progress.last().map_or(self.log.start_us, |(at, _)| *at);
        if now.saturating_sub(last) < self.apart_us {
            return;
        }
        self.log.progress.push((now, self.log.bytes));
        if self.log.progress.len() >= SAMPLES_MAX {
            self.log.progress = self.log.progress.iter().copied().skip(1).step_by(2).collect();
            self.apart_us = self.apart_us.saturating_mul(2);
        }
    }
}

pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Sends from `start` until `stop`, then ends the stream. What the socket took counts as sent.
pub async fn send(
    socket: &TcpStream,
    epoch: Instant,
    stream: u32,
    start: Instant,
    stop: Instant,
) -> StreamLog {
    let mut meter = Meter::new(epoch, stream);
    // Noise, so that nothing on the way makes less of it.
    let mut random = SplitMix::new(0x6c69_6e6b ^ u64::from(stream));
    let data: Vec<u8> = (0..BUFFER / 8).flat_map(|_| random.draw().to_le_bytes()).collect();
    let mut from = 0;
    tokio::time::sleep_until(start.into()).await;
    meter.begin();
    while Instant::now() < stop {
        match tokio::time::timeout_at(stop.into(), socket.writable()).await {
            Ok(Ok(())) => {}
            _ => break,
        }
        match socket.try_write(data.get(from..).unwrap_or_default()) {
            Ok(n) => {
                meter.count(n);
                from = (from + n) % BUFFER;
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            // A stream that broke has a log that ends early: the overlap tells.
            Err(_) => break,
        }
    }
    meter.log.retransmits = retransmits::of(socket);
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
    meter.log
}

/// Receives to the end of the stream, or until long after `stop`.
pub async fn receive(socket: &TcpStream, epoch: Instant, stream: u32, stop: Instant) -> StreamLog {
    let mut meter = Meter::new(epoch, stream);
    let mut buffer = vec![0; BUFFER];
    let deadline = tokio::time::Instant::from_std(stop + DRAIN);
    let mut first = true;
    while let Ok(Ok(())) = tokio::time::timeout_at(deadline, socket.readable()).await {
        match socket.try_read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => {
                if std::mem::take(&mut first) {
                    meter.begin();
                }
                meter.count(n);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    meter.log
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_stream_is_noted_in_bounded_memory() {
        let mut meter = Meter::new(Instant::now(), 0);
        for step in 1..=100_000_u64 {
            meter.count_at(step * SAMPLE_US, 10);
        }
        let log = &meter.log;
        assert_eq!((log.bytes, log.end_us), (1_000_000, 100_000 * SAMPLE_US));
        assert!((SAMPLES_MAX / 4..SAMPLES_MAX).contains(&log.progress.len()), "{}", log.progress.len());
        assert!(log.progress.iter().all(|(at, bytes)| at / SAMPLE_US * 10 == *bytes), "no sample is wrong");
        assert!(log.progress.windows(2).all(|pair| pair[0] < pair[1]), "they are in order");
    }
}
