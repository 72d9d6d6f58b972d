//! What boto3 does with the front, where a Python with boto3 is installed (`scripts/setup.sh test` makes one).

use std::path::PathBuf;

use testkit::lab::not_run;
use tokio::process::Command;

use crate::served::{KEY, REGION, SECRET, Served, serve};

fn python() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    let own = cache.join("forebay/boto3/bin/python");
    own.exists().then_some(own)
}

/// The script says that all is well, or what is not.
async fn runs(test: &str, script: &str, served: &Served) {
    let Some(python) = python() else { return not_run(test, "no Python here has boto3") };
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("script.py");
    std::fs::write(&path, script).expect("written");
    let endpoint = format!("http://{}", served.address);
    let run = Command::new(python)
        .arg(path)
        .args([&endpoint, KEY, SECRET, REGION])
        .env("HOME", dir.path())
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("NO_PROXY", "127.0.0.1")
        .env("no_proxy", "127.0.0.1")
        .output();
    let output = run.await.expect("it runs");
    let (told, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && told.contains("all is well"), "{told}\n{errors}");
    eprintln!("{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn boto3_lists_writes_under_conditions_and_removes_as_s3_documents_it() {
    let served = serve().await;
    let test = "boto3_lists_writes_under_conditions_and_removes_as_s3_documents_it";
    runs(test, include_str!("boto3/behaviour.py"), &served).await;
}

/// One that is overlooked deletes or replaces what it was sent to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_that_botocore_knows_is_offered_or_refused_and_changes_nothing() {
    let served = serve().await;
    let test = "every_operation_that_botocore_knows_is_offered_or_refused_and_changes_nothing";
    runs(test, include_str!("boto3/every_operation.py"), &served).await;
}
