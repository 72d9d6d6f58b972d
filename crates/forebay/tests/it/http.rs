//! Requests of a client that has no key, to servers on this machine.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use hyper::http::request::Builder;
use hyper::{Request, Response};

const PATIENCE: Duration = Duration::from_secs(60);
const ANSWER_MAX: usize = 256 << 20;

/// The answer, whatever it says. `url`: `http://ADDRESS:PORT/PATH`.
pub fn ask(
    method: &str,
    url: &str,
    with: impl FnOnce(Builder) -> Builder,
    body: &[u8],
) -> std::io::Result<Response<Bytes>> {
    let (address, _) = url.strip_prefix("http://").expect("no TLS").split_once('/').expect("a path");
    let path = url.split_once(address).expect("it is in it").1;
    let request = Request::builder().method(method).uri(path);
    // hyper tells of no length if there is nothing to send; stores refuse a PUT without one.
    let request = with(if method == "PUT" { request.header("Content-Length", body.len()) } else { request });
    let request = request.body(Bytes::copy_from_slice(body).into()).expect("a request");
    let address: SocketAddr = address.parse().expect("an address");
    program::http::ask(address, request, ANSWER_MAX, PATIENCE).map_err(std::io::Error::other)
}

/// What a GET gives, if it does.
pub fn get(url: &str) -> std::io::Result<Bytes> {
    let answer = ask("GET", url, |request| request, &[])?;
    match answer.status().is_success() {
        true => Ok(answer.into_body()),
        false => Err(std::io::Error::other(answer.status().to_string())),
    }
}
