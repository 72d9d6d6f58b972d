//! A rename that had no answer is known by what it left, and asked for again it ends.

use super::*;
use crate::store::Store;

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

#[tokio::test(start_paused = true)]
async fn a_rename_that_had_no_answer_is_known_and_ends_when_it_is_asked_for_again() {
    for to in ["g", "d/x"] {
        for call in CALLS {
            let (shelf, origin, was) = interrupted(call, to).await;
            let (from, there) = (reference("f"), reference(to));
            assert!(origin.is_moved(&from, was, &there).await.unwrap(), "{call} {to}");
            assert!(!origin.is_moved(&reference("d/y"), Version([9; 16]), &there).await.unwrap());
            assert!(!origin.is_moved(&from, was, &reference("d/y")).await.unwrap());
            let told = origin.change(&rename("f", to)).await.expect("it is ended");
            let now = origin.getattr(&there).await.expect("there");
            assert_eq!(told.object.expect("told").version, now.version);
            assert_eq!(told.copied, [Copied { reference: there, before: was, after: now.version }]);
            assert_eq!((shelf.bytes("f"), shelf.bytes(to).expect("there").as_ref()), (None, &b"old"[..]));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_others_store_after_an_interrupted_rename_is_theirs() {
    for call in CALLS {
        for to in ["g", "d/x"] {
            let (shelf, origin, was) = interrupted(call, to).await;
            shelf.keep(to, Bytes::from_static(b"new"), &Metadata::new(), Condition::Always).unwrap();
            assert!(!origin.is_moved(&reference("f"), was, &reference(to)).await.unwrap(), "{call} {to}");
            if call == "deleted" {
                assert_eq!(kind(origin.change(&rename("f", to)).await), ErrorKind::NotFound);
            }
        }
    }
}

/// Nothing is remembered then. A copy has what we marked its bytes by.
#[tokio::test(start_paused = true)]
async fn after_a_start_the_copy_of_an_interrupted_rename_is_known_beside_what_it_is_of() {
    for call in CALLS {
        let (shelf, _, was) = interrupted(call, "g").await;
        let (again, from, to) = (another(&shelf), reference("f"), reference("g"));
        assert_eq!(again.is_moved(&from, was, &to).await.unwrap(), call != "deleted", "{call}");
        shelf.keep("g", Bytes::from_static(b"new"), &Metadata::new(), Condition::Always).unwrap();
        assert!(!again.is_moved(&from, was, &to).await.unwrap(), "{call}");
    }
}

/// It had no marker, and was there by this one object.
#[tokio::test(start_paused = true)]
async fn a_directory_that_an_interrupted_rename_emptied_stays() {
    let (shelf, origin) = tree().await;
    shelf.keep("e/z", Bytes::from_static(b"alone"), &Metadata::new(), Condition::Always).unwrap();
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
        let (from, there, was) = (reference("d/"), reference("e/"), Version([9; 16]));
        let before = origin.getattr(&reference("d/y")).await.expect("there").version;
        for call in calls {
            *shelf.fails.lock().unwrap() = Some((call, ErrorKind::Unavailable));
            assert_eq!(kind(origin.change(&rename("d", "e")).await), ErrorKind::OutcomeUnknown, "{calls:?}");
            let is_there = shelf.keys().iter().any(|key| key.starts_with("e/"));
            assert_eq!(origin.is_moved(&from, was, &there).await.unwrap(), is_there, "{calls:?}");
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
        assert!(origin.is_moved(&reference("d/"), Version([9; 16]), &reference("e/")).await.unwrap());
        let data = Bytes::from_static(b"theirs");
        shelf.keep(key, data.clone(), &Metadata::new(), Condition::Always).unwrap();
        let is_moved = origin.is_moved(&reference("d/"), Version([9; 16]), &reference("e/")).await.unwrap();
        assert!(!is_moved, "{key}");
        origin.change(&rename("d", "e")).await.expect_err("it is not ours alone");
        assert_eq!(shelf.bytes(key), Some(data));
    }
}
