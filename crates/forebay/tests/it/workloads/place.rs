//! Where scripts run: on this machine or in the lab's client.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use testkit::lab::Guest;

/// Enough for 20,000 files in a guest, which starts processes slowly.
const DEADLINE: Duration = Duration::from_secs(3600);
/// What every script begins with.
const BEGIN: &str = include_str!("begin.sh");

#[derive(Clone, Copy)]
pub enum Place<'a> {
    Here,
    Client(&'a Guest),
}

impl Place<'_> {
    /// What `script` prints, in the directory `dir`, which is made if it is not there. `more` is shell that comes first.
    pub fn run(self, script: &str, dir: &Path, more: &str) -> String {
        let dir = dir.display();
        let script = format!("{BEGIN}\n{more}\nmkdir -p '{dir}'; cd '{dir}'\n{script}");
        match self {
            Place::Here => here(&script),
            Place::Client(guest) => {
                let output = guest.start(&script).wait(DEADLINE).expect("it ends");
                assert_eq!(output.status, 0, "in the guest: {}{}", output.stdout, output.stderr);
                output.stdout
            }
        }
    }
}

fn here(script: &str) -> String {
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=5", &DEADLINE.as_secs().to_string(), "bash", "-c", script])
        .stdin(Stdio::null());
    let output = command.output().expect("coreutils");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {stdout}{stderr}", output.status);
    stdout
}
