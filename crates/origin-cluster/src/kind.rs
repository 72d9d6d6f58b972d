//! Clusters of tiers among the kinds of origins.

use std::sync::Arc;

use async_trait::async_trait;
use origin::{Origin, OriginConfig, OriginKind, OriginTraits};
use types::Result;

use crate::{ClusterOrigin, ClusterUrl};

pub const KIND: OriginKind = OriginKind {
    schemes: &["forebay"],
    examples: "forebay://node1,node2/path",
    parse: |url| Ok(Arc::new(ClusterUrl::parse(url)?)),
};

/// What every tier can.
pub(crate) const TRAITS: OriginTraits = OriginTraits::POSIX;

#[async_trait]
impl OriginConfig for ClusterUrl {
    fn url(&self) -> String {
        ClusterUrl::url(self)
    }

    fn traits(&self) -> OriginTraits {
        TRAITS
    }

    fn demand_path(&self, _path: &[u8], _is_dir: bool) -> Result<()> {
        Ok(())
    }

    async fn connect(&self) -> Result<Arc<dyn Origin>> {
        Ok(ClusterOrigin::connect(self.clone()).await?)
    }
}
