//! Epochs through the nodes of a running cluster: as many clients at each link of each node. What each link and each node gave,
//! what came from other nodes, and what from the disks, beside what fio reads of these.

use std::process::ExitCode;

use bench_load::data::SeededData;
use bench_load::engine::LoadPhase;
use bench_load::outcome::PhaseOutcome;
use bench_load::shape::{Amount, LoadWork};
use bench_report::format::{self, fixed};
use bench_report::{
    Better, Cell, Measure, PUBLISHED, ResultFile, Table, TableRow, estimate, estimate_or, median, sanity,
};
use serde_json::json;
use types::Result;

use super::{GIB, LoaderArgs, LoaderPlan, percentile_ms};
use crate::args::refuse;
use crate::budget::{Budget, TimeCut};
use crate::columns;
use crate::driver;
use crate::fixture::forget_pages_below;
use crate::nodes::{BenchCluster, ClusterStage, FioDisk, NodeCount, check_fio, local_percent};
use crate::ranks::Ranks;
use crate::results::ResultBuilder;
use crate::testbed::DataSet;
use crate::worker_phases::{self, MIB};

/// What a warm run may still read of the storage: nothing but what rounding makes of it.
const WARM_EXTRA: f64 = 0.001;

/// What the nodes have of the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClusterState {
    /// Nothing.
    Cold,
    /// Everything.
    Warm,
    /// Everything, on their disks alone.
    FromDisk,
}

impl ClusterState {
    fn name(self) -> &'static str {
        match self {
            ClusterState::Cold => "cold",
            ClusterState::Warm => "warm",
            ClusterState::FromDisk => "from the disks",
        }
    }
}

/// One state, measured once.
struct ClusterEpoch {
    outcome: PhaseOutcome,
    epochs: u64,
    nodes: Vec<NodeCount>,
}

#[derive(Default)]
struct ClusterEpochs {
    cold: Vec<ClusterEpoch>,
    warm: Vec<ClusterEpoch>,
    from_disk: Vec<ClusterEpoch>,
    /// What fio read of each node's disk, by repetition, bytes per second; empty where there is none. And why not.
    fio: Vec<(Vec<f64>, Option<String>)>,
    cut: Option<TimeCut>,
}

impl ClusterEpochs {
    fn of(&self, state: ClusterState) -> &[ClusterEpoch] {
        match state {
            ClusterState::Cold => &self.cold,
            ClusterState::Warm => &self.warm,
            ClusterState::FromDisk => &self.from_disk,
        }
    }

    fn each(&self, state: ClusterState, value: impl Fn(&ClusterEpoch) -> f64) -> Vec<f64> {
        self.of(state).iter().map(value).collect()
    }
}

impl ClusterEpoch {
    fn seconds(&self) -> f64 {
        self.outcome.last_done_s().unwrap_or(0.0).max(1e-9)
    }

    fn rate(&self) -> f64 {
        self.outcome.bytes_read as f64 / self.seconds()
    }

    /// Bytes a second of the clients of one of `links` links, until the last of them was done.
    fn link_rate(&self, link: usize, links: usize) -> f64 {
        let spans = self.outcome.spans.iter().filter(|span| span.client as usize % links.max(1) == link);
        let (bytes, end) =
            spans.fold((0, 0.0_f64), |(bytes, end), span| (bytes + span.bytes, end.max(span.end_s)));
        bytes as f64 / end.max(1e-9)
    }

    fn sum(&self, of: impl Fn(&NodeCount) -> u64) -> f64 {
        self.nodes.iter().map(of).sum::<u64>() as f64
    }
}

pub async fn command(plan: &LoaderPlan, args: &LoaderArgs) -> Result<ExitCode> {
    args.nodes.check(args.origin.as_deref())?;
    if args.nodes.junctions.len() > 1 {
        return refuse("loader: one --junction; replicas measures several");
    }
    if args.limits.is_some() || args.rate.is_some() || args.knee.knee {
        return refuse(
            "loader: --limits, --rate and --knee are for a tier that the bench puts up, not for a cluster (--node)",
        );
    }
    if args.nodes.nodes.iter().any(|node| node.disk.is_some()) {
        check_fio()?;
    }
    if args.common.dry_run {
        println!(
            "loader: {} clients of {} workers read {} objects, {} in all, {} times cold and warm through {} nodes; as much is written at \
             the origin",
            plan.fleet.clients,
            plan.fleet.workers,
            plan.layout.files,
            format::bytes(plan.layout.total_bytes()),
            plan.repetitions,
            args.nodes.nodes.len()
        );
        return Ok(ExitCode::SUCCESS);
    }
    driver::command(&args.common, async |ranks| measure(ranks, plan, args).await).await
}

