//! What an operator decides about names and attributes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use origin::Origin;
use types::JunctionId;

/// A name takes about 20 bytes of memory while its directory is listed, and some 360 in the database.
pub const DIRECTORY_NAMES_MAX: u64 = 5_000_000;

/// How long what was learnt of an object counts as true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Ask the origin at each open (lookup, getattr, access): close-to-open.
    Always,
    /// Trust it for this long.
    Ttl(Duration),
    /// Never ask again.
    Immutable,
}

impl std::fmt::Display for Freshness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Freshness::Always => write!(f, "always"),
            Freshness::Ttl(ttl) => write!(f, "ttl {ttl:?}"),
            Freshness::Immutable => write!(f, "immutable"),
        }
    }
}

/// One origin grafted into the tree.
#[derive(Clone)]
pub struct Junction {
    /// Absolute and normalised: `/` or `/show/textures`.
    pub path: String,
    pub origin: Arc<dyn Origin>,
    /// The id that the nodes of a cluster agreed on. `None`: the database gives it one.
    pub id: Option<JunctionId>,
    /// For attributes and contents of files and links.
    pub files: Freshness,
    /// For the names in directories and the attributes of directories.
    pub directories: Freshness,
    /// How long "no such name" is believed. At most the directories' ttl counts.
    pub negative_ttl: Duration,
    /// How long known things are served past their freshness while the origin cannot be reached; `None`
    /// is for ever.
    pub stale_if_error: Option<Duration>,
    /// Names of the largest directory that is listed; of a larger one, or one that never ends, only single names are asked
    /// for.
    pub directory_names_max: u64,
    /// Changes are made through here: after an unclean end, what was known before it may be older than one of them.
    pub changes: bool,
}

/// What of a junction can change while it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JunctionRules {
    pub files: Freshness,
    pub directories: Freshness,
    pub negative_ttl: Duration,
    pub stale_if_error: Option<Duration>,
    pub directory_names_max: u64,
}

impl Junction {
    pub(crate) fn with(&self, rules: JunctionRules) -> Junction {
        Junction {
            files: rules.files,
            directories: rules.directories,
            negative_ttl: rules.negative_ttl,
            stale_if_error: rules.stale_if_error,
            directory_names_max: rules.directory_names_max,
            ..self.clone()
        }
    }

    /// Thirty seconds for everything, and stale rather than nothing in an outage.
    pub fn new(path: impl Into<String>, origin: Arc<dyn Origin>) -> Junction {
        let ttl = Duration::from_secs(30);
        Junction {
            path: path.into(),
            origin,
            id: None,
            files: Freshness::Ttl(ttl),
            directories: Freshness::Ttl(ttl),
            negative_ttl: ttl,
            stale_if_error: None,
            directory_names_max: DIRECTORY_NAMES_MAX,
            changes: false,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Config {
    /// The database file's directory; created if missing.
    pub dir: PathBuf,
    /// Objects kept in memory; the database holds all of them. About 500 bytes each.
    pub nodes_in_memory: usize,
    /// The database's own page cache, in bytes.
    pub database_cache_bytes: usize,
    /// List directories before anybody lists them: for who walks a tree, and for who looks up names one by one.
    pub list_ahead: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            dir: PathBuf::from("."),
            nodes_in_memory: 100_000,
            database_cache_bytes: 64 << 20,
            list_ahead: true,
        }
    }
}
