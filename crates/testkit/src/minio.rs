//! A real S3 store on this machine: MinIO, on a port and in a directory of its own.
//!
//! No Debian package has it; `scripts/setup.sh test` builds it from its Go module.

mod admin;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::lab::{NotRun, not_run};
use crate::ports::free_port;
use crate::process::{TestProcess, ask, tool};

const PATIENCE: Duration = Duration::from_secs(60);
pub const ACCESS_KEY: &str = "FOREBAYTEST";
pub const SECRET_KEY: &str = "not-a-secret-of-anybody";

pub struct Minio(TestProcess);

/// Run `scenario` with a store. Prints "not run" with the reason where that is not possible, and fails then if
/// FOREBAY_MUST_RUN is set.
pub async fn with_minio<F: Future<Output = ()>>(name: &str, scenario: impl FnOnce(Minio) -> F) {
    match Minio::start() {
        Ok(minio) => scenario(minio).await,
        Err(NotRun(reason)) => not_run(name, &reason),
    }
}

impl Minio {
    pub fn start() -> Result<Minio, NotRun> {
        let process = TestProcess::start(
            "minio",
            tool("minio"),
            PATIENCE,
            |command, dir, address| {
                command
                    .args(["server", "--quiet", "--address", &address.to_string()])
                    .args(["--console-address", &format!("127.0.0.1:{}", free_port())])
                    .arg(dir.join("data"))
                    .env("MINIO_ROOT_USER", ACCESS_KEY)
                    .env("MINIO_ROOT_PASSWORD", SECRET_KEY)
                    .env("MINIO_BROWSER", "off");
            },
            is_ready,
        )?;
        Ok(Minio(process))
    }

    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    pub fn endpoint(&self) -> String {
        self.0.endpoint()
    }

    /// A file of profiles with the keys.
    pub fn credentials(&self) -> PathBuf {
        let path = self.0.dir().join("credentials");
        std::fs::write(&path, profile(ACCESS_KEY, SECRET_KEY)).expect("written");
        path
    }

    /// Objects with these keys beside one that is there, with its bytes, which must be few. By its administrator's way: on
    /// one disk a small object is a directory with one file in it that does not say whose it is.
    pub fn copy(&self, bucket: &str, key: &str, copies: impl Iterator<Item = String>) {
        let bucket = self.0.dir().join("data").join(bucket);
        let model = bucket.join(key).join("xl.meta");
        for copy in copies {
            let copy = bucket.join(copy);
            std::fs::create_dir(&copy).expect("made");
            std::fs::copy(&model, copy.join("xl.meta")).expect("copied");
        }
    }

    /// Uploads in parts that are neither complete nor given up, of all buckets: on one disk a directory each.
    pub fn uploads(&self) -> usize {
        let multipart = self.0.dir().join("data/.minio.sys/multipart");
        let of = |dir: std::fs::DirEntry| std::fs::read_dir(dir.path()).map_or(0, Iterator::count);
        std::fs::read_dir(multipart).map_or(0, |keys| keys.flatten().map(of).sum())
    }

    /// Gives up all of them, as a rule of their buckets would after some days.
    pub fn end_uploads(&self) {
        let multipart = self.0.dir().join("data/.minio.sys/multipart");
        for dir in std::fs::read_dir(multipart).into_iter().flatten().flatten() {
            std::fs::remove_dir_all(dir.path()).expect("nobody else does that");
        }
    }

    /// What is at the top of a bucket: on one disk names in its directory.
    pub fn names(&self, bucket: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.dir().join("data").join(bucket)).expect("a bucket").flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// A user with a key of its own, who may do what this policy says: one of MinIO's, or one that was added.
    pub fn add_user(&self, name: &str, secret: &str, policy: &str) {
        let told = format!("{{\"secretKey\":\"{secret}\",\"status\":\"enabled\"}}");
        let told = admin::encrypted(SECRET_KEY, told.as_bytes());
        admin::put(self.address(), "add-user", &[("accessKey", name)], &told);
        self.give_policy(name, policy);
    }

    /// In place of the ones that this user has.
    pub fn give_policy(&self, user: &str, policy: &str) {
        let query = [("isGroup", "false"), ("policyName", policy), ("userOrGroup", user)];
        admin::put(self.address(), "set-user-or-group-policy", &query, b"");
    }

    /// What may be done, in the JSON of AWS.
    pub fn add_policy(&self, name: &str, statements: &str) {
        let policy = format!("{{\"Version\":\"2012-10-17\",\"Statement\":{statements}}}");
        admin::put(self.address(), "add-canned-policy", &[("name", name)], policy.as_bytes());
    }

    pub fn enable_user(&self, name: &str, enabled: bool) {
        let status = if enabled { "enabled" } else { "disabled" };
        admin::put(self.address(), "set-user-status", &[("accessKey", name), ("status", status)], b"");
    }

    /// With all that is in it.
    pub fn remove_bucket(&self, name: &str) {
        std::fs::remove_dir_all(self.0.dir().join("data").join(name)).expect("a bucket");
    }

    /// A new bucket: on one disk it is a directory.
    pub fn make_bucket(&self, name: &str) {
        std::fs::create_dir(self.0.dir().join("data").join(name)).expect("a new bucket");
    }
}

/// What concerns a bucket as a whole.
impl Minio {
    /// By its interface, so that it has a date.
    pub fn create_bucket(&self, name: &str) {
        admin::put_at(self.address(), &format!("/{name}"), &[], b"");
    }

    /// Who shows no key may do everything with what is in it, so that plain HTTP does.
    pub fn open_to_anyone(&self, bucket: &str) {
        let policy = format!(
            "{{\"Version\":\"2012-10-17\",\"Statement\":[{{\"Effect\":\"Allow\",\"Principal\":{{\"AWS\":[\"*\"]}},\
             \"Action\":[\"s3:ListBucket\",\"s3:GetObject\",\"s3:PutObject\",\"s3:DeleteObject\"],\
             \"Resource\":[\"arn:aws:s3:::{bucket}\",\"arn:aws:s3:::{bucket}/*\"]}}]}}"
        );
        admin::put_at(self.address(), &format!("/{bucket}"), &[("policy", "")], policy.as_bytes());
    }

    /// What is in it, as another bucket, which is made by this.
    pub fn copy_bucket(&self, name: &str, copy: &str) {
        let data = self.0.dir().join("data");
        let done =
            std::process::Command::new("cp").arg("-a").arg(data.join(name)).arg(data.join(copy)).status();
        assert!(done.is_ok_and(|status| status.success()), "{name} is not copied");
    }

    /// What is in one is in the other from now on, in one step; what the buckets are themselves stays.
    pub fn exchange(&self, one: &str, other: &str) {
        let data = self.0.dir().join("data");
        let (here, how) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
        rustix::fs::renameat_with(here, data.join(one), here, data.join(other), how).expect("exchanged");
    }
}

/// A file of profiles with these keys.
pub fn profile(key: &str, secret: &str) -> String {
    format!("[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")
}

/// For clients that look for their keys in the environment.
pub fn environment() -> [(&'static str, &'static str); 3] {
    [("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY), ("AWS_REGION", "us-east-1")]
}

/// Its health says "ready" before it takes requests, and it takes some before it knows any keys: one with a key that
/// nobody has is refused as it should be (403, not 503) when it does.
fn is_ready(address: SocketAddr) -> bool {
    let nobody = "/bucket?AWSAccessKeyId=nobody&Signature=c2ln&Expires=4000000000";
    ask(address, "GET", nobody, "", "").is_ok_and(|status| status == 403)
}
