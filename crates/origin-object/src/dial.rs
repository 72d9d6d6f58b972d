//! Connections to a far store are dialled before anybody waits for them: a reader's first large step would else wait
//! for a round trip more, all its parts together.
//!
//! - more are dialled when one was needed that was not there, and when the first request comes after a pause: who begins,
//!   goes on
//! - what nobody took soon is closed again, before the store does it
//! - to a store that is near, or does not answer, nothing is dialled ahead

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ::http::Uri;
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use tokio::io::ReadBuf;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower_service::Service;

/// Half of the parts that a line of 1 Gbit/s holds at 221 ms.
const SPARES: usize = 64;
/// A store that took longer for its last answer is far.
const FAR: Duration = Duration::from_millis(10);
/// Stores close what is silent from its beginning: the hastiest known after 10 s.
const FRESH: Duration = Duration::from_secs(8);

/// A connection that can tell if the other end has closed it.
pub trait Line: Send + 'static {
    fn is_open(&self) -> bool;
}

impl Line for MaybeHttpsStream<TokioIo<TcpStream>> {
    fn is_open(&self) -> bool {
        let tcp = match self {
            MaybeHttpsStream::Http(tcp) => tcp.inner(),
            MaybeHttpsStream::Https(tls) => tls.inner().get_ref().0.inner().inner(),
        };
        let mut byte = [0];
        // Bytes may be there (TLS: a session's ticket), an end may not.
        match tcp.poll_peek(&mut Context::from_waker(Waker::noop()), &mut ReadBuf::new(&mut byte)) {
            Poll::Pending => true,
            Poll::Ready(peeked) => peeked.is_ok_and(|length| length > 0),
        }
    }
}

/// Dials by `D`.
#[derive(Debug)]
pub struct Dialler<D: Service<Uri>> {
    dial: D,
    spares: Arc<Mutex<Spares<D::Response>>>,
}

#[derive(Debug)]
struct Spares<L> {
    ready: VecDeque<Spare<L>>,
    /// Being dialled.
    coming: usize,
    is_far: bool,
    asked: Option<Instant>,
}

#[derive(Debug)]
struct Spare<L> {
    to: Uri,
    since: Instant,
    line: L,
}

impl<D: Service<Uri> + Clone> Clone for Dialler<D> {
    fn clone(&self) -> Dialler<D> {
        Dialler { dial: self.dial.clone(), spares: self.spares.clone() }
    }
}

impl<D> Dialler<D>
where
    D: Service<Uri, Response: Line, Future: Send> + Clone + Send + 'static,
{
    pub fn new(dial: D) -> Dialler<D> {
        let spares = Spares { ready: VecDeque::new(), coming: 0, is_far: false, asked: None };
        Dialler { dial, spares: Arc::new(Mutex::new(spares)) }
    }

    /// A request is about to go there.
    pub fn asked(&self, to: &Uri) {
        let now = Instant::now();
        let before = self.spares().asked.replace(now);
        if before.is_none_or(|before| now - before > FRESH) {
            self.dial_ahead(to);
        }
    }

    /// It was, after so long.
    pub fn answered(&self, to: &Uri, after: Duration) {
        let was_far = std::mem::replace(&mut self.spares().is_far, after >= FAR);
        if !was_far {
            self.dial_ahead(to);
        }
    }

    fn dial_ahead(&self, to: &Uri) {
        let missing = self.spares().missing();
        for _ in 0..missing {
            let (mut dial, spares, to) = (self.dial.clone(), self.spares.clone(), to.clone());
            tokio::spawn(async move {
                let dialled = connect(&mut dial, to.clone()).await;
                let mut spares = lock(&spares);
                spares.coming -= 1;
                // Who waits for a connection is told why there is none.
                if let Ok(line) = dialled {
                    spares.ready.push_back(Spare { to, since: Instant::now(), line });
                }
            });
        }
    }

    fn spares(&self) -> MutexGuard<'_, Spares<D::Response>> {
        lock(&self.spares)
    }
}

fn lock<L>(spares: &Mutex<Spares<L>>) -> MutexGuard<'_, Spares<L>> {
    spares.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn connect<D: Service<Uri>>(dial: &mut D, to: Uri) -> Result<D::Response, D::Error> {
    poll_fn(|context| dial.poll_ready(context)).await?;
    dial.call(to).await
}

impl<L: Line> Spares<L> {
    fn take(&mut self, to: &Uri) -> Option<L> {
        self.close_old();
        let is_there =
            |spare: &Spare<L>| (spare.to.scheme(), spare.to.authority()) == (to.scheme(), to.authority());
        while let Some(at) = self.ready.iter().position(is_there) {
            let spare = self.ready.remove(at)?;
            if spare.line.is_open() {
                return Some(spare.line);
            }
        }
        None
    }

    fn close_old(&mut self) {
        self.ready.retain(|spare| spare.since.elapsed() < FRESH);
    }

