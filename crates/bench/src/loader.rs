//! Epochs of a training job, after AIStore's multihoming study: every client reads every object once per epoch, each in
//! an order of its own; straight from far storage, through an empty tier, and through a warm one. Within the cold epoch
//! a curve shows how the tier takes over from the storage. Through the nodes of a running cluster, by all links of each: `cluster.rs`.

mod bucket;
mod cluster;

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bench_load::{Amount, ClientSet, Layout, LoadJob, LoadPhase, LoadWork, Sizes};
use bench_report::format::{self, capital, fixed};
use bench_report::{
    Axis, Better, Cell, Histogram, PUBLISHED, Plot, PlotKind, Point, ResultFile, Series, Table, TableRow,
    estimate, median, sanity,
};
use clap::Args;
use origin::emulated::ServiceLimits;
use quantity::ByteRate;
use serde_json::json;
use types::Result;

use crate::cost::CostArgs;
use crate::nodes::NodeListArgs;
use crate::testbed::LaidOut;
use crate::{
    Budget, CacheMode, CommonArgs, GIB, KneeArgs, KneeResult, KneeStep, Line, PriceArgs, Ranks,
    ResultBuilder, Sample, Testbed, Triple, Watch, block_size, data_set, driver, is_http_store, knee, limit,
    refuse, sample, worker_phases,
};

/// The study's: clients, workers of each, bytes of an object, objects of the remote bucket (20 TiB).
const CLIENTS: u64 = 10;
const WORKERS: u64 = 50;
const OBJECTS: u64 = 2_097_152;
/// The fewest, which "small" means of the study's objects: 640 MiB, of which ten clients read ten times as much.
const OBJECTS_MIN: u64 = 64;
const FAITHFUL_SMALL: f64 = 3e-5;
/// The least round trips of an object that is read directly as a file: one to open it, one to read it.
const ROUND_TRIPS: f64 = 2.0;
/// A GET takes an object as a whole; larger ones are read in pieces of this size, which each worker has in memory.
const GET_MAX: u64 = 64 << 20;
const FIRST_BLOCK: &str = "p50 until the first block of an object (ms)";

#[derive(Args, Clone, Debug)]
pub struct LoaderArgs {
    /// Where the objects are: a directory of this machine (a NAS is put in front of it), or nfs://host/export or
    /// s3://bucket?endpoint=http://host:port, or az://, gs:// or azfile:// with one, that can be written; a temporary directory
    /// if absent. A bucket's objects are read by GET, directly and from the tier's S3 front; a share's by its REST interface
    /// directly
    ///
    /// With --node: the storage behind the cluster, by any URL that can be written; the objects are put there, and read through the
    /// nodes alone
    #[arg(long, value_name = "DIR|URL")]
    origin: Option<String>,
    #[command(flatten)]
    nodes: NodeListArgs,
    /// What each link of a node carries: the result then says how much of that a warm cluster gives
    #[arg(long, value_name = "RATE", requires = "nodes")]
    link_rate: Option<ByteRate>,
    /// Round trip to the storage
    #[arg(long, value_name = "TIME", default_value = "70ms", value_parser = quantity::duration)]
    rtt: Duration,
    /// Bandwidth of the line, each direction; unlimited if absent
    #[arg(long, value_name = "RATE")]
    rate: Option<ByteRate>,
    /// Put limits of a service in front of the storage, if it is a directory: file=60MiB/s, file-requests=500/s, all=1GiB/s,
    /// requests=20000/s, first-byte=20ms, busy=1%, retry-after=1s, several with commas, or azure-blob-2018, azure-file-2018
    #[arg(long, value_name = "LIMITS")]
    limits: Option<ServiceLimits>,
    /// Clients [default: the study's 10, at small scale 4 unless --faithful]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    clients: Option<u32>,
    /// Workers of each client [default: the study's 50, at small scale 8 unless --faithful]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: Option<u32>,
    /// Objects
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    objects: Option<u64>,
    /// Bytes of each [default: the study's 10 MiB, at small scale 1 MiB unless --faithful]
    #[arg(long, value_name = "SIZE", value_parser = quantity::size)]
    object_size: Option<u64>,
    /// Bytes of one read [default: 1MiB; of a bucket or share a whole object, at most 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = block_size)]
    block: Option<u64>,
    #[command(flatten)]
    knee: KneeArgs,
    #[command(flatten)]
    prices: PriceArgs,
    #[command(flatten)]
    cost: CostArgs,
    #[command(flatten)]
    common: CommonArgs,
}

