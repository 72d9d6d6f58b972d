//! Bytes that are altered on the way, or wrong where they come from: an error, and never served.

use std::sync::atomic::Ordering;

use peer::PeerClientConfig;
use peer::message::CorruptReport;
use types::ErrorKind;

use crate::nodes::*;
use crate::relay::TestRelay;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_that_was_altered_on_the_way_is_an_error_and_never_served() {
    let node = TestNode::start(insecure(2), one()).await;
    let relay = TestRelay::start("127.0.0.1:0", node.addresses[0]).await;
    let client = || client_to(node.id(), &[relay.address], &insecure(1), PeerClientConfig::default());
    let request = read_of(types::ByteRange::new(64 << 10, 256 << 10), peer::message::ReadRole::Rank);
    assert!(client().read(&request, SOON).await.flatten().expect("good").bytes == bytes_at(request.range));
    // Behind the head, in the third block of the answer.
    relay.alter_at.store((128 << 10) + 5000, Ordering::Relaxed);
    let error = client().read(&request, SOON).await.flatten().expect_err("altered");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let told = CorruptReport { file: FILE, version: VERSION, size: SIZE, blocks: vec![3] };
    let reports = || node.service.corrupt.lock().expect("not poisoned").clone();
    eventually("the sender is told", || reports() == [told.clone()]).await;
    // Each byte of the head and of the end: no answer, or the good one, but never other bytes.
    let (mut good, mut refused) = (0, 0);
    let length = 400 + request.range.length;
    for at in (1..700).step_by(7).chain((length - 100..length + 300).step_by(7)) {
        relay.alter_at.store(at, Ordering::Relaxed);
        match client().read(&request, std::time::Duration::from_secs(2)).await.flatten() {
            Ok(answer) => {
                assert!(answer.bytes == bytes_at(request.range), "byte {at}");
                good += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(good > 0 && refused > 20, "{good} good, {refused} refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_certificates_nothing_that_was_altered_arrives_at_all() {
    let authority = authority();
    let node = TestNode::start(identity(&authority, 2), one()).await;
    let relay = TestRelay::start("127.0.0.1:0", node.addresses[0]).await;
    let us = identity(&authority, 1);
    for at in [10, 700, 20_000] {
        relay.alter_at.store(at, Ordering::Relaxed);
        let client = client_to(node.id(), &[relay.address], &us, PeerClientConfig::default());
        assert!(client.read(&small_part(), SOON).await.flatten().is_err(), "byte {at}");
    }
    relay.alter_at.store(0, Ordering::Relaxed);
    let client = client_to(node.id(), &[relay.address], &us, PeerClientConfig::default());
    assert!(
        client.read(&small_part(), SOON).await.flatten().expect("good").bytes == bytes_at(small_part().range)
    );
    assert!(node.service.corrupt.lock().expect("not poisoned").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_where_it_comes_from_is_refused_and_told() {
    let authority = authority();
    let node = TestNode::start(identity(&authority, 2), one()).await;
    let client = node.client(&identity(&authority, 1));
    // Checksums as they stand beside the bytes on a disk, on which a bit has changed.
    node.service.read_by(|_, request| async move {
        let mut answer = good_answer(&request);
        let mut bytes = answer.bytes[1].to_vec();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        answer.bytes[1] = bytes.into();
        Ok(answer)
    });
    let error =
        client.read(&part(peer::message::ReadRole::Primary), SOON).await.flatten().expect_err("spoiled");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let told = CorruptReport { file: FILE, version: VERSION, size: SIZE, blocks: vec![63] };
    let reports = || node.service.corrupt.lock().expect("not poisoned").clone();
    eventually("the sender is told", || reports() == [told.clone()]).await;
    // The bytes of another version, with their own checksums.
    node.service.read_by(|_, mut request| async move {
        request.version = types::Version([2; 16]);
        Ok(good_answer(&request))
    });
    let error = client.read(&small_part(), SOON).await.flatten().expect_err("another version");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}
