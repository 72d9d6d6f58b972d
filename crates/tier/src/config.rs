//! forebay.toml as it is typed. Values are checked where they stand, so that an error names its line.

mod back;
mod cluster;
mod s3;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use front_nfs::{Network, Squash};
use namespace::Freshness;
use origin_object::secret_file;
use quantity::{Address, Size, TimeSpan, parsed};
use serde::Deserialize;
use toml::Spanned;
use types::{Error, ErrorKind, Result};
use vfs::WritePolicy;

pub use back::{Conflicts, DurabilityName, Hours, JournalSize, JournalTable, Rate};
pub use cluster::{ClusterTable, EtcdTable};
pub use s3::{BucketTable, KeyTable, S3};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConfigFile {
    /// Where it was read.
    #[serde(skip)]
    pub source: ConfigText,
    /// What is logged: `"info"`, `"info,cache=debug"`. FOREBAY_LOG in the environment goes before it.
    pub log: Option<LogLevel>,
    pub cache: CacheTable,
    pub nfs: Nfs,
    pub s3: S3,
    pub mount: MountRules,
    pub admin: AdminTable,
    pub journal: JournalTable,
    pub cluster: ClusterTable,
    pub junction: Vec<JunctionTable>,
}

/// The text of a configuration file, for what is wrong with it and shows only when all of it is known.
#[derive(Debug, Default)]
pub struct ConfigText {
    path: PathBuf,
    text: String,
}

impl ConfigText {
    pub fn is_none(&self) -> bool {
        self.path.as_os_str().is_empty()
    }

