//! Epochs of a training job, after AIStore's multihoming study: every client reads every object once per epoch, each in
//! an order of its own; straight from far storage, through an empty tier, and through a warm one. Within the cold epoch
//! a curve shows how the tier takes over from the storage.

mod bucket;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bench_load::data::SeededData;
use bench_load::engine::{LoadJob, LoadPhase};
use bench_load::shape::{Amount, ClientSet, Layout, LoadWork, Sizes};
use bench_report::format::{self, fixed};
use bench_report::model::{
    Axis, Better, Cell, Measure, Plot, PlotKind, Point, ResultFile, Series, Table, TableRow,
};
use bench_report::published::PUBLISHED;
use bench_report::sanity;
use bench_report::summary::{estimate, median};
use clap::Args;
use origin::emulated::ServiceLimits;
use quantity::ByteRate;
use types::{Error, ErrorKind, Result};

use crate::args::{CommonArgs, refuse};
use crate::budget::{Budget, TimeCut};
use crate::ceiling::MachineCeiling;
use crate::cost::CostArgs;
use crate::driver;
use crate::fixture::Watch;
use crate::knee::{self, KneeArgs, KneeResult};
use crate::limit;
use crate::mounts::is_http_store;
use crate::ranks::Ranks;
use crate::results::ResultBuilder;
use crate::sample::{self, CacheMode, Sample, Triple};
use crate::testbed::{DataSet, Line, Testbed, tier_url};
use crate::value::PriceArgs;
use crate::worker_phases;

/// The study's: clients, workers of each, bytes of an object, objects of the remote bucket (20 TiB).
const CLIENTS: u64 = 10;
const WORKERS: u64 = 50;
const OBJECTS: u64 = 2_097_152;
const STUDY_REPETITIONS: u32 = 1;
/// The fewest, which "small" means of the study's objects: 640 MiB, of which ten clients read ten times as much.
const OBJECTS_MIN: u64 = 64;
const FAITHFUL_SMALL: f64 = 3e-5;
/// An epoch that is shorter is repeated until it takes this long.
const ROW_SECONDS_MIN: f64 = 1.1;
const ROW_SECONDS: f64 = 2.0;
const GIB: f64 = 1_073_741_824.0;
/// The least round trips of an object that is read directly as a file: one to open it, one to read it.
const ROUND_TRIPS: f64 = 2.0;
/// A GET takes an object as a whole; larger ones are read in pieces of this size, which each worker has in memory.
const GET_MAX: u64 = 64 << 20;

#[derive(Args, Clone, Debug)]
pub struct LoaderArgs {
    /// Where the objects are: a directory of this machine (a NAS is put in front of it), or nfs://host/export or
    /// s3://bucket?endpoint=http://host:port, or az://, gs:// or azfile:// with one, that can be written; a temporary directory
    /// if absent. A bucket's objects are read by GET, directly and from the tier's S3 front; a share's by its REST interface
    /// directly
    #[arg(long, value_name = "DIR|URL")]
    origin: Option<String>,
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
    #[arg(long, value_name = "SIZE", value_parser = quantity::size)]
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
    fleet: ClientSet,
    layout: Layout,
    /// Bytes of one read.
    block: u64,
    repetitions: u32,
}

impl LoaderPlan {
    fn of(args: &LoaderArgs) -> Result<LoaderPlan> {
        let scale = args.common.scale;
        // The study's clients and objects stay what they were; a laptop reads fewer objects.
        let faithful = args.common.faithful;
        let small = scale.factor() < 0.1 && !faithful;
        let clients = args.clients.unwrap_or(if small { 4 } else { CLIENTS as u32 });
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
        if bytes == 0 || layout.total_bytes() > args.common.byte_budget {
            return refuse(format!(
                "loader: {} objects of {bytes} bytes; the budget is {} bytes (--byte-budget)",
                objects, args.common.byte_budget
            ));
        }
        let by_s3 = args.origin.as_deref().is_some_and(is_http_store);
        let block = args.block.unwrap_or(if by_s3 { bytes.min(GET_MAX) } else { 1 << 20 });
        if block == 0 || block > 1 << 30 {
            return refuse("loader: --block is from 1 byte to 1GiB");
        }
        Ok(LoaderPlan {
            block,
            fleet: ClientSet { clients, first_client: 0, workers },
            layout,
            repetitions: args.common.repetitions(STUDY_REPETITIONS),
        })
    }

