//! Who gets a token, and who has one: the endpoints that Google has for it, and the machine's metadata server.

use std::collections::HashSet;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use chrono::TimeDelta;
use http::request::Parts;
use http::{Method, header};
use percent_encoding::percent_decode_str;
use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use serde_json::{Value, json};

use super::objects::now;
use super::{GcsAnswer, GcsRefused, answer};
use crate::lab::NotRun;

/// The service account.
pub const EMAIL: &str = "tier@forebay-test.iam.gserviceaccount.com";
/// Somebody who logged in.
pub const CLIENT: &str = "a-client";
pub const CLIENT_SECRET: &str = "not-a-secret-of-anybody";
pub const REFRESH_TOKEN: &str = "not-a-token-of-anybody";
/// Another provider's.
pub const THEIR_TOKEN: &str = "not-a-token-of-theirs";
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

pub struct Issuer {
    /// Of this server.
    url: String,
    public: Mutex<Vec<u8>>,
    seconds: AtomicU64,
    issued: AtomicU64,
    good: Mutex<HashSet<String>>,
}

/// The service account's private key, in PEM: one for a process, by openssl.
pub fn key() -> Result<String, NotRun> {
    static KEY: OnceLock<Result<String, String>> = OnceLock::new();
    KEY.get_or_init(fresh_key).clone().map_err(NotRun)
}

