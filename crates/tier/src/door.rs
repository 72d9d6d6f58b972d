//! Where the operator's interface of a tier is found on its machine: the Unix socket and the token in the cache directory, and
//! a link by which a command finds the socket from the address it was given.
//!
//! The socket answers the tier's own user and root alone, so that a command of theirs needs no secret. The link's name holds
//! the network namespace too: two tiers may listen on one address in two of them.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use quantity::Address;
use subtle::ConstantTimeEq;
use tracing::warn;
use types::{Error, Result};

const SOCKET: &str = "admin.sock";
const TOKEN: &str = "admin.token";
/// Of random bytes; a token is twice as many hexadecimal digits.
const TOKEN_BYTES: usize = 32;
/// Links of tiers that were killed are swept away by later ones, so many at a time.
const SWEPT_MAX: usize = 256;

/// What a request over TCP shows to prove that it comes from the tier's operator.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    pub fn path(dir: &Path) -> PathBuf {
        dir.join(TOKEN)
    }

    /// That of the cache directory; made at the first start. One that others could read is no secret any more, and is replaced.
    pub fn of(dir: &Path) -> Result<Token> {
        let path = Token::path(dir);
        let failed = |e| Error::io("make the operator's token", path.display(), e);
        if let Ok(file) = File::open(&path) {
            let found = file.metadata().map_err(failed)?;
            let mut bytes = Vec::new();
            file.take(4096).read_to_end(&mut bytes).map_err(failed)?;
            let text = String::from_utf8_lossy(&bytes);
            let is_whole = text.trim().len() == 2 * TOKEN_BYTES
                && text.trim().bytes().all(|digit| digit.is_ascii_hexdigit());
            if found.mode() & 0o077 == 0 && found.uid() == own_uid() && is_whole {
                return Ok(Token(text.trim().to_owned()));
            }
            warn!("{} could be read by others, or is damaged: another token is made", path.display());
        }
        let mut random = [0; TOKEN_BYTES];
        File::open("/dev/urandom").and_then(|mut from| from.read_exact(&mut random)).map_err(failed)?;
        let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        // Whole or not at all, and nobody else's from the first moment.
        let unfinished = path.with_extension("unfinished");
        let _ = std::fs::remove_file(&unfinished);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished);
        file.and_then(|mut file| {
            file.write_all(token.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&unfinished, &path)
        })
        .map_err(failed)?;
        Ok(Token(token))
    }

    /// Takes the same time whatever is wrong.
    pub fn is(&self, shown: &str) -> bool {
        self.0.as_bytes().ct_eq(shown.as_bytes()).into()
    }

    #[cfg(test)]
    pub fn for_test(text: &str) -> Token {
        Token(text.to_owned())
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

pub fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The tier's side: its socket, and the links that lead to it. They go when this does.
#[derive(Debug)]
pub struct Door {
    made: Vec<PathBuf>,
}

impl Door {
    /// Only the tier that holds the cache directory may: what another one left there is replaced.
    pub fn open(dir: &Path) -> Result<(UnixListener, Door)> {
        let path = dir.join(SOCKET);
        let failed = |e| Error::io("listen for the operator at", path.display(), e);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        let listener = through(&path, |short| UnixListener::bind(short)).map_err(failed)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok((listener, Door { made: vec![path] }))
    }

    /// Let commands find it by the address at which the same interface is served over TCP. Without, they need to be told.
    pub fn make_known(&mut self, address: SocketAddr) {
        let Some(link) = link_of(address) else { return };
        let Some(socket) = self.made.first().and_then(|path| std::path::absolute(path).ok()) else { return };
        let made = link.parent().map_or(Ok(()), |dir| {
            DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
            sweep(dir, &own_suffix());
            let _alone = alone_in(dir)?;
            // Put in the place of an older one at once: there is no moment without a link.
            let new = dir.join("new");
            match std::fs::remove_file(&new) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            symlink(&socket, &new)?;
            std::fs::rename(&new, &link)
        });
        match made {
            Ok(()) => self.made.push(link),
            Err(e) => warn!(
                "commands must be told --admin {}, since {} cannot be made: {e}",
                socket.display(),
                link.display()
            ),
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let Some(socket) = self.made.first().and_then(|path| std::path::absolute(path).ok()) else { return };
        for path in &self.made {
            // Another tier may have put its own link there since, or be about to.
            let _alone = path.read_link().ok().and_then(|_| alone_in(path.parent()?).ok());
            if path.read_link().map_or(true, |to| to == socket) {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// The socket of the tier at this address, if there is one that this user may trust: it is his own, or root's.
pub fn find(address: Address) -> Option<UnixStream> {
    let link = link_of(address.to_reach())?;
    let dir = link.parent()?.metadata().ok()?;
    // Where others may write, others may lead astray.
    if (dir.uid() != own_uid() && dir.uid() != 0) || dir.mode() & 0o022 != 0 {
        return None;
    }
    connect(&link).ok()
}

/// A socket whose other end is this user's, or root's.
pub fn connect(path: &Path) -> std::io::Result<UnixStream> {
    let stream = through(path, |short| UnixStream::connect(short))?;
    let peer = rustix::net::sockopt::socket_peercred(&stream)?.uid.as_raw();
    if peer != own_uid() && peer != 0 && own_uid() != 0 {
        return Err(std::io::Error::other(format!("it is served by another user (uid {peer})")));
    }
    Ok(stream)
}

/// `/run/forebay/127.0.0.1:9420@4026531840.sock`
fn link_of(address: SocketAddr) -> Option<PathBuf> {
    Some(links_dir()?.join(format!("{}{}", Address(address).to_reach(), own_suffix())))
}

/// Of the links of this network namespace.
fn own_suffix() -> String {
    let namespace = std::fs::metadata("/proc/self/ns/net").map_or(0, |found| found.ino());
    format!("@{namespace}.sock")
}

fn links_dir() -> Option<PathBuf> {
    if own_uid() == 0 {
        return Some(PathBuf::from("/run/forebay"));
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let runtime = absolute("XDG_RUNTIME_DIR").map(|dir| dir.join("forebay"));
    runtime.or_else(|| absolute("HOME").map(|home| home.join(".local/state/forebay")))
}

/// Drops links to sockets at which nobody answers any more. Only those with this end of their names: sockets of tiers in
/// another namespace (a container that shares the directory) may lie where we cannot see them.
fn sweep(dir: &Path, suffix: &str) {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let ours = entries.map(|entry| entry.path()).filter(|link| link.to_string_lossy().ends_with(suffix));
    for link in ours.take(SWEPT_MAX) {
        if let Some(seen) = Seen::of(&link)
            && through(&link, |short| UnixStream::connect(short)).is_err()
        {
            let _ = seen.remove(dir, &link);
        }
    }
}

/// A link as it was when it was looked at: by now a tier that starts may have put its own in its place.
#[derive(PartialEq, Eq)]
struct Seen {
    inode: u64,
    made: (i64, i64),
}

impl Seen {
    fn of(link: &Path) -> Option<Seen> {
        let found = link.symlink_metadata().ok().filter(|found| found.is_symlink())?;
        Some(Seen { inode: found.ino(), made: (found.ctime(), found.ctime_nsec()) })
    }

    fn remove(self, dir: &Path, link: &Path) -> std::io::Result<()> {
        let _alone = alone_in(dir)?;
        if Seen::of(link) == Some(self) { std::fs::remove_file(link) } else { Ok(()) }
    }
}

/// Until this is dropped no other tier changes links in the directory. Nobody waits for anything meanwhile.
fn alone_in(dir: &Path) -> std::io::Result<File> {
    let dir = File::open(dir)?;
    rustix::fs::flock(&dir, rustix::fs::FlockOperation::LockExclusive)?;
    Ok(dir)
}

/// The address of a socket has 108 bytes, a path may have more: it is named from its directory.
fn through<T>(path: &Path, what: impl FnOnce(&Path) -> std::io::Result<T>) -> std::io::Result<T> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(std::io::Error::other("it is no path of a socket"));
    };
    let dir = File::open(if dir.as_os_str().is_empty() { Path::new(".") } else { dir })?;
    what(&Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_made_once_and_again_when_others_could_read_it() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let first = Token::of(dir.path()).expect("made");
        assert!(Token::of(dir.path()).expect("read").is(&first.0), "it outlives a restart");
        let path = Token::path(dir.path());
        assert_eq!(path.metadata().expect("there").mode() & 0o777, 0o600);
        assert!(!first.is("") && !first.is(&first.0[1..]) && !first.is(&"0".repeat(64)));
        for damaged in [&b""[..], &[b'0'; 63], &[b'g'; 64], &[0xff; 64]] {
            std::fs::write(&path, damaged).expect("written");
            assert!(Token::of(dir.path()).expect("made").0.bytes().all(|digit| digit.is_ascii_hexdigit()));
        }
        let first = Token::of(dir.path()).expect("read");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("set");
        assert!(!Token::of(dir.path()).expect("made").is(&first.0));
        assert_eq!(path.metadata().expect("there").mode() & 0o777, 0o600);
    }

    #[test]
    fn the_socket_is_its_users_alone_however_long_its_path_is_and_goes_with_the_tier() {
        let base = tempfile::tempdir().expect("temporary directory");
        let dir = base.path().join("d".repeat(200));
        std::fs::create_dir(&dir).expect("made");
        let (_listener, door) = Door::open(&dir).expect("listens");
        let path = dir.join(SOCKET);
        assert_eq!(path.metadata().expect("there").mode() & 0o777, 0o600);
        assert!(connect(&path).is_ok());
        drop(door);
        assert!(!path.exists());
        let links = ["127.0.0.1:1@7.sock", "127.0.0.1:1@8.sock"].map(|name| base.path().join(name));
        links.iter().for_each(|link| symlink(&path, link).expect("linked"));
        sweep(base.path(), "@7.sock");
        let left = links.map(|link| link.symlink_metadata().is_ok());
        assert_eq!(left, [false, true], "links of another namespace are not ours to sweep");
        // Nobody answered there when it was looked at, and then a tier that starts put its own link there.
        let link = base.path().join("127.0.0.1:1@7.sock");
        symlink(&path, &link).expect("linked");
        let [seen, replaced] = [(); 2].map(|()| Seen::of(&link).expect("a link"));
        std::fs::remove_file(&link).expect("removed");
        std::thread::sleep(std::time::Duration::from_millis(20)); // a tick of the file system's clock
        symlink(&path, &link).expect("linked anew");
        replaced.remove(base.path(), &link).expect("looked at");
        assert!(link.symlink_metadata().is_ok(), "what was put there since stays");
        assert!(Seen::of(&link) != Some(seen));
        Seen::of(&link).expect("a link").remove(base.path(), &link).expect("removed");
        assert!(link.symlink_metadata().is_err());
        let (_listener, _door) = Door::open(&dir).expect("listens again");
    }
}
