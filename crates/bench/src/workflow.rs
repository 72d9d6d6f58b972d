//! A workflow over two sites, after the Tryggve study: one near the storage and one far from it. Tasks read their files
//! from the storage and compute for as long as was recorded; every split of the nodes over the sites gives a makespan,
//! once with the far site reading over the line and once through a tier that stands there.
//!
//! Compute is recorded and slept, so that the table shows storage: in the original, the CPUs of the two sites and half a
//! minute of scheduling for each task hid it.

pub mod graph;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench_load::process::{cpu_seconds, relay_cpu_seconds};
use bench_load::{Client, FileVersion, Layout, SeededData, Sizes, from_url, target};
use bench_report::{
    Axis, Better, Cell, PUBLISHED, Plot, PlotKind, ResultFile, Series, coefficient_of_variation, estimate,
    format, median, point, sanity,
};
use clap::Args;
use quantity::ByteRate;
use tokio::task::JoinSet;
use types::{Error, ErrorKind, Result};

use crate::{
    Budget, CommonArgs, Line, MIB, ResultBuilder, Testbed, columns, data_set, driver, limit, refuse,
};
use graph::{Graph, Task, TaskSchedule};

/// A task file is smaller.
const GRAPH_BYTES_MAX: u64 = 64 << 20;
const BLOCK: usize = 1 << 20;
/// What "small" is of the study's half hour: seconds, since there are twelve runs in a repetition.
const SMALL: f64 = 0.001;
/// The round trips that it takes to find a file, to open and to read it.
const ROUND_TRIPS_PER_FILE: f64 = 3.0;
/// The study's scheduling and polling of each task.
const POLL_FAITHFUL: f64 = 27.0;

#[derive(Args, Clone, Debug)]
pub struct WorkflowArgs {
    /// Tasks as JSON: [{"name", "after": [], "near_seconds", "far_seconds", "files", "file_bytes"}]; 13 tasks in the
    /// study's shape if absent
    #[arg(long, value_name = "FILE")]
    graph: Option<PathBuf>,
    /// Nodes of both sites together
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    nodes: u32,
    /// Round trip from the far site to the storage [default: 7ms, what the study's small files tell]
    #[arg(long, value_name = "TIME", default_value = "7ms", value_parser = quantity::duration)]
    rtt: Duration,
    /// Bandwidth of the line, each direction; unlimited if absent
    #[arg(long, value_name = "RATE")]
    rate: Option<ByteRate>,
    /// Where the input files are put: a directory of this machine; a temporary one if absent
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Clone, Copy, Debug, strum::Display, PartialEq, Eq)]
enum SitePath {
    #[strum(to_string = "over the line")]
    Line,
    #[strum(to_string = "through a tier there")]
    Tier,
}

impl SitePath {
    const ALL: [SitePath; 2] = [SitePath::Line, SitePath::Tier];
}

/// Which site each node is on, in the order in which the batch system fills them, and what was measured so.
struct Partition {
    name: String,
    /// 0: near, 1: far.
    sites: Vec<usize>,
    /// Of each way, by repetition: as many as there was time for.
    runs: [Vec<WorkflowRun>; 2],
}

impl Partition {
    fn new(name: String, sites: Vec<usize>) -> Partition {
        Partition { name, sites, runs: Default::default() }
    }

    fn is_all(&self, site: usize) -> bool {
        self.sites.iter().all(|one| *one == site)
    }

    fn values(&self, way: SitePath, value: impl Fn(&WorkflowRun) -> f64) -> Vec<f64> {
        self.runs[way as usize].iter().map(value).collect()
    }

    fn makespans(&self, way: SitePath) -> Vec<f64> {
        self.values(way, |run| run.makespan)
    }
}

/// Every split of the nodes, mixed ones in both orders.
fn partitions(nodes: u32) -> Vec<Partition> {
    let mut all = Vec::new();
    for far in 0..=nodes as usize {
        let near = nodes as usize - far;
        let near_first: Vec<usize> = [vec![0; near], vec![1; far]].concat();
        let far_first: Vec<usize> = near_first.iter().rev().copied().collect();
        all.push(Partition::new(format!("near {near} + far {far}"), near_first.clone()));
        if far_first != near_first {
            all.push(Partition::new(format!("far {far} + near {near}"), far_first));
        }
    }
    all
}

#[derive(Clone, Copy, Debug, Default)]
struct WorkflowRun {
    makespan: f64,
    /// Sums over all tasks.
    task_seconds: f64,
    io_seconds: f64,
    line_bytes: u64,
    /// Of the bench, without its line.
    cpu_seconds: f64,
}

