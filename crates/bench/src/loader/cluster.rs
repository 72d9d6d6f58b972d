//! Epochs through the nodes of a running cluster: as many clients at each link of each node. What each link and each node gave,
//! what came from other nodes, and what from the disks, beside what fio reads of these.

use std::collections::BTreeMap;
use std::process::ExitCode;

use bench_report::format::fixed;
use bench_report::{Better, Cell, PUBLISHED, ResultFile, Table, estimate, estimate_or, median};
use serde_json::json;
use types::Result;

use super::{Figure, LoaderPlan, epochs_table, mean_ms};
use crate::entries::forget_pages_below;
use crate::nodes::{BenchCluster, BenchNode, ClusterPass, ClusterStage, check_fio, fio_rate, local_percent};
use crate::sample::WARM_EXTRA;
use crate::{
    Budget, CounterPage, GIB, MIB, Ranks, ResultBuilder, columns, data_set, driver, limit, refuse,
    worker_phases,
};

/// What the nodes have of the objects.
#[derive(Clone, Copy, Debug, strum::Display, PartialEq, Eq, PartialOrd, Ord)]
#[strum(serialize_all = "lowercase")]
enum ClusterState {
    Cold,
    Warm,
    #[strum(to_string = "from the disks")]
    FromDisk,
}

struct ClusterEpoch {
    read: ClusterPass,
    epochs: u64,
}

#[derive(Default)]
struct ClusterEpochs {
    by_state: BTreeMap<ClusterState, Vec<ClusterEpoch>>,
    /// What fio read of each node's disk, by repetition, bytes per second; empty where there is none. And why not.
    fio: Vec<(Vec<f64>, Option<String>)>,
}

impl ClusterEpochs {
    fn of(&self, state: ClusterState) -> &[ClusterEpoch] {
        self.by_state.get(&state).map_or(&[], Vec::as_slice)
    }

    fn add(&mut self, state: ClusterState, epoch: ClusterEpoch) {
        self.by_state.entry(state).or_default().push(epoch);
    }

    fn each(&self, state: ClusterState, value: impl Fn(&ClusterEpoch) -> f64) -> Vec<f64> {
        self.of(state).iter().map(value).collect()
    }
}

impl ClusterEpoch {
    fn rate(&self) -> f64 {
        self.read.outcome.bytes_read as f64 / self.read.seconds()
    }

    /// Bytes a second of the clients of one of `links` links, until the last of them was done.
    fn link_rate(&self, link: usize, links: usize) -> f64 {
        let spans = self.read.outcome.spans.iter().filter(|span| span.client as usize % links.max(1) == link);
        let (bytes, end) =
            spans.fold((0, 0.0_f64), |(bytes, end), span| (bytes + span.bytes, end.max(span.end_s)));
        bytes as f64 / end.max(1e-9)
    }
}

pub async fn command(plan: &LoaderPlan) -> Result<ExitCode> {
    let args = &plan.args;
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
    let nodes = args.nodes.nodes.len();
    let told = || {
        format!("{} cold and warm through {nodes} nodes; as much is written at the origin", plan.summary())
    };
    driver::command(&args.common, told, async |ranks| measure(ranks, plan).await).await
}

async fn measure(ranks: &Ranks, plan: &LoaderPlan) -> Result<ResultFile> {
    let args = &plan.args;
    let title = "Epochs of a training job through a cluster: cold and warm";
    let draft = ResultBuilder::new("loader", title, &args.common, plan.repetitions);
    let data = data_set(plan.layout.clone(), args.common.seed);
    let stage = ClusterStage::lay_out(&args.nodes, args.origin.as_deref(), data);
    let run = async |stage: &mut ClusterStage, budget: &Budget| all(ranks, stage, plan, budget).await;
    driver::on_stage(Some(ranks), &args.common, draft, stage, run, async |draft, stage, _, epochs| {
        stage.cluster.tell(draft);
        plan.tell(draft);
        draft.parameter("junction", json!(args.nodes.junctions.first()));
        let link_rate = args.link_rate.map(|rate| rate.bytes_per_second());
        draft.parameter("link_bytes_per_second", link_rate.unwrap_or(0));
        let link_rate = link_rate.map(|rate| rate as f64);
        ClusterAnswer { plan, cluster: &stage.cluster, epochs: &epochs, link_rate }.fill(draft);
    })
    .await
}

