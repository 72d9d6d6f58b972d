//! Buckets among the kinds of origins.

use std::sync::Arc;

use ::origin::{Origin, OriginConfig, OriginKind, OriginTraits};
use async_trait::async_trait;
use types::Result;

use crate::url::Config;
use crate::{ObjectOrigin, geometry};

pub const KIND: OriginKind = OriginKind {
    schemes: &["s3", "az", "gs"],
    examples: "s3://bucket/prefix?endpoint=URL, az://account/container/prefix, gs://bucket/prefix",
    parse: |url| Ok(Arc::new(Config::from_url(url)?)),
};

/// What holds for every bucket.
pub(crate) const TRAITS: OriginTraits = OriginTraits {
    // A part that is fetched ahead. Connections carry one answer at a time, and each begins slowly; so parts are larger
    // than an NFS server's.
    read_max: 4 << 20,
    write_max: geometry::PART as u32,
    directories_show_changes: false,
    identity_is_place: true,
    commits_whole_files: true,
    answers_side_by_side: true,
    has_xattrs: false,
};

#[async_trait]
impl OriginConfig for Config {
    fn url(&self) -> String {
        Config::url(self)
    }

    fn traits(&self) -> OriginTraits {
        TRAITS
    }

    fn demand_path(&self, path: &[u8], is_dir: bool) -> Result<()> {
        Config::demand_path(self, path, is_dir)
    }

    async fn connect(&self) -> Result<Arc<dyn Origin>> {
        Ok(ObjectOrigin::connect(self.clone()).await?)
    }
}
