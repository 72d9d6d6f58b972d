//! Directories of this machine among the kinds of origins.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use types::{Error, ErrorKind, Result};

use super::PosixOrigin;
use super::limits::{TRAITS, demand_path};
use crate::{Origin, OriginConfig, OriginKind, OriginTraits};

pub const KIND: OriginKind = OriginKind { schemes: &["file"], examples: "file:///dir", parse };

/// An absolute path.
#[derive(Clone, Debug)]
struct DirectoryConfig(PathBuf);

fn parse(url: &str) -> Result<Arc<dyn OriginConfig>> {
    let path = url.strip_prefix("file://").unwrap_or(url);
    if !path.starts_with('/') {
        let wrong = format!("file://{path}: the path must be absolute; write file:///{path}");
        return Err(Error::new(ErrorKind::Config, "configuration", wrong));
    }
    Ok(Arc::new(DirectoryConfig(PathBuf::from(path))))
}

#[async_trait]
impl OriginConfig for DirectoryConfig {
    fn url(&self) -> String {
        format!("file://{}", self.0.display())
    }

    fn traits(&self) -> OriginTraits {
        TRAITS
    }

    fn demand_path(&self, path: &[u8], _is_dir: bool) -> Result<()> {
        demand_path(path)
    }

    async fn connect(&self) -> Result<Arc<dyn Origin>> {
        Ok(Arc::new(PosixOrigin::open(&self.0)?))
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.0)
    }
}