    /// The file and the line; `None`: it was not read from a file.
    pub fn line_of<T>(&self, typed: &Spanned<T>) -> Option<String> {
        let before = self.text.get(..typed.span().start).filter(|_| !self.text.is_empty())?;
        Some(format!("{}:{}", self.path.display(), before.matches('\n').count() + 1))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheTable {
    /// Directory on a local disk.
    pub dir: Option<PathBuf>,
    /// Quota.
    pub size: Option<Size>,
    /// Room to leave free in the file system.
    pub free_floor: Option<Size>,
    /// Bytes on their way from the origins at any time.
    pub inflight: Option<Size>,
    /// Farthest read-ahead of a reader; `"0"` switches all that is fetched ahead off, directories too.
    pub readahead: Option<Size>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Nfs {
    pub listen: Option<Address>,
    /// Register with the local rpcbind (as root).
    pub rpcbind: bool,
    pub export: Vec<Export>,
}

/// Of a tree that is mounted on this machine.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MountRules {
    /// So long a program waits for what the origin does not answer; then its call fails.
    pub patience: Option<TimeSpan>,
    /// Keeps the machine's processors awake while the mount is busy.
    pub low_latency: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Export {
    /// Path of the junction; absent: all.
    pub junction: Option<Spanned<String>>,
    pub clients: Vec<Clients>,
    #[serde(default = "root_squash", deserialize_with = "parsed")]
    pub squash: SquashName,
    #[serde(default = "nobody")]
    pub anonymous_uid: u32,
    #[serde(default = "nobody")]
    pub anonymous_gid: u32,
    #[serde(default)]
    pub privileged_port: bool,
    #[serde(default = "read_write", deserialize_with = "parsed")]
    pub access: AccessName,
    /// Answers changes that are written `back` before they are on the disk, against the protocol.
    #[serde(default, rename = "async")]
    pub asynchronous: bool,
}

fn nobody() -> u32 {
    front_nfs::exports::NOBODY
}

fn root_squash() -> SquashName {
    SquashName(Squash::Root)
}

fn read_write() -> AccessName {
    AccessName { read_only: false }
}

#[derive(Debug)]
pub struct Clients(pub Network);

impl<'de> Deserialize<'de> for Clients {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Clients, D::Error> {
        parsed(deserializer).map(Clients)
    }
}

#[derive(Debug)]
pub struct SquashName(pub Squash);

impl FromStr for SquashName {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<SquashName, String> {
        match text {
            "none" => Ok(SquashName(Squash::None)),
            "root" => Ok(SquashName(Squash::Root)),
            "all" => Ok(SquashName(Squash::All)),
            other => Err(format!("\"{other}\" is no way to squash; write \"none\", \"root\" or \"all\"")),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub struct LogLevel(pub String);

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<LogLevel, String> {
        program::log::check(text).map(|()| LogLevel(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for LogLevel {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<LogLevel, D::Error> {
        parsed(deserializer)
    }
}

/// What the clients of an export rule may do, where the junction's policy lets anybody write at all.
#[derive(Debug)]
pub struct AccessName {
    pub read_only: bool,
}

impl FromStr for AccessName {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<AccessName, String> {
        match text {
            "read-only" => Ok(AccessName { read_only: true }),
            "read-write" => Ok(AccessName { read_only: false }),
            other => Err(format!("\"{other}\" is no access; write \"read-only\" or \"read-write\"")),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdminTable {
    pub listen: Option<Address>,
    /// Metrics and health alone, for whoever asks.
    pub metrics: Option<Address>,
    /// Names under which it may be asked, besides this machine's own.
    pub hosts: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JunctionTable {
    pub path: Spanned<String>,
    pub origin: String,
    #[serde(default)]
    pub files: Option<Rule>,
    #[serde(default)]
    pub directories: Option<Rule>,
    /// How long an absent name is believed absent.
    #[serde(default)]
    pub negative: Option<TimeSpan>,
    /// How long known data is served in an outage; absent: for ever.
    #[serde(default)]
    pub stale_if_error: Option<TimeSpan>,
    /// Names of the largest directory that is listed.
    #[serde(default)]
    pub directory_names_max: Option<u64>,
    /// What clients may change, and when it counts as done.
    #[serde(default)]
    pub write: Option<Write>,
    /// With `write = "back"`: how old a change is at least before it is flushed.
    #[serde(default)]
    pub flush_delay: Option<TimeSpan>,
    /// Absent: as fast as the origin takes it.
    #[serde(default)]
    pub flush_rate: Option<Rate>,
    /// Absent or empty: at any time.
    #[serde(default)]
    pub flush_windows: Option<Vec<Hours>>,
    #[serde(default)]
    pub conflicts: Option<Conflicts>,
    /// When an acknowledged change is on the disk; absent: as the front promises.
    #[serde(default)]
    pub durability: Option<DurabilityName>,
    /// In a cluster: nodes that keep each stripe of its files; absent: 1.
    #[serde(default)]
    pub copies: Option<usize>,
    /// In a cluster: only nodes with a label within it keep its files; absent: all.
    #[serde(default)]
    pub topology: Option<String>,
}

/// `"through"`, `"back"` or `"read-only"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write(pub WritePolicy);

impl Default for Write {
    fn default() -> Write {
        Write(WritePolicy::Through)
    }
}

impl FromStr for Write {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Write, String> {
        match text {
            "through" => Ok(Write(WritePolicy::Through)),
            "back" => Ok(Write(WritePolicy::Back)),
            "read-only" => Ok(Write(WritePolicy::ReadOnly)),
            other => {
                Err(format!("\"{other}\" is no way to write; write \"through\", \"back\" or \"read-only\""))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Write {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Write, D::Error> {
        parsed(deserializer)
    }
}

/// `"always"`, `"immutable"`, or a ttl such as `"30s"`.
#[derive(Clone, Copy, Debug)]
pub struct Rule(pub Freshness);

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Rule, String> {
        match text {
            "always" => Ok(Rule(Freshness::Always)),
            "immutable" => Ok(Rule(Freshness::Immutable)),
            ttl => match ttl.parse() {
                Ok(TimeSpan(ttl)) => Ok(Rule(Freshness::Ttl(ttl))),
                Err(_) => Err(format!(
                    "\"{ttl}\" is no freshness; write \"always\", \"immutable\" or a duration such as \"30s\""
                )),
            },
        }
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Rule, D::Error> {
        parsed(deserializer)
    }
}

/// Read a configuration file; an error is one line that names the file, the line, and what would be right.
pub fn read(path: &Path) -> Result<ConfigFile> {
    let refuse = |message: String| Error::new(ErrorKind::Config, "configuration", message);
    let text = std::fs::read_to_string(path)
        .map_err(|e| refuse(format!("{}: {e}; name an existing file with --config", path.display())))?;
    let mut file: ConfigFile = toml::from_str(&text).map_err(|e| {
        let at = e.span().map_or(0, |span| span.start).min(text.len());
        let line = text.get(..at).map_or(1, |before| before.matches('\n').count() + 1);
        refuse(format!("{}:{line}: {}", path.display(), e.message().replace('\n', " ")))
    })?;
    if file.s3.key.iter().any(|key| key.secret.is_some()) {
        secret_file::warn_if_open(path);
    }
    file.source = ConfigText { path: path.to_owned(), text };
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(text: &str) -> String {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("forebay.toml");
        std::fs::write(&path, text).expect("written");
        let error = read(&path).expect_err("refused").to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    }

    #[test]
    fn a_wrong_line_is_named_with_what_would_be_right() {
        let table = [
            ("[cache]\nsise = \"1GiB\"\n", ":2:", "`size`"),
            ("[cache]\n\nsize = \"lots\"\n", ":3:", "20GiB"),
            ("[cache]\nsize = 20\n", ":2:", "string"),
            ("[nfs]\nlisten = \"2049\"\n", ":2:", "address"),
            ("[[junction]]\npath = \"/a\"\norigin = \"file:///x\"\nfiles = \"never\"\n", ":4:", "immutable"),
            ("[[junction]]\npath = \"/a\"\n", ":1:", "origin"),
            ("[[junction]]\npath = \"/a\"\norigin = \"file:///x\"\nwrite = \"yes\"\n", ":4:", "\"through\""),
            ("[[junction]]\npath = \"/a\"\norigin = \"file:///x\"\nflush_delay = \"soon\"\n", ":4:", "30s"),
            ("[[junction]]\npath = \"/a\"\norigin = \"file:///x\"\nflush_rate = \"0\"\n", ":4:", "50MiB"),
            (
                "[[junction]]\npath = \"/a\"\norigin = \"file:///x\"\nflush_windows = [\"01:00-02:00\", \"at night\"]\n",
                ":4:",
                "22:00-06:00",
            ),
            (
                "[[junction]]\npath = \"/a\"\norigin = \"file:///x\"\nconflicts = \"mine\"\n",
                ":4:",
                "keep-both",
            ),
            ("[journal]\nsize = \"1MiB\"\n", ":2:", "256MiB"),
            ("[journal]\npath = \"/x\"\n", ":2:", "`dir`"),
            ("[[nfs.export]]\nclients = [\"nas\"]\n", ":2:", "10.0.0.0/8"),
            ("[[nfs.export]]\nclients = [\"*\"]\nsquash = \"yes\"\n", ":3:", "\"root\""),
            ("[[nfs.export]]\nclients = [\"*\"]\naccess = \"rw\"\n", ":3:", "\"read-write\""),
            ("[cache\n", ":1:", "]"),
            ("\nlog = \"debgu\"\n", ":2:", "info,cache=debug"),
        ];
        for (text, line, right) in table {
            let error = error_of(text);
            assert!(error.contains(line) && error.contains(right), "{text:?} gave: {error}");
        }
    }

    #[test]
    fn the_documented_example_is_read() {
        let example = include_str!("../../../docs/forebay.example.toml");
        let file: ConfigFile = toml::from_str(example).expect("the example is valid");
        assert!(!file.junction.is_empty() && !file.nfs.export.is_empty());
    }
}