struct LoaderPlan {
    args: LoaderArgs,
    fleet: ClientSet,
    layout: Layout,
    block: u64,
    repetitions: u32,
}

impl LoaderPlan {
    fn of(args: &LoaderArgs) -> Result<LoaderPlan> {
        let scale = args.common.scale;
        // The study's clients and objects stay what they were; a laptop reads fewer objects.
        let faithful = args.common.faithful;
        let small = scale.factor() < 0.1 && !faithful;
        let links: usize = args.nodes.nodes.iter().map(|node| node.links.len()).sum();
        let links = u32::try_from(links.max(1)).unwrap_or(u32::MAX);
        // As many at each link of a cluster.
        let usual = (if small { 4 } else { CLIENTS as u32 }).div_ceil(links).saturating_mul(links);
        let clients = args.clients.unwrap_or(usual);
        if !clients.is_multiple_of(links) {
            return refuse(format!(
                "loader: {clients} clients do not share {links} links evenly; give a multiple"
            ));
        }
        let workers = args.workers.unwrap_or(if small { 8 } else { WORKERS as u32 });
        let bytes = args.object_size.unwrap_or(if small { 1 << 20 } else { PUBLISHED.aistore.object_bytes });
        // 5 in 100,000 of the study's objects are a hundred: what a laptop reads in seconds.
        let objects = match (small, faithful) {
            (true, _) => scale.of(20_000, OBJECTS_MIN),
            (_, true) => scale.small_is(FAITHFUL_SMALL).of(OBJECTS, OBJECTS_MIN),
            _ => scale.of(OBJECTS, OBJECTS_MIN),
        };
        let objects = args.objects.unwrap_or(objects);
        let layout =
            Layout { files: objects, sizes: Sizes::Equal(bytes), files_per_directory: 1000, private: false };
        layout.check()?;
        if bytes == 0 {
            return refuse("loader: objects have at least 1 byte");
        }
        args.common.check_bytes(layout.total_bytes())?;
        let by_s3 = args.nodes.nodes.is_empty() && args.origin.as_deref().is_some_and(is_http_store);
        let block = args.block.unwrap_or(if by_s3 { bytes.min(GET_MAX) } else { 1 << 20 });
        Ok(LoaderPlan {
            args: args.clone(),
            block,
            fleet: ClientSet { clients, first_client: 0, workers },
            layout,
            repetitions: args.common.repetitions(1),
        })
    }

    /// So many epochs of a state.
    fn job(&self, files: &LaidOut, state: impl Display, epochs: u64, budget: &Budget) -> LoadJob {
        let amount = Amount::Epochs(epochs);
        let work =
            LoadWork { block_bytes: self.block, seed: self.args.common.seed, amount, ..LoadWork::mfmr() };
        let phase = LoadPhase { name: state.to_string(), work, ..LoadPhase::default() };
        files.job(self.fleet, phase, budget.limits())
    }

    fn tell(&self, draft: &mut ResultBuilder) {
        draft.parameters([
            ("clients", json!(self.fleet.clients)),
            ("workers", json!(self.fleet.workers)),
            ("objects", json!(self.layout.files)),
            ("object_bytes", json!(self.object_bytes())),
            ("block_bytes", json!(self.block)),
        ]);
    }

