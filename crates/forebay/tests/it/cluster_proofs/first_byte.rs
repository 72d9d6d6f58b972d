//! A cold read through a node that is not the stripe's primary, beside one through the primary: a measurement.
//! `cargo test --release -p forebay --test it cluster_proofs::first_byte -- --ignored --nocapture --test-threads=1`

use std::path::Path;
use std::time::{Duration, Instant};

use bench_load::target::{Client, TargetFile, from_url};
use testkit::lab::cluster::{ClusterLab, with_cluster_lab};

use super::pattern::Pattern;
use super::{MIB, ORIGIN_BYTES, asked_for, found, nfs_url, plan};

/// Of one stripe.
const FILE: u64 = 60 * MIB;
const FIRST: usize = 64 << 10;
const PIECE: usize = 1 << 20;
/// Files that are read at most until both ways were taken often enough.
const FILES_MAX: usize = 200;

#[derive(Debug, Default)]
struct Times {
    first: Vec<f64>,
    total: Vec<f64>,
}

impl Times {
    fn medians(&self) -> [f64; 2] {
        [&self.first, &self.total].map(|times| {
            let mut sorted = times.clone();
            sorted.sort_by(f64::total_cmp);
            (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0
        })
    }
}

/// Time until the first bytes, and until the last. `first` asks for the first bytes and for nothing else, as a kernel does that does
/// not know yet how the file will be read; `client` reads on, ahead of itself.
async fn read(
    [first, client]: [&dyn Client; 2],
    pattern: &Pattern,
    number: usize,
    path: &str,
) -> types::Result<[Duration; 2]> {
    let begun = Instant::now();
    let bytes = TargetFile::read(&*first.open(path).await?, 0, FIRST).await?;
    let took = begun.elapsed();
    assert!(pattern.is(number, 0, &bytes));
    let file = client.open(path).await?;
    let mut at = bytes.len() as u64;
    while at < FILE {
        let bytes = TargetFile::read(&*file, at, PIECE).await?;
        assert!(!bytes.is_empty() && pattern.is(number, at, &bytes), "other bytes at {at}");
        at += bytes.len() as u64;
    }
    Ok([took, begun.elapsed()])
}

fn asked_origin(lab: &ClusterLab, node: usize) -> u64 {
    lab.nodes[node].metric(ORIGIN_BYTES) as u64
}

/// All reads are through one node; of which files it is the primary a hash says, so both kinds come in turns.
#[test]
#[ignore = "a measurement"]
fn a_cold_read_through_another_node_than_the_primary_beside_one_through_the_primary() {
    let name = "a_cold_read_through_another_node_than_the_primary_beside_one_through_the_primary";
    let rounds = asked_for("FOREBAY_ROUNDS", 7) as usize;
    let rtt = Duration::from_millis(asked_for("FOREBAY_RTT_MS", 70));
    let mut plan = plan(3, 1);
    plan.origin_rtt = rtt;
    // Each file is made just before it is read.
    plan.junction += "\ndirectories = \"always\"\nnegative = \"0s\"\n";
    with_cluster_lab(name, Path::new(env!("CARGO_BIN_EXE_forebay")), &plan, |lab| {
        let pattern = Pattern::new();
        found(lab, 3);
        let urls =
            ["rsize=64k&readahead=0", "rsize=1m&readahead=4"].map(|how| format!("{}&{how}", nfs_url(lab, 0)));
        let (mut own, mut others) = (Times::default(), Times::default());
        for number in 0..FILES_MAX {
            if own.total.len() >= rounds && others.total.len() >= rounds {
                break;
            }
            let path = format!("file{number}");
            pattern.write(number, &lab.tree().join(&path), FILE);
            let before = asked_origin(lab, 0);
            let took = lab.clients[0].within(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(async {
                    let first = from_url(&urls[0])?.client(0).await?;
                    let client = from_url(&urls[1])?.client(0).await?;
                    read([&*first, &*client], &pattern, number, &path).await
                })
            });
            let [first, total] =
                took.unwrap_or_else(|e| panic!("{path}: {e}")).map(|time| time.as_secs_f64());
            std::fs::remove_file(lab.tree().join(&path)).expect("it was there");
            // The first two open connections.
            if number < 2 {
                continue;
            }
            let times = if asked_origin(lab, 0) - before >= FILE / 2 { &mut own } else { &mut others };
            times.first.push(first);
            times.total.push(total);
        }
        assert!(own.total.len() >= rounds && others.total.len() >= rounds, "{own:?} {others:?}");
        let ([own_first, own_total], [other_first, other_total]) = (own.medians(), others.medians());
        println!(
            "cluster first byte, origin {rtt:?} away: through the primary {:.1} ms, {:.3} s in all (n = {}); through another node {:.1} ms, \
             {:.3} s (n = {}); ratios {:.3} and {:.3}; wanted 1.15 and 1.05",
            own_first * 1e3,
            own_total,
            own.total.len(),
            other_first * 1e3,
            other_total,
            others.total.len(),
            other_first / own_first,
            other_total / own_total
        );
        println!("all of them: {own:?} {others:?}");
    });
}
