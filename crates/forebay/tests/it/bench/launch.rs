//! One run on several processes: the same table from every launcher, and one end for all.

use rustix::process::Signal;
use serde_json::Value;
use testkit::lab::{NotRun, not_run};
use testkit::mpi::open_mpi;
use testkit::slurm::with_slurm;

use super::room::{Ended, Room, column, end, invalid, names, result, rows, signal, start, table, wait_for};

/// Bytes, units and repetitions of every phase, and what was found wrong with it, by whichever processes did it.
fn told(result: &Value) -> Vec<String> {
    let rates = table(result, "Rates that may be believed");
    let cells = ["Phase", "n", "Bytes", "Units"].map(|name| column(rates, name));
    let mut lines: Vec<String> = (0..rows(rates).len())
        .map(|row| cells.iter().map(|cells| cells[row].to_string()).collect::<Vec<_>>().join(" "))
        .collect();
    // How long a row took is the machine's.
    lines.extend(
        invalid(rates)
            .into_iter()
            .filter(|why| !why.contains("shorter") && !why.contains("short"))
            .map(String::from),
    );
    let nodes = table(result, "By node");
    lines.push(format!("{} columns", nodes["columns"].as_array().expect("columns").len()));
    lines
}

fn sob(target: &str) -> Vec<&str> {
    vec!["sob", "3", "--target", target, "-n", "1", "--nodes", "3", "--scale", "0.005", "--json"]
}

fn expected(room: &Room) -> Vec<String> {
    let told = told(&result(room.bench(&sob(&room.target()))));
    // 50 files of 640 KiB on each of three nodes, read once in order, then 100 random reads of each.
    assert!(told[0].contains(&format!("{}", 3 * 50 * (640 << 10))), "{told:?}");
    assert_eq!(told.len(), 4, "three phases without a fault: {told:?}");
    told
}

#[test]
fn three_local_processes_print_the_table_of_one() {
    let room = Room::new();
    let one = expected(&room);
    let target = room.target();
    let three = result(room.bench(&[&sob(&target)[..], &["--procs", "3"]].concat()));
    assert_eq!(told(&three), one);
    assert_eq!(three["parameters"]["processes"], 3);
    room.assert_nothing_is_left();
}

#[test]
fn three_ranks_under_mpirun_print_the_table_of_one() {
    let room = Room::new();
    match open_mpi(3) {
        Ok(mpirun) => {
            let one = expected(&room);
            let three = result(room.launched(mpirun, &sob(&room.target())));
            assert_eq!(told(&three), one);
            assert_eq!(three["parameters"]["processes"], 3);
            room.assert_nothing_is_left();
        }
        Err(NotRun(reason)) => not_run("three_ranks_under_mpirun_print_the_table_of_one", &reason),
    }
}

#[test]
fn three_ranks_under_srun_print_the_table_of_one() {
    with_slurm("three_ranks_under_srun_print_the_table_of_one", 2, |slurm| {
        let room = Room::new();
        let one = expected(&room);
        let three = result(room.launched(slurm.srun(2, 3), &sob(&room.target())));
        assert_eq!(told(&three), one);
        assert_eq!(three["parameters"]["processes"], 3);
        room.assert_nothing_is_left();
    });
}

#[test]
fn of_fewer_nodes_than_processes_the_others_wait() {
    let room = Room::new();
    let target = room.target();
    let mut run = sob(&target);
    run.extend(["--procs", "4"]);
    let four = result(room.bench(&run));
    assert_eq!(told(&four), expected(&room));
    assert_eq!(four["parameters"]["processes"], 4);
    room.assert_nothing_is_left();
}

