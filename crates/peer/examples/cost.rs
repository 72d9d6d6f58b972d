//! What the wire between nodes costs: CPU seconds per GiB and the latency of a small call, over the loopback, of this
//! crate's calls with TLS and without, and of bare TCP that carries the same bytes in the same parts, which is the limit.
//!
//! `cargo run --release -p peer --example cost -- [MiB of each row] [rounds]`. Both ends are in this process, so the CPU
//! seconds are those of both. All rows are measured in turn in each round, and the table has the medians.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use peer::message::{
    ChangeNotice, CorruptReport, FeedNotice, HaveAnswer, HaveRequest, Heartbeat, KnownPath, PathRequest,
    ReadRequest, ReadRole, ReadUrgency, ServedFrom,
};
use peer::{
    PeerCaller, PeerClient, PeerClientConfig, PeerIdentity, PeerServer, PeerServerConfig, PeerService,
    ReadAnswer, make_authority,
};
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use types::{ByteRange, FileId, JunctionId, NodeId, Result, Version};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const READERS: u64 = 8;
const PARTS: [u64; 3] = [64 << 10, 512 << 10, 4 << 20];
const SMALL_CALLS: usize = 2000;
const DEADLINE: Duration = Duration::from_secs(30);

struct Memory(Bytes);

fn heartbeat(node: u64) -> Heartbeat {
    Heartbeat {
        node: NodeId(node),
        incarnation: 1,
        map: 1,
        build: String::new(),
        figures: Default::default(),
    }
}

#[async_trait]
impl PeerService for Memory {
    async fn read(&self, _: PeerCaller, request: &ReadRequest) -> Result<ReadAnswer> {
        let bytes = vec![self.0.slice(..request.range.length as usize)];
        Ok(ReadAnswer::new(request, bytes, ServedFrom::Hit, None, 1))
    }

    async fn have(&self, _: PeerCaller, request: &HaveRequest) -> Result<HaveAnswer> {
        Ok(HaveAnswer { map: 1, percent: vec![100; request.stripes as usize], ..HaveAnswer::default() })
    }

    async fn ping(&self, _: PeerCaller, _: &Heartbeat) -> Result<Heartbeat> {
        Ok(heartbeat(2))
    }

    async fn path(&self, _: PeerCaller, _: &PathRequest) -> Result<KnownPath> {
        Ok(KnownPath { names: Vec::new() })
    }

    async fn notice(&self, _: PeerCaller, _: &ChangeNotice) -> Result<()> {
        Ok(())
    }

    async fn feed(&self, _: PeerCaller, _: &FeedNotice) -> Result<()> {
        Ok(())
    }

    async fn corrupt(&self, _: PeerCaller, _: &CorruptReport) -> Result<()> {
        Ok(())
    }
}

/// One way of carrying bytes from one end to the other.
enum Wire {
    Calls(PeerClient),
    Bare(SocketAddr),
}

impl Wire {
    async fn calls(
        us: PeerIdentity,
        them: PeerIdentity,
        memory: Bytes,
    ) -> std::result::Result<Wire, Failure> {
        let listen = vec!["127.0.0.1:0".parse()?];
        let config = PeerServerConfig { listen, ..PeerServerConfig::default() };
        let node = them.node();
        let server = PeerServer::bind(config, them, Arc::new(Memory(memory))).await?;
        let addresses = server.local_addrs()?;
        let (keep, stop) = watch::channel(false);
        tokio::spawn(async move {
            server.serve(stop).await;
            drop(keep);
        });
        let client = PeerClient::new(us, node, PeerClientConfig::default(), Arc::new(|| heartbeat(1)));
        client.set_addresses(&addresses, &[]);
        Ok(Wire::Calls(client))
    }

