use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::*;

type Waiting<'a> = Pin<Box<dyn Future<Output = Option<PathLock<'a>>> + 'a>>;

fn is_in<'a>(claim: &mut Waiting<'a>) -> Option<PathLock<'a>> {
    match claim.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(held) => Some(held.expect("no time passes")),
        Poll::Pending => None,
    }
}

fn share<'a>(path_locks: &'a PathLocks, path: &'a str) -> Waiting<'a> {
    Box::pin(path_locks.lock_shared(path.as_bytes(), path.as_bytes()))
}

fn alone<'a>(path_locks: &'a PathLocks, from: &'a str, to: &'a str) -> Waiting<'a> {
    Box::pin(path_locks.lock_for_move(from.as_bytes(), to.as_bytes(), [b"", b""]))
}

#[tokio::test(start_paused = true)]
async fn who_puts_waits_for_a_move_of_its_path_and_of_what_is_above_it_only() {
    let path_locks = PathLocks::default();
    let moving = is_in(&mut alone(&path_locks, "a/d", "e")).expect("nobody is there");
    for path in ["a/d", "a/d/", "a/d/x", "a/d/x/y", "e", "e/f"] {
        assert!(is_in(&mut share(&path_locks, path)).is_none(), "{path}");
    }
    for path in ["a", "a/d1", "a/c/d", "", "x/a/d", "e1"] {
        assert!(is_in(&mut share(&path_locks, path)).is_some(), "{path}");
    }
    for (from, to) in [("a", "z"), ("z", "a/d/x"), ("e/f", "z"), ("z", "a")] {
        assert!(is_in(&mut alone(&path_locks, from, to)).is_none(), "{from} to {to}");
    }
    assert!(is_in(&mut alone(&path_locks, "a/c", "a/d1")).is_some());
    drop(moving);
    assert!(is_in(&mut share(&path_locks, "a/d/x")).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_move_waits_for_who_puts_and_nobody_overtakes_it() {
    let path_locks = PathLocks::default();
    let [first, second] =
        ["d/x", "d/y"].map(|path| is_in(&mut share(&path_locks, path)).expect("side by side"));
    let mut moving = alone(&path_locks, "d", "e");
    assert!(is_in(&mut moving).is_none());
    let mut late = share(&path_locks, "d/z");
    assert!(is_in(&mut late).is_none());
    drop(first);
    assert!(is_in(&mut moving).is_none());
    drop(second);
    let moving = is_in(&mut moving).expect("its turn");
    assert!(is_in(&mut late).is_none());
    drop(moving);
    assert!(is_in(&mut late).is_some());
}

#[tokio::test(start_paused = true)]
async fn who_waited_is_told_what_became_of_its_path() {
    let path_locks = PathLocks::default();
    let steps: [(fn(&PathLock), _, _); 3] = [
        (|_| (), Fate::Stays, Fate::Stays),
        (|held| held.begin_copying(), Fate::Stays, Fate::Replaced),
        (|held| held.begin_removing(), Fate::Moved, Fate::Replaced),
    ];
    for (step, source, target) in steps {
        let moving = is_in(&mut alone(&path_locks, "d", "e")).expect("nobody is there");
        let (mut of_source, mut of_target) = (share(&path_locks, "d/x"), share(&path_locks, "e"));
        // Its name is at the place that goes; its directory is not.
        let mut beside = Box::pin(path_locks.lock_shared(b"d", b"")) as Waiting;
        let all = [&mut of_source, &mut of_target, &mut beside];
        assert!(all.into_iter().all(|one| is_in(one).is_none()));
        step(&moving);
        drop(moving);
        let fate = |one| is_in(one).expect("its turn").fate();
        assert_eq!((fate(&mut of_source), fate(&mut of_target)), (source, target));
        assert_eq!(fate(&mut beside), Fate::Stays);
        assert_eq!(is_in(&mut share(&path_locks, "d/x")).expect("nobody is there").fate(), Fate::Stays);
    }
}

#[tokio::test(start_paused = true)]
async fn directories_that_moved_are_remembered() {
    let path_locks = PathLocks::default();
    let moving = is_in(&mut alone(&path_locks, "d", "e")).expect("nobody is there");
    moving.begin_copying();
    assert_eq!(path_locks.move_of(b"d/"), DirectoryMove::Nowhere);
    moving.begin_removing_directory();
    assert_eq!([path_locks.move_of(b"d/"), path_locks.move_of(b"d/sub/")], [DirectoryMove::Moves; 2]);
    assert_eq!(
        [path_locks.move_of(b""), path_locks.move_of(b"d1/"), path_locks.move_of(b"e/")],
        [DirectoryMove::Nowhere; 3]
    );
    drop(moving);
    assert_eq!(path_locks.move_of(b"d/sub/"), DirectoryMove::Moved);
    for n in 0..MOVED_MAX {
        is_in(&mut alone(&path_locks, &format!("x{n}"), "e"))
            .expect("nobody is there")
            .begin_removing_directory();
    }
    assert_eq!(
        (path_locks.move_of(b"d/"), path_locks.move_of(b"x0/")),
        (DirectoryMove::Nowhere, DirectoryMove::Moved)
    );
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_ever() {
    let path_locks = PathLocks::default();
    let put = path_locks.lock_shared(b"d/x", b"d/x").await.expect("nobody is there");
    assert!(path_locks.lock_for_move(b"d", b"e", [b"", b""]).await.is_none());
    drop(put);
    let moving = path_locks.lock_for_move(b"d", b"e", [b"", b""]).await.expect("nobody is there");
    assert!(path_locks.lock_shared(b"d/x", b"d/x").await.is_none());
    drop(moving);
    assert!(path_locks.state().claims.is_empty());
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    fn path(&mut self) -> Vec<&'static str> {
        (0..1 + self.below(3)).map(|_| ["a", "b", "ab"][self.below(3)]).collect()
    }
}

/// What one of the model wants: paths by their parts, and whether alone.
#[derive(Clone)]
struct Wanted {
    paths: Vec<Vec<&'static str>>,
    alone: bool,
}

impl Wanted {
    fn meets(&self, other: &Wanted) -> bool {
        let pairs = self.paths.iter().flat_map(|a| other.paths.iter().map(move |b| (a, b)));
        let reaches =
            |(a, b): (&Vec<_>, &Vec<_>)| self.alone && b.starts_with(a) || other.alone && a.starts_with(b);
        (self.alone || other.alone) && pairs.into_iter().any(reaches)
    }
}

/// Who is in is who meets nobody that came before and has not left: whoever comes, leaves and gives up.
#[tokio::test(start_paused = true)]
async fn at_random_the_gate_lets_in_whom_a_list_would() {
    for seed in 1..=300_u64 {
        println!("seed {seed}");
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let path_locks = PathLocks::default();
        let mut here: Vec<(Wanted, Waiting, Option<PathLock>)> = Vec::new();
        for step in 0..120 {
            if random.below(5) < 3 && here.len() < 12 {
                let alone = random.below(3) == 0;
                let paths: Vec<_> = (0..if alone { 2 } else { 1 }).map(|_| random.path()).collect();
                let [from, to] = [0, paths.len() - 1].map(|at| paths[at].join("/"));
                let path_locks = &path_locks;
                let claim: Waiting = match alone {
                    true => Box::pin(async move {
                        path_locks.lock_for_move(from.as_bytes(), to.as_bytes(), [b"", b""]).await
                    }),
                    false => {
                        Box::pin(
                            async move { path_locks.lock_shared(from.as_bytes(), from.as_bytes()).await },
                        )
                    }
                };
                here.push((Wanted { paths, alone }, claim, None));
            } else if !here.is_empty() {
                // In, or waiting still.
                drop(here.remove(random.below(here.len())));
            }
            // Tokio lets one poll of a task ask for so much only.
            tokio::task::yield_now().await;
            let wanted: Vec<_> = here.iter().map(|(wanted, ..)| wanted.clone()).collect();
            for (at, (wants, claim, held)) in here.iter_mut().enumerate() {
                if held.is_none() {
                    *held = is_in(claim);
                }
                let expected = !wanted[..at].iter().any(|before| before.meets(wants));
                assert_eq!(held.is_some(), expected, "seed {seed}, step {step}, number {at}");
            }
        }
        here.clear();
        assert!(path_locks.state().claims.is_empty(), "seed {seed}");
    }
}
