//! Two watchers: one passes on what the tier learns of changes, by whichever front, so that the kernel lets go
//! before its timers run out; one asks about files that are open and being written, whose readers ask nobody as
//! long as the kernel has pages.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use vfs::{Changes, Node};

use crate::Shared;

/// How often the open files are looked at; each is asked about only when its freshness is over.
const ROUND: Duration = Duration::from_secs(1);
/// Files asked about at the same time.
const TOGETHER: usize = 16;

pub async fn pass_on(shared: Arc<Shared>, mut changes: Changes) {
    while let Some(change) = changes.next().await {
        let files = match change {
            Some(file) => vec![file],
            None => shared.inodes().all_files(),
        };
        for file in files {
            let place = shared.inodes().places_of(file);
            if let Some((number, entry)) = place {
                shared.notices.object(number, entry);
                let absent = shared.inodes().take_absent(number);
                shared.notices.names(number, absent);
            }
        }
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
