//! What the tests share: a stand-in, and eyes on it that remember nothing.

use std::sync::Arc;

use bytes::Bytes;
use origin::{Change, DirCursor, Object, Origin, Reference};
use origin_azfile::{AzFileOrigin, Config};
use testkit::azfile::{StandIn, environment};
use types::{ByteRange, CreateHow, Name, Result, SetAttr, Stability};

pub const MIB: usize = 1 << 20;

pub fn variables() -> Vec<(String, String)> {
    environment().map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// One that has seen nothing yet. `place` is the share and what is below it.
pub async fn connect(stand_in: &StandIn, place: &str, more: &str) -> Arc<AzFileOrigin> {
    let config = Config::from_url(&stand_in.url(place, more)).expect("a URL");
    AzFileOrigin::connect_as(config, Some(variables())).await.expect("it answers")
}

pub async fn start() -> (StandIn, Arc<AzFileOrigin>) {
    let stand_in = StandIn::start(&["share"]).await;
    let origin = connect(&stand_in, "share", "").await;
    (stand_in, origin)
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes().to_vec()).expect("a name")
}

pub async fn root(origin: &AzFileOrigin) -> Reference {
    origin.root().await.expect("there").reference
}

pub async fn find(origin: &AzFileOrigin, path: &str) -> Result<Object> {
    let mut at = origin.root().await?;
    for part in path.split('/') {
        at = origin.lookup(&at.reference, &name(part)).await?;
    }
    Ok(at)
}

pub async fn create(origin: &AzFileOrigin, dir: &Reference, text: &str) -> Result<Object> {
    let (name, how, set) = (name(text), CreateHow::Guarded, SetAttr::default());
    origin.change(&Change::Create { dir: dir.clone(), name, how, set }).await?.made()
}

pub async fn mkdir(origin: &AzFileOrigin, dir: &Reference, text: &str) -> Result<Object> {
    let (name, set) = (name(text), SetAttr::default());
    origin.change(&Change::Mkdir { dir: dir.clone(), name, set }).await?.made()
}

pub async fn rename(origin: &AzFileOrigin, dir: &Reference, from: &str, to: &str) -> Result<Object> {
    let (from, to) = (name(from), name(to));
    let change = Change::Rename { from_dir: dir.clone(), from, to_dir: dir.clone(), to, identity: None };
    origin.change(&change).await?.made()
}

pub async fn remove(origin: &AzFileOrigin, dir: &Reference, text: &str) -> Result<()> {
    origin.change(&Change::Remove { dir: dir.clone(), name: name(text) }).await.map(drop)
}

pub async fn write(
    origin: &AzFileOrigin,
    file: &Reference,
    at: usize,
    bytes: &[u8],
) -> Result<origin::Written> {
    origin.write(file, at as u64, Bytes::copy_from_slice(bytes), Stability::FileSync).await
}

pub async fn resize(origin: &AzFileOrigin, file: &Reference, size: usize) -> Result<Object> {
    let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
    origin.change(&Change::Set { object: file.clone(), set, guard: None }).await?.made()
}

pub async fn put(origin: &AzFileOrigin, dir: &Reference, text: &str, bytes: &[u8]) -> Object {
    let file = create(origin, dir, text).await.expect("made").reference;
    write(origin, &file, 0, bytes).await.expect("written");
    origin.getattr(&file).await.expect("there")
}

pub async fn read_all(origin: &AzFileOrigin, object: &Object) -> Result<Bytes> {
    origin.read(&object.reference, object.version, ByteRange::new(0, object.attr.size)).await
}

pub async fn names(origin: &AzFileOrigin, dir: &Reference) -> Vec<String> {
    let (mut all, mut cursor) = (Vec::new(), Some(DirCursor::default()));
    while let Some(at) = cursor {
        let page = origin.readdir(dir, at).await.expect("listed");
        all.extend(page.entries.into_iter().map(|entry| entry.name.to_string()));
        cursor = page.next;
    }
    all.sort();
    all
}

pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let words = std::iter::repeat_with(|| chance.next());
    words.take(length.div_ceil(8)).flat_map(u64::to_le_bytes).take(length).collect()
}

/// Xorshift.
pub struct Chance(pub u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

pub fn kind<T: std::fmt::Debug>(result: Result<T>) -> types::ErrorKind {
    result.expect_err("must fail").kind()
}
