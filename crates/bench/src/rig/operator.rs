//! What a tier's operator interface answers.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use program::http;

/// With an answer; a busy tier takes its time.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of an answer; metrics of many junctions are long.
const ANSWER_MAX: usize = 64 << 20;

/// The page at this path, or one line that says why there is none.
pub fn page(admin: SocketAddr, path: &str) -> Result<String, String> {
    let mut request = hyper::Request::get(path);
    // What a tier on another machine wants to be shown before it tells of itself, if this process was given it.
    if let Ok(token) = std::env::var("FOREBAY_ADMIN_TOKEN") {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.body(Bytes::new().into()).map_err(|e| e.to_string())?;
    let answer = http::ask(admin, request, ANSWER_MAX, PATIENCE)?;
    if !answer.status().is_success() {
        return Err(format!("http status: {}", answer.status().as_u16()));
    }
    String::from_utf8(answer.into_body().into()).map_err(|e| e.to_string())
}
