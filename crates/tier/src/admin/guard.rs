//! Who may ask what of the operator's interface. The decision is pure; the middleware around it keeps the audit log.
//!
//! A browser on this machine can send requests to any address of it. So whatever it can send without its user's knowledge is
//! refused: foreign hosts (a name that was made to lead here), foreign origins, and changes in a type that needs no
//! permission of ours.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::warn;

use super::audit::Audit;
use super::{Admin, Problem, warm};
use crate::door::Token;

/// What may be read on this machine by anybody: no name of a file is told there.
const OPEN: [&str; 4] = ["/healthz", "/readyz", "/metrics", "/v1/status"];
/// A body that does not come is not waited for any longer.
const BODY_PATIENCE: Duration = Duration::from_secs(30);
const BODY_MAX: usize = 2 << 20;
/// Of an answer to a change; they are short.
const ANSWER_MAX: usize = 4 << 20;
/// Between two lines of the log about refusals.
const REFUSALS_EVERY: Duration = Duration::from_secs(10);

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub enum Peer {
    Socket { uid: u32, pid: i32 },
    Tcp { from: SocketAddr, at: IpAddr },
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// By the Unix socket.
    User {
        uid: u32,
        pid: i32,
    },
    /// With the token.
    Holder {
        from: SocketAddr,
    },
    Anybody,
    /// Whoever may send this process one; who that was is not told.
    Signal,
}

#[derive(Debug)]
pub struct Guard {
    pub own_uid: u32,
    pub token: Token,
    /// Names under which browsers and proxies may come, besides this machine's own.
    pub hosts: Vec<String>,
    pub audit: Audit,
    pub refusals: Refusals,
}

