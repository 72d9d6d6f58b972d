//! Each call, as it is meant.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use peer::PeerClientConfig;
use peer::message::{
    ChangeNotice, CorruptReport, FeedNotice, FeedReason, FilledStripe, HaveRequest, PathRequest, ReadRole,
    ServedFrom,
};
use types::{ByteRange, Error, ErrorKind, FileId, JunctionId, OutageReason};

use crate::nodes::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_arrives_with_the_node_that_made_it() {
    let authority = authority();
    let node = TestNode::start(identity(&authority, 2), one()).await;
    let client = node.client(&identity(&authority, 1));
    assert_eq!(client.ping(SOON).await.expect("answered"), heartbeat_of(node.id()));
    let have = HaveRequest {
        file: FILE,
        version: VERSION,
        size: 1 << 40,
        junction: Some(JunctionId(3)),
        first: 99,
        stripes: 3,
    };
    assert_eq!(client.have(&have, SOON).await.expect("answered").percent, [99, 100, 0]);
    let path = PathRequest { junction: JunctionId(9), file: FILE };
    assert_eq!(client.path(&path, SOON).await.expect("answered").names, [&b"shots"[..], b"\xff.exr"]);
    let notice = ChangeNotice { files: (0..1024_u128).map(|id| FileId(id.to_be_bytes())).collect() };
    client.notice(notice.clone(), SOON).await.expect("taken");
    let stripe = FilledStripe {
        file: FILE,
        version: VERSION,
        size: SIZE,
        junction: JunctionId(9),
        reference: Bytes::from_static(b"\x00\xff"),
        stripe: 77,
        percent: 38,
        reason: FeedReason::Read,
        copies: None,
    };
    let feed = FeedNotice { filled: vec![stripe; 32] };
    client.feed(feed.clone(), SOON).await.expect("taken");
    let report = CorruptReport { file: FILE, version: VERSION, size: SIZE, blocks: vec![1, 2] };
    client.report_corrupt(report.clone(), SOON).await.expect("taken");
    let service = &node.service;
    assert_eq!(*service.callers.lock().expect("not poisoned"), [client_id(); 6]);
    assert_eq!(*service.notices.lock().expect("not poisoned"), [notice]);
    assert_eq!(*service.feeds.lock().expect("not poisoned"), [feed]);
    assert_eq!(*service.corrupt.lock().expect("not poisoned"), [report]);
    let too_many = ChangeNotice { files: vec![FILE; 1025] };
    assert_eq!(client.notice(too_many, SOON).await.expect_err("refused").kind(), ErrorKind::InvalidArgument);
    assert!(client.paths().iter().all(|path| !path.is_left), "a call that cannot be made is no failed path");
}

fn client_id() -> types::NodeId {
    types::NodeId(1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_arrive_whole_with_what_is_told_of_them() {
    let authority = authority();
    for us in [identity(&authority, 1), insecure(1)] {
        let them = if us.is_secure() { identity(&authority, 2) } else { insecure(2) };
        let node = TestNode::start(them, one()).await;
        let client = node.client(&us);
        for (offset, length) in
            [(0, 64 << 10), (0, PART), (PART, PART), (PART + (64 << 10), 512 << 10), (8 << 20, 1000)]
        {
            for role in [ReadRole::Rank, ReadRole::Primary, ReadRole::Holder] {
                let request = read_of(ByteRange::new(offset, length), role);
                let answer = client.read(&request, SOON).await.flatten().expect("bytes");
                assert!(answer.bytes == bytes_at(request.range), "{length} from {offset}");
                assert_eq!((answer.served_from, answer.map), (ServedFrom::Origin, MAP));
                assert_eq!(answer.distance.expect("it is known").latency, Duration::from_millis(221));
                assert_eq!(answer.checksums.len(), request.range.blocks().count());
            }
        }
        assert_eq!(node.service.reads.load(Ordering::Relaxed), 15);
        let left = || (node.in_flight)(ReadRole::Rank) + (node.in_flight)(ReadRole::Primary);
        eventually("nothing is in flight", || left() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_the_service_is_the_same_error_here_and_no_failed_path() {
    let authority = authority();
    let node = TestNode::start(identity(&authority, 2), one()).await;
    let client = node.client(&identity(&authority, 1));
    for kind in [ErrorKind::VersionChanged, ErrorKind::Stale, ErrorKind::Busy, ErrorKind::Corrupt] {
        node.service.read_by(move |_, _| async move { Err(Error::new(kind, "read", "it is as it is")) });
        let error = client.read(&small_part(), SOON).await.flatten().expect_err("refused");
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains("node 0000000000000002 says: read it is as it is"), "{error}");
    }
    let gone = || Error::outage(OutageReason::Credentials, "read", "the key was revoked");
    node.service.read_by(move |_, _| async move { Err(gone()) });
    let error = client.read(&small_part(), SOON).await.flatten().expect_err("refused");
    assert_eq!(error.outage_reason(), Some(OutageReason::Credentials));
    node.service.read_by(|_, mut request| async move {
        request.range.length -= 1;
        Ok(good_answer(&request))
    });
    let error =
        client.read(&small_part(), SOON).await.flatten().expect_err("a service that gives too little");
    assert_eq!(error.kind(), ErrorKind::Io);
    let paths = client.paths();
    assert_eq!((paths[0].failures, paths[0].is_left, paths[0].outstanding_bytes), (0, false, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_heartbeats_nor_small_calls_wait_behind_bulk() {
    let authority = authority();
    let node = TestNode::start(identity(&authority, 2), one()).await;
    let client = node.client(&identity(&authority, 1));
    node.service.read_by(|_, _| std::future::pending());
    let bulk = PeerClientConfig::default().bulk_connections as u64;
    let calls = bulk + 22;
    let reads: Vec<_> = (0..calls)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.read(&small_part(), SOON * 10).await.flatten().map(drop) })
        })
        .collect();
    eventually("all bulk connections are busy", || node.service.reads.load(Ordering::Relaxed) == bulk).await;
    assert_eq!(client.outstanding_bytes(), calls * (64 << 10));
    for _ in 0..10 {
        client.ping(Duration::from_secs(1)).await.expect("answered");
        client.notice(ChangeNotice { files: vec![FILE] }, Duration::from_secs(1)).await.expect("taken");
    }
    reads.iter().for_each(|read| read.abort());
    eventually("they are not waited for any more", || client.outstanding_bytes() == 0).await;
    eventually("the node has dropped them", || (node.in_flight)(ReadRole::Rank) == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_deadline_passed_is_dropped_on_both_sides() {
    struct Dropped(std::sync::Arc<std::sync::atomic::AtomicU64>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let authority = authority();
    let node = TestNode::start(identity(&authority, 2), one()).await;
    let client = node.client(&identity(&authority, 1));
    let dropped = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counts = dropped.clone();
    node.service.read_by(move |from, _| {
        let guard = Dropped(counts.clone());
        let left = from.deadline.saturating_duration_since(tokio::time::Instant::now());
        assert!(left <= Duration::from_millis(300), "the service is told: {left:?}");
        async move {
            let _guard = guard;
            std::future::pending().await
        }
    });
    let begun = std::time::Instant::now();
    let error =
        client.read(&small_part(), Duration::from_millis(300)).await.flatten().expect_err("no answer");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    eventually("the service's work is dropped", || dropped.load(Ordering::Relaxed) == 1).await;
    eventually("nothing is held", || (node.in_flight)(ReadRole::Rank) == 0).await;
    assert!(!client.paths()[0].is_left, "a slow answer says nothing of the path");
}
