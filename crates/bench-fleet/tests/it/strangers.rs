//! Whoever does not know the token is turned away, and the run does not notice.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bench_fleet::Fleet;
use relay::SplitMix;

use crate::many::{options, options_with};
use crate::rehearsal::wait_while;
use testkit::ports::free_port;

fn connect(port: u16) -> TcpStream {
    let mut connected = None;
    wait_while(Duration::from_secs(10), "nobody listens", || {
        connected = TcpStream::connect(("127.0.0.1", port)).ok();
        connected.is_none()
    });
    let stream = connected.expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    stream
}

/// Send `bytes`; what comes back until the other side closes.
fn answer_to(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(port);
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    // A reset is a close too, when we had sent more than was read.
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_turned_away_and_the_run_goes_on() {
    let port = free_port();
    let root = tokio::spawn(Fleet::join(options(0, 3, port)));

    let silent = tokio::task::spawn_blocking(move || answer_to(port, b""));
    tokio::task::spawn_blocking(move || {
        // A name of another protocol; a frame beyond any limit; one of a length that a stranger may not send; a
        // message of a member that is in; and all kinds of bytes.
        answer_to(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        answer_to(port, &[0xff; 64]);
        answer_to(port, &[0, 1, 0, 0, b'{']);
        answer_to(port, b"\0\0\0\x15{\"Ping\":{\"sent\":12}}\n");
        let mut random = SplitMix::new(88_172_645_463_325_252);
        for _ in 0..50 {
            answer_to(port, &std::iter::repeat_with(|| random.draw() as u8).take(200).collect::<Vec<_>>());
        }
        // One that leaves in the middle of its name.
        drop(connect(port));
    })
    .await
    .expect("no panic");

    // A rank of the right number with the wrong token.
    let mut wrong = options_with("ffffffffffffffffffffffffffffffff", 1, 3, port);
    wrong.join_deadline = Duration::from_millis(500);
    let error = Fleet::join(wrong).await.err().expect("refused").to_string();
    assert!(error.contains("the token is another run's"), "{error}");

    let first = tokio::spawn(Fleet::join(options(1, 3, port)));
    // Another of the same number: the first one stays.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let error = Fleet::join(options(1, 3, port)).await.err().expect("refused").to_string();
    assert!(error.contains("rank 1 is here already"), "{error}");

    let last = Fleet::join(options(2, 3, port)).await.expect("joined");
    let members = [
        root.await.expect("no panic").expect("joined"),
        first.await.expect("no panic").expect("joined"),
        last,
    ];
    let steps = members.map(|member| {
        tokio::spawn(async move {
            let all = member.gather(&member.rank()).await?;
            assert_eq!(all, if member.is_root() { vec![0, 1, 2] } else { Vec::new() });
            member.finish().await
        })
    });
    for step in steps {
        step.await.expect("no panic").expect("the run went well");
    }
    let greeting = silent.await.expect("no panic");
    assert!(String::from_utf8_lossy(&greeting).contains("Challenge"), "it was greeted, then closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_can_connect_any_more_once_all_ranks_are_in() {
    let port = free_port();
    let root = tokio::spawn(Fleet::join(options(0, 2, port)));
    let other = Fleet::join(options(1, 2, port)).await.expect("joined");
    let root = root.await.expect("no panic").expect("joined");
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(5), "the door is still open");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (a, b) = tokio::join!(root.finish(), other.finish());
    assert!(a.is_ok() && b.is_ok(), "{a:?} {b:?}");
}
