//! A rename that had no answer is known by what it left, and asked for again it ends.

use super::*;
use crate::store::ObjectStore;

/// The copy, the removal, and the answer to that: each is lost once.
const CALLS: [&str; 3] = ["copied", "delete", "deleted"];

async fn interrupted(call: &'static str, to: &str) -> (Arc<Shelf>, Arc<ObjectOrigin>, Version) {
    let (shelf, origin) = tree().await;
    let was = origin.getattr(&reference("f")).await.expect("there").version;
    *shelf.fails.lock().unwrap() = Some((call, ErrorKind::Unavailable));
    assert_eq!(kind(origin.change(&rename("f", to)).await), ErrorKind::OutcomeUnknown, "{call}");
    (shelf, origin, was)
}

fn another(shelf: &Arc<Shelf>) -> Arc<ObjectOrigin> {
    let config = Config::from_url("s3://bucket?attributes=stored&anonymous=yes").unwrap();
    ObjectOrigin::over(config, shelf.clone()).unwrap()
}

async fn left(origin: &ObjectOrigin, from: &str, was: Version, there: &str) -> RenameLeftover {
    origin.left_by_rename(&reference(from), was, &reference(there)).await.expect("told")
}

fn stored_by_others(shelf: &Shelf, key: &str, data: &'static [u8]) {
    shelf.keep(key, Bytes::from_static(data), &Metadata::new(), Precondition::Always).unwrap();
}

