//! The relay as a line: how long, how wide, how fair, how it breaks and how it ends.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use quantity::ByteRate;
use relay::{Config, Drops, Relay, calibrate, measure_echo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::quiet;

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Echoes until the end of each connection.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind(any()).await.expect("bound");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    address
}

async fn relay_to_echo(config: Config) -> Relay {
    Relay::bind(any(), echo().await, config).expect("bound")
}

async fn connect(relay: &Relay) -> TcpStream {
    let stream = TcpStream::connect(relay.local_addr()).await.expect("the relay listens");
    stream.set_nodelay(true).expect("set");
    stream
}

async fn ask(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(&[1]).await?;
    stream.read_exact(&mut [0]).await.map(drop)
}

async fn within<T>(time: Duration, what: impl Future<Output = T>) -> T {
    tokio::time::timeout(time, what).await.expect("in time")
}

/// The machine may be busy with other things, which only ever makes a round trip longer: what a quarter of them needs at
/// most, in the best of a few attempts, is what the relay does.
async fn round_trip_within(rtt: Duration, tolerance: f64) {
    let mut errors = Vec::new();
    for _ in 0..8 {
        let relay = relay_to_echo(Config { rtt, ..Config::default() }).await;
        let mut measured = measure_echo(relay.local_addr(), 31).await.expect("measured").0;
        measured.sort_by(f64::total_cmp);
        assert!(measured[0] >= rtt.as_secs_f64(), "nothing is faster than the line: {}", measured[0]);
        let error = measured[7] / rtt.as_secs_f64() - 1.0;
        if error <= tolerance {
            return;
        }
        errors.push(error);
    }
    panic!("a round trip of {rtt:?} was always too long, by {errors:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_milliseconds_are_fifty_to_three_percent() {
    let _quiet = quiet().await;
    round_trip_within(ms(50), 0.03).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_round_trip_within_a_region_is_not_rounded_up_to_timer_ticks() {
    let _quiet = quiet().await;
    round_trip_within(Duration::from_micros(1_900), 0.15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn opening_a_connection_costs_one_more_round_trip() {
    let _quiet = quiet().await;
    let relay = relay_to_echo(Config { rtt: ms(40), ..Config::default() }).await;
    let mut times = Vec::new();
    for _ in 0..6 {
        let start = Instant::now();
        let mut stream = connect(&relay).await;
        ask(&mut stream).await.expect("answered");
        times.push(start.elapsed());
    }
    let shortest = *times.iter().min().expect("some");
    assert!((ms(80)..ms(115)).contains(&shortest), "two round trips of 40 ms, not {times:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_requests_under_way_share_one_round_trip() {
    let _quiet = quiet().await;
    let relay = relay_to_echo(Config { rtt: ms(80), ..Config::default() }).await;
    let mut stream = connect(&relay).await;
    ask(&mut stream).await.expect("answered");
    let start = Instant::now();
    for request in 0..10 {
        stream.write_all(&[request]).await.expect("sent");
        tokio::task::yield_now().await;
    }
    let mut answers = [0; 10];
    stream.read_exact(&mut answers).await.expect("answered");
    assert_eq!(answers, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert!(start.elapsed() < ms(80) * 4, "ten requests took {:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_byte_arrives_in_order_under_jitter_and_a_rate() {
    let config = Config { rtt: ms(4), jitter: ms(4), rate: Some(ByteRate(50_000_000)), ..Config::default() };
    let relay = relay_to_echo(config).await;
    let sent: Vec<u8> = (0..3_000_000_u32).map(|i| (i ^ (i >> 9)) as u8).collect();
    let (mut read, mut write) = connect(&relay).await.into_split();
    let to_send = sent.clone();
    let sender = tokio::spawn(async move {
        write.write_all(&to_send).await.expect("sent");
        write.shutdown().await.expect("ended");
    });
    let mut received = Vec::new();
    within(ms(20_000), read.read_to_end(&mut received))
        .await
        .expect("read to the end that the echo passed on");
    sender.await.expect("sent");
    assert_eq!(received.len(), sent.len());
    assert!(received == sent, "bytes changed on the way");
    let counts = relay.counts();
    assert_eq!((counts.bytes_up, counts.bytes_down), (3_000_000, 3_000_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shape_holds_in_both_directions() {
    let _quiet = quiet().await;
    // 200 Mbit/s: what even a busy test machine carries easily, so that a wrong rate is the relay's fault.
    let config = Config { rtt: ms(10), rate: Some(ByteRate::from_bits(200_000_000)), ..Config::default() };
    let mut seen = Vec::new();
    for _ in 0..4 {
        let measured = calibrate(&config, 3).await.expect("measured");
        let errors = [measured.rate_up, measured.rate_down].map(|rate| rate / 25_000_000.0 - 1.0);
        assert!(errors.iter().all(|e| *e < 0.03), "faster than the line: {errors:?}");
        if errors.iter().all(|e| *e > -0.03) {
            return;
        }
        seen.push(errors);
    }
    panic!("never within 3 percent: {seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_stops_a_single_stream_and_not_two() {
    let _quiet = quiet().await;
    // 64 KiB in 20 ms is 3.3 MB/s.
    let config = Config { rtt: ms(20), window: Some(64 << 10), ..Config::default() };
    let relay = relay_to_echo(config).await;
    let throughput = async |streams: usize| {
        let mut tasks = tokio::task::JoinSet::new();
        let start = Instant::now();
        for _ in 0..streams {
            let (mut read, mut write) = connect(&relay).await.into_split();
            tasks.spawn(async move {
                let writer = async {
                    let _ = write.write_all(&vec![7; 1 << 20]).await;
                    let _ = write.shutdown().await;
                };
                let mut all = Vec::new();
                let (_, read) = tokio::join!(writer, read.read_to_end(&mut all));
                read.expect("echoed");
                all.len()
            });
        }
        let bytes: usize = tasks.join_all().await.into_iter().sum();
        bytes as f64 / start.elapsed().as_secs_f64()
    };
    let one = throughput(1).await;
    assert!(one < 3.5e6, "a window in a round trip is 3.3 MB/s, not {one}");
    let four = throughput(4).await;
    assert!(four > 2.0 * one, "four windows carry more than one: {four} against {one}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_not_stuck_behind_somebody_elses_megabytes() {
    let _quiet = quiet().await;
    // 10 MB/s: what four greedy connections have in their buffers takes far more than a tenth of a second.
    let config = Config { rtt: ms(10), rate: Some(ByteRate(10_000_000)), ..Config::default() };
    let relay = relay_to_echo(config).await;
    let mut modest = connect(&relay).await;
    ask(&mut modest).await.expect("answered");
    for _ in 0..4 {
        let (mut read, mut write) = connect(&relay).await.into_split();
        tokio::spawn(async move { while write.write_all(&[0; 65_536]).await.is_ok() {} });
        tokio::spawn(async move { tokio::io::copy(&mut read, &mut tokio::io::sink()).await });
    }
    tokio::time::sleep(ms(300)).await;
    let carried = relay.counts().bytes_up;
    let mut times = Vec::new();
    for _ in 0..15 {
        let start = Instant::now();
        ask(&mut modest).await.expect("answered");
        times.push(start.elapsed());
    }
    assert!(relay.counts().bytes_up > carried + 100_000, "the line was busy all the time");
    // The shortest: a machine that is busy with other things may delay any of the others.
    let shortest = times.iter().min().expect("some");
    assert!(*shortest < ms(100), "the shortest of {times:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn greedy_connections_share_the_line_alike() {
    let _quiet = quiet().await;
    let config = Config { rtt: ms(2), rate: Some(ByteRate(10_000_000)), ..Config::default() };
    let relay = relay_to_echo(config).await;
    let mut readers = Vec::new();
    for _ in 0..4 {
        let (mut read, mut write) = connect(&relay).await.into_split();
        tokio::spawn(async move { while write.write_all(&[0; 65_536]).await.is_ok() {} });
        readers.push(tokio::spawn(async move {
            let (mut sum, mut buffer) = (0, vec![0; 65_536]);
            let end = tokio::time::Instant::now() + ms(1500);
            while let Ok(Ok(n)) = tokio::time::timeout_at(end, read.read(&mut buffer)).await {
                sum += n;
            }
            sum
        }));
    }
    let mut sums = Vec::new();
    for reader in readers {
        sums.push(reader.await.expect("read"));
    }
    let (least, most) = (*sums.iter().min().expect("four"), *sums.iter().max().expect("four"));
    assert!(least > 1_000_000 && most < least * 3 / 2, "{sums:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_cut_on_demand_and_new_ones_are_welcome() {
    let relay = relay_to_echo(Config::default()).await;
    let mut first = connect(&relay).await;
    ask(&mut first).await.expect("answered");
    assert_eq!(relay.drop_connections(), 1);
    let error = within(ms(5000), first.read(&mut [0])).await.expect_err("cut, not ended");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let mut second = connect(&relay).await;
    within(ms(5000), ask(&mut second)).await.expect("answered");
    assert_eq!((relay.counts().cut, relay.counts().connections), (1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_cut_after_so_many_bytes_and_every_so_often() {
    let after = Drops { after_bytes: Some(10), ..Drops::default() };
    let relay = relay_to_echo(Config { drops: after, ..Config::default() }).await;
    let mut stream = connect(&relay).await;
    let mut answered = 0;
    while within(ms(5000), ask(&mut stream)).await.is_ok() {
        answered += 1;
    }
    assert!((4..=5).contains(&answered), "two bytes each: cut at ten, after {answered}");

    for drops in [
        Drops { every: Some(ms(60)), ..Drops::default() },
        // 60 a second on average.
        Drops { per_hour: Some(216_000.0), ..Drops::default() },
    ] {
        let relay = relay_to_echo(Config { drops: drops.clone(), ..Config::default() }).await;
        let mut stream = connect(&relay).await;
        let cut = within(ms(10_000), async { while ask(&mut stream).await.is_ok() {} });
        cut.await;
        assert!(relay.counts().cut >= 1, "{drops:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_connections_are_turned_away() {
    let relay = relay_to_echo(Config { connections_max: 1, ..Config::default() }).await;
    let mut first = connect(&relay).await;
    ask(&mut first).await.expect("answered");
    let turned_away = async {
        let mut second = TcpStream::connect(relay.local_addr()).await?;
        ask(&mut second).await
    };
    within(ms(5000), turned_away).await.expect_err("one is the limit");
    ask(&mut first).await.expect("the first does not suffer");
    assert_eq!(relay.counts().refused, 1);
    drop(first);
    // The relay learns of the end a little later.
    let again = async {
        loop {
            if let Ok(mut stream) = TcpStream::connect(relay.local_addr()).await
                && ask(&mut stream).await.is_ok()
            {
                return;
            }
            tokio::time::sleep(ms(10)).await;
        }
    };
    within(ms(5000), again).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_looks_like_a_reset_a_round_trip_later() {
    let nobody = {
        let listener = TcpListener::bind(any()).await.expect("bound");
        listener.local_addr().expect("bound")
    };
    let relay = Relay::bind(any(), nobody, Config { rtt: ms(30), ..Config::default() }).expect("bound");
    let start = Instant::now();
    let mut stream = connect(&relay).await;
    within(ms(5000), stream.read(&mut [0])).await.expect_err("nobody is there");
    assert!(start.elapsed() >= ms(30), "{:?}", start.elapsed());
    assert_eq!(relay.counts().unreachable, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_relay_ends_its_connections_and_frees_its_port() {
    let relay = relay_to_echo(Config { rtt: ms(20), ..Config::default() }).await;
    let address = relay.local_addr();
    let mut stream = connect(&relay).await;
    ask(&mut stream).await.expect("answered");
    drop(relay);
    let ended = within(ms(5000), stream.read(&mut [0])).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    Relay::bind(address, address, Config::default()).expect("the port is free again");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_from_a_privileged_port_goes_on_from_one() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root has privileged ports");
        return;
    }
    let listener = TcpListener::bind(any()).await.expect("bound");
    let relay = Relay::bind(any(), listener.local_addr().expect("bound"), Config::default()).expect("bound");
    let from = |port: u16| {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.set_reuseaddr(true).expect("set");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], port))).map(|()| socket)
    };
    let socket = (600..1024).find_map(|port| from(port).ok()).expect("a privileged port is free");
    let _near = socket.connect(relay.local_addr()).await.expect("connected");
    let (_far, peer) = within(ms(5000), listener.accept()).await.expect("accepted");
    assert!(peer.port() < 1024, "{peer}");
    let _ordinary = connect(&relay).await;
    let (_far, peer) = within(ms(5000), listener.accept()).await.expect("accepted");
    assert!(peer.port() >= 1024, "{peer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_travels_behind_the_bytes_that_were_sent_before_it() {
    let listener = TcpListener::bind(any()).await.expect("bound");
    let config = Config { rtt: ms(60), ..Config::default() };
    let relay = Relay::bind(any(), listener.local_addr().expect("bound"), config).expect("bound");
    let mut near = connect(&relay).await;
    let (mut far, _) = within(ms(5000), listener.accept()).await.expect("accepted");
    near.write_all(b"last words").await.expect("sent");
    // The relay takes the bytes before it sees the reset.
    tokio::time::sleep(ms(80)).await;
    near.set_zero_linger().expect("set");
    drop(near);
    let mut heard = Vec::new();
    let end = within(ms(5000), far.read_to_end(&mut heard)).await;
    assert_eq!(heard, b"last words");
    assert_eq!(end.expect_err("reset, not ended").kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_connections_share_one_line() {
    let _quiet = quiet().await;
    let relay = relay_to_echo(Config { rtt: ms(20), ..Config::default() }).await;
    let mut streams = Vec::new();
    for _ in 0..300 {
        streams.push(connect(&relay).await);
    }
    let mut asking = tokio::task::JoinSet::new();
    for mut stream in streams {
        asking.spawn(async move {
            for _ in 0..5 {
                ask(&mut stream).await.expect("answered");
            }
        });
    }
    let start = Instant::now();
    within(ms(30_000), asking.join_all()).await;
    assert!(start.elapsed() < ms(5000), "five round trips each took {:?}", start.elapsed());
    assert_eq!((relay.counts().connections, relay.counts().bytes_down), (300, 1500));
}
