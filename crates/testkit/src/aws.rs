//! What others do with a bucket: awscli, which speaks to the store itself.

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use crate::minio::{Minio, environment};

static INSTALLED: LazyLock<bool> = LazyLock::new(|| Command::new("aws").arg("--version").output().is_ok());

/// Says "not run" for the test where it is not.
pub fn is_installed(test: &str) -> bool {
    if !*INSTALLED {
        crate::lab::not_run(test, "Debian's awscli is not installed");
    }
    *INSTALLED
}

pub fn aws(endpoint: &str, arguments: &[&str]) -> String {
    let mut command = Command::new("aws");
    let output = command.args(["--endpoint-url", endpoint]).args(arguments).envs(environment()).output();
    let output = output.expect("it is installed");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

/// The bytes of a file as an object, in one step.
pub fn put(minio: &Minio, bucket: &str, key: &str, file: &Path) {
    let file = file.to_str().expect("text");
    aws(&minio.endpoint(), &["s3api", "put-object", "--bucket", bucket, "--key", key, "--body", file]);
}
