//! From what was typed, in a file and on the command line, to what the parts take. Everything that can be seen to be
//! wrong without asking anybody is refused here, in one line that says what would be right.

mod back;
mod cluster;
mod s3;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::cluster::NodeLabel;
use front_nfs::{ExportRule, Squash};
use namespace::config::DIRECTORY_NAMES_MAX;
use namespace::{Freshness, JunctionRules};
use origin::OriginConfig;
use quantity::{Address, Size};
use types::{Durability, Error, ErrorKind, Result};
use vfs::{FlushPolicy, WritePolicy};

use crate::config;
use crate::origins;

pub use back::JournalSettings;
pub use cluster::ClusterSettings;
pub use s3::S3Settings;

/// Where the operator's commands are answered unless said otherwise.
pub const ADMIN_DEFAULT: Address =
    Address(SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9420));
const NFS_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 2049);
const TTL_DEFAULT: Duration = Duration::from_secs(30);
/// The first tries of a call (`RetryConfig`) come to their end within it.
const PATIENCE_MIN: Duration = Duration::from_secs(5);
/// A page of any origin is to fit.
const DIRECTORY_NAMES_MIN: u64 = 10_000;
const CACHE_DESCRIPTORS_MAX: usize = 16_384;
const COPIES_MAX: usize = 16;
/// For what must not fail because clients connect: segments, databases, origins, the operator.
const DESCRIPTORS_RESERVED: usize = 256;

/// What a command line or a test says. `origin` adds to the configuration file, the others override it.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `[PATH=]URL` each.
    pub origin: Vec<String>,
    pub cache: Option<PathBuf>,
    pub cache_size: Option<Size>,
    pub nfs: Option<Address>,
    pub s3: Option<Address>,
    pub admin: Option<Address>,
    /// An empty directory of this machine.
    pub mount: Option<PathBuf>,
    /// The policy of all junctions, whatever the file says.
    pub write: Option<String>,
    /// Of all junctions that are written `back`, whatever the file says.
    pub durability: Option<String>,
    pub accept_journal_damage: bool,
    /// `etcd://e1:2379/show`.
    pub cluster: Option<String>,
    pub token: Option<PathBuf>,
    /// The node's name.
    pub node: Option<String>,
    /// For the other nodes.
    pub addresses: Vec<SocketAddr>,
    /// The commit of the program, for metrics.
    pub commit: Option<&'static str>,
}

