//! What can be typed for a load of one's own, and what it means.

use std::time::Duration;

use bench_load::{
    AccessOrder, Amount, Layout, LoadJob, LoadLimits, LoadOperation, LoadPace, LoadPhase, LoadWork, Sharing,
    Sizes, Stagger, TouchUnit,
};
use clap::Args;

use super::words::{parse_operation, parse_order, parse_sizes};
use crate::render::parse_stagger;
use crate::{Budget, CommonArgs, KneeArgs, TargetArgs, TargetDir, block_size, driver, one_of};

#[derive(Args, Clone, Debug)]
pub struct LoadArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// What is done: read, write, stat, walk (list, then ask for the attributes of each file), or a mixture such as
    /// read=60,range=10,write=15,stat=8,list=2,delete=5 (range: one block of a file; delete: make an empty file, remove it)
    #[arg(long, value_name = "WHAT", default_value = "read", value_parser = parse_operation)]
    pub operation: LoadOperation,
    /// What one touch is
    #[arg(long, value_name = "UNIT", default_value = "file", value_parser = one_of::<TouchUnit>(&["file", "block"]))]
    pub unit: TouchUnit,
    /// sequential, random (each once per epoch), strided:8, uniform, zipf:0.99, hotspot:10/90 (10 % of the units get
    /// 90 % of the touches)
    #[arg(long, value_name = "ORDER", default_value = "sequential", value_parser = parse_order)]
    pub order: AccessOrder,
    /// Who goes through it: all together in contiguous parts (split) or in turns (interleaved), each client or each worker
    /// by itself
    #[arg(long, value_name = "WHO", default_value = "client", value_parser = one_of::<Sharing>(&["split", "interleaved", "client", "worker"]))]
    pub share: Sharing,
    /// All units so many times
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "draws", value_parser = clap::value_parser!(u64).range(1..))]
    pub epochs: u64,
    /// So many touches, for orders that repeat
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub draws: Option<u64>,
    /// Files
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub files: u64,
    /// Bytes of each: 16MiB, or 4KiB-1MiB for sizes spread evenly by magnitude
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = parse_sizes)]
    pub file_size: Sizes,
    /// Files of one directory; 0: all in one
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub files_per_directory: u64,
    /// Each node has files of its own
    #[arg(long)]
    pub private: bool,
    /// Bytes of one read or write
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = block_size)]
    pub block: u64,
    /// Nodes, each with connections of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub nodes: u32,
    /// What each does at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub workers: u32,
    /// Rest of a worker after each touch
    #[arg(long, value_name = "TIME", default_value = "0", conflicts_with = "knee", value_parser = quantity::duration)]
    pub think: Duration,
    /// Nodes that start together, and how long after the ones before, as 5/7s
    #[arg(long, value_name = "N/TIME", conflicts_with = "knee", value_parser = parse_stagger)]
    pub stagger: Option<Stagger>,
    /// An open loop: touches a second of all together, whether or not earlier ones are done; latency counts from when a
    /// touch should have begun
    #[arg(long, value_name = "PER SECOND", conflicts_with_all = ["think", "stagger", "knee"])]
    pub open: Option<f64>,
    #[command(flatten)]
    pub knee: KneeArgs,
    /// End each repetition after this time
    #[arg(long, value_name = "TIME", conflicts_with = "knee", value_parser = quantity::duration)]
    pub seconds: Option<Duration>,
    /// Share of what is read that is compared with what was written
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub verify: u8,
    /// What a compressor would save of the contents
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=99))]
    pub compressible: u8,
    #[command(flatten)]
    pub common: CommonArgs,
}

impl LoadArgs {
    pub fn layout(&self) -> Layout {
        let (files_per_directory, private) = (self.files_per_directory, self.private);
        Layout { files: self.files, sizes: self.file_size, files_per_directory, private }
    }

    pub fn work(&self) -> LoadWork {
        LoadWork {
            operation: self.operation,
            unit: self.unit,
            order: self.order,
            share: self.share,
            amount: self.draws.map_or(Amount::Epochs(self.epochs), Amount::Draws),
            block_bytes: self.block,
            seed: self.common.seed,
        }
    }

    pub fn pace(&self) -> LoadPace {
        match self.open {
            Some(per_second) => LoadPace::Open { per_second, arrivals: self.knee.arrivals },
            None => LoadPace::Closed { think_s: self.think.as_secs_f64(), stagger: self.stagger },
        }
    }

    /// Of one repetition. Only if --seconds ends it is that what was asked for.
    fn limits(&self, budget: &Budget) -> LoadLimits {
        let limits = budget.limits();
        match self.seconds.map(|time| time.as_secs_f64()) {
            Some(seconds) if seconds <= limits.seconds => LoadLimits { seconds, asked: true, ..limits },
            _ => limits,
        }
    }

    pub fn job(&self, target_dir: &TargetDir, version: u32, budget: &Budget) -> LoadJob {
        let phase = LoadPhase {
            name: "load".to_owned(),
            work: self.work(),
            pace: self.pace(),
            version,
            verify_percent: self.verify,
            ..LoadPhase::default()
        };
        let fleet = (self.nodes, self.workers);
        driver::job(target_dir, fleet, self.layout(), vec![phase], self.limits(budget))
    }

    pub fn bytes(&self) -> u64 {
        let trees = if self.private { u64::from(self.nodes) } else { 1 };
        self.layout().total_bytes().saturating_mul(trees)
    }
}
