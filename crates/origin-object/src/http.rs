//! HTTP/1.1 to one store: as many connections as calls are in flight, kept open between them, and some dialled
//! ahead.
//!
//! There is no deadline for a whole body: a part of 64 MiB on a thin line takes minutes, and is fine. A call ends
//! when nothing moves: no byte of it was taken, no byte of the answer came.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use ::http::{Request, Response, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use types::{Error, ErrorKind};

use crate::dial::{Dialler, SPARES};
use crate::first_answer::{FirstAnswer, TracksFirstAnswer};

/// The time limit of a connection attempt, without TLS. One lost SYN and one retry at 200 ms distance fit.
const CONNECT: Duration = Duration::from_secs(3);
/// A call on which nothing moves for this long is given up. Stores take seconds to complete a large upload.
const STALL: Duration = Duration::from_secs(20);
/// The size of the pieces in which a body is given to the connection, so that its progress shows.
const FRAME: usize = 256 << 10;
/// The most idle connections that are kept, and how long: less than what stores wait (AWS: 5 s between requests is
/// common, MinIO 30 s and more); one that is found closed is dialled anew.
const IDLE_MAX: usize = 128;
const IDLE: Duration = Duration::from_secs(20);

/// Why no answer came.
#[derive(Debug)]
pub struct Lost {
    /// The store may have received the request, and carried it out.
    pub sent: bool,
    pub source: Box<dyn StdError + Send + Sync>,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.source)?;
        let mut below = self.source.source();
        while let Some(cause) = below {
            write!(f, ": {cause}")?;
            below = cause.source();
        }
        Ok(())
    }
}

impl StdError for Lost {}

#[derive(Debug)]
struct Stalled;

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing moved for {} s", STALL.as_secs())
    }
}

impl StdError for Stalled {}

#[derive(Clone, Debug)]
pub struct Http {
    client: Client<TracksFirstAnswer<Dialler<HttpsConnector<HttpConnector>>>, CountedBody>,
    dialler: Dialler<HttpsConnector<HttpConnector>>,
    /// The number of connections that have answered.
    answered: Arc<AtomicU64>,
}

impl Http {
    /// Trusts the certificate authorities of this machine. Has spare connections to stores that are far.
    pub fn new() -> types::Result<Http> {
        Http::with_spares(SPARES)
    }

    /// As [`Http::new`], with so many spare connections to one store at most.
    pub fn with_spares(spares: usize) -> types::Result<Http> {
        let mut tcp = HttpConnector::new();
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        let builder = HttpsConnectorBuilder::new().with_native_roots();
        // Without any, plain HTTP still works, and HTTPS says what is missing.
        let connector = match builder {
            Ok(builder) => builder.https_or_http().enable_http1().wrap_connector(tcp),
            Err(e) => {
                let message =
                    format!("certificate authorities of this machine: {e}; install ca-certificates");
                return Err(Error::new(ErrorKind::Config, "origin", message));
            }
        };
        let dialler = Dialler::new(connector, spares);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_MAX)
            .build(TracksFirstAnswer(dialler.clone()));
        Ok(Http { client, dialler, answered: Arc::default() })
    }

    /// The number of connections that have answered: the next one that does may lead to another store.
    pub fn connections(&self) -> u64 {
        self.answered.load(Ordering::SeqCst)
    }

    /// Sends to the store itself, which there will be more requests for.
    pub async fn send_to_store(&self, request: Request<Bytes>) -> Result<Response<Incoming>, Lost> {
        let (to, began) = (request.uri().clone(), Instant::now());
        self.dialler.request_begins(&to);
        let answer = self.send(request).await?;
        self.dialler.answered(&to, began.elapsed());
        Ok(answer)
    }

    /// Returns the head of the answer; its body is still to come.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Incoming>, Lost> {
        let moved = Arc::new(AtomicU64::new(0));
        let request = request.map(|data| CountedBody { data, moved: moved.clone() });
        let mut answer = std::pin::pin!(self.client.request(request));
        let mut seen = 0;
        loop {
            match tokio::time::timeout(STALL, answer.as_mut()).await {
                Ok(Ok(answer)) => {
                    if answer.extensions().get().is_none_or(FirstAnswer::is_this_one) {
                        self.answered.fetch_add(1, Ordering::SeqCst);
                    }
                    return Ok(answer);
                }
                Ok(Err(e)) => return Err(Lost { sent: !e.is_connect(), source: e.into() }),
                Err(_) => {
                    let now = moved.load(Ordering::Relaxed);
                    if now == seen {
                        return Err(Lost { sent: true, source: Stalled.into() });
                    }
                    seen = now;
                }
            }
        }
    }
}

