//! Changes whose answers are lost, behind the wrapper that tries again.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use origin::memory::MemoryOrigin;
use origin::retry::{Retry, RetryConfig};
use origin::{
    Change, Changed, Committed, DirCursor, DirPage, Identity, Object, Origin, OriginIdentity, OriginTraits,
    Reference, Written,
};
use types::{
    ByteRange, CreateHow, Error, ErrorKind, FsStat, Name, NewNode, OutageReason, Result, SetAttr, Stability,
    Version,
};

/// What becomes of a change.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Answered,
    /// Made, and nobody is told.
    MadeInSilence,
    /// Not made, and nobody is told that either.
    LostInSilence,
    /// Not made, for certain: it may be asked for again.
    NotSent,
    /// Made, and then made again, as a server without a memory does: the second answer comes.
    MadeTwice,
}

/// The honest origin behind a bad line.
struct Lossy {
    memory: Arc<MemoryOrigin>,
    fates: Mutex<VecDeque<Fate>>,
    asked: Mutex<u32>,
    /// Lookups are not answered.
    away: AtomicBool,
    /// Answers from when the first change was lost, if there is one.
    another: Option<Arc<MemoryOrigin>>,
}

impl Lossy {
    fn new(fates: &[Fate]) -> Arc<Lossy> {
        Lossy::replaced_by(None, fates)
    }

    fn replaced_by(another: Option<Arc<MemoryOrigin>>, fates: &[Fate]) -> Arc<Lossy> {
        let fates = Mutex::new(fates.iter().copied().collect());
        Arc::new(Lossy {
            memory: MemoryOrigin::new(),
            fates,
            asked: Mutex::new(0),
            away: AtomicBool::new(false),
            another,
        })
    }

    fn now(&self) -> &MemoryOrigin {
        match &self.another {
            Some(another) if self.asked() > 0 => another,
            _ => &self.memory,
        }
    }

    fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    fn asked(&self) -> u32 {
        *self.asked.lock().expect("no panic holds it")
    }
}

fn silence() -> Error {
    Error::new(ErrorKind::Unavailable, "wait for", "an answer")
}

#[async_trait]
impl Origin for Lossy {
    fn url(&self) -> String {
        "lossy:".into()
    }

    fn traits(&self) -> OriginTraits {
        self.memory.traits()
    }

    async fn identity(&self) -> Result<OriginIdentity> {
        let is_another = !std::ptr::eq(self.now(), &*self.memory);
        let shown = if is_another { "another" } else { "the one" };
        Ok(OriginIdentity { bytes: shown.into(), shown: shown.into(), is_lasting: true })
    }

    async fn is_empty(&self) -> Result<bool> {
        self.memory.is_empty().await
    }

    async fn root(&self) -> Result<Object> {
        self.memory.root().await
    }

    async fn lookup(&self, dir: &Reference, name: &Name) -> Result<Object> {
        if self.away.load(Ordering::SeqCst) {
            return Err(silence());
        }
        self.now().lookup(dir, name).await
    }

    async fn getattr(&self, object: &Reference) -> Result<Object> {
        self.memory.getattr(object).await
    }

    async fn readlink(&self, link: &Reference) -> Result<Bytes> {
        self.memory.readlink(link).await
    }

    async fn readdir(&self, dir: &Reference, cursor: DirCursor) -> Result<DirPage> {
        self.memory.readdir(dir, cursor).await
    }

    async fn read(&self, object: &Reference, version: Version, range: ByteRange) -> Result<Bytes> {
        self.memory.read(object, version, range).await
    }

    async fn statfs(&self, object: &Reference) -> Result<FsStat> {
        self.memory.statfs(object).await
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        let now = self.now();
        *self.asked.lock().expect("no panic holds it") += 1;
        let fate = self.fates.lock().expect("no panic holds it").pop_front().unwrap_or(Fate::Answered);
        match fate {
            Fate::Answered => return now.change(change).await,
            Fate::NotSent => return Err(silence()),
            Fate::MadeInSilence => drop(self.memory.change(change).await?),
            Fate::LostInSilence => {}
            Fate::MadeTwice => {
                self.memory.change(change).await?;
                let second = self.memory.change(change).await;
                return second.map_err(|answer| Error::doubtful(change.kind(), "lossy:", answer));
            }
        }
        Err(Error::doubtful(change.kind(), "lossy:", silence()))
    }

