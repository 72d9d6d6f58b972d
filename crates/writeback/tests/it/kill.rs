//! A process that appends, and dies: by SIGKILL at any time, and by abort at each named step.
//!
//! What it was told is durable goes through a pipe to a ledger here, outside of it. The page cache survives a kill, so
//! this proves nothing about power; the histories with the disk in memory do.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use writeback::{Journal, JournalStep, abort_at};

use crate::content::{check_all, config, data, head};

const DIR: &str = "WRITEBACK_TEST_DIR";
const FIRST: &str = "WRITEBACK_TEST_FIRST";
const CRASH_AT: &str = "FOREBAY_CRASH_AT";
/// Small enough that writers run against the quota.
const SEGMENTS: u64 = 6;

/// What the dead process was told.
#[derive(Default)]
struct Ledger {
    /// Sequence to number, told durable.
    acknowledged: BTreeMap<u64, u64>,
    /// Asked to be done, with or without an answer.
    done: BTreeSet<u64>,
    next_number: u64,
    kept_at_kill: u64,
}

fn start(dir: &Path, ledger: &Ledger, crash_at: Option<&str>) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", "kill::the_process_that_dies", "--nocapture", "--test-threads=1"]);
    command.env(DIR, dir).env(FIRST, ledger.next_number.to_string());
    command.envs(crash_at.map(|at| (CRASH_AT, at)));
    command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("starts")
}

/// Read what the child tells, until it has told `enough` acknowledgements or ends.
fn listen(child: &mut Child, ledger: &mut Ledger, enough: usize) {
    let stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut acknowledged = 0;
    let mut killed = false;
    for line in stdout.lines() {
        let Ok(line) = line else { break };
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["try", number] => ledger.next_number = ledger.next_number.max(parse(number) + 1),
            ["ack", sequence, number] => {
                let before = ledger.acknowledged.insert(parse(sequence), parse(number));
                assert_eq!(before, None, "sequence {sequence} was given out twice");
                acknowledged += 1;
            }
            ["done", sequence] => {
                ledger.done.insert(parse(sequence));
            }
            _ => {}
        }
        if acknowledged >= enough && !killed {
            // What is still in the pipe was told before it died, and counts.
            child.kill().expect("ours to kill");
            killed = true;
        }
    }
}

fn parse(word: &str) -> u64 {
    word.parse().expect("a number")
}

async fn check(dir: &Path, ledger: &mut Ledger, clean: bool) {
    let (journal, recovered) = Journal::open(config(dir, SEGMENTS)).expect("opens after a kill");
    assert_eq!(journal.damage(), []);
    let found: BTreeMap<u64, u64> = check_all(&journal, recovered).await.into_iter().collect();
    let mut kept = 0;
    for (sequence, number) in &ledger.acknowledged {
        match found.get(sequence) {
            Some(there) => assert_eq!(there, number, "entry {sequence} is another one"),
            None => assert!(ledger.done.contains(sequence), "entry {sequence} was acknowledged and is lost"),
        }
        kept += u64::from(found.contains_key(sequence));
    }
    let numbers: BTreeSet<u64> = found.values().copied().collect();
    assert_eq!(numbers.len(), found.len(), "no entry is there twice");
    assert!(numbers.last().is_none_or(|last| *last < ledger.next_number), "nothing that was never tried");
    ledger.kept_at_kill += u64::from(kept > 0);
    if clean {
        journal.close().await.expect("closes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_kills_lose_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = Ledger::default();
    for round in 0..20 {
        let mut child = start(dir.path(), &ledger, None);
        listen(&mut child, &mut ledger, 5 + round * 7 % 60);
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "it died of the kill: {status}");
        check(dir.path(), &mut ledger, round % 3 == 0).await;
    }
    assert!(ledger.kept_at_kill >= 15, "only {} kills met acknowledged entries", ledger.kept_at_kill);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_at_each_step_loses_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = Ledger::default();
    // There is a tail to cut once something was written. The reserve is made on a fresh directory, and taken only when the journal is full to the brim: the histories
    // on the disk in memory cut there.
    let special = [JournalStep::ReserveMade, JournalStep::ReserveTaken, JournalStep::TailCut];
    let later = JournalStep::ALL.into_iter().filter(|step| !special.contains(step));
    let later = later.map(|step| match step {
        JournalStep::EntryWritten | JournalStep::DoneWritten => (step, 40),
        JournalStep::BeforeSync | JournalStep::AfterSync => (step, 6),
        _ => (step, 1),
    });
    let (first, last) = ([(JournalStep::ReserveMade, 1)], [(JournalStep::TailCut, 1)]);
    for (step, count) in first.into_iter().chain(later).chain(last) {
        let crash_at = format!("{step:?}:{count}");
        let mut child = start(dir.path(), &ledger, Some(&crash_at));
        listen(&mut child, &mut ledger, usize::MAX);
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(6), "it died at {crash_at}: {status}");
        check(dir.path(), &mut ledger, false).await;
    }
}

/// Not a test by itself: the process that the others start, and kill.
#[tokio::test(flavor = "multi_thread")]
async fn the_process_that_dies() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let first = std::env::var(FIRST).expect("set by the parent");
    let hook = || std::env::var(CRASH_AT).ok().map(|at| abort_at(&at).expect("a crash point"));
    let config = || writeback::Config { hook: hook(), ..config(Path::new(&dir), SEGMENTS) };
    // Who checked what the last one left lets go of it when its threads are done, and beside other work that takes a moment.
    let opened = (0..500).find_map(|_| match Journal::open(config()) {
        Err(e) if e.to_string().contains("in use") => {
            std::thread::sleep(Duration::from_millis(20));
            None
        }
        opened => Some(opened),
    });
    let (journal, recovered) = opened.expect("free again").expect("opens");
    let old: Vec<u64> = recovered.map(|entry| entry.expect("whole").sequence).collect();
    let old = Arc::new(std::sync::Mutex::new(std::collections::VecDeque::from(old)));
    let (journal, next) = (Arc::new(journal), Arc::new(AtomicU64::new(parse(&first))));
    // Far beyond what a busy machine needs to reach any crash point.
    let end = Instant::now() + Duration::from_secs(300);
    let writers: Vec<_> =
        (0..4).map(|_| tokio::spawn(write(journal.clone(), next.clone(), old.clone(), end))).collect();
    for writer in writers {
        writer.await.expect("writes until it is killed");
    }
}

async fn write(
    journal: Arc<Journal>,
    next: Arc<AtomicU64>,
    old: Arc<std::sync::Mutex<std::collections::VecDeque<u64>>>,
    end: Instant,
) {
    while Instant::now() < end {
        let number = next.fetch_add(1, Ordering::SeqCst);
        println!("try {number}");
        let ticket = journal.append(head(number), data(number), end).await.expect("room is made");
        if number.is_multiple_of(3) {
            journal.synced(ticket.sequence).await.expect("synced");
            println!("ack {} {number}", ticket.sequence);
        }
        if number.is_multiple_of(50) {
            journal.compact().await.expect("compacts");
        }
        // A sixth of the journal stays dirty; who flushes is faster than who writes.
        for _ in 0..2 {
            let oldest = {
                let mut old = old.lock().expect("nobody panics with it");
                (old.len() > 30).then(|| old.pop_front()).flatten()
            };
            if let Some(sequence) = oldest {
                println!("done {sequence}");
                journal.done(&[sequence]).await.expect("done");
            }
        }
        // One entry in eleven is stuck for this life, so that there is something to compact.
        if !ticket.sequence.is_multiple_of(11) {
            old.lock().expect("nobody panics with it").push_back(ticket.sequence);
        }
    }
}