pub async fn command(args: WorkflowArgs) -> Result<ExitCode> {
    if args.common.launch.procs.is_some() || args.common.launch.hosts.is_some() {
        return refuse("workflow: its nodes are emulated in one process; leave --procs and --hosts out");
    }
    let graph = graph(&args)?;
    let repetitions = args.common.repetitions(1);
    args.common.check_bytes(graph.bytes())?;
    let graph = Arc::new(graph);
    let told = || {
        let runs = partitions(args.nodes).len() as u32 * repetitions * 2;
        format!(
            "workflow: {} tasks read {} files, {}; {runs} runs of at most {:.0} s compute each, about {} in all",
            graph.tasks.len(),
            graph.files(),
            format::bytes(graph.bytes()),
            compute_seconds(&graph),
            format::duration(f64::from(runs) * predicted_seconds(&args, &graph))
        )
    };
    driver::command(&args.common, told, async |_| measure(&args, graph.clone(), repetitions).await).await
}

fn compute_seconds(graph: &Graph) -> f64 {
    graph.tasks.iter().map(|task| task.compute[0].max(task.compute[1])).sum()
}

/// About the seconds of one run, if tasks never wait for each other, on all nodes, of which half are far.
fn predicted_seconds(args: &WorkflowArgs, graph: &Graph) -> f64 {
    let far = graph.files() as f64 * ROUND_TRIPS_PER_FILE * args.rtt.as_secs_f64() / 2.0;
    (compute_seconds(graph) + far) / f64::from(args.nodes.max(1))
}

fn graph(args: &WorkflowArgs) -> Result<Graph> {
    let Some(path) = &args.graph else { return Ok(Graph::caw(args.common.scale.small_is(SMALL).factor())) };
    let wrong =
        |why: String| Error::new(ErrorKind::Config, "workflow graph:", format!("{}: {why}", path.display()));
    let length = std::fs::metadata(path).map_err(|e| wrong(e.to_string()))?.len();
    if length > GRAPH_BYTES_MAX {
        return Err(wrong(format!("{length} bytes are too much for a graph")));
    }
    Graph::from_json(&std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?)
}

async fn measure(args: &WorkflowArgs, graph: Arc<Graph>, repetitions: u32) -> Result<ResultFile> {
    let mut draft =
        ResultBuilder::new("workflow", "A workflow over a near and a far site", &args.common, repetitions);
    draft.parameter("nodes", args.nodes);
    draft.parameter("tasks", graph.tasks.len());
    draft.line(args.rtt, args.rate);
    let layout = layout(&graph)?;
    let data = data_set(layout.clone(), args.common.seed);
    let content = data.content;
    let testbed = Testbed::limited(args.dir.clone(), data, None);
    let poll = match args.common.faithful {
        true => Duration::from_secs_f64(POLL_FAITHFUL * args.common.scale.small_is(SMALL).factor()),
        false => Duration::ZERO,
    };
    let measure = async |testbed: &mut Testbed, budget: &Budget| {
        let inputs = Inputs { graph, layout, content, root: testbed.files.root(), poll };
        all(args, testbed, &Arc::new(inputs), repetitions, budget).await
    };
    driver::on_stage(None, &args.common, draft, testbed, measure, async |draft, _, _, measured| {
        let (line, partitions) = measured;
        fill(draft, args, &partitions);
        line.tell(draft);
        draft.note(
            "tasks read and do not write. Of the study's graph the number of tasks, the sum \
             of run times on each site and the longest task are published; the rest of its shape is ours.",
        );
    })
    .await
}

async fn all(
    args: &WorkflowArgs,
    testbed: &Testbed,
    inputs: &Arc<Inputs>,
    repetitions: u32,
    budget: &Budget,
) -> Result<(Line, Vec<Partition>)> {
    let line = testbed.line(args.rtt, args.rate).await?;
    let mut partitions = partitions(args.nodes);
    // Both ways of a partition or none, as they are compared.
    let pairs = u32::try_from(partitions.len()).unwrap_or(u32::MAX).saturating_mul(repetitions);
    let repeated = budget.repeat(pairs, "pairs of runs", async |done| {
        let at = done as usize % partitions.len();
        let partition = &mut partitions[at];
        for way in SitePath::ALL {
            // Empty at the start of every run, as the study's client caches were.
            let tier = if way == SitePath::Tier { Some(testbed.tier(&line)?) } else { None };
            let far = tier.as_ref().map_or(&line.url, |tier| &tier.url);
            let (before, cpu_before) = (line.bytes_down(), own_cpu_seconds());
            let mut run = execute(inputs, &partition.sites, [&testbed.near_url(), far]).await?;
            run.line_bytes = line.bytes_down() - before;
            run.cpu_seconds = (own_cpu_seconds() - cpu_before).max(0.0);
            partition.runs[way as usize].push(run);
        }
        Ok(())
    });
    repeated.await?;
    Ok((line, partitions))
}

