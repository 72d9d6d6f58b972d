//! Several ways to the same files, as the nodes of a cluster are, and the links of each: client n takes way n, and of more
//! clients than ways the next one begins again with the first. A client stays with its way.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use types::{Error, ErrorKind, Result};

use super::{Client, Target, TargetAbout};

pub struct SpreadTarget {
    ways: Vec<Arc<dyn Target>>,
}

impl SpreadTarget {
    /// `Config` if there is no way at all.
    pub fn new(ways: Vec<Arc<dyn Target>>) -> Result<Arc<SpreadTarget>> {
        if ways.is_empty() {
            return Err(Error::new(ErrorKind::Config, "target", "spread: expected URLs with spaces between"));
        }
        Ok(Arc::new(SpreadTarget { ways }))
    }

    fn way(&self, id: u32) -> Result<&Arc<dyn Target>> {
        let way = self.ways.iter().cycle().nth(id as usize % self.ways.len().max(1));
        way.ok_or_else(|| Error::new(ErrorKind::Config, "target", "there is no way to it"))
    }
}

#[async_trait]
impl Target for SpreadTarget {
    /// What all of them can.
    async fn about(&self) -> Result<TargetAbout> {
        let ways = try_join_all(self.ways.iter().map(|way| way.about())).await?;
        let urls: Vec<&str> = ways.iter().map(|way| way.url.as_str()).collect();
        Ok(TargetAbout {
            url: format!("spread:{}", urls.join(" ")),
            read_only: ways.iter().any(|way| way.read_only),
            whole_files: ways.iter().any(|way| way.whole_files),
            available: ways.first().and_then(|way| way.available),
        })
    }

    /// Each way is asked for all clients: what is limited is this process's, and the ways are alike.
    fn room_for(&self, clients: u32) -> Result<()> {
        self.ways.iter().try_for_each(|way| way.room_for(clients))
    }

    async fn client(&self, id: u32) -> Result<Arc<dyn Client>> {
        self.way(id)?.client(id).await
    }
}

#[cfg(test)]
mod tests {
    use super::super::from_url;

    #[tokio::test]
    async fn clients_go_round_the_ways_and_each_stays_with_its_own() {
        let dirs = [(); 3].map(|()| tempfile::tempdir().expect("made"));
        let ways: Vec<String> = dirs.iter().map(|dir| dir.path().display().to_string()).collect();
        let target = from_url(&format!("spread:{}", ways.join(" "))).expect("three ways");
        for id in 0..7_u32 {
            let client = target.client(id).await.expect("a client");
            client.mkdir(&format!("c{id:05}")).await.expect("made");
            client.mkdir("d00001").await.expect("made, or there");
        }
        for (at, dir) in dirs.iter().enumerate() {
            let made = |id: &u32| dir.path().join(format!("c{id:05}")).is_dir();
            let found: Vec<usize> = (0..7).filter(made).map(|id| id as usize % 3).collect();
            assert!(!found.is_empty() && found.iter().all(|way| *way == at), "{at}: {found:?}");
        }
    }
}
