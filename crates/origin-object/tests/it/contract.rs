//! What all stores do alike, asked of them without the file tree above.

use std::sync::Arc;

use bytes::Bytes;
use origin_object::{
    Config, CopySource, ListPage, Metadata, ObjectStore, Precondition, UploadedPart, open_store_as,
};
use testkit::azurite;
use testkit::stores::RealStore;
use types::{ByteRange, ErrorKind};

use crate::store::{Bucket, on_each_bucket, pattern};

const MIB: u64 = 1 << 20;

fn open(bucket: &Bucket, keys: &[(&'static str, &'static str)]) -> Arc<dyn ObjectStore> {
    let config = Config::from_url(&bucket.url("", "")).expect("a URL");
    open_store_as(&config, Some(keys)).expect("credentials")
}

async fn on_each_store<F: Future<Output = ()>>(name: &str, scenario: impl Fn(Arc<dyn ObjectStore>) -> F) {
    let scenario = &scenario;
    on_each_bucket(name, |bucket| async move {
        scenario(open(&bucket, &bucket.store.environment())).await;
    })
    .await;
}

/// With a SAS token too, or a token of a service account, where the store knows it.
async fn with_each_credential<F: Future<Output = ()>>(
    name: &str,
    scenario: impl Fn(Arc<dyn ObjectStore>) -> F,
) {
    let scenario = &scenario;
    on_each_bucket(name, |bucket| async move {
        scenario(open(&bucket, &bucket.store.environment())).await;
        if bucket.store.is_azure() {
            let sas: &'static str = Box::leak(azurite::sas().into_boxed_str());
            scenario(open(&bucket, &[("AZURE_STORAGE_SAS_TOKEN", sas)])).await;
        }
        if let RealStore::Gcs(gcs) = &bucket.store {
            let file = format!("&credentials={}", gcs.credentials().display());
            let config = Config::from_url(&bucket.url("", &file)).expect("a URL");
            scenario(open_store_as(&config, None).expect("credentials")).await;
        }
    })
    .await;
}

