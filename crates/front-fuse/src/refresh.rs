//! Two watchers. One forwards changes that the tier learns of, by any front, so that the kernel drops what it has
//! before its timeouts end. The other revalidates files that are open and being written: the kernel asks nothing
//! about them as long as it has pages.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use types::{FileId, Name};
use vfs::{ChangeListener, Node};

use crate::FuseState;
use crate::inodes::NegativeNames;

/// The period of the second; a file is asked about only when its freshness is over.
const ROUND: Duration = Duration::from_secs(1);
/// The most files that are asked about at the same time.
const TOGETHER: usize = 16;

pub async fn forward_changes(shared: Arc<FuseState>, mut changes: ChangeListener) {
    while let Some(change) = changes.next().await {
        match change {
            Some(file) => shared.invalidate(file).await,
            // Running timeouts may be longer than they would be now: the kernel must ask for every name again.
            None => {
                let files = shared.inodes().all_files();
                files.into_iter().for_each(|file| shared.invalidate_all(file));
            }
        }
    }
}

impl FuseState {
    /// Invalidates an object that changed. A name that still leads to it is not expired: to expire one, the kernel
    /// locks the directory, which a process that waits for our answer may hold.
    async fn invalidate(&self, file: FileId) {
        let Some((number, place)) = self.inodes().place_of(file) else { return };
        let place = match place {
            // The next look-up of a held version gets another number.
            Some(place) if self.inodes().held_node(number).is_some() => Some(place),
            Some((dir, name)) if self.stands_for(dir, &name).await == Some(Some(file)) => None,
            place => place,
        };
        self.invalidations.object(number, place);
        let absent = self.inodes().negatives_in(number);
        let to_forget = match absent {
            NegativeNames::Few(names) => self.names_now_present(number, names).await,
            NegativeNames::Many(names) => names,
        };
        self.invalidations.names(number, to_forget);
    }

    fn invalidate_all(&self, file: FileId) {
        let mut inodes = self.inodes();
        let Some((number, place)) = inodes.place_of(file) else { return };
        let absent = inodes.take_negatives(number);
        drop(inodes);
        self.invalidations.object(number, place);
        self.invalidations.names(number, absent);
    }

    async fn names_now_present(&self, dir: u64, names: Vec<Bytes>) -> HashSet<Bytes> {
        let mut there = HashSet::new();
        for name in names {
            if self.stands_for(dir, &name).await != Some(None) {
                self.inodes().clear_negative(dir, &name);
                there.insert(name);
            }
        }
        there
    }

    async fn stands_for(&self, dir: u64, name: &Bytes) -> Option<Option<FileId>> {
        self.vfs.stands_for(self.file(dir).ok()?, &Name::new(name.clone()).ok()?).await
    }
}

pub async fn refresh_followed(shared: Arc<FuseState>) {
    loop {
        tokio::time::sleep(ROUND).await;
        let mut asking = JoinSet::new();
        let following = shared.inodes().following();
        for (number, node) in following {
            if !shared.vfs.fresh_for(&node).is_zero() {
                continue;
            }
            while asking.len() >= TOGETHER {
                asking.join_next().await;
            }
            asking.spawn(revalidate(shared.clone(), number, node));
        }
        while asking.join_next().await.is_some() {}
    }
}

async fn revalidate(shared: Arc<FuseState>, number: u64, node: Node) {
    // A file that is removed or unreachable keeps its state for those that have it open.
    let Ok(now) = shared.vfs.getattr_in_use(node.id).await else { return };
    if shared.inodes_for(&now).attributes_of(number, now).pages_stale {
        shared.invalidations.pages(number);
    }
}
