//! What is done for each number of copies and gateways: the file is where it is to be, it is read, a copy is lost, it is read, the
//! copy is made again, it is read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use bench_load::{ClientSet, LoadJob, LoadPhase, LoadWork};
use bench_report::ResultFile;
use serde_json::json;
use types::Result;

use super::{ReplicasPlan, TITLE, tables};
use crate::nodes::{
    BenchCluster, ClusterPass, ClusterStage, Repair, RepairWatch, StripeCopies, complete_percent, keepers,
};
use crate::sample::WARM_EXTRA;
use crate::{Budget, CounterPage, Ranks, ResultBuilder, data_set, driver, limit};

/// Where the copies are while the file is read.
#[derive(Clone, Copy, Debug, strum::Display, PartialEq, Eq, PartialOrd, Ord)]
pub enum CopyState {
    #[strum(to_string = "settled")]
    Settled,
    /// One of them has just lost it.
    #[strum(to_string = "right after a loss")]
    Lost,
    #[strum(to_string = "after the repair")]
    Repaired,
}

/// The file read once through each of some gateways at once.
pub struct GatewayPass {
    pub read: ClusterPass,
    /// How much there was of all copies when it began, percent.
    pub percent: f64,
    /// Seconds between the loss of a copy and the beginning.
    pub since_loss: Option<f64>,
}

/// A number of copies and of gateways, with all its repetitions.
pub struct CopyCondition {
    pub junction: String,
    pub copies: usize,
    pub gateways: usize,
    pub passes: BTreeMap<CopyState, Vec<GatewayPass>>,
    pub repairs: Vec<Repair>,
    /// Nodes that keep any of the file, by their place.
    kept_by: BTreeSet<usize>,
}

/// Where the file of one junction lay before anything was read.
pub struct SettledCopies {
    pub junction: String,
    pub copies: usize,
    pub stripes: Vec<StripeCopies>,
}

pub struct ReplicasFound {
    pub conditions: Vec<CopyCondition>,
    pub settled: Vec<SettledCopies>,
    pub names: Vec<String>,
}

pub async fn all(ranks: &Ranks, plan: &ReplicasPlan) -> Result<ResultFile> {
    let args = &plan.args;
    let draft = ResultBuilder::new("replicas", TITLE, &args.common, plan.repetitions);
    let data = data_set(plan.layout.clone(), args.common.seed);
    let stage = ClusterStage::lay_out(&args.nodes, args.origin.as_deref(), data);
    let measure = async |stage: &mut ClusterStage, budget: &Budget| {
        ReplicaRun { ranks, stage, plan, budget }.all().await
    };
    driver::on_stage(Some(ranks), &args.common, draft, stage, measure, async |draft, stage, _, found| {
        stage.cluster.tell(draft);
        draft.parameters([
            ("file_bytes", json!(plan.bytes())),
            ("block_bytes", json!(plan.args.block)),
            ("gateways", json!(plan.gateways)),
            ("junctions", json!(args.nodes.junctions)),
        ]);
        tables::fill(draft, plan.bytes(), plan.args.block, &found);
    })
    .await
}

struct ReplicaRun<'a> {
    ranks: &'a Ranks,
    stage: &'a ClusterStage,
    plan: &'a ReplicasPlan,
    budget: &'a Budget,
}

