//! The bench against real sockets and real servers.

mod link;
mod nas;
mod probe;
mod probe_lab;
mod relay_command;

/// Tests that measure time take turns: they would measure each other.
async fn quiet() -> tokio::sync::MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    ONE_AT_A_TIME.lock().await
}