async fn measure(ranks: &Ranks, plan: &LoaderPlan, args: &LoaderArgs) -> Result<ResultFile> {
    let title = "Epochs of a training job through a cluster: cold and warm";
    let draft = ResultBuilder::new("loader", title, &args.common, plan.repetitions);
    let content = SeededData { seed: args.common.seed, ..SeededData::default() };
    let data = DataSet { layout: plan.layout.clone(), content };
    let (ways, junctions) = (&args.nodes.nodes, &args.nodes.junctions);
    let stage = ClusterStage::lay_out(ways, junctions, args.origin.as_deref().unwrap_or_default(), data);
    let run = async |stage: &mut ClusterStage| all(ranks, stage, plan, args).await;
    driver::on_stage(Some(ranks), &args.common, draft, stage, run, async |draft, stage, _, epochs| {
        stage.cluster.tell(draft);
        TimeCut::tell(epochs.cut, draft, "repetitions");
        for (name, value) in [
            ("clients", json!(plan.fleet.clients)),
            ("workers", json!(plan.fleet.workers)),
            ("objects", json!(plan.layout.files)),
            ("object_bytes", json!(plan.object_bytes())),
            ("block_bytes", json!(plan.block)),
            ("junction", json!(junctions.first())),
            ("link_bytes_per_second", json!(args.link_rate.map_or(0, |rate| rate.bytes_per_second()))),
        ] {
            draft.parameter(name, value);
        }
        let link_rate = args.link_rate.map(|rate| rate.bytes_per_second() as f64);
        fill(draft, plan, &stage.cluster, &epochs, link_rate);
    })
    .await
}

async fn all(
    ranks: &Ranks,
    stage: &ClusterStage,
    plan: &LoaderPlan,
    args: &LoaderArgs,
) -> Result<ClusterEpochs> {
    let budget = Budget::start(&args.common);
    let junction = args.nodes.junctions.first().map_or("/", String::as_str);
    let cluster = &stage.cluster;
    stage.await_seen(junction).await?;
    let target = BenchCluster::target(junction, cluster.links().map(|(_, link)| link));
    let take = async |state: ClusterState, epochs: u64, repetition: u32| -> Result<ClusterEpoch> {
        let amount = Amount::Epochs(epochs);
        let work = LoadWork { block_bytes: plan.block, seed: args.common.seed, amount, ..LoadWork::mfmr() };
        let phase = LoadPhase { name: state.name().to_owned(), work, ..LoadPhase::default() };
        let job = stage.files.job(plan.fleet, phase, budget.limits());
        let told = format!("loader {}/{}, {}", repetition + 1, plan.repetitions, state.name());
        let (outcome, nodes) = stage.load(ranks, &target, &job, &told).await?;
        Ok(ClusterEpoch { outcome, epochs, nodes })
    };
    let mut epochs =
        ClusterEpochs { fio: vec![Default::default(); cluster.nodes.len()], ..Default::default() };
    let cut = budget.repeat(plan.repetitions, async |repetition| {
        stage.evict_everywhere(junction)?;
        epochs.cold.push(take(ClusterState::Cold, 1, repetition).await?);
        // What the cluster still copies would be a load beside the clients'.
        stage.await_whole(junction).await?;
        let mut warm = take(ClusterState::Warm, 1, repetition).await?;
        let (wanted, least) = args.common.row_seconds();
        if warm.seconds() < least {
            // As often as it takes to be believed.
            warm = take(ClusterState::Warm, (wanted / warm.seconds()).ceil() as u64, repetition).await?;
        }
        epochs.warm.push(warm);
        if cluster.nodes.iter().any(|node| node.way.disk.is_some()) {
            forget_pages(cluster).await?;
            epochs.from_disk.push(take(ClusterState::FromDisk, 1, repetition).await?);
            for (node, found) in cluster.nodes.iter().zip(&mut epochs.fio) {
                let Some(dir) = node.way.disk.clone() else { continue };
                let measured = tokio::task::spawn_blocking(move || FioDisk::measure(&dir)).await;
                match measured.unwrap_or_else(|e| {
                    Err(types::Error::new(types::ErrorKind::Io, "measure with", "fio").with_source(e))
                }) {
                    Ok(disk) => found.0.push(disk.bytes_per_second),
                    Err(e) => found.1 = Some(e.to_string()),
                }
            }
        }
        Ok(())
    });
    let cut = cut.await?;
    Ok(ClusterEpochs { cut, ..epochs })
}

