//! The lab: a real NAS that is far away and a real NFS client, on one machine. For many hosts and no kernels of their own:
//! [`net`], the lab of network namespaces, and [`cluster`], a cluster in it.
//!
//! User-Mode Linux (Debian's `user-mode-linux`) boots a real kernel in a few seconds as an ordinary process, with the
//! host's files as its read-only root. One guest is the NAS: knfsd over ext4, with `tc netem` in front. One is the
//! client: the kernel's own NFSv3 client. Each has a tap interface; the host routes between them, and serves the
//! client from Forebay running on the host. Where the origin is a directory of the host, the client is alone
//! ([`with_client`]). Needs root.

pub mod cluster;
mod guest;
pub mod net;
mod undertaker;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use guest::{Guest, Output, RunningGuest};
use tempfile::TempDir;
use undertaker::LabUndertaker;

/// Why the lab cannot run on this machine.
#[derive(Debug)]
pub struct NotRun(pub String);

/// Where the NAS exports its disk, and the export inside it that lies on another file system.
pub const EXPORT: &str = "/mnt/export";
pub const NESTED: &str = "/mnt/export/nested";
/// Of each guest.
const MEMORY_MIB: u32 = 640;

pub struct Lab {
    /// First, so that it ends the guests while their process ids are still theirs.
    _undertaker: LabUndertaker,
    pub nas: Guest,
    pub client: Guest,
    _dir: TempDir,
}

/// One lab at a time: they share two cores.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Run `scenario` in a lab whose NAS is `rtt` away. Prints "not run" with the reason where that is not possible, and
/// fails then if FOREBAY_MUST_RUN is set.
pub fn with_lab(name: &str, rtt: Duration, scenario: impl FnOnce(&Lab)) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    match Lab::start(rtt) {
        Ok(lab) => scenario(&lab),
        Err(NotRun(reason)) => not_run(name, &reason),
    }
}

/// As [`with_lab`], with a client and no NAS.
pub fn with_client(name: &str, scenario: impl FnOnce(&Guest)) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    match Alone::start() {
        Ok(alone) => scenario(&alone.client),
        Err(NotRun(reason)) => not_run(name, &reason),
    }
}

/// A client and no NAS.
struct Alone {
    _undertaker: LabUndertaker,
    client: Guest,
    _dir: TempDir,
}

impl Alone {
    fn start() -> Result<Alone, NotRun> {
        let dir = prepare()?;
        let [_, client_net] = nets();
        let mut client = Guest::boot(dir.path(), "client", client_net, MEMORY_MIB, None)?;
        let undertaker = LabUndertaker::watch(dir.path(), &[&client])?;
        client.wait_ready()?;
        client.must(CLIENT_UP);
        Ok(Alone { _undertaker: undertaker, client, _dir: dir })
    }
}

/// Report that a test did not run. A failure where everything must run.
pub fn not_run(name: &str, reason: &str) {
    assert!(std::env::var_os("FOREBAY_MUST_RUN").is_none(), "{name} must run here, but: {reason}");
    eprintln!("not run: {name}: {reason}");
}

impl Lab {
    pub fn start(rtt: Duration) -> Result<Lab, NotRun> {
        let dir = prepare()?;
        let image = dir.path().join("nas.img");
        run("truncate", &["-s", "3G", &image.to_string_lossy()])?;
        run("mkfs.ext4", &["-q", "-E", "lazy_itable_init=1", "-N", "300000", &image.to_string_lossy()])?;
        let [nas_net, client_net] = nets();
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")
            .map_err(|e| NotRun(format!("ip_forward: {e}")))?;
        // Both boot at the same time.
        let mut nas = Guest::boot(dir.path(), "nas", nas_net, MEMORY_MIB, Some(&image))?;
        let mut client = Guest::boot(dir.path(), "client", client_net, MEMORY_MIB, None)?;
        let undertaker = LabUndertaker::watch(dir.path(), &[&nas, &client])?;
        nas.wait_ready()?;
        client.wait_ready()?;
        let lab = Lab { _undertaker: undertaker, nas, client, _dir: dir };
        lab.nas.must(NAS_UP);
        lab.client.must(CLIENT_UP);
        lab.set_rtt(rtt);
        Ok(lab)
    }

    /// The NAS as an origin.
    pub fn nas_url(&self) -> String {
        format!("nfs://{}{EXPORT}?mountport=20048", self.nas.address())
    }

    /// Where the client reaches servers on the host.
    pub fn host(&self) -> Ipv4Addr {
        self.client.gateway()
    }

