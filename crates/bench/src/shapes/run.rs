//! The measurement: files laid out or found, then all conditions, one after the other, again and again.

use bench_load::{Dataset, Layout, LoadJob, LoadPhase, PhaseOutcome, Sizes};
use bench_report::Histogram;
use types::Result;

use super::condition::{ShapeCondition, sets, total_bytes};
use crate::{Budget, CommonArgs, LoadRow, Ranks, TargetDir, driver, limit};

const LOOKS_MAX: u32 = 5;
const EPOCHS_MAX: u64 = 100_000;

pub struct ShapeRuns {
    pub condition: ShapeCondition,
    pub epochs: u64,
    /// Repetitions, without the histograms of their calls.
    pub outcomes: Vec<PhaseOutcome>,
    /// Median latencies of the calls that read or write, by repetition.
    pub call_p50_ms: Vec<f64>,
    pub calls: Histogram,
}

pub struct ShapeResults {
    pub rows: Vec<ShapeRuns>,
    /// Sets of files that an earlier run had left and that were used.
    pub reused: usize,
}

impl ShapeRuns {
    pub fn new(condition: ShapeCondition, epochs: u64) -> ShapeRuns {
        let calls = Histogram::new();
        ShapeRuns { condition, epochs, outcomes: Vec::new(), call_p50_ms: Vec::new(), calls }
    }

    pub fn row(&self) -> LoadRow<'_> {
        LoadRow::of(&self.outcomes)
    }

    pub fn judged(&self) -> limit::SweepRow<'_> {
        (self.condition.name(), self.condition.nodes, &self.outcomes)
    }

    fn add(&mut self, mut outcome: PhaseOutcome) {
        let call = if self.condition.shape.writes() { "write" } else { "read" };
        // A histogram may take a quarter of a megabyte, and there may be hundreds of repetitions.
        if let Some(calls) = std::mem::take(&mut outcome.service).get(call) {
            self.call_p50_ms.extend(calls.percentile_ms(50.0));
            self.calls.merge(calls);
        }
        self.outcomes.push(outcome);
    }
}

/// The target with all that its conditions are measured by.
pub struct ShapeMeasurement<'a> {
    pub ranks: &'a Ranks,
    pub common: &'a CommonArgs,
    pub target_dir: &'a TargetDir,
    pub budget: &'a Budget,
}

impl ShapeMeasurement<'_> {
    /// Repetition after repetition of all conditions. Looks before them, not kept, tell how often each must be gone through
    /// to last long enough.
    pub async fn all(&self, conditions: &[ShapeCondition]) -> Result<ShapeResults> {
        let repetitions = super::repetitions(self.common);
        let reused = self.lay_out(conditions).await?;
        let mut rows = Vec::new();
        for condition in conditions {
            rows.push(ShapeRuns::new(*condition, self.look(condition).await?));
        }
        let what = "repetitions of all rows: some have fewer";
        let measured = self.budget.sweep(&mut rows, repetitions, what, async |_, row, repetition| {
            let version = if row.condition.shape.writes() { repetition + 2 } else { 1 };
            let what = format!("{} {}/{repetitions}", row.condition.name(), repetition + 1);
            row.add(self.once(&row.condition, row.epochs, version, &what).await?);
            Ok(())
        });
        measured.await?;
        Ok(ShapeResults { rows, reused })
    }

    /// All files that are read, and room for those that are written. Nothing is written if something cannot be. Returns how
    /// many sets were there already.
    async fn lay_out(&self, conditions: &[ShapeCondition]) -> Result<usize> {
        let (mut missing, content) = (Vec::new(), self.target_dir.content);
        let (read, mut new_bytes) = (sets(conditions, false), total_bytes(&sets(conditions, true)));
        for (directory, layout) in &read {
            let dataset = Dataset { layout: layout.clone(), content, version: 1, trees: 1 };
            if !self.target_dir.holds(&dataset, directory).await? {
                new_bytes = new_bytes.saturating_add(layout.total_bytes());
                missing.push((directory, dataset));
            }
        }
        for condition in conditions {
            self.target_dir.check(&self.job(condition, 1, 1), new_bytes).await?;
        }
        for (directory, dataset) in &missing {
            self.target_dir.lay_out(dataset, directory).await?;
        }
        Ok(read.len() - missing.len())
    }

    fn job(&self, condition: &ShapeCondition, epochs: u64, version: u32) -> LoadJob {
        // Of no phase: each has its files.
        let layout = Layout { files: 1, sizes: Sizes::Equal(0), ..Layout::default() };
        let phase = LoadPhase {
            name: condition.shape.to_string(),
            work: condition.work(epochs, self.common.seed),
            files: Some(condition.files()),
            version,
            ..LoadPhase::default()
        };
        let fleet = (condition.nodes, condition.workers);
        driver::job(self.target_dir, fleet, layout, vec![phase], self.budget.limits())
    }

    /// How often it must be gone through.
    async fn look(&self, condition: &ShapeCondition) -> Result<u64> {
        let (wanted, least) = self.common.row_seconds();
        let mut epochs = 1;
        for look in 1..=LOOKS_MAX {
            let what = format!("{}: look {look}", condition.name());
            let seconds =
                self.once(condition, epochs, 1, &what).await?.last_done_s().unwrap_or(0.0).max(1e-6);
            if seconds >= least || epochs == EPOCHS_MAX {
                break;
            }
            // The first goes are slower than those that follow: an estimate from a few is too low.
            epochs = ((epochs as f64 * wanted / seconds).ceil() as u64).max(epochs + 1).min(EPOCHS_MAX);
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
        let job = self.job(condition, epochs, version);
        self.ranks.load(&self.target_dir.url, &job, what).await?.outcome.into_first()
    }
}
