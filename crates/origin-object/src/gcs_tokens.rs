//! Google's access tokens: fetched by a credentials file, or from the machine's metadata server, cached, and renewed
//! before they end. <https://google.aip.dev/auth>
//!
//! No part of a key or a token is in an error: of an endpoint's answer only its words for what went wrong are.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ::http::header::{self, HeaderValue};
use ::http::{Method, Request, StatusCode};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use percent_encoding::utf8_percent_encode;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use types::{Error, ErrorKind, OutageReason, Result};

use crate::http::{Http, body_of};
use crate::url_encoding::QUERY;

/// The scope of a token; roles decide what may be done with it.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
const STS: &str = "https://sts.googleapis.com/v1/token";
/// How long before its end a token is renewed. The metadata server has a new one from five minutes before the old
/// one's end.
const EARLY: Duration = Duration::from_secs(225);
/// How long a token that could not be renewed is used before the next attempt.
const AGAIN: Duration = Duration::from_secs(10);
/// The longest use of a token, whatever its answer says of its end.
const LASTS_MAX: Duration = Duration::from_secs(24 * 3600);
/// The lifetime that is requested for an impersonation token.
const ACTING: Duration = Duration::from_secs(3600);
const ANSWER_MAX: usize = 1 << 20;
const ADVICE: &str = "give GOOGLE_APPLICATION_CREDENTIALS or ?credentials=FILE, an identity to this machine, or \
                      ?anonymous=yes";

/// Where tokens come from.
pub enum TokenSource {
    /// A service account: its key signs a JWT, which is exchanged for a token.
    ServiceAccount { email: String, key_id: String, key: Box<RsaKeyPair>, uri: String },
    /// A user who logged in (refresh token).
    User { client_id: String, client_secret: String, refresh_token: String, uri: String },
    /// Another provider, whose own token is in a file.
    Federated {
        audience: String,
        kind: String,
        file: PathBuf,
        /// The field of the file, if it is JSON.
        field: Option<String>,
        uri: String,
    },
    /// Another identity that impersonates a service account.
    For { who: Box<TokenSource>, uri: String },
    /// The machine's own identity, from its metadata server.
    Machine { host: String },
}

/// A credentials file as Google writes them.
#[derive(Deserialize)]
struct CredentialsFile {
    #[serde(rename = "type", default)]
    kind: String,
    client_email: Option<String>,
    private_key: Option<String>,
    private_key_id: Option<String>,
    token_uri: Option<String>,
    client_id: Option<String>,
    client_secret: Option<String>,
    refresh_token: Option<String>,
    audience: Option<String>,
    subject_token_type: Option<String>,
    token_url: Option<String>,
    credential_source: Option<CredentialSource>,
    service_account_impersonation_url: Option<String>,
    source_credentials: Option<Value>,
}

#[derive(Deserialize)]
struct CredentialSource {
    file: Option<PathBuf>,
    format: Option<Format>,
}

#[derive(Deserialize)]
struct Format {
    #[serde(rename = "type", default)]
    kind: String,
    subject_token_field_name: Option<String>,
}

impl TokenSource {
    /// An error does not quote the contents.
    pub fn of_file(text: &str) -> std::result::Result<TokenSource, String> {
        // serde's own errors may quote a value.
        let file = serde_json::from_str(text).map_err(|_| "it is no JSON of credentials")?;
        TokenSource::of(file)
    }

