//! Walks over all that the cache holds, and looks again at the stripes that were incomplete.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cache::CacheKey;
use cluster::Stripe;
use peer::message::HAVE_BLOCKS_MAX;
use tokio::sync::watch;
use tokio::task::JoinSet;
use types::JunctionId;

use crate::copies::known_files::IndexFile;
use crate::copies::look::StripeLook;

/// A walk begins at least so long after the last one has ended.
const EACH: Duration = Duration::from_secs(3600);
const AGAIN: Duration = Duration::from_secs(5);
/// Places of the cache that one step of a walk looks at.
const STEP: usize = 64;
/// Questions under way at once. A node takes 16 small calls of another one.
const AT_ONCE: usize = 4;
/// Incomplete stripes that are looked at in one round.
const ROUND: usize = 256;
const TICK: Duration = Duration::from_millis(250);
/// The index of files is written so often, if it has changed.
const WRITE: Duration = Duration::from_secs(1);
/// After a failure it is tried again after so long.
const WRITE_AGAIN: Duration = Duration::from_secs(60);

pub struct Scanner {
    look: StripeLook,
    index: Option<IndexFile>,
    circle: Circle,
    /// The number of the map when the walk under way began. A new map begins another walk.
    map: u64,
    /// Files that the walk under way met and whose junction nobody knows.
    unknown: i64,
    walked_at: Duration,
    pause: WalkPause,
    looked_at: Duration,
    write_at: Duration,
    alarming: BTreeSet<JunctionId>,
}

/// How long after a walk the next one begins.
#[derive(Debug)]
struct WalkPause {
    now: Duration,
    /// After one that could not find out how many copies are wanted of some file.
    again: Duration,
}

impl WalkPause {
    /// `is_unsure`: of some file nobody could be asked how many copies are wanted. It is asked again soon, and each time later.
    fn walked(&mut self, is_unsure: bool) {
        *self = match is_unsure {
            true => WalkPause { now: self.again, again: (self.again * 2).min(EACH) },
            false => WalkPause { now: EACH, again: AGAIN },
        };
    }
}

/// A walk around all places, from where the one before was when something changed: what changes often does not keep the walk from
/// getting on.
#[derive(Debug, Default)]
struct Circle {
    at: usize,
    begun: usize,
    has_wrapped: bool,
    is_over: bool,
}

impl Circle {
    fn begin(&mut self) {
        *self = Circle { at: self.at, begun: self.at, has_wrapped: false, is_over: false };
    }

    /// A step led to `next`, or (`None`) to the last place.
    fn step(&mut self, next: Option<usize>) {
        let is_twice = self.has_wrapped && next.is_none();
        self.has_wrapped |= next.is_none();
        self.at = next.unwrap_or(0);
        self.is_over = is_twice || (self.has_wrapped && self.at >= self.begun);
    }
}

