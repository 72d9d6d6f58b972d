//! What the layers add.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use origin::count::{Count, OriginMetrics};
use origin::limit::{Limit, LimitConfig};
use origin::memory::MemoryOrigin;
use origin::posix::PosixOrigin;
use origin::retry::{Retry, RetryConfig};
use origin::{
    Change, Changed, Committed, DirCursor, DirPage, Draft, Identity, Object, Origin, OriginIdentity,
    OriginLimits, OriginTraits, PartReceipt, PartSource, PartedFile, Reference, RenameLeftover, Written,
};
use tokio::time::Instant;
use types::{ByteRange, CreateHow, Error, ErrorKind, FsStat, Name, Result, SetAttr, Stability, Version};

/// No default in it, so that one that a layer makes up shows.
const TRAITS: OriginTraits = OriginTraits {
    read_max: 12_288,
    write_max: 20_480,
    directories_show_changes: false,
    identity_is_place: true,
    commits_whole_files: true,
    answers_side_by_side: false,
    has_xattrs: true,
};

/// Fails the first calls of `root` with a kind of error; reads and writes take long.
struct Troubled {
    memory: Arc<MemoryOrigin>,
    failures_left: AtomicU32,
    kind: ErrorKind,
    calls: AtomicU32,
    slow: Duration,
    /// The next read takes a minute.
    straggle_next: AtomicBool,
}

impl Troubled {
    fn new(failures: u32, kind: ErrorKind, slow: Duration) -> Arc<Troubled> {
        let (failures_left, calls) = (AtomicU32::new(failures), AtomicU32::new(0));
        Arc::new(Troubled {
            memory: MemoryOrigin::new(),
            failures_left,
            kind,
            calls,
            slow,
            straggle_next: AtomicBool::new(false),
        })
    }
}

#[async_trait]
impl Origin for Troubled {
    fn url(&self) -> String {
        "troubled:".into()
    }

    fn traits(&self) -> OriginTraits {
        TRAITS
    }

    fn connections(&self) -> u64 {
        7
    }

    async fn set_at_commit(&self, _object: &Reference, _set: &SetAttr) -> Result<bool> {
        Ok(true)
    }

    async fn draft(&self, dir: &Reference, name: &Name, _set: &SetAttr) -> Result<Option<Draft>> {
        let path = Bytes::from([&dir.0[..], name.as_bytes()].concat());
        Ok(Some(Draft { reference: Reference(path.clone()), identity: Identity(path) }))
    }

    async fn discard(&self, draft: &Reference) -> Result<()> {
        match &draft.0[..] {
            b"dir/file" => Ok(()),
            _ => Err(Error::new(ErrorKind::Stale, "discard", "another")),
        }
    }

    async fn begin_parts(
        &self,
        _dir: &Reference,
        path: &[Name],
        _set: &SetAttr,
    ) -> Result<Option<PartedFile>> {
        Ok(path.first().map(|name| PartedFile(Bytes::copy_from_slice(name.as_bytes()))))
    }

    async fn store_part(&self, file: &PartedFile, number: u32, source: &PartSource) -> Result<String> {
        Ok(format!("{:?} {number} {}", file.0, source.bytes()))
    }

    async fn draft_of_parts(
        &self,
        file: &PartedFile,
        _place: (&Reference, &Name),
        _parts: &[PartReceipt],
    ) -> Result<Draft> {
        Ok(Draft { reference: Reference(file.0.clone()), identity: Identity(file.0.clone()) })
    }

    async fn drop_parts(&self, file: &PartedFile) -> Result<()> {
        Err(Error::new(ErrorKind::Stale, "drop", file.0.escape_ascii()))
    }

    async fn identity(&self) -> Result<OriginIdentity> {
        self.memory.identity().await
    }

    async fn is_empty(&self) -> Result<bool> {
        self.memory.is_empty().await
    }

    async fn limits(&self) -> Result<OriginLimits> {
        self.memory.limits().await
    }

    fn demand_path(&self, path: &[u8], is_dir: bool) -> Result<()> {
        match (path, is_dir) {
            (b"never", false) => Err(Error::new(ErrorKind::NameTooLong, "name", "never")),
            _ => Ok(()),
        }
    }