async fn all(
    ranks: &Ranks,
    stage: &ClusterStage,
    plan: &LoaderPlan,
    budget: &Budget,
) -> Result<ClusterEpochs> {
    let junction = plan.args.nodes.junctions.first().map_or("/", String::as_str);
    let cluster = &stage.cluster;
    stage.await_seen(junction).await?;
    let target = BenchCluster::target(junction, cluster.links().map(|(_, link)| link));
    let take = async |state: ClusterState, epochs: u64, repetition: u32| -> Result<ClusterEpoch> {
        let job = plan.job(&stage.files, state, epochs, budget);
        let told = format!("loader {}/{}, {state}", repetition + 1, plan.repetitions);
        Ok(ClusterEpoch { read: stage.load(ranks, &target, &job, &told).await?, epochs })
    };
    let fio = vec![Default::default(); cluster.nodes.len()];
    let mut epochs = ClusterEpochs { fio, ..ClusterEpochs::default() };
    let repeated = budget.repeat(plan.repetitions, "repetitions", async |repetition| {
        stage.evict_everywhere(junction)?;
        epochs.add(ClusterState::Cold, take(ClusterState::Cold, 1, repetition).await?);
        // What the cluster still copies would be a load beside the clients'.
        stage.await_whole(junction).await?;
        let mut warm = take(ClusterState::Warm, 1, repetition).await?;
        if let Some(passes) = plan.args.common.passes_to_last(warm.read.seconds()) {
            warm = take(ClusterState::Warm, passes, repetition).await?;
        }
        epochs.add(ClusterState::Warm, warm);
        if cluster.nodes.iter().any(|node| node.way.disk.is_some()) {
            // Of the caches that are on this machine.
            for dir in cluster.nodes.iter().filter_map(|node| node.way.disk.clone()) {
                forget_pages_below(dir).await?;
            }
            epochs.add(ClusterState::FromDisk, take(ClusterState::FromDisk, 1, repetition).await?);
            for (node, found) in cluster.nodes.iter().zip(&mut epochs.fio) {
                let Some(dir) = node.way.disk.clone() else { continue };
                let measured = tokio::task::spawn_blocking(move || fio_rate(&dir)).await;
                match measured.map_err(|e| e.to_string()).and_then(|rate| rate.map_err(|e| e.to_string())) {
                    Ok(rate) => found.0.push(rate),
                    Err(why) => found.1 = Some(why),
                }
            }
        }
        Ok(())
    });
    repeated.await?;
    Ok(epochs)
}

/// Why the epochs of a state must not be believed.
fn unproved(plan: &LoaderPlan, state: ClusterState, epochs: &[ClusterEpoch]) -> Vec<String> {
    let unique = plan.layout.total_bytes();
    let mut reasons = Vec::new();
    for epoch in epochs {
        reasons.extend(epoch.read.faults(plan.demanded().saturating_mul(epoch.epochs)));
        let origin = epoch.read.sum(CounterPage::origin_bytes) as u64;
        if state == ClusterState::Cold && origin < unique {
            reasons
                .push(format!("not cold: {origin} bytes came from the storage, the data set has {unique}"));
        }
        if state != ClusterState::Cold && origin > (unique as f64 * WARM_EXTRA) as u64 {
            reasons.push(format!("not warm: {origin} bytes came from the storage"));
        }
    }
    limit::distinct(reasons)
}

/// What was found, and what it was found of.
struct ClusterAnswer<'a> {
    plan: &'a LoaderPlan,
    cluster: &'a BenchCluster,
    epochs: &'a ClusterEpochs,
    /// Bytes a second that each link carries, if that was said.
    link_rate: Option<f64>,
}

