//! What a job will take, computed before it is run.

use serde::{Deserialize, Serialize};

use crate::engine::{LoadJob, LoadPhase};
use crate::pace::LoadPace;
use crate::shape::{Amount, Layout, LoadOperation, Sequence, Sharing, TouchUnit};

/// Calls besides reads and writes that a file costs: LOOKUP, GETATTR, and COMMIT or CREATE.
const CALLS_PER_FILE: f64 = 2.0;

/// What a target does, for a prediction: measured by a probe or assumed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetSpeed {
    /// Seconds of one call that moves next to nothing.
    pub call_s: f64,
    /// Bytes a second of all clients together.
    pub bytes_per_second: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobPlan {
    pub phases: Vec<PhasePlan>,
    /// Files that the layout has, of all clients.
    pub files: u64,
    /// Bytes that the files hold, of all clients.
    pub data_bytes: u64,
    /// Of these, what phases of the job write.
    pub new_bytes: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Most memory for blocks under way in one process with as many clients as the fleet has.
    pub memory_bytes: u64,
    /// Predicted; `None` without a speed. The time budget is the limit of each phase.
    pub seconds: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhasePlan {
    pub name: String,
    /// Touches, of all workers.
    pub units: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub seconds: Option<f64>,
}

/// Of the whole fleet. Draws are counted with their mean size.
pub fn plan(job: &LoadJob, speed: Option<TargetSpeed>) -> JobPlan {
    // Phases without files of their own share the job's.
    let mut sets: Vec<(&Layout, String, bool)> = vec![(&job.layout, job.root.clone(), false)];
    for phase in &job.phases {
        let (layout, root) = (phase.layout(job), phase.root(job).into_owned());
        let writes = phase.work.operation.writes();
        match sets.iter_mut().find(|set| set.0 == layout && set.1 == root) {
            Some(set) => set.2 |= writes,
            None => sets.push((layout, root, writes)),
        }
    }
    let trees = |layout: &Layout| if layout.private { u64::from(job.fleet.clients) } else { 1 };
    let bytes_of = |layout: &Layout| layout.total_bytes().saturating_mul(trees(layout));
    let add = |sum: u64, more: u64| sum.saturating_add(more);
    let phases: Vec<PhasePlan> = job.phases.iter().map(|phase| phase_plan(job, phase, speed)).collect();
    let sum =
        |pick: fn(&PhasePlan) -> u64| phases.iter().fold(0_u64, |sum, phase| sum.saturating_add(pick(phase)));
    let block = job.phases.iter().map(|phase| phase.work.block_bytes).max().unwrap_or(0);
    JobPlan {
        files: sets.iter().map(|set| set.0.files.saturating_mul(trees(set.0))).fold(0, add),
        data_bytes: sets.iter().map(|set| bytes_of(set.0)).fold(0, add),
        new_bytes: sets.iter().filter(|set| set.2).map(|set| bytes_of(set.0)).fold(0, add),
        bytes_read: sum(|phase| phase.bytes_read),
        bytes_written: sum(|phase| phase.bytes_written),
        // One being moved and one being generated or compared.
        memory_bytes: block.saturating_mul(2).saturating_mul(job.fleet.workers_in_all()),
        seconds: phases.iter().map(|phase| phase.seconds).sum(),
        phases,
    }
}

fn phase_plan(job: &LoadJob, phase: &LoadPhase, speed: Option<TargetSpeed>) -> PhasePlan {
    let (work, layout) = (&phase.work, phase.layout(job));
    let runs = match work.share {
        Sharing::Worker => job.fleet.workers_in_all(),
        Sharing::Client => job.fleet.clients.into(),
        Sharing::Split | Sharing::Interleaved if layout.private => job.fleet.clients.into(),
        Sharing::Split | Sharing::Interleaved => 1,
    };
    let sequence = Sequence::new(layout, work, 0, 0);
    let (total, units) = (layout.total_bytes(), sequence.len());
    let per_run = match (work.amount, work.unit) {
        (Amount::Epochs(epochs), _) => total as f64 * epochs as f64,
        (Amount::Draws(draws), TouchUnit::File) => total as f64 / layout.files.max(1) as f64 * draws as f64,
        (Amount::Draws(draws), TouchUnit::Block) => {
            let blocks: f64 = total as f64 / work.block_bytes.max(1) as f64;
            total as f64 / blocks.ceil().max(1.0) * draws as f64
        }
    };
    let (read, write) = match work.operation {
        LoadOperation::Read => (1.0, 0.0),
        LoadOperation::Write => (0.0, 1.0),
        LoadOperation::Stat | LoadOperation::Walk => (0.0, 0.0),
        LoadOperation::Mixed(mix) => {
            let share = |weight: u32| f64::from(weight) / mix.sum().max(1) as f64;
            // Of a file a range is one block, of which it may have only one.
            let mean = total as f64 / layout.files.max(1) as f64;
            let block = match work.unit {
                TouchUnit::File => (work.block_bytes as f64 / mean.max(1.0)).min(1.0),
                TouchUnit::Block => 1.0,
            };
            (share(mix.read) + share(mix.range) * block, share(mix.write))
        }
    };
    // Casts of floats saturate.
    let bytes = |share: f64| (per_run * share * runs as f64) as u64;
    let (bytes_read, bytes_written) = (bytes(read), bytes(write));
    let units = units.saturating_mul(runs);
    let seconds = speed.map(|speed| seconds(job, phase, units, (bytes_read + bytes_written) as f64, speed));
    PhasePlan { name: phase.name.clone(), units, bytes_read, bytes_written, seconds }
}

fn seconds(job: &LoadJob, phase: &LoadPhase, units: u64, bytes: f64, speed: TargetSpeed) -> f64 {
    let layout = phase.layout(job);
    let workers = job.fleet.workers_in_all().max(1) as f64;
    let seconds = match phase.pace {
        LoadPace::Open { per_second, .. } => units as f64 / per_second,
        LoadPace::Closed { think_s, .. } => {
            let files = match (phase.work.operation, phase.work.unit) {
                (LoadOperation::Walk, _) => layout.files as f64 / layout.directories().max(1) as f64,
                (_, TouchUnit::File) => CALLS_PER_FILE,
                (_, TouchUnit::Block) => 0.0,
            };
            let calls =
                units as f64 * files + (bytes / phase.work.block_bytes.max(1) as f64).max(units as f64);
            let waiting = (calls * speed.call_s + units as f64 * think_s) / workers;
            waiting + bytes / speed.bytes_per_second.max(1.0)
        }
    };
    seconds.min(job.limits.seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::{AccessOrder, ClientSet, LoadWork, Sizes};

    fn job(work: LoadWork) -> LoadJob {
        LoadJob {
            layout: Layout { files: 100, sizes: Sizes::Equal(1 << 20), ..Layout::default() },
            fleet: ClientSet { clients: 5, first_client: 0, workers: 2 },
            phases: vec![LoadPhase { work, ..LoadPhase::default() }],
            ..LoadJob::default()
        }
    }

    #[test]
    fn shares_multiply_what_is_read() {
        let read = |work| plan(&job(work), None).bytes_read >> 20;
        assert_eq!(read(LoadWork::sfmr_sections()), 100);
        assert_eq!(read(LoadWork::mfmr()), 500);
        assert_eq!(read(LoadWork::sfmr()), 1000);
        let draws = LoadWork { block_bytes: 64 << 10, ..LoadWork::random_reads(TouchUnit::Block, 16) };
        assert_eq!(read(draws), 5);
        let draws = LoadWork { order: AccessOrder::Uniform, amount: Amount::Draws(7), ..LoadWork::default() };
        assert_eq!(read(draws), 7);
    }

    #[test]
    fn the_data_set_and_its_room_are_told() {
        let whole = plan(&job(LoadWork::mfmw()), None);
        assert_eq!((whole.files, whole.data_bytes >> 20, whole.new_bytes >> 20), (100, 100, 100));
        assert_eq!((whole.bytes_written >> 20, whole.seconds), (100, None));
        assert_eq!(plan(&job(LoadWork::mfmr()), None).new_bytes, 0);
        let mut own = job(LoadWork::mfmw());
        own.layout.private = true;
        let own = plan(&own, None);
        assert_eq!((own.files, own.data_bytes >> 20, own.bytes_written >> 20), (500, 500, 500));
    }

    #[test]
    fn time_follows_calls_bytes_and_schedules() {
        let speed = Some(TargetSpeed { call_s: 0.01, bytes_per_second: f64::from(1 << 20) * 100.0 });
        // 500 files of a MiB by ten workers: three calls each, then five seconds for the bytes.
        let closed = plan(&job(LoadWork::mfmr()), speed).seconds.expect("predicted");
        assert!((closed - (500.0 * 3.0 * 0.01 / 10.0 + 5.0)).abs() < 1e-6, "{closed}");
        let mut open = job(LoadWork::mfmr());
        open.phases[0].pace = LoadPace::Open { per_second: 50.0, arrivals: crate::pace::Arrivals::Constant };
        assert_eq!(plan(&open, speed).seconds, Some(10.0));
        open.limits.seconds = 4.0;
        assert_eq!(plan(&open, speed).seconds, Some(4.0), "the budget ends it");
    }
}
