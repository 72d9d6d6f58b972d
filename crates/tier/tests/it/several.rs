use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use origin::{Change, Object, Origin};
use origin_nfs::NfsOrigin;
use quantity::Address;
use tier::running::RunningTier;
use tier::settings::{Overrides, Settings};
use tier::wire_up;
use types::{ByteRange, CreateHow, Name, SetAttr, Stability};

/// A tier at work, and a client of its NFS server.
struct Served {
    running: RunningTier,
    client: Arc<NfsOrigin>,
}

async fn serve(far: &Path, cache: &Path) -> Served {
    let file = format!(
        "[[junction]]\npath = \"/\"\norigin = \"file://{}\"\nfiles = \"always\"\ndirectories = \"always\"\nnegative = \"0s\"\n",
        far.display()
    );
    let any = Some(Address(([127, 0, 0, 1], 0).into()));
    let overrides = Overrides { cache: Some(cache.to_owned()), nfs: any, admin: any, ..Default::default() };
    let settings = Settings::build(toml::from_str(&file).expect("read"), &overrides).expect("good settings");
    let tier = wire_up::build(&settings).await.expect("built");
    let port = tier.nfs_address().expect("bound").expect("an NFS server").port();
    let mut running = RunningTier::start(tier);
    running.mount().await.expect("nothing to mount");
    let url = format!("nfs://127.0.0.1:{port}/?mountport={port}");
    let client =
        NfsOrigin::connect(origin_nfs::Config::from_url(&url).expect("an URL")).await.expect("connected");
    Served { running, client }
}

async fn read(client: &NfsOrigin, name: &'static str) -> Vec<u8> {
    let Object { reference, version, attr, .. } = find(client, name).await;
    client.read(&reference, version, ByteRange::new(0, attr.size)).await.expect("read").to_vec()
}

pub(crate) async fn find(client: &NfsOrigin, name: &'static str) -> Object {
    let root = client.root().await.expect("a root").reference;
    client.lookup(&root, &Name::new(name).expect("a name")).await.expect("there")
}

#[tokio::test(flavor = "multi_thread")]
async fn three_tiers_in_one_process_serve_one_directory_and_see_what_the_others_write() {
    let (far, caches) = (tempfile::tempdir().expect("made"), tempfile::tempdir().expect("made"));
    std::fs::write(far.path().join("old"), b"old").expect("written");
    // By default root is nobody at the tier.
    std::fs::set_permissions(far.path(), std::fs::Permissions::from_mode(0o777)).expect("opened to all");
    let mut tiers = Vec::new();
    for name in ["a", "b", "c"] {
        tiers.push(serve(far.path(), &caches.path().join(name)).await);
    }
    for (at, tier) in tiers.iter().enumerate() {
        assert_eq!(read(&tier.client, "old").await, b"old", "tier {at}");
        let asked = tier.running.admin().origin_metrics.bytes_of("/");
        assert_eq!(asked, 3, "each counts what it asked for itself");
    }
    let names = ["by-a", "by-b", "by-c"];
    for (tier, name) in tiers.iter().zip(names) {
        let dir = tier.client.root().await.expect("a root").reference;
        let (file, set) =
            (Name::new(name).expect("a name"), SetAttr { mode: Some(0o644), ..SetAttr::default() });
        let change = Change::Create { dir, name: file, how: CreateHow::Guarded, set };
        tier.client.change(&change).await.expect("made");
        let file = find(&tier.client, name).await.reference;
        tier.client.write(&file, 0, name.into(), Stability::FileSync).await.expect("written");
    }
    for (at, tier) in tiers.iter().enumerate() {
        for name in names {
            assert_eq!(read(&tier.client, name).await, name.as_bytes(), "tier {at}");
        }
    }
    for tier in tiers {
        tier.running.stop().await.expect("stopped");
    }
}

/// Two of them would overwrite each other's files.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_tier_in_the_same_cache_directory_is_refused() {
    let (far, cache) = (tempfile::tempdir().expect("made"), tempfile::tempdir().expect("made"));
    let first = serve(far.path(), cache.path()).await;
    let any = Some(Address(([127, 0, 0, 1], 0).into()));
    let overrides = Overrides {
        origin: vec![format!("file://{}", far.path().display())],
        cache: Some(cache.path().to_owned()),
        nfs: any,
        admin: any,
        ..Default::default()
    };
    let settings = Settings::build(Default::default(), &overrides).expect("good settings");
    let error = wire_up::build(&settings).await.err().expect("refused").to_string();
    assert!(error.contains("in use") || error.contains("another"), "{error}");
    first.running.stop().await.expect("stopped");
}