    /// How many to dial, which are coming then.
    fn missing(&mut self) -> usize {
        self.close_old();
        let missing = if self.is_far { SPARES.saturating_sub(self.ready.len() + self.coming) } else { 0 };
        self.coming += missing;
        missing
    }
}

impl<D> Service<Uri> for Dialler<D>
where
    D: Service<Uri, Response: Line, Error: Send, Future: Send> + Clone + Send + 'static,
{
    type Response = D::Response;
    type Error = D::Error;
    type Future = Pin<Box<dyn Future<Output = Result<D::Response, D::Error>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), D::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let spare = self.spares().take(&to);
        self.dial_ahead(&to);
        let mut dialler = self.clone();
        Box::pin(async move {
            if let Some(line) = spare {
                return Ok(line);
            }
            let dialled = connect(&mut dialler.dial, to).await;
            if dialled.is_err() {
                dialler.spares().is_far = false;
            }
            dialled
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    /// A store so far away, which may be closing every connection, or refuse it.
    #[derive(Clone, Default)]
    struct Store {
        away: Duration,
        dialled: Arc<AtomicUsize>,
        closes: Arc<AtomicBool>,
        refuses: Arc<AtomicBool>,
    }

    struct Connected(Arc<AtomicBool>);

    impl Line for Connected {
        fn is_open(&self) -> bool {
            !self.0.load(Ordering::Relaxed)
        }
    }

    impl Service<Uri> for Store {
        type Response = Connected;
        type Error = &'static str;
        type Future = Pin<Box<dyn Future<Output = Result<Connected, &'static str>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Uri) -> Self::Future {
            self.dialled.fetch_add(1, Ordering::Relaxed);
            let store = self.clone();
            Box::pin(async move {
                tokio::time::sleep(store.away).await;
                if store.refuses.load(Ordering::Relaxed) { Err("no") } else { Ok(Connected(store.closes)) }
            })
        }
    }

    struct Scene {
        store: Store,
        dialler: Dialler<Store>,
        kept: Vec<Connected>,
    }

    impl Scene {
        fn new(away_ms: u64) -> Scene {
            let store = Store { away: Duration::from_millis(away_ms), ..Store::default() };
            Scene { dialler: Dialler::new(store.clone()), store, kept: Vec::new() }
        }

        /// How long the slowest of so many waited, in milliseconds.
        async fn need(&mut self, connections: usize, place: &'static str) -> u128 {
            let began = Instant::now();
            let coming: Vec<_> =
                (0..connections).map(|_| self.dialler.call(Uri::from_static(place))).collect();
            for line in coming {
                self.kept.extend(line.await);
            }
            let waited = began.elapsed();
            if !self.store.refuses.load(Ordering::Relaxed) {
                self.dialler.answered(&Uri::from_static(place), self.store.away);
            }
            waited.as_millis()
        }

        fn dialled(&self) -> usize {
            self.store.dialled.load(Ordering::Relaxed)
        }
    }

    const HERE: &str = "http://store:9000/key";

    async fn pause(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_needs_more_connections_to_a_far_store_finds_them() {
        let mut scene = Scene::new(200);
        assert_eq!(scene.need(1, HERE).await, 200);
        pause(1).await;
        assert_eq!(scene.need(40, HERE).await, 0);
        pause(1).await;
        assert_eq!(scene.need(SPARES, HERE).await, 0);
        assert_eq!(scene.kept.len(), 1 + 40 + SPARES);
        pause(1).await;
        assert_eq!(scene.dialled(), scene.kept.len() + SPARES);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_old_or_closed_or_of_another_place_is_not_given() {
        let mut scene = Scene::new(200);
        scene.need(1, HERE).await;
        pause(1).await;
        assert_eq!(scene.need(1, "http://other:9000/key").await, 200);
        pause(FRESH.as_secs()).await;
        assert_eq!(scene.need(1, HERE).await, 200);
        pause(1).await;
        scene.store.closes.store(true, Ordering::Relaxed);
        assert_eq!(scene.need(1, HERE).await, 200);
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_after_a_pause_finds_connections_soon() {
        let mut scene = Scene::new(200);
        let here = Uri::from_static(HERE);
        scene.dialler.asked(&here);
        scene.need(1, HERE).await;
        pause(60).await;
        let before = scene.dialled();
        scene.dialler.asked(&here);
        scene.dialler.asked(&here);
        pause(1).await;
        assert_eq!(scene.dialled(), before + SPARES);
        assert_eq!(scene.need(SPARES, HERE).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_dialled_ahead_to_what_is_near_or_away() {
        let mut scene = Scene::new(1);
        for _ in 0..3 {
            scene.dialler.asked(&Uri::from_static(HERE));
            scene.need(3, HERE).await;
            pause(9).await;
        }
        assert_eq!(scene.dialled(), 9);
        let mut scene = Scene::new(3_000);
        scene.store.refuses.store(true, Ordering::Relaxed);
        for _ in 0..3 {
            scene.need(3, HERE).await;
        }
        assert_eq!((scene.kept.len(), scene.dialled()), (0, 9));
    }
}
