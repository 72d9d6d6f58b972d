//! Single and multiple files, single and multiple readers and writers, after the Azure HPC IO study: sweeps over the size
//! of a file, over how many nodes and workers there are, and over the size of a read or write.
//!
//! The study printed the rate of one reader as the system's. Here both stand in the table, each with its name, and a row
//! that would be over in less than a second is repeated until it is not. All rows are measured once, then all again, so
//! that what changes while it runs changes all of them alike.

mod condition;
mod run;
mod tables;

use std::process::ExitCode;

use bench_load::target::without_options;
use bench_report::{ResultFile, format};
use clap::Args;
use types::Result;

use crate::fixture::TierConfig;
use crate::{
    Budget, CommonArgs, Ranks, ResultBuilder, TargetArgs, TargetDir, TargetLoad, TierProcess, block_size,
    driver, is_http_store, refuse,
};
use condition::{Shape, ShapeCondition, Sweep, sets, total_bytes};
use run::{ShapeMeasurement, ShapeRuns};

const WORKERS: u32 = 20;
const NODES: u32 = 5;
/// The repetitions of the study's first version; its later one had a hundred.
const STUDY_REPETITIONS: u32 = 10;
const FLEETS: [(u32, u32); 5] = [(1, 20), (2, 10), (4, 5), (6, 4), (8, 3)];
const SWEEP_BYTES: u64 = 64 << 20;

#[derive(Args, Clone, Debug)]
pub struct ShapesArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Which shapes; those that write are left out by default if the target is laid out by another way
    #[arg(long, value_name = "SHAPES", value_delimiter = ',')]
    shape: Vec<Shape>,
    /// Sizes of a file [default: the study's 1 MiB to 1 GiB, up to scale x 1 GiB but at least 4 MiB]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = quantity::size)]
    sizes: Vec<u64>,
    /// Nodes, each with connections of its own
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=4096))]
    nodes: u32,
    /// Workers of each node
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: u32,
    /// Bytes of one read or write
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = block_size)]
    block: u64,
    /// Also: rows with reads and writes of these sizes, of files of scale x 64 MiB (at least 1 MiB and the largest of these)
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = block_size)]
    block_sizes: Vec<u64>,
    /// Rows with so many nodes and workers of each, for every shape, of files of scale x 64 MiB: 1x1,1x4,5x4 [default: the
    /// study's 20x1,10x2,5x4,4x6,3x8, for shapes that read]
    #[arg(long, value_name = "NODESxWORKERS", value_delimiter = ',', value_parser = parse_fleet)]
    fleets: Vec<(u32, u32)>,
    /// Measure everything once more through Forebay: a tier with an empty cache that writes through, which the bench puts up
    /// in front of a bucket or a share of Azure Files as --target and reads and writes by its S3 front. What is read there is warm: looks before the
    /// measurement have filled it
    #[arg(long)]
    through: bool,
    #[command(flatten)]
    common: CommonArgs,
}

/// Nodes and workers of each.
fn parse_fleet(text: &str) -> std::result::Result<(u32, u32), String> {
    let number = |text: &str| text.parse().ok().filter(|n| (1..=4096).contains(n));
    let fleet = text.split_once('x').and_then(|(nodes, workers)| Some((number(nodes)?, number(workers)?)));
    fleet.ok_or_else(|| {
        format!("\"{text}\" is no fleet; write nodes x workers, each from 1 to 4096, for example 5x4")
    })
}

pub async fn command(args: ShapesArgs) -> Result<ExitCode> {
    args.target.check()?;
    if args.through && (!is_http_store(args.target.url()) || args.target.limits.is_some()) {
        return refuse(
            "shapes: --through is for a bucket or a share of Azure Files as --target, without --limits: a tier asks the store itself, where the bench \
             keeps no limits; measure another target's tier by naming it as --target",
        );
    }
    let conditions = conditions(&args)?;
    let told = || {
        let head = format!(
            "shapes: {} rows, {} times each, on {}; {} on the target",
            conditions.len(),
            repetitions(&args.common),
            args.target.url(),
            format::bytes(all_bytes(&conditions))
        );
        let row =
            |row: &ShapeCondition| format!("\n  {}, blocks of {}", row.name(), format::bytes(row.block));
        head + &conditions.iter().map(row).collect::<String>()
    };
    driver::command(&args.common, told, async |ranks| measure(ranks, &args, &conditions).await).await
}

/// That will lie on the target.
fn all_bytes(conditions: &[ShapeCondition]) -> u64 {
    total_bytes(&sets(conditions, false)).saturating_add(total_bytes(&sets(conditions, true)))
}

fn repetitions(common: &CommonArgs) -> u32 {
    common.repetitions(STUDY_REPETITIONS)
}

