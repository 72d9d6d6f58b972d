//! Dials connections to a far store before they are needed: otherwise a reader's first large step would wait for one
//! more round trip with all its parts.
//!
//! - more are dialled when one was needed that was not there, and when the first request comes after a pause
//! - spare ones that nobody took soon are closed, before stores do it
//! - nothing is dialled ahead to a store that is near, or has just refused a connection, nor to endpoints for
//!   credentials

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ::http::Uri;
use ::http::uri::{Authority, Scheme};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use tokio::io::{Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower_service::Service;

/// The spare connections: half of the parts that 1 Gbit/s holds at 221 ms.
pub const SPARES: usize = 64;
/// A store that never answered within this is far.
const FAR: Duration = Duration::from_millis(10);
/// How long a spare is kept: load balancers commonly close what is silent from its beginning after 10 s and more.
const FRESH: Duration = Duration::from_secs(8);

/// A spare connection that can tell whether the other end has closed it.
pub trait SpareConnection: Send + 'static {
    fn is_open(&self) -> bool;
}

impl SpareConnection for MaybeHttpsStream<TokioIo<TcpStream>> {
    fn is_open(&self) -> bool {
        match self {
            MaybeHttpsStream::Http(tcp) => is_silent(tcp.inner()) && !has_ended(tcp.inner()),
            // There may be bytes to read: a TLS session ticket.
            MaybeHttpsStream::Https(tls) => !has_ended(tls.inner().get_ref().0.inner().inner()),
        }
    }
}

/// A server that talks unasked says that the connection is over.
fn is_silent(tcp: &TcpStream) -> bool {
    let mut byte = [0];
    tcp.poll_peek(&mut Context::from_waker(Waker::noop()), &mut ReadBuf::new(&mut byte)).is_pending()
}

/// Also if there are bytes before the end.
fn has_ended(tcp: &TcpStream) -> bool {
    match pin!(tcp.ready(Interest::READABLE)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => false,
        Poll::Ready(ready) => ready.is_ok_and(|ready| ready.is_read_closed()),
    }
}

/// Dials by `D`.
#[derive(Debug)]
pub struct Dialler<D: Service<Uri>> {
    dial: D,
    /// Spares of one store.
    most: usize,
    /// The spares of each store.
    stores: Arc<Stores<D::Response>>,
}

type HostKey = (Option<Scheme>, Option<Authority>);
type Stores<L> = Mutex<HashMap<HostKey, Spares<L>>>;

#[derive(Debug)]
struct Spares<L> {
    ready: VecDeque<(Instant, L)>,
    /// Being dialled.
    coming: usize,
    quickest: Duration,
    asked: Instant,
    refused: Option<Instant>,
}

fn place_of(uri: &Uri) -> HostKey {
    (uri.scheme().cloned(), uri.authority().cloned())
}

fn lock<L>(stores: &Stores<L>) -> MutexGuard<'_, HashMap<HostKey, Spares<L>>> {
    stores.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<D: Service<Uri> + Clone> Clone for Dialler<D> {
    fn clone(&self) -> Dialler<D> {
        Dialler { dial: self.dial.clone(), most: self.most, stores: self.stores.clone() }
    }
}

