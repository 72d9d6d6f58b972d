//! Who reads what from whom, while nothing changes.

use std::time::Duration;

use cluster::STRIPE_BYTES;
use node::ReadFrom;
use origin::Origin;
use peer::PeerClient;
use peer::message::{HaveRequest, ReadRequest, ReadRole, ReadUrgency};
use tokio::time::timeout;
use types::{BLOCK_SIZE, ByteRange, ErrorKind, NodeId, Result, Supplier};

use crate::nodes::*;

const NEVER: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn every_byte_is_read_once_from_the_origin_by_all_gateways_and_their_readers_together() {
    for copies in [1, 2, 3] {
        let cluster = TestCluster::start(Setup { copies, ..Setup::default() }).await;
        let files = cluster.files(5, 2 * MIB + 17).await;
        let truths = cluster.truths(&files).await;
        let mut readers = Vec::new();
        for node in &cluster.nodes {
            for (file, truth) in files.iter().zip(&truths) {
                for _ in 0..2 {
                    let (reader, truth) = (node.reader(file), truth.clone());
                    readers.push(tokio::spawn(async move {
                        assert!(reader.read_all().await.expect("read") == truth, "wrong bytes");
                    }));
                }
            }
        }
        for reader in readers {
            timeout(NEVER, reader).await.expect("in time").expect("right");
        }
        let unique: u64 = files.iter().map(|file| file.key.size).sum();
        assert_eq!(cluster.far_bytes(), unique, "{copies} copies; {}", cluster.told());
        let served: u64 = cluster.nodes.iter().map(|node| node.metrics.served_bytes.get()).sum();
        assert!(served >= unique, "what one read from afar the others had from it: {served}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_asks_who_keeps_the_stripe_and_that_one_the_primary() {
    let cluster = TestCluster::start(Setup { copies: 2, ..Setup::default() }).await;
    let file = cluster.file("file", MIB).await;
    let ranks = cluster.ranks(&file);
    let suppliers: Vec<Supplier> =
        ranks.iter().map(|at| cluster.nodes[*at].route(&file).supplier()).collect();
    assert_eq!(suppliers[..2], [Supplier::Origin, Supplier::Primary]);
    // The first that it asks may be either of the two that keep it.
    assert_ne!(suppliers[2], Supplier::Origin);
    let last = &cluster.nodes[ranks[2]];
    assert!(last.reader(&file).read_all().await.expect("read") == cluster.truth(&file).await);
    assert_eq!(cluster.far_bytes(), file.key.size);
    assert_eq!(last.metrics.reads.get_or_create(&node::FromLabels { from: ReadFrom::Around }).get(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_within_a_block_goes_the_way_of_its_stripe() {
    let cluster = TestCluster::start(Setup::default()).await;
    let file = cluster.file("file", MIB + 77).await;
    let (ranks, truth) = (cluster.ranks(&file), cluster.truth(&file).await);
    let gateway = &cluster.nodes[ranks[2]];
    let reader = gateway.reader(&file);
    for (offset, length) in [(4096, 4096), (MIB - 5, 40), (MIB + 70, 7), (70_000, 200_000), (1, 1)] {
        let read = reader.read(ByteRange::new(offset, length)).await.expect("read");
        assert!(read == truth[offset as usize..(offset + length) as usize], "{offset}");
    }
    for from in [ReadFrom::Origin, ReadFrom::Around] {
        let reads = gateway.metrics.reads.get_or_create(&node::FromLabels { from }).get();
        assert_eq!(reads, 0, "{from:?}: {}", cluster.told());
    }
    assert!(cluster.far_bytes() <= file.key.size, "{} of {}", cluster.far_bytes(), file.key.size);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lies_across_a_border_of_stripes_is_asked_of_the_primaries_of_both() {
    let cluster = TestCluster::start(Setup::default()).await;
    let file = cluster.file("long", STRIPE_BYTES + 4 * BLOCK_SIZE).await;
    let across = ByteRange::new(STRIPE_BYTES - 3 * BLOCK_SIZE, 6 * BLOCK_SIZE);
    for node in &cluster.nodes {
        let read = node.reader(&file).read(across).await.expect("read");
        let truth =
            cluster.memory.read(&file.object.reference, file.key.version, across).await.expect("there");
        assert!(read == truth, "wrong bytes");
    }
    // With what was read ahead, up to the end of the file.
    let most = 7 * BLOCK_SIZE;
    assert!(cluster.far_bytes() <= most, "{} bytes; {}", cluster.far_bytes(), cluster.told());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_origin_says_of_a_file_is_the_answer_and_is_not_asked_for_again() {
    let cluster = TestCluster::start(Setup { copies: 3, ..Setup::default() }).await;
    let old = cluster.file("file", 60_000).await;
    cluster.memory.write_file(b"/file", b"another version").expect("written");
    let last = cluster.ranks(&old)[2];
    let error = cluster.nodes[last].reader(&old).read(ByteRange::new(0, 1000)).await.expect_err("it is gone");
    assert_eq!(error.kind(), ErrorKind::VersionChanged, "{error}");
    assert_eq!(cluster.far_reads(), 1, "one node asked, and its answer was good for all");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_read_from_each_other_with_little_room_never_stop() {
    // Two parts of another node's answer are all that fits.
    let cluster = TestCluster::start(Setup { nodes: 2, inflight_max: 4 * MIB, ..Setup::default() }).await;
    let files = cluster.files(16, 4 * MIB).await;
    let truths = cluster.truths(&files).await;
    let mut readers = Vec::new();
    for node in &cluster.nodes {
        for (file, truth) in files.iter().zip(&truths) {
            let (reader, truth) = (node.reader(file), truth.clone());
            readers.push(tokio::spawn(async move {
                let parts = (0..8).map(|part| {
                    let reader = reader.clone();
                    tokio::spawn(async move {
                        reader.read(ByteRange::new(part * MIB / 2, MIB / 2)).await.expect("read")
                    })
                });
                let mut all = Vec::new();
                for part in parts.collect::<Vec<_>>() {
                    all.extend(part.await.expect("right"));
                }
                assert!(all == truth, "wrong bytes");
            }));
        }
    }
    for reader in readers {
        timeout(NEVER, reader).await.expect("they go on").expect("right");
    }
    assert_eq!(cluster.far_bytes(), 64 * MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_whose_maps_differ_make_no_circle() {
    let cluster = TestCluster::start(Setup { nodes: 2, copies: 1, ..Setup::default() }).await;
    let files = cluster.files(8, 2 * MIB).await;
    let truths = cluster.truths(&files).await;
    // Each takes the other one for the primary of everything.
    let (one, two) = (&cluster.nodes[0], &cluster.nodes[1]);
    assert!(one.view.advance(cluster.map(10, |id| if id == one.id { 0 } else { 1 << 40 })));
    assert!(two.view.advance(cluster.map(11, |id| if id == two.id { 0 } else { 1 << 40 })));
    let mut readers = Vec::new();
    for node in &cluster.nodes {
        for (file, truth) in files.iter().zip(&truths) {
            let (reader, truth) = (node.reader(file), truth.clone());
            assert_eq!(node.route(file).supplier(), Supplier::Primary);
            readers.push(tokio::spawn(async move {
                assert!(reader.read_all().await.expect("read") == truth, "wrong bytes");
            }));
        }
    }
    for reader in readers {
        timeout(NEVER, reader).await.expect("no circle").expect("right");
    }
}

/// A READ of all of a file of one block, by the map `map`.
fn read_of(file: &KnownFile, role: ReadRole, map: u64) -> ReadRequest {
    ReadRequest {
        file: file.key.file,
        version: file.key.version,
        size: file.key.size,
        range: ByteRange::new(0, file.key.size),
        junction: JUNCTION,
        reference: file.object.reference.0.clone(),
        role,
        hops: 0,
        urgency: ReadUrgency::Demand,
        map,
        copies: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_asked_as_the_primary_asks_the_origin_though_it_takes_another_one_for_the_primary() {
    for role in [ReadRole::Primary, ReadRole::Rank] {
        let cluster = TestCluster::start(Setup::default()).await;
        let file = cluster.file("file", BLOCK_SIZE).await;
        let ranks = cluster.ranks(&file);
        let (primary, last) = (&cluster.nodes[ranks[0]], &cluster.nodes[ranks[2]]);
        let request = read_of(&file, role, last.view.number());
        let answer = cluster.client(cluster.nodes[ranks[1]].id, ranks[2]).read(&request, NEVER).await;
        assert!(answer.flatten().expect("read").bytes == cluster.truth(&file).await);
        assert_eq!(cluster.far_bytes(), file.key.size);
        // As a rank it has the bytes from the primary.
        let by_primary = if role == ReadRole::Rank { file.key.size } else { 0 };
        assert_eq!(primary.metrics.served_bytes.get(), by_primary, "{role:?}");
    }
}

/// What each kind of READ, and then a HAVE, of a file of one block is answered.
async fn answers(client: &PeerClient, file: &KnownFile) -> Vec<Result<()>> {
    let (id, version, size) = (file.key.file, file.key.version, file.key.size);
    let mut answers = Vec::new();
    for role in [ReadRole::Rank, ReadRole::Primary, ReadRole::Holder] {
        let request = read_of(file, role, 0);
        answers.push(client.read(&request, NEVER).await.expect("it is asked").map(drop));
    }
    let request = HaveRequest { file: id, version, size, junction: None, first: 0, stripes: 1 };
    answers.push(client.have(&request, NEVER).await.map(drop));
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_not_in_the_map_gets_no_bytes_and_hears_of_none() {
    let cluster = TestCluster::start(Setup::default()).await;
    let file = cluster.file("file", BLOCK_SIZE).await;
    let primary = cluster.ranks(&file)[0];
    cluster.nodes[primary].reader(&file).read_all().await.expect("it is kept there now");
    let member = cluster.nodes[cluster.ranks(&file)[1]].id;
    let answered = answers(&cluster.client(member, primary), &file).await;
    assert!(answered.iter().all(Result::is_ok), "{answered:?}");
    for refused in answers(&cluster.client(NodeId(99), primary), &file).await {
        let error = refused.expect_err("it is not in the map");
        assert_eq!(error.kind(), ErrorKind::NotPermitted, "{error}");
    }
}