/// The relay works in this process, and is the line's.
fn own_cpu_seconds() -> f64 {
    cpu_seconds() - relay_cpu_seconds()
}

/// Task by task, its files one after the other; as large as the largest task's.
fn layout(graph: &Graph) -> Result<Layout> {
    let bytes: Vec<u64> =
        graph.tasks.iter().filter(|task| task.files > 0).map(|task| task.file_bytes).collect();
    let first = bytes.first().copied().unwrap_or(0);
    if first == 0 || bytes.iter().any(|b| *b != first) {
        return refuse(
            "workflow: give all files of the graph the same file_bytes, at least 1, and at least one file",
        );
    }
    let layout =
        Layout { files: graph.files(), sizes: Sizes::Equal(first), files_per_directory: 100, private: false };
    layout.check()?;
    Ok(layout)
}

struct Inputs {
    graph: Arc<Graph>,
    layout: Layout,
    content: SeededData,
    root: String,
    poll: Duration,
}

impl Inputs {
    /// Reads all that the task reads, and looks whether it is what was written.
    async fn read(&self, client: &dyn Client, task: usize) -> Result<()> {
        let tasks = &self.graph.tasks;
        let first: u64 = tasks[..task].iter().map(|task| task.files).sum();
        for number in first..first + tasks[task].files {
            let path = self.layout.path(&self.root, 0, number);
            let file = client.open(&path).await?;
            let mut offset = 0;
            while offset < file.size() {
                let bytes = file.read(offset, BLOCK).await?;
                let place = FileVersion { file: self.layout.content_id(0, number), version: 1 };
                if let Err(wrong) = self.content.verify(place, offset, &bytes) {
                    let what = format!("{path}: {wrong:?}");
                    return Err(Error::new(ErrorKind::Corrupt, "verify", what));
                }
                offset += bytes.len().max(1) as u64;
            }
            file.close().await?;
        }
        Ok(())
    }
}

/// All tasks on nodes of these sites; each node is a client of its own, fresh from a mount.
async fn execute(inputs: &Arc<Inputs>, sites: &[usize], urls: [&str; graph::SITES]) -> Result<WorkflowRun> {
    let mut clients: Vec<Arc<dyn Client>> = Vec::new();
    for site in sites {
        clients.extend(target::clients(&from_url(urls[*site])?, clients.len() as u32, 1).await?);
    }
    let graph = inputs.graph.clone();
    let mut schedule = TaskSchedule::new(&graph, clients.len());
    let mut running = JoinSet::new();
    let (mut run, start) = (WorkflowRun::default(), Instant::now());
    while !schedule.is_done() {
        while let Some((task, node)) = schedule.start() {
            let (inputs, client, site) = (inputs.clone(), clients[node].clone(), sites[node]);
            running.spawn(async move {
                let begin = Instant::now();
                tokio::time::sleep(inputs.poll).await;
                let read = Instant::now();
                inputs.read(&*client, task).await?;
                let io = read.elapsed().as_secs_f64();
                let Task { compute, .. } = &inputs.graph.tasks[task];
                tokio::time::sleep(Duration::from_secs_f64(compute[site])).await;
                Ok::<_, Error>((task, node, begin.elapsed().as_secs_f64(), io))
            });
        }
        let ended = running.join_next().await;
        let ended = ended
            .ok_or_else(|| Error::new(ErrorKind::InvalidArgument, "run", "a graph that goes in a circle"))?;
        let (task, node, seconds, io) = ended.map_err(|e| Error::new(ErrorKind::Io, "run a task", e))??;
        schedule.end(task, node);
        run.task_seconds += seconds;
        run.io_seconds += io;
    }
    run.makespan = start.elapsed().as_secs_f64();
    Ok(run)
}