#[derive(Clone, Debug)]
pub struct Settings {
    /// What is typed there can be typed otherwise while the tier runs.
    pub from_file: bool,
    /// Holds blocks, metadata and the handle key.
    pub dir: PathBuf,
    pub cache: cache::Config,
    pub journal: JournalSettings,
    pub junctions: Vec<JunctionSettings>,
    pub exports: Vec<ExportSettings>,
    /// Absent: no NFS server.
    pub nfs: Option<SocketAddr>,
    /// Absent: no S3 server.
    pub s3: Option<S3Settings>,
    /// Where the tree is mounted on this machine.
    pub mount: Option<PathBuf>,
    /// So long a program waits there for what the origin does not answer; absent: as mounts do by themselves.
    pub mount_patience: Option<Duration>,
    /// The machine's processors are kept awake while the mount is busy.
    pub mount_low_latency: bool,
    pub rpcbind: bool,
    /// What is logged; absent: what is for a tier.
    pub log: Option<String>,
    pub admin: AdminSettings,
    /// Absent: the tier is alone.
    pub cluster: Option<ClusterSettings>,
    /// The commit of the program, or `unknown`.
    pub commit: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminSettings {
    pub listen: SocketAddr,
    /// Where metrics and health alone are told, to whoever asks.
    pub metrics: Option<SocketAddr>,
    /// Names under which it may be asked, besides this machine's own.
    pub hosts: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct JunctionSettings {
    pub path: String,
    pub origin: Arc<dyn OriginConfig>,
    pub files: Freshness,
    pub directories: Freshness,
    pub negative_ttl: Duration,
    pub stale_if_error: Option<Duration>,
    pub directory_names_max: u64,
    pub write: WritePolicy,
    /// If it is written `back`.
    pub flush: FlushPolicy,
    /// Likewise: what it promises at least, by whichever front.
    pub durability: Durability,
    /// In a cluster; absent: 1.
    pub copies: Option<usize>,
    /// In a cluster; absent: all nodes keep its files.
    pub topology: Option<NodeLabel>,
}

impl JunctionSettings {
    pub fn rules(&self) -> JunctionRules {
        JunctionRules {
            files: self.files,
            directories: self.directories,
            negative_ttl: self.negative_ttl,
            stale_if_error: self.stale_if_error,
            directory_names_max: self.directory_names_max,
        }
    }

    pub fn take_rules(&mut self, from: &JunctionSettings) {
        self.files = from.files;
        self.directories = from.directories;
        self.negative_ttl = from.negative_ttl;
        self.stale_if_error = from.stale_if_error;
        self.directory_names_max = from.directory_names_max;
    }

    /// By the keys under which they are typed.
    pub fn rules_by_name(&self) -> [(&'static str, String); 5] {
        [
            ("files", self.files.to_string()),
            ("directories", self.directories.to_string()),
            ("negative", format!("{:?}", self.negative_ttl)),
            ("stale_if_error", format!("{:?}", self.stale_if_error)),
            ("directory_names_max", self.directory_names_max.to_string()),
        ]
    }
}

#[derive(Clone, Debug)]
pub struct ExportSettings {
    /// Path of the junction; absent: all.
    pub junction: Option<String>,
    pub rule: ExportRule,
}

fn refuse<T>(message: String) -> Result<T> {
    Err(Error::new(ErrorKind::Config, "configuration:", message))
}

/// Descriptors that this process may have.
fn descriptors() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Of half the descriptors that this process may have; a job that reads small files over and over opens none of them
/// twice then. Each takes some 2 KiB of memory.
fn descriptors_for_cache() -> usize {
    (descriptors() / 2).min(CACHE_DESCRIPTORS_MAX)
}

/// Connections that a front may have, `fronts` of them: what the cache does not need is theirs, but for a reserve that the
/// journal, the databases, origins and the operator always find.
pub fn connections_max(wanted: usize, cache: usize, fronts: usize) -> usize {
    share_of(descriptors(), wanted, cache, fronts)
}

fn share_of(descriptors: usize, wanted: usize, cache: usize, fronts: usize) -> usize {
    let reserve = DESCRIPTORS_RESERVED.min(descriptors / 4);
    // The cache's smallest number may be more than it can have of few.
    let cache = cache.min(descriptors / 2);
    let left = descriptors.saturating_sub(cache).saturating_sub(reserve);
    wanted.min(left / fronts.max(1)).max(1)
}

impl Settings {
    pub fn build(file: config::ConfigFile, args: &Overrides) -> Result<Settings> {
        let write = args.write.as_deref().map(write_policy).transpose()?;
        let durability = args.durability.as_deref().map(durability).transpose()?;
        let dir = args.cache.clone().or(file.cache.dir).unwrap_or_else(|| PathBuf::from("forebay-cache"));
        let defaults = cache::Config::default();
        let size = args.cache_size.or(file.cache.size).map_or(defaults.size_max, |size| size.0);
        let cache = cache::Config {
            dir: dir.join("blocks"),
            size_max: size,
            guests_max: file.cluster.guests.map(|size| size.0),
            free_floor: file.cache.free_floor.map_or(defaults.free_floor, |size| size.0),
            inflight_max: file.cache.inflight.map_or(defaults.inflight_max, |size| size.0),
            readahead_max: file.cache.readahead.map_or(defaults.readahead_max, |size| size.0),
            open_files_max: descriptors_for_cache().max(defaults.open_files_max.min(descriptors() / 2)),
            ..defaults
        };
        if size < cache::CACHE_SIZE_MIN {
            let floor = cache::CACHE_SIZE_MIN >> 20;
            return refuse(format!(
                "a cache of {size} bytes is below the floor of {floor}MiB; give --cache-size 20GiB"
            ));
        }
        let journal = JournalSettings::build(file.journal, &dir, args.accept_journal_damage)?;
        let mut junctions = Vec::new();
        let mut lines = Vec::new();
        for typed in &file.junction {
            let line = file.source.line_of(&typed.path);
            junctions.push(junction(typed, write).map_err(|e| at_line(e, line.as_deref()))?);
            lines.push(line);
        }
        for typed in &args.origin {
            junctions.push(JunctionSettings { write: write.unwrap_or_default().0, ..parse_junction(typed)? });
        }
        if let Some(durability) = durability {
            demand_back(&junctions)?;
            junctions.iter_mut().for_each(|junction| junction.durability = durability);
        }
        check_places(&junctions, &lines)?;
        let cluster = ClusterSettings::build(file.cluster, &file.source, args, cache.size_max)?;
        for (at, junction) in junctions.iter().enumerate() {
            let line = lines.get(at).and_then(Option::as_deref);
            cluster::check_junction(junction, cluster.is_some()).map_err(|e| at_line(e, line))?;
        }
        check_mount(args.mount.as_deref(), &junctions)?;
        let exports = exports(file.nfs.export, &file.source, &junctions)?;
        let paths: Vec<&str> = junctions.iter().map(|junction| junction.path.as_str()).collect();
        let s3 = S3Settings::build(file.s3, args.s3.map(|address| address.0), &paths)?;
        Ok(Settings {
            from_file: !file.source.is_none(),
            dir,
            cache,
            journal,
            junctions,
            exports,
            s3,
            nfs: Some(args.nfs.or(file.nfs.listen).map_or(NFS_DEFAULT, |address| address.0)),
            mount: args.mount.clone(),
            mount_patience: patience(&file.mount)?,
            mount_low_latency: file.mount.low_latency,
            rpcbind: file.nfs.rpcbind,
            log: file.log.map(|level| level.0),
            commit: args.commit.unwrap_or("unknown"),
            admin: AdminSettings {
                listen: args.admin.or(file.admin.listen).unwrap_or(ADMIN_DEFAULT).0,
                metrics: file.admin.metrics.map(|address| address.0),
                hosts: file.admin.hosts,
            },
            cluster,
        })
    }
}

impl Settings {
    /// Of a mount alone: what the configuration file says of origins, but no server.
    pub fn of_mount(file: Option<config::ConfigFile>, args: &Overrides) -> Result<Settings> {
        let settings = Settings::build(file.unwrap_or_default(), args)?;
        let cache = cache::Config { lends: false, ..settings.cache };
        Ok(Settings { nfs: None, s3: None, cache, ..settings })
    }
}

fn junction(typed: &config::JunctionTable, write: Option<config::Write>) -> Result<JunctionSettings> {
    let write = write.or(typed.write).unwrap_or_default().0;
    Ok(JunctionSettings {
        flush: back::flush_policy(typed, write)?,
        path: normal_path(typed.path.get_ref())?,
        origin: origins::parse(&typed.origin)?,
        files: typed.files.map_or(Freshness::Ttl(TTL_DEFAULT), |rule| rule.0),
        directories: typed.directories.map_or(Freshness::Ttl(TTL_DEFAULT), |rule| rule.0),
        negative_ttl: typed.negative.map_or(TTL_DEFAULT, |span| span.0),
        stale_if_error: typed.stale_if_error.map(|span| span.0),
        directory_names_max: names_max(typed.directory_names_max)?,
        write,
        durability: typed.durability.map_or(back::DURABILITY_DEFAULT, |typed| typed.0),
        copies: typed.copies.map(copies).transpose()?,
        topology: typed.topology.as_deref().map(str::parse).transpose()?,
    })
}

/// Where it stands in the file, if it does.
fn at_line(error: Error, line: Option<&str>) -> Error {
    let Some(line) = line else { return error };
    let told = error.to_string();
    let why = told.strip_prefix("configuration: ").unwrap_or(&told);
    Error::new(ErrorKind::Config, "configuration", format!("{line}: {why}"))
}

fn patience(typed: &config::MountRules) -> Result<Option<Duration>> {
    match typed.patience.as_ref().map(|span| span.0) {
        Some(patience) if patience < PATIENCE_MIN => refuse(format!(
            "[mount] patience = {patience:?} is below {PATIENCE_MIN:?}, which an origin is given to answer"
        )),
        patience => Ok(patience),
    }
}

fn names_max(typed: Option<u64>) -> Result<u64> {
    match typed {
        Some(names) if names < DIRECTORY_NAMES_MIN => refuse(format!(
            "directory_names_max = {names} is below {DIRECTORY_NAMES_MIN}; it is about directories without an end"
        )),
        typed => Ok(typed.unwrap_or(DIRECTORY_NAMES_MAX)),
    }
}

/// `[PATH=]URL` of the command line.
pub fn parse_junction(typed: &str) -> Result<JunctionSettings> {
    // The `=` of a query does not count: a path has no `:` before it.
    let (path, url) = match typed.split_once('=') {
        Some((path, url)) if path.starts_with('/') => (path, url),
        _ => ("/", typed),
    };
    let ttl = Freshness::Ttl(TTL_DEFAULT);
    Ok(JunctionSettings {
        path: normal_path(path)?,
        origin: origins::parse(url)?,
        files: ttl,
        directories: ttl,
        negative_ttl: TTL_DEFAULT,
        stale_if_error: None,
        directory_names_max: DIRECTORY_NAMES_MAX,
        write: config::Write::default().0,
        flush: back::default_flush_policy(),
        durability: back::DURABILITY_DEFAULT,
        copies: None,
        topology: None,
    })
}

fn copies(typed: usize) -> Result<usize> {
    match typed {
        1..=COPIES_MAX => Ok(typed),
        _ => refuse(format!("copies = {typed}; write a number from 1 to {COPIES_MAX}")),
    }
}

fn write_policy(typed: &str) -> Result<config::Write> {
    typed.parse().or_else(|why| refuse(format!("--write: {why}")))
}

fn durability(typed: &str) -> Result<Durability> {
    let named = typed.parse::<config::DurabilityName>();
    named.map(|named| named.0).or_else(|why| refuse(format!("--durability: {why}")))
}

/// Where nothing is written `back`, the option would be without effect.
fn demand_back(junctions: &[JunctionSettings]) -> Result<()> {
    match junctions.iter().any(|junction| junction.write == WritePolicy::Back) {
        true => Ok(()),
        false => {
            refuse("--durability speaks of what is written back, and nothing is; add --write back".into())
        }
    }
}

fn normal_path(typed: &str) -> Result<String> {
    let parts: Vec<_> = typed.split('/').filter(|part| !part.is_empty()).collect();
    if !typed.starts_with('/') || parts.iter().any(|part| matches!(*part, "." | "..")) {
        return refuse(format!(
            "\"{typed}\" is no place for a junction; write an absolute path such as /show"
        ));
    }
    Ok(format!("/{}", parts.join("/")))
}

/// `lines`: where those of the file stand, which come first.
fn check_places(junctions: &[JunctionSettings], lines: &[Option<String>]) -> Result<()> {
    if junctions.is_empty() {
        return refuse(
            "nothing to serve; name an origin with --origin nfs://nas/export or in forebay.toml".into(),
        );
    }
    for (i, one) in junctions.iter().enumerate() {
        for (at, other) in junctions.iter().enumerate().skip(i + 1) {
            let wrong = |message: String| {
                refuse(message).map_err(|e| at_line(e, lines.get(at).and_then(Option::as_deref)))
            };
            let (outer, inner) = if one.path.len() <= other.path.len() { (one, other) } else { (other, one) };
            let (outer, inner) = (outer.path.as_str(), inner.path.as_str());
            if outer == inner {
                return wrong(format!(
                    "two origins for {outer}; give each a path of its own: --origin /a=URL --origin /b=URL"
                ));
            }
            if outer == "/" || inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/')) {
                return wrong(format!("{inner} lies inside {outer}; junctions must stand beside each other"));
            }
        }
    }
    Ok(())
}

/// A mount inside the directory that it serves would contain itself.
fn check_mount(mount: Option<&Path>, junctions: &[JunctionSettings]) -> Result<()> {
    let real = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path));
    let Some(Ok(mount)) = mount.map(real) else { return Ok(()) };
    for junction in junctions {
        if let Some(origin) = junction.origin.directory()
            && real(origin).is_ok_and(|origin| mount.starts_with(origin))
        {
            return refuse(format!(
                "{} lies inside {}, which it would serve; mount it somewhere else",
                mount.display(),
                origin.display()
            ));
        }
    }
    Ok(())
}

