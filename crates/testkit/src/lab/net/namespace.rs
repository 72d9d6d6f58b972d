//! A network namespace that a descriptor of this process holds: it ends with this process, if not before.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::lab::NotRun;

pub struct NetNamespace {
    file: File,
}

impl NetNamespace {
    /// A new one. It has a loopback interface, which is down, and nothing else.
    pub fn create() -> Result<NetNamespace, NotRun> {
        let mut command = Command::new("unshare");
        command.args(["--net", "cat"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut first = command.spawn().map_err(|e| NotRun(format!("unshare: {e}")))?;
        let file = opened(&mut first);
        drop(first.stdin.take());
        let output = first.wait_with_output().map_err(|e| NotRun(format!("unshare: {e}")))?;
        match file {
            Ok(file) => Ok(NetNamespace { file }),
            Err(e) => {
                let told = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                Err(NotRun(format!("a network namespace: {e}; {told}")))
            }
        }
    }

    /// For commands that take a path, while this is there.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Run `what` inside, in a thread of its own. Sockets that it makes, threads that it starts and children of theirs are
    /// inside, too, and stay there.
    pub fn run<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter();
                what()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Of this thread alone.
    fn enter(&self) {
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("root may enter its own");
    }
}

/// The namespace of this `cat`, which is inside once it answers.
fn opened(first: &mut Child) -> std::io::Result<File> {
    first.stdin.as_mut().expect("piped").write_all(b"?")?;
    first.stdout.as_mut().expect("piped").read_exact(&mut [0])?;
    File::open(format!("/proc/{}/ns/net", first.id()))
}