impl ReplicaRun<'_> {
    async fn all(&self) -> Result<ReplicasFound> {
        let (mut conditions, mut settled) = (Vec::new(), Vec::new());
        for junction in &self.plan.args.nodes.junctions {
            let at = self.settle(junction).await?;
            let named = &self.cluster().nodes;
            let kept_by = keepers(&at.stripes);
            let kept_by = (0..named.len()).filter(|node| kept_by.contains(named[*node].name.as_str()));
            let kept_by: BTreeSet<usize> = kept_by.collect();
            conditions.extend(self.plan.gateways.iter().map(|gateways| CopyCondition {
                junction: junction.clone(),
                copies: at.copies,
                gateways: *gateways,
                passes: BTreeMap::new(),
                repairs: Vec::new(),
                kept_by: kept_by.clone(),
            }));
            settled.push(at);
        }
        let repetition =
            async |_, condition: &mut CopyCondition, repetition| self.repetition(condition, repetition).await;
        self.budget.sweep(&mut conditions, self.plan.repetitions, "parts", repetition).await?;
        let names = self.cluster().nodes.iter().map(|node| node.name.clone()).collect();
        Ok(ReplicasFound { conditions, settled, names })
    }

    fn cluster(&self) -> &BenchCluster {
        &self.stage.cluster
    }

    /// Nothing but the nodes that are to keep the file have it, and these have all of it.
    async fn settle(&self, junction: &str) -> Result<SettledCopies> {
        self.stage.await_seen(junction).await?;
        self.stage.evict_everywhere(junction)?;
        let first = self.cluster().nodes.first().and_then(|node| node.way.links.first());
        let what = format!("replicas: filling {junction}");
        self.ranks.load(&BenchCluster::target(junction, first), &self.job(1), &what).await?;
        let copies = self.stage.await_whole(junction).await?;
        let stripes = self.cluster().copies(&self.stage.path(junction, 0))?;
        Ok(SettledCopies { junction: junction.to_owned(), copies, stripes })
    }

    /// A node that was lost has lost the files of all junctions: what is copied for another one would be a load beside the readers'.
    async fn await_whole(&self) -> Result<()> {
        for junction in &self.plan.args.nodes.junctions {
            self.stage.await_whole(junction).await?;
        }
        Ok(())
    }

    async fn repetition(&self, condition: &mut CopyCondition, repetition: u32) -> Result<()> {
        let told = format!(
            "replicas {}/{}, {}, {} copies, {} gateways",
            repetition + 1,
            self.plan.repetitions,
            condition.junction,
            condition.copies,
            condition.gateways
        );
        self.await_whole().await?;
        let settled = self.pass(condition, None, &told).await?;
        condition.add(CopyState::Settled, settled);
        // The first node stays: it tells where the copies are.
        let losers = 1..condition.gateways.min(self.cluster().nodes.len());
        let loser = losers.rev().find(|node| condition.kept_by.contains(node));
        let Some(loser) = loser.filter(|_| condition.copies > 1 && condition.copies == condition.gateways)
        else {
            return Ok(());
        };
        let path = self.stage.path(&condition.junction, 0);
        let watch = RepairWatch::start(self.stage.cluster.clone(), &path, condition.copies);
        self.plan.loss.make(self.cluster(), loser, &path).await?;
        watch.is_lost();
        let lost_at = Some(Instant::now());
        let lost = self.pass(condition, lost_at, &told).await?;
        condition.add(CopyState::Lost, lost);
        let repair = watch.wait().await?;
        self.await_whole().await?;
        let repaired = self.pass(condition, lost_at, &told).await?;
        condition.add(CopyState::Repaired, repaired);
        condition.repairs.push(repair);
        Ok(())
    }

    async fn pass(
        &self,
        condition: &CopyCondition,
        lost_at: Option<Instant>,
        told: &str,
    ) -> Result<GatewayPass> {
        let path = self.stage.path(&condition.junction, 0);
        let gateways = self.cluster().nodes.iter().take(condition.gateways);
        // What a gateway keeps of a file that is not its own, from the pass before, would make this one a local read.
        for node in (0..condition.gateways).filter(|node| !condition.kept_by.contains(node)) {
            self.cluster().evict(node, &path)?;
        }
        let links = gateways.filter_map(|node| node.way.links.first());
        let target = BenchCluster::target(&condition.junction, links);
        let percent = complete_percent(&self.cluster().copies(&path)?, condition.copies);
        let since_loss = lost_at.map(|at| at.elapsed().as_secs_f64());
        let job = self.job(condition.gateways);
        let read = self.stage.load(self.ranks, &target, &job, told).await?;
        Ok(GatewayPass { read, percent, since_loss })
    }

    /// One reader for each gateway, each of the whole file.
    fn job(&self, gateways: usize) -> LoadJob {
        let work = LoadWork {
            block_bytes: self.plan.args.block,
            seed: self.plan.args.common.seed,
            ..LoadWork::sfmr()
        };
        let clients = u32::try_from(gateways).unwrap_or(u32::MAX);
        let fleet = ClientSet { clients, first_client: 0, workers: 1 };
        self.stage.files.job(fleet, LoadPhase { work, ..LoadPhase::default() }, self.budget.limits())
    }
}

impl CopyCondition {
    fn add(&mut self, state: CopyState, pass: GatewayPass) {
        self.passes.entry(state).or_default().push(pass);
    }

    pub fn unproved(&self, state: CopyState, passes: &[GatewayPass], file_bytes: u64) -> Vec<String> {
        let mut reasons = Vec::new();
        for pass in passes {
            reasons.extend(pass.read.faults(file_bytes.saturating_mul(self.gateways as u64)));
            let is_whole = pass.percent >= 100.0;
            if state == CopyState::Lost && is_whole {
                reasons.push("no copy was missing when it began".to_owned());
            }
            if state != CopyState::Lost && !is_whole {
                reasons.push(format!("when it began there were {:.0} % of the copies", pass.percent));
            }
            let origin = pass.read.sum(CounterPage::origin_bytes);
            if origin > file_bytes as f64 * WARM_EXTRA {
                reasons
                    .push(format!("{origin} bytes came from the storage, and the cluster had all of them"));
            }
        }
        limit::distinct(reasons)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(read: u64, percent: f64, origin: u64) -> GatewayPass {
        let mut outcome = bench_load::outcome::PhaseOutcome { bytes_read: read, ..Default::default() };
        outcome.spans.push(bench_load::outcome::WorkerSpan { end_s: 2.0, ..Default::default() });
        let nodes = vec![CounterPage::parse(&format!("forebay_origin_bytes_total {origin}"))];
        GatewayPass { read: ClusterPass { outcome, nodes }, percent, since_loss: None }
    }

    #[test]
    fn a_row_is_believed_only_if_the_copies_were_what_its_state_says() {
        let condition = CopyCondition {
            junction: "/show".to_owned(),
            copies: 2,
            gateways: 2,
            passes: BTreeMap::new(),
            repairs: Vec::new(),
            kept_by: BTreeSet::from([0, 1]),
        };
        let why = |state, pass| condition.unproved(state, &[pass], 1000).join("; ");
        assert_eq!(why(CopyState::Settled, pass(2000, 100.0, 0)), "");
        assert_eq!(why(CopyState::Lost, pass(2000, 50.0, 0)), "");
        assert!(why(CopyState::Lost, pass(2000, 100.0, 0)).contains("no copy was missing"));
        assert!(why(CopyState::Repaired, pass(2000, 99.0, 0)).contains("99 %"));
        assert!(why(CopyState::Settled, pass(2000, 100.0, 500)).contains("from the storage"));
        assert!(why(CopyState::Settled, pass(1000, 100.0, 0)).contains("not 2000"));
    }
}