    /// What is done, in one line.
    fn summary(&self) -> String {
        let (ClientSet { clients, workers, .. }, objects) = (self.fleet, self.layout.files);
        let (bytes, times) = (format::bytes(self.layout.total_bytes()), self.repetitions);
        format!(
            "loader: {clients} clients of {workers} workers read {objects} objects, {bytes} in all, {times} times"
        )
    }

    fn object_bytes(&self) -> u64 {
        self.layout.size_limits().1
    }

    fn demanded(&self) -> u64 {
        self.layout.total_bytes().saturating_mul(u64::from(self.fleet.clients))
    }
}

pub async fn command(args: LoaderArgs) -> Result<ExitCode> {
    let plan = LoaderPlan::of(&args)?;
    if !args.nodes.nodes.is_empty() {
        return cluster::command(&plan).await;
    }
    let of_others = |origin: &str| origin.starts_with("nfs://") || is_http_store(origin);
    if args.limits.is_some() && args.origin.as_deref().is_some_and(of_others) {
        return refuse(
            "loader: --limits are for a directory as --origin; the server's own stand in any case",
        );
    }
    if let Some(other) = args.origin.as_deref().filter(|url| url.contains("://") && !of_others(url)) {
        return refuse(format!(
            "loader: --origin {other}: expected a directory, nfs://host/export, s3://bucket, az://account/container, gs://bucket or azfile://account/share; what \
             else there is can be measured as it is with bench load or shapes"
        ));
    }
    let told = || {
        let (bytes, rtt) = (format::bytes(plan.layout.total_bytes()), args.rtt.as_secs_f64() * 1000.0);
        format!("{} direct, cold and warm at {rtt} ms; {bytes} written", plan.summary())
    };
    driver::command(&args.common, told, async |ranks| measure(ranks, &plan).await).await
}

async fn measure(ranks: &Ranks, plan: &LoaderPlan) -> Result<ResultFile> {
    let title = "Epochs of a training job: direct, cold and warm";
    let (prices, costs) = (plan.args.prices.read()?, plan.args.cost.read()?);
    let draft = ResultBuilder::new("loader", title, &plan.args.common, plan.repetitions);
    let data = data_set(plan.layout.clone(), plan.args.common.seed);
    let testbed = async {
        match plan.args.origin.as_deref() {
            Some(url) if url.starts_with("nfs://") => Testbed::on_server(url, data).await,
            Some(url) if is_http_store(url) => Testbed::in_http_store(url, data).await,
            other => Testbed::limited(other.map(PathBuf::from), data, plan.args.limits).await,
        }
    };
    let measure = async |testbed: &mut Testbed, budget: &Budget| all(ranks, testbed, plan, budget).await;
    let common = &plan.args.common;
    driver::on_stage(Some(ranks), common, draft, testbed, measure, async |draft, testbed, ceiling, epochs| {
        let triples = &epochs.triples;
        parameters(draft, plan);
        let (unique, all) = (plan.layout.total_bytes(), plan.demanded());
        let invalid = limit::invalid_samples(triples, unique, all, plan.args.rate, ceiling);
        fill(draft, plan, &epochs, &invalid);
        if testbed.is_bucket() {
            bucket::gets(draft, plan, triples, &invalid);
        }
        limits(draft, plan, testbed, &epochs);
        if let Some(found) = &epochs.knee {
            draft.note("the knee and the open loops are those of a warm tier");
            knee::fill(draft, &plan.args.knee, found, "objects");
        }
        sample::worth(draft, triples, prices.as_ref());
        if let Some(first) = triples.first() {
            if let Some(costs) = &costs {
                bucket::costs(draft, plan, costs, first);
            }
            let moved = CacheMode::ALL.map(|mode| (mode.to_string(), &first.of(mode).phase.series));
            draft.file.plots.push(worker_phases::throughput("Throughput of the first repetition", moved));
        }
        draft.file.plots.push(uptick(plan, &epochs.curve));
    })
    .await
}

