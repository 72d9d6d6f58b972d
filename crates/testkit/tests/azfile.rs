//! The stand-in for Azure Files, held to the truth by Microsoft's own SDK.

use std::path::PathBuf;
use std::process::Command;

use testkit::azfile::{ACCOUNT, KEY, StandIn};
use testkit::lab::not_run;

/// A Python with the SDK: that of setup.sh, or any.
fn python_with_sdk() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let own = cache.map(|cache| cache.join("forebay/azure-files/bin/python"));
    let has = |python: &PathBuf| {
        let output = Command::new(python).args(["-c", "import azure.storage.fileshare"]).output();
        output.is_ok_and(|output| output.status.success())
    };
    own.into_iter().chain([PathBuf::from("python3")]).find(has)
}

#[tokio::test(flavor = "multi_thread")]
async fn microsofts_sdk_works_with_the_stand_in() {
    let Some(python) = python_with_sdk() else {
        return not_run(
            "microsofts_sdk_works_with_the_stand_in",
            "no Python here has azure-storage-file-share (scripts/setup.sh test makes one)",
        );
    };
    let stand_in = StandIn::start(&["share"]).await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/azfile.py");
    let endpoint = stand_in.endpoint();
    let run = tokio::task::spawn_blocking(move || {
        Command::new(python).args([script, &endpoint, ACCOUNT, KEY, "share"]).output().expect("it runs")
    });
    let output = run.await.expect("no panic");
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("all is well"), "{said}{wrong}");
    assert!(stand_in.requests() > 100);
}
