//! Copies come into being, come back after a loss, and are counted.

use std::time::{Duration, Instant};

use cluster::NodeLabel;
use node::{CopyConfig, JunctionPlacement};
use tokio::time::sleep;

use crate::nodes::*;

const NEVER: Duration = Duration::from_secs(60);

/// Waits until `holds` is true, and says where the cluster stands if that never happens.
pub async fn until(cluster: &TestCluster, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        if begun.elapsed() > NEVER {
            let missing = |node: &TestNode| (node.id, node.metrics.copies_missing_bytes.get(), alarm(node));
            let missing: Vec<_> = cluster.nodes.iter().map(missing).collect();
            panic!("{what}: never; missing {missing:?}; {}", cluster.told());
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Stripes that this node counts as incomplete for too long.
pub fn alarm(node: &TestNode) -> u64 {
    let keeper = node.keeper.as_ref().expect("it makes copies");
    keeper.under_replicated().values().map(|missing| missing.stripes).sum()
}

/// Whether each of the files is whole at the first `copies` of its ranks, of which `gone` is none.
pub async fn is_kept(cluster: &TestCluster, files: &[KnownFile], copies: usize, gone: Option<usize>) -> bool {
    for file in files {
        let ranks = cluster.ranks(file).into_iter().filter(|at| Some(*at) != gone);
        for at in ranks.take(copies) {
            if cluster.nodes[at].cache.cached_bytes(&file.key).await < file.key.size {
                return false;
            }
        }
    }
    true
}

pub async fn read_at(cluster: &TestCluster, at: usize, files: &[KnownFile]) {
    for file in files {
        let read = cluster.nodes[at].reader(file).read_all().await.expect("read");
        assert!(read == cluster.truth(file).await, "wrong bytes at node {at}");
    }
}

pub fn bytes_of(files: &[KnownFile]) -> u64 {
    files.iter().map(|file| file.key.size).sum()
}

fn copying() -> CopyConfig {
    CopyConfig::default()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_read_through_one_gateway_comes_to_all_that_keep_it_and_from_afar_once() {
    for copies in [2, 3] {
        let setup = Setup { copies, copying: Some(copying()), ..Setup::default() };
        let cluster = TestCluster::start(setup).await;
        let files = cluster.files(6, 2 * MIB + 17).await;
        read_at(&cluster, 0, &files).await;
        until(&cluster, "all copies are there", async || is_kept(&cluster, &files, copies, None).await).await;
        assert_eq!(cluster.far_bytes(), bytes_of(&files), "{}", cluster.told());
        let repaired: u64 = cluster.nodes.iter().map(|node| node.metrics.repair_bytes.get()).sum();
        assert!(repaired > 0, "nobody has asked all of them for all");
        until(&cluster, "no alarm", async || cluster.nodes.iter().all(|node| alarm(node) == 0)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_node_raises_the_alarm_and_the_others_make_its_copies_again_from_each_other() {
    let setup = Setup { nodes: 4, copies: 2, copying: Some(copying()), ..Setup::default() };
    let mut cluster = TestCluster::start(setup).await;
    let files = cluster.files(16, MIB).await;
    read_at(&cluster, 0, &files).await;
    until(&cluster, "all copies are there", async || is_kept(&cluster, &files, 2, None).await).await;
    let gone = 3;
    let lost = files.iter().filter(|file| cluster.ranks(file)[..2].contains(&gone)).count() as u64;
    assert!(lost > 0, "with sixteen files it keeps one at least");
    cluster.kill(gone);
    let missing = |cluster: &TestCluster| cluster.nodes[..gone].iter().map(alarm).sum::<u64>();
    let id = cluster.nodes[gone].id;
    let is_passed_over = || cluster.nodes[..gone].iter().all(|node| node.view.is_passed_over(id));
    until(&cluster, "it is passed over", async || is_passed_over()).await;
    // That takes 3.6 s at most; the alarm is to be up 10 s after the loss.
    let noticed = Instant::now();
    until(&cluster, "the alarm is raised for all", async || missing(&cluster) == lost).await;
    assert!(noticed.elapsed() < Duration::from_secs(6), "{:?}", noticed.elapsed());
    cluster.publish_without(gone);
    until(&cluster, "all copies are there again", async || is_kept(&cluster, &files, 2, Some(gone)).await)
        .await;
    until(&cluster, "the alarm is cleared", async || missing(&cluster) == 0).await;
    for at in 0..gone {
        read_at(&cluster, at, &files).await;
    }
    assert_eq!(cluster.far_bytes(), bytes_of(&files), "{}", cluster.told());
    until(&cluster, "all are counted with two copies", async || {
        let labels = |copies| node::CopiesLabels { copies };
        let of = |copies| {
            let counted = |node: &TestNode| node.metrics.stripes.get_or_create(&labels(copies)).get();
            cluster.nodes[..gone].iter().map(counted).sum::<i64>()
        };
        (of(0), of(1), of(2)) == (0, 0, files.len() as i64)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_node_fills_up_from_the_others() {
    for copies in [1, 2] {
        let setup = Setup { nodes: 2, copies, copying: Some(copying()), ..Setup::default() };
        let mut cluster = TestCluster::start(setup).await;
        let files = cluster.files(12, MIB).await;
        read_at(&cluster, 0, &files).await;
        until(&cluster, "all copies are there", async || is_kept(&cluster, &files, copies, None).await).await;
        cluster.add().await;
        cluster.publish();
        assert!(files.iter().any(|file| cluster.ranks(file)[..copies].contains(&2)));
        until(&cluster, "it is full", async || is_kept(&cluster, &files, copies, None).await).await;
        assert_eq!(cluster.far_bytes(), bytes_of(&files), "{}", cluster.told());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_returns_gets_what_changed_and_its_old_version_goes_nowhere() {
    let setup = Setup { nodes: 2, copies: 2, copying: Some(copying()), ..Setup::default() };
    let mut cluster = TestCluster::start(setup).await;
    let old = cluster.file("file", MIB).await;
    read_at(&cluster, 0, std::slice::from_ref(&old)).await;
    until(&cluster, "there are two", async || is_kept(&cluster, std::slice::from_ref(&old), 2, None).await)
        .await;
    cluster.kill(1);
    let id = cluster.nodes[1].id;
    until(&cluster, "it is passed over", async || cluster.nodes[0].view.is_passed_over(id)).await;
    cluster.memory.write_file(b"/file", &vec![7; 2 * MIB as usize]).expect("written");
    let new = cluster.known("file").await;
    read_at(&cluster, 0, std::slice::from_ref(&new)).await;
    cluster.restart(1).await;
    until(&cluster, "it has the new version", async || {
        is_kept(&cluster, std::slice::from_ref(&new), 2, None).await
    })
    .await;
    assert_eq!(cluster.nodes[0].cache.cached_bytes(&old.key).await, 0);
    assert_eq!(cluster.nodes[1].cache.cached_bytes(&old.key).await, 0);
    until(&cluster, "no alarm", async || cluster.nodes.iter().all(|node| alarm(node) == 0)).await;
    assert_eq!(cluster.far_bytes(), 3 * MIB, "{}", cluster.told());
}

#[tokio::test(flavor = "multi_thread")]
async fn more_copies_are_made_of_what_was_there_before_a_restart_of_all_and_the_alarm_says_so_meanwhile() {
    // Three seconds for what is to be copied.
    let copying = CopyConfig { alarm_after: Duration::ZERO, repair_rate: 4 * MIB, ..copying() };
    let setup = Setup { nodes: 2, copies: 1, copying: Some(copying), ..Setup::default() };
    let mut cluster = TestCluster::start(setup).await;
    let files = cluster.files(12, 2 * MIB).await;
    for file in &files {
        // Each at its primary alone.
        read_at(&cluster, cluster.ranks(file)[0], std::slice::from_ref(file)).await;
    }
    // What is known of the files is written down soon.
    let index_bytes = |cluster: &TestCluster| cluster.nodes.iter().map(TestNode::index_bytes).sum::<u64>();
    until(&cluster, "it is written down", async || index_bytes(&cluster) == 12 * 24).await;
    for at in [0, 1] {
        cluster.kill(at);
        cluster.restart(at).await;
    }
    for node in &cluster.nodes {
        node.view.place(JUNCTION, JunctionPlacement { copies: 2, topology: NodeLabel::root() });
    }
    until(&cluster, "the alarm is raised", async || cluster.nodes.iter().any(|node| alarm(node) > 0)).await;
    until(&cluster, "there are two", async || is_kept(&cluster, &files, 2, None).await).await;
    until(&cluster, "the alarm is cleared", async || cluster.nodes.iter().all(|node| alarm(node) == 0)).await;
    assert_eq!(cluster.far_bytes(), bytes_of(&files), "{}", cluster.told());
}

/// The others left it to that node to count the file, and it did not know whose the file was: what was missing stayed so.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_know_whose_a_file_is_learns_that_from_the_first_who_asks() {
    let setup = Setup { nodes: 3, copies: 2, copying: Some(copying()), ..Setup::default() };
    let mut cluster = TestCluster::start(setup).await;
    let file = cluster.file("file", MIB).await;
    let files = std::slice::from_ref(&file);
    let [first, second] = [0, 1].map(|rank| cluster.ranks(&file)[rank]);
    read_at(&cluster, first, files).await;
    until(&cluster, "there are two", async || is_kept(&cluster, files, 2, None).await).await;
    until(&cluster, "it is written down", async || cluster.nodes[first].index_bytes() > 0).await;
    cluster.kill(first);
    cluster.nodes[first].lose_index();
    cluster.restart(first).await;
    let id = cluster.nodes[first].id;
    until(&cluster, "it is back", async || !cluster.nodes[second].view.is_passed_over(id)).await;
    for node in &cluster.nodes {
        node.view.place(JUNCTION, JunctionPlacement { copies: 3, topology: NodeLabel::root() });
    }
    until(&cluster, "there are three", async || is_kept(&cluster, files, 3, None).await).await;
    assert_eq!(cluster.far_bytes(), MIB, "{}", cluster.told());
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_take_no_more_than_their_share_of_each_node_that_makes_or_sends_them() {
    let rate = 4 * MIB;
    let copying = CopyConfig { repair_rate: rate, ..copying() };
    let setup = Setup { copies: 3, copying: Some(copying), ..Setup::default() };
    let cluster = TestCluster::start(setup).await;
    let file = cluster.file("file", 10 * MIB).await;
    let ranks = cluster.ranks(&file);
    let begun = Instant::now();
    read_at(&cluster, ranks[0], std::slice::from_ref(&file)).await;
    // A burst, and one READ of each of those under way.
    let most = |elapsed: Duration| MIB + 4 * MIB + (elapsed.as_secs_f64() * rate as f64) as u64;
    until(&cluster, "both copies are there", async || {
        let made = ranks[1..].iter().map(|at| cluster.nodes[*at].metrics.repair_bytes.get());
        let sent = cluster.nodes[ranks[0]].metrics.served_bytes.get();
        for bytes in made.chain([sent]) {
            let most = most(begun.elapsed());
            assert!(bytes <= most, "{bytes} bytes of {most} after {:?}", begun.elapsed());
        }
        is_kept(&cluster, std::slice::from_ref(&file), 3, None).await
    })
    .await;
    assert!(begun.elapsed() > Duration::from_secs(3), "it was bounded at all");
}

/// A stripe takes long to copy, and its readers do not wait for that.
#[tokio::test(flavor = "multi_thread")]
async fn what_readers_fetch_while_its_stripe_is_copied_is_not_copied_once_more() {
    let copying = CopyConfig { repair_rate: 4 * MIB, ..copying() };
    let setup = Setup { copies: 2, copying: Some(copying), ..Setup::default() };
    let cluster = TestCluster::start(setup).await;
    let file = cluster.file("file", 24 * MIB).await;
    let ranks = cluster.ranks(&file);
    let copied = || cluster.nodes[ranks[1]].metrics.repair_bytes.get();
    read_at(&cluster, ranks[0], std::slice::from_ref(&file)).await;
    until(&cluster, "a copy is begun", async || copied() > 0).await;
    read_at(&cluster, ranks[1], std::slice::from_ref(&file)).await;
    // It goes on while the rate lets it, and no longer than a second.
    let mut last = 0;
    until(&cluster, "nothing is copied any more", async || {
        let before = std::mem::replace(&mut last, copied());
        sleep(Duration::from_secs(1)).await;
        before == copied()
    })
    .await;
    assert!(is_kept(&cluster, std::slice::from_ref(&file), 2, None).await);
    assert!(copied() < 12 * MIB, "{} bytes were copied, and readers had fetched the rest", copied());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_node_takes_no_more_than_its_share_however_many_send() {
    let rate = 3 * MIB;
    let copying = CopyConfig { repair_rate: rate, ..copying() };
    let setup = Setup { copies: 2, copying: Some(copying), ..Setup::default() };
    let mut cluster = TestCluster::start(setup).await;
    let files = cluster.files(16, 2 * MIB).await;
    read_at(&cluster, 0, &files).await;
    until(&cluster, "all copies are there", async || is_kept(&cluster, &files, 2, None).await).await;
    cluster.add().await;
    let begun = Instant::now();
    cluster.publish();
    let new = &cluster.nodes[3];
    // A burst, and one READ of each of those under way.
    let most = |elapsed: Duration| MIB + 4 * MIB + (elapsed.as_secs_f64() * rate as f64) as u64;
    until(&cluster, "it is full", async || {
        let bytes = new.metrics.repair_bytes.get();
        let most = most(begun.elapsed());
        assert!(bytes <= most, "{bytes} bytes of {most} after {:?}", begun.elapsed());
        is_kept(&cluster, &files, 2, None).await
    })
    .await;
    assert!(new.metrics.repair_bytes.get() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_feed_forgot_the_next_scan_finds() {
    let copying = CopyConfig { fills_max: 1, ..copying() };
    let setup = Setup { nodes: 2, copies: 2, copying: Some(copying), ..Setup::default() };
    let mut cluster = TestCluster::start(setup).await;
    let files = cluster.files(24, 60_000).await;
    let mut readers = Vec::new();
    for file in &files {
        let reader = cluster.nodes[cluster.ranks(file)[0]].reader(file);
        readers.push(tokio::spawn(async move { reader.read_all().await.expect("read").len() }));
    }
    for reader in readers {
        assert_eq!(reader.await.expect("no panic"), 60_000);
    }
    let dropped = |cluster: &TestCluster| {
        cluster.nodes.iter().map(|node| node.metrics.dropped_fills.get()).sum::<i64>()
    };
    until(&cluster, "the feed forgot some", async || dropped(&cluster) > 0).await;
    cluster.publish();
    until(&cluster, "all copies are there", async || is_kept(&cluster, &files, 2, None).await).await;
    assert_eq!(cluster.far_bytes(), bytes_of(&files));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_disk_is_full_stops_asking_and_goes_on_when_there_is_room() {
    let copying = CopyConfig { alarm_after: Duration::ZERO, ..copying() };
    let setup = Setup { nodes: 2, copies: 2, copying: Some(copying), ..Setup::default() };
    let mut cluster = TestCluster::start(setup).await;
    let (good, full) = (0, 1);
    let begun = Instant::now();
    cluster.nodes[full].cache.set_limits(1 << 30, 1 << 60, None).expect("legal");
    let all = cluster.files(48, 4 * MIB).await;
    let files: Vec<KnownFile> = all.into_iter().filter(|file| cluster.ranks(file)[0] == good).collect();
    assert!(files.len() > 12, "half of them, about");
    read_at(&cluster, good, &files).await;
    until(&cluster, "it is known to be full", async || cluster.nodes[full].cache.stats().degraded.is_some())
        .await;
    // All is counted anew.
    cluster.publish();
    let bytes = bytes_of(&files) as i64;
    let metrics = cluster.nodes[good].metrics.clone();
    until(&cluster, "what has no room is counted", async || metrics.copies_no_room_bytes.get() == bytes)
        .await;
    until(&cluster, "and nothing else", async || alarm(&cluster.nodes[good]) == 0).await;
    // A read of each that was under way, in each five seconds.
    let most = 4 * MIB * (2 + begun.elapsed().as_secs() / 5);
    let sent = metrics.served_bytes.get();
    assert!(sent <= most && most < bytes_of(&files), "{sent} of {most}");
    assert_eq!(cluster.nodes[full].metrics.repair_bytes.get(), 0);
    cluster.nodes[full].cache.set_limits(1 << 30, 0, None).expect("legal");
    let id = cluster.nodes[full].id;
    until(&cluster, "there are copies", async || {
        // A change has the cluster looked at anew: else it is, after an hour.
        cluster.nodes[good]
            .view
            .place(JUNCTION, JunctionPlacement { copies: 2, topology: NodeLabel::root() });
        sleep(Duration::from_millis(200)).await;
        !cluster.nodes[good].view.is_passed_over(id) && is_kept(&cluster, &files, 2, None).await
    })
    .await;
    assert_eq!(cluster.far_bytes(), bytes_of(&files));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_caches_are_full_what_is_read_gets_its_copies_and_a_scan_pushes_out_nothing() {
    let copying = CopyConfig { alarm_after: Duration::ZERO, ..copying() };
    let setup =
        Setup { nodes: 2, copies: 2, copying: Some(copying), cache_size: 64 * MIB, ..Setup::default() };
    let mut cluster = TestCluster::start(setup).await;
    let old = cluster.files(100, MIB).await;
    for file in &old {
        read_at(&cluster, cluster.ranks(file)[0], std::slice::from_ref(file)).await;
    }
    // As a cache that is in use is: it has let go some of what it had.
    until(&cluster, "both are full", async || {
        cluster.nodes.iter().all(|node| node.cache.room_for_copies() == 0)
            && cluster.nodes.iter().all(|node| node.metrics.pulls_waiting.get() == 0)
    })
    .await;
    let new = cluster.file("new", MIB).await;
    let primary = cluster.ranks(&new)[0];
    read_at(&cluster, primary, std::slice::from_ref(&new)).await;
    until(&cluster, "it has its copies", async || {
        is_kept(&cluster, std::slice::from_ref(&new), 2, None).await
    })
    .await;
    // What the two hold differs by now, and that is nobody's fault.
    until(&cluster, "no alarm", async || cluster.nodes.iter().all(|node| alarm(node) == 0)).await;
    let repaired = |cluster: &TestCluster| {
        cluster.nodes.iter().map(|node| node.metrics.repair_bytes.get()).collect::<Vec<_>>()
    };
    let mut before = Vec::new();
    until(&cluster, "copying has come to its end", async || {
        before = repaired(&cluster);
        sleep(Duration::from_millis(500)).await;
        before == repaired(&cluster)
    })
    .await;
    for _ in 0..3 {
        let walks = |node: &TestNode| node.metrics.walks.get();
        let earlier: Vec<u64> = cluster.nodes.iter().map(walks).collect();
        cluster.publish();
        until(&cluster, "all is looked at", async || {
            cluster.nodes.iter().zip(&earlier).all(|(node, earlier)| walks(node) > *earlier)
        })
        .await;
    }
    assert_eq!(repaired(&cluster), before);
    assert!(cluster.nodes.iter().any(|node| node.metrics.copies_no_room_bytes.get() > 0), "it was seen");
}