struct Epochs {
    line: Line,
    triples: Vec<Triple>,
    /// Of the first cold epoch: seconds; bytes served, bytes from the storage.
    curve: Vec<(f64, (u64, u64))>,
    /// Of a warm tier.
    knee: Option<KneeResult>,
}

async fn all(ranks: &Ranks, testbed: &Testbed, plan: &LoaderPlan, budget: &Budget) -> Result<Epochs> {
    let line = testbed.line(plan.args.rtt, plan.args.rate).await?;
    let (mut triples, mut curve) = (Vec::new(), Vec::new());
    let repeated = budget.repeat(plan.repetitions, "repetitions", async |repetition| {
        let run = async |mode: CacheMode, epochs: u64, url: &str, tier| {
            let what = format!("loader {}/{}, {mode}", repetition + 1, plan.repetitions);
            let job = plan.job(&testbed.files, mode, epochs, budget);
            sample::take(ranks, testbed, &line, url, &job, tier, &what).await
        };
        let direct = run(CacheMode::Direct, 1, &line.url, None).await?;
        let tier = testbed.tier(&line)?;
        let watch = Watch::start(tier.admin, |counters| (counters.served_bytes(), counters.origin_bytes()));
        let cold = run(CacheMode::Cold, 1, &tier.url, Some(&tier)).await?;
        let seen = watch.stop();
        if curve.is_empty() {
            curve = seen;
        }
        let mut warm = run(CacheMode::Warm, 1, &tier.url, Some(&tier)).await?;
        if let Some(epochs) = plan.args.common.passes_to_last(warm.makespan()) {
            warm = run(CacheMode::Warm, epochs, &tier.url, Some(&tier)).await?;
        }
        triples.push(Triple { direct, cold, warm });
        Ok(())
    });
    repeated.await?;
    let mut epochs = Epochs { line, triples, curve, knee: None };
    if plan.args.knee.knee {
        // Of a tier that an epoch has filled before.
        let tier = testbed.tier(&epochs.line)?;
        let job = || plan.job(&testbed.files, CacheMode::Warm, 1, budget);
        ranks.load(&tier.url, &job(), "loader: filling a tier").await?;
        let step = async |step: KneeStep, what: &str| {
            ranks.load(&tier.url, &step.of(job()), what).await?.outcome.into_first()
        };
        let found = knee::find(&plan.args.knee, plan.repetitions, plan.fleet.clients, budget, step).await?;
        epochs.knee = Some(found);
    }
    Ok(epochs)
}

/// What limits each state, in the first repetition.
fn limits(draft: &mut ResultBuilder, plan: &LoaderPlan, testbed: &Testbed, epochs: &Epochs) {
    let Some(first) = epochs.triples.first() else { return };
    for mode in CacheMode::ALL {
        // A worker opens each of its objects and reads it, one after the other; others do the same meanwhile. What is opened
        // in a bucket is known from its listing.
        let trips = if testbed.is_bucket() { 1.0 } else { ROUND_TRIPS };
        let objects = plan.layout.files as f64 * f64::from(plan.fleet.clients);
        let serial = objects * trips / plan.fleet.workers_in_all().max(1) as f64;
        let serial = (mode == CacheMode::Direct).then_some(serial);
        let told = limit::of_sample(first.of(mode), mode, &epochs.line, plan.args.rate, serial);
        draft.limit(mode, &told);
        if told.is_client() {
            draft.warning(format!("{mode}: the bench itself was the limit"));
        }
    }
}

