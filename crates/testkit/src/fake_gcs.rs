//! fake-gcs-server: an emulator of Google Cloud Storage that others wrote, and many use. In memory.
//!
//! No Debian package has it; `scripts/setup.sh test` builds it from its Go module.

use std::time::Duration;

use crate::lab::NotRun;
use crate::process::{TestProcess, ask, tool};

const PATIENCE: Duration = Duration::from_secs(60);

pub struct FakeGcs(TestProcess);

impl FakeGcs {
    pub fn start() -> Result<FakeGcs, NotRun> {
        let process = TestProcess::start(
            "fake-gcs-server",
            tool("fake-gcs-server"),
            PATIENCE,
            |command, _, address| {
                let (host, port) = (address.ip().to_string(), address.port().to_string());
                command.args(["-scheme", "http", "-backend", "memory", "-log-level", "error"]).args([
                    "-host",
                    &host,
                    "-port",
                    &port,
                    "-public-host",
                    &address.to_string(),
                ]);
            },
            |address| ask(address, "GET", "/_internal/healthcheck", "", "").is_ok_and(|status| status == 200),
        )?;
        Ok(FakeGcs(process))
    }

    pub fn endpoint(&self) -> String {
        self.0.endpoint()
    }

    pub fn make_bucket(&self, name: &str) {
        let body = format!("{{\"name\":\"{name}\"}}");
        let status = ask(self.0.address(), "POST", "/storage/v1/b?project=p", "", &body);
        assert_eq!(status.expect("an answer"), 200, "a new bucket");
    }
}
