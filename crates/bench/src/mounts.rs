//! What storage a URL or a path names: whether it is reached by HTTP, and what is mounted there (type, source, options, the
//! server behind it).

use std::net::SocketAddr;
use std::path::Path;

pub const NFS_PORT: u16 = 2049;
/// Types whose bytes come over a network, whatever their options tell of a server.
const FAR: [&str; 9] = ["nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "9p", "beegfs", "fuse.sshfs"];

const SCHEMES: [&str; 3] = ["s3://", "az://", "gs://"];

pub fn is_bucket(url: &str) -> bool {
    SCHEMES.iter().any(|scheme| url.starts_with(scheme))
}

/// Whether a URL names a store that is reached by HTTP: a bucket, or a share of Azure Files.
pub fn is_http_store(url: &str) -> bool {
    is_bucket(url) || url.starts_with("azfile://")
}

/// HOST:PORT of the server that a URL names. `None`: it names none, as a path, or a service of many places.
pub fn server_of(url: &str) -> Option<String> {
    if let Some(rest) = url.strip_prefix("nfs://") {
        return Some(with_port(rest.split(['/', '?']).next().unwrap_or_default(), NFS_PORT));
    }
    let endpoint = url.split(['?', '&']).find_map(|pair| pair.strip_prefix("endpoint="))?;
    let (scheme, host) = endpoint.split_once("://")?;
    let port = if scheme == "https" { 443 } else { 80 };
    Some(with_port(host.split('/').next().unwrap_or_default(), port))
}

/// HOST:PORT, with this port if the host has none.
pub fn with_port(host: &str, port: u16) -> String {
    let has_port = host.rsplit_once(':').is_some_and(|(name, port)| {
        // An address of IPv6 has colons of its own, and is in brackets if a port follows.
        port.parse::<u16>().is_ok() && (!name.contains(':') || name.ends_with(']'))
    });
    if has_port { host.to_owned() } else { format!("{host}:{port}") }
}

/// The path that a URL of files names.
pub fn path_of(url: &str) -> &Path {
    let path = url.strip_prefix("file://").unwrap_or(url);
    Path::new(path.split('?').next().unwrap_or(path))
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetMount {
    /// `nfs4`, `ext4`, ...
    pub kind: String,
    /// `nas:/export`, `/dev/sda1`
    pub source: String,
    pub point: String,
    pub options: String,
    pub server: Option<SocketAddr>,
}

impl TargetMount {
    /// What `path` lies on; None where /proc does not tell.
    pub fn of(path: &Path) -> Option<TargetMount> {
        let whole = std::fs::canonicalize(path).ok()?;
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        Some(TargetMount::among(&mounts, &whole)).filter(|mount| !mount.kind.is_empty())
    }

    /// What the longest mount point above `path` is, by the lines of `/proc/self/mountinfo`.
    pub fn among(mountinfo: &str, path: &Path) -> TargetMount {
        let mounts = mountinfo.lines().filter_map(TargetMount::parse);
        // Of two on one point the later one hides the other: it is the last of the longest.
        let above = mounts.filter(|mount| path.starts_with(&mount.point));
        above.max_by_key(|mount| mount.point.len()).unwrap_or_default()
    }

    fn parse(line: &str) -> Option<TargetMount> {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(4);
        let (point, of_mount) = (unescaped(front.next()?), front.next()?);
        let mut back = back.split(' ');
        let (kind, source, of_system) = (back.next()?, back.next()?, back.next().unwrap_or_default());
        let mut options: Vec<&str> = of_mount.split(',').collect();
        for option in of_system.split(',').filter(|option| !option.is_empty()) {
            if !options.contains(&option) {
                options.push(option);
            }
        }
        Some(TargetMount {
            server: if kind.starts_with("nfs") { server_in(of_system) } else { None },
            kind: kind.to_owned(),
            source: unescaped(source),
            options: options.join(","),
            point,
        })
    }

    pub fn is_far(&self) -> bool {
        FAR.contains(&self.kind.as_str())
    }
}

impl std::fmt::Display for TargetMount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} on {}; {})", self.kind, self.source, self.point, self.options)
    }
}

fn server_in(options: &str) -> Option<SocketAddr> {
    let option = |name| options.split(',').find_map(|o| o.strip_prefix(name)?.strip_prefix('='));
    let port = option("port").and_then(|port| port.parse().ok()).filter(|port| *port > 0);
    Some(SocketAddr::new(option("addr")?.parse().ok()?, port.unwrap_or(NFS_PORT)))
}

/// Spaces and the like are written as three octal digits.
fn unescaped(word: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(word.to_owned(), |word, (code, character)| word.replace(code, character))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "22 1 0:5 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,discard\n\
        40 22 0:6 / /far\\040away rw - nfs4 nas:/x rw,vers=4.1,port=0,addr=10.0.0.5\n\
        41 22 0:7 / /near rw shared:2 - nfs nas:/y rw,vers=3,port=40049,mountaddr=10.0.0.9,addr=10.0.0.6\n\
        nonsense\n";

    #[test]
    fn the_server_behind_a_mount_is_found_in_its_options() {
        let far = TargetMount::among(MOUNTS, Path::new("/far away/data"));
        assert_eq!((far.kind.as_str(), far.point.as_str()), ("nfs4", "/far away"));
        assert_eq!(far.server, Some("10.0.0.5:2049".parse().expect("valid")));
        assert!(far.is_far());
        let near = TargetMount::among(MOUNTS, Path::new("/near"));
        assert_eq!(near.server, Some("10.0.0.6:40049".parse().expect("valid")));
        let local = TargetMount::among(MOUNTS, Path::new("/nearby"));
        assert_eq!((local.kind.as_str(), local.server, local.is_far()), ("ext4", None, false));
        assert_eq!(local.to_string(), "ext4 (/dev/sda1 on /; rw,relatime,discard)");
    }

    #[test]
    fn every_directory_of_this_machine_lies_on_something() {
        let mount = TargetMount::of(&std::env::temp_dir()).expect("/proc is there");
        assert!(!mount.kind.is_empty() && !mount.options.is_empty(), "{mount:?}");
        assert_eq!(TargetMount::of(Path::new("/no such directory")), None);
    }
}
