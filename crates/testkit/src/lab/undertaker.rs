//! A process that outlives the test by a moment and takes the lab away, however the test has ended.
//!
//! It waits for the end of a pipe that only the test holds. In a session of its own: Ctrl-C does not reach it.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{Guest, NotRun};

pub struct LabUndertaker(Child);

impl LabUndertaker {
    pub fn watch(dir: &Path, guests: &[&Guest]) -> Result<LabUndertaker, NotRun> {
        let mut script = String::from("PATH=$PATH:/usr/sbin:/sbin; exec 2>/dev/null; read -r _\n");
        for guest in guests {
            script.push_str(&format!("kill -9 -{}\n", guest.process()));
            script.push_str(&format!("ip link del {}\n", guest.tap()));
        }
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", &format!("{script}rm -rf \"$1\""), "undertaker"]).arg(dir).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(LabUndertaker).map_err(|e| NotRun(format!("setsid: {e}")))
    }
}

impl Drop for LabUndertaker {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