/// Of the caches that are on this machine.
async fn forget_pages(cluster: &BenchCluster) -> Result<()> {
    for dir in cluster.nodes.iter().filter_map(|node| node.way.disk.clone()) {
        let name = dir.display().to_string();
        let forgotten = tokio::task::spawn_blocking(move || forget_pages_below(&dir)).await;
        let forgotten = forgotten.map_err(std::io::Error::other).flatten();
        forgotten.map_err(|e| types::Error::io("drop the page cache of", name, e))?;
    }
    Ok(())
}

/// Why the epochs of a state must not be believed.
fn unproved(plan: &LoaderPlan, state: ClusterState, epochs: &[ClusterEpoch]) -> Vec<String> {
    let unique = plan.layout.total_bytes();
    let mut reasons = Vec::new();
    for epoch in epochs {
        reasons.extend(epoch.outcome.faults());
        reasons.extend(sanity::too_short(epoch.seconds()));
        let (read, wanted) = (epoch.outcome.bytes_read, plan.demanded().saturating_mul(epoch.epochs));
        if read != wanted {
            reasons.push(format!("the clients read {read} bytes, not {wanted}"));
        }
        let origin = epoch.sum(|node| node.origin) as u64;
        match state {
            ClusterState::Cold if origin < unique => {
                reasons.push(format!(
                    "not cold: {origin} bytes came from the storage, the data set has {unique}"
                ));
            }
            ClusterState::Warm | ClusterState::FromDisk if origin > (unique as f64 * WARM_EXTRA) as u64 => {
                reasons.push(format!("not warm: {origin} bytes came from the storage"));
            }
            _ => {}
        }
    }
    reasons.sort();
    reasons.dedup();
    reasons
}

fn fill(
    draft: &mut ResultBuilder,
    plan: &LoaderPlan,
    cluster: &BenchCluster,
    epochs: &ClusterEpochs,
    link_rate: Option<f64>,
) {
    let states = [ClusterState::Cold, ClusterState::Warm, ClusterState::FromDisk];
    let states: Vec<ClusterState> =
        states.into_iter().filter(|state| !epochs.of(*state).is_empty()).collect();
    let invalid = |state: ClusterState| unproved(plan, state, epochs.of(state));
    draft.file.tables.push(figures(plan, cluster, epochs, &states));
    draft.file.tables.push(PUBLISHED.aistore.results.table());
    draft.file.tables.push(of_links(cluster, epochs, &invalid(ClusterState::Warm), link_rate));
    draft.file.tables.push(of_nodes(cluster, epochs, &invalid(ClusterState::Warm)));
    if states.contains(&ClusterState::FromDisk) {
        draft.file.tables.push(of_disks(cluster, epochs, &invalid(ClusterState::FromDisk)));
    }
    for state in &states {
        let (name, rates) = (format!("{} throughput", state.name()), epochs.each(*state, |e| e.rate() / GIB));
        draft.measure(Measure::new(name, "GiB/s", Better::Higher, rates), &invalid(*state));
    }
    let moved = states.iter().filter_map(|state| {
        epochs.of(*state).first().map(|epoch| (state.name().to_owned(), &epoch.outcome.series))
    });
    draft.file.plots.push(worker_phases::throughput("Throughput of the first repetition", moved));
    let (nodes, links) = (cluster.nodes.len(), cluster.links().count());
    let middle = |state| median(&epochs.each(state, |epoch| epoch.rate() / MIB));
    if let (Some(cold), Some(warm)) = (middle(ClusterState::Cold), middle(ClusterState::Warm)) {
        draft.verdict(format!(
            "through {nodes} nodes with {links} links: {} MiB/s cold, {} MiB/s warm ({} times)",
            fixed(cold, 1),
            fixed(warm, 1),
            fixed(warm / cold, 2)
        ));
        if let Some(given) = link_rate.map(|rate| rate * links as f64 / MIB) {
            draft.verdict(format!(
                "warm it gives {} of what its links carry ({} MiB/s)",
                fixed(warm / given, 3),
                fixed(given, 1)
            ));
        }
    }
}