/// Another one.
pub fn fresh_key() -> Result<String, String> {
    let made = Command::new("openssl")
        .args(["genpkey", "-quiet", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"])
        .output();
    let made = made.map_err(|e| format!("openssl: {e}"))?;
    let said = String::from_utf8_lossy(&made.stderr);
    if made.status.success() {
        String::from_utf8(made.stdout).map_err(|e| e.to_string())
    } else {
        Err(format!("openssl: {said}"))
    }
}

fn public_of(pem: &str) -> Vec<u8> {
    let base64: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    let der = BASE64_STANDARD.decode(base64).expect("Base64");
    RsaKeyPair::from_pkcs8(&der).expect("a key").public_key().as_ref().to_vec()
}

fn refused(code: &str, why: &str) -> GcsAnswer {
    answer(400, json!({ "error": code, "error_description": why }).to_string().into())
}

impl Issuer {
    pub fn new(url: String) -> Result<Issuer, NotRun> {
        let public = Mutex::new(public_of(&key()?));
        let (seconds, issued) = (AtomicU64::new(3599), AtomicU64::new(0));
        Ok(Issuer { url, public, seconds, issued, good: Mutex::default() })
    }

    pub fn issue_for(&self, seconds: u64) {
        self.seconds.store(seconds, Ordering::Relaxed);
    }

    pub fn issued(&self) -> u64 {
        self.issued.load(Ordering::Relaxed)
    }

    /// The service account has this key (PEM) from now on, and no other one.
    pub fn change_key(&self, pem: &str) {
        *self.public.lock().unwrap_or_else(PoisonError::into_inner) = public_of(pem);
        self.revoke_all();
    }

    pub fn revoke_all(&self) {
        self.good().clear();
    }

    fn good(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.good.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn issue(&self) -> Option<(String, u64)> {
        let seconds = self.seconds.load(Ordering::Relaxed);
        let token = format!("ya29.token-{}", self.issued.fetch_add(1, Ordering::Relaxed));
        self.good().insert(token.clone());
        (seconds > 0).then_some((token, seconds))
    }

    /// `None`: it is no request for a token.
    pub fn answer(&self, parts: &Parts, body: &Bytes) -> Option<GcsAnswer> {
        let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let closed = || answer(503, Bytes::from_static(b"closed"));
        let machine = "/computeMetadata/v1/instance/service-accounts/default/token";
        Some(match (&parts.method, parts.uri.path()) {
            (&Method::POST, "/token") => match self.grant(body) {
                Err((code, why)) => refused(code, &why),
                Ok(()) => self.issue().map_or_else(closed, |(token, seconds)| plain(&token, seconds)),
            },
            (&Method::GET, path) if path == machine => {
                if header("metadata-flavor") != Some("Google") {
                    return Some(answer(403, Bytes::from_static(b"Missing Metadata-Flavor:Google header.")));
                }
                self.issue().map_or_else(closed, |(token, seconds)| plain(&token, seconds))
            }
            (&Method::POST, "/acts:generateAccessToken") => {
                let told: Value = serde_json::from_slice(body).unwrap_or_default();
                if !self.has_token(parts) || told["scope"][0] != SCOPE {
                    let error = json!({ "code": 403, "status": "PERMISSION_DENIED", "message": "no" });
                    return Some(answer(403, json!({ "error": error }).to_string().into()));
                }
                self.issue().map_or_else(closed, |(token, seconds)| {
                    let end = (now() + TimeDelta::seconds(seconds as i64)).to_rfc3339();
                    answer(200, json!({ "accessToken": token, "expireTime": end }).to_string().into())
                })
            }
            _ => return None,
        })
    }

    /// Whether what the form says deserves a token.
    fn grant(&self, body: &Bytes) -> Result<(), (&'static str, String)> {
        let form = String::from_utf8_lossy(body).into_owned();
        let field = |name: &str| {
            let mut pairs = form.split('&').filter_map(|pair| pair.split_once('='));
            let value = pairs.find(|(known, _)| *known == name)?.1;
            Some(percent_decode_str(value).decode_utf8().ok()?.into_owned())
        };
        let is = |name: &str, value: &str| field(name).as_deref() == Some(value);
        let no = |why: &str| Err(("invalid_grant", why.to_owned()));
        match field("grant_type").as_deref() {
            Some("urn:ietf:params:oauth:grant-type:jwt-bearer") => {
                self.note(&field("assertion").unwrap_or_default()).map_err(|why| ("invalid_grant", why))
            }
            Some("refresh_token") => match is("refresh_token", REFRESH_TOKEN) {
                true if is("client_id", CLIENT) && is("client_secret", CLIENT_SECRET) => Ok(()),
                true => Err(("invalid_client", "Unauthorized".to_owned())),
                false => no("Token has been expired or revoked."),
            },
            Some("urn:ietf:params:oauth:grant-type:token-exchange") => {
                let whole =
                    is("audience", "//iam/pool") && is("scope", SCOPE) && is("subject_token_type", "jwt");
                if whole && is("subject_token", THEIR_TOKEN) { Ok(()) } else { no("not theirs") }
            }
            _ => Err(("unsupported_grant_type", "what is asked for?".to_owned())),
        }
    }

    /// The JWT by which a service account asks.
    fn note(&self, text: &str) -> Result<(), String> {
        let (said, signature) = text.rsplit_once('.').ok_or("Invalid JWT")?;
        let (head, claims) = said.split_once('.').ok_or("Invalid JWT")?;
        let bytes = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|e| e.to_string());
        let value = |text: &str| serde_json::from_slice::<Value>(&bytes(text)?).map_err(|e| e.to_string());
        let public = self.public.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, public);
        public.verify(said.as_bytes(), &bytes(signature)?).map_err(|_| "Invalid JWT Signature.")?;
        let (head, claims) = (value(head)?, value(claims)?);
        let now = now().timestamp();
        let (from, to) = (claims["iat"].as_i64(), claims["exp"].as_i64());
        let in_time = from.zip(to).is_some_and(|(from, to)| from <= now && now < to && to - from <= 3600);
        let whole = head == json!({ "alg": "RS256", "typ": "JWT", "kid": "1" })
            && claims["iss"] == EMAIL
            // Google's own SDK names Google's endpoint, wherever it asks.
            && (claims["aud"] == format!("{}/token", self.url) || claims["aud"] == TOKEN_URI)
            && claims["scope"] == SCOPE;
        if whole && in_time { Ok(()) } else { Err(format!("Invalid claims: {head} {claims}")) }
    }

    fn has_token(&self, parts: &Parts) -> bool {
        let shown = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        shown.and_then(|shown| shown.strip_prefix("Bearer ")).is_some_and(|token| self.good().contains(token))
    }

    /// Of a request for what is in a bucket.
    pub fn check(&self, parts: &Parts, bucket: &str) -> Result<(), GcsRefused> {
        if self.has_token(parts) {
            return Ok(());
        }
        if parts.headers.contains_key(header::AUTHORIZATION) {
            return Err((401, "authError", "Invalid Credentials".into()));
        }
        if bucket.starts_with("private") {
            return Err((
                401,
                "required",
                "Anonymous caller does not have storage.objects.list access".into(),
            ));
        }
        Ok(())
    }
}

fn plain(token: &str, seconds: u64) -> GcsAnswer {
    let told = json!({ "access_token": token, "expires_in": seconds, "token_type": "Bearer" });
    answer(200, told.to_string().into())
}
