//! Reads that grow with the number of copies, after the MapR study: one file behind a running cluster is read through one, two and
//! three of its nodes at once, each reader pinned to its node, where one, two and three nodes keep it; before a copy is lost,
//! at once after that, and when it is made again.
//!
//! A junction of the cluster is measured as it is: how many copies it keeps, and where, the nodes tell (`tables.rs` has that table,
//! too). What was local is what the nodes counted, never what a client believes. Begin with `measure.rs`.

mod measure;
mod tables;

use std::process::ExitCode;

use bench_load::shape::{Layout, Sizes};
use bench_report::{ResultFile, format};
use clap::Args;
use types::Result;

use crate::nodes::{CopyLoss, NodeListArgs};
use crate::{CommonArgs, ResultBuilder, alone, block_size, driver, publish, refuse};

/// The study's file, bytes.
const FILE_BYTES: u64 = 10 << 30;
/// What "small" means of it: 256 MiB, which a link of 50 MB/s carries in five seconds.
const SMALL: f64 = 0.025;
const FILE_MIN: u64 = 1 << 20;
const TITLE: &str = "Reads against the number of copies";

#[derive(Args, Clone, Debug)]
pub struct ReplicasArgs {
    #[command(flatten)]
    nodes: NodeListArgs,
    /// The storage behind the cluster, as this machine reaches it to write: the file that is read is put there. What stands there
    /// is at each --junction of the nodes
    #[arg(long, value_name = "URL", requires = "nodes")]
    origin: Option<String>,
    /// How many of the nodes, the first ones, serve clients at once [default: 1 to all]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64))]
    gateways: Vec<u32>,
    /// Bytes of the file [default: the study's 10 GiB, at small scale 256 MiB]
    #[arg(long, value_name = "SIZE", value_parser = quantity::size)]
    file_size: Option<u64>,
    /// Bytes of one read
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = block_size)]
    block: u64,
    /// How a node loses its copies: a command of the shell, with the node's name in NODE, that ends when the node serves again
    /// [default: they are evicted]
    #[arg(long, value_name = "COMMAND", requires = "nodes")]
    lose: Option<String>,
    #[command(flatten)]
    common: CommonArgs,
}

struct ReplicasPlan {
    args: ReplicasArgs,
    layout: Layout,
    /// Numbers of gateways, in order.
    gateways: Vec<usize>,
    repetitions: u32,
    loss: CopyLoss,
}

impl ReplicasPlan {
    fn of(args: &ReplicasArgs) -> Result<ReplicasPlan> {
        let nodes = args.nodes.nodes.len();
        args.nodes.check(args.origin.as_deref())?;
        let bytes = args.file_size.unwrap_or(args.common.scale.small_is(SMALL).of(FILE_BYTES, FILE_MIN));
        if bytes == 0 {
            return refuse("replicas: the file has at least 1 byte");
        }
        args.common.check_bytes(bytes)?;
        let mut gateways: Vec<usize> = args.gateways.iter().map(|n| *n as usize).collect();
        if gateways.is_empty() {
            gateways = (1..=nodes).collect();
        }
        gateways.sort_unstable();
        gateways.dedup();
        if let Some(more) = gateways.iter().find(|n| **n > nodes) {
            return refuse(format!("replicas: --gateways {more}, and {nodes} nodes are named with --node"));
        }
        let layout = Layout { files: 1, sizes: Sizes::Equal(bytes), ..Layout::default() };
        layout.check()?;
        Ok(ReplicasPlan {
            layout,
            args: args.clone(),
            gateways,
            repetitions: args.common.repetitions(1),
            loss: args.lose.clone().map_or(CopyLoss::Evicted, CopyLoss::Command),
        })
    }

    fn bytes(&self) -> u64 {
        self.layout.total_bytes()
    }
}

pub async fn command(args: ReplicasArgs) -> Result<ExitCode> {
    if args.nodes.nodes.is_empty() {
        return alone(async { publish(&not_measured(), &args.common.output) }).await;
    }
    let plan = ReplicasPlan::of(&args)?;
    let told = || {
        let (bytes, at, times) =
            (format::bytes(plan.bytes()), args.nodes.junctions.join(" and "), plan.repetitions);
        let gateways = plan.gateways.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        format!(
            "replicas: {bytes} are written at the origin, and read at {at} through {gateways} gateways at once, {times} times \
             each; where there are as many copies as gateways, one is lost and made again each time"
        )
    };
    driver::command(&args.common, told, async |ranks| measure::all(ranks, &plan).await).await
}

/// Without a cluster: what was published, and how to have figures of one's own.
fn not_measured() -> ResultFile {
    let mut draft = ResultBuilder::without_common("replicas", TITLE, "prepared", 0);
    tables::fill_empty(&mut draft);
    draft.note(
        "nothing was measured, since no cluster is named: give each node with --node nfs://HOST,admin=ADDR, the path with \
         --junction and the storage behind it with --origin",
    );
    draft.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::typed;

    #[test]
    fn a_plan_has_the_gateways_that_there_are_and_a_file_within_the_budget() {
        let nodes = ["--node", "nfs://a,admin=127.0.0.1:1", "--node", "nfs://b,admin=127.0.0.1:2"];
        let plan = |more: &[&str]| {
            let words = [&nodes[..], &["--junction", "/show", "--origin", "/"], more].concat();
            ReplicasPlan::of(&typed::<ReplicasArgs>(&words).expect("a command line"))
        };
        let usual = plan(&[]).expect("a plan");
        assert_eq!((usual.gateways, usual.layout.total_bytes()), (vec![1, 2], 256 << 20));
        assert_eq!(usual.loss, CopyLoss::Evicted);
        let study = plan(&["--faithful", "--scale", "full", "--gateways", "2,1,2"]).expect("a plan");
        assert_eq!((study.gateways, study.repetitions), (vec![1, 2], 1));
        assert_eq!(study.layout.total_bytes(), FILE_BYTES);
        for (more, told) in [
            (&["--gateways", "3"][..], "2 nodes"),
            (&["--file-size", "1TiB"], "--byte-budget"),
            (&["--junction", "show"], "such as /show"),
        ] {
            let why = plan(more).map(|_| ()).expect_err(told).to_string();
            assert!(why.contains(told), "{why}");
        }
        let without = typed::<ReplicasArgs>(&nodes).expect("a command line");
        assert!(ReplicasPlan::of(&without).is_err(), "no origin");
    }
}
