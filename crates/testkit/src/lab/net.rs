//! A lab of network namespaces: hosts with links of a known rate on one machine, and what goes wrong with them.
//!
//! The cast: a [`NetLab`] has a switch, which is a network namespace with a bridge for each subnet, and any number of
//! [`LabHost`]s. A host is a network namespace with one [`LabLink`] for each subnet that it is in: `link0` has 10.77.0.HOST,
//! `link1` 10.77.1.HOST. A link is a veth pair from the host to the switch; `tc tbf` shapes what leaves either end, so a link
//! has a rate for each [`LinkSide`]. A [`LabProcess`] runs in a host; code of the test itself does by [`LabHost::within`].
//!
//! Faults: [`LabProcess`] is killed and stopped; a link is pulled ([`LabLink::down`]), loses what goes one way
//! ([`LabLink::lose`]), or is slowed ([`LabLink::set_rate`]), until [`LabLink::restore`]; a host is not heard by one other host
//! any more ([`LabHost::lose_to`]).
//!
//! Nothing of it is seen by the machine, so that labs run side by side with the same addresses, and nothing of it has a name
//! that could be left behind: network namespaces are held by descriptors of the test, and end with it. Processes are in a
//! process namespace and a mount namespace of the lab, with a `/run` of their own; the kernel kills all of them, and takes
//! their mounts away, when the first process of that namespace ends, which it does when the test has ended in whatever way
//! (`undertaker.rs`). Only the lab's directory could be left, if the undertaker was killed, too: the next lab removes it
//! (`leftovers.rs`).
//!
//! There is no delay on a link: kernels without `netem` are common. What is to be far is put behind a relay (crate `relay`),
//! which can be bound inside a host. Needs root.

mod host;
mod leftovers;
mod link;
mod namespace;
mod process;
mod undertaker;

use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{NotRun, not_run, run};
use namespace::NetNamespace;
use undertaker::NetLabUndertaker;

pub use host::LabHost;
pub use link::{LabLink, LinkSide};
pub use process::LabProcess;

/// The last byte of an address.
const HOSTS_MAX: u8 = 250;
/// What each bridge has itself. It is a host's address in no network, so what is sent there is gone.
const NOBODY: &str = "02:fb:00:00:00:00";
const POLL: Duration = Duration::from_millis(10);

pub struct NetLab {
    shared: Arc<LabShared>,
}

/// What the lab's hosts and processes need while one of them is there.
struct LabShared {
    /// First, so that it ends the processes before their files go.
    undertaker: NetLabUndertaker,
    switch: Arc<NetNamespace>,
    /// So many are there.
    bridges: Mutex<usize>,
    hosts: AtomicU8,
    /// Of outputs, so that each has a file of its own.
    runs: AtomicU32,
    _claim: leftovers::Claim,
    dir: TempDir,
}

/// Run `scenario` in a lab of its own. Prints "not run" with the reason where that is not possible, and fails then if
/// FOREBAY_MUST_RUN is set.
pub fn with_net_lab(name: &str, scenario: impl FnOnce(&NetLab)) {
    match NetLab::start() {
        Ok(lab) => scenario(&lab),
        Err(NotRun(reason)) => not_run(name, &reason),
    }
}

/// Until it is so, or the test fails.
pub fn eventually(what: &str, patience: Duration, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < patience, "not within {patience:?}: {what}");
        std::thread::sleep(POLL);
    }
}

impl NetLab {
    pub fn start() -> Result<NetLab, NotRun> {
        check_machine()?;
        leftovers::remove();
        let (dir, claim) = leftovers::claimed_dir()?;
        let switch = Arc::new(NetNamespace::create()?);
        switch.run(|| check_kernel().and_then(|()| quiet()))?;
        let undertaker = NetLabUndertaker::watch(dir.path())?;
        let shared = LabShared {
            undertaker,
            switch,
            bridges: Mutex::new(0),
            hosts: AtomicU8::new(0),
            runs: AtomicU32::new(0),
            _claim: claim,
            dir,
        };
        Ok(NetLab { shared: Arc::new(shared) })
    }

