//! The measurement: files laid out or found, then all conditions, one after the other, again and again.

use bench_load::dataset::Dataset;
use bench_load::engine::{LoadJob, LoadPhase};
use bench_load::outcome::PhaseOutcome;
use bench_load::shape::{ClientSet, Layout, Sizes, TouchUnit};
use bench_load::target::limited::BUSY_CALL;
use bench_report::histogram::Histogram;
use bench_report::overlap;
use types::{Error, ErrorKind, Result};

use super::condition::{ShapeCondition, sets, total_bytes};
use crate::args::CommonArgs;
use crate::budget::{Budget, TimeCut};
use crate::limit;
use crate::ranks::Ranks;
use crate::target_dir::TargetDir;
use crate::worker_phases;

/// A row is repeated until it takes this long: a second, and some for a run that is faster than the first look.
const ROW_SECONDS: f64 = 2.5;
const ROW_SECONDS_MIN: f64 = 1.6;
const LOOKS_MAX: u32 = 5;
const EPOCHS_MAX: u64 = 100_000;

/// A condition and what was measured under it.
pub struct ShapeRuns {
    pub condition: ShapeCondition,
    pub epochs: u64,
    /// Repetitions, without the histograms of their calls.
    pub outcomes: Vec<PhaseOutcome>,
    /// The same, as tables show them.
    pub runs: Vec<ShapeRun>,
    /// Of all repetitions.
    pub calls: Histogram,
}

/// One repetition.
pub struct ShapeRun {
    pub phase: Option<overlap::PhaseSpans>,
    /// Of the worker that took longest to make data durable.
    pub sync_s: f64,
    pub call_p50_ms: Option<f64>,
    /// Until the first block of a file was there, where files have several.
    pub first_block_p50_ms: Option<f64>,
    pub file_p50_ms: Option<f64>,
    pub busy: u64,
}

/// What came of it all.
pub struct ShapeResults {
    pub rows: Vec<ShapeRuns>,
    /// Sets of files that an earlier run had left and that were used.
    pub reused: usize,
    /// The time was over before all repetitions of all rows were done.
    pub cut: Option<TimeCut>,
}

impl ShapeRuns {
    fn new(condition: ShapeCondition, epochs: u64) -> ShapeRuns {
        ShapeRuns { condition, epochs, outcomes: Vec::new(), runs: Vec::new(), calls: Histogram::new() }
    }

    pub fn judged(&self) -> limit::SweepRow<'_> {
        limit::SweepRow { name: self.condition.name(), nodes: self.condition.nodes, runs: &self.outcomes }
    }

    fn add(&mut self, mut outcome: PhaseOutcome) {
        let call = if self.condition.shape.writes() { "write" } else { "read" };
        // A histogram may take a quarter of a megabyte, and there may be hundreds of repetitions.
        let service = std::mem::take(&mut outcome.service);
        let calls = service.get(call);
        let p50_ms = |histogram: &Histogram| Some(histogram.percentile(50.0)? as f64 / 1000.0);
        let whole = self.condition.work(1, 0).unit == TouchUnit::File;
        self.runs.push(ShapeRun {
            phase: worker_phases::phase(&outcome),
            sync_s: outcome.spans.iter().map(|span| span.sync_s).fold(0.0, f64::max),
            call_p50_ms: calls.and_then(p50_ms),
            first_block_p50_ms: p50_ms(&outcome.first_block),
            file_p50_ms: if whole { p50_ms(&outcome.unit) } else { None },
            busy: outcome.calls.get(BUSY_CALL).copied().unwrap_or(0),
        });
        if let Some(calls) = calls {
            self.calls.merge(calls);
        }
        self.outcomes.push(outcome);
    }
}

