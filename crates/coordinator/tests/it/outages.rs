//! What only real servers do: some of them stop, die, or come back with a history that overtook the old one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use coordinator::etcd::Etcd;
use coordinator::{Coordinator, EtcdConfig, LeaseState, MAX_SWAP_BYTES, Swap, WatchEvent};
use testkit::etcd::{url_of, with_etcd};
use types::ErrorKind;

use crate::history::View;
use crate::stage::{ATTEMPT, TTL, etcd_client, next, put, soon, won};

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_member_holds_up_no_keepalive() {
    with_etcd("a_stopped_member_holds_up_no_keepalive", 3, async |mut etcd| {
        // The one that leads is stopped, and one client asks it first.
        let leader = etcd.leader();
        let mut addresses = etcd.addresses();
        addresses.swap(0, leader);
        let asks_leader = etcd_client(&url_of(&addresses)).await;
        // A client that does nothing else: no other call finds out for the keepalive that the server is stopped.
        let keeps_only = etcd_client(&url_of(&addresses)).await;
        addresses.rotate_left(1);
        let asks_another = etcd_client(&url_of(&addresses)).await;
        let mut leases = Vec::new();
        for (n, client) in [&asks_leader, &keeps_only, &asks_another].into_iter().enumerate() {
            // A keepalive that waits for its deadline, and an election, leave some of this.
            let lease = client.grant(3 * TTL).await.expect("a lease");
            let swap = Swap::new().create(format!("alive/{n}"), "v", Some(lease.id()));
            won(client.swap(&swap).await.expect("an outcome"));
            leases.push(lease);
        }
        let mut watches = Vec::new();
        for client in [&*asks_leader, &*asks_another] {
            let made = client.read("alive/").await.expect("read").revision;
            watches.push((client.watch("alive/", Some(made)), client));
        }
        etcd.stop(leader);
        let begun = Instant::now();
        while begun.elapsed() < 5 * TTL {
            for lease in &leases {
                assert_eq!(lease.state(), LeaseState::Held, "after {:?}", begun.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        for (watch, client) in &mut watches {
            // Watches at the stopped one have moved on, too.
            let revision = put(*client, "alive/more", "v").await;
            loop {
                match next(watch).await {
                    WatchEvent::Changed { revision: told, .. } if told == revision => break,
                    WatchEvent::Changed { changes, .. } => {
                        let put = |change: &coordinator::KeyChange| {
                            matches!(change, coordinator::KeyChange::Put(_))
                        };
                        assert!(changes.iter().all(put), "no lease has ended: {changes:?}");
                    }
                    WatchEvent::Reset { went_back, .. } => assert!(!went_back),
                }
            }
        }
        etcd.go_on(leader);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_servers_of_which_one_is_killed_or_ended_go_on() {
    with_etcd("three_servers_of_which_one_is_killed_or_ended_go_on", 3, async |mut etcd| {
        let client = etcd_client(&etcd.url()).await;
        let mut watch = client.watch("w/", None);
        let mut view = View::default();
        view.take(next(&mut watch).await);
        for turn in 0..6 {
            let index = turn % 3;
            // One that is ended closes the streams of watches cleanly.
            if turn < 3 {
                etcd.kill(index)
            } else {
                etcd.end(index)
            }
            let mut last = Default::default();
            for n in 0..5 {
                last = put_again(&client, "w/1", &format!("{turn} {n}")).await;
            }
            while view.at < last {
                view.take(next(&mut watch).await);
            }
            etcd.start_again(index);
        }
        assert!(view.is(&client.read("w/").await.expect("read")));
        assert_eq!((view.resets, view.went_back), (1, 0));
    })
    .await;
}

/// An election may end a call with an error; who asks again is answered.
async fn put_again(client: &Arc<dyn Coordinator>, key: &str, value: &str) -> coordinator::Revision {
    let begun = Instant::now();
    loop {
        let state = match client.read(key).await {
            Ok(state) => state,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                assert!(begun.elapsed() < Duration::from_secs(10), "{error}");
                continue;
            }
        };
        let swap = match state.entries.first() {
            Some(entry) if entry.value == value => return entry.revision,
            Some(entry) => Swap::new().replace(key, entry.revision, value.to_owned(), None),
            None => Swap::new().create(key, value.to_owned(), None),
        };
        match client.swap(&swap).await {
            Ok(outcome) => return won(outcome),
            Err(error) => {
                assert!(
                    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::OutcomeUnknown),
                    "{error}"
                );
                assert!(begun.elapsed() < Duration::from_secs(10), "{error}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_to_servers_that_are_stopped_ends_by_its_deadline_and_names_them() {
    with_etcd(
        "a_call_to_servers_that_are_stopped_ends_by_its_deadline_and_names_them",
        3,
        async |mut etcd| {
            let client = etcd_client(&etcd.url()).await;
            put(&*client, "a", "v").await;
            (0..3).for_each(|index| etcd.stop(index));
            let begun = Instant::now();
            let error = client.read("a").await.expect_err("nobody answers");
            assert!(begun.elapsed() < 3 * ATTEMPT + ATTEMPT / 2, "{:?}", begun.elapsed());
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            for address in etcd.addresses() {
                let told = format!("http://{address}: no answer within");
                assert_eq!(error.to_string().matches(&told).count(), 1, "each once: {error}");
            }
            let begun = Instant::now();
            let unknown = client.swap(&Swap::new().create("b", "v", None)).await.expect_err("nobody answers");
            assert_eq!(unknown.kind(), ErrorKind::OutcomeUnknown, "it may have been taken: {unknown}");
            assert!(begun.elapsed() < 4 * ATTEMPT + ATTEMPT / 2, "{:?}", begun.elapsed());
            (0..3).for_each(|index| etcd.go_on(index));
            soon("they answer again", async || client.read("a").await.is_ok()).await;
            etcd.kill_all();
            let error = client.swap(&Swap::new().create("c", "v", None)).await.expect_err("nobody is there");
            let fresh = etcd_client(&etcd.url()).await;
            let refused = fresh.swap(&Swap::new().create("c", "v", None)).await.expect_err("nobody is there");
            assert_eq!(refused.kind(), ErrorKind::Unavailable, "it was sent to nobody: {refused} ({error})");
            assert!(refused.to_string().contains("refused"), "it says why: {refused}");
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_history_that_has_overtaken_the_old_one_is_told() {
    with_etcd("a_restored_history_that_has_overtaken_the_old_one_is_told", 1, async |mut etcd| {
        let client = etcd_client(&etcd.url()).await;
        put(&*client, "w/1", "first").await;
        let backup = etcd.snapshot("backup");
        put(&*client, "w/1", "of the old history").await;
        let mut quiet = client.watch("w/", None);
        next(&mut quiet).await;
        // While the watch cannot look, etcd is restored and goes beyond what was told: its revisions only seem to rise.
        let line = testkit::etcd::MuteLine::to(etcd.address(0));
        let cut_off = etcd_client(&url_of(&[line.address()])).await;
        let mut watch = cut_off.watch("w/", None);
        let before = next(&mut watch).await;
        line.set_mute(true);
        etcd.restore(&backup);
        for n in 0..5 {
            put(&*client, "beside", &n.to_string()).await;
        }
        let after = put(&*client, "w/2", "of the new history").await;
        line.set_mute(false);
        match (before, next(&mut watch).await) {
            (WatchEvent::Reset { state: before, .. }, WatchEvent::Reset { state, went_back }) => {
                assert!(went_back && before.revision < after);
                let values: Vec<&[u8]> = state.entries.iter().map(|entry| &entry.value[..]).collect();
                assert_eq!(values, [&b"first"[..], b"of the new history"]);
            }
            other => panic!("{other:?}"),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_at_a_server_without_a_leader_moves_on() {
    with_etcd("a_watch_at_a_server_without_a_leader_moves_on", 3, async |mut etcd| {
        // Its only server runs on, cut off from the others.
        let client = etcd_client(&url_of(&[etcd.address(0)])).await;
        let mut watch = client.watch("w/", None);
        next(&mut watch).await;
        put(&*client, "w/1", "v").await;
        next(&mut watch).await;
        etcd.stop(1);
        etcd.stop(2);
        soon("it refuses", async || {
            client.read("w/").await.is_err_and(|error| error.to_string().contains("no leader"))
        })
        .await;
        etcd.go_on(1);
        etcd.go_on(2);
        soon("it has a leader again", async || client.read("w/").await.is_ok()).await;
        let revision = put_again(&client, "w/1", "again").await;
        let told = next(&mut watch).await;
        assert!(matches!(told, WatchEvent::Changed { revision: told, .. } if told == revision), "{told:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_servers_that_were_restored_say_so() {
    with_etcd("three_servers_that_were_restored_say_so", 3, async |mut etcd| {
        let client = etcd_client(&etcd.url()).await;
        let kept = put(&*client, "w/1", "kept").await;
        let backup = etcd.snapshot("backup");
        put(&*client, "w/1", "gone").await;
        let mut watch = client.watch("w/", None);
        let mut view = View::default();
        view.take(next(&mut watch).await);
        etcd.restore(&backup);
        view.take(next(&mut watch).await);
        assert_eq!(view.went_back, 1);
        assert_eq!(view.keys["w/1"].revision, kept);
    })
    .await;
}

/// gRPC calls an answer that is too large "out of range", as etcd calls a revision that was compacted.
#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_that_does_not_fit_into_one_answer_is_read_by_smaller_pages() {
    with_etcd("a_prefix_that_does_not_fit_into_one_answer", 1, async |etcd| {
        let url = etcd.url().parse().expect("a good URL");
        let attempt = Duration::from_secs(20);
        let client = Etcd::new(EtcdConfig { attempt, ..EtcdConfig::new(url) }).await.expect("clients");
        const KEYS: usize = 66;
        let value = vec![b'v'; MAX_SWAP_BYTES];
        for n in 0..KEYS {
            let swap = Swap::new().create(format!("large/{n:03}"), value.clone(), None);
            won(client.swap(&swap).await.expect("an outcome"));
        }
        let state = client.read("large/").await.expect("read");
        let is_whole = |(n, entry): (usize, &coordinator::KeyEntry)| {
            entry.key == format!("large/{n:03}") && entry.value == value
        };
        assert!(state.entries.iter().enumerate().all(is_whole));
        assert_eq!(state.entries.len(), KEYS);
    })
    .await;
}