    async fn write(
        &self,
        object: &Reference,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<Written> {
        self.memory.write(object, offset, data, stability).await
    }

    async fn commit(&self, object: &Reference, range: ByteRange) -> Result<Committed> {
        self.memory.commit(object, range).await
    }
}

fn name(text: &'static str) -> Name {
    Name::new(text).expect("a valid name")
}

/// A tree to change: `old`, `link-me`, and the directory `empty`. The clock of the origin was heard.
async fn behind(fates: &[Fate]) -> (Arc<Lossy>, Arc<Retry>, Reference) {
    let lossy = Lossy::new(fates);
    for file in [&b"old"[..], b"link-me"] {
        lossy.memory.write_file(file, b"").expect("written");
    }
    lossy.memory.mkdir(b"empty").expect("made");
    let retry = Retry::new(lossy.clone(), RetryConfig::default());
    let root = retry.root().await.expect("there").reference;
    retry.lookup(&root, &name("empty")).await.expect("there");
    (lossy, retry, root)
}

/// One of each kind that must not be carried out twice.
async fn changes(lossy: &Lossy, dir: &Reference) -> Vec<Change> {
    let old = lossy.memory.lookup(dir, &name("old")).await.expect("there");
    let file = lossy.memory.lookup(dir, &name("link-me")).await.expect("there").reference;
    let (dir, set) = (dir.clone(), SetAttr { mode: Some(0o640), ..SetAttr::default() });
    let new = || (dir.clone(), name("new"));
    let made = |change: fn((Reference, Name), SetAttr) -> Change| change(new(), set);
    vec![
        made(|(dir, name), set| Change::Create { dir, name, how: CreateHow::Guarded, set }),
        made(|(dir, name), set| Change::Create { dir, name, how: CreateHow::Exclusive([7; 8]), set }),
        made(|(dir, name), set| Change::Mkdir { dir, name, set }),
        made(|(dir, name), set| Change::Symlink { dir, name, target: "there".into(), set }),
        made(|(dir, name), set| Change::Mknod { dir, name, node: NewNode::Fifo, set }),
        Change::Link { file, dir: dir.clone(), name: name("new") },
        Change::Remove { dir: dir.clone(), name: name("old") },
        Change::Rmdir { dir: dir.clone(), name: name("empty") },
        Change::Rename {
            from_dir: dir.clone(),
            from: name("old"),
            to_dir: dir,
            to: name("new"),
            identity: Some(old.identity),
        },
    ]
}

#[tokio::test(start_paused = true)]
async fn a_change_that_was_made_in_silence_is_found_and_not_made_again() {
    for fate in [Fate::MadeInSilence, Fate::MadeTwice] {
        for number in 0..9 {
            let (lossy, retry, root) = behind(&[fate]).await;
            let change = changes(&lossy, &root).await.swap_remove(number);
            let changed = retry.change(&change).await;
            let changed = changed.unwrap_or_else(|error| panic!("{fate:?}, {}: {error}", change.kind()));
            assert!(changed.resent, "{fate:?}, {}", change.kind());
            assert_eq!((changed.dir.before, changed.to_dir.before), (None, None), "{}", change.kind());
            assert_eq!(lossy.asked(), 1, "{fate:?}, {}", change.kind());
            let there = lossy.memory.lookup(&root, &name("new")).await;
            assert_eq!(changed.object.map(|object| object.identity), there.ok().map(|o| o.identity));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_does_not_show_stays_unknown_and_is_not_made_again() {
    for number in 0..9 {
        let (lossy, retry, root) = behind(&[Fate::LostInSilence]).await;
        let change = changes(&lossy, &root).await.swap_remove(number);
        if matches!(change, Change::Create { how: CreateHow::Exclusive(_), .. }) {
            retry.change(&change).await.expect("its verifier makes it safe to ask again");
            assert_eq!(lossy.asked(), 2);
            continue;
        }
        let error = retry.change(&change).await.expect_err("it may still be on its way");
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{}", change.kind());
        assert_eq!(lossy.asked(), 1, "{}", change.kind());
    }
}

/// Nobody who asked could be told to ask later: it may have been made.
#[tokio::test(start_paused = true)]
async fn an_outage_after_a_change_is_waited_out_before_anything_is_said_of_it() {
    for number in 0..9 {
        let (lossy, retry, root) = behind(&[Fate::MadeInSilence]).await;
        let change = changes(&lossy, &root).await.swap_remove(number);
        lossy.set_away(true);
        let back = async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            lossy.set_away(false);
        };
        let (changed, ()) = tokio::join!(retry.change(&change), back);
        changed.unwrap_or_else(|error| panic!("{}: {error}", change.kind()));
        assert_eq!(lossy.asked(), 1, "{}", change.kind());
    }
}

#[tokio::test(start_paused = true)]
async fn what_others_made_meanwhile_is_not_taken_for_our_own() {
    let (lossy, retry, root) = behind(&[Fate::LostInSilence; 3]).await;
    lossy.memory.write_file(b"new", b"theirs").expect("written");
    let set = SetAttr::default();
    let (dir, new) = (root.clone(), name("new"));
    let other = Some(Identity("another".into()));
    for change in [
        Change::Create { dir: dir.clone(), name: new.clone(), how: CreateHow::Guarded, set },
        Change::Mkdir { dir: dir.clone(), name: new.clone(), set },
        Change::Rename { from_dir: dir.clone(), from: name("old"), to_dir: dir, to: new, identity: other },
    ] {
        let error = retry.change(&change).await.expect_err("that is not what was asked for");
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{}", change.kind());
    }
}

#[tokio::test(start_paused = true)]
async fn what_makes_no_difference_is_asked_for_until_it_is_answered() {
    let (lossy, retry, root) =
        behind(&[Fate::NotSent, Fate::MadeInSilence, Fate::NotSent, Fate::LostInSilence]).await;
    let (dir, name, how) = (root.clone(), name("new"), CreateHow::Exclusive([9; 8]));
    let create = Change::Create { dir, name, how, set: SetAttr::default() };
    let made = retry.change(&create).await.expect("made in the end");
    assert!(made.resent);
    assert_eq!(made.dir.before, None, "perhaps it was there already");
    assert_eq!(lossy.asked(), 5);
    let object = made.object.expect("told").reference;
    let set = Change::Set { object, set: SetAttr { mode: Some(0o600), ..SetAttr::default() }, guard: None };
    lossy.fates.lock().expect("no panic holds it").extend([Fate::MadeInSilence, Fate::NotSent]);
    assert_eq!(retry.change(&set).await.expect("set").object.expect("told").attr.mode, 0o600);
}

#[tokio::test(start_paused = true)]
async fn a_change_that_never_went_out_is_asked_for_again_and_is_no_repetition() {
    for number in 0..9 {
        let (lossy, retry, root) = behind(&[Fate::NotSent, Fate::NotSent]).await;
        let change = changes(&lossy, &root).await.swap_remove(number);
        let changed = retry.change(&change).await.expect("made");
        assert!(!changed.resent, "{}", change.kind());
        assert!(changed.dir.before.is_some() && changed.dir.after.is_some(), "{}", change.kind());
        assert_eq!(lossy.asked(), 3, "{}", change.kind());
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_is_certain_is_passed_on_at_once() {
    let (lossy, retry, root) = behind(&[]).await;
    let mkdir = Change::Mkdir { dir: root.clone(), name: name("old"), set: SetAttr::default() };
    assert_eq!(retry.change(&mkdir).await.expect_err("refused").kind(), ErrorKind::Exists);
    let rmdir = Change::Rmdir { dir: root, name: name("none") };
    assert_eq!(retry.change(&rmdir).await.expect_err("refused").kind(), ErrorKind::NotFound);
    assert_eq!(lossy.asked(), 2);
}

/// A bucket at a server that comes back with another disk, for one: its references are names.
#[tokio::test]
async fn what_failed_is_not_tried_again_at_another_storage_and_nothing_is_believed_there() {
    for fate in [Fate::NotSent, Fate::LostInSilence, Fate::MadeInSilence] {
        let another = MemoryOrigin::new();
        let lossy = Lossy::replaced_by(Some(another.clone()), &[fate]);
        lossy.memory.write_file(b"file", b"abc").unwrap();
        let retry = Retry::new(lossy.clone(), RetryConfig::default());
        retry.identity().await.unwrap();
        let dir = retry.root().await.unwrap().reference;
        let name = Name::new(b"file".to_vec()).unwrap();
        let error = retry.change(&Change::Remove { dir, name }).await.expect_err("nobody knows");
        match fate {
            Fate::NotSent => assert_eq!(error.outage_reason(), Some(OutageReason::Replaced), "{error}"),
            // It is not there, but that is another storage.
            _ => assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}"),
        }

        let lossy = Lossy::replaced_by(Some(another.clone()), &[fate]);
        let retry = Retry::new(lossy.clone(), RetryConfig::default());
        retry.identity().await.unwrap();
        let dir = retry.root().await.unwrap().reference;
        let (name, how) = (Name::new(b"made".to_vec()).unwrap(), CreateHow::Exclusive([7; 8]));
        let set = SetAttr::default();
        retry.change(&Change::Create { dir, name, how, set }).await.expect_err("nobody knows");
        assert!(another.is_empty().await.unwrap(), "{fate:?}: it was made at another storage");
    }
}