impl<D> Dialler<D>
where
    D: Service<Uri, Response: SpareConnection, Future: Send> + Clone + Send + 'static,
{
    /// With so many spares of one store at most.
    pub fn new(dial: D, most: usize) -> Dialler<D> {
        Dialler { dial, most, stores: Arc::default() }
    }

    /// Records that a request is about to go to this store.
    pub fn request_begins(&self, to: &Uri) {
        let now = Instant::now();
        let before = {
            let mut stores = lock(&self.stores);
            let spares = stores.entry(place_of(to)).or_insert_with(|| Spares {
                ready: VecDeque::new(),
                coming: 0,
                quickest: Duration::ZERO,
                asked: now,
                refused: None,
            });
            std::mem::replace(&mut spares.asked, now)
        };
        if now - before > FRESH {
            self.dial_ahead(to);
        }
    }

    /// Records how long its answer took.
    pub fn answered(&self, to: &Uri, after: Duration) {
        let is_first = {
            let mut stores = lock(&self.stores);
            let Some(spares) = stores.get_mut(&place_of(to)) else { return };
            let is_first = spares.quickest.is_zero();
            spares.quickest = if is_first { after } else { spares.quickest.min(after) };
            is_first
        };
        if is_first {
            self.dial_ahead(to);
        }
    }

    fn dial_ahead(&self, to: &Uri) {
        let place = place_of(to);
        let missing = lock(&self.stores).get_mut(&place).map_or(0, |spares| spares.missing(self.most));
        for _ in 0..missing {
            let (mut dial, stores, to) = (self.dial.clone(), Arc::downgrade(&self.stores), to.clone());
            let coming = DialInProgress { stores: stores.clone(), place: place.clone() };
            tokio::spawn(async move {
                // Whoever dials for a request reports the error.
                let dialled = async move { connect(&mut dial, to).await.ok() };
                let line = tokio::time::timeout(FRESH, dialled).await.unwrap_or(None);
                let Some(stores) = stores.upgrade() else { return };
                if let Some(spares) = lock(&stores).get_mut(&coming.place) {
                    match line {
                        Some(line) => spares.ready.push_back((Instant::now(), line)),
                        None => spares.refused = Some(Instant::now()),
                    }
                }
                let (stores, place) = (Arc::downgrade(&stores), coming.place.clone());
                drop(coming);
                tokio::time::sleep(FRESH).await;
                if let Some(stores) = stores.upgrade()
                    && let Some(spares) = lock(&stores).get_mut(&place)
                {
                    spares.close_old();
                }
            });
        }
    }
}

/// A connection that is being dialled, until this is dropped.
struct DialInProgress<L> {
    stores: Weak<Stores<L>>,
    place: HostKey,
}

impl<L> Drop for DialInProgress<L> {
    fn drop(&mut self) {
        if let Some(stores) = self.stores.upgrade()
            && let Some(spares) = lock(&stores).get_mut(&self.place)
        {
            spares.coming -= 1;
        }
    }
}

async fn connect<D: Service<Uri>>(dial: &mut D, to: Uri) -> Result<D::Response, D::Error> {
    poll_fn(|context| dial.poll_ready(context)).await?;
    dial.call(to).await
}

impl<L: SpareConnection> Spares<L> {
    /// The oldest spare that is open.
    fn take(&mut self) -> Option<L> {
        self.close_old();
        std::iter::from_fn(|| self.ready.pop_front()).map(|(_, line)| line).find(L::is_open)
    }

    fn close_old(&mut self) {
        self.ready.retain(|(since, _)| since.elapsed() < FRESH);
    }

    /// The number of connections to dial; they count as coming.
    fn missing(&mut self, most: usize) -> usize {
        self.close_old();
        if self.quickest < FAR || self.refused.is_some_and(|refused| refused.elapsed() < FRESH) {
            return 0;
        }
        let missing = most.saturating_sub(self.ready.len() + self.coming);
        self.coming += missing;
        missing
    }
}