impl ClusterAnswer<'_> {
    fn invalid(&self, state: ClusterState) -> Vec<String> {
        unproved(self.plan, state, self.epochs.of(state))
    }

    fn fill(&self, draft: &mut ResultBuilder) {
        let states: Vec<ClusterState> = self.epochs.by_state.keys().copied().collect();
        draft.file.tables.extend([
            self.figures(&states),
            PUBLISHED.aistore.results.table(),
            self.of_links(),
            self.of_nodes(),
        ]);
        if states.contains(&ClusterState::FromDisk) {
            draft.file.tables.push(self.of_disks());
        }
        for state in &states {
            let rates = self.epochs.each(*state, |epoch| epoch.rate() / GIB);
            draft.measure(
                format!("{state} throughput"),
                "GiB/s",
                Better::Higher,
                rates,
                &self.invalid(*state),
            );
        }
        let moved = states.iter().filter_map(|state| {
            self.epochs.of(*state).first().map(|epoch| (state.to_string(), &epoch.read.outcome.series))
        });
        draft.file.plots.push(worker_phases::throughput("Throughput of the first repetition", moved));
        let (nodes, links) = (self.cluster.nodes.len(), self.cluster.links().count());
        let middle = |state| median(&self.epochs.each(state, |epoch| epoch.rate() / MIB));
        if let (Some(cold), Some(warm)) = (middle(ClusterState::Cold), middle(ClusterState::Warm)) {
            draft.verdict(format!(
                "through {nodes} nodes with {links} links: {} MiB/s cold, {} MiB/s warm ({} times)",
                fixed(cold, 1),
                fixed(warm, 1),
                fixed(warm / cold, 2)
            ));
            if let Some(given) = self.link_rate.map(|rate| rate * links as f64 / MIB) {
                let share = fixed(warm / given, 3);
                draft.verdict(format!(
                    "warm it gives {share} of what its links carry ({} MiB/s)",
                    fixed(given, 1)
                ));
            }
        }
    }

    fn figures(&self, states: &[ClusterState]) -> Table {
        let all_bytes = self.plan.layout.total_bytes().max(1) as f64;
        let origin = |epoch: &ClusterEpoch| epoch.read.sum(CounterPage::origin_bytes);
        let figures: [Figure<ClusterEpoch>; 8] = [
            ("Average Throughput (GiB/s)", &|epoch| epoch.rate() / GIB),
            ("Average Latency (ms)", &|epoch| mean_ms(&epoch.read.outcome.unit)),
            ("p99 latency (ms)", &|epoch| epoch.read.outcome.unit.percentile_ms(99.0).unwrap_or(f64::NAN)),
            ("Bytes from the storage (GiB)", &|epoch| origin(epoch) / GIB),
            ("Amplification (storage bytes / data set)", &|epoch| origin(epoch) / all_bytes),
            ("Fetched by nodes for their clients (GiB)", &|epoch| epoch.read.sum(CounterPage::remote) / GIB),
            ("Sent from node to node (GiB)", &|epoch| epoch.read.sum(CounterPage::sent) / GIB),
            ("local-read %", &|epoch| local_percent(&epoch.read.nodes)),
        ];
        let invalid = states
            .iter()
            .flat_map(|state| self.invalid(*state).into_iter().map(move |why| format!("{state}: {why}")));
        let measured: Vec<_> =
            states.iter().map(|state| (state, self.epochs.of(*state).iter().collect())).collect();
        let mut notes = vec![format!(
            "{} clients of {} workers go round {} links of {} nodes; each reads every object once in an epoch, through its own link.",
            self.plan.fleet.clients,
            self.plan.fleet.workers,
            self.cluster.links().count(),
            self.cluster.nodes.len()
        )];
        if states.contains(&ClusterState::FromDisk) {
            notes.push(
                "From the disks: the kernel was asked to forget the pages of the caches before.".to_owned(),
            );
        }
        epochs_table(&measured, &figures, &invalid.collect::<Vec<_>>()).noted(notes)
    }

    fn of_links(&self) -> Table {
        let links: Vec<(usize, (usize, &String))> = self.cluster.links().enumerate().collect();
        let (count, invalid) = (links.len(), self.invalid(ClusterState::Warm));
        let rates = |state, link: usize| self.epochs.each(state, |epoch| epoch.link_rate(link, count) / MIB);
        columns::table(
            "Links",
            &links,
            |_| invalid.clone(),
            &[
                ("Node", &|(_, (node, _))| {
                    Cell::text(self.cluster.nodes.get(*node).map_or("", |node| &node.name))
                }),
                ("Link", &|(_, (_, link))| Cell::text(*link)),
                ("cold MiB/s", &|(at, _)| estimate(&rates(ClusterState::Cold, *at))),
                ("warm MiB/s", &|(at, _)| estimate(&rates(ClusterState::Warm, *at))),
                ("warm, share of the link", &|(at, _)| {
                    let warm = median(&rates(ClusterState::Warm, *at));
                    let share = warm.zip(self.link_rate).map(|(warm, rate)| warm * MIB / rate);
                    Cell::known(share, "--link-rate was not given")
                }),
            ],
        )
    }

    /// MiB a second that a node moved in each epoch in which it told.
    fn rates(&self, state: ClusterState, node: usize, of: impl Fn(&CounterPage) -> Option<u64>) -> Vec<f64> {
        self.epochs.of(state).iter().filter_map(|epoch| epoch.read.node_rate(node, &of)).collect()
    }

    fn of_nodes(&self) -> Table {
        let nodes: Vec<(usize, &BenchNode)> = self.cluster.nodes.iter().enumerate().collect();
        let invalid = self.invalid(ClusterState::Warm);
        let (cold, warm) = (ClusterState::Cold, ClusterState::Warm);
        let rate = |state, node: &usize, of: fn(&CounterPage) -> u64| {
            estimate(&self.rates(state, *node, |count| Some(of(count))))
        };
        columns::table(
            "Nodes",
            &nodes,
            |_| invalid.clone(),
            &[
                ("Node", &|(_, node)| Cell::text(&node.name)),
                ("to clients, cold MiB/s", &|(at, _)| rate(cold, at, CounterPage::served_bytes)),
                ("to clients, warm MiB/s", &|(at, _)| rate(warm, at, CounterPage::served_bytes)),
                ("to other nodes, cold MiB/s", &|(at, _)| rate(cold, at, CounterPage::sent)),
                ("to other nodes, warm MiB/s", &|(at, _)| rate(warm, at, CounterPage::sent)),
                ("from the storage, cold MiB/s", &|(at, _)| rate(cold, at, CounterPage::origin_bytes)),
            ],
        )
    }

    fn of_disks(&self) -> Table {
        let nodes: Vec<(usize, &BenchNode)> = self.cluster.nodes.iter().enumerate().collect();
        let invalid = self.invalid(ClusterState::FromDisk);
        let disk = |at: usize| self.rates(ClusterState::FromDisk, at, CounterPage::disk_bytes);
        let fio = |at: usize| -> (Vec<f64>, String) {
            let (rates, why) = self.epochs.fio.get(at).cloned().unwrap_or_default();
            let why = why.unwrap_or_else(|| "no disk=DIR was given for it".to_owned());
            (rates.iter().map(|rate| rate / MIB).collect(), why)
        };
        columns::table(
            "Disks",
            &nodes,
            |_| invalid.clone(),
            &[
                ("Node", &|(_, node)| Cell::text(&node.name)),
                ("to clients MiB/s", &|(at, _)| {
                    estimate(&self.rates(ClusterState::FromDisk, *at, |node| Some(node.served_bytes())))
                }),
                ("from its disks MiB/s", &|(at, _)| estimate_or(&disk(*at), "the node does not tell")),
                ("fio MiB/s", &|(at, _)| {
                    let (rates, why) = fio(*at);
                    estimate_or(&rates, why)
                }),
                ("share of what fio reads", &|(at, _)| {
                    let share = median(&disk(*at)).zip(median(&fio(*at).0)).map(|(disk, fio)| disk / fio);
                    Cell::known(share, "one of them is not known")
                }),
            ],
        )
    }
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
        let outcome = bench_load::outcome::PhaseOutcome { spans, ..Default::default() };
        let epoch = ClusterEpoch { read: ClusterPass { outcome, nodes: Vec::new() }, epochs: 1 };
        assert_eq!((epoch.link_rate(0, 2), epoch.link_rate(1, 2)), (100.0, 100.0));
        assert_eq!(epoch.link_rate(0, 1), 150.0);
    }
}
