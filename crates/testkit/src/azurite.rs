//! Azure Blob Storage on this machine: Azurite, Microsoft's emulator, on a port and in a directory of its own.
//!
//! No Debian package has it; `scripts/setup.sh test` installs it from npm.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::hmac;

use crate::lab::NotRun;
use crate::process::{TestProcess, tool};

const PATIENCE: Duration = Duration::from_secs(120);
pub const ACCOUNT: &str = "forebaytest";
/// Base64, as the real ones are.
pub const KEY: &str =
    "bm90LWEtc2VjcmV0LW9mLWFueWJvZHktLW5vdC1hLXNlY3JldC1vZi1hbnlib2R5LS1ub3QtYS1zZWNyZXQtb2YtYW55";

/// Another one.
pub const NEW_KEY: &str =
    "YW5vdGhlci1zZWNyZXQtb2Ytbm9ib2R5LWFub3RoZXItc2VjcmV0LW9mLW5vYm9keS1hbm90aGVyLXNlY3JldC1vZi1ub2JvZHk=";

/// In the head of each request.
const VERSION: &str = "x-ms-version: 2021-12-02\r\n";

pub struct Azurite(TestProcess);

fn program() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")));
    let installed = cache?.join("forebay/azurite/node_modules/.bin/azurite-blob");
    if installed.is_file() { Some(installed) } else { tool("azurite-blob") }
}

impl Azurite {
    pub fn start() -> Result<Azurite, NotRun> {
        let process = TestProcess::start(
            "azurite",
            program(),
            PATIENCE,
            |command, dir, address| {
                command
                    .args(["--silent", "--disableTelemetry", "--blobHost", "127.0.0.1"])
                    .args(["--blobPort", &address.port().to_string(), "--location"])
                    .arg(dir.join("data"))
                    .env("AZURITE_ACCOUNTS", format!("{ACCOUNT}:{KEY}"));
            },
            |address| takes(address, KEY),
        )?;
        Ok(Azurite(process))
    }

    /// The same data, of an account that has another key since.
    pub fn change_key(&mut self, key: &str) {
        let accounts = format!("{ACCOUNT}:{key}");
        self.0.start_again(
            |command| {
                command.env("AZURITE_ACCOUNTS", accounts);
            },
            |address| takes(address, key),
        );
    }

    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    pub fn endpoint(&self) -> String {
        self.0.endpoint()
    }

    /// A file of variables with the key.
    pub fn credentials(&self) -> PathBuf {
        let path = self.0.dir().join("credentials");
        std::fs::write(&path, format!("AZURE_STORAGE_KEY={KEY}\n")).expect("written");
        path
    }

    /// Whether nothing is in this container.
    pub fn is_empty(&self, name: &str) -> bool {
        let path = format!("/{ACCOUNT}/{name}?restype=container&comp=list&{}", sas());
        let listed = crate::process::answer(self.0.address(), "GET", &path, VERSION, "").expect("an answer");
        assert!(listed.contains("<EnumerationResults"), "{listed}");
        !listed.contains("<Blob>")
    }

    pub fn make_container(&self, name: &str) {
        let path = format!("/{ACCOUNT}/{name}?restype=container&{}", sas());
        assert_eq!(ask(self.0.address(), "PUT", &path).expect("an answer"), 201, "a new container");
    }

    pub fn remove_container(&self, name: &str) {
        let path = format!("/{ACCOUNT}/{name}?restype=container&{}", sas());
        assert_eq!(ask(self.0.address(), "DELETE", &path).expect("an answer"), 202, "removed");
    }

    /// Something about the container itself, as operators change it; what is in it stays.
    pub fn describe_container(&self, name: &str) {
        let path = format!("/{ACCOUNT}/{name}?restype=container&comp=metadata&{}", sas());
        let headers = format!("{VERSION}x-ms-meta-owner: somebody\r\n");
        let told = crate::process::ask(self.0.address(), "PUT", &path, &headers, "");
        assert_eq!(told.expect("an answer"), 200, "described");
    }

    pub fn put_blob(&self, container: &str, name: &str, text: &str) {
        let path = format!("/{ACCOUNT}/{container}/{name}?{}", sas());
        let headers = format!("{VERSION}x-ms-blob-type: BlockBlob\r\n");
        let told = crate::process::ask(self.0.address(), "PUT", &path, &headers, text);
        assert_eq!(told.expect("an answer"), 201, "stored");
    }

    /// The text of a blob; what the service says where there is none.
    pub fn blob(&self, container: &str, name: &str) -> String {
        let path = format!("/{ACCOUNT}/{container}/{name}?{}", sas());
        crate::process::answer(self.0.address(), "GET", &path, VERSION, "").expect("an answer")
    }
}

fn takes(address: SocketAddr, key: &str) -> bool {
    let listed = ask(address, "GET", &format!("/{ACCOUNT}?comp=list&{}", sas_by(key)));
    listed.is_ok_and(|status| status == 200)
}

/// For clients that look for their key in the environment.
pub fn environment() -> [(&'static str, &'static str); 1] {
    [("AZURE_STORAGE_KEY", KEY)]
}

/// An account SAS, encoded: everything in blob storage is allowed, for longer than any test takes.
pub fn sas() -> String {
    sas_by(KEY)
}

fn sas_by(key: &str) -> String {
    let (permissions, until, version) = ("rwdlac", "2099-01-01T00:00:00Z", "2021-12-02");
    let said = [ACCOUNT, permissions, "b", "sco", "", until, "", "", version, "", ""].join("\n");
    let key = BASE64_STANDARD.decode(key).expect("Base64");
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), said.as_bytes());
    let signature = BASE64_STANDARD.encode(signature);
    let signature = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    let until = until.replace(':', "%3A");
    format!("sv={version}&ss=b&srt=sco&sp={permissions}&se={until}&sig={signature}")
}

fn ask(address: SocketAddr, method: &str, path: &str) -> std::io::Result<u16> {
    crate::process::ask(address, method, path, VERSION, "")
}
