//! The bench takes away what is its own, however it ends, and nothing else.

use rustix::process::Signal;

use super::room::{Room, names, signal, start, wait_for};

#[test]
fn every_experiment_leaves_nothing_behind() {
    let room = Room::new();
    let target = room.target();
    let runs: [&[&str]; 5] = [
        &["sob", "4", "--target", &target, "-n", "1", "--scale", "0.01"],
        &["shapes", "--target", &target, "--shape", "sfmw", "--sizes", "1MiB", "--nodes", "1", "-n", "1"],
        &["loader", "--rtt", "5ms", "-n", "1", "--clients", "2", "--workers", "2", "--objects", "8"],
        &["workflow", "--rtt", "2ms", "-n", "1", "--nodes", "1", "--scale", "0.001"],
        &["replicas"],
    ];
    for arguments in runs {
        let ended = room.run(arguments);
        // Rows that were over too soon are told of, and are no failure.
        assert_eq!(ended.code, Some(0), "{arguments:?}: {:?}", ended.err);
        assert!(ended.out.starts_with('#'), "{arguments:?}: {}", ended.out);
        room.assert_nothing_is_left();
    }
}

#[test]
fn a_reader_that_goes_away_costs_no_result() {
    let room = Room::new();
    let mut command = room.bench(&["replicas", "--out", &room.text("out")]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut run = command.spawn().expect("forebay starts");
    drop(run.stdout.take());
    let ended = run.wait_with_output().expect("our child");
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(names(&room.path("out")).contains(&"replicas.json".to_owned()));
}

#[test]
fn a_directory_that_is_not_ours_is_neither_used_nor_removed() {
    let room = Room::new();
    let (target, theirs) = (room.target(), room.path("target/forebay-bench-mine"));
    std::fs::create_dir(&theirs).expect("created");
    std::fs::write(theirs.join("thesis.tex"), "years of work").expect("written");
    let runs: [&[&str]; 4] = [
        &["sob", "2", "--target", &target, "--id", "mine"],
        &["shapes", "--target", &target, "--id", "mine"],
        &["clean", "--target", &target, "--id", "mine"],
        &["clean", "--target", &target, "--id", "other"],
    ];
    for arguments in runs {
        let ended = room.run(arguments);
        assert_eq!((ended.code, ended.err.len()), (Some(2), 1), "{arguments:?}: {:?}", ended.err);
        assert!(ended.err[0].contains("marker"), "{arguments:?}: {:?}", ended.err);
        assert_eq!(names(&theirs), ["thesis.tex"], "{arguments:?}");
    }
}

#[test]
fn what_others_put_into_our_directory_stays_and_is_told_of() {
    let room = Room::new();
    let target = room.target();
    let kept = room.run(&["sob", "2", "--target", &target, "-n", "1", "--id", "mine", "--keep"]);
    assert_eq!(kept.code, Some(0), "{:?}", kept.err);
    assert!(kept.out.contains("left in place"), "{}", kept.out);
    let ours = room.path("target/forebay-bench-mine");
    std::fs::write(ours.join("notes.txt"), "mine").expect("written");
    let cleaned = room.run(&["clean", "--target", &target, "--id", "mine"]);
    assert!(cleaned.out.contains("notes.txt"), "{} {:?}", cleaned.out, cleaned.err);
    assert_eq!(cleaned.code, Some(1), "not all is gone");
    assert!(names(&ours).contains(&"notes.txt".to_owned()), "{:?}", names(&ours));
}

#[test]
fn an_interrupted_run_takes_its_processes_and_files_with_it() {
    for how in [Signal::INT, Signal::TERM] {
        let room = Room::new();
        let run =
            start(room.bench(&["render", "--nodes", "2", "--rtt", "100ms", "--compute", "60s", "-n", "1"]));
        room.process_with(" nas ");
        std::thread::sleep(std::time::Duration::from_secs(4));
        signal(run.id(), how);
        let ended = run.end();
        eprintln!("{how:?}: {:?}, {:?}", ended.code, ended.err);
        assert!(ended.code.is_some_and(|code| code != 0), "{how:?}: {:?}", ended.err);
        assert_eq!(ended.out, "", "{how:?}: no result");
        room.assert_nothing_is_left();
    }
}

#[test]
fn an_interrupted_writer_cleans_the_target() {
    let room = Room::new();
    let target = room.target();
    let run = start(room.bench(&["sob", "2", "--target", &target, "-n", "1000", "--scale", "0.1"]));
    wait_for("its directory", || {
        names(&room.path("target")).into_iter().find(|name| name.starts_with("forebay-bench"))
    });
    std::thread::sleep(std::time::Duration::from_millis(500));
    signal(run.id(), Signal::INT);
    let ended = run.end();
    assert!(ended.code.is_some_and(|code| code != 0), "{:?}", ended.err);
    room.assert_nothing_is_left();
}
