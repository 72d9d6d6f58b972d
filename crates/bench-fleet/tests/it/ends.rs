//! However a run ends early, it ends on all ranks, soon, with a line that says why.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;
use testkit::lab::{NotRun, not_run};
use testkit::mpi::open_mpi;
use testkit::slurm::with_slurm;
use testkit::ssh::with_sshd;

use crate::rehearsal::{
    PROGRAM, Run, as_rank, assert_lines, lines, process_of, rehearsal, run, start, wait_while,
};

/// "Within seconds": no run here waits for a silent one.
const SOON: Duration = Duration::from_secs(5);

fn kill(process: i32, signal: Signal) {
    let process = rustix::process::Pid::from_raw(process).expect("a process's id");
    rustix::process::kill_process(process, signal).expect("it is there");
}

/// A process that ended and that nobody has waited for is not.
fn is_alive(process: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // "12 (name) S ...": a name may have anything in it.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// A run whose ranks are at work, their processes, and the directory that they are in.
fn working(mut command: Command, ranks: u32) -> (Run, Vec<i32>, TempDir) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let run = start(command.arg("--pids").arg(dir.path()).current_dir(&dir));
    let processes = (0..ranks).map(|rank| process_of(dir.path(), rank)).collect();
    (run, processes, dir)
}

/// Start four ranks that work for a minute, send `signal` to rank 2, and see how the run ends.
fn with_rank_2_sent(mut command: Command, signal: Signal) -> (Output, Duration) {
    command.args(["--work-seconds", "50"]);
    let (run, processes, _dir) = working(command, 4);
    kill(processes[2], signal);
    let ended = run.end();
    wait_while(SOON, "a process is left behind", || processes.iter().any(|process| is_alive(*process)));
    ended
}

fn assert_rank_2_was_lost((output, took): (Output, Duration)) {
    assert_ended_early(&output, took);
    assert_lines(&output, 3, &["rank 2 (host ", "was lost"]);
}

fn assert_ended_early(output: &Output, took: Duration) {
    assert!(!output.status.success(), "{output:?}");
    assert!(took < SOON, "{took:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

fn assert_names_rank_2(line: &str) {
    assert!(line.contains("rank 2 (host ") && line.contains("was lost"), "{line:?}");
}

#[test]
fn a_killed_local_process_ends_the_run() {
    let lost = with_rank_2_sent(rehearsal(&["--procs", "4"]), Signal::KILL);
    assert!(lines(&lost.0)[0].contains("signal: 9"), "{:?}", lost.0);
    assert_rank_2_was_lost(lost);
}

/// A launcher itself kills the others when a second rank has ended, and drops what it has not yet read of their errors. So
/// they go to files here, named by what `rank` says, and rank 0, which ends first, must have said it; the others as far
/// as they were let.
fn assert_a_launcher_ends_with_rank_2(mut launcher: Command, rank: &str) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let script = format!("exec \"$0\" \"$@\" 2>\"$ERRORS/${rank}\"");
    launcher.args(["sh", "-c", &script, PROGRAM]).env("ERRORS", dir.path());
    let (output, took) = with_rank_2_sent(launcher, Signal::KILL);
    assert_ended_early(&output, took);
    let said = |rank: u32| std::fs::read_to_string(dir.path().join(rank.to_string())).expect("its errors");
    assert_names_rank_2(&said(0));
    [said(1), said(3)].iter().filter(|said| !said.is_empty()).for_each(|said| assert_names_rank_2(said));
}

#[test]
fn a_rank_killed_under_mpirun_ends_the_run() {
    match open_mpi(4) {
        Ok(mpirun) => assert_a_launcher_ends_with_rank_2(mpirun, "OMPI_COMM_WORLD_RANK"),
        Err(NotRun(reason)) => not_run("a_rank_killed_under_mpirun_ends_the_run", &reason),
    }
}

#[test]
fn a_rank_killed_under_srun_ends_the_run() {
    with_slurm("a_rank_killed_under_srun_ends_the_run", 2, |slurm| {
        assert_a_launcher_ends_with_rank_2(slurm.srun(2, 4), "SLURM_PROCID");
    });
}

#[test]
fn a_rank_killed_behind_ssh_ends_the_run() {
    with_sshd("a_rank_killed_behind_ssh_ends_the_run", |sshd| {
        let ssh = sshd.command().join(" ");
        assert_rank_2_was_lost(with_rank_2_sent(
            rehearsal(&["--hosts", "n1,n2:2", "--ssh", &ssh]),
            Signal::KILL,
        ));
    });
}

/// As a host that is gone: no connection is closed.
#[test]
fn a_rank_that_falls_silent_ends_the_run() {
    // The stopped process is killed by its parent.
    let (output, took) =
        with_rank_2_sent(rehearsal(&["--procs", "4", "--silence-seconds", "2"]), Signal::STOP);
    assert!(!output.status.success());
    assert!(took > Duration::from_secs(1) && took < 3 * SOON, "{took:?}");
    assert_lines(&output, 3, &["rank 2 (host ", "silent for"]);
}

#[test]
fn a_rank_0_that_falls_silent_ends_the_others() {
    let silent = ["--procs", "3", "--silence-seconds", "2", "--work-seconds", "50"];
    let (run, processes, _dir) = working(rehearsal(&silent), 3);
    kill(processes[0], Signal::STOP);
    // They end, but only their parent could bury them.
    wait_while(3 * SOON, "the others go on without rank 0", || {
        processes[1..].iter().any(|process| is_alive(*process))
    });
    kill(processes[0], Signal::KILL);
    let (output, _) = run.end();
    assert_lines(&output, 2, &["rank 0 (", "silent for"]);
}

/// A terminal's Ctrl-Z, a machine that slept: nobody was silent, we did not listen.
#[test]
fn a_run_that_was_stopped_as_a_whole_goes_on() {
    let silent = ["--procs", "3", "--silence-seconds", "3", "--work-seconds", "6"];
    let (run, processes, _dir) = working(rehearsal(&silent), 3);
    processes.iter().for_each(|process| kill(*process, Signal::STOP));
    std::thread::sleep(Duration::from_secs(5));
    processes.iter().for_each(|process| kill(*process, Signal::CONT));
    let (output, _) = run.end();
    assert!(output.status.success() && lines(&output).is_empty(), "{output:?}");
}

#[test]
fn a_run_that_is_told_to_end_says_so_on_all_ranks() {
    let (output, took) = with_rank_2_sent(rehearsal(&["--procs", "4"]), Signal::TERM);
    assert!(!output.status.success() && took < SOON, "{took:?} {output:?}");
    assert_lines(&output, 4, &["rank 2 (host ", "SIGTERM"]);
}

/// Which has caught it for the run before.
#[test]
fn after_the_run_the_signal_still_ends_the_process() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut command = rehearsal(&["--procs", "2", "--linger-seconds", "50", "--pids"]);
    let run = start(command.arg(dir.path()));
    let process = process_of(&dir.path().join("done"), 0);
    kill(process, Signal::TERM);
    let (output, took) = run.end();
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert_eq!(output.status.code(), Some(143));
}

