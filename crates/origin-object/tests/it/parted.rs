//! Files that come in parts, of which the store keeps each until the file is assembled.

use bytes::Bytes;
use origin::{Change, Object, Origin, PartReceipt, PartSource, PartedFile, Reference, Replacing};
use origin_object::ObjectOrigin;
use testkit::request_log::RequestLog;
use types::{ErrorKind, Name, Result, SetAttr};

use crate::store::{find, mkdir, name, names, on_each_bucket, overwrite, pattern, put, read_all, root};

const MIB: usize = 1 << 20;

async fn begin(origin: &ObjectOrigin, path: &[Name]) -> Option<PartedFile> {
    let set = SetAttr { mode: Some(0o640), ..SetAttr::default() };
    origin.begin_parts(&root(), path, &set).await.expect("told")
}

async fn store(origin: &ObjectOrigin, file: &PartedFile, number: u32, bytes: &[u8]) -> PartReceipt {
    let source = PartSource::Given(Bytes::copy_from_slice(bytes));
    let receipt = origin.store_part(file, number, &source).await.expect("stored");
    PartReceipt { number, size: bytes.len() as u64, receipt }
}

async fn publish(
    origin: &ObjectOrigin,
    file: &PartedFile,
    (dir, text): (&Reference, &str),
    parts: &[PartReceipt],
    over: Replacing,
) -> Result<Object> {
    let name = name(text);
    let draft = origin.draft_of_parts(file, (dir, &name), parts).await?.reference;
    let made = origin.change(&Change::Publish { draft: draft.clone(), dir: dir.clone(), name, over }).await;
    origin.discard(&draft).await.expect("forgotten");
    made?.made()
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.expect_err("must fail").kind()
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_that_are_stored_by_one_process_are_assembled_by_another_one() {
    on_each_bucket(
        "parts_that_are_stored_by_one_process_are_assembled_by_another_one",
        |bucket| async move {
            let stored = "&attributes=stored";
            let path = [name("dir"), name("file")];
            let bytes = pattern(16 * MIB + 3, 1);
            let (first, second) = (bucket.origin(stored).await, bucket.origin(stored).await);
            let Some(file) = begin(&first, &path).await else {
                assert!(!bucket.store.is_s3(), "S3 keeps parts");
                return;
            };
            // In any order, one of them twice, and one copied from an object.
            store(&first, &file, 3, b"old").await;
            let last = store(&first, &file, 3, &bytes[16 * MIB..]).await;
            let head = store(&second, &file, 1, &bytes[..8 * MIB]).await;
            let of = put(&second, &root(), "middle", &bytes[8 * MIB..16 * MIB]).await;
            let receipt = second.store_part(&file, 2, &PartSource::Of(of.reference)).await.expect("copied");
            let middle = PartReceipt { number: 2, size: 8 * MIB as u64, receipt };
            assert_eq!(names(&first, &root()).await, ["middle"], "nothing is made yet");
            let parts = [head, middle, last];
            let dir = mkdir(&second, &root(), "dir").await.expect("made").reference;
            // It is begun elsewhere, or these are not its parts.
            let elsewhere = publish(&second, &file, (&dir, "other"), &parts, Replacing::Anything).await;
            assert_eq!(kind(elsewhere), ErrorKind::InvalidArgument);
            let mut wrong = parts.clone();
            wrong[0].receipt.clone_from(&parts[2].receipt);
            assert!(publish(&second, &file, (&dir, "file"), &wrong, Replacing::Anything).await.is_err());
            // Without receipts nothing is made.
            let unknown = parts.clone().map(|part| PartReceipt::unknown(part.number, part.size));
            let mixed = [parts[0].clone(), unknown[1].clone(), parts[2].clone()];
            for parts in [&unknown, &mixed] {
                let lost = publish(&second, &file, (&dir, "file"), parts, Replacing::Anything).await;
                assert_eq!(kind(lost), ErrorKind::InvalidArgument);
            }
            // What is refused takes nothing from them.
            put(&first, &dir, "file", b"theirs").await;
            let refused = publish(&second, &file, (&dir, "file"), &parts, Replacing::Nothing).await;
            assert_eq!(kind(refused), ErrorKind::Exists);
            let made =
                publish(&second, &file, (&dir, "file"), &parts, Replacing::Anything).await.expect("made");
            assert_eq!((made.attr.size, made.attr.mode), (bytes.len() as u64, 0o640));
            assert!(read_all(&first, &made).await.expect("read") == bytes);
            // Who did not hear of it, and has ended since, is told the same.
            let again =
                publish(&first, &file, (&dir, "file"), &parts, Replacing::Anything).await.expect("made");
            assert_eq!(again.version, made.version);
            let found = publish(&second, &file, (&dir, "file"), &unknown, Replacing::Anything).await;
            assert_eq!(found.expect("was made").version, made.version);
            assert_eq!(names(&first, &dir).await, ["file"]);
            // Of an object that has another's bytes it is not said.
            overwrite(&first, &made.reference, b"others").await;
            let over = publish(&second, &file, (&dir, "file"), &parts, Replacing::Anything).await;
            assert_eq!(kind(over), ErrorKind::InvalidArgument);
        },
    )
    .await;
}

/// AWS documents the copy of a range for sources above 5 MB only.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_is_a_whole_object_is_copied_without_a_range() {
    on_each_bucket("a_part_that_is_a_whole_object_is_copied_without_a_range", |bucket| async move {
        let log = RequestLog::before(bucket.store.address()).await;
        let url = bucket.store.url_by(&log.endpoint(), &bucket.name, "", "");
        let origin = bucket.connect(&url).await.expect("connected");
        let Some(file) = begin(&origin, &[name("file")]).await else { return };
        let (head, tail) = (pattern(5 * MIB, 1), pattern(7, 2));
        let mut parts = Vec::new();
        for (number, bytes) in [(1, &head), (2, &tail)] {
            let of = put(&origin, &root(), &format!("part-{number}"), bytes).await.reference;
            log.take();
            let receipt = origin.store_part(&file, number, &PartSource::Of(of)).await.expect("copied");
            parts.push(PartReceipt { number, size: bytes.len() as u64, receipt });
            let copies: Vec<_> = log.take().into_iter().filter(|call| call.copies).collect();
            assert!(copies.len() == 1 && !copies[0].copies_range, "{copies:?}");
        }
        let made = publish(&origin, &file, (&root(), "file"), &parts, Replacing::Nothing).await;
        let read = read_all(&origin, &made.expect("made")).await.expect("read");
        assert!(read == [head, tail].concat());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_that_are_dropped_are_no_more_and_foreign_notes_are_refused() {
    on_each_bucket("parts_that_are_dropped_are_no_more_and_foreign_notes_are_refused", |bucket| async move {
        let origin = bucket.origin("").await;
        let Some(file) = begin(&origin, &[name("file")]).await else { return };
        let part = store(&origin, &file, 1, b"one").await;
        origin.drop_parts(&file).await.expect("given up");
        origin.drop_parts(&file).await.expect("is no error again");
        let source = PartSource::Given(Bytes::from_static(b"two"));
        assert_eq!(kind(origin.store_part(&file, 2, &source).await), ErrorKind::NotFound);
        let refused = publish(&origin, &file, (&root(), "file"), &[part], Replacing::Anything).await;
        assert_eq!(kind(refused), ErrorKind::InvalidArgument);
        assert_eq!(kind(find(&origin, "file").await), ErrorKind::NotFound);
        for bytes in [&b""[..], b"{}", b"\xff", br#"{"key":"file","id":"x","metadata":{}}"#] {
            let foreign = PartedFile(Bytes::from_static(bytes));
            assert!(origin.draft_of_parts(&foreign, (&root(), &name("file")), &[]).await.is_err());
            assert!(origin.store_part(&foreign, 1, &source).await.is_err());
        }
    })
    .await;
}
