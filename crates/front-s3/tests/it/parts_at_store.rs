//! Uploads in parts into a bucket of a store that keeps parts itself: each is stored there once, under its number.

use std::time::Duration;

use testkit::lossy_line::{LossyLine, is_abort, is_completion, is_part};
use testkit::request_log::StoreCall;
use testkit::stores::{RealStore, on_an_s3_store, on_each_store};

use crate::client::{Answer, Client};
use crate::drafts::{Bucket, path_of, pattern};
use crate::multipart::{begin, complete, completion, part};
use crate::sign::Request;

const MIB: usize = 1 << 20;

/// Uploads that are under way at the store, when what goes on in the background is done.
async fn uploads_left(bucket: &Bucket) -> usize {
    let RealStore::S3(minio) = &bucket.store else { panic!("of an S3 store") };
    for _ in 0..200 {
        if minio.uploads() == 0 && hidden(bucket).is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    minio.uploads() + hidden(bucket).len()
}

fn hidden(bucket: &Bucket) -> Vec<String> {
    let RealStore::S3(minio) = &bucket.store else { panic!("of an S3 store") };
    if !minio.names(&bucket.name).contains(&"data".to_owned()) {
        return Vec::new();
    }
    let below = minio.names(&format!("{}/data", bucket.name));
    below.into_iter().filter(|name| name.starts_with(".forebay")).collect()
}

async fn send_parts(client: &Client, path: &str, id: &str, parts: &[(u32, &[u8])]) -> Vec<(u32, String)> {
    let mut etags = Vec::new();
    for (number, bytes) in parts {
        etags.push((*number, part(client, path, id, *number, bytes.to_vec()).await.ok().etag()));
    }
    etags.sort_by_key(|(number, _)| *number);
    etags
}

async fn abort(client: &Client, path: &str, id: &str) -> Answer {
    client.send(Request::new("DELETE", path).query("uploadId", id)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_part_is_stored_once_and_a_completion_copies_nothing() {
    on_an_s3_store("each_part_is_stored_once_and_a_completion_copies_nothing", |store| async {
        let bucket = Bucket::make(store).await;
        let tier = bucket.tier().await;
        let client = tier.client();
        let whole = pattern(24 * MIB + 17, 1);
        let slices: Vec<&[u8]> = whole.chunks(8 * MIB).collect();
        bucket.log.take();
        let id = begin(&client, "/data/dir/large").await;
        let parts = [(4, slices[3]), (2, slices[1]), (1, slices[0]), (3, slices[2])];
        let etags = send_parts(&client, "/data/dir/large", &id, &parts).await;
        let listed = client.send(Request::new("GET", "/data/dir/large").query("uploadId", &id)).await.ok();
        assert_eq!(listed.all("PartNumber"), ["1", "2", "3", "4"]);
        let keys = client.send(Request::new("GET", "/data").query("list-type", "2")).await.ok();
        assert!(keys.all("Key").is_empty(), "nothing shows yet: {:?}", keys.all("Key"));
        complete(&client, "/data/dir/large", &id, &etags).await.ok();
        let changes = bucket.changes();
        assert!(changes.iter().all(|call| !call.copies), "{changes:?}");
        let of_key = |call: &&StoreCall| path_of(call).ends_with("/data/dir/large");
        let of_key: Vec<_> = changes.iter().filter(of_key).map(|call| call.method.as_str()).collect();
        // It begins, has four parts, and ends.
        assert_eq!(of_key, ["POST", "PUT", "PUT", "PUT", "PUT", "POST"], "{changes:?}");
        let read = client.get("/data/dir/large").await.ok();
        assert!(read.body == whole);
        assert_eq!(read.header("content-type"), Some("text/x-parts"));
        assert!(bucket.tier().await.client().get("/data/dir/large").await.ok().body == whole);
        assert_eq!(uploads_left(&bucket).await, 0);
    })
    .await;
}

/// By whatever store; a second tier remembers nothing of what the first one took.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_parts_survive_the_tier_that_took_them_whatever_their_sizes() {
    on_each_store("acknowledged_parts_survive_the_tier_that_took_them_whatever_their_sizes", |store| async {
        let bucket = Bucket::make(store).await;
        let old = pattern(5 * MIB, 9);
        let slices = [pattern(5 * MIB, 1), pattern(6 * MIB + 5, 2), pattern(9 * MIB, 3), pattern(3, 4)];
        let (id, first) = {
            let tier = bucket.tier().await;
            let id = begin(&tier.client(), "/data/x").await;
            // The second one comes twice: once by each tier.
            let parts = [(3, &slices[2][..]), (2, &old[..])];
            (id.clone(), send_parts(&tier.client(), "/data/x", &id, &parts).await)
        };
        let tier = bucket.tier().await;
        let client = tier.client();
        // One that is found to be wrong takes nothing from the one before.
        let broken = Request::new("PUT", "/data/x").query("partNumber", "2").query("uploadId", &id);
        let broken = broken.header("x-amz-checksum-crc32", "AAAAAA==").body("broken");
        assert_eq!(client.send(broken).await.code(), "BadDigest");
        let kept = send_parts(&client, "/data/x", &id, &[(1, &slices[0]), (4, &slices[3])]).await;
        let all: Vec<_> = [kept[0].clone(), first[0].clone(), first[1].clone(), kept[1].clone()].into();
        let refused = completion("/data/x", &id, &all).header("if-match", "\"0123456789abcdef\"");
        assert_eq!(client.send(refused).await.code(), "NoSuchKey");
        let second = send_parts(&client, "/data/x", &id, &[(2, &slices[1])]).await;
        assert_eq!(complete(&client, "/data/x", &id, &all).await.code(), "InvalidPart");
        let all: Vec<_> = [kept[0].clone(), second[0].clone(), first[1].clone(), kept[1].clone()].into();
        complete(&client, "/data/x", &id, &all).await.ok();
        assert!(client.get("/data/x").await.ok().body == slices.concat());
        // The same answer again, and the object has all bytes for others, too.
        complete(&client, "/data/x", &id, &all).await.ok();
        assert!(bucket.tier().await.client().get("/data/x").await.ok().body == slices.concat());
        // One part without bytes.
        let id = begin(&client, "/data/empty").await;
        let etags = send_parts(&client, "/data/empty", &id, &[(1, b"")]).await;
        complete(&client, "/data/empty", &id, &etags).await.ok();
        assert!(client.get("/data/empty").await.ok().body.is_empty());
        if bucket.store.is_s3() {
            assert_eq!(uploads_left(&bucket).await, 0);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_that_is_refused_leaves_the_parts_at_the_store() {
    on_an_s3_store("a_completion_that_is_refused_leaves_the_parts_at_the_store", |store| async {
        let bucket = Bucket::make(store).await;
        let (tier, other) = (bucket.tier().await, bucket.tier().await);
        let (ours, theirs) = (tier.client(), other.client());
        let whole = pattern(10 * MIB, 1);
        let id = begin(&ours, "/data/x").await;
        let etags =
            send_parts(&ours, "/data/x", &id, &[(1, &whole[..5 * MIB]), (2, &whole[5 * MIB..])]).await;
        assert_eq!(ours.get("/data/x").await.status, 404);
        // The store knows better than we do.
        theirs.put("/data/x", "theirs").await.ok();
        for _ in 0..2 {
            let refused = completion("/data/x", &id, &etags).header("if-none-match", "*");
            assert_eq!(ours.send(refused).await.code(), "PreconditionFailed");
        }
        assert_eq!(theirs.get("/data/x").await.ok().text(), "theirs");
        complete(&ours, "/data/x", &id, &etags).await.ok();
        assert!(ours.get("/data/x").await.ok().body == whole);
        assert_eq!(uploads_left(&bucket).await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_given_up_by_its_client_or_its_store_is_no_more() {
    on_an_s3_store("an_upload_that_is_given_up_by_its_client_or_its_store_is_no_more", |store| async {
        let bucket = Bucket::make(store).await;
        let RealStore::S3(minio) = &bucket.store else { return };
        let tier = bucket.tier().await;
        let client = tier.client();
        let id = begin(&client, "/data/x").await;
        send_parts(&client, "/data/x", &id, &[(1, b"one")]).await;
        assert_eq!(minio.uploads(), 1, "it is the store's own");
        assert_eq!(abort(&client, "/data/x", &id).await.status, 204);
        assert_eq!(part(&client, "/data/x", &id, 2, vec![1]).await.code(), "NoSuchUpload");
        assert_eq!(uploads_left(&bucket).await, 0);
        // A rule of the bucket ends what is old.
        let id = begin(&client, "/data/x").await;
        let etags = send_parts(&client, "/data/x", &id, &[(1, b"one")]).await;
        minio.end_uploads();
        assert_eq!(part(&client, "/data/x", &id, 2, vec![1]).await.code(), "NoSuchUpload");
        assert_eq!(complete(&client, "/data/x", &id, &etags).await.code(), "NoSuchUpload");
        assert_eq!(abort(&client, "/data/x", &id).await.status, 204);
        assert_eq!(uploads_left(&bucket).await, 0);
        // With its bucket.
        let id = begin(&client, "/data/x").await;
        send_parts(&client, "/data/x", &id, &[(1, b"one")]).await;
        assert_eq!(client.send(Request::new("DELETE", "/data")).await.status, 204);
        for _ in 0..200 {
            if minio.uploads() == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        assert_eq!(minio.uploads(), 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_could_not_be_ended_at_the_store_is_there_to_be_ended_again() {
    on_an_s3_store(
        "an_upload_that_could_not_be_ended_at_the_store_is_there_to_be_ended_again",
        |store| async {
            let bucket = Bucket::make(store).await;
            let RealStore::S3(minio) = &bucket.store else { return };
            let line = LossyLine::to(bucket.store.address()).await;
            let tier = bucket.tier_that_asks_once(&line.endpoint()).await;
            let client = tier.client();
            let remove_bucket = async || client.send(Request::new("DELETE", "/data")).await;
            for is_bucket in [false, true] {
                let id = begin(&client, "/data/x").await;
                send_parts(&client, "/data/x", &id, &[(1, b"one")]).await;
                let end = async || {
                    if is_bucket { remove_bucket().await } else { abort(&client, "/data/x", &id).await }
                };
                line.lose_requests(is_abort);
                assert!(end().await.status >= 500);
                line.heal();
                assert_eq!(minio.uploads(), 1);
                send_parts(&client, "/data/x", &id, &[(2, b"two")]).await;
                assert_eq!(end().await.status, 204);
                assert_eq!(uploads_left(&bucket).await, 0);
            }
        },
    )
    .await;
}

/// The store may yet store the first one, in place of one that is acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_whose_answer_is_lost_is_not_followed_by_another_one_of_its_number() {
    on_an_s3_store(
        "a_part_whose_answer_is_lost_is_not_followed_by_another_one_of_its_number",
        |store| async {
            let bucket = Bucket::make(store).await;
            let line = LossyLine::to(bucket.log.address).await;
            let tier = bucket.tier_that_asks_once(&line.endpoint()).await;
            let client = tier.client();
            let id = begin(&client, "/data/x").await;
            line.lose_answer(is_part);
            assert!(part(&client, "/data/x", &id, 1, pattern(5 * MIB, 1)).await.status >= 500);
            let whole = pattern(5 * MIB + 9, 2);
            bucket.log.take();
            let etags =
                send_parts(&client, "/data/x", &id, &[(1, &whole[..5 * MIB]), (2, &whole[5 * MIB..])]).await;
            let sent = bucket.log.take();
            let of_key =
                |call: &&StoreCall| call.target.contains("partNumber=") && path_of(call).ends_with("/data/x");
            let of_key: Vec<_> = sent.iter().filter(of_key).collect();
            assert!(of_key.len() == 1 && of_key[0].target.contains("partNumber=2"), "{of_key:?}");
            complete(&client, "/data/x", &id, &etags).await.ok();
            assert!(client.get("/data/x").await.ok().body == whole);
            assert_eq!(uploads_left(&bucket).await, 0);
        },
    )
    .await;
}

/// The client does not hear that its upload was completed, and asks again: one with a part that the store copies at the
/// completion, without and with a condition that the finished object does not meet.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_begins_as_the_last_one_ends_is_found() {
    on_an_s3_store("an_upload_that_begins_as_the_last_one_ends_is_found", |store| async {
        let bucket = Bucket::make(store).await;
        let tier = bucket.tier().await;
        let client = tier.client();
        let mut last = begin(&client, "/data/object").await;
        for round in 0..100_u64 {
            abort(&client, "/data/object", &last).await.ok();
            // The directory of the uploads is being removed.
            tokio::time::sleep(Duration::from_millis(round % 20)).await;
            last = begin(&client, "/data/object").await;
            part(&client, "/data/object", &last, 1, b"bytes".to_vec()).await.ok();
        }
        abort(&client, "/data/object", &last).await.ok();
        assert_eq!(uploads_left(&bucket).await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_whose_answer_is_lost_is_known_when_it_is_sent_again() {
    on_an_s3_store("a_completion_whose_answer_is_lost_is_known_when_it_is_sent_again", |store| async {
        let bucket = Bucket::make(store).await;
        let line = LossyLine::to(bucket.store.address()).await;
        let tier = bucket.tier_that_asks_once(&line.endpoint()).await;
        let other = bucket.tier().await;
        let (client, theirs) = (tier.client(), other.client());
        for (condition, is_replaced) in
            [(None, false), (None, true), (Some("if-none-match"), false), (Some("if-match"), false)]
        {
            let path = format!("/data/{}-{is_replaced}", condition.unwrap_or("none"));
            let condition = match condition {
                Some("if-match") => Some(("if-match", client.put(&path, "old").await.ok().etag())),
                other => other.map(|name| (name, "*".to_owned())),
            };
            let whole = pattern(5 * MIB + 7, 1);
            let id = begin(&client, &path).await;
            // The second one of a number is copied.
            send_parts(&client, &path, &id, &[(1, b"other")]).await;
            let etags =
                send_parts(&client, &path, &id, &[(1, &whole[..5 * MIB]), (2, &whole[5 * MIB..])]).await;
            let request = || match &condition {
                Some((name, value)) if value == "*" => completion(&path, &id, &etags).header(name, value),
                Some((name, value)) => completion(&path, &id, &etags).header(name, &format!("\"{value}\"")),
                None => completion(&path, &id, &etags),
            };
            line.lose_answer(is_completion);
            let lost = client.send(request()).await;
            assert!(lost.status >= 500, "{path}: {}", lost.text());
            if is_replaced {
                // What was made is no more: it cannot be told from an upload that is lost.
                theirs.put(&path, "theirs").await.ok();
                assert_eq!(client.send(request()).await.code(), "NoSuchUpload");
                assert_eq!(theirs.get(&path).await.ok().text(), "theirs");
                abort(&client, &path, &id).await;
                continue;
            }
            // By a tier that knows nothing of it, too.
            let later = bucket.tier().await;
            let asks = if path.contains("if-none-match") { &later.client() } else { &client };
            let again = asks.send(request()).await.ok();
            assert!(again.all("ETag")[0].contains("-2"), "{path}");
            assert_eq!(asks.send(request()).await.ok().all("ETag"), again.all("ETag"));
            assert!(client.get(&path).await.ok().body == whole, "{path}");
            assert_eq!(asks.get(&path).await.ok().header("content-type"), Some("text/x-parts"));
        }
        assert_eq!(uploads_left(&bucket).await, 0);
    })
    .await;
}
