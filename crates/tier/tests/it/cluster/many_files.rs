//! Nothing in etcd grows with files.

use std::path::Path;

use origin::DirCursor;
use serde_json::Value;

use super::*;

const OF_A_DIRECTORY: usize = 1000;

/// The keys of the cluster, and the bytes of keys and values.
fn held(etcd: &EtcdServers) -> (Vec<String>, usize) {
    let told: Value = serde_json::from_str(&etcdctl_get(etcd)).expect("JSON");
    let all = told["kvs"].as_array().cloned().unwrap_or_default();
    // In base64, all of them.
    let text = |of: &Value, part: &str| of[part].as_str().unwrap_or_default().to_owned();
    let bytes = all.iter().map(|of| text(of, "key").len() + text(of, "value").len()).sum();
    (all.iter().map(|of| text(of, "key")).collect(), bytes)
}

fn etcdctl_get(etcd: &EtcdServers) -> String {
    etcd.etcdctl(&["get", "", "--prefix", "--write-out=json"])
}

fn make(far: &Path, files: usize) {
    for dir in 0..files / OF_A_DIRECTORY {
        let dir = far.join(format!("d{dir}"));
        std::fs::create_dir(&dir).expect("made");
        for file in 0..OF_A_DIRECTORY {
            std::fs::File::create(dir.join(format!("f{file}"))).expect("made");
        }
    }
    // Otherwise the first sync of a node would wait for the disk to write all of these.
    let made = std::fs::File::open(far).expect("there");
    rustix::fs::syncfs(made).expect("on the disk");
}

/// The objects of a directory whose attributes the node told, by all pages of its listing.
async fn list(client: &NfsOrigin, dir: &Reference) -> Vec<Object> {
    let (mut objects, mut cursor) = (Vec::new(), DirCursor::default());
    loop {
        let page = client.readdir(dir, cursor).await.expect("listed");
        objects.extend(page.entries.into_iter().filter_map(|entry| entry.object));
        match page.next {
            Some(next) => cursor = next,
            None => return objects,
        }
    }
}

/// 20,000 files; for the record 1,000,000 (`FOREBAY_MANY_FILES=1000000`).
#[tokio::test(flavor = "multi_thread")]
async fn etcd_has_the_same_keys_and_bytes_after_a_node_has_met_many_files() {
    with_etcd("etcd_has_the_same_keys_and_bytes_after_a_node_has_met_many_files", 1, async |etcd| {
        let files =
            std::env::var("FOREBAY_MANY_FILES").map_or(20_000, |said| said.parse().expect("a number"));
        let stage = Stage::make(etcd, 2).await;
        make(&stage.far(), files);
        let scene = stage.write("scene", 100_000);
        let (before, revision) = (held(&stage.etcd), stage.etcd.revision());
        assert!(before.0.len() > 4, "there is a cluster: {before:?}");
        let client = &stage.nodes[0].client;
        let mut met = 0;
        for dir in list(client, &root(client).await).await {
            if dir.attr.kind == types::FileKind::Directory {
                met += list(client, &dir.reference).await.len();
            }
        }
        // What is read is placed, and what is changed is told.
        assert!(read(&stage.nodes[1].client, "scene").await == scene);
        write_at(client, "written", b"by one node").await;
        until_seen(&stage.nodes[1].client, "written", |seen| seen.is_some()).await;
        let after = held(&stage.etcd);
        println!("etcd after {met} files: {} keys, {} bytes in base64", after.0.len(), after.1);
        assert_eq!(met, files / OF_A_DIRECTORY * OF_A_DIRECTORY);
        assert_eq!(after, before);
        assert_eq!(stage.etcd.revision(), revision, "nothing was written there meanwhile");
        stage.stop().await;
    })
    .await;
}
