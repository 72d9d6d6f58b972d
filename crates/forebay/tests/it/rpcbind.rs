//! Registered with a real rpcbind, in a network of its own: clients that are told no port find it.

use std::process::Command;

use crate::tier::forebay;

const SCRIPT: &str = r#"
set -e
mount -t tmpfs tmpfs /run
ip link set lo up
rpcbind -f -w & BIND=$!
trap 'kill $BIND $TIER 2>/dev/null' EXIT
until rpcinfo -p 127.0.0.1 >/dev/null 2>&1; do sleep 0.05; done
"$FOREBAY" serve --config "$DIR/forebay.toml" & TIER=$!
until rpcinfo -p 127.0.0.1 | grep -q mountd; do sleep 0.05; done
echo "== while it serves"; rpcinfo -p 127.0.0.1
showmount -e 127.0.0.1
nfs-ls nfs://127.0.0.1/show
kill -TERM $TIER; wait $TIER
echo "== after it stopped"; rpcinfo -p 127.0.0.1
"#;

#[test]
fn registered_with_rpcbind_it_is_found_without_a_port_and_leaves_nothing_behind() {
    let what = "registration with rpcbind";
    if !rustix::process::geteuid().is_root() {
        return testkit::lab::not_run(what, "needs root for a network of its own");
    }
    for tool in ["rpcbind", "showmount", "nfs-ls", "unshare"] {
        let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output().expect("sh");
        if !found.status.success() {
            return testkit::lab::not_run(what, &format!("{tool} is not installed"));
        }
    }
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().display();
    std::fs::create_dir(dir.path().join("tree")).expect("created");
    std::fs::write(dir.path().join("tree/hello"), b"hello").expect("written");
    let config = format!(
        "[cache]\ndir = \"{path}/cache\"\n[nfs]\nlisten = \"127.0.0.1:2049\"\nrpcbind = true\n\
         [[junction]]\npath = \"/show\"\norigin = \"file://{path}/tree\"\n"
    );
    std::fs::write(dir.path().join("forebay.toml"), config).expect("written");
    let mut command = Command::new("timeout");
    command.args(["30", "unshare", "--net", "--mount", "bash", "-c", SCRIPT]);
    let output =
        command.env("FOREBAY", forebay().get_program()).env("DIR", dir.path()).output().expect("runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let (before, after) = text.split_once("== after it stopped").expect("both parts");
    for line in ["100003    3   tcp   2049  nfs", "100005    3   tcp   2049  mountd", "/show", "hello"] {
        assert!(before.contains(line), "{line} is missing in:\n{before}");
    }
    assert!(!after.contains("100003") && !after.contains("100005"), "still registered:\n{after}");
}