/// Reads an answer's body. More than `most` bytes are an error, before they are read.
pub async fn body_of(answer: Response<Incoming>, most: usize) -> Result<Bytes, Lost> {
    let lost = |source: Box<dyn StdError + Send + Sync>| Lost { sent: true, source };
    let told = answer.headers().get(header::CONTENT_LENGTH);
    let told = told.and_then(|told| told.to_str().ok()?.parse::<usize>().ok());
    let too_long = || lost(format!("an answer of more than {most} bytes").into());
    if told.is_some_and(|told| told > most) {
        return Err(too_long());
    }
    let mut body = answer.into_body();
    let mut whole = BytesMut::with_capacity(told.unwrap_or(0));
    loop {
        let frame = match tokio::time::timeout(STALL, body.frame()).await {
            Err(_) => return Err(lost(Stalled.into())),
            Ok(None) => return Ok(whole.freeze()),
            Ok(Some(frame)) => frame.map_err(|e| lost(e.into()))?,
        };
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > most {
            return Err(too_long());
        }
        // A body of one frame is not copied.
        if whole.is_empty() && told == Some(data.len()) {
            return Ok(data);
        }
        whole.extend_from_slice(&data);
    }
}

/// A request body that counts the bytes that were taken of it.
#[derive(Debug)]
pub struct CountedBody {
    data: Bytes,
    moved: Arc<AtomicU64>,
}

impl Body for CountedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.data.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.data.len().min(FRAME);
        let frame = self.data.split_to(length);
        self.moved.fetch_add(length as u64, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.data.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    async fn take_request(from: &mut TcpStream) {
        let mut taken = Vec::new();
        while !taken.ends_with(b"\r\n\r\n") {
            taken.push(from.read_u8().await.expect("a request"));
        }
    }

    async fn answer(to: &mut TcpStream) {
        to.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.expect("answered");
    }

    /// Another store may take a connection over until it answers: one that is merely open proves nothing.
    #[tokio::test]
    async fn a_connection_counts_from_its_first_answer_on() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let http = Http::new().expect("a client");
        let ask = || {
            let to = format!("http://{}/key", listener.local_addr().expect("bound"));
            let request = Request::get(to).body(Bytes::new()).expect("a request");
            let http = http.clone();
            tokio::spawn(async move { http.send(request).await.expect("an answer") })
        };
        let asking = [ask(), ask()];
        let mut open = Vec::new();
        for _ in &asking {
            open.push(listener.accept().await.expect("dialled").0);
        }
        for line in &mut open {
            take_request(line).await;
        }
        assert_eq!(http.connections(), 0, "two are open, and none has answered");
        answer(&mut open[1]).await;
        answer(&mut open[0]).await;
        for asked in asking {
            asked.await.expect("no panic");
        }
        assert_eq!(http.connections(), 2);
        let again = ask();
        let [first, second] = &mut open[..] else { panic!("two connections") };
        tokio::select! {
            () = take_request(first) => answer(first).await,
            () = take_request(second) => answer(second).await,
        }
        again.await.expect("no panic");
        assert_eq!(http.connections(), 2, "and its later answers count no more");
    }
}