    fn of(file: CredentialsFile) -> std::result::Result<TokenSource, String> {
        let kind = file.kind;
        let lacks = |what: &str| format!("credentials of type {kind} need {what}");
        let way = match kind.as_str() {
            "service_account" => TokenSource::ServiceAccount {
                email: file.client_email.ok_or_else(|| lacks("client_email"))?,
                key_id: file.private_key_id.unwrap_or_default(),
                key: Box::new(rsa_key(&file.private_key.ok_or_else(|| lacks("private_key"))?)?),
                uri: file.token_uri.unwrap_or_else(|| TOKEN_URI.into()),
            },
            "authorized_user" => TokenSource::User {
                client_id: file.client_id.ok_or_else(|| lacks("client_id"))?,
                client_secret: file.client_secret.ok_or_else(|| lacks("client_secret"))?,
                refresh_token: file.refresh_token.ok_or_else(|| lacks("refresh_token"))?,
                uri: file.token_uri.unwrap_or_else(|| TOKEN_URI.into()),
            },
            "external_account" => {
                let source = file.credential_source.ok_or_else(|| lacks("credential_source"))?;
                let json = source.format.filter(|format| format.kind == "json");
                TokenSource::Federated {
                    audience: file.audience.ok_or_else(|| lacks("audience"))?,
                    kind: file.subject_token_type.ok_or_else(|| lacks("subject_token_type"))?,
                    file: source.file.ok_or_else(|| lacks("a file in credential_source"))?,
                    field: json.and_then(|json| json.subject_token_field_name),
                    uri: file.token_url.unwrap_or_else(|| STS.into()),
                }
            }
            "impersonated_service_account" => {
                let source = file.source_credentials.ok_or_else(|| lacks("source_credentials"))?;
                let source = serde_json::from_value(source).map_err(|_| lacks("source_credentials"))?;
                let uri = file.service_account_impersonation_url;
                let uri = uri.ok_or_else(|| lacks("service_account_impersonation_url"))?;
                return Ok(TokenSource::For { who: Box::new(TokenSource::of(source)?), uri });
            }
            other => {
                return Err(format!(
                    "credentials of type {other:?} are not followed; of type service_account, authorized_user, \
                     external_account with a file, and impersonated_service_account they are"
                ));
            }
        };
        Ok(match file.service_account_impersonation_url {
            Some(uri) => TokenSource::For { who: Box::new(way), uri },
            None => way,
        })
    }
}

/// A key in PKCS #8 in PEM, as Google issues them.
fn rsa_key(pem: &str) -> std::result::Result<RsaKeyPair, String> {
    let why = || "private_key should be an RSA key, PKCS #8 in PEM".to_owned();
    let lines = pem.lines().map(str::trim).skip_while(|line| *line != "-----BEGIN PRIVATE KEY-----").skip(1);
    let base64: String = lines.take_while(|line| !line.starts_with("-----")).collect();
    let der = BASE64_STANDARD.decode(base64).map_err(|_| why())?;
    RsaKeyPair::from_pkcs8(&der).map_err(|_| why())
}

pub struct AccessTokens {
    http: Http,
    way: TokenSource,
    /// Held during a renewal; others wait for its result.
    kept: Mutex<Option<CachedToken>>,
}

struct CachedToken {
    authorization: HeaderValue,
    renew: Instant,
    end: Instant,
}

/// A token, and how long it is valid.
struct FetchedToken {
    token: String,
    lasts: Duration,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    #[serde(default)]
    expires_in: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ActingAnswer {
    access_token: String,
    expire_time: DateTime<Utc>,
}

impl AccessTokens {
    pub fn new(http: Http, way: TokenSource) -> AccessTokens {
        AccessTokens { http, way, kept: Mutex::new(None) }
    }

    pub async fn sign(&self, mut request: Request<Bytes>) -> Result<Request<Bytes>> {
        request.headers_mut().insert(header::AUTHORIZATION, self.authorization().await?);
        Ok(request)
    }