/// A plot of the share that the cache serves, while the data set is read for the first time.
fn uptick(plan: &LoaderPlan, curve: &[(f64, (u64, u64))]) -> Plot {
    let all = plan.layout.total_bytes().max(1) as f64;
    let points = curve.windows(2).filter_map(|pair| {
        let ((served_before, origin_before), (served, origin_now)) = (pair[0].1, pair[1].1);
        let (served, origin) =
            (served.saturating_sub(served_before), origin_now.saturating_sub(origin_before));
        let hit = 1.0 - (origin as f64 / served as f64).min(1.0);
        (served > 0).then(|| Point::at(origin_now as f64 / all * 100.0, hit * 100.0))
    });
    let (x, y) =
        (Axis::linear("data set fetched (%)"), Axis::linear("served from cache (% of bytes, per 0.2 s)"));
    let series = [Series::ours("cold, first repetition", points.collect())];
    Plot::new(PlotKind::Lines, "Cold epoch: how the tier takes over", x, y, series)
}

fn parameters(draft: &mut ResultBuilder, plan: &LoaderPlan) {
    plan.tell(draft);
    draft.line(plan.args.rtt, plan.args.rate);
    draft.parameter("limits", plan.args.limits.map_or("none".to_owned(), |limits| limits.to_string()));
    if let Some(limits) = plan.args.limits {
        draft.note(format!("the storage was given the limits of a service: {limits}"));
    }
}

fn rate(s: &Sample) -> f64 {
    s.phase.bytes_read as f64 / GIB / s.makespan().max(1e-9)
}

/// Mean time of an object.
fn latency_ms(s: &Sample) -> f64 {
    mean_ms(&s.phase.unit)
}

fn mean_ms(latencies: &Histogram) -> f64 {
    latencies.mean().map_or(f64::NAN, |us| us / 1000.0)
}

/// A figure of an epoch: what it is called, and what it is.
type Figure<'a, E> = (&'a str, &'a dyn Fn(&E) -> f64);

/// A row for each figure, and a column for each state, whose epochs are named by repetition.
fn epochs_table<S: Display, E>(states: &[(S, Vec<&E>)], figures: &[Figure<E>], invalid: &[String]) -> Table {
    let head = |(state, _): &(S, Vec<&E>)| capital(&state.to_string());
    let heads = ["Metric".to_owned()].into_iter().chain(states.iter().map(head));
    let row = |(name, value): &Figure<E>| {
        let of = |epochs: &[&E]| estimate(&epochs.iter().map(|epoch| value(epoch)).collect::<Vec<_>>());
        let cells = [Cell::text(*name)].into_iter().chain(states.iter().map(|(_, epochs)| of(epochs)));
        TableRow { cells: cells.collect(), invalid: invalid.to_vec() }
    };
    Table::new("Epochs", heads, figures.iter().map(row).collect())
}