fn metadata(pairs: &[(&str, &str)]) -> Metadata {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn kind<T: std::fmt::Debug>(result: types::Result<T>) -> ErrorKind {
    result.expect_err("must fail").kind()
}

async fn put(store: &dyn ObjectStore, key: &str, text: &str) -> String {
    let data = Bytes::copy_from_slice(text.as_bytes());
    store.put(key, data, &Metadata::new(), Precondition::Always).await.expect("stored").etag
}

async fn pages(store: &dyn ObjectStore, prefix: &str, by_directory: bool, most: u32) -> Vec<ListPage> {
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(prefix, by_directory, after.as_deref(), most).await.expect("listed");
        after = page.next.clone();
        pages.push(page);
        if after.is_none() {
            return pages;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_made_only_where_its_condition_holds() {
    on_each_store("a_change_is_made_only_where_its_condition_holds", |store| async move {
        let key = "condition";
        store.delete(key, None).await.expect("nothing to remove");
        assert_eq!(store.head(key).await.expect("answered"), None);
        let none = Metadata::new();
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        let absent = kind(store.put(key, bytes("x"), &none, Precondition::Unchanged("\"0x1\"")).await);
        assert!(matches!(absent, ErrorKind::VersionChanged | ErrorKind::NotFound), "{absent:?}");
        let first = store.put(key, bytes("one"), &none, Precondition::Absent).await.expect("stored").etag;
        assert_eq!(
            kind(store.put(key, bytes("two"), &none, Precondition::Absent).await),
            ErrorKind::VersionChanged
        );
        let second =
            store.put(key, bytes("two"), &none, Precondition::Unchanged(&first)).await.expect("stored").etag;
        assert_eq!(
            kind(store.put(key, bytes("3"), &none, Precondition::Unchanged(&first)).await),
            ErrorKind::VersionChanged
        );
        let all = ByteRange::new(0, 3);
        assert_eq!(kind(store.get(key, Some(&first), all).await), ErrorKind::VersionChanged);
        let got = store.get(key, Some(&second), ByteRange::new(1, 2)).await.expect("read");
        assert_eq!((got.etag, got.size, &got.data[..]), (second.clone(), 3, &b"wo"[..]));
        assert_eq!(kind(store.get(key, None, ByteRange::new(3, 1)).await), ErrorKind::VersionChanged);
        let stale = CopySource { key, etag: &first, size: 3 };
        assert_eq!(kind(store.copy(stale, "copy").await), ErrorKind::VersionChanged);
        assert_eq!(kind(store.describe(stale, &none).await), ErrorKind::VersionChanged);
        let upload = store.begin(key, &none).await.expect("begun");
        assert_eq!(kind(store.part_of(&upload, 1, stale, all).await), ErrorKind::VersionChanged);
        let part = store.part(&upload, 1, bytes("three")).await.expect("stored");
        let parts = [part];
        let refused = store.complete(&upload, &parts, Precondition::Unchanged(&first)).await;
        assert_eq!(kind(refused), ErrorKind::VersionChanged);
        assert_eq!(store.head(key).await.expect("answered").expect("there").etag, second);
        let third =
            store.complete(&upload, &parts, Precondition::Unchanged(&second)).await.expect("completed").etag;
        let told = store.head(key).await.expect("answered").expect("there");
        assert_eq!((told.size, &told.etag), (5, &third));
        store.abort(&upload).await.expect("over");
        assert_eq!(kind(store.delete(key, Some(&second)).await), ErrorKind::VersionChanged);
        store.delete(key, Some(&told.etag)).await.expect("removed");
        assert_eq!(kind(store.get(key, None, all).await), ErrorKind::NotFound);
        let nothing = store.delete(key, Some(&told.etag)).await;
        assert!(nothing.is_ok() || kind(nothing) == ErrorKind::VersionChanged);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_has_every_key_once_as_it_was_stored() {
    with_each_credential("a_listing_has_every_key_once_as_it_was_stored", |store| async move {
        let odd = [
            " front",
            "back ",
            "a&b<c>",
            "100%",
            "plus+plus",
            "é",
            "q?x=1#y",
            "it's \"it\"",
            "dir/in",
            "dir/",
        ];
        for key in odd {
            put(&*store, &format!("odd/{key}"), key).await;
        }
        for most in [1, 3, 1000] {
            let pages = pages(&*store, "odd/", false, most).await;
            assert!(pages.iter().all(|page| page.objects.len() <= most as usize));
            let mut keys: Vec<_> = pages.iter().flat_map(|page| &page.objects).map(|one| &one.key).collect();
            keys.sort();
            let mut expected = odd.map(|key| format!("odd/{key}")).to_vec();
            expected.sort();
            assert_eq!(keys, expected.iter().collect::<Vec<_>>(), "{most} in a page");
        }
        let page = store.list("odd/", true, None, 1000).await.expect("listed");
        assert_eq!((page.objects.len(), page.prefixes), (odd.len() - 2, vec!["odd/dir/".to_owned()]));
        for listed in page.objects {
            let told = store.head(&listed.key).await.expect("answered").expect("there");
            assert_eq!(
                (listed.size, listed.etag, listed.modified.seconds),
                (told.size, told.etag, told.modified.seconds)
            );
            let got = store.get(&listed.key, None, ByteRange::new(0, listed.size)).await.expect("read");
            assert_eq!(listed.key.strip_prefix("odd/").map(str::as_bytes), Some(&got.data[..]));
        }
        assert_eq!(store.list("nothing/", true, None, 10).await.expect("listed"), ListPage::default());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_goes_with_a_copy_and_is_given_anew() {
    with_each_credential("metadata_goes_with_a_copy_and_is_given_anew", |store| async move {
        let (old, new) = (metadata(&[("colour", "blue"), ("mode", "7")]), metadata(&[("colour", "red")]));
        let data = Bytes::from_static(b"bytes");
        let etag = store.put("from & é", data, &old, Precondition::Always).await.expect("stored").etag;
        let source = CopySource { key: "from & é", etag: &etag, size: 5 };
        let told = async |key: &str| store.head(key).await.expect("answered").expect("there");
        assert_eq!(told("from & é").await.metadata, old);
        let copied = store.copy(source, "to/same").await.expect("copied");
        assert_eq!((told("to/same").await.metadata, told("to/same").await.etag), (old, copied));
        let described = store.describe(source, &new).await.expect("described");
        let after = told("from & é").await;
        assert_eq!((after.metadata, after.etag, after.size), (new, described, 5));
        let listed = store.list("to/", false, None, 10).await.expect("listed").objects;
        for one in listed {
            let metadata = told(&one.key).await.metadata;
            assert!(one.metadata.is_none_or(|listed| listed == metadata));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_come_from_here_and_from_other_objects() {
    on_each_store("parts_come_from_here_and_from_other_objects", |store| async move {
        let bytes = pattern(66 * MIB as usize, 9);
        let upload = store.begin("large", &metadata(&[("colour", "blue")])).await.expect("begun");
        let mut parts: Vec<UploadedPart> = Vec::new();
        for (number, range) in [(3, 48..66), (1, 0..24), (2, 24..48)] {
            let data = bytes[(range.start * MIB) as usize..(range.end * MIB) as usize].to_vec();
            parts.push(store.part(&upload, number, data.into()).await.expect("stored"));
        }
        parts.sort_by_key(|part| part.number);
        let etag = store.complete(&upload, &parts, Precondition::Always).await.expect("completed").etag;
        let large = CopySource { key: "large", etag: &etag, size: 66 * MIB };
        store.copy(large, "copy").await.expect("copied");
        let upload = store.begin_copy(large, "likewise", None).await.expect("begun");
        let ranges = [ByteRange::new(0, 33 * MIB), ByteRange::new(33 * MIB, 33 * MIB)];
        let mut parts = Vec::new();
        for (number, range) in (1..).zip(ranges) {
            parts.push(store.part_of(&upload, number, large, range).await.expect("copied"));
        }
        store.complete(&upload, &parts, Precondition::Always).await.expect("completed");
        let told = store.head("likewise").await.expect("answered").expect("there");
        assert_eq!((told.size, told.metadata), (66 * MIB, metadata(&[("colour", "blue")])));
        let upload = store.begin("piece", &Metadata::new()).await.expect("begun");
        let parts = [
            store.part_of(&upload, 1, large, ByteRange::new(7, 6 * MIB)).await.expect("copied"),
            store.part(&upload, 2, Bytes::from_static(b"end")).await.expect("stored"),
        ];
        store.complete(&upload, &parts, Precondition::Always).await.expect("completed");
        let read = async |key: &str, range| store.get(key, None, range).await.expect("read").data;
        let copy = store.head("copy").await.expect("answered").expect("there");
        assert_eq!((copy.size, copy.metadata), (66 * MIB, metadata(&[("colour", "blue")])));
        assert!(read("copy", ByteRange::new(0, 66 * MIB)).await == bytes);
        let piece = [&bytes[7..7 + 6 * MIB as usize], b"end"].concat();
        assert!(read("piece", ByteRange::new(0, 6 * MIB + 3)).await == piece);
        // Given up: nobody ever saw it.
        let upload = store.begin("never", &Metadata::new()).await.expect("begun");
        store.part(&upload, 1, Bytes::from_static(b"x")).await.expect("stored");
        store.abort(&upload).await.expect("given up");
        assert_eq!(store.head("never").await.expect("answered"), None);
    })
    .await;
}
