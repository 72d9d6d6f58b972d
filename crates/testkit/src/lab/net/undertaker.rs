//! What ends the lab, however the test ends.
//!
//! The first process of the lab's process namespace waits for the end of a pipe that only the test holds. With it the kernel
//! kills every process of the namespace; when all are gone, and with them their mounts, the undertaker outside of it removes
//! the lab's directory. Both are in a process group of their own: Ctrl-C does not reach them.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::lab::NotRun;

/// What the machine mounts later is seen inside, and not the other way round.
const OUTSIDE: &str = "unshare --mount --propagation slave --pid --fork --kill-child sh -c \"$2\" first
rm -rf \"$1\"";
/// What processes of the lab leave in `/run` is in memory, and seen by them alone. It tells its process id as this process
/// sees it: `/proc` is the machine's.
const FIRST: &str =
    "mount -t tmpfs none /run && read -r pid _ </proc/self/stat && echo \"$pid\" && read -r _";

pub struct NetLabUndertaker {
    outside: Child,
    first: u32,
    processes: File,
}

impl NetLabUndertaker {
    pub fn watch(dir: &Path) -> Result<NetLabUndertaker, NotRun> {
        let failed = |e: std::io::Error| NotRun(format!("a process namespace: {e}"));
        let mut command = Command::new("sh");
        command.args(["-c", OUTSIDE, "undertaker"]).arg(dir).arg(FIRST).current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut outside = command.spawn().map_err(failed)?;
        let mut told = String::new();
        let heard = BufReader::new(outside.stdout.take().expect("piped")).read_line(&mut told);
        let first = heard.ok().and_then(|_| told.trim().parse().ok());
        let opened = first.map(|first: u32| (first, File::open(format!("/proc/{first}/ns/pid"))));
        match opened {
            Some((first, Ok(processes))) => Ok(NetLabUndertaker { outside, first, processes }),
            _ => {
                let output = outside.wait_with_output().map_err(failed)?;
                let told = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                Err(NotRun(format!("a process namespace: {told}")))
            }
        }
    }

    pub fn pid(&self) -> u32 {
        self.outside.id()
    }

    /// Start a child of this process inside. This thread can start no thread any more, so it should end soon.
    pub fn spawn(&self, command: &mut Command) -> std::io::Result<Child> {
        move_into_link_name_space(self.processes.as_fd(), Some(LinkNameSpaceType::ProcessID))?;
        command.spawn()
    }

    /// The mounts that processes of the lab see.
    pub fn mounts(&self) -> String {
        format!("/proc/{}/ns/mnt", self.first)
    }
}

impl Drop for NetLabUndertaker {
    fn drop(&mut self) {
        drop(self.outside.stdin.take());
        let _ = self.outside.wait();
    }
}
