//! A line to a server that can lose what the server says: requests arrive and are carried out, and nobody hears of it.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub struct MuteLine {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    mute: AtomicBool,
    ended: AtomicBool,
}

impl MuteLine {
    pub fn to(server: SocketAddr) -> MuteLine {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared::default());
        let accepting = shared.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if accepting.ended.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(server) = TcpStream::connect(server) else { continue };
                carry(&client, &server, &accepting, false);
                carry(&server, &client, &accepting, true);
            }
        });
        MuteLine { address, shared }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the server says is lost from now on. A connection that has lost anything is of no use any more: it is cut when
    /// the line is mute no longer.
    pub fn set_mute(&self, mute: bool) {
        self.shared.mute.store(mute, Ordering::Relaxed);
    }
}

impl Drop for MuteLine {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

/// A thread for one direction of one connection.
fn carry(from: &TcpStream, to: &TcpStream, shared: &Arc<Shared>, is_answers: bool) {
    let (mut from, mut to) = (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
    let shared = shared.clone();
    let _ = from.set_read_timeout(Some(Duration::from_millis(50)));
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        let mut lost = false;
        while !shared.ended.load(Ordering::Relaxed) {
            let mute = is_answers && shared.mute.load(Ordering::Relaxed);
            if lost && !mute {
                break;
            }
            match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(_) if is_answers && shared.mute.load(Ordering::Relaxed) => lost = true,
                Ok(count) => {
                    if to.write_all(&buffer[..count]).is_err() {
                        break;
                    }
                }
                Err(e)
                    if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
                Err(_) => break,
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
}
