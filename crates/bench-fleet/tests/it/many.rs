//! Many ranks, in one process to be kind to the machine: each is a member with sockets and a thread of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use bench_fleet::{CalledAgent, Environment, Fleet, FleetOptions, Member, RunToken, Seat};
use relay::Relay;
use testkit::ports::free_port;
use tokio::task::JoinSet;
use types::Result;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

pub fn options(rank: u32, size: u32, port: u16) -> FleetOptions {
    options_with(TOKEN, rank, size, port)
}

pub fn options_with(token: &str, rank: u32, size: u32, port: u16) -> FleetOptions {
    let (rank, size) = (rank.to_string(), size.to_string());
    let coordinator = format!("127.0.0.1:{port}");
    let variables = [
        ("FOREBAY_BENCH_RANK", rank.as_str()),
        ("FOREBAY_BENCH_SIZE", &size),
        ("FOREBAY_BENCH_COORDINATOR", &coordinator),
        ("FOREBAY_BENCH_TOKEN", token),
    ];
    let environment = Environment::from(variables.as_slice());
    FleetOptions { environment, catch_terminate: false, ..FleetOptions::default() }
}

/// Let `play` be played by `size` ranks, to a good end.
async fn with_ranks<F>(size: u32, play: impl Fn(Member) -> F)
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let results = results_of(size, play).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
}

async fn results_of<F>(size: u32, play: impl Fn(Member) -> F) -> Vec<Result<()>>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let port = free_port();
    let joining: Vec<_> =
        (0..size).map(|rank| tokio::spawn(Fleet::join(options(rank, size, port)))).collect();
    let mut playing = JoinSet::new();
    for member in joining {
        playing.spawn(play(member.await.expect("no panic").expect("joined")));
    }
    playing.join_all().await
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_members_gather_broadcast_and_meet() {
    with_ranks(64, |member| async move {
        assert_eq!((member.size(), member.roster().len()), (64, 64));
        for round in 0..3_u8 {
            // Ranks give very different amounts, some of them more than a frame.
            let of = |rank: usize| format!("{:02x}", rank as u8 ^ round).repeat(rank * 20_000);
            let all = member.gather(&of(member.rank() as usize)).await?;
            assert_eq!(all.len(), if member.is_root() { 64 } else { 0 });
            assert!(all.iter().enumerate().all(|(rank, given)| *given == of(rank)));
            let plan = format!("{round:02x}").repeat(1_500_000);
            assert_eq!(member.broadcast(member.is_root().then_some(&plan)).await?, plan);
            let barrier = member.barrier("go").await?;
            let skew = member.skew(&barrier).await?;
            assert_eq!(skew.name, "go");
            assert_eq!(member.skew(&barrier).await?, skew, "it may be asked for again");
        }
        member.finish().await
    })
    .await;
}

