//! Azure Blob Storage on this machine: Azurite, Microsoft's emulator, on a port and in a directory of its own.
//!
//! No Debian package has it; `scripts/setup.sh test` installs it from npm.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::hmac;

use crate::lab::NotRun;
use crate::ports::free_port;

const UP_DEADLINE: Duration = Duration::from_secs(120);
pub const ACCOUNT: &str = "forebaytest";
/// Base64, as the real ones are.
pub const KEY: &str =
    "bm90LWEtc2VjcmV0LW9mLWFueWJvZHktLW5vdC1hLXNlY3JldC1vZi1hbnlib2R5LS1ub3QtYS1zZWNyZXQtb2YtYW55";

pub struct Azurite {
    process: Child,
    dir: tempfile::TempDir,
    port: u16,
}

fn program() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")));
    let installed = cache?.join("forebay/azurite/node_modules/.bin/azurite-blob");
    if installed.is_file() { Some(installed) } else { crate::minio::tool("azurite-blob") }
}

impl Azurite {
    pub fn start() -> Result<Azurite, NotRun> {
        let program = program().ok_or_else(|| NotRun("azurite is not installed".into()))?;
        let dir = tempfile::Builder::new().prefix("forebay-azurite-").tempdir();
        let dir = dir.map_err(|e| NotRun(format!("temporary directory: {e}")))?;
        let port = free_port();
        let log = std::fs::File::create(dir.path().join("log")).map_err(|e| NotRun(format!("log: {e}")))?;
        let mut command = Command::new(program);
        command
            .args(["--silent", "--disableTelemetry", "--blobHost", "127.0.0.1"])
            .args(["--blobPort", &port.to_string(), "--location"])
            .arg(dir.path().join("data"))
            .env("AZURITE_ACCOUNTS", format!("{ACCOUNT}:{KEY}"))
            .env("HOME", dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(|e| NotRun(format!("log: {e}")))?)
            .stderr(log)
            .process_group(0);
        let process = command.spawn().map_err(|e| NotRun(format!("azurite: {e}")))?;
        let azurite = Azurite { process, dir, port };
        let begun = Instant::now();
        while !azurite.is_ready() {
            if begun.elapsed() > UP_DEADLINE {
                let log = std::fs::read_to_string(azurite.dir.path().join("log")).unwrap_or_default();
                panic!("azurite does not come up: {log}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(azurite)
    }

    /// The status of the answer to a request without a body.
    fn ask(&self, method: &str, path: &str) -> std::io::Result<u16> {
        let mut stream = TcpStream::connect(self.address())?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nx-ms-version: 2021-12-02\r\nContent-Length: 0\r\n\
             Connection: close\r\n\r\n",
            self.address()
        );
        stream.write_all(head.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        status.ok_or_else(|| std::io::Error::other(format!("no HTTP: {answer:?}")))
    }

    fn is_ready(&self) -> bool {
        let listed = self.ask("GET", &format!("/{ACCOUNT}?comp=list&{}", sas()));
        listed.is_ok_and(|status| status == 200)
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address())
    }

    /// A file of variables with the key.
    pub fn credentials(&self) -> PathBuf {
        let path = self.dir.path().join("credentials");
        std::fs::write(&path, format!("AZURE_STORAGE_KEY={KEY}\n")).expect("written");
        path
    }

    pub fn make_container(&self, name: &str) {
        let path = format!("/{ACCOUNT}/{name}?restype=container&{}", sas());
        assert_eq!(self.ask("PUT", &path).expect("an answer"), 201, "a new container");
    }
}

/// For clients that look for their key in the environment.
pub fn environment() -> [(&'static str, &'static str); 1] {
    [("AZURE_STORAGE_KEY", KEY)]
}

/// An account SAS, encoded: everything in blob storage is allowed, for longer than any test takes.
pub fn sas() -> String {
    let (permissions, until, version) = ("rwdlac", "2099-01-01T00:00:00Z", "2021-12-02");
    let said = [ACCOUNT, permissions, "b", "sco", "", until, "", "", version, "", ""].join("\n");
    let key = BASE64_STANDARD.decode(KEY).expect("Base64");
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), said.as_bytes());
    let signature = BASE64_STANDARD.encode(signature);
    let signature = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    let until = until.replace(':', "%3A");
    format!("sv={version}&ss=b&srt=sco&sp={permissions}&se={until}&sig={signature}")
}

impl Drop for Azurite {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
