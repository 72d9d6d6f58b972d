//! NFSv3 servers among the kinds of origins.

use std::sync::Arc;

use async_trait::async_trait;
use origin::{Origin, OriginConfig, OriginKind, OriginTraits};
use types::Result;

use crate::{Config, NfsOrigin};

pub const KIND: OriginKind = OriginKind {
    schemes: &["nfs"],
    examples: "nfs://host[:port]/export?nconnect=4",
    parse: |url| Ok(Arc::new(Config::from_url(url)?)),
};

/// What holds for every server. How much a call may carry, the server says when it is connected to.
pub(crate) const TRAITS: OriginTraits =
    OriginTraits { read_max: 1 << 16, write_max: 1 << 16, ..OriginTraits::POSIX };

#[async_trait]
impl OriginConfig for Config {
    fn url(&self) -> String {
        Config::url(self)
    }

    fn traits(&self) -> OriginTraits {
        TRAITS
    }

    fn demand_path(&self, _path: &[u8], _is_dir: bool) -> Result<()> {
        Ok(())
    }

    async fn connect(&self) -> Result<Arc<dyn Origin>> {
        Ok(NfsOrigin::connect(self.clone()).await?)
    }
}
