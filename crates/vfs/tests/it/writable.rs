//! A tier whose junctions are written through, over any origins.

use std::collections::HashMap;
use std::sync::Arc;

use namespace::{Junction, Namespace};
use origin::Origin;
use types::Timeline;
use types::{Caller, FileId, Name, SetAttr};
use vfs::{Vfs, WritePolicy, Writing};

pub struct Writable {
    pub vfs: Arc<Vfs>,
    _dir: tempfile::TempDir,
}

pub fn writable(origin: Arc<dyn Origin>, clock: &Timeline) -> Writable {
    let junctions = vec![Junction::new("/", origin)];
    over(junctions, clock, &[("/", WritePolicy::Through)])
}

pub fn over(junctions: Vec<Junction>, clock: &Timeline, policies: &[(&str, WritePolicy)]) -> Writable {
    let config = namespace::Config::default();
    with_config(config, junctions, clock, policies)
}

/// Names are asked for one by one.
pub fn without_list_ahead(origin: Arc<dyn Origin>, clock: &Timeline) -> Writable {
    let config = namespace::Config { list_ahead: false, ..namespace::Config::default() };
    with_config(config, vec![Junction::new("/", origin)], clock, &[("/", WritePolicy::Through)])
}

fn with_config(
    config: namespace::Config,
    junctions: Vec<Junction>,
    clock: &Timeline,
    policies: &[(&str, WritePolicy)],
) -> Writable {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let config = namespace::Config { dir: dir.path().join("meta"), ..config };
    let namespace = Namespace::open_with_clock(config, junctions, clock.clone()).expect("opens");
    let cache = cache::Config {
        dir: dir.path().join("cache"),
        size_max: 64 << 20,
        free_floor: 0,
        ..cache::Config::default()
    };
    let cache = cache::Cache::open(cache).expect("opens");
    let junctions: HashMap<_, _> =
        policies.iter().map(|(path, policy)| ((*path).to_owned(), *policy)).collect();
    let vfs = Vfs::new(namespace, cache, Writing { junctions, ..Writing::default() });
    Writable { vfs, _dir: dir }
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes().to_vec()).expect("a good name")
}

pub fn with_mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

pub fn user(uid: u32) -> Caller {
    Caller { uid, gid: uid, ..Caller::root() }
}

impl Writable {
    pub async fn id(&self, path: &str) -> FileId {
        self.vfs.resolve(path.as_bytes()).await.expect("is there").id
    }

    pub async fn names(&self, dir: FileId) -> Vec<String> {
        names(&self.vfs, dir).await
    }
}

/// All names of a directory but the dots, sorted.
pub async fn names(vfs: &Vfs, dir: FileId) -> Vec<String> {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let piece = vfs.readdir(&Caller::root(), dir, cookie, 500).await.expect("listed");
        for item in piece.items {
            cookie = item.cookie;
            names.push(String::from_utf8_lossy(&item.name).into_owned());
        }
        if piece.eof {
            names.retain(|name| name != "." && name != "..");
            names.sort();
            return names;
        }
    }
}
