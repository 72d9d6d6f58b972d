//! Connections that break, stall and come back, seen by the caller.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use origin::Origin;
use origin_nfs::{Config, NfsOrigin};
use rpc_nfs3::nfs3::{self, procedure};
use types::{ByteRange, ErrorKind};

use crate::calls::find;
use crate::server::{Act, Server, Tree, content};

#[tokio::test]
async fn a_connection_cut_in_the_middle_of_a_call_is_not_noticed_by_the_caller() {
    for half in [false, true] {
        let server = Server::start(Tree::sample(), move |call| match call.procedure {
            procedure::READ if call.before == 0 && half => Act::HalfThenCut,
            procedure::READ if call.before == 0 => Act::Cut,
            _ => Act::Honest,
        })
        .await;
        let origin = server.connect().await;
        let file = find(&*origin, "file").await;
        let got = origin.read(&file.reference, file.version, ByteRange::new(3, 60_000)).await.expect("read");
        assert_eq!(got, content()[3..60_003]);
        assert_eq!(server.calls(procedure::READ), 2, "sent again once");
    }
}

#[tokio::test]
async fn all_calls_in_flight_are_sent_again_after_a_cut() {
    // Twenty reads are swallowed, the twenty-first cuts.
    let server = Server::start(Tree::sample(), |call| match call.procedure {
        procedure::READ if call.before < 20 => Act::Silence,
        procedure::READ if call.before == 20 => Act::Cut,
        _ => Act::Honest,
    })
    .await;
    let origin = server.connect().await;
    let file = find(&*origin, "file").await;
    let reads = (0..21u64).map(|i| {
        let (origin, file) = (Arc::clone(&origin), file.clone());
        tokio::spawn(async move {
            origin.read(&file.reference, file.version, ByteRange::new(i * 100, 100)).await.expect("read")
        })
    });
    for (i, read) in reads.collect::<Vec<_>>().into_iter().enumerate() {
        assert_eq!(read.await.expect("task"), content()[i * 100..i * 100 + 100]);
    }
    assert_eq!(server.calls(procedure::READ), 42);
}

#[tokio::test]
async fn replies_may_come_in_any_order() {
    let server = Server::start(Tree::sample(), |call| {
        if !call.is(procedure::READ) {
            return Act::Honest;
        }
        // The first asked is answered last.
        Act::After(Duration::from_millis(300u64.saturating_sub(30 * call.before as u64)))
    })
    .await;
    let origin = NfsOrigin::connect(Config { nconnect: 1, ..server.config() }).await.expect("connect");
    let file = find(&*origin, "file").await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let reads = (0..8u64).map(|i| {
        let (origin, file, order) = (Arc::clone(&origin), file.clone(), Arc::clone(&order));
        tokio::spawn(async move {
            let range = ByteRange::new(i * 10, 10);
            let got = origin.read(&file.reference, file.version, range).await.expect("read");
            assert_eq!(got, content()[i as usize * 10..i as usize * 10 + 10]);
            order.lock().expect("order").push(i);
        })
    });
    for read in reads.collect::<Vec<_>>() {
        read.await.expect("task");
    }
    let order = order.lock().expect("order").clone();
    assert_ne!(order, (0..8).collect::<Vec<u64>>(), "the test must see replies out of order");
}

#[tokio::test]
async fn a_call_without_a_reply_ends_at_its_deadline_and_the_next_one_works() {
    let server =
        Server::start(
            Tree::sample(),
            |call| {
                if call.is(procedure::READLINK) { Act::Silence } else { Act::Honest }
            },
        )
        .await;
    let config = Config { call_timeout: Duration::from_millis(400), ..server.config() };
    let origin = NfsOrigin::connect(config).await.expect("connect");
    let link = find(&*origin, "link").await;
    let error = origin.readlink(&link.reference).await.expect_err("no reply");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("no reply in 0.4 s"), "{error}");
    assert!(origin.getattr(&link.reference).await.is_ok());
}

#[tokio::test]
async fn a_server_that_falls_silent_is_dialled_anew() {
    // The bulk connection that saw the first READ never answers again; a new one does.
    let deaf = Arc::new(Mutex::new(None));
    let server = Server::start(Tree::sample(), move |call| {
        if !call.is(procedure::READ) {
            return Act::Honest;
        }
        let first = *deaf.lock().expect("deaf").get_or_insert(call.connection);
        if call.connection == first { Act::Silence } else { Act::Honest }
    })
    .await;
    let config = Config { stall_timeout: Duration::from_millis(300), ..server.config() };
    let origin = NfsOrigin::connect(config).await.expect("connect");
    let file = find(&*origin, "file").await;
    let got = origin.read(&file.reference, file.version, ByteRange::new(0, 100)).await.expect("read");
    assert_eq!(got, content()[..100]);
}

#[tokio::test]
async fn an_outage_fails_calls_soon_then_at_once_and_ends_by_itself() {
    let server = Server::start(Tree::sample(), |_| Act::Honest).await;
    let origin = server.connect().await;
    let file = find(&*origin, "file").await;
    let range = ByteRange::new(0, 10);
    let address = server.stop().await;
    // Within the grace calls wait; a generous bound, far below the call's own deadline of 20 s.
    let started = Instant::now();
    let error = origin.read(&file.reference, file.version, range).await.expect_err("gone");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    while origin.root().await.is_ok() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Down: a thousand calls fail without waiting for anything.
    let started = Instant::now();
    for _ in 0..1000 {
        let error = origin.root().await.expect_err("down");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());

    let _server = Server::start_at(address, Tree::sample(), |_| Act::Honest).await;
    let recovered = async {
        while origin.read(&file.reference, file.version, range).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), recovered).await.expect("probes find the server again");
}