/// By a program that keeps what is stored with an object, and so our mark.
fn replaced_by_others(shelf: &Shelf, key: &str, data: &'static [u8]) {
    let metadata = shelf.metadata(key).expect("there");
    shelf.keep(key, Bytes::from_static(data), &metadata, Precondition::Always).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_rename_that_had_no_answer_is_known_and_ends_when_it_is_asked_for_again() {
    for to in ["g", "d/x"] {
        for call in CALLS {
            let (shelf, origin, was) = interrupted(call, to).await;
            let expected = if call == "deleted" { RenameLeftover::Ours } else { RenameLeftover::SpareCopy };
            assert_eq!(left(&origin, "f", was, to).await, expected, "{call} {to}");
            assert_eq!(
                left(&origin, "d/y", Version([9; 16]), to).await,
                RenameLeftover::Foreign,
                "{call} {to}"
            );
            assert_eq!(left(&origin, "f", was, "d/y").await, RenameLeftover::Foreign, "{call} {to}");
            let told = origin.change(&rename("f", to)).await.expect("it is ended");
            let now = origin.getattr(&reference(to)).await.expect("there");
            assert_eq!(told.object.expect("told").version, now.version);
            let copied = Copied { reference: reference(to), before: was, after: now.version };
            assert_eq!(told.copied, [copied]);
            assert_eq!((shelf.bytes("f"), shelf.bytes(to).expect("there").as_ref()), (None, &b"old"[..]));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_others_store_after_an_interrupted_rename_is_theirs() {
    for (call, to, keeps_mark) in CALLS.iter().flat_map(|call| {
        ["g", "d/x"].into_iter().flat_map(move |to| [false, true].map(move |keeps| (*call, to, keeps)))
    }) {
        let (shelf, origin, was) = interrupted(call, to).await;
        match keeps_mark {
            true => replaced_by_others(&shelf, to, b"new"),
            false => stored_by_others(&shelf, to, b"new"),
        }
        let what = format!("{call} {to} keeps_mark={keeps_mark}");
        assert_eq!(left(&origin, "f", was, to).await, RenameLeftover::Foreign, "{what}");
        if call == "deleted" {
            assert_eq!(kind(origin.change(&rename("f", to)).await), ErrorKind::NotFound, "{what}");
        }
    }
}

/// All of it may have been done before: then the new name has all that is left of what was renamed.
#[tokio::test(start_paused = true)]
async fn nothing_goes_over_the_copy_when_others_stored_something_under_the_old_name() {
    for call in CALLS {
        let (shelf, origin, was) = interrupted(call, "g").await;
        stored_by_others(&shelf, "f", b"new");
        let now = origin.getattr(&reference("f")).await.expect("theirs").version;
        for known in [was, now] {
            assert_eq!(left(&origin, "f", known, "g").await, RenameLeftover::Foreign, "{call}");
            assert_eq!(left(&another(&shelf), "f", known, "g").await, RenameLeftover::Foreign, "{call}");
        }
    }
}

/// It had a rename of its own to there, as the one before it had.
#[tokio::test(start_paused = true)]
async fn the_rename_of_one_object_says_nothing_of_another_one_that_had_its_name() {
    let (_, origin) = tree().await;
    let was = origin.getattr(&reference("f")).await.expect("there").version;
    origin.change(&rename("f", "g")).await.expect("renamed");
    assert_eq!(left(&origin, "f", was, "g").await, RenameLeftover::Ours, "who did not hear of it asks");
    assert_eq!(left(&origin, "f", Version([9; 16]), "g").await, RenameLeftover::Foreign);
    create(&origin, "f").await.expect("made");
    write(&origin, "f", b"another", Stability::FileSync).await.expect("written");
    let now = origin.getattr(&reference("f")).await.expect("there").version;
    assert_eq!(left(&origin, "f", now, "g").await, RenameLeftover::Foreign);
}

#[tokio::test(start_paused = true)]
async fn the_copy_of_an_attempt_is_known_after_the_next_one_that_made_none() {
    let (shelf, origin, was) = interrupted("delete", "g").await;
    let copy = origin.getattr(&reference("g")).await.expect("there").version;
    *shelf.fails.lock().unwrap() = Some(("copy", ErrorKind::Unavailable));
    assert_eq!(kind(origin.change(&rename("f", "g")).await), ErrorKind::OutcomeUnknown);
    assert_eq!(origin.getattr(&reference("g")).await.expect("there").version, copy);
    // Nothing else tells it: it is no copy of what has no mark.
    for key in ["f", "g"] {
        assert!(shelf.metadata(key).expect("there").contains_key("forebay-draft"));
        shelf.forget_metadata(key);
    }
    assert_eq!(left(&origin, "f", was, "g").await, RenameLeftover::SpareCopy);
}

#[tokio::test(start_paused = true)]
async fn what_others_stored_while_it_was_renamed_is_told_as_theirs() {
    let (shelf, origin) = tree().await;
    let was = origin.getattr(&reference("f")).await.expect("there").version;
    let (reached, go) = shelf.stop_at("delete");
    let renamed = begin(&origin, rename("f", "g"));
    reached.await.unwrap();
    stored_by_others(&shelf, "f", b"new");
    let theirs = origin.getattr(&reference("f")).await.expect("theirs").version;
    *shelf.fails.lock().unwrap() = Some(("deleted", ErrorKind::Unavailable));
    go.send(()).unwrap();
    assert_eq!(kind(renamed.await.unwrap()), ErrorKind::OutcomeUnknown);
    assert_eq!(shelf.bytes("g").expect("there").as_ref(), b"new", "it went along");
    assert_eq!(left(&origin, "f", theirs, "g").await, RenameLeftover::Ours);
    let told = origin.change(&rename("f", "g")).await.expect("it is ended");
    let after = origin.getattr(&reference("g")).await.expect("there").version;
    assert_eq!(told.copied, [Copied { reference: reference("g"), before: theirs, after }]);
    assert_ne!(was, theirs);
}

/// Nothing is remembered then. A copy has our mark and each byte of what it is of; that it is our own nobody can say.
#[tokio::test(start_paused = true)]
async fn after_a_start_the_copy_of_an_interrupted_rename_is_known_beside_what_it_is_of() {
    for call in CALLS {
        let (shelf, _, was) = interrupted(call, "g").await;
        let again = another(&shelf);
        let expected = if call == "deleted" { RenameLeftover::Foreign } else { RenameLeftover::Ours };
        assert_eq!(left(&again, "f", was, "g").await, expected, "{call}");
        replaced_by_others(&shelf, "g", b"new");
        assert_eq!(left(&again, "f", was, "g").await, RenameLeftover::Foreign, "{call}");
        stored_by_others(&shelf, "g", b"old");
        assert_eq!(left(&again, "f", was, "g").await, RenameLeftover::Foreign, "{call}");
    }
}

/// It had no marker, and was there by this one object.
#[tokio::test(start_paused = true)]
async fn a_directory_that_an_interrupted_rename_emptied_stays() {
    let (shelf, origin) = tree().await;
    shelf.keep("e/z", Bytes::from_static(b"alone"), &Metadata::new(), Precondition::Always).unwrap();
    *shelf.fails.lock().unwrap() = Some(("deleted", ErrorKind::Unavailable));
    assert_eq!(kind(origin.change(&rename("e/z", "g")).await), ErrorKind::OutcomeUnknown);
    origin.change(&rename("e/z", "g")).await.expect("it is ended");
    assert_eq!(shelf.keys(), ["d/", "d/x", "d/y", "e/", "f", "g"]);
    assert!(shelf.head("g").await.unwrap().is_some());
}

/// All of the copies, some of the removals, all of these; and again in the next try.
#[tokio::test(start_paused = true)]
async fn a_rename_of_a_directory_that_had_no_answer_is_known_and_ends_when_it_is_asked_for_again() {
    for calls in [&["copy"][..], &["copied"], &["delete"], &["deleted"], &["copied", "delete", "deleted"]] {
        let (shelf, origin) = tree().await;
        let (there, was) = (reference("e/"), Version([9; 16]));
        let before = origin.getattr(&reference("d/y")).await.expect("there").version;
        for call in calls {
            *shelf.fails.lock().unwrap() = Some((call, ErrorKind::Unavailable));
            assert_eq!(kind(origin.change(&rename("d", "e")).await), ErrorKind::OutcomeUnknown, "{calls:?}");
            let is_there = shelf.keys().iter().any(|key| key.starts_with("e/"));
            let expected = if is_there { RenameLeftover::Ours } else { RenameLeftover::Foreign };
            assert_eq!(left(&origin, "d/", was, "e/").await, expected, "{calls:?}");
        }
        let told = origin.change(&rename("d", "e")).await.expect("it is ended");
        assert_eq!(told.object.expect("told").reference, there);
        assert_eq!(shelf.keys(), ["e/", "e/x", "e/y", "f"]);
        let after = origin.getattr(&reference("e/y")).await.expect("there").version;
        let copied = Copied { reference: reference("e/y"), before, after };
        assert!(told.copied.contains(&copied), "{calls:?}: {:?}", told.copied);
        // From now on it is a directory as any other.
        let (dir, called) = split("d");
        origin.change(&Change::Mkdir { dir, name: called, set: SetAttr::default() }).await.expect("made");
        assert_eq!(kind(origin.change(&rename("d", "e")).await), ErrorKind::NotEmpty);
    }
}

#[tokio::test(start_paused = true)]
async fn a_directory_in_which_others_store_something_is_no_work_of_an_interrupted_rename() {
    for key in ["e/x", "e/theirs"] {
        let (shelf, origin) = tree().await;
        let (reached, go) = shelf.stop_at("delete");
        let renamed = begin(&origin, rename("d", "e"));
        reached.await.unwrap();
        *shelf.fails.lock().unwrap() = Some(("deleted", ErrorKind::Unavailable));
        go.send(()).unwrap();
        assert_eq!(kind(renamed.await.unwrap()), ErrorKind::OutcomeUnknown);
        assert_eq!(left(&origin, "d/", Version([9; 16]), "e/").await, RenameLeftover::Ours);
        let data = Bytes::from_static(b"theirs");
        shelf.keep(key, data.clone(), &Metadata::new(), Precondition::Always).unwrap();
        assert_eq!(left(&origin, "d/", Version([9; 16]), "e/").await, RenameLeftover::Foreign, "{key}");
        origin.change(&rename("d", "e")).await.expect_err("it is not ours alone");
        assert_eq!(shelf.bytes(key), Some(data));
    }
}

#[tokio::test(start_paused = true)]
async fn what_others_store_in_a_directory_after_it_was_moved_goes_over_nothing() {
    for call in ["delete", "deleted"] {
        let (shelf, origin) = tree().await;
        *shelf.fails.lock().unwrap() = Some((call, ErrorKind::Unavailable));
        assert_eq!(kind(origin.change(&rename("d", "e")).await), ErrorKind::OutcomeUnknown, "{call}");
        stored_by_others(&shelf, "d/x", b"new");
        assert_eq!(left(&origin, "d/", Version([9; 16]), "e/").await, RenameLeftover::Foreign, "{call}");
        assert_eq!(kind(origin.change(&rename("d", "e")).await), ErrorKind::NotEmpty, "{call}");
        assert_eq!(shelf.bytes("d/x").expect("theirs").as_ref(), b"new", "{call}");
        assert_eq!(shelf.bytes("e/x").expect("ours").as_ref(), b"old", "{call}");
    }
}