    async fn authorization(&self) -> Result<HeaderValue> {
        let mut kept = self.kept.lock().await;
        let now = Instant::now();
        if let Some(kept) = kept.as_ref().filter(|kept| now < kept.renew) {
            return Ok(kept.authorization.clone());
        }
        match self.fetch(&self.way).await {
            Ok(FetchedToken { token, lasts }) => {
                let authorization = bearer(&token)?;
                let lasts = lasts.min(LASTS_MAX);
                let renew = now + lasts.saturating_sub(EARLY).max(lasts / 2);
                *kept = Some(CachedToken { authorization: authorization.clone(), renew, end: now + lasts });
                Ok(authorization)
            }
            Err(e) => match kept.as_mut().filter(|kept| now < kept.end) {
                Some(kept) => {
                    tracing::warn!("a token of Google's is not renewed yet: {e}");
                    kept.renew = now + AGAIN;
                    Ok(kept.authorization.clone())
                }
                None => Err(e),
            },
        }
    }

    async fn fetch(&self, way: &TokenSource) -> Result<FetchedToken> {
        match way {
            TokenSource::ServiceAccount { email, key_id, key, uri } => {
                let note = jwt(email, key_id, key, uri, Utc::now().timestamp())?;
                let grant = "urn:ietf:params:oauth:grant-type:jwt-bearer";
                self.post(uri, &[("grant_type", grant), ("assertion", &note)]).await
            }
            TokenSource::User { client_id, client_secret, refresh_token, uri } => {
                let form = [
                    ("grant_type", "refresh_token"),
                    ("client_id", client_id),
                    ("client_secret", client_secret),
                    ("refresh_token", refresh_token),
                ];
                self.post(uri, &form).await
            }
            TokenSource::Federated { audience, kind, file, field, uri } => {
                let theirs = their_token(file, field.as_deref())?;
                let form = [
                    ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
                    ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
                    ("audience", audience),
                    ("scope", SCOPE),
                    ("subject_token_type", kind),
                    ("subject_token", &theirs),
                ];
                self.post(uri, &form).await
            }
            TokenSource::For { who, uri } => {
                let FetchedToken { token, .. } = Box::pin(self.fetch(who)).await?;
                let body =
                    json!({ "scope": [SCOPE], "lifetime": format!("{}s", ACTING.as_secs()) }).to_string();
                let mut request = request(Method::POST, uri, "application/json", body.into())?;
                request.headers_mut().insert(header::AUTHORIZATION, bearer(&token)?);
                let told: ActingAnswer = self.ask(request, uri).await?;
                Ok(FetchedToken {
                    token: told.access_token,
                    lasts: acting_for(told.expire_time - Utc::now()),
                })
            }
            TokenSource::Machine { host } => {
                let uri = format!("http://{host}/computeMetadata/v1/instance/service-accounts/default/token");
                let mut request = request(Method::GET, &uri, "text/plain", Bytes::new())?;
                request.headers_mut().insert("metadata-flavor", HeaderValue::from_static("Google"));
                self.ask::<TokenAnswer>(request, &uri).await.map(FetchedToken::from)
            }
        }
    }

    async fn post(&self, uri: &str, form: &[(&str, &str)]) -> Result<FetchedToken> {
        let pairs = form.iter().map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, QUERY)));
        let body = pairs.collect::<Vec<_>>().join("&");
        let request = request(Method::POST, uri, "application/x-www-form-urlencoded", body.into())?;
        self.ask::<TokenAnswer>(request, uri).await.map(FetchedToken::from)
    }

    async fn ask<T: for<'de> Deserialize<'de>>(&self, request: Request<Bytes>, uri: &str) -> Result<T> {
        let error = |kind, context: String| Error::new(kind, "find credentials", context);
        let refused = |context: String| Error::outage(OutageReason::Credentials, "find credentials", context);
        let answer = self.http.send(request).await.map_err(|lost| match &self.way {
            // Most likely not a machine of Google's.
            TokenSource::Machine { .. } if !lost.sent => refused(ADVICE.into()).with_source(lost),
            _ => error(ErrorKind::Unavailable, uri.into()).with_source(lost),
        })?;
        let status = answer.status();
        let body = body_of(answer, ANSWER_MAX).await;
        let body = body.map_err(|lost| error(ErrorKind::Unavailable, uri.into()).with_source(lost))?;
        if status.is_success() {
            return serde_json::from_slice(&body)
                .map_err(|_| error(ErrorKind::Corrupt, format!("{uri} gave no token")));
        }
        let passes = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
        let said = format!("{uri} said {}{}", status.as_u16(), why(&body));
        Err(if passes { error(ErrorKind::Unavailable, said) } else { refused(said) })
    }
}