    async fn root(&self) -> Result<Object> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let failing =
            self.failures_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match failing {
            Ok(_) => Err(Error::new(self.kind, "reach", "the troubled origin")),
            Err(_) => self.memory.root().await,
        }
    }

    async fn lookup(&self, dir: &Reference, name: &Name) -> Result<Object> {
        self.memory.lookup(dir, name).await
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
        if self.straggle_next.swap(false, Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        tokio::time::sleep(self.slow).await;
        self.memory.read(object, version, range).await
    }

    async fn statfs(&self, object: &Reference) -> Result<FsStat> {
        self.memory.statfs(object).await
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        self.memory.change(change).await
    }

    async fn left_by_rename(
        &self,
        from: &Reference,
        was: Version,
        there: &Reference,
    ) -> Result<RenameLeftover> {
        let known = (from.0.as_ref(), was.0, there.0.as_ref()) == (b"from", [1; 16], b"there");
        Ok(if known { RenameLeftover::SpareCopy } else { RenameLeftover::Foreign })
    }

    async fn write(
        &self,
        object: &Reference,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<Written> {
        tokio::time::sleep(self.slow).await;
        self.memory.write(object, offset, data, stability).await
    }

    async fn commit(&self, object: &Reference, range: ByteRange) -> Result<Committed> {
        self.memory.commit(object, range).await
    }
}

#[tokio::test(start_paused = true)]
async fn every_layer_passes_on_what_the_store_is_like_and_the_calls_that_few_stores_answer() {
    let origin = Troubled::new(0, ErrorKind::Unavailable, Duration::ZERO);
    let limits = OriginLimits {
        file_size_max: Some(1 << 44),
        name_max: Some(143),
        links_max: Some(1),
        no_special_files: true,
        read_only: true,
    };
    origin.memory.set_limits(limits);
    let layers: [Arc<dyn Origin>; 4] = [
        Retry::new(origin.clone(), RetryConfig::default()),
        Limit::new(origin.clone(), LimitConfig::default()),
        Count::new(origin.clone(), "/", OriginMetrics::default()),
        origin::delay::Delay::new(origin.clone(), Duration::from_millis(1)),
    ];
    let place = |path: &'static [u8]| Reference(Bytes::from_static(path));
    for (at, layer) in layers.iter().enumerate() {
        assert_eq!(layer.limits().await.expect("told"), limits, "layer {at}");
        assert_eq!(
            (layer.url(), layer.traits(), layer.connections()),
            ("troubled:".into(), TRAITS, 7),
            "layer {at}"
        );
        assert!(layer.set_at_commit(&place(b"file"), &SetAttr::default()).await.expect("told"), "layer {at}");
        let file = Name::new(&b"file"[..]).expect("a name");
        let draft = layer.draft(&place(b"dir/"), &file, &SetAttr::default()).await.expect("told");
        let draft = draft.expect("begun").reference;
        assert_eq!(draft, place(b"dir/file"), "layer {at}");
        layer.discard(&draft).await.expect("given up");
        let parted = layer.begin_parts(&place(b"dir/"), std::slice::from_ref(&file), &SetAttr::default()).await;
        let parted = parted.expect("told").expect("begun");
        let source = PartSource::Given(Bytes::from_static(b"abc"));
        let receipt = layer.store_part(&parted, 2, &source).await.expect("stored");
        assert_eq!(receipt, "b\"file\" 2 3", "layer {at}");
        let draft = layer.draft_of_parts(&parted, (&place(b"dir/"), &file), &[]).await.expect("assembled");
        assert_eq!(draft.reference, place(b"file"), "layer {at}");
        assert_eq!(
            layer.drop_parts(&parted).await.expect_err("passed on").kind(),
            ErrorKind::Stale,
            "layer {at}"
        );
        assert!(layer.demand_path(b"never", false).is_err(), "layer {at}");
        assert!(layer.demand_path(b"never", true).is_ok(), "layer {at}");
        let left = layer.left_by_rename(&place(b"from"), Version([1; 16]), &place(b"there")).await;
        assert_eq!(left.expect("told"), RenameLeftover::SpareCopy, "layer {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_succeed_later_is_tried_until_the_deadline() {
    let origin = Troubled::new(3, ErrorKind::Unavailable, Duration::ZERO);
    let retry = Retry::new(origin.clone(), RetryConfig::default());
    assert!(retry.root().await.is_ok());
    assert_eq!(origin.calls.load(Ordering::SeqCst), 4);

    let origin = Troubled::new(u32::MAX, ErrorKind::Unavailable, Duration::ZERO);
    let retry = Retry::new(origin.clone(), RetryConfig::default());
    let start = Instant::now();
    assert_eq!(retry.root().await.expect_err("an outage").kind(), ErrorKind::Unavailable);
    assert!(start.elapsed() <= RetryConfig::default().deadline, "{:?}", start.elapsed());
    assert!(start.elapsed() > RetryConfig::default().deadline / 2, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_succeed_is_not_tried_again() {
    for kind in [ErrorKind::NotFound, ErrorKind::Stale, ErrorKind::VersionChanged, ErrorKind::AccessDenied] {
        let origin = Troubled::new(1, kind, Duration::ZERO);
        let retry = Retry::new(origin.clone(), RetryConfig::default());
        assert_eq!(retry.root().await.expect_err("passed on").kind(), kind);
        assert_eq!(origin.calls.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn metadata_does_not_queue_behind_reads_and_no_wait_is_for_ever() {
    let origin = Troubled::new(0, ErrorKind::Unavailable, Duration::from_secs(60));
    origin.memory.write_file(b"file", b"x").expect("written");
    let root = origin.memory.root().await.expect("there").reference;
    let name = Name::new(Bytes::from_static(b"file")).expect("valid");
    let file = origin.memory.lookup(&root, &name).await.expect("there");
    let config = LimitConfig {
        reads: 1,
        metadata_calls: 1,
        patience: Duration::from_secs(10),
        ..LimitConfig::default()
    };
    let limit = Limit::new(origin, config);
    let (busy, object) = (limit.clone(), file.clone());
    let read =
        tokio::spawn(async move { busy.read(&object.reference, object.version, ByteRange::new(0, 1)).await });
    tokio::task::yield_now().await;
    let start = Instant::now();
    limit.getattr(&file.reference).await.expect("metadata has room of its own");
    assert_eq!(start.elapsed(), Duration::ZERO);
    let second = limit.read(&file.reference, file.version, ByteRange::new(0, 1)).await;
    assert_eq!(second.expect_err("no room").kind(), ErrorKind::Busy);
    assert_eq!(start.elapsed(), Duration::from_secs(10));
    assert_eq!(read.await.expect("no panic").expect("read"), "x");
}

#[tokio::test(start_paused = true)]
async fn the_distance_is_measured_by_the_calls_that_go_there_anyway() {
    let memory = MemoryOrigin::new();
    memory.write_file(b"file", &vec![7; 1 << 20]).expect("written");
    let far = origin::delay::Delay::new(memory, Duration::from_millis(70));
    let limit = Retry::new(Limit::new(far, LimitConfig::default()), RetryConfig::default());
    assert_eq!(limit.distance(), None, "nothing was asked yet");
    let root = limit.root().await.expect("there").reference;
    let distance = limit.distance().expect("measured by the retry's inner");
    assert!((70..75).contains(&distance.latency.as_millis()), "{distance:?}");
    let file =
        limit.lookup(&root, &Name::new(Bytes::from_static(b"file")).expect("valid")).await.expect("there");
    for _ in 0..5 {
        limit.read(&file.reference, file.version, ByteRange::new(0, 1 << 20)).await.expect("read");
    }
    assert!((70..75).contains(&limit.distance().expect("known").latency.as_millis()));
}

#[tokio::test(start_paused = true)]
async fn a_read_that_straggles_is_sent_once_more_and_the_first_answer_counts() {
    let origin = Troubled::new(0, ErrorKind::Unavailable, Duration::from_millis(10));
    origin.memory.write_file(b"file", b"x").expect("written");
    let root = origin.memory.root().await.expect("there").reference;
    let name = Name::new(Bytes::from_static(b"file")).expect("valid");
    let file = origin.memory.lookup(&root, &name).await.expect("there");
    let metrics = origin::limit::LimitMetrics::default();
    let limit = Limit::told(origin.clone(), LimitConfig::default(), metrics.clone());
    let read = || limit.read(&file.reference, file.version, ByteRange::new(0, 1));
    for _ in 0..100 {
        read().await.expect("read");
    }
    origin.straggle_next.store(true, Ordering::SeqCst);
    let start = Instant::now();
    assert_eq!(read().await.expect("read"), "x");
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!((metrics.again.get(), metrics.again_won.get()), (1, 1));
    // The allowance is used up: the next one is waited for.
    origin.straggle_next.store(true, Ordering::SeqCst);
    read().await.expect("read");
    assert_eq!(metrics.again.get(), 1);
}

#[tokio::test]
async fn calls_bytes_and_errors_are_counted_by_kind() {
    let memory = MemoryOrigin::new();
    memory.write_file(b"file", b"0123456789").expect("written");
    let metrics = OriginMetrics::default();
    let count = Count::new(memory, "/show", metrics.clone());
    let root = count.root().await.expect("there").reference;
    let name = |n| Name::new(Bytes::from_static(n)).expect("valid");
    let file = count.lookup(&root, &name(b"file")).await.expect("there");
    assert!(count.lookup(&root, &name(b"none")).await.is_err());
    count.read(&file.reference, file.version, ByteRange::new(2, 5)).await.expect("read");
    assert_eq!((metrics.calls_of("/show", "lookup"), metrics.calls_of("/show", "read")), (2, 1));
    assert_eq!((metrics.bytes_of("/show"), metrics.all_calls_of("/show")), (5, 4));
    assert_eq!(metrics.all_calls_of("/other"), 0);
}

#[tokio::test]
async fn changes_and_written_bytes_are_counted_by_kind() {
    let metrics = OriginMetrics::default();
    let count = Count::new(MemoryOrigin::new(), "/show", metrics.clone());
    let dir = count.root().await.expect("there").reference;
    let name = Name::new(Bytes::from_static(b"file")).expect("valid");
    let (how, set) = (CreateHow::Guarded, SetAttr::default());
    let create = Change::Create { dir: dir.clone(), name: name.clone(), how, set };
    let file = count.change(&create).await.expect("made").made().expect("told").reference;
    assert!(count.change(&create).await.is_err());
    count.write(&file, 5, "0123456".into(), Stability::Unstable).await.expect("written");
    assert!(count.write(&dir, 0, "0123".into(), Stability::Unstable).await.is_err());
    count.commit(&file, ByteRange::new(0, 0)).await.expect("committed");
    count.change(&Change::Remove { dir, name }).await.expect("removed");
    let calls = |kind| metrics.calls_of("/show", kind);
    assert_eq!((calls("create"), calls("write"), calls("commit"), calls("remove")), (2, 2, 1, 1));
    assert_eq!((metrics.written_bytes_of("/show"), metrics.bytes_of("/show")), (7, 0));
    assert_eq!(metrics.all_calls_of("/show"), 7, "root and these");
}

#[tokio::test(start_paused = true)]
async fn writes_have_room_of_their_own_and_no_wait_is_for_ever() {
    let origin = Troubled::new(0, ErrorKind::Unavailable, Duration::from_secs(60));
    origin.memory.write_file(b"file", b"x").expect("written");
    let root = origin.memory.root().await.expect("there").reference;
    let name = Name::new(Bytes::from_static(b"file")).expect("valid");
    let file = origin.memory.lookup(&root, &name).await.expect("there");
    let limit =
        Limit::new(origin, LimitConfig { reads: 1, metadata_calls: 1, writes: 1, ..LimitConfig::default() });
    let writes = ["x", "y"].map(|data| {
        let (limit, object) = (limit.clone(), file.reference.clone());
        tokio::spawn(async move { limit.write(&object, 0, data.into(), Stability::Unstable).await })
    });
    tokio::task::yield_now().await;
    let start = Instant::now();
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let change = Change::Set { object: file.reference.clone(), set, guard: None };
    limit.change(&change).await.expect("metadata has room of its own");
    assert_eq!(start.elapsed(), Duration::ZERO);
    let commit = limit.commit(&file.reference, ByteRange::new(0, 0)).await;
    assert_eq!(commit.expect_err("no room").kind(), ErrorKind::Busy);
    let mut kinds = Vec::new();
    for write in writes {
        kinds.push(write.await.expect("no panic").map_err(|error| error.kind()).map(|_| ()));
    }
    kinds.sort_by_key(|kind| kind.is_err());
    assert_eq!(kinds, [Ok(()), Err(ErrorKind::Busy)]);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_is_given_up_is_a_call_all_the_same() {
    let origin = Troubled::new(0, ErrorKind::Unavailable, Duration::from_millis(10));
    origin.memory.write_file(b"file", b"0123456789").expect("written");
    let root = origin.memory.root().await.expect("there").reference;
    let file = origin.memory.lookup(&root, &Name::new(Bytes::from_static(b"file")).expect("valid")).await;
    let file = file.expect("there");
    let metrics = OriginMetrics::default();
    let count = Count::new(origin, "/", metrics.clone());
    let read = count.read(&file.reference, file.version, ByteRange::new(0, 7));
    assert!(tokio::time::timeout(Duration::from_millis(1), read).await.is_err());
    count.read(&file.reference, file.version, ByteRange::new(0, 3)).await.expect("read");
    let counted = (metrics.calls_of("/", "read"), metrics.bytes_of("/"), metrics.abandoned_bytes_of("/"));
    assert_eq!(counted, (2, 3, 7));
}

#[test]
fn a_missing_directory_is_refused_in_one_line_that_says_what_to_do() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("file");
    std::fs::write(&file, b"").expect("written");
    for (path, why) in [(dir.path().join("none"), "no such directory"), (file, "not a directory")] {
        let error = PosixOrigin::open(&path).err().expect("refused");
        let said = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(said.contains(why) && said.contains("file:///") && said.lines().count() == 1, "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_in_the_way_leads_nowhere() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (inside, outside) = (dir.path().join("inside"), dir.path().join("outside"));
    std::fs::create_dir_all(inside.join("sub")).expect("made");
    std::fs::create_dir(&outside).expect("made");
    std::fs::write(outside.join("secret"), b"secret").expect("written");
    std::fs::write(inside.join("sub/secret"), b"public").expect("written");
    let origin = PosixOrigin::open(&inside).expect("opened");
    let root = origin.root().await.expect("there").reference;
    let name = |n| Name::new(Bytes::from_static(n)).expect("valid");
    let sub = origin.lookup(&root, &name(b"sub")).await.expect("there").reference;
    let file = origin.lookup(&sub, &name(b"secret")).await.expect("there");
    // Somebody puts a link where the directory was.
    std::fs::rename(inside.join("sub"), inside.join("moved")).expect("moved");
    std::os::unix::fs::symlink(&outside, inside.join("sub")).expect("linked");
    let read = origin.read(&file.reference, file.version, ByteRange::new(0, 6)).await;
    assert_eq!(read.expect_err("the way is another one now").kind(), ErrorKind::Stale);
    let link = origin.lookup(&root, &name(b"sub")).await.expect("there").reference;
    assert!(origin.lookup(&link, &name(b"secret")).await.is_err(), "links are not walked through");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_of_another_directory_lists_nothing() {
    let dir = tempfile::tempdir().expect("temporary directory");
    for sub in ["a", "b"] {
        std::fs::create_dir(dir.path().join(sub)).expect("made");
        for i in 0..3000 {
            std::fs::write(dir.path().join(format!("{sub}/{sub}{i}")), b"").expect("written");
        }
    }
    let origin = PosixOrigin::open(dir.path()).expect("opened");
    let root = origin.root().await.expect("there").reference;
    let name = |n| Name::new(Bytes::from_static(n)).expect("valid");
    let a = origin.lookup(&root, &name(b"a")).await.expect("there").reference;
    let b = origin.lookup(&root, &name(b"b")).await.expect("there").reference;
    let first = origin.readdir(&a, DirCursor::default()).await.expect("listed");
    let cursor = first.next.expect("there is more");
    assert_eq!(origin.readdir(&b, cursor).await.expect_err("refused").kind(), ErrorKind::Busy);
    let rest = origin.readdir(&a, cursor).await.expect("still good where it came from");
    assert_eq!(first.entries.len() + rest.entries.len(), 3000);
}

#[tokio::test]
async fn the_origin_in_memory_renames_and_links_as_posix_does() {
    let memory = MemoryOrigin::new();
    memory.write_file(b"one", b"1").expect("written");
    memory.link(b"one", b"two").expect("linked");
    memory.rename(b"one", b"two").expect("two names of one file stay");
    memory.rename(b"one", b"one").expect("nothing to do");
    let root = memory.root().await.expect("there").reference;
    let name = |n| Name::new(Bytes::from_static(n)).expect("valid");
    for known in [&b"one"[..], b"two"] {
        let found = memory.lookup(&root, &name(known)).await.expect("still there");
        assert_eq!(found.attr.nlink, 2);
    }
    memory.write_file(b"three", b"3").expect("written");
    assert!(memory.link(b"one", b"three").is_err(), "a name that exists");
    assert!(memory.rename(b"none", b"three").is_err());
    memory.lookup(&root, &name(b"three")).await.expect("a rename that fails removes nothing");
}

/// Simulated time of a read that comes while 200 others have begun to fill eight places, taking turns or not.
async fn read_beside_a_flood(with_turns: bool) -> Duration {
    let origin = Troubled::new(0, ErrorKind::Io, Duration::from_millis(100));
    let root = origin.memory.root().await.expect("the root");
    let config = LimitConfig { reads: 8, reads_least: 8, reads_most: 8, ..LimitConfig::default() };
    let limit = Limit::new(origin, config);
    let mut flood = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let (limit, reference, version) = (limit.clone(), root.reference.clone(), root.version);
        flood.spawn(async move {
            let _turn = if with_turns { limit.turn().await } else { types::Turn::default() };
            // The answer is an error, a directory has no bytes; what counts is when it comes.
            let _ = limit.read(&reference, version, ByteRange::new(0, 1)).await;
        });
    }
    tokio::time::sleep(Duration::from_millis(250)).await;
    let start = Instant::now();
    let _ = limit.read(&root.reference, root.version, ByteRange::new(0, 1)).await;
    let took = start.elapsed();
    while flood.join_next().await.is_some() {}
    took
}

#[tokio::test(start_paused = true)]
async fn a_read_does_not_wait_for_those_that_take_turns_and_does_for_others() {
    let behind = read_beside_a_flood(false).await;
    assert!(behind > Duration::from_secs(1), "reads are sent as they came: {behind:?}");
    let before = read_beside_a_flood(true).await;
    assert!(before <= Duration::from_millis(110), "a round trip: {before:?}");
}

#[tokio::test(start_paused = true)]
async fn a_turn_comes_within_its_patience_while_other_reads_never_cease() {
    let origin = Troubled::new(0, ErrorKind::Io, Duration::from_millis(100));
    let root = origin.memory.root().await.expect("the root");
    let config = LimitConfig { reads: 8, reads_least: 8, reads_most: 8, ..LimitConfig::default() };
    let limit = Limit::new(origin, config);
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..24 {
        let (limit, reference, version) = (limit.clone(), root.reference.clone(), root.version);
        readers.spawn(async move {
            loop {
                let _ = limit.read(&reference, version, ByteRange::new(0, 1)).await;
            }
        });
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let start = Instant::now();
    let _turn = limit.turn().await;
    let (took, patience) = (start.elapsed(), config.patience);
    assert!(took >= patience, "it came before those who wait: {took:?}");
    assert!(took < patience + Duration::from_secs(1), "it starved: {took:?}");
}
