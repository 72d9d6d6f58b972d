//! Shares of Azure Files among the kinds of origins.

use std::sync::Arc;

use ::origin::{Origin, OriginConfig, OriginKind, OriginTraits};
use async_trait::async_trait;
use types::Result;

use crate::{AzFileOrigin, Config, names};

pub const KIND: OriginKind = OriginKind {
    schemes: &["azfile"],
    examples: "azfile://account/share/dir",
    parse: |url| Ok(Arc::new(Config::from_url(url)?)),
};

/// What holds for every share.
pub(crate) const TRAITS: OriginTraits = OriginTraits {
    // As for buckets.
    read_max: 4 << 20,
    // A file is made longer once for them, and two ranges are in flight together.
    write_max: 8 << 20,
    // It is nowhere promised that a directory's times tell of names that come or go.
    directories_show_changes: false,
    answers_side_by_side: true,
    ..OriginTraits::POSIX
};

#[async_trait]
impl OriginConfig for Config {
    fn url(&self) -> String {
        Config::url(self)
    }

    fn traits(&self) -> OriginTraits {
        TRAITS
    }

    fn demand_path(&self, path: &[u8], _is_dir: bool) -> Result<()> {
        names::demand_path(path)
    }

    async fn connect(&self) -> Result<Arc<dyn Origin>> {
        Ok(AzFileOrigin::connect(self.clone()).await?)
    }
}
