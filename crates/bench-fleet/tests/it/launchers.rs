//! The same run by local processes, mpirun, srun and ssh gives the same table.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use testkit::lab::{NotRun, not_run};
use testkit::mpi::{mpich_on_two_machines, open_mpi};
use testkit::slurm::with_slurm;
use testkit::ssh::with_sshd;

use crate::rehearsal::{PROGRAM, as_rank, printed, rehearsal, run, start, table, wait_while};

fn expected() -> String {
    table(4, 1000)
}

fn with_program(mut command: Command) -> Command {
    command.arg(PROGRAM);
    command
}

#[test]
fn local_processes_print_the_table() {
    assert_eq!(printed(&mut rehearsal(&["--procs", "4"])), expected());
}

#[test]
fn one_process_needs_nothing() {
    let expected = table(1, 1000);
    assert_eq!(printed(&mut rehearsal(&[])), expected);
    assert_eq!(printed(&mut rehearsal(&["--procs", "1"])), expected);
}

#[test]
fn open_mpis_mpirun_prints_the_same_table() {
    match open_mpi(4) {
        Ok(mpirun) => assert_eq!(printed(&mut with_program(mpirun)), expected()),
        Err(NotRun(reason)) => not_run("open_mpis_mpirun_prints_the_same_table", &reason),
    }
}

/// Which then meet in the working directory, and leave nothing there.
#[test]
fn mpichs_mpirun_on_two_machines_prints_the_same_table() {
    match mpich_on_two_machines(4) {
        Ok(mpirun) => {
            let dir = tempfile::tempdir().expect("temporary directory");
            assert_eq!(printed(with_program(mpirun).current_dir(&dir)), expected());
            assert_eq!(std::fs::read_dir(&dir).expect("it is there").count(), 0);
        }
        Err(NotRun(reason)) => not_run("mpichs_mpirun_on_two_machines_prints_the_same_table", &reason),
    }
}

#[test]
fn what_an_earlier_run_left_behind_does_no_harm() {
    match mpich_on_two_machines(4) {
        Ok(mpirun) => {
            let dir = tempfile::tempdir().expect("temporary directory");
            let user = rustix::process::getuid().as_raw();
            let path = dir.path().join(format!(".forebay-bench-{user}-mpi-4"));
            let stale = r#"{"addresses":["127.0.0.1:1"],"token":"0123456789abcdef0123"}"#;
            std::fs::write(&path, stale).expect("written");
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("it is ours");
            assert_eq!(printed(with_program(mpirun).current_dir(&dir)), expected());
            assert!(!path.exists(), "the run has replaced and removed it");
        }
        Err(NotRun(reason)) => not_run("what_an_earlier_run_left_behind_does_no_harm", &reason),
    }
}

#[test]
fn srun_prints_the_same_table_on_one_node_and_on_two() {
    with_slurm("srun_prints_the_same_table_on_one_node_and_on_two", 2, |slurm| {
        let dir = tempfile::tempdir().expect("temporary directory");
        assert_eq!(printed(with_program(slurm.srun(1, 4)).current_dir(&dir)), expected());
        assert_eq!(printed(with_program(slurm.srun(2, 4)).current_dir(&dir)), expected());
        assert_eq!(std::fs::read_dir(&dir).expect("it is there").count(), 0);

        // A rank is known by the node that Slurm has put it on.
        let mut cyclic = slurm.srun(2, 4);
        cyclic.args(["--ntasks-per-node=2", "--distribution=cyclic", PROGRAM, "--host-names"]);
        let hosts = printed(cyclic.current_dir(&dir));
        assert!(hosts.ends_with("0 n1\n1 n2\n2 n1\n3 n2\n"), "{hosts}");

        // The program's own processes in one task of a job.
        let own = printed(slurm.srun(1, 1).arg(PROGRAM).args(["--procs", "4"]).current_dir(&dir));
        assert_eq!(own, expected());
    });
}

#[test]
fn a_batch_script_that_forgets_srun_is_one_process() {
    with_slurm("a_batch_script_that_forgets_srun_is_one_process", 1, |slurm| {
        let dir = tempfile::tempdir().expect("temporary directory");
        let script = dir.path().join("job.sh");
        std::fs::write(&script, format!("#!/bin/sh\n{PROGRAM}\n")).expect("written");
        let mut sbatch = slurm.command("sbatch");
        printed(sbatch.args(["--ntasks=4", "--output=out"]).arg(&script).current_dir(&dir));
        let mut out = String::new();
        wait_while(Duration::from_secs(30), "the script does not end", || {
            out = std::fs::read_to_string(dir.path().join("out")).unwrap_or_default();
            // Its last word is a line's end.
            out.lines().count() != 2
        });
        assert_eq!(out, table(1, 1000));
    });
}

#[test]
fn hosts_over_ssh_print_the_same_table() {
    with_sshd("hosts_over_ssh_print_the_same_table", |sshd| {
        let ssh = sshd.command().join(" ");
        let others = printed(&mut rehearsal(&["--hosts", "n1,n2:2", "--ssh", &ssh]));
        assert_eq!(others, expected());
        let with_this = printed(&mut rehearsal(&["--hosts", "localhost:2,n1,n2", "--ssh", &ssh]));
        assert_eq!(with_this, expected());
    });
}

#[test]
fn a_host_that_ssh_cannot_reach_is_named_at_once() {
    with_sshd("a_host_that_ssh_cannot_reach_is_named_at_once", |sshd| {
        let ssh = sshd.command().join(" ");
        let output = run(&mut rehearsal(&["--hosts", "n1,unknown.invalid", "--ssh", &ssh]));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        assert!(errors.contains("rank 2 (host unknown.invalid) ended before it joined"), "{errors}");
        // The one that was reached is gone too, however far it had come.
        let mark = ssh.split('/').find(|part| part.starts_with("forebay-sshd-")).expect("its directory");
        wait_while(Duration::from_secs(10), "a rank is left behind", || is_running(mark));
    });
}

/// By an address of our own choice, without a file: for machines that share no directory.
#[test]
fn a_launcher_that_says_nothing_is_helped_by_variables() {
    let port = testkit::ports::free_port();
    let mut ranks: Vec<_> = (0..4).map(|rank| start(&mut as_rank(rank, 4, port, &[]))).collect();
    let (first, _) = ranks.remove(0).end();
    assert_eq!(String::from_utf8_lossy(&first.stdout), expected(), "{first:?}");
    for rank in ranks {
        let (output, _) = rank.end();
        assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    }
}

/// Whether there is a rehearsal with `mark` in its arguments.
fn is_running(mark: &str) -> bool {
    std::fs::read_dir("/proc").expect("processes").flatten().any(|process| {
        let arguments = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments);
        arguments.starts_with(PROGRAM) && arguments.contains(mark)
    })
}