impl Guard {
    /// Or the status and the sentence with which it is refused.
    fn admit(
        &self,
        peer: &Peer,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<Who, (StatusCode, String)> {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        let who = match *peer {
            Peer::Socket { uid, pid } if uid == self.own_uid || uid == 0 => Who::User { uid, pid },
            Peer::Socket { uid, .. } => {
                let message = format!("this is the tier of another user, and you have uid {uid}");
                return Err((StatusCode::FORBIDDEN, message));
            }
            Peer::Tcp { from, at } => {
                self.check_browser(at, headers)?;
                let is_near = from.ip().to_canonical().is_loopback();
                match bearer(headers) {
                    Some(shown) if self.token.is(shown) => Who::Holder { from },
                    Some(_) => {
                        let message =
                            "the token is not this tier's; it is in admin.token of the cache directory";
                        return Err((StatusCode::UNAUTHORIZED, message.to_owned()));
                    }
                    None if is_near && reads && OPEN.contains(&path) => Who::Anybody,
                    None => {
                        let message = "this needs \"Authorization: Bearer TOKEN\"; the token is in admin.token of the cache \
                                       directory, and a command of the tier's own user needs none";
                        return Err((StatusCode::UNAUTHORIZED, message.to_owned()));
                    }
                }
            }
        };
        if *method == Method::POST && !is_json(headers) {
            let message = "send it with \"Content-Type: application/json\"".to_owned();
            return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        Ok(who)
    }

    /// What a page of somebody else's could make a browser send.
    fn check_browser(&self, at: IpAddr, headers: &HeaderMap) -> Result<(), (StatusCode, String)> {
        let refuse = |message: String| Err((StatusCode::FORBIDDEN, message));
        let text = |value: &HeaderValue| value.to_str().unwrap_or("?").to_owned();
        // Every browser sends a host.
        let host = headers.get(HOST).map(text);
        if let Some(host) = &host
            && !self.is_own_host(host, at)
        {
            return refuse(format!(
                "\"{}\" is no name of this tier; add it to [admin] hosts, or ask by the address",
                host.escape_default()
            ));
        }
        if let Some(origin) = headers.get(ORIGIN).map(text)
            && host.is_none_or(|host| !origin.eq_ignore_ascii_case(&format!("http://{host}")))
        {
            return refuse("pages of others may not ask this tier".to_owned());
        }
        match headers.get("sec-fetch-site").map(text).as_deref() {
            None | Some("none" | "same-origin") => Ok(()),
            Some(_) => refuse("pages of others may not ask this tier".to_owned()),
        }
    }

    fn is_own_host(&self, host: &str, at: IpAddr) -> bool {
        // The port says nothing: it may have been forwarded.
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split_once(']').map_or("", |(name, _)| name),
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        let known = self.hosts.iter().any(|known| known.eq_ignore_ascii_case(name));
        let is_address =
            |ip: IpAddr| ip.to_canonical().is_loopback() || ip.to_canonical() == at.to_canonical();
        known || name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_address)
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().unwrap_or("");
    Some(value.strip_prefix("Bearer ").unwrap_or("").trim())
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// Refused requests are told in the log, but no line of theirs for each: anybody can send them.
#[derive(Debug, Default)]
pub struct Refusals(std::sync::Mutex<(Option<Instant>, u64)>);

impl Refusals {
    fn tell(&self, peer: &Peer, what: &str, why: &str) {
        let mut told = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        told.1 += 1;
        if told.0.is_none_or(|last| last.elapsed() >= REFUSALS_EVERY) {
            let what = what.chars().take(200).collect::<String>();
            warn!(?peer, what, refused = told.1, "the operator's interface refused a request: {why}");
            *told = (Some(Instant::now()), 0);
        }
    }
}

/// Around every route: who may not ask is refused, and each change has its line in the audit log.
pub async fn guard(State(admin): State<Arc<Admin>>, mut request: Request, next: Next) -> Response {
    let guard = &admin.guard;
    let Some(peer) = request.extensions().get::<Peer>().copied() else {
        return Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "a connection of nobody").into_response();
    };
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let who = match guard.admit(&peer, &method, &path, request.headers()) {
        Ok(who) => who,
        Err((status, message)) => {
            guard.refusals.tell(&peer, &format!("{method} {}", path.escape_default()), &message);
            let mut response = Problem::new(status, message).into_response();
            if status == StatusCode::UNAUTHORIZED {
                response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            return response;
        }
    };
    request.extensions_mut().insert(who);
    if matches!(method, Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    let (head, body) = request.into_parts();
    let most = if path == "/v1/warm" { warm::BODY_MAX } else { BODY_MAX };
    let body = match tokio::time::timeout(BODY_PATIENCE, axum::body::to_bytes(body, most)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            let message = format!("send a whole body of at most {most} bytes");
            return Problem::new(StatusCode::PAYLOAD_TOO_LARGE, message).into_response();
        }
        Err(_) => {
            return Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not come").into_response();
        }
    };
    // Its line is written when this ends, also when who asked has gone before the answer.
    let mut line = guard.audit.begin(who, format!("{method} {path}"), &body);
    let response = next.run(Request::from_parts(head, Body::from(body))).await;
    let (head, answer) = response.into_parts();
    let answer = axum::body::to_bytes(answer, ANSWER_MAX).await.unwrap_or_default();
    line.answered(head.status, &answer);
    Response::from_parts(head, Body::from(answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarded(dir: &std::path::Path) -> Guard {
        Guard {
            own_uid: 1000,
            token: Token::for_test("secret"),
            hosts: vec!["tier.example".to_owned()],
            audit: Audit::open(dir.join("audit.log")),
            refusals: Refusals::default(),
        }
    }

    fn near() -> Peer {
        Peer::Tcp { from: "127.0.0.1:5".parse().expect("right"), at: IpAddr::from([127, 0, 0, 1]) }
    }

    fn far() -> Peer {
        Peer::Tcp { from: "10.0.0.9:5".parse().expect("right"), at: IpAddr::from([10, 0, 0, 1]) }
    }

    const JSON: (&str, &str) = ("content-type", "application/json");
    const TOKEN: (&str, &str) = ("authorization", "Bearer secret");

    fn asked(peer: Peer, request: &str, headers: &[(&str, &str)]) -> Result<Who, u16> {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (method, path) = request.split_once(' ').expect("two words");
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: axum::http::HeaderName = name.parse().expect("a name");
            map.insert(name, value.parse().expect("a value"));
        }
        let method = method.parse().expect("a method");
        guarded(dir.path()).admit(&peer, &method, path, &map).map_err(|(status, _)| status.as_u16())
    }

    #[test]
    fn anybody_near_reads_how_the_tier_does_and_nothing_else_without_the_token() {
        for path in OPEN {
            assert_eq!(asked(near(), &format!("GET {path}"), &[]), Ok(Who::Anybody), "{path}");
            assert_eq!(asked(far(), &format!("GET {path}"), &[]), Err(401), "{path}");
        }
        for request in [
            "GET /v1/stat",
            "GET /v1/jobs",
            "POST /v1/evict",
            "POST /healthz",
            "DELETE /v1/warm/1",
            "OPTIONS /",
        ] {
            assert_eq!(asked(near(), request, &[JSON]), Err(401), "{request}");
            assert!(asked(near(), request, &[JSON, TOKEN]).is_ok(), "{request}");
            assert!(asked(far(), request, &[JSON, TOKEN]).is_ok(), "{request}");
            for wrong in ["Bearer", "Bearer secre", "Basic secret", "Bearer secret2"] {
                assert_eq!(asked(near(), request, &[JSON, ("authorization", wrong)]), Err(401), "{wrong}");
            }
        }
    }

    #[test]
    fn a_page_of_others_is_refused_whatever_it_knows() {
        let post = |headers: &[(&str, &str)]| asked(near(), "POST /v1/evict", &[&[TOKEN], headers].concat());
        assert_eq!(post(&[("content-type", "text/plain")]), Err(415), "needs no leave of ours");
        assert_eq!(post(&[]), Err(415));
        assert!(post(&[("content-type", "application/json; charset=utf-8")]).is_ok());
        let get = |headers: &[(&str, &str)]| asked(near(), "GET /v1/status", headers);
        for host in [
            "evil.example",
            "evil.example:9420",
            "localhost.evil.example",
            "",
            "10.0.0.1",
            "[",
            "127.0.0.1.x",
        ] {
            assert_eq!(get(&[("host", host)]), Err(403), "{host}");
        }
        for host in ["127.0.0.1:9420", "localhost", "LOCALHOST:1", "[::1]:9420", "tier.example:80"] {
            assert!(get(&[("host", host)]).is_ok(), "{host}");
            assert!(get(&[("host", host), ("origin", &format!("http://{host}"))]).is_ok(), "{host}");
            for origin in ["http://evil.example", "null", "https://localhost", "http://localhost:8080"] {
                assert_eq!(get(&[("host", host), ("origin", origin)]), Err(403), "{host} {origin}");
            }
        }
        assert_eq!(get(&[("sec-fetch-site", "cross-site")]), Err(403));
        assert_eq!(get(&[("sec-fetch-site", "same-site")]), Err(403), "another port of this machine");
    }

    #[test]
    fn the_socket_knows_its_user_and_root() {
        let by = |uid| asked(Peer::Socket { uid, pid: 7 }, "POST /v1/evict", &[JSON]);
        assert_eq!(by(1000), Ok(Who::User { uid: 1000, pid: 7 }));
        assert_eq!(by(0), Ok(Who::User { uid: 0, pid: 7 }));
        assert_eq!(by(1001), Err(403));
    }
}