impl From<TokenAnswer> for FetchedToken {
    fn from(told: TokenAnswer) -> FetchedToken {
        FetchedToken { token: told.access_token, lasts: Duration::from_secs(told.expires_in) }
    }
}

/// How long a token is valid that ends after this much of our clock. More than the hour that was requested means a
/// wrong clock: then it is the hour, and a store that refuses the token shows it.
fn acting_for(left: TimeDelta) -> Duration {
    left.to_std().ok().filter(|left| *left <= ACTING && !left.is_zero()).unwrap_or(ACTING)
}

/// `{"error": "invalid_grant", "error_description": …}`, or Google's longer form of it. One line.
fn why(body: &[u8]) -> String {
    let told: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let code = text(&told["error"]).or_else(|| text(&told["error"]["status"]));
    let words = text(&told["error_description"]).or_else(|| text(&told["error"]["message"]));
    let line = |text: String| text.lines().next().unwrap_or_default().to_owned();
    [code.map(|code| format!(" {}", line(code))), words.map(|words| format!(": {}", line(words)))]
        .into_iter()
        .flatten()
        .collect()
}

fn bearer(token: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| Error::new(ErrorKind::Corrupt, "find credentials", "a token with odd characters"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn request(method: Method, uri: &str, kind: &'static str, body: Bytes) -> Result<Request<Bytes>> {
    let length = body.len();
    Request::builder()
        .method(method)
        .uri(uri)
        .header(header::CONTENT_TYPE, kind)
        .header(header::CONTENT_LENGTH, length)
        .body(body)
        .map_err(|e| Error::new(ErrorKind::Config, "find credentials", uri).with_source(e))
}

/// A JWT that asks for a token, signed with RS256.
fn jwt(email: &str, key_id: &str, key: &RsaKeyPair, uri: &str, now: i64) -> Result<String> {
    let encode = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let head = encode(json!({ "alg": "RS256", "typ": "JWT", "kid": key_id }));
    let claims = json!({ "iss": email, "scope": SCOPE, "aud": uri, "iat": now, "exp": now + 3600 });
    let said = format!("{head}.{}", encode(claims));
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), said.as_bytes(), &mut signature)
        .map_err(|e| Error::new(ErrorKind::Io, "sign", "a request for a token").with_source(e))?;
    Ok(format!("{said}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
}

/// Read each time: whoever provides the file renews it.
fn their_token(file: &PathBuf, field: Option<&str>) -> Result<String> {
    let wrong = |why: &str| {
        Error::outage(OutageReason::Credentials, "find credentials", format!("{}: {why}", file.display()))
    };
    let text = std::fs::read_to_string(file).map_err(|e| wrong(&e.to_string()))?;
    let Some(field) = field else { return Ok(text.trim().to_owned()) };
    let told: Value = serde_json::from_str(&text).map_err(|_| wrong("it is no JSON"))?;
    let token = told[field].as_str().ok_or_else(|| wrong(&format!("it has no {field}")))?;
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use testkit::gcs::{CLIENT, CLIENT_SECRET, Gcs, REFRESH_TOKEN, THEIR_TOKEN};
    use testkit::lab::{NotRun, not_run};

    use super::*;

    fn refused(text: &str) -> String {
        TokenSource::of_file(text).err().expect("refused")
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_without_what_is_in_it() {
        let secret = "not-a-secret-of-anybody";
        for (text, told) in [
            ("", "no JSON"),
            ("[]", "no JSON"),
            ("{}", "are not followed"),
            (r#"{"type":"external_account_authorized_user"}"#, "are not followed"),
            (r#"{"type":"service_account","client_email":"a@b"}"#, "need private_key"),
            (
                r#"{"type":"service_account","client_email":"a@b","private_key":"not-a-secret-of-anybody"}"#,
                "PKCS #8",
            ),
            (
                r#"{"type":"service_account","private_key":["not-a-secret-of-anybody"]}"#,
                "no JSON of credentials",
            ),
            (r#"{"type":"authorized_user","client_id":"a","client_secret":"b"}"#, "need refresh_token"),
            (
                r#"{"type":"external_account","audience":"a","subject_token_type":"t","credential_source":{"url":"u"}}"#,
                "a file in credential_source",
            ),
        ] {
            let why = refused(text);
            assert!(why.contains(told) && !why.contains(secret) && !why.contains('\n'), "{text}: {why}");
        }
    }

    #[test]
    fn a_clock_that_is_wrong_does_not_end_a_token() {
        let at = |seconds| acting_for(TimeDelta::seconds(seconds)).as_secs();
        assert_eq!([at(1800), at(3600)], [1800, 3600]);
        assert_eq!([at(0), at(-7200), at(-315_360_000), at(315_360_000)], [3600; 4]);
    }

    #[test]
    fn somebody_may_act_for_a_service_account_in_two_forms() {
        let external = r#"{"type":"external_account","audience":"//iam/pool","subject_token_type":"jwt",
            "credential_source":{"file":"/t","format":{"type":"json","subject_token_field_name":"f"}},
            "service_account_impersonation_url":"https://acts"}"#;
        let Ok(TokenSource::For { who, uri }) = TokenSource::of_file(external) else {
            panic!("for a service account")
        };
        assert_eq!(uri, "https://acts");
        assert!(
            matches!(*who, TokenSource::Federated { field: Some(field), uri, .. } if field == "f" && uri == STS)
        );
        let user = r#"{"type":"impersonated_service_account","service_account_impersonation_url":"https://acts",
            "source_credentials":{"type":"authorized_user","client_id":"a","client_secret":"b","refresh_token":"c"}}"#;
        let Ok(TokenSource::For { who, .. }) = TokenSource::of_file(user) else {
            panic!("for a service account")
        };
        assert!(matches!(*who, TokenSource::User { uri, .. } if uri == TOKEN_URI));
    }

    #[test]
    fn a_refusal_is_one_line_in_the_endpoints_words() {
        let oauth = br#"{"error":"invalid_grant","error_description":"Invalid JWT Signature.\nmore"}"#;
        assert_eq!(why(oauth), " invalid_grant: Invalid JWT Signature.");
        let google = br#"{"error":{"code":403,"status":"PERMISSION_DENIED","message":"no"}}"#;
        assert_eq!(why(google), " PERMISSION_DENIED: no");
        assert_eq!(why(b"<html>"), "");
    }

    /// The stand-in for Google's endpoints, which looks at signatures and forms; or "not run".
    fn google(name: &str) -> Option<Gcs> {
        Gcs::start().map_err(|NotRun(reason)| not_run(name, &reason)).ok()
    }

    fn tokens(way: TokenSource) -> AccessTokens {
        AccessTokens::new(Http::new().unwrap(), way)
    }

    async fn fetched(tokens: &AccessTokens) -> Result<String> {
        tokens.authorization().await.map(|value| value.to_str().unwrap().to_owned())
    }

    #[tokio::test]
    async fn each_way_leads_to_a_token() {
        let Some(google) = google("each_way_leads_to_a_token") else { return };
        let (url, dir) = (google.endpoint(), tempfile::tempdir().unwrap());
        let theirs = dir.path().join("token");
        std::fs::write(&theirs, format!("{{\"f\":\"{THEIR_TOKEN}\"}}")).unwrap();
        let user = || TokenSource::User {
            client_id: CLIENT.into(),
            client_secret: CLIENT_SECRET.into(),
            refresh_token: REFRESH_TOKEN.into(),
            uri: format!("{url}/token"),
        };
        let federated = TokenSource::Federated {
            audience: "//iam/pool".into(),
            kind: "jwt".into(),
            file: theirs,
            field: Some("f".into()),
            uri: format!("{url}/token"),
        };
        let account = TokenSource::of_file(&std::fs::read_to_string(google.credentials()).unwrap()).unwrap();
        let machine = TokenSource::Machine { host: url.trim_start_matches("http://").into() };
        let acts = TokenSource::For { who: Box::new(user()), uri: format!("{url}/acts:generateAccessToken") };
        for way in [account, user(), federated, acts, machine] {
            let tokens = tokens(way);
            let token = fetched(&tokens).await.unwrap();
            assert!(token.starts_with("Bearer ya29.token-"));
            assert_eq!(fetched(&tokens).await.unwrap(), token, "kept");
            *tokens.kept.lock().await = None;
            assert_ne!(fetched(&tokens).await.unwrap(), token);
        }
    }

    #[tokio::test]
    async fn a_token_is_renewed_before_its_end_and_used_until_then() {
        let Some(google) = google("a_token_is_renewed_before_its_end_and_used_until_then") else { return };
        let tokens =
            tokens(TokenSource::Machine { host: google.endpoint().trim_start_matches("http://").into() });
        google.issue_for(4);
        let first = fetched(&tokens).await.unwrap();
        google.issue_none();
        tokio::time::sleep(Duration::from_secs(2)).await;
        // Half its time is over, and there is no other.
        assert_eq!(fetched(&tokens).await.unwrap(), first);
        tokio::time::sleep(Duration::from_millis(2_200)).await;
        tokens.kept.lock().await.as_mut().unwrap().renew = Instant::now();
        assert_eq!(fetched(&tokens).await.unwrap_err().kind(), ErrorKind::Unavailable);
        google.issue_for(3600);
        assert_ne!(fetched(&tokens).await.unwrap(), first);
    }

    #[tokio::test]
    async fn a_token_that_says_it_never_ends_is_renewed_all_the_same() {
        let Some(google) = google("a_token_that_says_it_never_ends_is_renewed_all_the_same") else { return };
        let tokens =
            tokens(TokenSource::Machine { host: google.endpoint().trim_start_matches("http://").into() });
        google.issue_for(u64::MAX);
        let first = fetched(&tokens).await.unwrap();
        assert_eq!(fetched(&tokens).await.unwrap(), first);
        let kept = tokens.kept.lock().await;
        assert!(kept.as_ref().unwrap().end <= Instant::now() + LASTS_MAX);
    }

    #[tokio::test]
    async fn a_refused_credential_is_named_and_not_shown() {
        let Some(google) = google("a_refused_credential_is_named_and_not_shown") else { return };
        let secret = "1//a-secret-that-nobody-may-see";
        let user = tokens(TokenSource::User {
            client_id: CLIENT.into(),
            client_secret: CLIENT_SECRET.into(),
            refresh_token: secret.into(),
            uri: format!("{}/token", google.endpoint()),
        });
        let error = fetched(&user).await.unwrap_err();
        let text = error.to_string();
        assert_eq!(error.outage_reason(), Some(OutageReason::Credentials));
        assert!(text.contains("invalid_grant: Token has been expired or revoked."), "{text}");
        assert!(!text.contains(secret) && !text.contains(CLIENT_SECRET) && !text.contains('\n'), "{text}");
        // Nobody is there to ask.
        let nobody = fetched(&tokens(TokenSource::Machine { host: "127.0.0.1:9".into() })).await.unwrap_err();
        assert_eq!(nobody.outage_reason(), Some(OutageReason::Credentials));
        assert!(nobody.to_string().contains("GOOGLE_APPLICATION_CREDENTIALS"), "{nobody}");
    }
}