/// A run that takes minutes, of three processes, whose NAS and first phase are at work; and its other two processes.
fn long_run(room: &Room) -> (super::room::RunningTier, Vec<i32>) {
    let run = start(room.bench(&[
        "render",
        "--procs",
        "3",
        "--nodes",
        "3",
        "--rtt",
        "300ms",
        "--files",
        "100",
        "--compute",
        "60s",
        "-n",
        "1",
    ]));
    room.process_with(" nas ");
    let others = wait_for("the other two", || {
        let ranks: Vec<i32> = room
            .processes()
            .into_iter()
            .filter(|(id, line)| *id != run.id() && line.contains("forebay-bench render "))
            .map(|(id, _)| id)
            .collect();
        (ranks.len() == 2).then_some(ranks)
    });
    reach_the_first_phase(room);
    (run, others)
}

/// The data set is laid out before it, and the ceiling's own NAS is gone by then.
fn reach_the_first_phase(room: &Room) {
    wait_for("the first phase", || {
        let export = std::fs::read_dir(room.path("tmp"))
            .ok()?
            .flatten()
            .find(|entry| entry.path().join("export").is_dir())?;
        let run_dir = std::fs::read_dir(export.path().join("export")).ok()?.flatten().next()?;
        let text = std::fs::read_to_string(run_dir.path().join(".forebay-dataset")).ok()?;
        text.contains("\"complete\":true").then_some(())
    });
    std::thread::sleep(std::time::Duration::from_secs(2));
}

fn assert_lost(ended: &Ended, what: &str) {
    assert!(ended.code.is_some_and(|code| code != 0), "{what}: {:?}", ended.code);
    assert_eq!(ended.out, "", "{what}");
    let own: Vec<&String> = ended.err.iter().filter(|line| line.starts_with("forebay:")).collect();
    assert!(own.iter().any(|line| line.contains("lost")), "{what}: {:?}", ended.err);
    let mut different = own.clone();
    different.sort();
    different.dedup();
    assert!(different.len() <= 3, "a line of each process that is left at most: {:?}", ended.err);
}

#[test]
fn a_rank_killed_in_the_middle_ends_the_run_and_leaves_nothing() {
    let room = Room::new();
    let (run, others) = long_run(&room);
    let begun = std::time::Instant::now();
    signal(others[0], Signal::KILL);
    let ended = run.end();
    assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    assert_lost(&ended, "a rank");
    room.assert_nothing_is_left();
}

#[test]
fn what_a_run_wrote_to_the_target_is_removed_when_it_loses_a_rank() {
    let room = Room::new();
    let target = room.target();
    let load = ["sob", "3", "--target", &target, "--scale", "0.005", "-n", "1000"];
    let run = start(room.bench(&[&load[..], &["--nodes", "3", "--procs", "3"]].concat()));
    wait_for("its directory", || {
        let names = names(&room.path("target"));
        names.into_iter().find(|name| name.starts_with("forebay-bench"))
    });
    let other = wait_for("another rank", || {
        let mut all = room.processes().into_iter();
        all.find(|(id, line)| *id != run.id() && line.contains("forebay-bench sob ")).map(|(id, _)| id)
    });
    std::thread::sleep(std::time::Duration::from_secs(1));
    signal(other, Signal::KILL);
    assert_lost(&run.end(), "a rank that writes");
    room.assert_nothing_is_left();
}

