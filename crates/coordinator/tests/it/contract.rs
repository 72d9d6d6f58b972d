//! What every coordinator keeps to.

use std::time::{Duration, Instant};

use coordinator::{
    Expected, KeyChange, LeaseState, MAX_SWAP_KEYS, Revision, Swap, SwapOutcome, WATCH_QUEUE, WatchEvent,
};
use types::ErrorKind;

use crate::history::View;
use crate::stage::{ATTEMPT, PATIENCE, Stage, TTL, contents, lost, next, put, soon, won};

pub async fn a_swap_that_lost_changes_nothing(stage: impl Stage) {
    let (one, other) = (stage.client().await, stage.client().await);
    let made = put(&*one, "a", "1").await;
    let kept = put(&*one, "b", "1").await;
    let changed = put(&*one, "a", "2").await;
    assert!(made < kept && kept < changed);
    let refused = [
        Swap::new().replace("a", made, "3", None),
        Swap::new().create("a", "3", None),
        Swap::new().delete("a", made),
        Swap::new().replace("b", kept, "3", None).replace("a", made, "3", None),
        Swap::new().create("c", "3", None).delete("b", kept).require("a", Expected::Absent),
        Swap::new().create("c", "3", None).require("nothing", Expected::At(made)),
    ];
    for swap in &refused {
        let loss = lost(other.swap(swap).await.expect("an outcome"));
        assert_eq!(loss.revision, changed, "nothing was counted");
        for (key, current) in swap.keys().iter().zip(&loss.current) {
            let revision = current.as_ref().map(|entry| (entry.key.as_str(), entry.revision));
            let expected = match key.key.as_str() {
                "a" => Some(("a", changed)),
                "b" => Some(("b", kept)),
                _ => None,
            };
            assert_eq!(revision, expected, "{swap:?}");
        }
    }
    let pairs = [("a", "2"), ("b", "1")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(contents(&*one, "").await, pairs);
    // The loser knows what to expect next.
    let loss = lost(other.swap(&refused[0]).await.expect("an outcome"));
    let now = loss.current[0].as_ref().expect("it is there").revision;
    won(other.swap(&Swap::new().replace("a", now, "3", None)).await.expect("an outcome"));
}

pub async fn a_swap_is_done_whole_at_one_revision(stage: impl Stage) {
    let client = stage.client().await;
    let old = put(&*client, "old", "1").await;
    let most = (0..MAX_SWAP_KEYS - 2)
        .fold(Swap::new(), |swap, n| swap.create(format!("many/{n:03}"), format!("{n}"), None))
        .delete("old", old)
        .require("absent", Expected::Absent);
    let revision = won(client.swap(&most).await.expect("an outcome"));
    let state = client.read("").await.expect("read");
    assert_eq!(state.revision, revision);
    assert_eq!(state.entries.len(), MAX_SWAP_KEYS - 2);
    assert!(state.entries.iter().all(|entry| entry.revision == revision));
    let loss = lost(client.swap(&most).await.expect("an outcome"));
    assert_eq!(loss.current.iter().flatten().count(), MAX_SWAP_KEYS - 2);
    let one_more = most.create("one more", "", None);
    let refused = client.swap(&one_more).await.expect_err("too many");
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
}

pub async fn a_read_has_all_below_its_prefix_and_nothing_else(stage: impl Stage) {
    let client = stage.client().await;
    assert_eq!(contents(&*client, "").await, []);
    // More than one answer of etcd has.
    for hundred in 0..11 {
        let keys = (0..MAX_SWAP_KEYS).map(|n| format!("many/{:04}", hundred * MAX_SWAP_KEYS + n));
        let swap = keys.fold(Swap::new(), |swap, key| swap.create(key, "v", None));
        won(client.swap(&swap).await.expect("an outcome"));
    }
    put(&*client, "many", "beside").await;
    let last = put(&*client, "many0", "behind").await;
    let state = client.read("many/").await.expect("read");
    assert_eq!((state.entries.len(), state.revision), (11 * MAX_SWAP_KEYS, last));
    assert!(state.entries.is_sorted_by(|one, other| one.key < other.key));
    assert_eq!(client.read("").await.expect("read").entries.len(), 11 * MAX_SWAP_KEYS + 2);
    assert_eq!(client.read("many/1099").await.expect("read").entries.len(), 1);
    assert_eq!(contents(&*client, "other/").await, []);
    assert!(client.heard().is_some_and(|ago| ago < PATIENCE));
}

pub async fn a_watch_tells_each_revision_once_and_in_order(stage: impl Stage) {
    let (writer, reader) = (stage.client().await, stage.client().await);
    let mut watch = reader.watch("w/", None);
    let reset = next(&mut watch).await;
    assert!(matches!(&reset, WatchEvent::Reset { state, went_back: false } if state.entries.is_empty()));
    let mut expected = Vec::new();
    for n in 0..20 {
        put(&*writer, "beside", &n.to_string()).await;
        expected.push(put(&*writer, &format!("w/{}", n % 3), &n.to_string()).await);
    }
    let now = reader.read("w/").await.expect("read");
    let swap = now.entries.iter().fold(Swap::new(), |swap, entry| swap.delete(&*entry.key, entry.revision));
    expected.push(won(writer.swap(&swap.create("w/new", "v", None)).await.expect("an outcome")));
    let mut view = View::default();
    view.take(reset);
    for revision in expected {
        let event = next(&mut watch).await;
        assert!(
            matches!(&event, WatchEvent::Changed { revision: told, .. } if *told == revision),
            "{event:?}"
        );
        view.take(event);
    }
    assert!(view.is(&reader.read("w/").await.expect("read")));
}

pub async fn a_watch_begins_with_all_there_is_or_behind_what_was_read(stage: impl Stage) {
    let client = stage.client().await;
    put(&*client, "w/1", "v").await;
    let state = client.read("w/").await.expect("read");
    let mut all = client.watch("w/", None);
    assert_eq!(next(&mut all).await, WatchEvent::Reset { state: state.clone(), went_back: false });
    let changed = put(&*client, "w/2", "v").await;
    let mut behind = client.watch("w/", Some(state.revision));
    for watch in [&mut all, &mut behind] {
        match next(watch).await {
            WatchEvent::Changed { revision, changes } => {
                assert_eq!(revision, changed);
                assert!(matches!(&changes[..], [KeyChange::Put(entry)] if entry.key == "w/2"), "{changes:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}

pub async fn a_watch_behind_a_compaction_reads_anew(mut stage: impl Stage) {
    let client = stage.client().await;
    let old = put(&*client, "w/1", "old").await;
    for n in 0..5 {
        put(&*client, "w/1", &n.to_string()).await;
    }
    stage.compact();
    let mut watch = client.watch("w/", Some(old));
    let state = client.read("w/").await.expect("read");
    assert_eq!(next(&mut watch).await, WatchEvent::Reset { state: state.clone(), went_back: false });
    let revision = put(&*client, "w/1", "new").await;
    assert!(matches!(next(&mut watch).await, WatchEvent::Changed { revision: told, .. } if told == revision));
}

pub async fn a_watch_that_nobody_reads_loses_nothing(stage: impl Stage) {
    let client = stage.client().await;
    let mut watch = client.watch("w/", None);
    let mut view = View::default();
    view.take(next(&mut watch).await);
    let count = 4 * WATCH_QUEUE;
    for n in 0..count {
        put(&*client, "w/1", &n.to_string()).await;
    }
    for _ in 0..count {
        view.take(next(&mut watch).await);
    }
    assert_eq!(view.resets, 1);
    assert!(view.is(&client.read("w/").await.expect("read")));
}

pub async fn the_keys_of_a_killed_holder_end_with_its_lease(stage: impl Stage) {
    let client = stage.client().await;
    let mut watch = client.watch("alive/", None);
    let mut view = View::default();
    view.take(next(&mut watch).await);
    stage.dead_holder("alive/1").await;
    view.take(next(&mut watch).await);
    assert_eq!(view.keys.len(), 1, "it is there while its lease lasts");
    stage.pass(TTL + Duration::from_millis(100)).await;
    view.take(next(&mut watch).await);
    assert!(view.keys.is_empty());
    assert_eq!(contents(&*client, "").await, []);
}

pub async fn a_lease_that_is_held_outlives_its_length(stage: impl Stage) {
    let client = stage.client().await;
    let lease = client.grant(TTL).await.expect("a lease");
    assert!(lease.ttl() >= TTL);
    won(client.swap(&Swap::new().create("k", "v", Some(lease.id()))).await.expect("an outcome"));
    for _ in 0..6 {
        stage.pass(TTL / 2).await;
        assert_eq!(lease.state(), LeaseState::Held);
        assert!(lease.remaining() > Duration::ZERO && lease.remaining() <= lease.ttl());
    }
    let state = client.read("k").await.expect("read");
    assert_eq!(state.entries[0].lease, Some(lease.id()));
}

pub async fn a_revoked_lease_takes_its_keys_with_it(stage: impl Stage) {
    let client = stage.client().await;
    let lease = client.grant(TTL).await.expect("a lease");
    let swap = Swap::new().create("a", "v", Some(lease.id())).create("b", "v", Some(lease.id()));
    let made = won(client.swap(&swap.create("c", "v", None)).await.expect("an outcome"));
    let mut watch = client.watch("", Some(made));
    let states = lease.states();
    lease.revoke().await.expect("revoked");
    match next(&mut watch).await {
        WatchEvent::Changed { revision, changes } => {
            assert_eq!(revision, Revision(made.0 + 1), "both at once");
            let mut keys: Vec<&str> = changes.iter().map(KeyChange::key).collect();
            keys.sort_unstable();
            assert_eq!(keys, ["a", "b"]);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(*states.borrow(), LeaseState::Held, "who revokes it is told nothing");
    assert_eq!(contents(&*client, "").await.len(), 1);
}

pub async fn a_lease_of_no_length_or_of_more_than_a_day_is_refused(stage: impl Stage) {
    let client = stage.client().await;
    for length in [Duration::ZERO, Duration::from_secs(86_401), Duration::MAX] {
        let error = client.grant(length).await.expect_err("no such lease");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
}

pub async fn a_lease_that_is_dropped_ends_by_itself(stage: impl Stage) {
    let client = stage.client().await;
    let lease = client.grant(TTL).await.expect("a lease");
    won(client.swap(&Swap::new().create("a", "v", Some(lease.id()))).await.expect("an outcome"));
    drop(lease);
    stage.pass(TTL + Duration::from_millis(100)).await;
    soon("its key goes", async || contents(&*client, "").await.is_empty()).await;
}

pub async fn what_is_put_under_a_lease_that_has_ended_is_refused(stage: impl Stage) {
    let client = stage.client().await;
    let lease = client.grant(TTL).await.expect("a lease");
    let id = lease.id();
    lease.revoke().await.expect("revoked");
    let swap = Swap::new().create("b", "v", None).create("a", "v", Some(id));
    let refused = client.swap(&swap).await.expect_err("there is no such lease");
    assert_eq!(refused.kind(), ErrorKind::NotFound, "{refused}");
    assert_eq!(contents(&*client, "").await, []);
}

pub async fn a_swap_whose_answer_was_lost_is_read_back(stage: impl Stage) {
    let client = stage.client().await;
    let made = put(&*client, "a", "1").await;
    // One that replaces, one that makes.
    for swap in [Swap::new().replace("a", made, "lossy", None), Swap::new().create("b", "lossy", None)] {
        let lossy = stage.lossy_client().await;
        let outcome = lossy.swap(&swap).await.expect("it is known after all");
        stage.lose_no_more();
        let state = client.read(&swap.keys()[0].key).await.expect("read");
        assert_eq!(outcome, SwapOutcome::Won(state.entries[0].revision));
        assert_eq!(&state.entries[0].value[..], b"lossy");
    }
    // One that only deletes leaves nothing to know it by.
    let at = client.read("a").await.expect("read").entries[0].revision;
    let lossy = stage.lossy_client().await;
    let unknown = lossy.swap(&Swap::new().delete("a", at)).await.expect_err("nobody knows");
    stage.lose_no_more();
    assert_eq!(unknown.kind(), ErrorKind::OutcomeUnknown, "{unknown}");
    assert_eq!(contents(&*client, "a").await, []);
}

pub async fn an_outage_ends_calls_with_an_error_and_watches_go_on_behind_it(mut stage: impl Stage) {
    let client = stage.client().await;
    put(&*client, "w/1", "v").await;
    let lease = client.grant(TTL).await.expect("a lease");
    won(client.swap(&Swap::new().create("w/held", "v", Some(lease.id()))).await.expect("an outcome"));
    let (mut all, mut beside) = (client.watch("w/", None), client.watch("nothing/", None));
    let mut view = View::default();
    view.take(next(&mut all).await);
    next(&mut beside).await;
    stage.set_away(true);
    let begun = Instant::now();
    let read = client.read("").await.expect_err("nobody is there");
    assert_eq!(read.kind(), ErrorKind::Unavailable, "{read}");
    let swap = client.swap(&Swap::new().create("w/2", "v", None)).await.expect_err("nobody is there");
    assert!(matches!(swap.kind(), ErrorKind::Unavailable | ErrorKind::OutcomeUnknown), "{swap}");
    let granted = client.grant(TTL).await.expect_err("nobody is there");
    assert_eq!(granted.kind(), ErrorKind::Unavailable, "{granted}");
    assert!(begun.elapsed() < 4 * ATTEMPT, "{:?}", begun.elapsed());
    stage.pass(TTL + Duration::from_millis(100)).await;
    assert_eq!(lease.state(), LeaseState::Doubtful);
    assert_eq!(lease.remaining(), Duration::ZERO);
    stage.set_away(false);
    soon("the lease is held again", async || lease.state() == LeaseState::Held).await;
    assert_eq!(contents(&*client, "w/").await.len(), 2, "its key is still there");
    let revision = put(&*client, "w/3", "v").await;
    while view.at < revision {
        view.take(next(&mut all).await);
    }
    assert!(view.is(&client.read("w/").await.expect("read")));
    assert_eq!((view.resets, view.went_back), (1, 0), "it goes on where it was");
    let untold = tokio::time::timeout(Duration::from_millis(100), beside.next()).await;
    assert!(untold.is_err(), "nothing has changed there: {untold:?}");
}

pub async fn revisions_that_go_back_are_told(mut stage: impl Stage) {
    let client = stage.client().await;
    put(&*client, "w/1", "old").await;
    stage.back_up();
    for n in 0..5 {
        put(&*client, "w/1", &n.to_string()).await;
    }
    let lease = client.grant(TTL).await.expect("a lease");
    let mut watch = client.watch("w/", None);
    let mut view = View::default();
    view.take(next(&mut watch).await);
    let before = view.at;
    stage.restore();
    match next(&mut watch).await {
        WatchEvent::Reset { state, went_back: true } => {
            assert!(state.revision < before, "{} and {before}", state.revision);
            assert_eq!(&state.entries[0].value[..], b"old");
        }
        other => panic!("{other:?}"),
    }
    // The lease is of a history that never was.
    let mut states = lease.states();
    let lost = tokio::time::timeout(PATIENCE, states.wait_for(|state| *state == LeaseState::Lost)).await;
    lost.expect("its holder is told").expect("it is");
    let revision = put(&*client, "w/1", "new").await;
    assert!(matches!(next(&mut watch).await, WatchEvent::Changed { revision: told, .. } if told == revision));
}

pub async fn what_was_wiped_is_told(mut stage: impl Stage) {
    let client = stage.client().await;
    let mut watch = client.watch("", None);
    next(&mut watch).await;
    let behind = put(&*client, "w/1", "v").await;
    next(&mut watch).await;
    stage.wipe();
    for mut watch in [watch, client.watch("w/", Some(behind))] {
        match next(&mut watch).await {
            WatchEvent::Reset { state, went_back: true } => assert!(state.entries.is_empty()),
            other => panic!("{other:?}"),
        }
    }
}
