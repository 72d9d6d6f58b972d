//! What does a tier buy? The render study: N nodes read one scene and compute, straight from far storage (direct),
//! through a tier with an empty cache (cold), and again (warm), at several distances. Cold and warm are not what the
//! operator says but what the counters prove; a row whose counters say otherwise is INVALID.
//!
//! The load is the study's: it published 3.38 s more for each millisecond of round trip, which is 3,381 serial round
//! trips in a frame, and 534 s that do not depend on the distance. At scale s a frame has s times as many of both.
//!
//! Start with `measure` below, then `render/table.rs` (what is made of it).

mod answer;
mod table;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use bench_load::{
    AccessOrder, ClientSet, Layout, LoadJob, LoadPace, LoadPhase, LoadWork, Sharing, Sizes, Stagger,
    TouchUnit,
};
use bench_report::{ResultFile, format};
use clap::Args;
use quantity::ByteRate;
use types::Result;

use crate::{
    Budget, CacheMode, CommonArgs, Line, PriceArgs, Ranks, ResultBuilder, Testbed, TierProcess, Triple,
    data_set, driver, fingerprint, limit, refuse, sample,
};

/// The study's: nodes, serial round trips of a frame, seconds of a frame that do not depend on the distance.
const NODES: u64 = 500;
const ROUND_TRIPS: f64 = 3381.0;
const COMPUTE_SECONDS: f64 = 534.0;
const STAGGER_NODES: u32 = 5;
const STAGGER_SECONDS: f64 = 7.0;
/// What a node's client does for a small file that it has not seen: LOOKUP, GETATTR, READ.
const ROUND_TRIPS_PER_FILE: f64 = 3.0;
const BLOCK_BYTES: u64 = 128 << 10;
/// Fewer are no study.
const NODES_MIN: u64 = 8;
const FILES_MIN: u64 = 6;
const TITLE: &str = "What a tier buys: one scene, many nodes, several distances";

#[derive(Args, Clone, Debug)]
pub struct RenderArgs {
    /// Where the scene is: a directory of this machine (a NAS is put in front of it), or nfs://host/export that can be
    /// written; a temporary directory if absent
    #[arg(long, value_name = "DIR|URL")]
    origin: Option<String>,
    /// Round trips to the storage
    #[arg(long, value_name = "TIMES", value_delimiter = ',', default_value = "1.9ms,69.5ms,194ms,221ms", value_parser = quantity::duration)]
    rtt: Vec<Duration>,
    /// Bandwidth of each line, each direction; unlimited if absent
    #[arg(long, value_name = "RATE")]
    rate: Option<ByteRate>,
    /// Nodes [default: the study's 500 x scale, at least 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    nodes: Option<u32>,
    /// Files of the scene [default: so many that a frame has the study's round trips x scale]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    files: Option<u64>,
    /// Bytes of each
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = quantity::size)]
    file_size: u64,
    /// Compute time of a frame [default: the study's 534 s x scale]
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    compute: Option<Duration>,
    /// Nodes that start together, and how long after the ones before: 5/7s is the study's script [default: none, with --faithful 5
    /// every 7s x scale]
    #[arg(long, value_name = "N/TIME", value_parser = parse_stagger)]
    stagger: Option<Stagger>,
    #[command(flatten)]
    prices: PriceArgs,
    #[command(flatten)]
    common: CommonArgs,
}

pub fn parse_stagger(text: &str) -> std::result::Result<Stagger, String> {
    let wrong = || format!("\"{text}\" is no stagger; write nodes and a time, for example 5/7s");
    let (group, every) = text.split_once('/').ok_or_else(wrong)?;
    let group = group.parse().ok().filter(|group| *group > 0).ok_or_else(wrong)?;
    Ok(Stagger { group, every_s: quantity::duration(every)?.as_secs_f64() })
}

pub struct RenderPlan {
    pub nodes: u32,
    pub layout: Layout,
    pub compute: Duration,
    pub stagger: Option<Stagger>,
    pub repetitions: u32,
    pub args: RenderArgs,
}