/// Nodes and workers of each, where these are not what differs.
fn fleet(args: &ShapesArgs) -> (u32, u32) {
    if args.common.faithful { (NODES, WORKERS / NODES) } else { (args.nodes, args.workers) }
}

fn conditions(args: &ShapesArgs) -> Result<Vec<ShapeCondition>> {
    let (nodes, workers) = fleet(args);
    let shapes = match args.shape.as_slice() {
        // What cannot write there is left out, unless it was asked for.
        [] => Shape::ALL.into_iter().filter(|shape| !shape.writes() || args.target.is_writable()).collect(),
        asked => asked.to_vec(),
    };
    if let Some(shape) = shapes.iter().find(|shape| shape.writes() && !args.target.is_writable()) {
        return refuse(format!("{shape} writes, and the target cannot be written"));
    }
    let sizes = if args.sizes.is_empty() {
        let most = args.common.scale.of(1 << 30, 4 << 20);
        (20..=30).map(|shift| 1_u64 << shift).filter(|bytes| *bytes <= most).collect()
    } else {
        args.sizes.clone()
    };
    if sizes.contains(&0) {
        return refuse("shapes: sizes are at least 1 byte");
    }
    let bytes = args.common.scale.of(SWEEP_BYTES, 1 << 20);
    let largest = args.block_sizes.iter().copied().max().unwrap_or(0).max(bytes);
    let mut all = Vec::new();
    for shape in shapes {
        let base = ShapeCondition { shape, bytes, nodes, workers, block: args.block, sweep: Sweep::Size };
        all.extend(sizes.iter().map(|bytes| ShapeCondition { bytes: *bytes, ..base }));
        let fleets = match (args.fleets.as_slice(), shape.writes()) {
            ([], true) => Vec::new(),
            ([], false) => FLEETS.map(|(workers, nodes)| (nodes, workers)).to_vec(),
            (asked, _) => asked.to_vec(),
        };
        let fleet = |(nodes, workers)| ShapeCondition { nodes, workers, sweep: Sweep::Fleet, ..base };
        all.extend(fleets.into_iter().map(fleet));
        let block =
            |block: &u64| ShapeCondition { block: *block, bytes: largest, sweep: Sweep::Block, ..base };
        all.extend(args.block_sizes.iter().map(block));
    }
    all.iter().try_for_each(|condition| condition.layout().check())?;
    Ok(all)
}

async fn measure(ranks: &Ranks, args: &ShapesArgs, conditions: &[ShapeCondition]) -> Result<ResultFile> {
    let bytes = all_bytes(conditions);
    let title = "Files and workers: who reads and writes what";
    let mut draft = ResultBuilder::new("shapes", title, &args.common, repetitions(&args.common));
    let (nodes, workers) = fleet(args);
    draft.parameters([
        ("block_bytes", args.block.into()),
        ("nodes", nodes.into()),
        ("workers", workers.into()),
    ]);
    let load = TargetLoad { ranks, target: &args.target, common: &args.common, bytes };
    let measure = async |target_dir: &mut TargetDir, budget: &Budget| {
        let common = &args.common;
        let direct = ShapeMeasurement { ranks, common, target_dir, budget }.all(conditions).await?;
        if !args.through {
            return Ok((direct, None));
        }
        let tier = tier(args, bytes)?;
        target_dir.url.clone_from(&tier.url);
        let through = ShapeMeasurement { ranks, common, target_dir, budget }.all(conditions).await?;
        Ok((direct, Some(through)))
    };
    load.run(draft, measure, |draft, (direct, through), bounds| {
        tables::fill(draft, &direct, bounds);
        if let Some(through) = &through {
            tables::through(draft, &direct, through, bounds);
        }
        if let Some(limits) = args.target.limits {
            tables::limited(draft, &direct, &limits);
        }
        bounds.judge(draft, &direct.rows.iter().map(ShapeRuns::judged).collect::<Vec<_>>());
    })
    .await
}

/// A tier in front of the target. It has room for all that is there, and is removed with its cache when it is dropped.
fn tier(args: &ShapesArgs, bytes: u64) -> Result<TierProcess> {
    // How large the parts are is a matter of the bench's own client.
    let origin = without_options(args.target.url(), |pair| Ok(pair.starts_with("part=")))?;
    let cache_bytes = bytes.saturating_mul(2).max(1 << 30);
    let scratch = std::env::temp_dir();
    TierProcess::start(&TierConfig { origin, scratch, cache_bytes, by_s3: true, writes_through: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_is_nodes_by_workers_and_nothing_else() {
        assert_eq!(parse_fleet("5x4"), Ok((5, 4)));
        for wrong in ["", "5", "5x", "x4", "0x4", "5x-1", "5x4x3", "99999x1"] {
            assert!(parse_fleet(wrong).is_err_and(|told| told.contains("5x4")), "{wrong}");
        }
    }
}
