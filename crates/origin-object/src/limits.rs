//! What a store of this kind can never take, as far as that is known without asking it.

use origin::OriginLimits;
use types::Result;

use crate::geometry::{PARTS_MAX, size_of_parts};
use crate::keys::KeyBase;
use crate::url::{Config, Dialect};

/// The largest object at Google's store: 5 TiB.
const GOOGLE_MAX: u64 = 5 << 40;
/// Azure takes parts of 4000 MiB at most; ours are larger after this many.
const AZURE_PARTS: u64 = 9000;

impl Config {
    pub fn limits(&self) -> OriginLimits {
        let all_parts = size_of_parts(PARTS_MAX);
        let file_size_max = match self.dialect {
            // Stores that speak S3 differ; none of them gets more than our parts can hold.
            Dialect::S3 => all_parts,
            Dialect::Azure => size_of_parts(AZURE_PARTS),
            Dialect::Gcs => GOOGLE_MAX.min(all_parts),
        };
        OriginLimits {
            file_size_max: Some(file_size_max),
            name_max: None,
            links_max: Some(1),
            no_special_files: true,
            read_only: false,
        }
    }

    /// Refuses a path below the prefix that no key can be.
    pub fn demand_path(&self, path: &[u8], is_dir: bool) -> Result<()> {
        KeyBase::new(&self.prefix, self.dialect).demand_path(path, is_dir)
    }
}