impl<D> Service<Uri> for Dialler<D>
where
    D: Service<Uri, Response: SpareConnection, Error: Send, Future: Send> + Clone + Send + 'static,
{
    type Response = D::Response;
    type Error = D::Error;
    type Future = Pin<Box<dyn Future<Output = Result<D::Response, D::Error>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), D::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let spare = lock(&self.stores).get_mut(&place_of(&to)).and_then(Spares::take);
        self.dial_ahead(&to);
        let mut dial = self.dial.clone();
        Box::pin(async move {
            match spare {
                Some(line) => Ok(line),
                None => connect(&mut dial, to).await,
            }
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

    impl SpareConnection for Connected {
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
            Scene::with_spares(away_ms, SPARES)
        }

        fn with_spares(away_ms: u64, spares: usize) -> Scene {
            let store = Store { away: Duration::from_millis(away_ms), ..Store::default() };
            Scene { dialler: Dialler::new(store.clone(), spares), store, kept: Vec::new() }
        }

        /// How long the slowest of so many waited, in milliseconds.
        async fn need(&mut self, connections: usize, place: &'static str) -> u128 {
            let (to, began) = (Uri::from_static(place), Instant::now());
            self.dialler.request_begins(&to);
            let coming: Vec<_> = (0..connections).map(|_| self.dialler.call(to.clone())).collect();
            for line in coming {
                self.kept.extend(line.await);
            }
            let waited = began.elapsed();
            if !self.store.refuses.load(Ordering::Relaxed) {
                self.dialler.answered(&to, self.store.away);
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
    async fn what_is_closed_or_of_another_place_is_not_given() {
        let mut scene = Scene::new(200);
        scene.need(1, HERE).await;
        pause(1).await;
        assert_eq!(scene.need(1, "http://other:9000/key").await, 200);
        pause(1).await;
        scene.store.closes.store(true, Ordering::Relaxed);
        assert_eq!(scene.need(1, HERE).await, 200);
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_takes_soon_is_closed() {
        let mut scene = Scene::new(200);
        scene.need(1, HERE).await;
        pause(1).await;
        let open = || Arc::strong_count(&scene.store.closes);
        let many = open();
        pause(FRESH.as_secs() + 1).await;
        assert_eq!(many - open(), SPARES);
        assert_eq!(scene.need(1, HERE).await, 200);
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_after_a_pause_finds_connections_soon() {
        let mut scene = Scene::new(200);
        let here = Uri::from_static(HERE);
        scene.need(1, HERE).await;
        pause(60).await;
        let before = scene.dialled();
        scene.dialler.request_begins(&here);
        scene.dialler.request_begins(&here);
        pause(1).await;
        assert_eq!(scene.dialled(), before + SPARES);
        assert_eq!(scene.need(SPARES, HERE).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn without_spares_there_are_the_connections_that_requests_asked_for() {
        let mut scene = Scene::with_spares(200, 0);
        scene.need(1, HERE).await;
        pause(60).await;
        assert_eq!(scene.need(3, HERE).await, 3 * 200, "one after the other");
        pause(60).await;
        assert_eq!(scene.dialled(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_dialled_ahead_to_what_is_near_or_refuses_or_is_no_store() {
        let mut scene = Scene::new(1);
        for _ in 0..3 {
            scene.need(3, HERE).await;
            pause(9).await;
        }
        assert_eq!(scene.dialled(), 9);
        let mut scene = Scene::new(200);
        scene.need(1, HERE).await;
        pause(60).await;
        scene.store.refuses.store(true, Ordering::Relaxed);
        scene.need(1, HERE).await;
        let before = scene.dialled();
        for _ in 0..3 {
            scene.need(3, HERE).await;
        }
        assert_eq!(scene.dialled(), before + 9);
        let mut scene = Scene::new(200);
        for _ in 0..3 {
            scene.dialler.call(Uri::from_static(HERE)).await.ok();
            scene.dialler.answered(&Uri::from_static(HERE), scene.store.away);
        }
        assert_eq!(scene.dialled(), 3);
    }

    #[tokio::test]
    async fn a_socket_that_was_closed_or_talked_to_is_not_open() {
        use tokio::io::AsyncWriteExt;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut pairs = Vec::new();
        for _ in 0..3 {
            let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            pairs.push((MaybeHttpsStream::Http(TokioIo::new(ours)), listener.accept().await.unwrap().0));
        }
        assert!(pairs.iter().all(|(ours, _)| ours.is_open()));
        pairs[1].1.write_all(b"HTTP/1.1 408").await.unwrap();
        pairs[2].1.write_all(b"ticket").await.unwrap();
        pairs[2].1.shutdown().await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(pairs.iter().map(|(ours, _)| ours.is_open()).collect::<Vec<_>>(), [true, false, false]);
        let MaybeHttpsStream::Http(ticket) = &pairs[2].0 else { unreachable!() };
        assert!(has_ended(ticket.inner()) && !is_silent(ticket.inner()), "an end behind bytes is seen");
    }
}