/// All ranks share this process's clock, so that the truth is known: one instant has one time in the fleet.
#[tokio::test(flavor = "multi_thread")]
async fn the_fleets_time_is_right_within_its_bound() {
    let instants = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    with_ranks(8, move |member| {
        let instants = instants.clone();
        async move {
            for round in 0..5 {
                if member.is_root() {
                    instants.lock().expect("no panic").push(Instant::now());
                }
                let barrier = member.barrier("look").await?;
                let instant: Instant = instants.lock().expect("no panic")[round];
                let stamp = member.stamp(instant);
                let stamps = member.gather(&stamp).await?;
                // Rank 0's clock is the fleet's, and has no error.
                assert!(stamps.first().is_none_or(|first| first.error_bound.is_zero()));
                for stamp in &stamps {
                    let apart = stamp.at.abs_diff(stamps[0].at);
                    assert!(apart <= stamp.error_bound, "{apart:?} off, of at most {stamp:?}");
                    assert!(stamp.error_bound < Duration::from_secs(1), "the bound is one: {stamp:?}");
                }
                let skew = member.skew(&barrier).await?;
                assert!(skew.error_bound < Duration::from_secs(2), "{skew:?}");
            }
            member.finish().await
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_beyond_the_limit_is_refused_where_it_is_given() {
    with_ranks(2, |member| async move {
        let error = member.gather(&"x".repeat(64 << 20)).await.expect_err("too long");
        assert!(error.to_string().contains("of at most 67108864"), "{error}");
        member.gather(&1).await?;
        member.finish().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_under_guard_ends_when_another_rank_aborts() {
    let begun = Instant::now();
    let results = results_of(3, |member| async move {
        if member.rank() == 1 {
            return Err(member.abort("enough").await);
        }
        member.guard(tokio::time::sleep(Duration::from_secs(100))).await
    })
    .await;
    assert!(begun.elapsed() < Duration::from_secs(20));
    for result in results {
        let error = result.expect_err("the run has ended").to_string();
        assert!(error.contains("rank 1 (host ") && error.ends_with("ended the run: enough"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ranks_of_another_build_or_size_end_the_run() {
    for wrong in ["build", "size"] {
        let port = free_port();
        let mut other = options(1, if wrong == "size" { 3 } else { 2 }, port);
        if wrong == "build" {
            other.build = "0.0.0".into();
        }
        let joining = tokio::spawn(Fleet::join(options(0, 2, port)));
        let refused = Fleet::join(other).await.err().expect("refused").to_string();
        let error = joining.await.expect("no panic").err().expect("ended").to_string();
        assert!(error.contains("rank 1 (host ") && refused.contains("rank 1 (host "), "{error} / {refused}");
        assert!(
            error.contains(if wrong == "build" { "runs build 0.0.0" } else { "there are 3 ranks" }),
            "{error}"
        );
    }
}

/// A barrier that let each rank go when it hears of it would be late by the way to it.
#[tokio::test(flavor = "multi_thread")]
async fn ranks_that_are_far_apart_still_begin_at_one_instant() {
    let one_way = Duration::from_millis(50);
    let port = free_port();
    let line = relay::Config { rtt: 2 * one_way, ..relay::Config::default() };
    let here = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    // Rank 0 may not be there yet; who connected tries again.
    let relay = Relay::bind(here(0), here(port), line).expect("a relay");
    let far = relay.local_addr().port();
    let joining = [options(0, 2, port), options(1, 2, far)].map(|options| tokio::spawn(Fleet::join(options)));
    let playing = joining.map(|member| {
        tokio::spawn(async move {
            let member = member.await.expect("no panic").expect("joined");
            let mut began = Vec::new();
            for _ in 0..5 {
                let barrier = member.barrier("go").await.expect("all came");
                began.push(barrier.start);
                let skew = member.skew(&barrier).await.expect("all left");
                // What is said of the clocks is no more than can be known at this distance.
                assert!(skew.error_bound >= one_way && skew.error_bound < 10 * one_way, "{skew:?}");
            }
            member.finish().await.expect("the run went well");
            began
        })
    });
    let [near, far] = playing;
    let (near, far) = (near.await.expect("no panic"), far.await.expect("no panic"));
    let apart = near.iter().zip(&far).map(|(a, b)| a.max(b).duration_since(*a.min(b)));
    // The best of five: others may need the machine too.
    let least = apart.min().expect("five");
    assert!(least < one_way / 2, "{least:?} apart");
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_were_called_are_ranks_like_others() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("bound");
    for (known, why) in [("secret", None), ("another", Some("the token is another one than its own"))] {
        let call = async {
            let stream = tokio::net::TcpStream::connect(address).await.expect("connected");
            let token = RunToken::chosen("secret".to_owned());
            let agent = CalledAgent { name: "the agent".to_owned(), stream, token };
            let member = Fleet::lead(vec![agent], options(0, 1, 1)).await?;
            let told = member.broadcast(Some(&"order".to_owned())).await?;
            let parts = member.gather(&told).await?;
            member.finish().await.map(|()| parts)
        };
        let answer = async {
            let (stream, _) = listener.accept().await.expect("called");
            let seat = Seat { rank: 1, size: 2, name: "the agent".to_owned() };
            let token = RunToken::chosen(known.to_owned());
            let member = Fleet::follow(stream, token, &seat, options(0, 1, 1)).await?;
            let now = Instant::now();
            let error = member.instant(member.stamp(now).at).saturating_duration_since(now);
            assert!(error < Duration::from_millis(1), "there and back: {error:?}");
            let told: String = member.broadcast(None).await?;
            member.gather(&told).await?;
            member.finish().await
        };
        let (called, answered) = tokio::join!(call, answer);
        match why {
            None => {
                answered.expect("the agent has done its part");
                assert_eq!(called.expect("done"), ["order", "order"]);
            }
            Some(why) => {
                let error = called.expect_err("it is not let in").to_string();
                assert!(error.contains(why) && error.contains("the agent"), "{error}");
                assert!(answered.is_err());
            }
        }
    }
}
