//! A real S3 store on this machine: MinIO, on a port and in a directory of its own.
//!
//! No Debian package has it; `scripts/setup.sh test` builds it from its Go module.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::lab::{NotRun, not_run};
use crate::ports::free_port;

const UP_DEADLINE: Duration = Duration::from_secs(60);
pub const ACCESS_KEY: &str = "FOREBAYTEST";
pub const SECRET_KEY: &str = "not-a-secret-of-anybody";

pub struct Minio {
    process: Child,
    dir: tempfile::TempDir,
    port: u16,
}

/// Run `scenario` with a store. Prints "not run" with the reason where that is not possible, and fails then if
/// FOREBAY_MUST_RUN is set.
pub async fn with_minio<F: Future<Output = ()>>(name: &str, scenario: impl FnOnce(Minio) -> F) {
    match Minio::start() {
        Ok(minio) => scenario(minio).await,
        Err(NotRun(reason)) => not_run(name, &reason),
    }
}

/// What `scripts/setup.sh` builds is in a directory of its own, which need not be on the path.
pub fn tool(program: &str) -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/forebay-tools/bin"));
    let paths = std::env::var_os("PATH").map(|paths| std::env::split_paths(&paths).collect::<Vec<_>>());
    let mut candidates = home.into_iter().chain(paths.unwrap_or_default()).map(|dir| dir.join(program));
    candidates.find(|path| path.is_file())
}

impl Minio {
    pub fn start() -> Result<Minio, NotRun> {
        let program = tool("minio").ok_or_else(|| NotRun("minio is not installed".into()))?;
        let dir = tempfile::Builder::new().prefix("forebay-minio-").tempdir();
        let dir = dir.map_err(|e| NotRun(format!("temporary directory: {e}")))?;
        let (port, console) = (free_port(), free_port());
        let log = std::fs::File::create(dir.path().join("log")).map_err(|e| NotRun(format!("log: {e}")))?;
        let mut command = Command::new(program);
        command
            .args(["server", "--quiet", "--address", &format!("127.0.0.1:{port}")])
            .args(["--console-address", &format!("127.0.0.1:{console}")])
            .arg(dir.path().join("data"))
            .env("MINIO_ROOT_USER", ACCESS_KEY)
            .env("MINIO_ROOT_PASSWORD", SECRET_KEY)
            .env("MINIO_BROWSER", "off")
            .env("HOME", dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(|e| NotRun(format!("log: {e}")))?)
            .stderr(log)
            // Killed with the test's own group when that is interrupted.
            .process_group(0);
        let process = command.spawn().map_err(|e| NotRun(format!("minio: {e}")))?;
        let minio = Minio { process, dir, port };
        let begun = Instant::now();
        while !minio.is_ready() {
            if begun.elapsed() > UP_DEADLINE {
                let log = std::fs::read_to_string(minio.dir.path().join("log")).unwrap_or_default();
                panic!("minio does not come up: {log}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(minio)
    }

    fn is_ready(&self) -> bool {
        let answer = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(self.address())?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(b"GET /bucket HTTP/1.0\r\nHost: minio\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        // Its health says "ready" before it takes requests; this one is refused then as it should be.
        answer().is_ok_and(|answer| answer.split(' ').nth(1) == Some("403"))
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address())
    }

    /// A file of profiles with the keys.
    pub fn credentials(&self) -> PathBuf {
        let path = self.dir.path().join("credentials");
        let text =
            format!("[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n");
        std::fs::write(&path, text).expect("written");
        path
    }

    /// Objects with these keys beside one that is there, with its bytes, which must be few. By its administrator's way: on
    /// one disk a small object is a directory with one file in it that does not say whose it is.
    pub fn copy(&self, bucket: &str, key: &str, copies: impl Iterator<Item = String>) {
        let bucket = self.dir.path().join("data").join(bucket);
        let model = bucket.join(key).join("xl.meta");
        for copy in copies {
            let copy = bucket.join(copy);
            std::fs::create_dir(&copy).expect("made");
            std::fs::copy(&model, copy.join("xl.meta")).expect("copied");
        }
    }

    /// Uploads in parts that are neither complete nor given up, of all buckets: on one disk a directory each.
    pub fn uploads(&self) -> usize {
        let multipart = self.dir.path().join("data/.minio.sys/multipart");
        let of = |dir: std::fs::DirEntry| std::fs::read_dir(dir.path()).map_or(0, Iterator::count);
        std::fs::read_dir(multipart).map_or(0, |keys| keys.flatten().map(of).sum())
    }

    /// What is at the top of a bucket: on one disk names in its directory.
    pub fn names(&self, bucket: &str) -> Vec<String> {
        let entries =
            std::fs::read_dir(self.dir.path().join("data").join(bucket)).expect("a bucket").flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// A new bucket: on one disk it is a directory.
    pub fn make_bucket(&self, name: &str) {
        std::fs::create_dir(self.dir.path().join("data").join(name)).expect("a new bucket");
    }
}

/// For clients that look for their keys in the environment.
pub fn environment() -> [(&'static str, &'static str); 3] {
    [("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY), ("AWS_REGION", "us-east-1")]
}

impl Drop for Minio {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
