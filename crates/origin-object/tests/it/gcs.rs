//! What is Google's store's alone: uploads that are objects, tokens, copies in several calls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use origin::Origin;
use origin_object::{
    Config, CopySource, Metadata, ObjectOrigin, ObjectStore, Precondition, UploadedPart, open_store_as,
};
use testkit::gcs::Gcs;
use testkit::lab::{NotRun, not_run};
use types::{ByteRange, ErrorKind, OutageReason, Stability};

use crate::store::{find, pattern, put, read_all, root};

/// A stand-in with this bucket, or "not run".
fn gcs(name: &str, bucket: &str) -> Option<Gcs> {
    match Gcs::start() {
        Ok(gcs) => {
            gcs.make_bucket(bucket);
            Some(gcs)
        }
        Err(NotRun(reason)) => {
            not_run(name, &reason);
            None
        }
    }
}

fn open(gcs: &Gcs, place: &str, more: &str) -> Arc<dyn ObjectStore> {
    let config = Config::from_url(&format!("gs://{place}?endpoint={}{more}", gcs.endpoint()));
    open_store_as(&config.expect("a URL"), Some(&[])).expect("opened")
}

async fn until(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_are_shown_by_no_listing_and_leave_nothing() {
    let Some(gcs) = gcs("uploads_are_shown_by_no_listing_and_leave_nothing", "bucket") else { return };
    // Who lists the whole bucket does not see what is uploaded to a prefix, either.
    let (store, above) = (open(&gcs, "bucket/show", ""), open(&gcs, "bucket", ""));
    let metadata = Metadata::from([("colour".to_owned(), "blue".to_owned())]);
    let bytes = pattern(1_100_000, 5);
    // Two levels of composing above the parts, the second one of two pieces.
    let upload = store.begin("show/large", &metadata).await.expect("begun");
    let mut parts: Vec<UploadedPart> = Vec::new();
    for (at, part) in bytes.chunks(1000).enumerate().rev() {
        let part = Bytes::copy_from_slice(part);
        parts.push(store.part(&upload, at as u32 + 1, part).await.expect("stored"));
    }
    parts.sort_by_key(|part| part.number);
    assert_eq!(gcs.keys("bucket").len(), 1100);
    for (store, prefix) in [(&store, "show/"), (&above, ""), (&above, "show/")] {
        for (by_directory, most) in [(true, 1000), (false, 1), (false, 1000)] {
            let page = store.list(prefix, by_directory, None, most).await.expect("listed");
            // That something lies in the prefix shows.
            let shown = if by_directory && prefix.is_empty() { vec!["show/".to_owned()] } else { Vec::new() };
            assert_eq!((page.objects.len(), page.prefixes, page.next), (0, shown, None), "{prefix}");
        }
    }
    let etag = store.complete(&upload, &parts, Precondition::Absent).await.expect("completed").etag;
    let told = store.head("show/large").await.expect("answered").expect("there");
    assert_eq!((told.etag, told.size, told.metadata), (etag.clone(), 1_100_000, metadata));
    let read = store.get("show/large", Some(&etag), ByteRange::new(0, 1_100_000)).await.expect("read");
    assert!(read.data == bytes);
    until("the parts go", || gcs.keys("bucket") == ["show/large"]).await;

    // A part that is the whole of an object is not read; one that is a range is, in pieces.
    let large = CopySource { key: "show/large", etag: &etag, size: 1_100_000 };
    let upload = store.begin("show/more", &Metadata::new()).await.expect("begun");
    let parts = [
        store.part_of(&upload, 1, large, ByteRange::new(0, 1_100_000)).await.expect("copied"),
        store.part_of(&upload, 2, large, ByteRange::new(7, 100)).await.expect("copied"),
    ];
    let refused = store.complete(&upload, &parts, Precondition::Unchanged(&etag)).await;
    assert_eq!(refused.expect_err("nothing is there").kind(), ErrorKind::VersionChanged);
    let etag = store.complete(&upload, &parts, Precondition::Absent).await.expect("completed").etag;
    let read = store.get("show/more", Some(&etag), ByteRange::new(0, 1_100_100)).await.expect("read");
    assert!(read.data == [&bytes[..], &bytes[7..107]].concat());

    // Given up.
    let upload = store.begin("show/never", &Metadata::new()).await.expect("begun");
    store.part(&upload, 1, Bytes::from_static(b"x")).await.expect("stored");
    store.abort(&upload).await.expect("given up");
    store.abort(&upload).await.expect("over");
    until("nothing else stays", || gcs.keys("bucket") == ["show/large", "show/more"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_behind_an_object_is_all_that_is_sent() {
    let Some(gcs) = gcs("what_is_written_behind_an_object_is_all_that_is_sent", "bucket") else { return };
    let config = Config::from_url(&format!("gs://bucket/logs?endpoint={}", gcs.endpoint())).expect("a URL");
    let origin = ObjectOrigin::connect_as(config, Some(&[])).await.expect("connected");
    let mut bytes = pattern(21 << 20, 1);
    let file = put(&origin, &root(), "log", &bytes).await.reference;
    let before = gcs.received();
    for line in 0..5 {
        let text = pattern(1000, line);
        let at = bytes.len() as u64;
        let data = Bytes::from(text.clone());
        origin.write(&file, at, data, Stability::FileSync).await.expect("written");
        bytes.extend_from_slice(&text);
    }
    let sent = gcs.received() - before;
    assert!(sent < 20_000, "{sent} bytes for 5,000");
    let log = find(&origin, "log").await.expect("there");
    assert!(read_all(&origin, &log).await.expect("read") == bytes);
    until("the parts go", || gcs.keys("bucket") == ["logs/log"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_of_uploads_goes_after_a_week() {
    let Some(gcs) = gcs("what_is_left_of_uploads_goes_after_a_week", "bucket") else { return };
    let store = open(&gcs, "bucket/show", "");
    let fresh = store.begin("show/fresh", &Metadata::new()).await.expect("begun");
    store.part(&fresh, 1, Bytes::from_static(b"x")).await.expect("stored");
    let old = |upload: &str, part: u32| format!("show/.forebay-uploads/{upload}/{part:05}");
    let keys = [old("20200101-ab", 1), old("20200101-ab", 2), old("20210101-cd", 1), old("notes", 1)];
    // Of another prefix, which is not ours to clean.
    let foreign = "other/.forebay-uploads/20200101-ab/00001".to_owned();
    for key in keys.iter().chain([&foreign]) {
        store.put(key, Bytes::new(), &Metadata::new(), Precondition::Absent).await.expect("stored");
    }
    // Somebody whose clock is years behind uploads this now.
    let theirs = old("20190101-ef", 1);
    store.put(&theirs, Bytes::new(), &Metadata::new(), Precondition::Absent).await.expect("stored");
    keys.iter().chain([&foreign]).for_each(|key| gcs.make_old("bucket", key));
    assert_eq!(gcs.keys("bucket").len(), 7);
    let page = store.list("show/", true, None, 1000).await.expect("listed");
    assert!(page.objects.is_empty() && page.prefixes.is_empty());
    until("the old ones go", || gcs.keys("bucket").len() <= 4).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let left = gcs.keys("bucket");
    assert!(
        left.contains(&foreign) && left.contains(&keys[3]) && left.contains(&theirs) && left.len() == 4,
        "{left:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn other_metadata_is_another_version_of_the_same_bytes() {
    let Some(gcs) = gcs("other_metadata_is_another_version_of_the_same_bytes", "bucket") else { return };
    let store = open(&gcs, "bucket", "");
    let metadata = |pairs: &[(&str, &str)]| -> Metadata {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let data = Bytes::from_static(b"bytes");
    let old = metadata(&[("Colour", "blue"), ("shape", "round"), ("mode", "1")]);
    let first = store.put("key", data.clone(), &old, Precondition::Absent).await.expect("stored").etag;
    let source = CopySource { key: "key", etag: &first, size: 5 };
    let new = metadata(&[("colour", "red"), ("mode", "1")]);
    let second = store.describe(source, &new).await.expect("described");
    let told = store.head("key").await.expect("answered").expect("there");
    assert_eq!((told.metadata, &told.etag), (new, &second));
    assert_eq!(second.split('/').next(), first.split('/').next(), "its bytes have the same generation");
    // Who saw the old one is told so, whatever is asked for.
    let all = ByteRange::new(0, 5);
    let stale = [
        store.get("key", Some(&first), all).await.map(drop),
        store.put("key", data, &old, Precondition::Unchanged(&first)).await.map(drop),
        store.describe(source, &old).await.map(drop),
        store.copy(source, "copy").await.map(drop),
    ];
    for refused in stale {
        assert_eq!(refused.expect_err("described since").kind(), ErrorKind::VersionChanged);
    }
    assert_eq!(store.get("key", Some(&second), all).await.expect("read").etag, second);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_takes_more_than_one_call_is_gone_on_with() {
    let Some(gcs) = gcs("a_copy_that_takes_more_than_one_call_is_gone_on_with", "moving") else { return };
    let store = open(&gcs, "moving", "");
    let metadata = Metadata::from([("colour".to_owned(), "blue".to_owned())]);
    let data = Bytes::from_static(b"bytes");
    let etag = store.put("from", data, &metadata, Precondition::Always).await.expect("stored").etag;
    let source = CopySource { key: "from", etag: &etag, size: 5 };
    let before = gcs.requests();
    let copied = store.copy(source, "to").await.expect("copied");
    assert_eq!(gcs.requests() - before, 2);
    let told = store.head("to").await.expect("answered").expect("there");
    assert_eq!((told.etag, told.metadata, told.size), (copied, metadata, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_kept_and_another_one_fetched_when_it_is_refused() {
    let name = "a_token_is_kept_and_another_one_fetched_when_it_is_refused";
    let Some(gcs) = gcs(name, "private-bucket") else { return };
    let nobody = open(&gcs, "private-bucket", "");
    let refused = nobody.list("", true, None, 1).await.expect_err("private");
    assert_eq!(refused.outage_reason(), Some(OutageReason::Credentials));
    let store = open(&gcs, "private-bucket", &format!("&credentials={}", gcs.credentials().display()));
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let store = store.clone();
        asked.spawn(async move { store.head("nothing").await });
    }
    while let Some(told) = asked.join_next().await {
        assert_eq!(told.expect("no panic").expect("answered"), None);
    }
    assert_eq!(gcs.issued(), 1, "all wait for the same one");
    gcs.revoke_all();
    let refused = store.head("nothing").await.expect_err("revoked");
    assert_eq!(refused.outage_reason(), Some(OutageReason::Credentials));
    assert!(!refused.to_string().contains("ya29"), "{refused}");
    assert_eq!(store.head("nothing").await.expect("answered"), None);
    assert_eq!(gcs.issued(), 2);
}