    /// The other end reads a length and answers with so many bytes.
    async fn bare(memory: Bytes) -> std::result::Result<Wire, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let memory = memory.clone();
                let _ = stream.set_nodelay(true);
                tokio::spawn(async move {
                    while let Ok(length) = stream.read_u64().await {
                        if stream.write_all(&memory[..length as usize]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Ok(Wire::Bare(address))
    }

    /// Reads `parts` parts of `length` bytes, one after the other.
    async fn read(&self, parts: u64, length: u64) -> std::result::Result<(), Failure> {
        match self {
            Wire::Calls(client) => {
                let size = parts * length;
                for at in 0..parts {
                    let request = ReadRequest {
                        file: FileId([7; 16]),
                        version: Version([8; 16]),
                        size,
                        range: ByteRange::new(at * length, length),
                        junction: JunctionId(1),
                        reference: Bytes::from_static(&[9; 64]),
                        role: ReadRole::Rank,
                        hops: 0,
                        urgency: ReadUrgency::Demand,
                        map: 1,
                        copies: None,
                    };
                    client.read(&request, DEADLINE).await.flatten()?;
                }
            }
            Wire::Bare(address) => {
                let mut stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                for _ in 0..parts {
                    stream.write_u64(length).await?;
                    // As the calls do: a part has memory of its own.
                    let mut part = vec![0; length as usize];
                    stream.read_exact(&mut part).await?;
                    std::hint::black_box(&part);
                }
            }
        }
        Ok(())
    }

    /// The latencies of small calls, one after the other.
    async fn small(&self) -> std::result::Result<Vec<Duration>, Failure> {
        let mut latencies = Vec::with_capacity(SMALL_CALLS);
        match self {
            Wire::Calls(client) => {
                for _ in 0..SMALL_CALLS {
                    let begun = Instant::now();
                    client.ping(DEADLINE).await?;
                    latencies.push(begun.elapsed());
                }
            }
            Wire::Bare(address) => {
                let mut stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                let mut answer = [0; 80];
                for _ in 0..SMALL_CALLS {
                    let begun = Instant::now();
                    stream.write_u64(answer.len() as u64).await?;
                    stream.read_exact(&mut answer).await?;
                    latencies.push(begun.elapsed());
                }
            }
        }
        Ok(latencies)
    }
}

fn cpu() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The wire, and of each size of parts the CPU seconds and the seconds per GiB; the p50 and p99 of a small call.
struct Row {
    name: &'static str,
    wire: Arc<Wire>,
    cpu: [Vec<f64>; PARTS.len()],
    seconds: [Vec<f64>; PARTS.len()],
    p50: Vec<f64>,
    p99: Vec<f64>,
}

impl Row {
    fn new(name: &'static str, wire: Wire) -> Row {
        let (cpu, seconds, p50, p99) = Default::default();
        Row { name, wire: Arc::new(wire), cpu, seconds, p50, p99 }
    }

    async fn measure(&mut self, bytes: u64) -> std::result::Result<(), Failure> {
        for (at, length) in PARTS.into_iter().enumerate() {
            let parts = (bytes / length / READERS).max(1);
            let (begun, cpu_before) = (Instant::now(), cpu());
            let mut readers = tokio::task::JoinSet::new();
            for _ in 0..READERS {
                let wire = self.wire.clone();
                readers.spawn(async move { wire.read(parts, length).await });
            }
            while let Some(done) = readers.join_next().await {
                done??;
            }
            let gib = (parts * length * READERS) as f64 / (1_u64 << 30) as f64;
            self.cpu[at].push((cpu() - cpu_before) / gib);
            self.seconds[at].push(begun.elapsed().as_secs_f64() / gib);
        }
        let mut latencies = self.wire.small().await?;
        latencies.sort();
        let micros =
            |hundredths: usize| latencies[(latencies.len() - 1) * hundredths / 100].as_secs_f64() * 1e6;
        self.p50.push(micros(50));
        self.p99.push(micros(99));
        Ok(())
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> std::result::Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| arguments.next().map_or(Ok(default), |text| text.parse::<u64>());
    let (mib, rounds) = (number(1024)?, number(3)?);
    let memory: Bytes = (0..PARTS[PARTS.len() - 1]).map(|at| (at * 31 + at / 977) as u8).collect();
    let authority = make_authority("cost")?;
    let secure = |node| PeerIdentity::new(&authority.issue("node", NodeId(node))?);
    let plain = |node| PeerIdentity::insecure("cost", NodeId(node));
    let mut rows = [
        Row::new("calls, TLS", Wire::calls(secure(1)?, secure(2)?, memory.clone()).await?),
        Row::new("calls, no TLS", Wire::calls(plain(1)?, plain(2)?, memory.clone()).await?),
        Row::new("bare TCP", Wire::bare(memory).await?),
    ];
    for row in &mut rows {
        row.measure(64 << 20).await?; // connections are made, and pages are there
        (row.cpu, row.seconds, row.p50, row.p99) = Default::default();
    }
    for _ in 0..rounds.max(1) {
        for row in &mut rows {
            row.measure(mib << 20).await?;
        }
    }
    println!("{mib} MiB in each row, {rounds} rounds, medians; CPU seconds are those of both ends");
    println!(
        "{:<14} {:>8} {:>12} {:>8} {:>9} {:>9}",
        "wire", "part KiB", "CPU s/GiB", "GiB/s", "p50 us", "p99 us"
    );
    for row in &rows {
        for (at, length) in PARTS.into_iter().enumerate() {
            let (cpu, rate) = (median(row.cpu[at].clone()), 1.0 / median(row.seconds[at].clone()));
            print!("{:<14} {:>8} {cpu:>12.3} {rate:>8.2}", row.name, length >> 10);
            match at {
                0 => println!(" {:>9.0} {:>9.0}", median(row.p50.clone()), median(row.p99.clone())),
                _ => println!(),
            }
        }
    }
    Ok(())
}
