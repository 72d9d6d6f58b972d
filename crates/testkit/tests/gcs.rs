//! The stand-in for Google Cloud Storage, held to the truth by Google's own SDK.

use std::path::PathBuf;
use std::process::Command;

use testkit::gcs::Gcs;
use testkit::lab::{NotRun, not_run};

/// A Python with the SDK: that of setup.sh, or any.
fn python_with_sdk() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let own = cache.map(|cache| cache.join("forebay/gcs/bin/python"));
    let has = |python: &PathBuf| {
        let output = Command::new(python).args(["-c", "import google.cloud.storage"]).output();
        output.is_ok_and(|output| output.status.success())
    };
    own.into_iter().chain([PathBuf::from("python3")]).find(has)
}

#[test]
fn googles_sdk_works_with_the_stand_in() {
    let name = "googles_sdk_works_with_the_stand_in";
    let Some(python) = python_with_sdk() else {
        return not_run(name, "no Python here has google-cloud-storage (scripts/setup.sh test makes one)");
    };
    let stand_in = match Gcs::start() {
        Ok(stand_in) => stand_in,
        Err(NotRun(reason)) => return not_run(name, &reason),
    };
    stand_in.make_bucket("private-bucket");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gcs.py");
    let output = Command::new(python)
        .args([script, &stand_in.endpoint(), "private-bucket"])
        .arg(stand_in.credentials())
        .output()
        .expect("it runs");
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("all is well"), "{said}{wrong}");
    assert!(stand_in.requests() > 40);
    assert_eq!(stand_in.issued(), 1, "the SDK signed its request for a token as we do");
}
