//! What MinIO's administrator asks for, as `mc admin` does: signed like a request for an object, a secret encrypted with the
//! administrator's own.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use chrono::Utc;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::{digest, hmac, pbkdf2};

use super::{ACCESS_KEY, SECRET_KEY};
use crate::process::ask;

const REGION: &str = "us-east-1";
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Of the ways that MinIO reads, the one with PBKDF2 and AES-GCM.
const BY_PBKDF2: u8 = 2;
const PATIENCE: Duration = Duration::from_secs(20);
const AGAIN: Duration = Duration::from_millis(200);
const ROUNDS: NonZeroU32 = NonZeroU32::new(8192).expect("some");

/// `query` in the order of its names.
pub fn put(address: SocketAddr, call: &str, query: &[(&str, &str)], body: &[u8]) {
    put_at(address, &format!("/minio/admin/v3/{call}"), query, body);
}

/// The same, of any path. A user or a policy that was just made may be unknown for a moment, while MinIO reads what it has stored.
pub fn put_at(address: SocketAddr, path: &str, query: &[(&str, &str)], body: &[u8]) {
    let begun = Instant::now();
    let status = loop {
        match put_once(address, path, query, body) {
            404 if begun.elapsed() < PATIENCE => std::thread::sleep(AGAIN),
            status => break status,
        }
    };
    assert!(matches!(status, 200 | 204), "{status}: {path} {query:?}");
}

/// The status of one try.
fn put_once(address: SocketAddr, path: &str, query: &[(&str, &str)], body: &[u8]) -> u16 {
    let pairs = query.iter().map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, QUERY)));
    let query = pairs.collect::<Vec<_>>().join("&");
    let now = Utc::now();
    let (time, day) = (now.format("%Y%m%dT%H%M%SZ").to_string(), now.format("%Y%m%d").to_string());
    let hashed = hex(digest::digest(&digest::SHA256, body).as_ref());
    let names = "host;x-amz-content-sha256;x-amz-date";
    let canonical = format!(
        "PUT\n{path}\n{query}\nhost:{address}\nx-amz-content-sha256:{hashed}\nx-amz-date:{time}\n\n{names}\n{hashed}"
    );
    let scope = format!("{day}/{REGION}/s3/aws4_request");
    let canonical = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let said = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{canonical}");
    let key = [day.as_str(), REGION, "s3", "aws4_request"]
        .iter()
        .fold(format!("AWS4{SECRET_KEY}").into_bytes(), |key, word| mac(&key, word));
    let signature = hex(&mac(&key, &said));
    let head = format!(
        "x-amz-content-sha256: {hashed}\r\nx-amz-date: {time}\r\nAuthorization: AWS4-HMAC-SHA256 \
         Credential={ACCESS_KEY}/{scope}, SignedHeaders={names}, Signature={signature}\r\n"
    );
    ask(address, "PUT", &format!("{path}?{query}"), &head, body).expect("an answer")
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// At most 16 KiB: one piece of a stream whose pieces are bound to its beginning.
pub fn encrypted(password: &str, text: &[u8]) -> Vec<u8> {
    let (mut salt, mut nonce) = ([0; 32], [0; 8]);
    let random = SystemRandom::new();
    random.fill(&mut salt).and_then(|()| random.fill(&mut nonce)).expect("random bytes");
    let mut key = [0; 32];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ROUNDS, &salt, password.as_bytes(), &mut key);
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).expect("32 bytes"));
    let numbered = |number: u32| {
        let mut all = [0; 12];
        all[..8].copy_from_slice(&nonce);
        all[8..].copy_from_slice(&number.to_le_bytes());
        Nonce::assume_unique_for_key(all)
    };
    let beginning = key.seal_in_place_separate_tag(numbered(0), Aad::empty(), &mut []).expect("sealed");
    // 0x80: the last piece.
    let bound = [&[0x80], beginning.as_ref()].concat();
    let mut sealed = text.to_vec();
    key.seal_in_place_append_tag(numbered(1), Aad::from(&bound), &mut sealed).expect("sealed");
    [&salt[..], &[BY_PBKDF2], &nonce, &sealed].concat()
}
