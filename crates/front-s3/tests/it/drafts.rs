//! Objects that are put into a bucket of an object store: they are made by one request, or one upload in parts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use origin_object::{Config, ObjectOrigin};
use testkit::request_log::{RequestLog, StoreCall};
use testkit::stores::{RealStore, on_each_store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{Client, bytes_of};
use crate::served::{Front, serve_origin};
use crate::sign::{Request, sha256};

static NEXT: AtomicU32 = AtomicU32::new(0);

pub struct Bucket {
    pub store: RealStore,
    pub name: String,
    pub log: RequestLog,
}

impl Bucket {
    pub async fn make(store: RealStore) -> Bucket {
        let name = format!("drafts-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        store.make_bucket(&name);
        let log = RequestLog::before(store.address()).await;
        Bucket { store, name, log }
    }

    /// A tier of its own, by the way that is logged.
    pub async fn tier(&self) -> Front {
        let origin = self.origin_by(&self.log.endpoint()).await;
        serve_origin(origin::retry::Retry::new(origin, Default::default()), |_| {}).await
    }

    /// One that has another way to the store, and asks once: a client is told of each answer that is lost.
    pub async fn tier_that_asks_once(&self, endpoint: &str) -> Front {
        serve_origin(self.origin_by(endpoint).await, |_| {}).await
    }

    async fn origin_by(&self, endpoint: &str) -> Arc<ObjectOrigin> {
        let url = self.store.url_by(endpoint, &self.name, "", "");
        let config = Config::from_url(&url).expect("a URL");
        let origin = ObjectOrigin::connect_as(config, Some(&self.store.environment())).await;
        origin.expect("a store that answers")
    }

    /// But for parts that are objects of their own, as at Google's store: they go by themselves. What is sent again, since
    /// the store closed the connection or did not answer for long, counts once.
    pub fn changes(&self) -> Vec<StoreCall> {
        let is_part = |call: &StoreCall| call.target.contains(".forebay-uploads");
        let mut changes: Vec<StoreCall> = Vec::new();
        for call in self.log.take().into_iter().filter(|call| call.is_change() && !is_part(call)) {
            if !changes.iter().any(|known| call.repeats(known)) {
                changes.push(call);
            }
        }
        changes
    }
}

pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    });
    words.take(length.div_ceil(8)).flat_map(u64::to_le_bytes).take(length).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_object_is_one_request_to_the_store_and_a_large_one_is_one_upload() {
    on_each_store(
        "a_small_object_is_one_request_to_the_store_and_a_large_one_is_one_upload",
        |store| async {
            let bucket = Bucket::make(store).await;
            let tier = bucket.tier().await;
            let client = tier.client();
            let (small, large) = (pattern(64 << 10, 1), pattern(100 << 20, 2));
            for round in 0..2 {
                bucket.log.take();
                client.put("/data/small", small.clone()).await.ok();
                let changes = bucket.changes();
                assert!(changes.len() == 1 && !changes[0].copies, "round {round}: {changes:?}");
                assert!(matches!(changes[0].method.as_str(), "PUT" | "POST"), "{changes:?}");
                client.put("/data/large", large.clone()).await.ok();
                let changes = bucket.changes();
                assert!(changes.iter().all(|call| !call.copies), "round {round}: {changes:?}");
                let of_key = |call: &&StoreCall| path_of(call).contains("/data/large");
                let expected = match &bucket.store {
                    // It begins, has 13 parts, and ends.
                    RealStore::S3(_) => 15,
                    // It begins by itself.
                    RealStore::Azure(_) => 14,
                    // Its parts are put together.
                    RealStore::Gcs(_) => 1,
                };
                assert_eq!(changes.iter().filter(of_key).count(), expected, "round {round}: {changes:?}");
                let removed = changes.iter().filter(of_key).any(|call| call.method == "DELETE");
                assert!(!removed, "round {round}: {changes:?}");
                // What was put is here.
                assert!(client.get("/data/small").await.ok().body == small);
                assert!(client.get("/data/large").await.ok().body == large);
                let read: Vec<_> = bucket.log.take();
                assert!(!read.iter().any(reads_bytes), "round {round}: {read:?}");
            }
            // Another tier finds the same.
            let tier = bucket.tier().await;
            let other = tier.client();
            assert!(other.get("/data/small").await.ok().body == small);
            assert!(other.get("/data/large").await.ok().body == large);
        },
    )
    .await;
}

