//! Two watchers: one passes on what the tier learns of changes, by whichever front, so that the kernel lets go
//! before its timers run out; one asks about files that are open and being written, whose readers ask nobody as
//! long as the kernel has pages.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use types::{FileId, Name};
use vfs::{Changes, Node};

use crate::Shared;
use crate::inodes::Absent;

/// How often the open files are looked at; each is asked about only when its freshness is over.
const ROUND: Duration = Duration::from_secs(1);
/// Files asked about at the same time.
const TOGETHER: usize = 16;

pub async fn pass_on(shared: Arc<Shared>, mut changes: Changes) {
    while let Some(change) = changes.next().await {
        match change {
            Some(file) => shared.tell(file).await,
            // Timers that run may be longer than they would be now: the kernel is to ask for every name too.
            None => {
                let files = shared.inodes().all_files();
                files.into_iter().for_each(|file| shared.tell_anew(file));
            }
        }
    }
}

impl Shared {
    /// The object changed. Names that stand for what they stood for are left to the kernel: to take one from it we would
    /// wait for its directory, which may be held by somebody who waits for an answer of ours.
    async fn tell(&self, file: FileId) {
        let Some((number, place)) = self.inodes().place_of(file) else { return };
        let place = match place {
            // A version that is held has another number than the one that is looked up next.
            Some(place) if self.inodes().held(number).is_some() => Some(place),
            Some((dir, name)) if self.stands_for(dir, &name).await == Some(Some(file)) => None,
            place => place,
        };
        self.notices.object(number, place);
        let absent = self.inodes().absent_in(number);
        let to_forget = match absent {
            Absent::Few(names) => self.not_absent_any_more(number, names).await,
            Absent::Many(names) => names,
        };
        self.notices.names(number, to_forget);
    }

    fn tell_anew(&self, file: FileId) {
        let mut inodes = self.inodes();
        let Some((number, place)) = inodes.place_of(file) else { return };
        let absent = inodes.take_absent(number);
        drop(inodes);
        self.notices.object(number, place);
        self.notices.names(number, absent);
    }

    async fn not_absent_any_more(&self, dir: u64, names: Vec<Bytes>) -> HashSet<Bytes> {
        let mut there = HashSet::new();
        for name in names {
            if self.stands_for(dir, &name).await != Some(None) {
                self.inodes().not_absent(dir, &name);
                there.insert(name);
            }
        }
        there
    }

    async fn stands_for(&self, dir: u64, name: &Bytes) -> Option<Option<FileId>> {
        self.vfs.stands_for(self.file(dir).ok()?, &Name::new(name.clone()).ok()?).await
    }
}

pub async fn follow(shared: Arc<Shared>) {
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
            asking.spawn(look_again(shared.clone(), number, node));
        }
        while asking.join_next().await.is_some() {}
    }
}

async fn look_again(shared: Arc<Shared>, number: u64, node: Node) {
    // A file that is gone, or out of reach, stays what it is for those who have it open.
    let Ok(now) = shared.vfs.getattr_in_use(node.id).await else { return };
    if shared.inodes().told(number, now).moved {
        shared.notices.pages(number);
    }
}
