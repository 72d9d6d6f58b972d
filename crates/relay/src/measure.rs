//! What a line really is, measured back: nominal values are wishes. Blocking sockets on threads of their own, because a
//! busy runtime would measure itself.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rpc_nfs3::nfs3;
use rpc_nfs3::record::mark;
use rpc_nfs3::rpc::{CallHeader, Credentials, RPC_VERSION, ReplyHeader, ReplyStatus};
use rpc_nfs3::{XdrDecoder, XdrEncoder};
use types::{Error, ErrorKind, Result};

use crate::{Config, Relay};

/// No answer for this long: there is none.
const PATIENCE: Duration = Duration::from_secs(70);
/// Streams of a rate measurement: one may be stopped by its window, or by a rate of its own.
const STREAMS: usize = 4;
/// A rate is taken over this long, after as long and a round trip for the line to fill.
const RATE_TIME: Duration = Duration::from_millis(500);
/// Longest answer to a NULL call: a header without results.
const ANSWER_MAX: usize = 1024;
/// Longest head of an answer of HTTP, roughly.
const HEAD_MAX: usize = 64 << 10;

/// Round trips as they came, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundTrips(pub Vec<f64>);

impl RoundTrips {
    /// Seconds. 0 if none was measured, which the functions of this module never return.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let of = |at: usize| sorted.get(at).copied().unwrap_or_default();
        let (lower, upper) = (of(sorted.len().saturating_sub(1) / 2), of(sorted.len() / 2));
        lower + (upper - lower) / 2.0
    }

    /// The shortest and the longest, in seconds.
    pub fn range(&self) -> (f64, f64) {
        self.0.iter().fold((f64::INFINITY, 0.0), |(low, high), s| (low.min(*s), high.max(*s)))
    }
}

/// A line with nothing behind it but this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct LineMeasurement {
    pub round_trips: RoundTrips,
    /// Bytes per second from the listening side to the target, all connections together.
    pub rate_up: f64,
    pub rate_down: f64,
}

/// A relay with this configuration, its cuts left out, measured against an echo on this machine: `samples` round trips
/// of one byte, then what four connections carry together in each direction.
pub async fn calibrate(config: &Config, samples: usize) -> Result<LineMeasurement> {
    let connections_max = config.connections_max.max(STREAMS + 1);
    let config = Config { drops: crate::Drops::default(), connections_max, ..config.clone() };
    in_thread(move || {
        let peer = EchoPeer::start()?;
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let relay = Relay::bind(any, peer.address, config)?;
        let to = relay.local_addr();
        let round_trips = round_trips(to, samples, echo_of_peer)?;
        let rate_up = rate(to, &peer, UP, relay.config())?;
        let rate_down = rate(to, &peer, DOWN, relay.config())?;
        Ok(LineMeasurement { round_trips, rate_up, rate_down })
    })
    .await
}

/// Round trips of one byte to a server that echoes it, `address` being the relay in front of it.
pub async fn measure_echo(address: SocketAddr, samples: usize) -> Result<RoundTrips> {
    in_thread(move || round_trips(address, samples, |stream| exchange(stream, &[0], 1).map(drop))).await
}

/// Round trips of a NULL call to an NFSv3 server, `address` being the relay in front of it.
pub async fn measure_null(address: SocketAddr, samples: usize) -> Result<RoundTrips> {
    in_thread(move || round_trips(address, samples, null)).await
}

/// Round trips of a request to an HTTP server that moves next to nothing and that it may well refuse, `address` being the
/// relay in front of it.
pub async fn measure_http(address: SocketAddr, samples: usize) -> Result<RoundTrips> {
    in_thread(move || round_trips(address, samples, head_of_nothing)).await
}

/// Seconds from asking for a connection to the answer of a first NULL call on it, and seconds of a second call. No answer for
/// `patience` is none.
pub async fn null_on_a_new_connection(address: SocketAddr, patience: Duration) -> Result<(f64, f64)> {
    in_thread(move || {
        let measure = || {
            let start = Instant::now();
            let mut stream = connect(address, patience)?;
            null(&mut stream)?;
            let (first, start) = (start.elapsed().as_secs_f64(), Instant::now());
            null(&mut stream)?;
            Ok::<_, io::Error>((first, start.elapsed().as_secs_f64()))
        };
        measure().map_err(|e| Error::io("call NULL at", address, e))
    })
    .await
}

async fn in_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(Error::new(ErrorKind::Io, "measure", "the relay").with_source(e)))
}

fn failed(address: SocketAddr) -> impl Fn(io::Error) -> Error {
    move |e| Error::io("measure the line to", address, e)
}

fn connect(address: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    Ok(stream)
}

fn round_trips(
    address: SocketAddr,
    samples: usize,
    exchange: impl Fn(&mut TcpStream) -> io::Result<()>,
) -> Result<RoundTrips> {
    let measure = || {
        let mut stream = connect(address, PATIENCE)?;
        // The first one pays for opening the connection.
        exchange(&mut stream)?;
        let one = |stream: &mut TcpStream| {
            let start = Instant::now();
            exchange(stream).map(|()| start.elapsed().as_secs_f64())
        };
        (0..samples.max(1)).map(|_| one(&mut stream)).collect::<io::Result<_>>()
    };
    measure().map(RoundTrips).map_err(failed(address))
}