impl RenderPlan {
    fn of(args: &RenderArgs) -> Result<RenderPlan> {
        let scale = args.common.scale;
        if args.rtt.is_empty() || args.file_size == 0 {
            return refuse("render: give at least one --rtt, and files of at least 1 byte");
        }
        let default_files =
            ((ROUND_TRIPS * scale.factor() / ROUND_TRIPS_PER_FILE).round() as u64).max(FILES_MIN);
        let layout = Layout {
            files: args.files.unwrap_or(default_files),
            sizes: Sizes::Equal(args.file_size),
            ..Layout::default()
        };
        layout.check()?;
        let nodes = args.nodes.map_or(scale.of(NODES, NODES_MIN), u64::from);
        // The study's time goes as the frames' does.
        let study_stagger = Stagger { group: STAGGER_NODES, every_s: STAGGER_SECONDS * scale.factor() };
        args.common.check_bytes(layout.total_bytes())?;
        Ok(RenderPlan {
            nodes: u32::try_from(nodes).unwrap_or(u32::MAX),
            layout,
            compute: args.compute.unwrap_or(Duration::from_secs_f64(COMPUTE_SECONDS * scale.factor())),
            stagger: args.stagger.or(args.common.faithful.then_some(study_stagger)),
            // The study measured once.
            repetitions: args.common.repetitions(1),
            args: args.clone(),
        })
    }

    /// From when the first node starts to when the last one does, seconds.
    fn stagger_s(&self) -> f64 {
        let groups = |stagger: Stagger| f64::from(self.nodes.saturating_sub(1) / stagger.group.max(1));
        self.stagger.map_or(0.0, |stagger| groups(stagger) * stagger.every_s)
    }

    /// Round trips of a frame, one after the other, straight from the storage.
    fn round_trips(&self) -> f64 {
        let reads = (self.layout.size_limits().1).div_ceil(BLOCK_BYTES) as f64;
        self.layout.files as f64 * (ROUND_TRIPS_PER_FILE - 1.0 + reads) + 1.0
    }

    fn predicted_seconds(&self) -> f64 {
        let rtts: f64 = self.args.rtt.iter().map(Duration::as_secs_f64).sum();
        let direct = self.round_trips() * rtts;
        // Through an empty cache each file is waited for once or twice.
        let cold = 2.0 * self.layout.files as f64 * rtts;
        let compute = 3.0 * self.args.rtt.len() as f64 * self.compute.as_secs_f64();
        f64::from(self.repetitions) * (direct + cold + compute) + 5.0
    }

    /// Every node reads the scene in its order, file after file, and computes in between.
    pub fn phase(&self, mode: CacheMode) -> LoadPhase {
        let think_s = self.compute.as_secs_f64() / self.layout.files as f64;
        let work = LoadWork {
            unit: TouchUnit::File,
            order: AccessOrder::Sequential,
            share: Sharing::Client,
            block_bytes: BLOCK_BYTES,
            seed: self.args.common.seed,
            ..LoadWork::default()
        };
        let pace = LoadPace::Closed { think_s, stagger: self.stagger };
        LoadPhase { name: mode.to_string(), work, pace, ..LoadPhase::default() }
    }

    fn job(&self, testbed: &Testbed, mode: CacheMode, budget: &Budget) -> LoadJob {
        let fleet = ClientSet { clients: self.nodes, first_client: 0, workers: 1 };
        testbed.files.job(fleet, self.phase(mode), budget.limits())
    }
}

pub async fn command(args: RenderArgs) -> Result<ExitCode> {
    let plan = RenderPlan::of(&args)?;
    let told = || {
        let (bytes, time) =
            (format::bytes(plan.layout.total_bytes()), format::duration(plan.predicted_seconds()));
        let (nodes, files) = (plan.nodes, plan.layout.files);
        let (times, distances) = (plan.repetitions, plan.args.rtt.len());
        format!(
            "render: {nodes} nodes read {files} files, {bytes} in all, {times} times at {distances} distances in 3 states; \
             about {time}, {bytes} written"
        )
    };
    driver::command(&args.common, told, async |ranks| measure(ranks, &plan).await).await
}

