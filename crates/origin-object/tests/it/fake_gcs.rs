//! Google's dialect over the emulator that others wrote: what it has of the service, it has been told of by many clients.
//! Conditions it knows for uploads only, and metageneration not at all.

use bytes::Bytes;
use origin_object::{Config, CopySource, Metadata, Precondition, open_store_as};
use testkit::fake_gcs::FakeGcs;
use testkit::lab::{NotRun, not_run};
use types::{ByteRange, ErrorKind};

use crate::store::pattern;

#[tokio::test(flavor = "multi_thread")]
async fn the_calls_of_google_are_understood_by_an_emulator_of_others() {
    let emulator = match FakeGcs::start() {
        Ok(emulator) => emulator,
        Err(NotRun(reason)) => {
            return not_run("the_calls_of_google_are_understood_by_an_emulator_of_others", &reason);
        }
    };
    emulator.make_bucket("bucket");
    let url = format!("gs://bucket?endpoint={}", emulator.endpoint());
    let config = Config::from_url(&url).expect("a URL");
    let store = open_store_as(&config, Some(&[])).expect("nobody");
    let metadata = Metadata::from([("colour".to_owned(), "blue".to_owned())]);
    let told = async |key: &str| store.head(key).await.expect("answered").expect("there");

    let (key, text) = ("dir/a & é+%", Bytes::from_static(b"bytes"));
    assert_eq!(store.head(key).await.expect("answered"), None);
    let first = store.put(key, text.clone(), &metadata, Precondition::Absent).await.expect("stored").etag;
    let again = store.put(key, text.clone(), &metadata, Precondition::Absent).await;
    assert_eq!(again.expect_err("there already").kind(), ErrorKind::VersionChanged);
    let second =
        store.put(key, text.clone(), &metadata, Precondition::Unchanged(&first)).await.expect("stored").etag;
    let stale = store.put(key, text.clone(), &metadata, Precondition::Unchanged(&first)).await;
    assert_eq!(stale.expect_err("another").kind(), ErrorKind::VersionChanged);
    assert_eq!((told(key).await.etag, told(key).await.size), (second.clone(), 5));
    assert_eq!(told(key).await.metadata, metadata);
    let got = store.get(key, Some(&second), ByteRange::new(1, 3)).await.expect("read");
    assert_eq!((got.etag, got.size, &got.data[..]), (second.clone(), 5, &b"yte"[..]));
    let beyond = store.get(key, None, ByteRange::new(5, 1)).await;
    assert_eq!(beyond.expect_err("no byte").kind(), ErrorKind::VersionChanged);

    let source = CopySource { key, etag: &second, size: 5 };
    store.copy(source, "copy").await.expect("copied");
    assert_eq!((told("copy").await.metadata, told("copy").await.size), (metadata.clone(), 5));

    // More parts than one call composes, in two levels.
    let bytes = pattern(70 * 1000, 3);
    let upload = store.begin("large", &metadata).await.expect("begun");
    let mut parts = Vec::new();
    for (at, part) in bytes.chunks(1000).enumerate() {
        let part = Bytes::copy_from_slice(part);
        parts.push(store.part(&upload, at as u32 + 1, part).await.expect("stored"));
    }
    let etag = store.complete(&upload, &parts, Precondition::Always).await.expect("completed").etag;
    assert_eq!((told("large").await.etag, told("large").await.metadata), (etag.clone(), metadata));
    let whole = store.get("large", Some(&etag), ByteRange::new(0, 70_000)).await.expect("read");
    assert!(whole.data == bytes);

    let page = store.list("", true, None, 1000).await.expect("listed");
    let keys: Vec<_> = page.objects.iter().map(|one| one.key.as_str()).collect();
    assert_eq!((keys, page.prefixes), (vec!["copy", "large"], vec!["dir/".to_owned()]));
    store.delete("large", None).await.expect("removed");
    store.delete("large", None).await.expect("nothing to remove");
    assert_eq!(store.head("large").await.expect("answered"), None);
}