impl Scanner {
    pub fn new(look: StripeLook, index: Option<IndexFile>) -> Scanner {
        Scanner {
            look,
            index,
            circle: Circle::default(),
            map: 0,
            unknown: 0,
            walked_at: Duration::ZERO,
            pause: WalkPause { now: EACH, again: AGAIN },
            looked_at: Duration::ZERO,
            write_at: Duration::ZERO,
            alarming: BTreeSet::new(),
        }
    }

    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut changes = self.look.reads.view.changes();
        self.begin_walk();
        loop {
            tokio::select! {
                () = self.round(&mut changes) => {}
                _ = stop.wait_for(|stop| *stop) => break,
            }
        }
        self.write_index(true).await;
    }

    fn begin_walk(&mut self) {
        self.circle.begin();
        self.map = self.look.reads.view.number();
        self.unknown = 0;
        self.look.books.ledger().begin_walk();
    }

    async fn round(&mut self, changes: &mut watch::Receiver<u64>) {
        let books = self.look.books.clone();
        if changes.has_changed().unwrap_or(false) {
            changes.borrow_and_update();
            // What was counted before says nothing of what is missing now.
            books.walked_map.store(0, Ordering::Release);
            books.ledger().look_at_all(books.now());
            self.begin_walk();
        }
        if self.circle.is_over
            && (books.now().saturating_sub(self.walked_at) >= self.pause.now || books.ledger().wants_walk())
        {
            self.begin_walk();
        }
        let walks = !self.circle.is_over && self.look.cache.is_counted();
        if walks {
            self.step().await;
        }
        if books.now().saturating_sub(self.looked_at) >= TICK || !walks {
            self.looked_at = books.now();
            self.look_again().await;
            self.tell();
            if books.now() >= self.write_at {
                self.write_index(false).await;
            }
        }
        if !walks {
            tokio::select! {
                () = tokio::time::sleep(TICK) => {}
                changed = changes.changed() => {
                    // Not taken notice of here: the next round does.
                    if changed.is_ok() {
                        changes.mark_changed();
                    } else {
                        tokio::time::sleep(TICK).await;
                    }
                }
            }
        }
    }

    /// A step of the walk.
    async fn step(&mut self) {
        let (books, cache) = (self.look.books.clone(), self.look.cache.clone());
        let held = cache.walk(self.circle.at, STEP).await;
        let mut looks = Vec::new();
        for key in held.keys {
            match books.known().met(key.file) {
                Some(junction) => looks.extend(ranges(&key).map(|stripes| (key, junction, stripes))),
                None => self.unknown += 1,
            }
        }
        self.look_at(looks, true).await;
        self.circle.step(held.next);
        if self.circle.is_over {
            self.forget_unmet().await;
            books.ledger().end_walk();
            books.walked_map.store(self.map, Ordering::Release);
            self.look.reads.metrics.unknown_files.set(self.unknown);
            self.look.reads.metrics.walks.inc();
            self.walked_at = books.now();
            self.pause.walked(books.unruled.swap(false, Ordering::Relaxed));
        }
    }

    /// On a thread that may block: there may be millions of files.
    async fn forget_unmet(&self) {
        let books = self.look.books.clone();
        if let Err(e) = tokio::task::spawn_blocking(move || books.known().end_walk()).await {
            tracing::warn!("forget the files that are gone: {e}");
        }
    }

    /// Looks again at stripes that were incomplete.
    async fn look_again(&self) {
        let books = &self.look.books;
        let due = books.ledger().due(books.now(), ROUND);
        let one = |(stripe, junction): (crate::copies::HeldStripe, JunctionId)| {
            (stripe.key, junction, stripe.index..stripe.index + 1)
        };
        self.look_at(due.into_iter().map(one).collect(), false).await;
    }

    async fn look_at(&self, looks: Vec<(CacheKey, JunctionId, Range<u64>)>, is_walk: bool) {
        let mut under_way = JoinSet::new();
        for (key, junction, stripes) in looks {
            if under_way.len() >= AT_ONCE {
                under_way.join_next().await;
            }
            let look = self.look.clone();
            under_way.spawn(async move { look.at(key, junction, stripes, is_walk).await });
        }
        while under_way.join_next().await.is_some() {}
    }

    /// Tells the metrics, and the log of alarms that are raised and cleared.
    fn tell(&mut self) {
        let books = &self.look.books;
        let metrics = &self.look.reads.metrics;
        {
            let ledger = books.ledger();
            metrics.set_stripes(&ledger.walked().by_copies);
            metrics.copies_missing_bytes.set(gauge(ledger.missing_bytes()));
            metrics.copies_no_room_bytes.set(gauge(ledger.walked().no_room_bytes));
        }
        metrics.hot_stripes.set(gauge(self.look.reads.view.hot_stripes() as u64));
        let dropped = books.fills().dropped();
        metrics.dropped_fills.set(gauge(dropped));
        let (waiting, dropped) = {
            let pulls = books.pulls();
            (pulls.len() as u64, pulls.dropped())
        };
        metrics.pulls_waiting.set(gauge(waiting));
        metrics.dropped_pulls.set(gauge(dropped));
        let raised = books.alarm();
        for (junction, missing) in &raised {
            if self.alarming.insert(*junction) {
                let (stripes, bytes) = (missing.stripes, missing.bytes);
                tracing::warn!(%junction, "{stripes} stripes have fewer copies than wanted; {bytes} bytes are missing");
            }
        }
        self.alarming.retain(|junction| {
            let is_raised = raised.contains_key(junction);
            if !is_raised {
                tracing::info!(%junction, "all stripes have as many copies as wanted again");
            }
            is_raised
        });
    }

    async fn write_index(&mut self, is_last: bool) {
        let Some(index) = self.index.clone() else { return };
        let now = self.look.books.now();
        self.write_at = now + WRITE;
        let books = self.look.books.clone();
        // On a thread that may block, all of it: there may be millions of files.
        let write = move || index.write_news(books.known());
        if let Ok(Err(e)) = tokio::task::spawn_blocking(write).await {
            self.write_at = now + WRITE_AGAIN;
            if !is_last {
                tracing::warn!(
                    "write the index of files for copies: {e}; after a restart they are learnt anew"
                );
            }
        }
    }
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The stripes of a file in as many as one question is about.
fn ranges(key: &CacheKey) -> impl Iterator<Item = Range<u64>> + use<> {
    let count = Stripe::count(key.size);
    let starts = (0..count).step_by(HAVE_BLOCKS_MAX as usize);
    starts.map(move |start| start..(start + HAVE_BLOCKS_MAX).min(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goes around `places` in steps of three, and says which steps were made until the circle was closed.
    fn go(circle: &mut Circle, places: usize) -> Vec<usize> {
        let mut steps = Vec::new();
        while !circle.is_over {
            steps.push(circle.at);
            let end = (circle.at + 3).min(places);
            circle.step((end < places).then_some(end));
        }
        steps
    }

    #[test]
    fn a_walk_that_begins_anew_in_the_middle_goes_on_from_there_and_comes_around() {
        let mut circle = Circle::default();
        circle.begin();
        assert_eq!(go(&mut circle, 10), [0, 3, 6, 9]);
        circle.begin();
        circle.step(Some(3));
        circle.step(Some(6));
        circle.begin();
        assert_eq!(go(&mut circle, 10), [6, 9, 0, 3]);
        circle.begin();
        assert_eq!(go(&mut circle, 0), [6, 0], "there is nothing any more");
    }

    #[test]
    fn a_walk_that_could_not_ask_for_all_comes_again_soon_and_ever_later() {
        let mut pause = WalkPause { now: EACH, again: AGAIN };
        let mut walked = |is_unsure| {
            pause.walked(is_unsure);
            pause.now
        };
        assert_eq!([true, true, true].map(&mut walked), [AGAIN, AGAIN * 2, AGAIN * 4]);
        assert_eq!([false, true].map(&mut walked), [EACH, AGAIN]);
        assert_eq!((0..20).map(|_| walked(true)).last(), Some(EACH));
    }

    #[test]
    fn a_large_file_is_asked_about_in_parts() {
        let key = |size| CacheKey { file: types::FileId([1; 16]), version: types::Version([1; 16]), size };
        assert_eq!(ranges(&key(0)).collect::<Vec<_>>(), vec![0..1; 1]);
        let large = 600 * cluster::STRIPE_BYTES - 1;
        assert_eq!(ranges(&key(large)).collect::<Vec<_>>(), [0..256, 256..512, 512..600]);
    }
}