    fn job(
        &self,
        testbed: &Testbed,
        mode: CacheMode,
        epochs: u64,
        args: &LoaderArgs,
        budget: &Budget,
    ) -> LoadJob {
        let amount = Amount::Epochs(epochs);
        let work = LoadWork { block_bytes: self.block, seed: args.common.seed, amount, ..LoadWork::mfmr() };
        let phase = LoadPhase { name: mode.name().to_owned(), work, ..LoadPhase::default() };
        LoadJob { limits: budget.limits(), ..testbed.job(self.fleet, phase) }
    }

    fn demanded(&self) -> u64 {
        self.layout.total_bytes().saturating_mul(u64::from(self.fleet.clients))
    }
}

pub async fn command(args: LoaderArgs) -> Result<ExitCode> {
    let plan = LoaderPlan::of(&args)?;
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
    if args.common.dry_run {
        println!(
            "loader: {} clients of {} workers read {} objects, {} in all, {} times direct, cold and warm at {} ms; {} \
             written",
            plan.fleet.clients,
            plan.fleet.workers,
            plan.layout.files,
            format::bytes(plan.layout.total_bytes()),
            plan.repetitions,
            args.rtt.as_secs_f64() * 1000.0,
            format::bytes(plan.layout.total_bytes())
        );
        return Ok(ExitCode::SUCCESS);
    }
    driver::command(&args.common, async |ranks| measure(ranks, &plan, &args).await).await
}

async fn measure(ranks: &Ranks, plan: &LoaderPlan, args: &LoaderArgs) -> Result<ResultFile> {
    let title = "Epochs of a training job: direct, cold and warm";
    let (prices, costs) = (args.prices.read()?, args.cost.read()?);
    let draft = ResultBuilder::new("loader", title, &args.common, plan.repetitions);
    let content = SeededData { seed: args.common.seed, ..SeededData::default() };
    let data = DataSet { layout: plan.layout.clone(), content };
    let testbed = async {
        match args.origin.as_deref() {
            Some(url) if url.starts_with("nfs://") => Testbed::on_server(url, data).await,
            Some(url) if is_http_store(url) => Testbed::in_http_store(url, data).await,
            other => Testbed::limited(other.map(PathBuf::from), data, args.limits).await,
        }
    };
    let measure = async |testbed: &Testbed| all(ranks, testbed, plan, args).await;
    driver::on_testbed(draft, testbed, measure, |draft, testbed, ceiling, measured| {
        let Epochs { line, triples, curve, knee, cut } = measured;
        TimeCut::tell(cut, draft, "repetitions");
        fill(draft, plan, args, &line, &triples, ceiling);
        if testbed.is_bucket() {
            bucket::gets(draft, plan, &triples, &invalid(plan, args.rate, ceiling, &triples));
        }
        limits(draft, plan, args, testbed, &line, &triples);
        if let Some(found) = &knee {
            draft.note("the knee and the open loops are those of a warm tier");
            knee::fill(draft, &args.knee, found, "objects");
        }
        sample::worth(draft, &triples, prices.as_ref());
        if let (Some(costs), Some(first)) = (&costs, triples.first()) {
            bucket::costs(draft, plan, costs, first);
        }
        if let Some(first) = triples.first() {
            let moved = CacheMode::ALL.map(|mode| (mode.name().to_owned(), &first.of(mode).series));
            draft.file.plots.push(worker_phases::throughput("Throughput of the first repetition", moved));
        }
        draft.file.plots.push(uptick(plan, &curve));
        ranks.tell(draft);
    })
    .await
}

/// Seconds; bytes served, bytes from the storage.
type Curve = Vec<(f64, (u64, u64))>;

struct Epochs {
    line: Line,
    triples: Vec<Triple>,
    /// Of the first cold epoch.
    curve: Curve,
    /// Of a warm tier.
    knee: Option<KneeResult>,
    /// The time was over before all repetitions.
    cut: Option<TimeCut>,
}