/// Packets vanish: connections stay open, nothing answers. Once one connection has found out, the idle
/// others know as well.
#[tokio::test]
async fn an_idle_connection_is_not_believed_in_an_outage() {
    let hole = Arc::new(AtomicBool::new(false));
    let swallow = Arc::clone(&hole);
    let server = Server::start(Tree::sample(), move |_| {
        if swallow.load(Ordering::Relaxed) { Act::Silence } else { Act::Honest }
    })
    .await;
    let short = Duration::from_millis(300);
    let config =
        Config { stall_timeout: short, connect_timeout: short, outage_grace: short, ..server.config() };
    let origin = NfsOrigin::connect(config).await.expect("connect");
    let file = find(&*origin, "file").await;
    while server.calls(procedure::NULL) < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    hole.store(true, Ordering::Relaxed);
    assert_eq!(origin.root().await.expect_err("metadata finds out").kind(), ErrorKind::Unavailable);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let range = ByteRange::new(0, 10);
    let error = origin.read(&file.reference, file.version, range).await.expect_err("bulk knows");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(server.calls(procedure::READ), 0, "it was not even tried");
    hole.store(false, Ordering::Relaxed);
    let recovered = async {
        while origin.read(&file.reference, file.version, range).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), recovered).await.expect("it ends by itself");
}

#[tokio::test]
async fn a_restart_within_the_grace_is_bridged() {
    let server = Server::start(Tree::sample(), |_| Act::Honest).await;
    let config = Config { outage_grace: Duration::from_secs(8), ..server.config() };
    let origin = NfsOrigin::connect(config).await.expect("connect");
    let file = find(&*origin, "file").await;
    let address = server.stop().await;
    let read = {
        let (origin, file) = (Arc::clone(&origin), file.clone());
        tokio::spawn(async move { origin.read(&file.reference, file.version, ByteRange::new(0, 10)).await })
    };
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!read.is_finished(), "it waits");
    let _server = Server::start_at(address, Tree::sample(), |_| Act::Honest).await;
    assert_eq!(read.await.expect("task").expect("read"), content()[..10]);
}

/// A relay whose far end is gone accepts connections and closes them: that is an outage too.
#[tokio::test]
async fn a_port_that_accepts_and_closes_is_an_outage() {
    let server = Server::start(Tree::sample(), |_| Act::Honest).await;
    let origin = server.connect().await;
    let address = server.stop().await;
    let _relay = Server::start_at(address, Tree::default(), |_| Act::Cut).await;
    let failing = async { while origin.root().await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(10), failing).await.expect("noticed long before the deadline");
}

#[tokio::test]
async fn metadata_travels_apart_from_bulk_reads() {
    let seen: Arc<Mutex<HashSet<(bool, usize)>>> = Arc::default();
    let by = Arc::clone(&seen);
    let server = Server::start(Tree::sample(), move |call| {
        if call.program == nfs3::PROGRAM && call.procedure != procedure::NULL {
            by.lock().expect("seen").insert((call.is(procedure::READ), call.connection));
        }
        Act::Honest
    })
    .await;
    let origin = NfsOrigin::connect(Config { nconnect: 4, ..server.config() }).await.expect("connect");
    // Until the others are up, everything takes the first.
    while server.calls(procedure::NULL) < 4 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    seen.lock().expect("seen").clear();
    let file = find(&*origin, "file").await;
    let reads = (0..32u64).map(|i| {
        let (origin, file) = (Arc::clone(&origin), file.clone());
        tokio::spawn(async move {
            origin.read(&file.reference, file.version, ByteRange::new(i, 9)).await.expect("read");
            origin.getattr(&file.reference).await.expect("getattr");
        })
    });
    for read in reads.collect::<Vec<_>>() {
        read.await.expect("task");
    }
    let seen = seen.lock().expect("seen").clone();
    let on = |bulk| seen.iter().filter(move |(b, _)| *b == bulk).map(|(_, c)| *c).collect::<HashSet<usize>>();
    assert_eq!(on(false).len(), 1, "one connection for metadata");
    assert_eq!(on(true).len(), 3, "all others for reads");
    assert!(on(false).is_disjoint(&on(true)));
}

#[tokio::test]
async fn calls_in_flight_on_a_connection_are_bounded() {
    let server =
        Server::start(
            Tree::sample(),
            |call| {
                if call.is(procedure::READ) { Act::Silence } else { Act::Honest }
            },
        )
        .await;
    let config = Config { calls_in_flight: 8, ..server.config() };
    let origin = NfsOrigin::connect(config).await.expect("connect");
    let file = find(&*origin, "file").await;
    let mut reads = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (origin, file) = (Arc::clone(&origin), file.clone());
        reads.spawn(async move { origin.read(&file.reference, file.version, ByteRange::new(0, 9)).await });
    }
    while server.calls(procedure::READ) < 8 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(server.calls(procedure::READ), 8);
    // Callers that leave make room for others.
    reads.abort_all();
    assert!(origin.root().await.is_ok());
}
