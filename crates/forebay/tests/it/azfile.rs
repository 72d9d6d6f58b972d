//! A share of Azure Files as the origin of a tier, by a mount, over a stand-in for the service.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::azfile::{StandIn, credentials};

use crate::objects::{check, check_renamed, rename_while_open, work};
use crate::tier::Tier;

const BACK: &str = "write = \"back\"\nflush_delay = \"1h\"";
const THROUGH: &str = "write = \"through\"\nfiles = \"1s\"\ndirectories = \"1s\"\nnegative = \"1s\"";

/// A tier with a cache of its own, mounted.
struct Mounted {
    tier: Tier,
    root: PathBuf,
    _dir: tempfile::TempDir,
}

impl Mounted {
    fn new(stand_in: &StandIn, more: &str) -> Mounted {
        let dir = tempfile::tempdir().expect("temporary directory");
        let root = dir.path().join("mnt");
        fs::create_dir_all(&root).expect("made");
        let url = stand_in.url("share", &format!("&credentials={}", credentials(dir.path()).display()));
        let junction = format!("[[junction]]\npath = \"/\"\norigin = \"{url}\"\n{more}\n");
        Mounted { tier: Tier::start_mounted(dir.path(), &junction, Some(&root)), root, _dir: dir }
    }

    fn flush(&self) {
        self.tier.json(&["flush", "--wait"]);
    }
}

/// Written through one tier and read by another, which has never seen any of it.
async fn written_and_read(policy: &str) {
    let stand_in = StandIn::start(&["share"]).await;
    let mut first = Mounted::new(&stand_in, policy);
    work(&first.root);
    check(&first.root);
    if policy == BACK {
        first.flush();
        check(&first.root);
    }
    assert_eq!(first.tier.stop(), Some(0));
    let mut second = Mounted::new(&stand_in, "");
    check(&second.root);
    second.tier.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_through_is_on_the_share() {
    written_and_read(THROUGH).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_back_is_on_the_share_when_it_is_flushed() {
    written_and_read(BACK).await;
}

async fn renamed_while_open(policy: &str) {
    let stand_in = StandIn::start(&["share"]).await;
    let mut first = Mounted::new(&stand_in, policy);
    rename_while_open(&first.root, &|| {
        if policy == BACK {
            first.flush();
        }
    });
    assert_eq!(first.tier.stop(), Some(0));
    let mut second = Mounted::new(&stand_in, "");
    check_renamed(&second.root);
    second.tier.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_on_a_share_that_is_renamed_while_it_is_open_is_the_same_file() {
    renamed_while_open(THROUGH).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_on_a_share_that_is_renamed_between_flushes_is_the_same_file() {
    renamed_while_open(BACK).await;
}

fn names(dir: &Path) -> Vec<String> {
    let listed = fs::read_dir(dir).expect("listed");
    let mut names: Vec<_> =
        listed.map(|entry| entry.expect("listed").file_name().into_string().expect("text")).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_change_on_the_share_shows_and_is_kept_beside_ours() {
    let stand_in = StandIn::start(&["share"]).await;
    let mut ours = Mounted::new(&stand_in, BACK);
    let mut theirs = Mounted::new(&stand_in, THROUGH);
    fs::create_dir(ours.root.join("dir")).expect("made");
    fs::write(ours.root.join("dir/plan"), b"base").expect("written");
    ours.flush();
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(fs::read(theirs.root.join("dir/plan")).expect("read"), b"base");
    // Both change it; ours waits here.
    fs::write(ours.root.join("dir/plan"), b"ours").expect("written");
    fs::write(theirs.root.join("dir/plan"), b"theirs, longer").expect("written");
    ours.flush();
    std::thread::sleep(Duration::from_millis(1_500));
    let all = names(&theirs.root.join("dir"));
    assert!(all.len() == 2 && all[0] == "plan" && all[1].starts_with("plan.conflict-"), "{all:?}");
    assert_eq!(fs::read(theirs.root.join("dir/plan")).expect("read"), b"theirs, longer");
    assert_eq!(fs::read(theirs.root.join("dir").join(&all[1])).expect("read"), b"ours");
    for mounted in [&mut ours, &mut theirs] {
        assert_eq!(mounted.tier.stop(), Some(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_the_share_cannot_have_is_refused_to_the_program() {
    let stand_in = StandIn::start(&["share"]).await;
    let mut mounted = Mounted::new(&stand_in, THROUGH);
    let refused = fs::write(mounted.root.join("what?"), b"x").expect_err("refused");
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput, "{refused}");
    assert_eq!(
        fs::read(mounted.root.join("what?")).expect_err("absent").kind(),
        std::io::ErrorKind::NotFound
    );
    assert!(names(&mounted.root).is_empty());
    assert_eq!(mounted.tier.stop(), Some(0));
}
