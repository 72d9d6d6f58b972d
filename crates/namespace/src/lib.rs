//! Names and attributes, with freshness: which *version* of which object is this file now?
//! (being written; `Namespace::open(Config, Vec<Junction>) -> Result<Arc<Namespace>>` is the constructor)
pub mod config;
pub use config::{Config, Freshness, Junction};
pub struct Namespace {}
#[allow(clippy::todo)]
impl Namespace {
    /// Open or create the database and graft the junctions. Origins are not contacted; needs a tokio runtime.
    pub fn open(_config: Config, _junctions: Vec<Junction>) -> types::Result<std::sync::Arc<Namespace>> {
        todo!()
    }
    /// Write what is pending and stop.
    pub async fn shutdown(&self) {
        todo!()
    }
    /// True if this database has served this junction (path and URL) before.
    pub fn knows_junction(_dir: &std::path::Path, _path: &str, _url: &str) -> bool {
        todo!()
    }
    pub fn register(&self, _registry: &mut prometheus_client::registry::Registry) {
        todo!()
    }
}
