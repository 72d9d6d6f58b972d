//! A data set behind a running cluster: laid out at the origin, read through the nodes, and removed from both.

use std::sync::Arc;
use std::time::Duration;

use bench_load::{Cleanup, Dataset, LoadJob, from_url};
use types::{ErrorKind, Result};

use super::{BenchCluster, ClusterPass, NodeListArgs, complete_percent, copies::least_copies, wait_until};
use crate::testbed::LaidOut;
use crate::{MeasuredStorage, Ranks, refuse};

/// What was made at the origin is seen through a node after the time for which it trusts its directories.
const SEEN_PATIENCE: Duration = Duration::from_secs(180);

/// Copies that are not whole after this are not made.
const WHOLE_PATIENCE: Duration = Duration::from_secs(1800);
const FILES_LOOKED_AT: u64 = 16;

pub struct ClusterStage {
    pub cluster: Arc<BenchCluster>,
    junctions: Vec<String>,
    /// Below the origin, and so below each junction.
    pub files: LaidOut,
}

impl ClusterStage {
    /// Meets the nodes, and writes the data set to the origin by its own address. Each junction of the nodes leads there.
    pub async fn lay_out(args: &NodeListArgs, origin: Option<&str>, data: Dataset) -> Result<ClusterStage> {
        let cluster = Arc::new(BenchCluster::meet(&args.nodes)?);
        let files = LaidOut::at(origin.unwrap_or_default(), data).await?;
        Ok(ClusterStage { cluster, junctions: args.junctions.clone(), files })
    }

    /// The path of a file, as clients of a junction name it.
    pub fn path(&self, junction: &str, file: u64) -> String {
        format!("{}/{}", junction.trim_end_matches('/'), self.files.path(file))
    }

    pub fn root(&self, junction: &str) -> String {
        format!("{}/{}", junction.trim_end_matches('/'), self.files.root())
    }

    /// What each node counts while the job is done.
    pub async fn load(&self, ranks: &Ranks, target: &str, job: &LoadJob, told: &str) -> Result<ClusterPass> {
        let before = self.cluster.counters()?;
        let outcome = ranks.load(target, job, told).await?.outcome.into_first()?;
        let counted = before.iter().zip(self.cluster.counters()?);
        Ok(ClusterPass { outcome, nodes: counted.map(|(before, after)| after.since(before)).collect() })
    }

    /// Waits until each node shows the last file of the data set at a junction.
    pub async fn await_seen(&self, junction: &str) -> Result<()> {
        let last = self.files.path(self.files.data.layout.files.saturating_sub(1));
        for node in &self.cluster.nodes {
            let target = BenchCluster::target(junction, node.way.links.first());
            let client = from_url(&target)?.client(0).await?;
            let begun = std::time::Instant::now();
            loop {
                client.forget();
                match client.stat(&last).await {
                    Ok(_) => break,
                    // Nothing that this run made leads there yet.
                    Err(e) if e.kind() == ErrorKind::NotFound && begun.elapsed() < SEEN_PATIENCE => {
                        tokio::time::sleep(super::LOOK).await;
                    }
                    Err(e) if e.kind() == ErrorKind::NotFound => {
                        return refuse(format!(
                            "{} does not show at {junction} what was written at the origin; --origin and --junction must be the same files",
                            node.name
                        ));
                    }
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(())
    }

    pub fn evict_everywhere(&self, junction: &str) -> Result<()> {
        let path = self.root(junction);
        (0..self.cluster.nodes.len()).try_for_each(|node| self.cluster.evict(node, &path))
    }

    /// Waits until the nodes that are to keep a file have all of it, for some of the files; what becomes of those becomes of the
    /// others. How many copies of the first file there are.
    pub async fn await_whole(&self, junction: &str) -> Result<usize> {
        let files = self.files.data.layout.files;
        let step = files.div_ceil(FILES_LOOKED_AT).max(1) as usize;
        for file in (0..files).step_by(step) {
            let path = self.path(junction, file);
            let what = format!("the copies of {path} are whole");
            let all = |stripes: &Vec<_>| complete_percent(stripes, least_copies(stripes)) >= 100.0;
            wait_until(&what, WHOLE_PATIENCE, || {
                self.cluster.copies(&path).is_ok_and(|stripes| all(&stripes))
            })
            .await?;
        }
        self.cluster.copies(&self.path(junction, 0)).map(|stripes| least_copies(&stripes))
    }
}

impl MeasuredStorage for ClusterStage {
    const OUTLASTS_RUN: bool = false;

    /// The nodes are as they were, too.
    async fn clean_up(self) -> Result<Option<Cleanup>> {
        let restored = self.cluster.restore();
        for junction in &self.junctions {
            let path = self.root(junction);
            for node in 0..self.cluster.nodes.len() {
                // Of a node that has gone nothing is to be had, and what it keeps is good for nobody.
                if let Err(e) = self.cluster.evict(node, &path) {
                    tracing::warn!("a node keeps files of this run: {e}");
                }
            }
        }
        let done = self.files.clean_up().await;
        restored.and(done).map(Some)
    }
}
