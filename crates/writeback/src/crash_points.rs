//! The named steps of the journal's work, told to a hook, so that a harness can kill the process at each of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use types::{Error, ErrorKind, Result};

/// What has just been done. Nothing is durable before the step that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JournalStep {
    /// The state file has its new content, under its new name.
    StateWritten,
    /// At open: what a crash tore off the last segment is cut off.
    TailCut,
    /// A segment's file exists, without its header.
    SegmentCreated,
    HeaderWritten,
    /// It has its own name, and name and header are durable.
    SegmentNamed,
    EntryWritten,
    DoneWritten,
    BeforeSync,
    AfterSync,
    /// A full segment is durable and will not be written any more.
    SegmentSealed,
    CompactCopied,
    SegmentRemoved,
    ReserveTaken,
    ReserveMade,
}

impl JournalStep {
    pub const ALL: [JournalStep; 14] = [
        JournalStep::StateWritten,
        JournalStep::TailCut,
        JournalStep::SegmentCreated,
        JournalStep::HeaderWritten,
        JournalStep::SegmentNamed,
        JournalStep::EntryWritten,
        JournalStep::DoneWritten,
        JournalStep::BeforeSync,
        JournalStep::AfterSync,
        JournalStep::SegmentSealed,
        JournalStep::CompactCopied,
        JournalStep::SegmentRemoved,
        JournalStep::ReserveTaken,
        JournalStep::ReserveMade,
    ];
}

pub type Hook = Arc<dyn Fn(JournalStep) + Send + Sync>;

/// A hook that aborts the process when a step is taken for the n-th time. `EntryWritten:17`, as the binary finds it
/// in `FOREBAY_CRASH_AT`.
pub fn abort_at(text: &str) -> Result<Hook> {
    let wrong = || {
        let message = format!("{text} is not STEP:COUNT with one of {:?}", JournalStep::ALL);
        Error::new(ErrorKind::Config, "crash point", message)
    };
    let (name, count) = text.split_once(':').ok_or_else(wrong)?;
    let step = JournalStep::ALL.into_iter().find(|step| format!("{step:?}") == name).ok_or_else(wrong)?;
    let count: u64 = count.parse().ok().filter(|count| *count > 0).ok_or_else(wrong)?;
    let left = AtomicU64::new(count);
    Ok(Arc::new(move |taken| {
        if taken == step && left.fetch_sub(1, Ordering::SeqCst) == 1 {
            std::process::abort();
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_point_is_a_step_and_a_count() {
        for step in JournalStep::ALL {
            assert!(abort_at(&format!("{step:?}:1")).is_ok());
        }
        for wrong in ["", "EntryWritten", "EntryWritten:0", "EntryWritten:x", "Nothing:1"] {
            assert!(abort_at(wrong).is_err_and(|e| e.kind() == ErrorKind::Config), "{wrong}");
        }
    }
}
