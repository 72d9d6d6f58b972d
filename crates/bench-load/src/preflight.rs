//! What is asked before a job is run: whether its target can take it.

use types::{Error, ErrorKind, Result};

use crate::engine::{LoadJob, LoadPhase};
use crate::shape::{Amount, Layout, LoadOperation, Sharing, TouchUnit};
use crate::target::Target;

/// Room that must be left besides the data: directories, and what others write meanwhile.
const ROOM_SPARE: f64 = 1.05;

/// Whether a phase writes otherwise than each file as a whole, or all of its blocks once in each epoch.
fn writes_blocks_alone(phase: &LoadPhase, layout: &Layout) -> bool {
    let work = &phase.work;
    let shared = layout.private || matches!(work.share, Sharing::Split | Sharing::Interleaved);
    let once = matches!(work.amount, Amount::Epochs(_)) && shared && work.operation == LoadOperation::Write;
    work.operation.writes() && work.unit == TouchUnit::Block && !once
}

/// Whether the target can take the job, before anything is done: one line that says what would. Ask in one
/// process; `new_bytes` is what will be written where nothing is yet.
pub async fn check_target(target: &dyn Target, job: &LoadJob, new_bytes: u64) -> Result<()> {
    if !job.writes() && new_bytes == 0 {
        return Ok(());
    }
    let about = target.about().await?;
    let wrong = |why: String| Err(Error::new(ErrorKind::Config, "target", format!("{}: {why}", about.url)));
    if about.read_only {
        return wrong("it is read-only; choose a shape that reads, or a writable target".to_owned());
    }
    if about.whole_files && job.phases.iter().any(|phase| writes_blocks_alone(phase, phase.layout(job))) {
        let why = "its files are replaced as a whole, and blocks of them cannot be written alone; write whole files (--unit file)";
        return wrong(why.to_owned());
    }
    if let Some(available) = about.available {
        let wanted = new_bytes as f64 * ROOM_SPARE;
        if wanted > available as f64 {
            let (wanted, free) = (wanted / f64::from(1 << 20), available as f64 / f64::from(1 << 20));
            return wrong(format!(
                "{wanted:.0} MiB are needed, {free:.0} MiB are free; make it smaller with --scale"
            ));
        }
    }
    Ok(())
}
