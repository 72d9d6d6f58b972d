//! What a person at a terminal sees while it runs: one line that is written over. Nothing is shown to a pipe.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bench_load::engine::Progress;
use tokio::task::JoinHandle;

const EVERY: Duration = Duration::from_millis(250);

/// A line that lives until it is dropped.
pub struct ProgressLine(Option<JoinHandle<()>>);

impl ProgressLine {
    /// `processes`: what is shown is this process's part; the line says of how many.
    pub fn show(what: &str, progress: Arc<Progress>, processes: u32) -> ProgressLine {
        if !std::io::stderr().is_terminal() {
            return ProgressLine(None);
        }
        let what = what.to_owned();
        let part = if processes > 1 { format!(" (one of {processes} processes)") } else { String::new() };
        let start = Instant::now();
        ProgressLine(Some(tokio::spawn(async move {
            loop {
                tokio::time::sleep(EVERY).await;
                let Progress { bytes, units, errors } = &*progress;
                let [bytes, units, errors] = [bytes, units, errors].map(|sum| sum.load(Ordering::Relaxed));
                let mib = bytes as f64 / f64::from(1 << 20);
                let seconds = start.elapsed().as_secs_f64();
                let errors = if errors > 0 { format!(", {errors} errors") } else { String::new() };
                eprint!("\r\x1b[K{what}: {seconds:.0} s, {mib:.0} MiB, {units} units{errors}{part}");
                let _ = std::io::stderr().flush();
            }
        })))
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
            eprint!("\r\x1b[K");
        }
    }
}