/// Repetition after repetition of all conditions. Looks before them, not kept, tell how often each must be gone through
/// to last long enough.
pub async fn all(
    ranks: &Ranks,
    common: &CommonArgs,
    conditions: &[ShapeCondition],
    target_dir: &TargetDir,
) -> Result<ShapeResults> {
    let (budget, repetitions) = (Budget::start(common), super::repetitions(common));
    let reused = lay_out(common, conditions, target_dir, &budget).await?;
    let measuring = ShapeMeasurement { ranks, common, target_dir, budget: &budget };
    let mut rows = Vec::new();
    for condition in conditions {
        rows.push(ShapeRuns::new(*condition, measuring.look(condition).await?));
    }
    let cut = budget.sweep(&mut rows, repetitions, async |_, row, repetition| {
        let version = if row.condition.shape.writes() { repetition + 2 } else { 1 };
        let what = format!("{} {}/{repetitions}", row.condition.name(), repetition + 1);
        row.add(measuring.once(&row.condition, row.epochs, version, &what).await?);
        Ok(())
    });
    let cut = cut.await?;
    Ok(ShapeResults { rows, reused, cut })
}

/// All files that are read, and room for those that are written. Nothing is written if something cannot be. Returns how
/// many sets were there already.
async fn lay_out(
    common: &CommonArgs,
    conditions: &[ShapeCondition],
    target_dir: &TargetDir,
    budget: &Budget,
) -> Result<usize> {
    let mut missing = Vec::new();
    let (read, mut new_bytes) = (sets(conditions, false), total_bytes(&sets(conditions, true)));
    for (directory, layout) in &read {
        let dataset = Dataset { layout: layout.clone(), content: target_dir.content, version: 1, trees: 1 };
        if !target_dir.holds(&dataset, directory).await? {
            new_bytes = new_bytes.saturating_add(layout.total_bytes());
            missing.push((directory, dataset));
        }
    }
    for condition in conditions {
        target_dir.check(&job(condition, 1, 1, common, target_dir, budget), new_bytes).await?;
    }
    for (directory, dataset) in &missing {
        target_dir.lay_out(dataset, directory).await?;
    }
    Ok(read.len() - missing.len())
}

fn job(
    condition: &ShapeCondition,
    epochs: u64,
    version: u32,
    common: &CommonArgs,
    target_dir: &TargetDir,
    budget: &Budget,
) -> LoadJob {
    LoadJob {
        root: target_dir.root(),
        // Of no phase: each has its files.
        layout: Layout { files: 1, sizes: Sizes::Equal(0), ..Layout::default() },
        content: target_dir.content,
        fleet: ClientSet { clients: condition.nodes, first_client: 0, workers: condition.workers },
        phases: vec![LoadPhase {
            name: condition.shape.name().to_owned(),
            work: condition.work(epochs, common.seed),
            files: Some(condition.files()),
            version,
            ..LoadPhase::default()
        }],
        limits: budget.limits(),
    }
}

struct ShapeMeasurement<'a> {
    ranks: &'a Ranks,
    common: &'a CommonArgs,
    target_dir: &'a TargetDir,
    budget: &'a Budget,
}

impl ShapeMeasurement<'_> {
    /// How often it must be gone through.
    async fn look(&self, condition: &ShapeCondition) -> Result<u64> {
        let mut epochs = 1;
        for look in 1..=LOOKS_MAX {
            let what = format!("{}: look {look}", condition.name());
            let seconds =
                self.once(condition, epochs, 1, &what).await?.last_done_s().unwrap_or(0.0).max(1e-6);
            if seconds >= ROW_SECONDS_MIN || epochs == EPOCHS_MAX {
                break;
            }
            // The first goes are slower than those that follow: an estimate from a few is too low.
            epochs = ((epochs as f64 * ROW_SECONDS / seconds).ceil() as u64).max(epochs + 1).min(EPOCHS_MAX);
        }
        Ok(epochs)
    }

    async fn once(
        &self,
        condition: &ShapeCondition,
        epochs: u64,
        version: u32,
        what: &str,
    ) -> Result<PhaseOutcome> {
        let job = job(condition, epochs, version, self.common, self.target_dir, self.budget);
        let loaded = self.ranks.load(self.target_dir.url(), &job, what).await?;
        let phase = loaded.outcome.phases.into_iter().next();
        phase.ok_or_else(|| Error::new(ErrorKind::Io, "measure", "no phase came back"))
    }
}
