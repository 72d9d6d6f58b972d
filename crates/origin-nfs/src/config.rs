//! The client's configuration, and why the defaults are what they are.

use std::time::Duration;

/// The tier's identity at the server: the AUTH_SYS credentials of every call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthSysIdentity {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups; the wire takes 16, the rest is not sent.
    pub groups: Vec<u32>,
    /// What the client's machine is called in them.
    pub machine: &'static str,
}

/// Servers make nothing of it.
const MACHINE: &str = "forebay";

impl Default for AuthSysIdentity {
    /// Root when we are root (the tier checks permission itself and must see everything), otherwise who we
    /// are.
    fn default() -> AuthSysIdentity {
        let uid = rustix::process::getuid().as_raw();
        if uid == 0 {
            return AuthSysIdentity { uid: 0, gid: 0, groups: Vec::new(), machine: MACHINE };
        }
        let groups = rustix::process::getgroups().unwrap_or_default();
        AuthSysIdentity {
            uid,
            gid: rustix::process::getgid().as_raw(),
            groups: groups.into_iter().map(|g| g.as_raw()).collect(),
            machine: MACHINE,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Config {
    /// Name or address; looked up again at each reconnect, so that a server may move.
    pub host: String,
    /// TCP port of NFS. `None`: the portmapper is asked, or 2049 when `mount_port` is given.
    pub port: Option<u16>,
    /// TCP port of MOUNT. `None`: the portmapper is asked. With a port no portmapper is needed at all.
    pub mount_port: Option<u16>,
    /// The path to mount at the server, absolute.
    pub export: Vec<u8>,
    /// TCP connections, 1 to 16. Default 4: one for metadata, three for bulk reads; over a far line one
    /// connection's window is the limit.
    pub nconnect: usize,
    pub identity: AuthSysIdentity,
    /// Calls in flight on one connection. Default 64: what servers commonly take from one connection
    /// (Linux: 64 slots).
    pub calls_in_flight: usize,
    /// A call that has no answer after this long fails with `Unavailable`, retransmissions included.
    /// Default 20 s: longer than a server's failover of a shelf, shorter than the patience of a client in
    /// front.
    pub call_timeout: Duration,
    /// A connection attempt, name lookup and a first NULL call included. Default 3 s: one lost SYN and one
    /// retransmission at 200 ms distance fit.
    pub connect_timeout: Duration,
    /// With calls waiting and not one byte heard for this long, the connection is given up and dialled anew.
    /// Default 5 s: bulk replies at 221 ms distance come far more often than that.
    pub stall_timeout: Duration,
    /// An outage shorter than this is bridged: calls wait for the reconnect. After it they fail at once
    /// until a probe succeeds. Default 2 s: a server process restarts in less.
    pub outage_grace: Duration,
    /// Longest pause between two attempts to reconnect. Default 2 s, so that recovery is noticed well
    /// within 5 s.
    pub backoff_max: Duration,
    /// Most bytes of one READ; the server's FSINFO may lower it. Default and most 1 MiB.
    pub read_max: u32,
    /// Most bytes of one WRITE; the server's FSINFO may lower it. Default and most 1 MiB.
    pub write_max: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            host: "localhost".to_owned(),
            port: None,
            mount_port: None,
            export: b"/".to_vec(),
            nconnect: 4,
            identity: AuthSysIdentity::default(),
            calls_in_flight: 64,
            call_timeout: Duration::from_secs(20),
            connect_timeout: Duration::from_secs(3),
            stall_timeout: Duration::from_secs(5),
            outage_grace: Duration::from_secs(2),
            backoff_max: Duration::from_secs(2),
            read_max: 1 << 20,
            write_max: 1 << 20,
        }
    }
}

/// Most connections to one server.
pub const NCONNECT_MAX: usize = 16;