pub fn path_of(call: &StoreCall) -> String {
    call.target.split('?').next().unwrap_or_default().replace("%2F", "/")
}

/// Whether bytes of an object are asked for. (Google's store tells by a GET what it knows of one, too.)
fn reads_bytes(call: &StoreCall) -> bool {
    let path = path_of(call);
    let is_object = path.ends_with("/small") || path.ends_with("/large");
    let is_bytes = !path.contains("/storage/v1/b/") || call.target.contains("alt=media");
    call.method == "GET" && is_object && is_bytes
}

/// The object, if all that the answer announces came.
async fn get_whole(client: &Client, path: &str) -> Option<Vec<u8>> {
    let mut request = Request::new("GET", path);
    request.set("host", &client.address.to_string());
    let hash = sha256(&request.body);
    client.signer.sign(&mut request, &hash);
    let mut stream = TcpStream::connect(client.address).await.expect("it listens");
    stream.write_all(&bytes_of(&request)).await.expect("sent");
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all).await;
    let end = all.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&all[..end]).into_owned();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    let body = all.split_off(end + 4);
    (head.starts_with("HTTP/1.1 200") && length.parse() == Ok(body.len())).then_some(body)
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_while_an_object_is_replaced_has_one_of_both_whole() {
    on_each_store("who_reads_while_an_object_is_replaced_has_one_of_both_whole", |store| async {
        const ROUNDS: usize = 6;
        let bucket = Bucket::make(store).await;
        let (tier, other) = (bucket.tier().await, bucket.tier().await);
        // One of them is one request, the other one an upload.
        let bodies = [pattern(300_000, 7), pattern((17 << 20) + 5, 8)];
        tier.client().put("/data/x", bodies[0].clone()).await.ok();
        let done = AtomicBool::new(false);
        let read = async |client: Client, seen: &[AtomicU32; 2]| {
            while !done.load(Ordering::SeqCst) {
                // One that was overwritten in the middle of an answer is cut short, or not found in its version.
                let Some(body) = get_whole(&client, "/data/x").await else { continue };
                let which = bodies.iter().position(|known| *known == body);
                seen[which.expect("all of one of them")].fetch_add(1, Ordering::SeqCst);
            }
        };
        let (here, there) = <([AtomicU32; 2], [AtomicU32; 2])>::default();
        let write = async {
            for which in (0..ROUNDS).map(|round| (round + 1) % 2) {
                let before = here[which].load(Ordering::SeqCst);
                tier.client().put("/data/x", bodies[which].clone()).await.ok();
                let is_seen = async {
                    while here[which].load(Ordering::SeqCst) == before {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                };
                tokio::time::timeout(Duration::from_secs(30), is_seen).await.expect("what was put is read");
            }
            done.store(true, Ordering::SeqCst);
        };
        tokio::join!(read(tier.client(), &here), read(other.client(), &there), write);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_that_fails_leaves_nothing_at_the_store() {
    on_each_store("a_put_that_fails_leaves_nothing_at_the_store", |store| async {
        let bucket = Bucket::make(store).await;
        let tier = bucket.tier().await;
        let client = tier.client();
        client.put("/data/old", "old").await.ok();
        bucket.log.take();
        for length in [64 << 10, 20 << 20] {
            for path in ["/data/old", "/data/new", "/data/dir/new"] {
                // It is not what was said at its end.
                let wrong = "AAAAAAAAAAAAAAAAAAAAAA==";
                let request = Request::new("PUT", path).header("content-md5", wrong).body(pattern(length, 3));
                assert_eq!(client.send(request).await.code(), "BadDigest", "{length} bytes to {path}");
                // The client goes away.
                let mut request = Request::new("PUT", path).body(pattern(length, 4));
                request.set("host", &client.address.to_string());
                let hash = sha256(&request.body);
                client.signer.sign(&mut request, &hash);
                let bytes = bytes_of(&request);
                let _ = client.exchange_half(&bytes[..bytes.len() - 1]).await;
            }
        }
        assert_eq!(client.get("/data/old").await.ok().text(), "old");
        // What was begun for those that went away is given up when the server finds that out.
        let keys = async || {
            let listed = client.send(Request::new("GET", "/data").query("list-type", "2")).await.ok();
            listed.all("Key")
        };
        for _ in 0..600 {
            if keys().await == ["old"] {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(keys().await, ["old"]);
        let begun = bucket.changes();
        let is_made = |call: &&StoreCall| {
            let is_part = call.target.contains("uploadId=") || call.target.contains("blockid=");
            // A directory is made first.
            call.method == "PUT" && !is_part && !path_of(call).ends_with('/')
        };
        let made: Vec<_> = begun.iter().filter(is_made).collect();
        assert!(made.is_empty(), "{made:?}");
        if let RealStore::S3(minio) = &bucket.store {
            for _ in 0..600 {
                if minio.uploads() == 0 {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            assert_eq!(minio.uploads(), 0);
            let aborted =
                begun.iter().filter(|call| call.method == "DELETE" && call.target.contains("uploadId="));
            assert!(aborted.count() > 0, "there were uploads to give up: {begun:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_make_an_object_if_none_is_there_one_does_by_whatever_tier() {
    on_each_store("of_many_who_make_an_object_if_none_is_there_one_does_by_whatever_tier", |store| async {
        let bucket = Bucket::make(store).await;
        let tiers = [bucket.tier().await, bucket.tier().await];
        for (round, length) in [1000, 9 << 20, 1000, 9 << 20].into_iter().enumerate() {
            let path = format!("/data/{round}");
            let put = async |writer: usize| {
                let body = pattern(length, writer as u64 + 1);
                let request = Request::new("PUT", &path).header("if-none-match", "*").body(body.clone());
                (tiers[writer % 2].client().send(request).await, body)
            };
            let answers = tokio::join!(put(0), put(1), put(2), put(3));
            let answers = [answers.0, answers.1, answers.2, answers.3];
            let won: Vec<_> = answers.iter().filter(|(answer, _)| answer.status == 200).collect();
            let told: Vec<_> = answers.iter().map(|(answer, _)| answer.status).collect();
            assert_eq!(won.len(), 1, "{told:?}");
            assert!(told.iter().all(|status| [200, 412, 503].contains(status)), "{told:?}");
            for tier in &tiers {
                assert!(tier.client().get(&path).await.ok().body == won[0].1, "round {round}");
            }
        }
    })
    .await;
}

/// A tier believes for a while that it knows the object.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_another_tier_replaced_since_is_not_what_a_condition_means() {
    on_each_store(
        "an_object_that_another_tier_replaced_since_is_not_what_a_condition_means",
        |store| async {
            let bucket = Bucket::make(store).await;
            let tiers = [bucket.tier().await, bucket.tier().await];
            let (ours, theirs) = (tiers[0].client(), tiers[1].client());
            for length in [10, 9 << 20] {
                let etag = ours.put("/data/x", "ours").await.ok().etag();
                theirs.put("/data/x", "theirs").await.ok();
                let request = Request::new("PUT", "/data/x").header("if-match", &format!("\"{etag}\""));
                let refused = ours.send(request.body(pattern(length, 1))).await;
                assert_eq!(refused.code(), "PreconditionFailed");
                assert_eq!(theirs.get("/data/x").await.ok().text(), "theirs");
            }
        },
    )
    .await;
}

/// At Azure, parts that are stored for a blob go when another upload of it is completed: then the client is told to try
/// again.
#[tokio::test(flavor = "multi_thread")]
async fn objects_that_are_put_to_one_key_at_a_time_are_there_or_are_to_be_sent_again() {
    on_each_store(
        "objects_that_are_put_to_one_key_at_a_time_are_there_or_are_to_be_sent_again",
        |store| async {
            let bucket = Bucket::make(store).await;
            let tier = bucket.tier().await;
            let bodies: Vec<_> = (1..=4).map(|seed| pattern(12 << 20, seed)).collect();
            let put = async |at: usize| tier.client().put("/data/x", bodies[at].clone()).await.status;
            let (a, b, c, d) = tokio::join!(put(0), put(1), put(2), put(3));
            let told = [a, b, c, d];
            let may_fail = bucket.store.is_azure();
            assert!(told.iter().all(|status| *status == 200 || may_fail && *status == 503), "{told:?}");
            assert!(told.contains(&200));
            let now = tier.client().get("/data/x").await.ok().body;
            let which = bodies.iter().position(|body| *body == now).expect("all of one of them");
            assert_eq!(told[which], 200);
            let other = bucket.tier().await;
            assert!(other.client().get("/data/x").await.ok().body == now);
        },
    )
    .await;
}
