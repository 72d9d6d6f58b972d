//! What clients get while the origin cannot be reached.

use std::time::Duration;

use namespace::Freshness;
use types::{Caller, ErrorKind};

use crate::harness::{AFTER_TTL, Mode, joined, kind, rule, tier, tier_with};

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_serves_what_is_cached() {
    for always in [false, true] {
        let t = tier_with(Mode::NoReadahead, |junction| {
            if always {
                rule(Freshness::Always)(junction);
            }
        });
        t.far.memory.mkdir(b"dir").unwrap();
        t.far.memory.write_file(b"dir/cached", &[7; 200_000]).unwrap();
        t.far.memory.write_file(b"dir/cold", &[8; 200_000]).unwrap();
        t.far.memory.symlink(b"dir/link", b"cached").unwrap();
        let (dir, cached) = (t.id(b"/dir").await, t.id(b"/dir/cached").await);
        let (cold, link) = (t.id(b"/dir/cold").await, t.id(b"/dir/link").await);
        let root = Caller::root();
        let before = t.vfs.readdir(&root, dir, 0, 100).await.unwrap();
        t.vfs.readlink(&root, link).await.unwrap();
        t.read(cached, 0, 200_000).await.unwrap();

        t.far.set_down(true);
        t.pass(AFTER_TTL);
        t.vfs.getattr(cached).await.unwrap(); // the first may meet the outage
        // The origin hangs from now on: whoever waits for it, waits for ever.
        let hung = t.far.gate.write().await;
        let served = async {
            for _ in 0..50 {
                assert_eq!(joined(&t.read(cached, 0, 200_000).await.unwrap()), [7; 200_000]);
                assert_eq!(t.id(b"/dir/cached").await, cached);
                assert_eq!(t.vfs.getattr(cold).await.unwrap().attr.size, 200_000);
                let listed = t.vfs.readdir(&root, dir, 0, 100).await.unwrap();
                assert_eq!(listed.items.len(), before.items.len());
                assert_eq!(t.vfs.readlink(&root, link).await.unwrap().0, b"cached"[..]);
            }
        };
        tokio::time::timeout(Duration::from_secs(20), served).await.expect("nobody waits for the origin");
        drop(hung);

        assert_eq!(kind(t.read(cold, 0, 1000).await), Some(ErrorKind::Unavailable));
        t.far.set_down(false);
        assert_eq!(joined(&t.read(cold, 0, 200_000).await.unwrap()), [8; 200_000]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_cache_an_outage_is_an_outage() {
    let t = tier(Mode::Bypass);
    t.far.memory.write_file(b"file", b"abc").unwrap();
    let id = t.id(b"/file").await;
    t.read(id, 0, 3).await.unwrap();
    t.far.set_down(true);
    assert_eq!(kind(t.read(id, 0, 3).await), Some(ErrorKind::Unavailable));
    t.far.set_down(false);
    assert_eq!(joined(&t.read(id, 0, 3).await.unwrap()), b"abc");
}