fn figures(
    plan: &LoaderPlan,
    cluster: &BenchCluster,
    epochs: &ClusterEpochs,
    states: &[ClusterState],
) -> Table {
    let latency = |epoch: &ClusterEpoch| epoch.outcome.unit.mean().map_or(f64::NAN, |us| us / 1000.0);
    let remote = |epoch: &ClusterEpoch| epoch.sum(NodeCount::remote);
    type Figure<'a> = (&'a str, &'a dyn Fn(&ClusterEpoch) -> f64);
    let rows: [Figure<'_>; 8] = [
        ("Average Throughput (GiB/s)", &|epoch| epoch.rate() / GIB),
        ("Average Latency (ms)", &latency),
        ("p99 latency (ms)", &|epoch| percentile_ms(&epoch.outcome.unit, 99.0)),
        ("Bytes from the storage (GiB)", &|epoch| epoch.sum(|node| node.origin) / GIB),
        ("Amplification (storage bytes / data set)", &|epoch| {
            epoch.sum(|node| node.origin) / plan.layout.total_bytes().max(1) as f64
        }),
        ("Fetched by nodes for their clients (GiB)", &|epoch| remote(epoch) / GIB),
        ("Sent from node to node (GiB)", &|epoch| epoch.sum(|node| node.sent) / GIB),
        ("local-read %", &|epoch| local_percent(&epoch.nodes)),
    ];
    let row = |(name, value): &Figure<'_>| {
        let cells = states.iter().map(|state| estimate(&epochs.each(*state, value)));
        [Cell::text(*name)].into_iter().chain(cells).collect()
    };
    let mut heads = vec!["Metric".to_owned()];
    heads.extend(
        states.iter().map(|state| format!("{}{}", state.name()[..1].to_uppercase(), &state.name()[1..])),
    );
    let mut table =
        Table::new("Epochs", heads, rows.iter().map(|figure| TableRow::new(row(figure))).collect());
    let mut notes = vec![format!(
        "{} clients of {} workers go round {} links of {} nodes; each reads every object once in an epoch, through its own link.",
        plan.fleet.clients,
        plan.fleet.workers,
        cluster.links().count(),
        cluster.nodes.len()
    )];
    for state in states {
        let why = unproved(plan, *state, epochs.of(*state));
        table.rows.iter_mut().for_each(|row| {
            row.invalid.extend(why.iter().map(|why| format!("{}: {why}", state.name())));
        });
    }
    if states.contains(&ClusterState::FromDisk) {
        notes.push(
            "From the disks: the kernel was asked to forget the pages of the caches before.".to_owned(),
        );
    }
    table.noted(notes)
}

fn of_links(
    cluster: &BenchCluster,
    epochs: &ClusterEpochs,
    invalid: &[String],
    link_rate: Option<f64>,
) -> Table {
    let links: Vec<(usize, (usize, &String))> = cluster.links().enumerate().collect();
    let count = links.len();
    let rates = |state, link: usize| epochs.each(state, |epoch| epoch.link_rate(link, count) / MIB);
    columns::table(
        "Links",
        &links,
        |_| invalid.to_vec(),
        &[
            ("Node", &|(_, (node, _))| Cell::text(cluster.nodes.get(*node).map_or("", |node| &node.name))),
            ("Link", &|(_, (_, link))| Cell::text(*link)),
            ("cold MiB/s", &|(at, _)| estimate(&rates(ClusterState::Cold, *at))),
            ("warm MiB/s", &|(at, _)| estimate(&rates(ClusterState::Warm, *at))),
            ("warm, share of the link", &|(at, _)| {
                let warm = median(&rates(ClusterState::Warm, *at));
                let share = warm.zip(link_rate).map(|(warm, rate)| warm * MIB / rate);
                share.map_or_else(|| Cell::missing("--link-rate was not given"), Cell::Number)
            }),
        ],
    )
    .noted([
        "To clients, over what its own clients took; what nodes send to each other goes over the same links.",
    ])
}

