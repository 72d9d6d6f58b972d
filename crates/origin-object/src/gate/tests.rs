use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::*;

type Waiting<'a> = Pin<Box<dyn Future<Output = Option<Held<'a>>> + 'a>>;

fn is_in<'a>(claim: &mut Waiting<'a>) -> Option<Held<'a>> {
    match claim.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(held) => Some(held.expect("no time passes")),
        Poll::Pending => None,
    }
}

fn share<'a>(gate: &'a Gate, path: &'a str) -> Waiting<'a> {
    Box::pin(gate.share(path.as_bytes(), path.as_bytes()))
}

fn alone<'a>(gate: &'a Gate, from: &'a str, to: &'a str) -> Waiting<'a> {
    Box::pin(gate.alone(from.as_bytes(), to.as_bytes(), [b"", b""]))
}

#[tokio::test(start_paused = true)]
async fn who_puts_waits_for_a_move_of_its_path_and_of_what_is_above_it_only() {
    let gate = Gate::default();
    let moves = is_in(&mut alone(&gate, "a/d", "e")).expect("nobody is there");
    for path in ["a/d", "a/d/", "a/d/x", "a/d/x/y", "e", "e/f"] {
        assert!(is_in(&mut share(&gate, path)).is_none(), "{path}");
    }
    for path in ["a", "a/d1", "a/c/d", "", "x/a/d", "e1"] {
        assert!(is_in(&mut share(&gate, path)).is_some(), "{path}");
    }
    for (from, to) in [("a", "z"), ("z", "a/d/x"), ("e/f", "z"), ("z", "a")] {
        assert!(is_in(&mut alone(&gate, from, to)).is_none(), "{from} to {to}");
    }
    assert!(is_in(&mut alone(&gate, "a/c", "a/d1")).is_some());
    drop(moves);
    assert!(is_in(&mut share(&gate, "a/d/x")).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_move_waits_for_who_puts_and_nobody_overtakes_it() {
    let gate = Gate::default();
    let [first, second] = ["d/x", "d/y"].map(|path| is_in(&mut share(&gate, path)).expect("side by side"));
    let mut moves = alone(&gate, "d", "e");
    assert!(is_in(&mut moves).is_none());
    let mut late = share(&gate, "d/z");
    assert!(is_in(&mut late).is_none());
    drop(first);
    assert!(is_in(&mut moves).is_none());
    drop(second);
    let moving = is_in(&mut moves).expect("its turn");
    assert!(is_in(&mut late).is_none());
    drop(moving);
    assert!(is_in(&mut late).is_some());
}

#[tokio::test(start_paused = true)]
async fn who_waited_is_told_what_became_of_its_path() {
    let gate = Gate::default();
    let steps: [(fn(&Held), _, _); 3] = [
        (|_| (), Fate::Stays, Fate::Stays),
        (|held| held.copies(), Fate::Stays, Fate::Replaced),
        (|held| held.removes(), Fate::Moved, Fate::Replaced),
    ];
    for (step, source, target) in steps {
        let moves = is_in(&mut alone(&gate, "d", "e")).expect("nobody is there");
        let (mut of_source, mut of_target) = (share(&gate, "d/x"), share(&gate, "e"));
        // Its name is at the place that goes; its directory is not.
        let mut beside = Box::pin(gate.share(b"d", b"")) as Waiting;
        let all = [&mut of_source, &mut of_target, &mut beside];
        assert!(all.into_iter().all(|one| is_in(one).is_none()));
        step(&moves);
        drop(moves);
        let fate = |one| is_in(one).expect("its turn").fate();
        assert_eq!((fate(&mut of_source), fate(&mut of_target)), (source, target));
        assert_eq!(fate(&mut beside), Fate::Stays);
        assert_eq!(is_in(&mut share(&gate, "d/x")).expect("nobody is there").fate(), Fate::Stays);
    }
}

#[tokio::test(start_paused = true)]
async fn directories_that_moved_are_remembered() {
    let gate = Gate::default();
    let moves = is_in(&mut alone(&gate, "d", "e")).expect("nobody is there");
    moves.copies();
    assert_eq!(gate.went(b"d/"), Went::Nowhere);
    moves.removes_directory();
    assert_eq!([gate.went(b"d/"), gate.went(b"d/sub/")], [Went::Moves; 2]);
    assert_eq!([gate.went(b""), gate.went(b"d1/"), gate.went(b"e/")], [Went::Nowhere; 3]);
    drop(moves);
    assert_eq!(gate.went(b"d/sub/"), Went::Moved);
    for n in 0..MOVED_MAX {
        is_in(&mut alone(&gate, &format!("x{n}"), "e")).expect("nobody is there").removes_directory();
    }
    assert_eq!((gate.went(b"d/"), gate.went(b"x0/")), (Went::Nowhere, Went::Moved));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_ever() {
    let gate = Gate::default();
    let put = gate.share(b"d/x", b"d/x").await.expect("nobody is there");
    assert!(gate.alone(b"d", b"e", [b"", b""]).await.is_none());
    drop(put);
    let moves = gate.alone(b"d", b"e", [b"", b""]).await.expect("nobody is there");
    assert!(gate.share(b"d/x", b"d/x").await.is_none());
    drop(moves);
    assert!(gate.state().claims.is_empty());
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
        let gate = Gate::default();
        let mut here: Vec<(Wanted, Waiting, Option<Held>)> = Vec::new();
        for step in 0..120 {
            if random.below(5) < 3 && here.len() < 12 {
                let alone = random.below(3) == 0;
                let paths: Vec<_> = (0..if alone { 2 } else { 1 }).map(|_| random.path()).collect();
                let [from, to] = [0, paths.len() - 1].map(|at| paths[at].join("/"));
                let gate = &gate;
                let claim: Waiting = match alone {
                    true => {
                        Box::pin(async move { gate.alone(from.as_bytes(), to.as_bytes(), [b"", b""]).await })
                    }
                    false => Box::pin(async move { gate.share(from.as_bytes(), from.as_bytes()).await }),
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
        assert!(gate.state().claims.is_empty(), "seed {seed}");
    }
}
