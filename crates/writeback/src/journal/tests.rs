//! Waiting, deadlines and failures of the journal, on a disk in memory.

use std::sync::atomic::Ordering::SeqCst;

use super::*;
use crate::disk::faulty::FaultyDisk;
use crate::replica::JournalEntry;

const SEGMENT: u64 = 16 << 10;

fn open(disk: &Arc<FaultyDisk>, segments: u64, replica: Option<Arc<dyn Replica>>) -> (Journal, Recovered) {
    let config =
        Config { size_max: segments * SEGMENT, segment_size: SEGMENT, replica, ..Config::new("unused") };
    Journal::open_on(disk.clone(), config, None).expect("opens")
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn at_once() -> Instant {
    Instant::now()
}

fn data(length: usize) -> Bytes {
    Bytes::from(vec![7; length])
}

/// Append until there is no room; returns the sequences.
async fn fill(journal: &Journal) -> (Vec<u64>, Error) {
    let mut sequences = Vec::new();
    loop {
        match journal.append(Bytes::from_static(b"op"), data(4000), at_once()).await {
            Ok(ticket) => sequences.push(ticket.sequence),
            Err(error) => return (sequences, error),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_together_is_synced_together() {
    let disk = Arc::new(FaultyDisk::default());
    let (journal, _) = open(&disk, 64, None);
    let journal = Arc::new(journal);
    let mut last = 0;
    for _ in 0..100 {
        last = journal.append(Bytes::from_static(b"op"), data(10), soon()).await.unwrap().sequence;
    }
    let before = disk.faults.syncs.load(SeqCst);
    let waits: Vec<_> = (1..=last)
        .map(|sequence| {
            let journal = journal.clone();
            tokio::spawn(async move { journal.synced(sequence).await })
        })
        .collect();
    for wait in waits {
        wait.await.unwrap().unwrap();
    }
    assert_eq!(disk.faults.syncs.load(SeqCst) - before, 1);
}

#[tokio::test]
async fn a_failed_sync_latches_and_what_was_acknowledged_stays_readable() {
    let disk = Arc::new(FaultyDisk::default());
    let (journal, _) = open(&disk, 64, None);
    let first = journal.append(Bytes::from_static(b"op"), data(100), soon()).await.unwrap();
    journal.synced(first.sequence).await.unwrap();
    let second = journal.append(Bytes::from_static(b"op"), data(100), soon()).await.unwrap();
    disk.faults.sync_fails_in.store(1, SeqCst);
    let error = journal.synced(second.sequence).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(journal.is_latched());
    let refused = journal.append(Bytes::from_static(b"op"), data(1), soon()).await.unwrap_err();
    assert_eq!(refused.to_string(), error.to_string(), "the first failure is the one that is named");
    assert_eq!(journal.synced(second.sequence).await.unwrap_err().kind(), ErrorKind::Io);
    assert!(journal.done(&[first.sequence]).await.is_err());
    let range = ByteRange::new(0, 100);
    assert_eq!(journal.read(first.position, range).await.unwrap(), data(100));
}

#[tokio::test]
async fn no_space_is_said_when_the_quota_is_used_up_and_room_wakes_who_waits() {
    let disk = Arc::new(FaultyDisk::default());
    let (journal, _) = open(&disk, 8, None);
    let journal = Arc::new(journal);
    let (sequences, error) = fill(&journal).await;
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    let position = journal.log.head(1).unwrap().0;
    let read = journal.read(position, ByteRange::new(0, 4000)).await.unwrap();
    assert_eq!(read, data(4000), "readers do not notice");
    // Seven segments of entries and one in reserve; four entries fit into each.
    assert_eq!(sequences.len(), 7 * 4);
    let waiter = {
        let journal = journal.clone();
        tokio::spawn(async move { journal.append(Bytes::from_static(b"late"), data(4000), soon()).await })
    };
    journal.done(&sequences[..8]).await.unwrap();
    let ticket = waiter.await.unwrap().expect("room was made");
    assert!(ticket.sequence > *sequences.last().unwrap());
    assert_eq!(journal.metrics().latched.get(), 0);
}

#[tokio::test]
async fn a_full_file_system_is_waited_for_and_is_no_lack_of_quota() {
    let disk = Arc::new(FaultyDisk::default());
    let (journal, _) = open(&disk, 64, None);
    let journal = Arc::new(journal);
    disk.faults.full.store(true, SeqCst);
    let (_, error) = fill(&journal).await;
    assert_eq!(error.kind(), ErrorKind::Busy);
    let waiter = {
        let journal = journal.clone();
        tokio::spawn(async move { journal.append(Bytes::from_static(b"late"), data(4000), soon()).await })
    };
    disk.faults.full.store(false, SeqCst);
    waiter.await.unwrap().expect("goes on without a restart");
}

/// Each attempt rang for room, and the answer, though there was none, woke the next one.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_room_on_a_full_disk_does_not_try_all_the_time() {
    let disk = Arc::new(FaultyDisk::default());
    let (journal, _) = open(&disk, 64, None);
    disk.faults.full.store(true, SeqCst);
    fill(&journal).await;
    let before = disk.faults.refused.load(SeqCst);
    let deadline = Instant::now() + Duration::from_millis(2500);
    let error = journal.append(Bytes::from_static(b"late"), data(4000), deadline).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    let tries = disk.faults.refused.load(SeqCst) - before;
    assert!((2..20).contains(&tries), "{tries} times in 2.5 s");
}

#[tokio::test]
async fn a_full_journal_on_a_full_disk_gets_out_by_its_reserve() {
    let disk = Arc::new(FaultyDisk::default());
    let (journal, _) = open(&disk, 8, None);
    let (sequences, _) = fill(&journal).await;
    disk.faults.full.store(true, SeqCst);
    // One entry of the oldest segment is stuck; the others are done.
    journal.done(&sequences[1..]).await.unwrap();
    assert!(journal.compact().await.is_ok());
    disk.faults.full.store(false, SeqCst);
    journal.append(Bytes::from_static(b"late"), data(4000), soon()).await.expect("there is room again");
    journal.close().await.unwrap();
    drop(journal);
    let (_journal, recovered) = open(&disk, 8, None);
    let left: Vec<u64> = recovered.map(|entry| entry.unwrap().sequence).collect();
    assert!(left[0] == sequences[0] && left.len() == 2, "{left:?}");
}

#[tokio::test]
async fn an_append_that_nobody_waits_for_is_taken_back() {
    let disk = Arc::new(FaultyDisk::default());
    let (journal, _) = open(&disk, 64, None);
    // Some are quick enough to be answered at the first poll: those were seen.
    let mut seen = Vec::new();
    for _ in 0..50 {
        let mut append = Box::pin(journal.append(Bytes::from_static(b"op"), data(10), soon()));
        seen.extend(poll_once(&mut append).await.map(|ticket| ticket.unwrap().sequence));
    }
    seen.push(journal.append(Bytes::from_static(b"seen"), data(10), soon()).await.unwrap().sequence);
    // Other threads may still be at it.
    tokio::time::timeout(Duration::from_secs(60), async {
        while journal.log.live_sequences() != seen {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .expect("only the entries that were seen stay");
}

/// Poll once; `None` if it is not ready.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut *future).poll(context) {
            std::task::Poll::Ready(done) => Some(done),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

struct Copies {
    kept: Mutex<Vec<JournalEntry>>,
    gate: Semaphore,
    fails: std::sync::atomic::AtomicBool,
}

impl Copies {
    /// Each copy needs a permit.
    fn new() -> Arc<Copies> {
        let gate = Semaphore::new(0);
        Arc::new(Copies { kept: Mutex::default(), gate, fails: false.into() })
    }
}

#[async_trait::async_trait]
impl Replica for Copies {
    async fn append(&self, entry: JournalEntry) -> Result<()> {
        if self.fails.load(SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, "copy journal entry", entry.sequence));
        }
        self.gate.acquire().await.expect("open").forget();
        self.kept.lock().unwrap().push(entry);
        Ok(())
    }
}

#[tokio::test]
async fn nothing_is_durable_before_its_copy_is_kept() {
    let disk = Arc::new(FaultyDisk::default());
    let copies = Copies::new();
    let (journal, _) = open(&disk, 64, Some(copies.clone()));
    let mut last = 0;
    for _ in 0..3 {
        last = journal.append(Bytes::from_static(b"op"), data(10), soon()).await.unwrap().sequence;
    }
    copies.gate.add_permits(2);
    let early = tokio::time::timeout(Duration::from_millis(50), journal.synced(last)).await;
    assert!(early.is_err(), "synced although a copy is missing");
    copies.gate.add_permits(1);
    journal.synced(last).await.unwrap();
    let kept: Vec<u64> = copies.kept.lock().unwrap().iter().map(|entry| entry.sequence).collect();
    assert_eq!(kept, [1, 2, 3]);
    assert_eq!(copies.kept.lock().unwrap()[0].data, data(10));
}

#[tokio::test]
async fn a_copy_that_fails_for_good_latches() {
    let disk = Arc::new(FaultyDisk::default());
    let copies = Copies::new();
    copies.fails.store(true, SeqCst);
    let (journal, _) = open(&disk, 64, Some(copies.clone()));
    let ticket = journal.append(Bytes::from_static(b"op"), data(10), soon()).await.unwrap();
    assert_eq!(journal.synced(ticket.sequence).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(journal.append(Bytes::from_static(b"op"), data(10), soon()).await.is_err());
}

#[tokio::test]
async fn a_sequence_that_was_never_given_out_is_not_waited_for() {
    let (journal, _) = open(&Arc::default(), 64, None);
    assert_eq!(journal.synced(1).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_journal_too_small_for_its_largest_entry_is_refused() {
    let small = Config { segment_size: 4 << 20, ..Config::new("unused") };
    let few = Config { size_max: 128 << 20, ..Config::new("unused") };
    for config in [small, few] {
        assert!(config.check().is_err_and(|e| e.kind() == ErrorKind::Config));
    }
    assert!(Config::new("unused").check().is_ok());
}

#[tokio::test]
async fn what_operators_see_is_what_is_there() {
    let (journal, _) = open(&Arc::default(), 64, None);
    let mut last = 0;
    for _ in 0..3 {
        last = journal.append(Bytes::from_static(b"op"), data(98), soon()).await.unwrap().sequence;
    }
    journal.synced(last).await.unwrap();
    journal.done(&[1]).await.unwrap();
    journal.log.note();
    let mut registry = prometheus_client::registry::Registry::default();
    journal.metrics().register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let shown = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("forebay_journal_{name} ")));
        line.unwrap_or_else(|| panic!("{name} in {text}")).rsplit(' ').next().unwrap().to_string()
    };
    assert_eq!(shown("appended_entries_total"), "3");
    assert_eq!(shown("appended_bytes_total"), "300");
    assert_eq!(shown("entries"), "2");
    assert_eq!(shown("live_bytes"), (2 * 152).to_string());
    assert_eq!(shown("used_bytes"), (64 + 3 * 152 + 48).to_string());
    assert_eq!(shown("max_bytes"), (64 * SEGMENT).to_string());
    assert_eq!(shown("latched"), "0");
    assert_eq!(shown("sync_seconds_count"), "1");
    assert!(shown("oldest_entry_seconds").parse::<f64>().unwrap() < 3600.0);
    assert!(journal.oldest_age().is_some());
}
