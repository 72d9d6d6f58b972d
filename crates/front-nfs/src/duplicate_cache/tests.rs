use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// Which waiter, as a number.
type Waiter = u32;

fn limits(entries: usize, answers: usize) -> DuplicateLimits {
    DuplicateLimits { entries, bytes: answers * (10 + ENTRY_BYTES), age: 10 * MINUTE }
}

fn key(xid: u32) -> CallKey {
    CallKey { client: [10, 0, 0, 1].into(), xid, procedure: 8, checksum: 77 }
}

fn answer(xid: u32) -> Vec<u8> {
    [&b"answer"[..], &xid.to_be_bytes()].concat()
}

struct Bench {
    known: DuplicateCache<Waiter>,
    now: Instant,
}

impl Bench {
    fn new(limits: DuplicateLimits) -> Bench {
        Bench { known: DuplicateCache::new(limits), now: Instant::now() }
    }

    fn begin(&mut self, key: CallKey) -> CallLookup<Waiter> {
        self.known.begin(key, key.xid, self.now)
    }

    fn done(&mut self, xid: u32) {
        self.known.done(key(xid), Some(&answer(xid)), self.now);
    }

    fn make(&mut self, xid: u32) {
        assert_eq!(self.begin(key(xid)), CallLookup::New);
        self.done(xid);
    }

    fn replays(&mut self, xid: u32) -> bool {
        self.known.begin(key(xid), 0, self.now) == CallLookup::Done(answer(xid).into())
    }
}

#[test]
fn a_call_is_new_then_running_then_done() {
    let mut bench = Bench::new(limits(10, 10));
    assert_eq!(bench.begin(key(5)), CallLookup::New);
    assert_eq!(bench.known.begin(key(5), 99, bench.now), CallLookup::Running(5), "the first one's waiter");
    bench.done(5);
    assert!(bench.replays(5) && bench.replays(5), "as often as it is asked");
}

#[test]
fn what_differs_in_anything_is_another_call() {
    let mut bench = Bench::new(limits(10, 10));
    bench.make(5);
    let others = [
        key(6),
        CallKey { client: [10, 0, 0, 2].into(), ..key(5) },
        CallKey { procedure: 9, ..key(5) },
        CallKey { checksum: 78, ..key(5) },
    ];
    for other in others {
        assert_eq!(bench.begin(other), CallLookup::New, "{other:?}");
    }
}

#[test]
fn an_answer_that_is_not_kept_makes_the_next_call_a_new_one() {
    let mut bench = Bench::new(limits(10, 10));
    assert_eq!(bench.begin(key(5)), CallLookup::New);
    bench.known.done(key(5), None, bench.now);
    assert_eq!(bench.begin(key(5)), CallLookup::New);
}

#[test]
fn answers_are_kept_for_their_age_and_no_longer() {
    let mut bench = Bench::new(limits(10, 10));
    bench.make(1);
    bench.now += 9 * MINUTE;
    assert!(bench.replays(1));
    bench.make(2);
    bench.now += 2 * MINUTE;
    assert_eq!(bench.begin(key(1)), CallLookup::New);
    assert!(bench.replays(2), "it is two minutes old");
}

#[test]
fn over_the_number_the_oldest_answer_goes_first_and_a_running_call_never() {
    let mut bench = Bench::new(limits(3, 100));
    assert_eq!(bench.begin(key(1)), CallLookup::New); // runs on
    bench.make(2);
    bench.make(3);
    bench.make(4);
    assert_eq!(bench.begin(key(1)), CallLookup::Running(1));
    assert!(bench.replays(3) && bench.replays(4));
    assert_eq!(bench.begin(key(2)), CallLookup::New, "2 was forgotten for 4");
    assert_eq!(bench.begin(key(5)), CallLookup::New);
    assert_eq!(bench.begin(key(6)), CallLookup::Full, "1, 2 and 5 are running");
    assert_eq!(bench.begin(key(5)), CallLookup::Running(5), "but what is known is answered");
    bench.done(1);
    assert_eq!(bench.begin(key(6)), CallLookup::New);
    assert_eq!(bench.known.entries.len(), 3);
}

#[test]
fn over_the_bytes_the_oldest_answer_goes_first() {
    let mut bench = Bench::new(limits(100, 3));
    (1..=5).for_each(|xid| bench.make(xid));
    assert!(!bench.known.entries.contains_key(&key(1)) && !bench.known.entries.contains_key(&key(2)));
    assert!(bench.replays(3) && bench.replays(4) && bench.replays(5));
    let larger = vec![7; 10_000];
    assert_eq!(bench.begin(key(6)), CallLookup::New);
    bench.known.done(key(6), Some(&larger), bench.now);
    assert_eq!((bench.known.entries.len(), bench.known.bytes), (0, 0), "one that is too large is not kept");
}

/// Against a list that is searched: what is remembered is what was done last.
#[test]
fn random_calls_are_remembered_as_by_a_list() {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed_u64);
    eprintln!("SEED={seed}");
    let mut state = seed;
    let mut random = move |below: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32 % below
    };
    let (entries, answers) = (12, 8);
    let mut bench = Bench::new(limits(entries, answers));
    let (mut running, mut done) = (Vec::<u32>::new(), VecDeque::<u32>::new());
    for _ in 0..50_000 {
        let xid = random(40);
        if random(3) == 0 && !running.is_empty() {
            let xid = running.swap_remove(random(running.len() as u32) as usize);
            let keep = random(4) > 0;
            bench.known.done(key(xid), keep.then(|| answer(xid)).as_deref(), bench.now);
            if keep {
                done.push_back(xid);
            }
            while done.len() > answers {
                done.pop_front();
            }
            continue;
        }
        let expected = if running.contains(&xid) {
            CallLookup::Running(xid)
        } else if done.contains(&xid) {
            CallLookup::Done(answer(xid).into())
        } else {
            if running.len() + done.len() >= entries {
                done.pop_front();
            }
            if running.len() < entries {
                running.push(xid);
                CallLookup::New
            } else {
                CallLookup::Full
            }
        };
        assert_eq!(bench.begin(key(xid)), expected);
    }
}