    /// A new one with a link for each of these rates, in bytes per second of either direction. `name` is for messages and files.
    pub fn host(&self, name: &str, rates: &[u64]) -> LabHost {
        let number = self.shared.hosts.fetch_add(1, Ordering::Relaxed) + 1;
        assert!(number <= HOSTS_MAX, "a lab has {HOSTS_MAX} hosts at most");
        self.shared.make_bridges(rates.len());
        LabHost::make(&self.shared, name, number, rates)
    }

    /// The lab's own, which goes with it.
    pub fn dir(&self) -> &Path {
        self.shared.dir.path()
    }

    /// The process that removes the lab's directory at last.
    pub fn undertaker(&self) -> u32 {
        self.shared.undertaker.pid()
    }
}

impl LabShared {
    fn make_bridges(&self, wanted: usize) {
        let mut there = self.bridges.lock().unwrap_or_else(PoisonError::into_inner);
        for bridge in *there..wanted {
            let name = format!("bridge{bridge}");
            self.switch.run(|| {
                let kind = ["type", "bridge", "stp_state", "0", "mcast_snooping", "0"];
                must("ip", &[&["link", "add", &name, "address", NOBODY][..], &kind[..]].concat());
                must("ip", &["link", "set", &name, "up"]);
            });
        }
        *there = wanted.max(*there);
    }
}

/// A command that fails fails the test, with all that it said.
fn must(program: &str, arguments: &[&str]) {
    if let Err(NotRun(why)) = run(program, arguments) {
        panic!("{why}");
    }
}

fn check_machine() -> Result<(), NotRun> {
    if !rustix::process::geteuid().is_root() {
        return Err(NotRun("network namespaces need root".into()));
    }
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    missing(|program| std::env::split_paths(&path).any(|dir| dir.join(program).is_file())).map_or(Ok(()), Err)
}

/// What is not installed.
fn missing(is_there: impl Fn(&str) -> bool) -> Option<NotRun> {
    let parts = [
        ("ip", "iproute2"),
        ("tc", "iproute2"),
        ("unshare", "util-linux"),
        ("nsenter", "util-linux"),
        ("mount", "mount"),
    ];
    let (program, package) = parts.iter().find(|(program, _)| !is_there(program))?;
    Some(NotRun(format!("{program} is missing; Debian's {package} is not installed")))
}

/// Whether it has what a lab is made of: bridges, veth, and the two queues.
fn check_kernel() -> Result<(), NotRun> {
    run("ip", &["link", "add", "trial", "type", "bridge"])?;
    run("ip", &["link", "del", "trial"])?;
    run("ip", &["link", "add", "trial0", "type", "veth", "peer", "name", "trial1"])?;
    link::shape("trial0", 1_000_000)?;
    link::lose_all("trial0")?;
    run("ip", &["link", "del", "trial0"])
}

/// For this namespace: nothing is forwarded, whatever the machine does, and nothing is sent that nobody asked for.
fn quiet() -> Result<(), NotRun> {
    let set = |name: &str, value: &str| match std::fs::write(format!("/proc/sys/net/{name}"), value) {
        // A kernel without IPv6 has none of its settings.
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(NotRun(format!("{name}: {e}"))),
        _ => Ok(()),
    };
    set("ipv4/ip_forward", "0")?;
    set("ipv6/conf/all/disable_ipv6", "1")?;
    set("ipv6/conf/default/disable_ipv6", "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_lacks_is_the_reason_why_there_is_no_lab() {
        let NotRun(reason) = missing(|program| program != "tc").expect("tc is missing");
        assert_eq!(reason, "tc is missing; Debian's iproute2 is not installed");
        assert!(missing(|_| true).is_none());
    }
}