    /// The whole round trip is put on the way out of the NAS.
    pub fn set_rtt(&self, rtt: Duration) {
        let us = rtt.as_micros();
        self.nas.must(&format!("tc qdisc replace dev vec0 root netem delay {us}us limit 200000"));
    }

    /// Calls that the NAS has answered: READ and all.
    pub fn nas_reads(&self) -> u64 {
        self.nas_counter(8)
    }

    /// Bytes that the NAS has sent from files.
    pub fn nas_read_bytes(&self) -> u64 {
        let text = self.nas.must("grep '^io' /proc/net/rpc/nfsd").stdout;
        text.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("the io line has two numbers")
    }

    /// A column of the `proc3` line: "proc3 22 null getattr setattr lookup access readlink read ...".
    fn nas_counter(&self, column: usize) -> u64 {
        let text = self.nas.must("grep '^proc3' /proc/net/rpc/nfsd").stdout;
        text.split_whitespace().nth(column).and_then(|n| n.parse().ok()).expect("proc3 has this column")
    }

    /// Take the line to the NAS away, and give it back.
    pub fn cut_nas(&self) {
        self.nas.cut();
    }

    pub fn restore_nas(&self) {
        self.nas.restore();
    }
}

// Blocks of 1 MiB and big first windows: without them the client has 256 KiB under way, and reads at 3.5 MB/s from
// 69.5 ms away; with them, at 21 MB/s.
const NAS_UP: &str = "\
set -e
mkdir -p /mnt/export; mount /dev/ubda /mnt/export
modprobe -d /tmp/mod nfsd; mount -t nfsd none /proc/fs/nfsd
modprobe -d /tmp/mod sch_netem
mkdir -p /run/rpcbind /var/lib/nfs/sm; touch /var/lib/nfs/etab /var/lib/nfs/rmtab
sysctl -qw net.core.rmem_max=33554432 net.core.wmem_max=33554432
sysctl -qw net.ipv4.tcp_rmem='4096 16777216 33554432' net.ipv4.tcp_wmem='4096 1048576 33554432'
rpcbind
echo 1048576 >/proc/fs/nfsd/max_block_size
rpc.nfsd -N 4 -V 3 16
rpc.mountd -N 4 --port 20048
exportfs -o rw,async,no_root_squash,insecure,no_subtree_check,fsid=1 '*:/mnt/export'
";

const CLIENT_UP: &str = "\
set -e
modprobe -d /tmp/mod nfsv3
sysctl -qw net.core.rmem_max=33554432 net.core.wmem_max=33554432
sysctl -qw net.ipv4.tcp_rmem='4096 16777216 33554432' net.ipv4.tcp_wmem='4096 1048576 33554432'
";

/// The NAS's network and the client's: unlikely to be used, and different for labs of different processes.
fn nets() -> [Ipv4Addr; 2] {
    let third = u8::try_from(std::process::id() % 250).unwrap_or(0) + 1;
    [213, 214].map(|second| Ipv4Addr::new(10, second, third, 0))
}

/// The lab's directory, on a machine that can run it.
fn prepare() -> Result<TempDir, NotRun> {
    check_machine()?;
    let dir = tempfile::Builder::new().prefix("forebay-lab-").tempdir().map_err(|e| NotRun(e.to_string()))?;
    guest::prepare(dir.path())?;
    Ok(dir)
}

fn check_machine() -> Result<(), NotRun> {
    if !rustix::process::getuid().is_root() {
        return Err(NotRun("the lab needs root (tap interfaces, an ext4 image)".into()));
    }
    if !PathBuf::from("/dev/net/tun").exists() {
        return Err(NotRun("/dev/net/tun is missing".into()));
    }
    let parts = [
        ("/usr/bin/linux.uml", "user-mode-linux"),
        ("/usr/sbin/rpc.nfsd", "nfs-kernel-server"),
        ("/sbin/mount.nfs", "nfs-common"),
        ("/sbin/rpcbind", "rpcbind"),
        ("/sbin/modprobe", "kmod"),
        ("/sbin/mkfs.ext4", "e2fsprogs"),
        ("/sbin/tc", "iproute2"),
    ];
    for (path, package) in parts {
        if !PathBuf::from(path).exists() {
            return Err(NotRun(format!("Debian's {package} is not installed")));
        }
    }
    Ok(())
}

fn run(program: &str, arguments: &[&str]) -> Result<(), NotRun> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(program).args(arguments).env("PATH", path).output();
    let output = output.map_err(|e| NotRun(format!("{program}: {e}")))?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(NotRun(format!("{program} {}: {}", arguments.join(" "), why.trim())))
}
