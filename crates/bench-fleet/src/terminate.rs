//! SIGTERM: how launchers and batch systems end a run of which they have lost a rank, or whose time is over.
//!
//! A process that caught it once can never let it be fatal by itself again. So one thread waits for it as long as the
//! process lives: while there is a run, the run is ended with a line that says so, and has some time for that; without
//! one the process ends, as it would have done.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The process ends so long after the signal, whatever it does. Launchers kill after one second, or thirty.
const END: Duration = Duration::from_secs(5);
/// The same without a run. Its last words may still be on their way, as launchers send the signal just after a loss.
const END_WITHOUT_RUN: Duration = Duration::from_secs(1);
/// 128 and the signal's number, as shells say it.
const STATUS: i32 = 143;

/// True once the signal has come. None if it cannot be caught.
pub fn told_to_end() -> Option<watch::Receiver<bool>> {
    static TOLD: OnceLock<Option<watch::Receiver<bool>>> = OnceLock::new();
    TOLD.get_or_init(start).clone()
}

fn start() -> Option<watch::Receiver<bool>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let mut terminate = {
        let _inside = runtime.enter();
        signal(SignalKind::terminate()).ok()?
    };
    let (sender, receiver) = watch::channel(false);
    let wait = move || {
        runtime.block_on(async {
            terminate.recv().await;
            sender.send_replace(true);
            // One receiver is the one that is kept here.
            let in_a_run = sender.receiver_count() > 1;
            tokio::time::sleep(if in_a_run { END } else { END_WITHOUT_RUN }).await;
            std::process::exit(STATUS);
        });
    };
    std::thread::Builder::new().name("terminate".into()).spawn(wait).ok()?;
    Some(receiver)
}