async fn measure(ranks: &Ranks, plan: &RenderPlan) -> Result<ResultFile> {
    let prices = plan.args.prices.read()?;
    let mut draft = ResultBuilder::new("render", TITLE, &plan.args.common, plan.repetitions);
    eprintln!("render: about {}", format::duration(plan.predicted_seconds()));
    let data = data_set(plan.layout.clone(), plan.args.common.seed);
    if let Some(dir) = plan.args.origin.as_deref().filter(|origin| !origin.starts_with("nfs://")) {
        draft.described("origin directory", fingerprint::of_directory(Path::new(dir)));
    }
    let testbed = Testbed::at(plan.args.origin.as_deref(), data);
    let measure = async |testbed: &mut Testbed, budget: &Budget| all(ranks, testbed, plan, budget).await;
    let common = &plan.args.common;
    driver::on_stage(Some(ranks), common, draft, testbed, measure, async |draft, _, ceiling, measured| {
        let (mut distances, tier) = measured;
        draft.described("tier", tier);
        for distance in &mut distances {
            let (unique, all) = (plan.layout.total_bytes(), demanded(plan));
            distance.invalid =
                limit::invalid_samples(&distance.triples, unique, all, plan.args.rate, ceiling);
        }
        table::fill(draft, plan, &distances, prices.as_ref());
        draft.file.answer = answer::ten_lines(plan, &distances, prices.as_ref());
    })
    .await
}

struct RenderDistance {
    line: Line,
    triples: Vec<Triple>,
    /// Why none of it must be believed.
    invalid: Vec<String>,
}

/// Of each distance what was measured; and how the last of the tiers was configured, by its own word.
async fn all(
    ranks: &Ranks,
    testbed: &Testbed,
    plan: &RenderPlan,
    budget: &Budget,
) -> Result<(Vec<RenderDistance>, Option<String>)> {
    let mut distances = Vec::new();
    for rtt in &plan.args.rtt {
        let line = testbed.line(*rtt, plan.args.rate).await?;
        distances.push(RenderDistance { line, triples: Vec::new(), invalid: Vec::new() });
    }
    let mut tier = None;
    // Interleaved: what changes on this machine meanwhile changes all conditions alike.
    let repeated = budget.repeat(plan.repetitions, "repetitions", async |repetition| {
        for RenderDistance { line, triples, .. } in &mut distances {
            triples.push(triple(ranks, testbed, plan, line, (repetition, budget), &mut tier).await?);
        }
        Ok(())
    });
    repeated.await?;
    Ok((distances, tier))
}

/// Direct, cold and warm, one after the other, as the study did.
async fn triple(
    ranks: &Ranks,
    testbed: &Testbed,
    plan: &RenderPlan,
    line: &Line,
    (repetition, budget): (u32, &Budget),
    configured: &mut Option<String>,
) -> Result<Triple> {
    let what = |mode: CacheMode| {
        let (n, all) = (repetition + 1, plan.repetitions);
        format!("render {n}/{all}, {:.1} ms, {mode}", line.nominal.as_secs_f64() * 1000.0)
    };
    let run = async |mode: CacheMode, url: &str, tier| {
        sample::take(ranks, testbed, line, url, &plan.job(testbed, mode, budget), tier, &what(mode)).await
    };
    let direct = run(CacheMode::Direct, &line.url, None).await?;
    let tier = testbed.tier(line)?;
    *configured = configuration(&tier);
    let cold = run(CacheMode::Cold, &tier.url, Some(&tier)).await?;
    let warm = run(CacheMode::Warm, &tier.url, Some(&tier)).await?;
    Ok(Triple { direct, cold, warm })
}

/// What the tier says of itself, and how it was started: options of the way to the storage are on the command line only.
fn configuration(tier: &TierProcess) -> Option<String> {
    let told = fingerprint::of_tier(tier.admin).ok()?;
    let command = fingerprint::of_process(tier.process.id()).unwrap_or_default();
    Some(format!("{told}; started as: {command}"))
}

pub fn demanded(plan: &RenderPlan) -> u64 {
    plan.layout.total_bytes().saturating_mul(u64::from(plan.nodes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::typed;

    #[test]
    fn a_faithful_render_staggers_its_nodes_as_the_study_did_in_its_scaled_time() {
        let plan = |words: &[&str]| RenderPlan::of(&typed(words).expect("a command line")).expect("a plan");
        let full = plan(&["--faithful", "--scale", "full"]);
        assert_eq!(
            (full.nodes, full.repetitions, full.args.rtt.len(), full.args.common.faithful),
            (500, 1, 4, true)
        );
        assert_eq!(full.stagger, Some(Stagger { group: 5, every_s: 7.0 }));
        assert_eq!(full.stagger_s(), 693.0, "when the study's last node would have started");
        let small = plan(&["--faithful"]);
        assert!((small.stagger_s() - 7.0 * 0.005).abs() < 1e-9, "{}", small.stagger_s());
        assert_eq!((plan(&[]).stagger, plan(&[]).repetitions), (None, 6));
    }
}
