//! One request over a connection of its own, and its answer as a whole: what a tier's operator interface is asked.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// Over a stream that leads to the server. `answer_max`: bytes of the answer that are taken.
pub async fn exchange<S>(
    stream: S,
    request: Request<Full<Bytes>>,
    answer_max: usize,
) -> Result<Response<Bytes>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |e: hyper::Error| e.to_string();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    tokio::spawn(connection);
    let (head, body) = sender.send_request(request).await.map_err(failed)?.into_parts();
    let body = Limited::new(body, answer_max).collect().await.map_err(|e| e.to_string())?;
    Ok(Response::from_parts(head, body.to_bytes()))
}

/// The same over TCP, for who waits; also from a task, whose thread it holds. `patience`: with the whole.
pub fn ask(
    address: SocketAddr,
    mut request: Request<Full<Bytes>>,
    answer_max: usize,
    patience: Duration,
) -> Result<Response<Bytes>, String> {
    if let Ok(host) = HeaderValue::from_str(&address.to_string()) {
        request.headers_mut().entry(HOST).or_insert(host);
    }
    let talk = async {
        let stream = tokio::net::TcpStream::connect(address).await.map_err(|e| e.to_string())?;
        exchange(stream, request, answer_max).await
    };
    let talk = async {
        tokio::time::timeout(patience, talk)
            .await
            .unwrap_or_else(|_| Err(format!("no answer in {patience:?}")))
    };
    // A runtime does not start on a thread that has one.
    let asking = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|e| e.to_string())?.block_on(talk)
    };
    let done = std::thread::scope(|scope| scope.spawn(asking).join());
    done.unwrap_or_else(|_| Err("the thread that asks ended".to_owned()))
}