/// Writes `call` and reads `length` bytes of answer.
fn exchange(stream: &mut TcpStream, call: &[u8], length: usize) -> io::Result<Vec<u8>> {
    stream.write_all(call)?;
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

fn echo_of_peer(stream: &mut TcpStream) -> io::Result<()> {
    exchange(stream, &[ECHO], 1).map(drop)
}

/// A NULL call of NFS version 3, which has to be answered as such.
fn null(stream: &mut TcpStream) -> io::Result<()> {
    const XID: u32 = 0x7072_6f62;
    let mut e = XdrEncoder::default();
    let header = CallHeader {
        xid: XID,
        rpc_version: RPC_VERSION,
        program: nfs3::PROGRAM,
        version: nfs3::VERSION,
        procedure: nfs3::procedure::NULL,
        credentials: Credentials::None,
    };
    header.encode(&mut e);
    let call = e.finish();
    let garbage = || io::Error::new(io::ErrorKind::InvalidData, "the answer is no RPC reply");
    let length = exchange(stream, &[&mark(call.len())[..], &call].concat(), 4)?;
    let length = XdrDecoder::new(length.into()).u32().map_or(0, |mark| mark & !(1 << 31)) as usize;
    if length > ANSWER_MAX {
        return Err(garbage());
    }
    let answer = exchange(stream, &[], length)?;
    match ReplyHeader::decode(&mut XdrDecoder::new(answer.into())) {
        Ok(reply) if reply.xid != XID => Err(garbage()),
        Ok(reply) if reply.status == ReplyStatus::Success => Ok(()),
        Ok(reply) => Err(io::Error::other(format!("the server answers {:?}", reply.status))),
        Err(_) => Err(garbage()),
    }
}

/// Any answer will do; one to HEAD has no body, and the connection stays open.
fn head_of_nothing(stream: &mut TcpStream) -> io::Result<()> {
    let host = stream.peer_addr()?;
    stream.write_all(format!("HEAD / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())?;
    let mut head = Vec::new();
    let mut piece = [0; ANSWER_MAX];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let length = stream.read(&mut piece)?;
        if length == 0 || head.len() > HEAD_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer to HEAD is no HTTP answer"));
        }
        head.extend_from_slice(piece.get(..length).unwrap_or_default());
    }
    match head.starts_with(b"HTTP/1.") {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "the answer to HEAD is no HTTP answer")),
    }
}

/// The first byte of a connection says what the peer does with it.
const ECHO: u8 = b'e';
const UP: u8 = b'u';
const DOWN: u8 = b'd';

/// Echoes, swallows or sends, on threads that end with their connections.
struct EchoPeer {
    address: SocketAddr,
    /// Bytes that arrived here.
    swallowed: Arc<AtomicU64>,
}

impl EchoPeer {
    fn start() -> Result<EchoPeer> {
        let making = |e| Error::io("listen for", "an echo", e);
        let listener = TcpListener::bind("127.0.0.1:0").map_err(making)?;
        let address = listener.local_addr().map_err(making)?;
        let swallowed = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&swallowed);
        // One for the round trips, and for the rates two times the streams.
        let accept = move || {
            for stream in listener.incoming().take(1 + 2 * STREAMS).flatten() {
                let counter = Arc::clone(&counter);
                std::thread::spawn(move || serve(stream, &counter));
            }
        };
        std::thread::Builder::new().name("echo".to_owned()).spawn(accept).map_err(making)?;
        Ok(EchoPeer { address, swallowed })
    }
}

/// Should the measurement fail before all connections are made, the thread that waits for them is let go.
impl Drop for EchoPeer {
    fn drop(&mut self) {
        for _ in 0..=2 * STREAMS {
            if TcpStream::connect_timeout(&self.address, Duration::from_millis(100)).is_err() {
                return;
            }
        }
    }
}

/// Serves a connection until it ends, or nothing happens on it for long.
fn serve(mut stream: TcpStream, swallowed: &AtomicU64) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut buffer = vec![0; 64 * 1024];
    let mut first = [0];
    stream.read_exact(&mut first)?;
    match first {
        [DOWN] => loop {
            stream.write_all(&buffer)?;
        },
        [UP] => loop {
            match stream.read(&mut buffer)? {
                0 => return Ok(()),
                n => swallowed.fetch_add(n as u64, Ordering::Relaxed),
            };
        },
        _ => loop {
            stream.write_all(&first)?;
            stream.read_exact(&mut first)?;
        },
    }
}

/// Bytes per second that arrive, over all streams together.
fn rate(to: SocketAddr, peer: &EchoPeer, way: u8, config: &Config) -> Result<f64> {
    let arrived = match way {
        UP => Arc::clone(&peer.swallowed),
        _ => Arc::new(AtomicU64::new(0)),
    };
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        let mut stream =
            connect(to, PATIENCE).and_then(|mut s| s.write_all(&[way]).map(|()| s)).map_err(failed(to))?;
        streams.push(stream.try_clone().map_err(failed(to))?);
        let arrived = Arc::clone(&arrived);
        std::thread::spawn(move || -> io::Result<()> {
            let mut buffer = vec![0; 64 * 1024];
            loop {
                if way == UP {
                    stream.write_all(&buffer)?;
                } else {
                    match stream.read(&mut buffer)? {
                        0 => return Ok(()),
                        n => arrived.fetch_add(n as u64, Ordering::Relaxed),
                    };
                }
            }
        });
    }
    // Opening takes one round trip and the first byte half a one.
    std::thread::sleep(RATE_TIME + config.rtt * 2);
    let (before, start) = (arrived.load(Ordering::Relaxed), Instant::now());
    std::thread::sleep(RATE_TIME);
    let (bytes, time) = (arrived.load(Ordering::Relaxed) - before, start.elapsed());
    for stream in streams {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
    Ok(bytes as f64 / time.as_secs_f64())
}
