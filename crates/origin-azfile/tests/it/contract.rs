//! The contract of all origins, and random changes.

use std::sync::Arc;

use async_trait::async_trait;
use origin::{Change as Own, Origin};
use origin_azfile::AzFileOrigin;
use testkit::azfile::StandIn;
use testkit::origin_contract::{
    Change, Has, Subject, run_changes_with, run_random_changes_with, run_with, seed,
};
use types::{CreateHow, Name, Result, SetAttr, Stability};

use crate::share::{connect, find};

/// What others do is done by another origin.
struct Changed {
    ours: Arc<AzFileOrigin>,
    theirs: Arc<AzFileOrigin>,
}

fn split(path: &[u8]) -> (&str, Name) {
    let path = std::str::from_utf8(path).expect("text");
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    (dir, Name::new(name.as_bytes().to_vec()).expect("a name"))
}

impl Changed {
    async fn carry_out(&self, change: Change<'_>) -> Result<()> {
        let their = &self.theirs;
        let dir_of = async |path: &str| match path {
            "" => their.root().await.map(|root| root.reference),
            path => find(their, path).await.map(|dir| dir.reference),
        };
        let set = SetAttr::default();
        match change {
            Change::Mkdir(path) => {
                let (dir, name) = split(path);
                their.change(&Own::Mkdir { dir: dir_of(dir).await?, name, set }).await?;
            }
            Change::Write(path, bytes) => {
                let (dir, name) = split(path);
                let (dir, how, set) =
                    (dir_of(dir).await?, CreateHow::Unchecked, SetAttr { size: Some(0), ..set });
                let file = their.change(&Own::Create { dir, name, how, set }).await?.made()?.reference;
                if !bytes.is_empty() {
                    their.write(&file, 0, bytes.to_vec().into(), Stability::FileSync).await?;
                }
            }
            Change::Remove(path) => {
                let (dir, name) = split(path);
                let dir = dir_of(dir).await?;
                let is_dir = their.lookup(&dir, &name).await?.attr.is_dir();
                let change = if is_dir { Own::Rmdir { dir, name } } else { Own::Remove { dir, name } };
                their.change(&change).await?;
            }
            Change::Rename(from, to) => {
                let ((from_dir, from), (to_dir, to)) = (split(from), split(to));
                let (from_dir, to_dir) = (dir_of(from_dir).await?, dir_of(to_dir).await?);
                their.change(&Own::Rename { from_dir, from, to_dir, to, identity: None }).await?;
            }
            Change::Symlink(path, target) => {
                let (dir, name) = split(path);
                let target = target.to_vec().into();
                their.change(&Own::Symlink { dir: dir_of(dir).await?, name, target, set }).await?;
            }
            Change::Link(..) => unreachable!("a share has none"),
        }
        Ok(())
    }
}

#[async_trait]
impl Subject for Changed {
    fn origin(&self) -> Arc<dyn Origin> {
        self.ours.clone()
    }

    async fn change(&self, change: Change<'_>) {
        self.carry_out(change).await.expect("the change is possible");
    }
}

const STORED: &str = "&attributes=stored";

#[tokio::test(flavor = "multi_thread")]
async fn a_share_keeps_the_contract() {
    let stand_in = StandIn::start(&["share"]).await;
    let (ours, theirs) =
        (connect(&stand_in, "share", STORED).await, connect(&stand_in, "share", STORED).await);
    run_with(&Changed { ours, theirs }, Has::SHARE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_is_changed_as_the_contract_says() {
    let stand_in = StandIn::start(&["share"]).await;
    let origin: Arc<dyn Origin> = connect(&stand_in, "share", STORED).await;
    run_changes_with(&origin, Has::SHARE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_a_share_is_changed_as_the_contract_says() {
    let stand_in = StandIn::start(&["share"]).await;
    let top = connect(&stand_in, "share", "").await;
    crate::share::mkdir(&top, &crate::share::root(&top).await, "show 1").await.expect("made");
    let origin: Arc<dyn Origin> = connect(&stand_in, "share/show 1", STORED).await;
    run_changes_with(&origin, Has::SHARE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_changes_end_at_a_share_as_they_do_in_memory() {
    let seed = seed();
    println!("seed {seed}");
    let stand_in = StandIn::start(&["share"]).await;
    let origin: Arc<dyn Origin> = connect(&stand_in, "share", STORED).await;
    run_random_changes_with(&origin, seed, 400, Has::SHARE).await;
}