fn exports(
    typed: Vec<config::Export>,
    source: &config::ConfigText,
    junctions: &[JunctionSettings],
) -> Result<Vec<ExportSettings>> {
    if typed.is_empty() {
        return Ok(vec![ExportSettings { junction: None, rule: ExportRule::default() }]);
    }
    let mut exports = Vec::new();
    for export in typed {
        let line = export.junction.as_ref().and_then(|junction| source.line_of(junction));
        let path = export.junction.as_ref().map(|junction| normal_path(junction.get_ref())).transpose();
        let junction = path.map_err(|e| at_line(e, line.as_deref()))?;
        if let Some(path) = &junction
            && !junctions.iter().any(|j| j.path == *path)
        {
            let known: Vec<_> = junctions.iter().map(|j| j.path.as_str()).collect();
            let message = format!("an export rule names {path}, but the junctions are {}", known.join(", "));
            return refuse(message).map_err(|e| at_line(e, line.as_deref()));
        }
        let squash: Squash = export.squash.0;
        let rule = ExportRule {
            junction: None, // its id is known when the namespace is open; see `wire_up`
            clients: export.clients.into_iter().map(|c| c.0).collect(),
            squash,
            anonymous_uid: export.anonymous_uid,
            anonymous_gid: export.anonymous_gid,
            privileged_port: export.privileged_port,
            read_only: export.access.read_only,
            durability: if export.asynchronous { Durability::Fsync } else { Durability::Always },
        };
        exports.push(ExportSettings { junction, rule });
    }
    Ok(exports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_the_journal_and_the_cache() {
        for (descriptors, cache) in [(256, 512), (1024, 512), (4096, 2048), (1 << 20, 20_000)] {
            for fronts in 1..=2 {
                let each = share_of(descriptors, 4096, cache, fronts);
                let taken = fronts * each + cache.min(descriptors / 2);
                assert!((1..=4096).contains(&each), "{each} of {descriptors}");
                assert!(taken + 256.min(descriptors / 4) <= descriptors, "{taken} of {descriptors}");
            }
        }
        assert_eq!(share_of(1 << 20, 4096, 20_000, 2), 4096, "where there are many, nobody is refused");
    }

    #[test]
    fn a_mount_alone_lends_no_pages_and_keeps_processors_awake_only_if_it_is_told_to() {
        let file = |mount: &str| {
            let junction = "[[junction]]\npath = \"/\"\norigin = \"file:///srv\"\n";
            toml::from_str(&format!("{junction}{mount}")).expect("read")
        };
        let served =
            Settings::build(file("[mount]\nlow_latency = true"), &Overrides::default()).expect("good");
        assert!(served.cache.lends && served.mount_low_latency);
        let mounted = Settings::of_mount(Some(file("")), &Overrides::default()).expect("good");
        assert!(!mounted.cache.lends && !mounted.mount_low_latency);
    }

    #[test]
    fn a_mount_waits_as_long_as_it_is_told_to_and_no_shorter_than_an_origin_may_take() {
        let told = |mount: &str| {
            let junction = "[[junction]]\npath = \"/\"\norigin = \"file:///srv\"\n";
            let file = toml::from_str(&format!("{junction}{mount}")).expect("read");
            Settings::build(file, &Overrides::default()).map(|settings| settings.mount_patience)
        };
        assert_eq!(told("").expect("good"), None);
        assert_eq!(told("[mount]\npatience = \"8s\"").expect("good"), Some(Duration::from_secs(8)));
        let refusal = told("[mount]\npatience = \"2s\"").expect_err("too short").to_string();
        assert!(refusal.contains("[mount] patience"), "{refusal}");
    }
}