fn fill(draft: &mut ResultBuilder, plan: &LoaderPlan, epochs: &Epochs, invalid: &[String]) {
    let (line, triples) = (&epochs.line, &epochs.triples);
    let in_flight = |s: &Sample| {
        let objects = s.phase.bytes_read as f64 / plan.object_bytes().max(1) as f64;
        (objects / s.makespan().max(1e-9), latency_ms(s) / 1000.0)
    };
    let figures: [Figure<Sample>; 9] = [
        ("Average Throughput (GiB/s)", &rate),
        ("Average Latency (ms)", &latency_ms),
        ("p99 latency (ms)", &|s| s.phase.unit.percentile_ms(99.0).unwrap_or(f64::NAN)),
        (FIRST_BLOCK, &|s| s.phase.first_block.percentile_ms(50.0).unwrap_or(f64::NAN)),
        ("Throughput x latency (objects in flight)", &|s| {
            let (per_second, seconds) = in_flight(s);
            per_second * seconds
        }),
        ("Bytes from the storage (GiB)", &|s| s.origin_bytes as f64 / GIB),
        ("Calls to the storage", &|s| s.origin_calls as f64),
        ("Amplification (storage bytes / client bytes)", &Sample::amplification),
        ("CPU seconds per GiB (clients + tier + storage)", &Sample::cpu_per_gib),
    ];
    let several_blocks =
        |triple: &Triple| CacheMode::ALL.iter().all(|m| !triple.of(*m).phase.first_block.is_empty());
    let all_several = triples.iter().all(several_blocks);
    let figures: Vec<_> =
        figures.into_iter().filter(|(name, _)| all_several || *name != FIRST_BLOCK).collect();
    let states = CacheMode::ALL.map(|mode| (mode, triples.iter().map(|triple| triple.of(mode)).collect()));
    let table = epochs_table(&states, &figures, invalid);
    let workers = plan.fleet.workers_in_all();
    draft.file.tables.push(table.noted([format!(
        "A closed loop of {workers} workers: throughput x latency must give that number, so the latency says nothing that \
         the throughput does not. The round trip measures {:.1} ms.",
        line.rtt_ms
    )]));
    draft.file.tables.push(PUBLISHED.aistore.results.table());
    for mode in CacheMode::ALL {
        let (name, rates) = (format!("{mode} throughput"), sample::values(triples, mode, rate));
        draft.measure(name, "GiB/s", Better::Higher, rates, invalid);
        let first = triples.first().map(|triple| in_flight(triple.of(mode)));
        let why = first.and_then(|(per_second, seconds)| sanity::little(per_second, seconds, workers));
        if let Some(why) = why {
            draft.warning(format!("{mode}: {why}"));
        }
    }
    let middle = |mode| median(&sample::values(triples, mode, rate));
    if let [Some(direct), Some(cold), Some(warm)] = CacheMode::ALL.map(middle) {
        let [d, c, w] = CacheMode::ALL.map(|mode| fixed(sample::pass(triples, mode).seconds, 1));
        draft.verdict(format!(
            "at {:.0} ms an epoch takes {d} s direct, {c} s the first time, {w} s from then on",
            line.rtt_ms
        ));
        draft.verdict(format!(
            "{direct:.3} GiB/s direct, {cold:.3} GiB/s in the cold epoch ({:.2}x), {warm:.3} GiB/s warm ({:.2}x)",
            cold / direct,
            warm / direct
        ));
        if cold < direct {
            draft.warning("the cold epoch is slower than reading directly: filling the cache costs more than it saves here");
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: LoaderArgs,
    }

    #[test]
    fn a_faithful_epoch_has_the_studys_clients_and_objects_and_only_fewer_of_these() {
        let plan = |typed: &[&str]| {
            let line = Line::try_parse_from([&["loader"], typed].concat()).expect("a command line");
            let plan = LoaderPlan::of(&line.args).expect("a plan");
            let (fleet, layout) = (plan.fleet, plan.layout);
            (fleet.clients, fleet.workers, layout.files, layout.size_limits().1, plan.repetitions)
        };
        assert_eq!(plan(&["--faithful"]), (10, 50, 64, 10 << 20, 1));
        assert_eq!(plan(&["--faithful", "--scale", "0.001"]), (10, 50, 2097, 10 << 20, 1));
        assert_eq!(plan(&["--faithful", "--clients", "2", "-n", "3"]), (2, 50, 64, 10 << 20, 3));
        assert_eq!(plan(&[]), (4, 8, 100, 1 << 20, 6));
        // Of three nodes with two links each.
        let node = |number: u32| format!("nfs://a{number},nfs://b{number},admin=127.0.0.1:{number}");
        let nodes = [node(1), node(2), node(3)];
        let typed: Vec<&str> = nodes.iter().flat_map(|node| ["--node", node.as_str()]).collect();
        assert_eq!(plan(&typed).0, 6);
        let line = Line::try_parse_from([&["loader", "--clients", "4"], typed.as_slice()].concat());
        let why = LoaderPlan::of(&line.expect("a command line").args).map(|_| ()).expect_err("not even");
        assert!(why.to_string().contains("6 links"), "{why}");
    }
}
