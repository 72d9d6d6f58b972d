//! Random operations, against a map of keys to bytes.

use std::collections::BTreeMap;

use crate::served::serve;
use crate::sign::Request;

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        let length = self.below(most + 1);
        (0..length).map(|_| self.next() as u8).collect()
    }
}

pub fn seed() -> u64 {
    let given = std::env::var("FOREBAY_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| u64::from(std::process::id()) ^ 0x5eed_0000);
    eprintln!("FOREBAY_TEST_SEED={seed}");
    seed
}

/// Names that sort around each other, and some that cannot stand beside others.
const KEYS: [&str; 12] =
    ["a", "a/b", "a/b/c", "a-", "a.x", "b/1", "b/2", "b/2/3", "c d", "e/f/g/h", "e/f/i", "ü/%41+&=<>"];

#[tokio::test]
async fn random_requests_leave_what_a_map_would_have() {
    let mut random = Random(seed());
    let served = serve().await;
    let client = served.client();
    let mut model: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for step in 0..400 {
        let key = (*random.of(&KEYS)).to_owned();
        let path = format!("/data/{key}");
        // A key above or below another is a directory and a file at once.
        let is_free = model
            .keys()
            .all(|other| !other.starts_with(&format!("{key}/")) && !key.starts_with(&format!("{other}/")));
        match random.below(6) {
            0 | 1 => {
                let body = random.bytes(200_000);
                let answer = client.put(&path, body.clone()).await;
                assert_eq!(answer.status, if is_free { 200 } else { 400 }, "step {step}: put {key}");
                if is_free {
                    model.insert(key, body);
                }
            }
            2 => {
                let answer = client.delete(&path).await;
                assert_eq!(answer.status, 204, "step {step}: delete {key}");
                model.remove(&key);
            }
            3 => {
                let answer = client.get(&path).await;
                match model.get(&key) {
                    Some(body) => assert!(answer.ok().body == *body, "step {step}: get {key}"),
                    None => assert_eq!(answer.status, 404, "step {step}: get {key}"),
                }
            }
            4 => {
                let from = (*random.of(&KEYS)).to_owned();
                let source = crate::sign::encode(&format!("data/{from}"), true);
                let request = Request::new("PUT", &path).header("x-amz-copy-source", &source);
                let answer = client.send(request).await;
                match model.get(&from).cloned() {
                    None => assert_eq!(answer.status, 404, "step {step}: copy {from} to {key}"),
                    Some(_) if !is_free || from == key => {
                        assert_eq!(answer.status, 400, "step {step}: copy {from} to {key}");
                    }
                    Some(body) => {
                        answer.ok();
                        model.insert(key, body);
                    }
                }
            }
            _ => {
                let prefix: String = key.chars().take(random.below(2)).collect();
                let prefix = prefix.as_str();
                let answer = client.send(Request::new("GET", "/data").query("prefix", prefix)).await.ok();
                let expected: Vec<_> = model.keys().filter(|key| key.starts_with(prefix)).cloned().collect();
                assert_eq!(answer.all("Key"), expected, "step {step}: list {prefix:?}");
            }
        }
    }
    for (key, body) in model {
        assert!(client.get(&format!("/data/{key}")).await.ok().body == body, "{key}");
    }
}