#[test]
fn the_loss_of_rank_0_ends_the_others() {
    let (run, processes, _dir) = working(rehearsal(&["--procs", "3", "--work-seconds", "50"]), 3);
    kill(processes[0], Signal::KILL);
    let (output, _) = run.end();
    assert_lines(&output, 2, &["rank 0 (", "was lost"]);
}

fn assert_all_say(arguments: &[&str], ranks: usize, what: &str) {
    let output = run(&mut rehearsal(arguments));
    assert!(!output.status.success());
    let lines = lines(&output);
    assert_eq!(lines.iter().filter(|line| line.contains(what)).count(), ranks, "{output:?}");
}

#[test]
fn a_rank_that_aborts_gives_its_reason_to_all() {
    for rank in ["0", "2"] {
        let reason = format!("rank {rank} (host ");
        let arguments = ["--procs", "3", "--abort-rank", rank];
        assert_all_say(&arguments, 3, "ended the run: its target is full");
        assert_all_say(&arguments, 3, &reason);
    }
}

#[test]
fn a_rank_that_leaves_early_ends_the_run() {
    assert_all_say(&["--procs", "3", "--leave-rank", "1"], 2, "it left the run before the end");
    assert_all_say(&["--procs", "3", "--leave-rank", "0"], 2, "it left the run before the end");
}

#[test]
fn ranks_that_go_different_ways_do_not_wait_for_each_other() {
    assert_all_say(&["--procs", "3", "--stray-rank", "1"], 3, "is out of step");
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    let port = testkit::ports::free_port();
    for (rank, parts) in [
        (0, &["1 of 3 ranks came within 1 s; missing: rank 1, rank 2"][..]),
        (2, &["rank 2 did not find rank 0 within 1 s", "refused"]),
    ] {
        let output = run(&mut as_rank(rank, 3, port, &["--join-seconds", "1"]));
        assert!(!output.status.success());
        let line = &lines(&output)[0];
        assert!(parts.iter().all(|part| line.contains(part)), "{line}");
    }
}

#[test]
fn a_process_that_ends_before_it_joins_is_named_at_once() {
    // By this the others refuse to work.
    let begun = Instant::now();
    let output = run(rehearsal(&["--procs", "2"]).env("FLEET_REHEARSAL_REFUSE", "1"));
    assert!(!output.status.success() && begun.elapsed() < SOON);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("rank 1 (host ") && text.contains("ended before it joined the run: exit status: 3"),
        "{text}"
    );
}

#[test]
fn options_that_make_no_sense_are_refused_in_a_line() {
    for (arguments, what) in [
        (&["--procs", "0"][..], "--procs"),
        (&["--procs", "2", "--hosts", "a"], "cannot go together"),
        (&["--hosts", "-oProxyCommand=x"], "--hosts"),
    ] {
        let output = run(&mut rehearsal(arguments));
        let lines = lines(&output);
        assert!(!output.status.success() && lines.len() == 1 && lines[0].contains(what), "{output:?}");
    }
}