async fn all(ranks: &Ranks, testbed: &Testbed, plan: &LoaderPlan, args: &LoaderArgs) -> Result<Epochs> {
    let budget = Budget::start(&args.common);
    let line = testbed.line(args.rtt, args.rate).await?;
    let (mut triples, mut curve) = (Vec::new(), Vec::new());
    let cut = budget.repeat(plan.repetitions, async |repetition| {
        let what =
            |mode: CacheMode| format!("loader {}/{}, {}", repetition + 1, plan.repetitions, mode.name());
        let run = async |mode: CacheMode, epochs: u64, url: &str, tier| {
            sample::take(
                ranks,
                testbed,
                &line,
                url,
                &plan.job(testbed, mode, epochs, args, &budget),
                tier,
                &what(mode),
            )
            .await
        };
        let direct = run(CacheMode::Direct, 1, &line.url, None).await?;
        let tier = testbed.tier(&line)?;
        let url = tier_url(&tier);
        let watch = Watch::start(tier.admin, |counters| (counters.served_bytes(), counters.origin_bytes()));
        let cold = run(CacheMode::Cold, 1, &url, Some(&tier)).await?;
        let seen = watch.stop();
        if curve.is_empty() {
            curve = seen;
        }
        let mut warm = run(CacheMode::Warm, 1, &url, Some(&tier)).await?;
        if warm.makespan < ROW_SECONDS_MIN {
            // As often as it takes to be believed.
            let epochs = (ROW_SECONDS / warm.makespan.max(1e-3)).ceil() as u64;
            warm = run(CacheMode::Warm, epochs, &url, Some(&tier)).await?;
        }
        triples.push(Triple { direct, cold, warm });
        Ok(())
    });
    let cut = cut.await?;
    let knee = match args.knee.knee {
        true => Some(find_knee(ranks, testbed, &line, plan, args, &budget).await?),
        false => None,
    };
    Ok(Epochs { line, triples, curve, knee, cut })
}

/// The knee of a tier that an epoch has filled before.
async fn find_knee(
    ranks: &Ranks,
    testbed: &Testbed,
    line: &Line,
    plan: &LoaderPlan,
    args: &LoaderArgs,
    budget: &Budget,
) -> Result<KneeResult> {
    let tier = testbed.tier(line)?;
    let url = tier_url(&tier);
    let job = || plan.job(testbed, CacheMode::Warm, 1, args, budget);
    ranks.load(&url, &job(), "loader: filling a tier").await?;
    knee::find(&args.knee, plan.repetitions, plan.fleet.clients, budget, async |step, what| {
        let loaded = ranks.load(&url, &step.of(job()), what).await?;
        let phase = loaded.outcome.phases.into_iter().next();
        phase.ok_or_else(|| Error::new(ErrorKind::Io, "measure", "no phase came back"))
    })
    .await
}

