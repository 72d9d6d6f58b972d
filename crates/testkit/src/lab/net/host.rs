//! One host: its links, and what runs in it.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::link::LabLink;
use super::namespace::NetNamespace;
use super::process::{LabProcess, Outputs};
use super::{LabShared, NOBODY, must, quiet};
use crate::lab::{NotRun, Output};

pub struct LabHost {
    name: String,
    namespace: Arc<NetNamespace>,
    links: Vec<LabLink>,
    lab: Arc<LabShared>,
}

impl LabHost {
    pub(super) fn make(lab: &Arc<LabShared>, name: &str, number: u8, rates: &[u64]) -> LabHost {
        let namespace = NetNamespace::create().and_then(|namespace| {
            namespace.run(quiet)?;
            Ok(Arc::new(namespace))
        });
        let namespace = namespace.unwrap_or_else(|NotRun(why)| panic!("host {name}: {why}"));
        namespace.run(|| must("ip", &["link", "set", "lo", "up"]));
        let make = |(bridge, rate): (usize, &u64)| LabLink::make(lab, &namespace, number, bridge, *rate);
        let links = rates.iter().enumerate().map(make).collect();
        LabHost { name: name.to_owned(), namespace, links, lab: lab.clone() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn link(&self, index: usize) -> &LabLink {
        &self.links[index]
    }

    pub fn links(&self) -> &[LabLink] {
        &self.links
    }

    /// On its first link.
    pub fn address(&self) -> Ipv4Addr {
        self.links[0].address()
    }

    /// Run `what` in this host's network, in a thread of its own. Sockets that it makes and threads that it starts (a relay, a
    /// runtime) are in that network for good. Processes are better started by [`LabHost::start`]: those end with the lab.
    pub fn within<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(what)
    }

    /// Start a process: its program, arguments, directory and variables are the command's, and what it says is put into
    /// the lab's directory, in `HOST-NAME.log`.
    pub fn start(&self, name: &str, command: &Command) -> LabProcess {
        let log = self.lab.dir.path().join(format!("{}-{name}.log", self.name));
        let file =
            File::options().create(true).append(true).open(&log).expect("the lab's directory is there");
        let errors = file.try_clone().expect("a descriptor");
        self.spawn(name, command, Outputs { stdout: file, stderr: errors }, log)
    }

    /// Run a process to its end, which comes before the deadline, or the test fails.
    pub fn run(&self, command: &Command, deadline: Duration) -> Output {
        let number = self.lab.runs.fetch_add(1, Ordering::Relaxed);
        let path = |ending: &str| self.lab.dir.path().join(format!("{}-run{number}.{ending}", self.name));
        let create = |ending: &str| File::create(path(ending)).expect("the lab's directory is there");
        let outputs = Outputs { stdout: create("out"), stderr: create("err") };
        let mut process = self.spawn("run", command, outputs, path("err"));
        let status = process.wait(deadline);
        let status =
            status.unwrap_or_else(|| panic!("{}: no end of {command:?}: {}", self.name, process.log()));
        let text = |ending: &str| {
            String::from_utf8_lossy(&std::fs::read(path(ending)).unwrap_or_default()).into_owned()
        };
        let output = Output { stdout: text("out"), stderr: text("err"), status: status.code().unwrap_or(-1) };
        for ending in ["out", "err"] {
            let _ = std::fs::remove_file(path(ending));
        }
        output
    }

    fn spawn(&self, name: &str, command: &Command, outputs: Outputs, log: PathBuf) -> LabProcess {
        let mut inside = Command::new("nsenter");
        inside.arg(format!("--mount={}", self.lab.undertaker.mounts()));
        inside.arg(format!("--wdns={}", command.get_current_dir().unwrap_or("/".as_ref()).display()));
        inside.arg("--").arg(command.get_program()).args(command.get_args());
        for (variable, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(variable, value),
                None => inside.env_remove(variable),
            };
        }
        let name = format!("{} {name}", self.name);
        self.within(|| LabProcess::start(&self.lab, name, inside, outputs, log))
    }

    /// What this host sends to `other` is lost on each link that both have, without a word; what `other` sends arrives, and
    /// all others are heard. Until [`LabHost::reach`].
    pub fn lose_to(&self, other: &LabHost) {
        self.on_shared_links(other, |address, interface| {
            must(
                "ip",
                &["neigh", "replace", address, "lladdr", NOBODY, "dev", interface, "nud", "permanent"],
            );
        });
    }

    /// The end of [`LabHost::lose_to`].
    pub fn reach(&self, other: &LabHost) {
        self.on_shared_links(other, |address, interface| {
            must("ip", &["neigh", "del", address, "dev", interface]);
        });
    }

    fn on_shared_links(&self, other: &LabHost, what: impl Fn(&str, &str) + Sync) {
        for (ours, theirs) in self.links.iter().zip(&other.links) {
            self.namespace.run(|| what(&theirs.address().to_string(), ours.interface()));
        }
    }
}
