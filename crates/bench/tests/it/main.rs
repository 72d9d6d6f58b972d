//! The bench against real sockets and real servers.

mod link;
mod nas;
mod probe;
mod probe_lab;
mod relay_command;

use std::net::SocketAddr;
use std::time::Duration;

use bench_report::model::Cell;

/// A port of this machine that is free.
fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn number(cell: &Cell) -> f64 {
    match cell {
        Cell::Number(value) | Cell::Estimate { median: value, .. } => *value,
        other => panic!("no number: {other:?}"),
    }
}

/// Tests that measure time take turns: they would measure each other.
async fn quiet() -> tokio::sync::MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    ONE_AT_A_TIME.lock().await
}