fn fill(draft: &mut ResultBuilder, args: &WorkflowArgs, partitions: &[Partition]) {
    let nodes = |partition: &Partition, site: usize| {
        Cell::Count(partition.sites.iter().filter(|one| **one == site).count() as u64)
    };
    let mib = |run: &WorkflowRun| run.line_bytes as f64 / MIB;
    let time = |partition: &Partition, way| estimate(&partition.makespans(way));
    let reading = |partition: &Partition, way| estimate(&partition.values(way, |run| run.io_seconds));
    let table = columns::table(
        "Makespan of each split of the nodes",
        partitions,
        |partition| invalid(&partition.runs.concat()),
        &[
            ("Partition", &|partition| Cell::text(&partition.name)),
            ("nodes near", &|partition| nodes(partition, 0)),
            ("nodes far", &|partition| nodes(partition, 1)),
            ("Elapsed Time, line (s)", &|partition| time(partition, SitePath::Line)),
            ("reading, line (s)", &|partition| reading(partition, SitePath::Line)),
            ("line MiB", &|partition| estimate(&partition.values(SitePath::Line, mib))),
            ("Elapsed Time, tier (s)", &|partition| time(partition, SitePath::Tier)),
            ("reading, tier (s)", &|partition| reading(partition, SitePath::Tier)),
            ("line MiB with tier", &|partition| estimate(&partition.values(SitePath::Tier, mib))),
            ("sum of task times (s)", &|partition| {
                estimate(&partition.values(SitePath::Line, |run| run.task_seconds))
            }),
        ],
    );
    draft.file.tables.extend([
        table.noted(["Reading: the sum over all tasks, at both sites. The tier is empty when a run begins."]),
        PUBLISHED.tryggve.partitions.table(),
        PUBLISHED.tryggve.caw.table(),
    ]);
    let series = SitePath::ALL.map(|way| {
        let points = partitions.iter().enumerate();
        let points = points.filter_map(|(x, partition)| point(x as f64, &partition.makespans(way)));
        Series::ours(way.to_string(), points.collect())
    });
    let x = Axis::named("", partitions.iter().map(|partition| partition.name.clone()));
    let y = Axis::linear("seconds");
    draft.file.plots.push(Plot::new(PlotKind::Bars, "Makespan of each split", x, y, series));
    for partition in partitions {
        for way in SitePath::ALL {
            let runs = &partition.runs[way as usize];
            if !runs.is_empty() {
                let name = format!("makespan, {}, {way}", partition.name);
                draft.measure(name, "s", Better::Lower, partition.makespans(way), &invalid(runs));
            }
        }
    }
    if let Some(near) = partitions.iter().find(|partition| partition.is_all(0)) {
        let both = SitePath::ALL.map(|way| near.makespans(way)).concat();
        if let Some(noise) = coefficient_of_variation(&both) {
            draft.note(format!(
                "with all nodes near the two ways are the same: they vary by {:.1} %, which is the noise floor",
                noise * 100.0
            ));
        }
    }
    let Some(far) = partitions.iter().find(|partition| partition.is_all(1)) else { return };
    if let [Some(line), Some(tier)] = SitePath::ALL.map(|way| median(&far.makespans(way))) {
        draft.verdict(format!(
            "all nodes far: {line:.2} s over the line, {tier:.2} s through a tier there ({:.2}x)",
            line / tier
        ));
    }
    // What limits each way, in the first repetition.
    for way in SitePath::ALL {
        if let Some(run) = far.runs[way as usize].first() {
            let told = limit::of_tasks(run.cpu_seconds, run.makespan, run.line_bytes, args.rate);
            draft.limit(format!("all nodes far, {way}"), &told);
        }
    }
}

/// Why the runs of a row must not be believed. Wrong bytes and failed calls end the whole.
fn invalid(runs: &[WorkflowRun]) -> Vec<String> {
    runs.iter().find_map(|run| sanity::too_short(run.makespan)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_split_is_there_and_mixed_ones_in_both_orders() {
        let all = partitions(3);
        let names: Vec<_> = all.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "near 3 + far 0",
                "near 2 + far 1",
                "far 1 + near 2",
                "near 1 + far 2",
                "far 2 + near 1",
                "near 0 + far 3"
            ]
        );
        assert_eq!(all[2].sites, [1, 0, 0]);
        assert_eq!(all.len(), PUBLISHED.tryggve.partitions.rows(), "as many as the study had");
    }

    #[test]
    fn a_split_with_a_run_that_is_too_short_is_invalid() {
        let run = |makespan| WorkflowRun { makespan, ..WorkflowRun::default() };
        assert_eq!(invalid(&[run(1.0), run(2.0)]), Vec::<String>::new());
        assert!(matches!(&invalid(&[run(1.0), run(0.4)])[..], [why] if why.contains("too short: 0.400 s")));
    }
}