/// What limits each state, in the first repetition.
fn limits(
    draft: &mut ResultBuilder,
    plan: &LoaderPlan,
    args: &LoaderArgs,
    testbed: &Testbed,
    line: &Line,
    triples: &[Triple],
) {
    let Some(first) = triples.first() else { return };
    for mode in CacheMode::ALL {
        // A worker opens each of its objects and reads it, one after the other; others do the same meanwhile.
        let objects = plan.layout.files as f64 * f64::from(plan.fleet.clients);
        let serial = match mode {
            // What is opened in a bucket is known from its listing.
            CacheMode::Direct => {
                let trips = if testbed.is_bucket() { 1.0 } else { ROUND_TRIPS };
                Some(objects * trips / plan.fleet.workers_in_all().max(1) as f64)
            }
            CacheMode::Cold | CacheMode::Warm => None,
        };
        let told = limit::of_sample(first.of(mode), mode, line, args.rate, serial);
        draft.limit(mode.name(), &told);
        if told.is_client() {
            draft.warning(format!("{}: the bench itself was the limit", mode.name()));
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
    Plot {
        title: "Cold epoch: how the tier takes over".to_owned(),
        x: Axis::linear("data set fetched (%)"),
        y: Axis::linear("served from cache (% of bytes, per 0.2 s)"),
        kind: PlotKind::Lines,
        series: vec![Series::ours("cold, first repetition", points.collect())],
    }
}

fn fill(
    draft: &mut ResultBuilder,
    plan: &LoaderPlan,
    args: &LoaderArgs,
    line: &Line,
    triples: &[Triple],
    ceiling: &MachineCeiling,
) {
    draft.parameter("clients", plan.fleet.clients);
    draft.parameter("workers", plan.fleet.workers);
    draft.parameter("objects", plan.layout.files);
    draft.parameter("object_bytes", plan.layout.size_limits().1);
    draft.parameter("block_bytes", plan.block);
    draft.parameter("rtt_ms", args.rtt.as_secs_f64() * 1000.0);
    draft.parameter("limits", args.limits.map_or("none".to_owned(), |limits| limits.to_string()));
    if let Some(limits) = args.limits {
        draft.note(format!("the storage was given the limits of a service: {limits}"));
    }
    draft.parameter("rate_bytes_per_second", args.rate.map_or(0, |rate| rate.bytes_per_second()));
    let invalid = invalid(plan, args.rate, ceiling, triples);
    let of = |mode: CacheMode, value: &dyn Fn(&Sample) -> f64| -> Vec<f64> {
        triples.iter().map(|triple| value(triple.of(mode))).collect()
    };
    let rate = |s: &Sample| s.bytes_read as f64 / GIB / s.makespan.max(1e-9);
    let objects = |s: &Sample| s.bytes_read as f64 / plan.layout.size_limits().1.max(1) as f64;
    let latency_ms = |s: &Sample| s.unit.mean().map_or(f64::NAN, |us| us / 1000.0);
    let three = |name: &str, value: &dyn Fn(&Sample) -> f64| {
        let mut cells = vec![Cell::text(name)];
        cells.extend(CacheMode::ALL.map(|mode| estimate(&of(mode, value))));
        TableRow { invalid: invalid.clone(), ..TableRow::new(cells) }
    };
    let mut rows = vec![
        three("Average Throughput (GiB/s)", &rate),
        three("Average Latency (ms)", &latency_ms),
        three("p99 latency (ms)", &|s| s.unit.percentile(99.0).map_or(f64::NAN, |us| us as f64 / 1000.0)),
        three("Throughput x latency (objects in flight)", &|s| {
            objects(s) / s.makespan.max(1e-9) * latency_ms(s) / 1000.0
        }),
        three("Bytes from the storage (GiB)", &|s| s.origin_bytes as f64 / GIB),
        three("Calls to the storage", &|s| s.origin_calls as f64),
        three("Amplification (storage bytes / client bytes)", &|s| {
            s.origin_bytes as f64 / s.bytes_read.max(1) as f64
        }),
        three("CPU seconds per GiB (clients + tier + storage)", &|s| {
            (s.client_cpu + s.tier_cpu + s.origin_cpu.unwrap_or(0.0)) / (s.bytes_read as f64 / GIB)
        }),
    ];
    if triples.iter().all(|triple| CacheMode::ALL.iter().all(|mode| !triple.of(*mode).first_block.is_empty()))
    {
        let name = "p50 until the first block of an object (ms)";
        rows.insert(
            3,
            three(name, &|s| s.first_block.percentile(50.0).map_or(f64::NAN, |us| us as f64 / 1000.0)),
        );
    }
    let mut table = Table::new("Epochs", ["Metric", "Direct", "Cold", "Warm"], rows);
    let workers = plan.fleet.workers_in_all();
    table.notes = vec![format!(
        "A closed loop of {workers} workers: throughput x latency must give that number, so the latency says nothing that \
         the throughput does not. The round trip measures {:.1} ms.",
        line.rtt_ms
    )];
    draft.file.tables.push(table);
    draft.file.tables.push(PUBLISHED.aistore.results.table());
    for mode in CacheMode::ALL {
        draft.measure(
            Measure::new(format!("{} throughput", mode.name()), "GiB/s", Better::Higher, of(mode, &rate)),
            &invalid,
        );
        if let Some(why) = triples.first().and_then(|t| {
            let s = t.of(mode);
            sanity::little(objects(s) / s.makespan.max(1e-9), latency_ms(s) / 1000.0, workers)
        }) {
            draft.warning(format!("{}: {why}", mode.name()));
        }
    }
    let middle = |mode: CacheMode| median(&of(mode, &rate));
    if let (Some(direct), Some(cold), Some(warm)) =
        (middle(CacheMode::Direct), middle(CacheMode::Cold), middle(CacheMode::Warm))
    {
        let epoch = |mode: CacheMode| median(&of(mode, &|s: &Sample| s.per_epoch(s.makespan))).unwrap_or(0.0);
        let [d, c, w] = CacheMode::ALL.map(|mode| fixed(epoch(mode), 1));
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

fn invalid(
    plan: &LoaderPlan,
    rate: Option<ByteRate>,
    ceiling: &MachineCeiling,
    triples: &[Triple],
) -> Vec<String> {
    let (unique, all) = (plan.layout.total_bytes(), plan.demanded());
    let mut reasons = Vec::new();
    for triple in triples {
        for mode in CacheMode::ALL {
            let sample = triple.of(mode);
            reasons.extend(sample.faults.iter().map(|fault| format!("{}: {fault}", mode.name())));
            let rules =
                [sanity::too_short(sample.makespan), limit::sample_exceeded(sample, mode, rate, ceiling)];
            reasons.extend(rules.into_iter().flatten().map(|why| format!("{}: {why}", mode.name())));
        }
        reasons.extend(sample::unproved(triple, unique, all));
    }
    reasons.sort();
    reasons.dedup();
    reasons
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
    }
}
