//! Kinds of far storage that an URL can name.
//!
//! An origin crate states what it is in one constant, an [`OriginKind`]; the tier has a list of them. So a new far store is a
//! crate, and a line in that list.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use types::Result;

use crate::{Origin, OriginTraits};

/// A kind of far storage.
#[derive(Clone, Copy, Debug)]
pub struct OriginKind {
    /// What stands before `://`. No two kinds have the same.
    pub schemes: &'static [&'static str],
    /// How its URLs are written: an error about an URL says so.
    pub examples: &'static str,
    /// Reads an URL that has one of the schemes. The error says what is wrong with it and what would be right.
    pub parse: fn(&str) -> Result<Arc<dyn OriginConfig>>,
}

/// One store, as an URL names it, before it is connected to.
#[async_trait]
pub trait OriginConfig: Debug + Send + Sync + 'static {
    /// As [`Origin::url`] says it. Without secrets.
    fn url(&self) -> String;

    /// As far as they are known before the store has answered.
    fn traits(&self) -> OriginTraits;

    /// See [`Origin::demand_path`].
    fn demand_path(&self, path: &[u8], is_dir: bool) -> Result<()>;

    async fn connect(&self) -> Result<Arc<dyn Origin>>;

    /// The directory of this machine that it is, if it is one.
    fn directory(&self) -> Option<&Path> {
        None
    }
}
