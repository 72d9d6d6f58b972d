//! The relay between real sockets.

mod line;

/// Tests that measure time take turns: they would measure each other.
async fn quiet() -> tokio::sync::MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    ONE_AT_A_TIME.lock().await
}