/// Nobody is left who could remove files, but no process stays: neither ranks nor the NAS.
#[test]
fn when_the_first_process_is_killed_all_others_end() {
    let room = Room::new();
    let (run, _) = long_run(&room);
    signal(run.id(), Signal::KILL);
    let ended = run.end();
    assert!(ended.code.is_some_and(|code| code != 0));
    let begun = std::time::Instant::now();
    while !room.processes().is_empty() {
        assert!(begun.elapsed().as_secs() < 30, "left: {:?}", room.processes());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn a_rank_killed_under_mpirun_ends_the_run() {
    let room = Room::new();
    match open_mpi(3) {
        Ok(mpirun) => {
            let run = start(room.launched(
                mpirun,
                &[
                    "render",
                    "--nodes",
                    "3",
                    "--rtt",
                    "300ms",
                    "--files",
                    "100",
                    "--compute",
                    "60s",
                    "-n",
                    "1",
                ],
            ));
            reach_the_first_phase(&room);
            let nas = room.process_with(" nas ");
            let first = parent(nas);
            let rank = wait_for("another rank", || {
                let mut all = room.processes().into_iter();
                all.find(|(id, line)| {
                    *id != first && line.contains("bench render") && !line.contains("mpirun")
                })
                .map(|(id, _)| id)
            });
            signal(rank, Signal::KILL);
            let begun = std::time::Instant::now();
            let ended = run.end();
            assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
            assert!(ended.code.is_some_and(|code| code != 0), "{:?}", ended.err);
            room.assert_nothing_is_left();
        }
        Err(NotRun(reason)) => not_run("a_rank_killed_under_mpirun_ends_the_run", &reason),
    }
}

fn parent(process: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    let after_name = stat.rsplit(')').next().expect("a name in brackets");
    after_name.split_whitespace().nth(1).and_then(|id| id.parse().ok()).expect("a process's id")
}

#[test]
fn a_run_goes_on_when_its_program_is_built_anew_meanwhile() {
    let room = Room::new();
    let program = room.path("forebay");
    let bench = room.path("forebay-bench");
    std::fs::copy(crate::tier::forebay().get_program(), &program).expect("copied");
    std::fs::copy(crate::tier::bench_program(), &bench).expect("copied");
    let shape = ["--rtt", "2ms,20ms", "--nodes", "2", "--files", "4", "--compute", "1s", "-n", "1"];
    let mut run = std::process::Command::new(&program);
    run.args(["bench", "render", "--procs", "2", "--json"]).args(shape);
    run.env("TMPDIR", room.path("tmp")).env("FOREBAY_LOG", "off").current_dir(room.path("tmp"));
    let run = start(run);
    room.process_with("forebay-bench render ");
    // The other rank may have been started by then; the tiers have not.
    for program in [&program, &bench] {
        std::fs::remove_file(program).expect("removed");
        std::fs::write(program, "not a program").expect("written");
    }
    let ended = run.end();
    assert_eq!(ended.code, Some(0), "{:?}", ended.err);
    let result: Value = serde_json::from_str(&ended.out).expect("a result");
    assert_eq!(invalid(table(&result, "Extended")), Vec::<&str>::new());
    room.assert_nothing_is_left();
}

#[test]
fn of_several_ranks_one_measures_a_link() {
    let room = Room::new();
    let mpirun = match open_mpi(2) {
        Ok(mpirun) => mpirun,
        Err(NotRun(reason)) => return not_run("of_several_ranks_one_measures_a_link", &reason),
    };
    let mut server = room.bench(&["link", "server", "--listen", "127.0.0.1:0"]);
    server.stdout(std::process::Stdio::piped());
    let mut server = server.spawn().expect("started");
    let mut said = String::new();
    let stdout = server.stdout.take().expect("piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut said).expect("its address");
    let address = said.trim().strip_prefix("link server: ").expect("an address").to_owned();
    let ended = end(room.launched(mpirun, &["link", "client", &address, "--time", "400ms", "-n", "1"]));
    let _ = server.kill();
    let _ = server.wait();
    assert_eq!(ended.code, Some(0), "{:?}", ended.err);
    assert_eq!(ended.out.matches("# The link by itself").count(), 1, "{}", ended.out);
    assert!(ended.out.contains("The link: limited by: "), "{}", ended.out);
}

#[test]
fn a_workflow_refuses_processes_that_it_would_not_use() {
    let ended = end(Room::new().bench(&["workflow", "--procs", "2"]));
    assert_eq!((ended.code, ended.err.len()), (Some(2), 1), "{:?}", ended.err);
    assert!(ended.err[0].contains("--procs"), "{:?}", ended.err);
}
