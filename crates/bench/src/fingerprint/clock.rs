//! How wrong this machine's clock may be. The kernel's own estimate has no file, only a system call that cannot be had
//! without unsafe code; but the daemon that disciplines the clock answers NTP, and its answer has both parts of the
//! error: half of the delay to the reference, and the dispersion since.

use std::net::UdpSocket;
use std::time::Duration;

/// A daemon of this machine answers at once, if there is one.
const PATIENCE: Duration = Duration::from_millis(100);
const PACKET: usize = 48;
/// Stratum of a clock that has no reference.
const UNSYNCHRONISED: u8 = 16;

/// `at most 0.8 ms (stratum 3)`, or why it is unknown.
pub fn error() -> String {
    match ask().as_deref().and_then(read) {
        Some(told) => told,
        None if std::path::Path::new("/run/systemd/timesync/synchronized").exists() => {
            "unknown (synchronised by systemd-timesyncd, which does not tell)".to_owned()
        }
        None => "unknown (no NTP daemon answers on this machine)".to_owned(),
    }
}

fn ask() -> Option<Vec<u8>> {
    let socket = UdpSocket::bind("127.0.0.1:0").ok()?;
    socket.set_read_timeout(Some(PATIENCE)).ok()?;
    socket.connect("127.0.0.1:123").ok()?;
    let mut packet = [0_u8; PACKET];
    // No leap second known, version 4, client.
    packet[0] = 0b00_100_011;
    socket.send(&packet).ok()?;
    let mut answer = [0_u8; PACKET];
    let length = socket.recv(&mut answer).ok()?;
    answer.get(..length).map(<[u8]>::to_vec)
}

/// Reads root delay and root dispersion of an answer by RFC 5905: seconds with 16 bits after the point.
fn read(answer: &[u8]) -> Option<String> {
    let seconds = |at: usize| -> Option<f64> {
        let bytes: [u8; 4] = answer.get(at..at + 4)?.try_into().ok()?;
        Some(f64::from(u32::from_be_bytes(bytes)) / 65536.0)
    };
    let (first, stratum) = (*answer.first()?, *answer.get(1)?);
    let error_ms = (seconds(4)? / 2.0 + seconds(8)?) * 1000.0;
    // A server's answer, from one whose clock is not adrift.
    if first & 0b111 != 4 || first >> 6 == 3 {
        return None;
    }
    if stratum == 0 || stratum >= UNSYNCHRONISED {
        return Some("unknown (its NTP daemon has no reference)".to_owned());
    }
    Some(format!("at most {error_ms:.1} ms (stratum {stratum})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(first: u8, stratum: u8, delay: u32, dispersion: u32) -> Vec<u8> {
        let mut packet = vec![0_u8; PACKET];
        packet[0] = first;
        packet[1] = stratum;
        packet[4..8].copy_from_slice(&delay.to_be_bytes());
        packet[8..12].copy_from_slice(&dispersion.to_be_bytes());
        packet
    }

    #[test]
    fn the_error_is_half_of_the_delay_and_the_dispersion() {
        // 1/64 s of delay, 1/256 s of dispersion.
        let told = read(&answer(0b00_100_100, 3, 1024, 256));
        assert_eq!(told.as_deref(), Some("at most 11.7 ms (stratum 3)"));
        assert!(read(&answer(0b00_100_100, 16, 0, 0)).is_some_and(|told| told.starts_with("unknown")));
        assert_eq!(read(&answer(0b11_100_100, 3, 0, 0)), None, "adrift");
        assert_eq!(read(&answer(0b00_100_011, 3, 0, 0)), None, "a question is no answer");
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[0x24, 3, 0]), None);
    }
}