fn of_nodes(cluster: &BenchCluster, epochs: &ClusterEpochs, invalid: &[String]) -> Table {
    let places: Vec<usize> = (0..cluster.nodes.len()).collect();
    let rate = |state, node: usize, of: fn(&NodeCount) -> u64| {
        estimate(&epochs.each(state, |epoch| {
            epoch.nodes.get(node).map_or(f64::NAN, |node| of(node) as f64) / MIB / epoch.seconds()
        }))
    };
    columns::table(
        "Nodes",
        &places,
        |_| invalid.to_vec(),
        &[
            ("Node", &|at| Cell::text(cluster.nodes.get(*at).map_or("", |node| &node.name))),
            ("to clients, cold MiB/s", &|at| rate(ClusterState::Cold, *at, |node| node.served)),
            ("to clients, warm MiB/s", &|at| rate(ClusterState::Warm, *at, |node| node.served)),
            ("to other nodes, cold MiB/s", &|at| rate(ClusterState::Cold, *at, |node| node.sent)),
            ("to other nodes, warm MiB/s", &|at| rate(ClusterState::Warm, *at, |node| node.sent)),
            ("from the storage, cold MiB/s", &|at| rate(ClusterState::Cold, *at, |node| node.origin)),
        ],
    )
    .noted(["By the nodes' own counters."])
}

fn of_disks(cluster: &BenchCluster, epochs: &ClusterEpochs, invalid: &[String]) -> Table {
    let places: Vec<usize> = (0..cluster.nodes.len()).collect();
    let state = ClusterState::FromDisk;
    let disk = |at: usize| -> Vec<f64> {
        let rate = |epoch: &ClusterEpoch| Some(epoch.nodes.get(at)?.disk? as f64 / MIB / epoch.seconds());
        epochs.of(state).iter().filter_map(rate).collect()
    };
    let fio = |at: usize| -> (Vec<f64>, String) {
        let (rates, why) = epochs.fio.get(at).cloned().unwrap_or_default();
        let why = why.unwrap_or_else(|| "no disk=DIR was given for it".to_owned());
        (rates.iter().map(|rate| rate / MIB).collect(), why)
    };
    columns::table(
        "Disks",
        &places,
        |_| invalid.to_vec(),
        &[
            ("Node", &|at| Cell::text(cluster.nodes.get(*at).map_or("", |node| &node.name))),
            ("to clients MiB/s", &|at| {
                estimate(&epochs.each(state, |epoch| {
                    epoch.nodes.get(*at).map_or(f64::NAN, |node| node.served as f64) / MIB / epoch.seconds()
                }))
            }),
            ("from its disks MiB/s", &|at| estimate_or(&disk(*at), "the node does not tell")),
            ("fio MiB/s", &|at| {
                let (rates, why) = fio(*at);
                estimate_or(&rates, why)
            }),
            ("share of what fio reads", &|at| {
                let both = median(&disk(*at)).zip(median(&fio(*at).0));
                both.map_or_else(|| Cell::missing("one of them is not known"), |(disk, fio)| Cell::Number(disk / fio))
            }),
        ],
    )
    .noted([
        "fio reads the largest files of the cache in order, several at once, past the page cache, with no other load, after the epoch. \
         Nodes whose caches share a disk share what fio reads of it.",
    ])
}

#[cfg(test)]
mod tests {
    use bench_load::outcome::WorkerSpan;

    use super::*;

    #[test]
    fn the_rate_of_a_link_is_that_of_its_own_clients() {
        let span = |client: u32, end_s: f64, bytes: u64| WorkerSpan {
            client,
            end_s,
            bytes,
            ..WorkerSpan::default()
        };
        let spans = vec![span(0, 2.0, 100), span(1, 4.0, 100), span(2, 1.0, 100), span(3, 2.0, 300)];
        let outcome = PhaseOutcome { spans, ..PhaseOutcome::default() };
        let epoch = ClusterEpoch { outcome, epochs: 1, nodes: Vec::new() };
        assert_eq!((epoch.link_rate(0, 2), epoch.link_rate(1, 2)), (100.0, 100.0));
        assert_eq!(epoch.link_rate(0, 1), 150.0);
    }
}
