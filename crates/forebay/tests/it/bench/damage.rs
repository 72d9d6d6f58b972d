//! Wrong contents on a target, planted behind the bench's back: they are reported, and the row is not believed.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::room::{Room, end, invalid, names, result, rows, start, table};

/// One worker and one file, for seconds.
fn one_worker<'a>(shape: &'a str, target: &'a str) -> Vec<&'a str> {
    let mut run = vec!["shapes", "--target", target, "--shape", shape, "--sizes", "1MiB"];
    run.extend(["--nodes", "1", "--workers", "1", "-n", "1", "--id", "mine", "--json"]);
    run
}

/// The data set's files, once all of it is written.
fn files(room: &Room) -> Option<Vec<PathBuf>> {
    let dir = room.path("target/forebay-bench-mine");
    let description = std::fs::read_to_string(dir.join(".forebay-dataset")).ok()?;
    let mut found = Vec::new();
    let mut dirs = vec![dir];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).ok()?.flatten() {
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            match entry.file_type().ok()? {
                kind if kind.is_dir() => dirs.push(entry.path()),
                kind if kind.is_file() && !hidden => found.push(entry.path()),
                _ => {}
            }
        }
    }
    (description.contains("\"complete\":true") && !found.is_empty()).then_some(found)
}

#[test]
fn a_flipped_byte_makes_its_row_invalid() {
    let room = Room::new();
    let target = room.target();
    let run = start(room.bench(&one_worker("mfmr", &target)));
    let mut planted = 0;
    // Rows come one after the other, each with files of its own: all that appear are damaged.
    let mut flipped: Vec<PathBuf> = Vec::new();
    while room.processes().iter().any(|(id, _)| *id == run.id()) {
        for file in files(&room)
            .unwrap_or_default()
            .into_iter()
            .filter(|file| !flipped.contains(file))
            .collect::<Vec<_>>()
        {
            if flip(&file).is_some() {
                flipped.push(file);
                planted += 1;
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let ended = run.end();
    assert!(planted > 0);
    let result: serde_json::Value =
        serde_json::from_str(&ended.out).unwrap_or_else(|e| panic!("{e}: {:?}", ended.err));
    let sizes = table(&result, "MFMR against the size");
    assert_eq!(rows(sizes).len(), 1);
    assert!(
        invalid(sizes).iter().any(|why| why.contains("corrupt") || why.contains("nobody wrote")),
        "{:?}",
        invalid(sizes)
    );
    room.assert_nothing_is_left();
}

fn flip(file: &PathBuf) -> Option<()> {
    let file = OpenOptions::new().read(true).write(true).open(file).ok()?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, 12_345).ok()?;
    file.write_all_at(&[byte[0] ^ 1], 12_345).ok()
}

/// The storage holds what another run has written over it, while the bench believes in what it laid out.
#[test]
fn a_file_of_another_version_makes_its_row_invalid() {
    let room = Room::new();
    let (target, other) = (room.target(), room.text("other"));
    std::fs::create_dir(&other).expect("created");
    // Repetitions write versions of their own.
    let wrote = end(room.bench(&[&one_worker("sfmw", &target)[..], &["--keep"]].concat()));
    assert_eq!(wrote.code, Some(0), "{:?}", wrote.err);
    let result = result(room.bench(&[&one_worker("sfmr", &target)[..], &["--lay-out-at", &other]].concat()));
    let reasons = invalid(table(&result, "SFMR against the size"));
    assert!(reasons.iter().any(|why| why.contains("version 2 where version 1 was expected")), "{reasons:?}");
    let left = end(room.bench(&["clean", "--target", &target, "--id", "mine"]));
    assert_eq!(left.code, Some(0), "{:?}", left.err);
    assert_eq!(names(&room.path("other")), Vec::<String>::new());
    room.assert_nothing_is_left();
}
