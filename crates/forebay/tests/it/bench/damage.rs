//! Wrong contents on a target, planted behind the bench's back: they are reported, and the row is not believed.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bench_load::data::{FileVersion, SeededData};
use serde_json::Value;

use super::room::{Room, end, findings, invalid, names, result, rows, start, table};

/// One worker and one file, for seconds.
fn one_worker<'a>(shape: &'a str, target: &'a str) -> Vec<&'a str> {
    let mut run = vec!["shapes", "--target", target, "--shape", shape, "--sizes", "1MiB"];
    run.extend(["--fleets", "1x1", "--nodes", "1", "--workers", "1", "-n", "1", "--id", "mine", "--json"]);
    run
}

/// The files of the sets that are whole.
fn files(room: &Room) -> Vec<PathBuf> {
    let entries = |dir: &Path| -> Vec<PathBuf> {
        let found = std::fs::read_dir(dir).map(|found| found.flatten().map(|entry| entry.path()).collect());
        found.unwrap_or_default()
    };
    let whole = |dir: &PathBuf| {
        let description = std::fs::read_to_string(dir.join(".forebay-dataset")).unwrap_or_default();
        description.contains("\"complete\":true")
    };
    let sets = entries(&room.path("target/forebay-bench-mine")).into_iter().filter(whole);
    let data = |file: &PathBuf| file.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.'));
    sets.flat_map(|set| entries(&set)).filter(data).collect()
}

#[test]
fn a_flipped_byte_makes_its_row_invalid() {
    let room = Room::new();
    let target = room.target();
    let run = start(room.bench(&one_worker("mfmr", &target)));
    let mut planted = 0;
    // All that appear are damaged, as soon as they are.
    let mut flipped: Vec<PathBuf> = Vec::new();
    while room.processes().iter().any(|(id, _)| *id == run.id()) {
        for file in files(&room) {
            if flipped.contains(&file) {
                continue;
            }
            if flip(&file).is_some() {
                flipped.push(file);
                planted += 1;
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let ended = run.end();
    assert!(planted > 0);
    assert_eq!(ended.code, Some(1), "{:?}", ended.err);
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

fn flip(file: &Path) -> Option<()> {
    let file = OpenOptions::new().read(true).write(true).open(file).ok()?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, 12_345).ok()?;
    file.write_all_at(&[byte[0] ^ 1], 12_345).ok()
}

/// Files that one run left, and that were changed before the next one used them.
#[test]
fn what_was_changed_between_two_runs_on_kept_files_is_told_for_what_it_is() {
    let room = Room::new();
    let target = room.target();
    let mut run =
        vec!["shapes", "--target", &target, "--shape", "mfmr", "--sizes", "1MiB", "--fleets", "1x1"];
    run.extend(["--nodes", "1", "--workers", "4", "-n", "1", "--id", "mine", "--keep"]);
    let json = [&run[..], &["--json"]].concat();
    result(room.bench(&json));
    let set = room.path("target/forebay-bench-mine/d1048576");
    let path = |file: u64| set.join(format!("f{file:08}"));
    let written = |file| std::fs::metadata(path(file)).and_then(|meta| meta.modified()).expect("it is there");
    let before: Vec<_> = (0..4).map(written).collect();
    let again = result(room.bench(&json));
    assert!(findings(&again).iter().any(|told| told.contains("used again")), "{:?}", findings(&again));
    assert_eq!((0..4).map(written).collect::<Vec<_>>(), before, "nothing was written");
    assert_eq!(faults(&again), Vec::<&str>::new());

    // As of an older version; another file's; two blocks that changed places; one byte.
    let content = SeededData { seed: 1, compressible_percent: 0 };
    let old = content.generate(FileVersion { file: 0, version: 0 }, 0, 1 << 20);
    std::fs::write(path(0), old).expect("written");
    std::fs::write(path(1), content.generate(FileVersion { file: 3, version: 1 }, 0, 1 << 20))
        .expect("written");
    let mut bytes = std::fs::read(path(2)).expect("read");
    bytes[..2 * 4096].rotate_left(4096);
    std::fs::write(path(2), bytes).expect("written");
    flip(&path(3)).expect("flipped");
    let ended = end(room.bench(&json));
    assert_eq!(ended.code, Some(1), "{:?}", ended.err);
    let told: Value = serde_json::from_str(&ended.out).unwrap_or_else(|e| panic!("{e}: {:?}", ended.err));
    assert!(
        findings(&told).iter().any(|told| told.contains("were not written there")),
        "{:?}",
        findings(&told)
    );
    let reasons = faults(&told).join("\n");
    for kind in ["corrupt", "stale", "other reads"] {
        let count = reasons.split_once(&format!(" {kind}")).and_then(|(before, _)| before.rsplit(' ').next());
        assert!(
            count.and_then(|count| count.parse::<u64>().ok()).is_some_and(|n| n > 0),
            "{kind}: {reasons}"
        );
    }

    // Files that are not the ones wanted are left as they are.
    for other in [&["--seed", "2"][..], &["--workers", "6"]] {
        let other: Vec<&str> = match other {
            ["--workers", n] => run.iter().map(|word| if *word == "4" { n } else { word }).copied().collect(),
            more => [&run[..], more].concat(),
        };
        let refused = end(room.bench(&other));
        assert_eq!((refused.code, refused.err.len()), (Some(2), 1), "{other:?}: {:?}", refused.err);
        assert!(refused.err[0].contains("give another id"), "{other:?}: {:?}", refused.err);
    }
    let left = end(room.bench(&["clean", "--target", &target, "--id", "mine"]));
    assert_eq!(left.code, Some(0), "{:?}", left.err);
    room.assert_nothing_is_left();
}

/// Why rows of the sweep over sizes are not believed, but for how long they took.
fn faults(result: &Value) -> Vec<&str> {
    invalid(table(result, "MFMR against")).into_iter().filter(|why| !why.contains("too short")).collect()
}

/// The storage holds what another has written over it, while the bench believes in what it laid out by another way.
#[test]
fn a_file_of_another_version_makes_its_row_invalid() {
    let room = Room::new();
    let (target, other) = (room.target(), room.text("other"));
    std::fs::create_dir(&other).expect("created");
    let kept = one_worker("sfmr", &target);
    end(room.bench(&[&kept[..], &["--keep"]].concat()));
    let file = room.path("target/forebay-bench-mine/d1048576/f00000000");
    let newer = SeededData { seed: 1, compressible_percent: 0 }.generate(
        FileVersion { file: 0, version: 2 },
        0,
        1 << 20,
    );
    std::fs::write(file, newer).expect("written");
    let ended = end(room.bench(&[&kept[..], &["--lay-out-at", &other]].concat()));
    assert_eq!(ended.code, Some(1), "{:?}", ended.err);
    let result: Value = serde_json::from_str(&ended.out).unwrap_or_else(|e| panic!("{e}: {:?}", ended.err));
    let reasons = invalid(table(&result, "SFMR against the size"));
    assert!(reasons.iter().any(|why| why.contains("version 2 where version 1 was expected")), "{reasons:?}");
    let left = end(room.bench(&["clean", "--target", &target, "--id", "mine"]));
    assert_eq!(left.code, Some(0), "{:?}", left.err);
    assert_eq!(names(&room.path("other")), Vec::<String>::new());
    room.assert_nothing_is_left();
}

#[test]
fn a_knee_that_was_found_with_wrong_bytes_fails_the_run() {
    let room = Room::new();
    let target = room.target();
    let load =
        ["load", "--target", &target, "--files", "1", "--file-size", "64KiB", "--id", "mine", "--json"];
    let kept = end(room.bench(&[&load[..], &["--keep", "-n", "1"]].concat()));
    assert_eq!(kept.code, Some(0), "{:?}", kept.err);
    flip(&room.path("target/forebay-bench-mine/f00000000")).expect("flipped");
    let ended = end(
        room.bench(&[&load[..], &["--knee", "--step", "1s", "-n", "1", "--open-percent", "50"]].concat())
    );
    assert_eq!(ended.code, Some(1), "{:?}", ended.err);
    let result: Value = serde_json::from_str(&ended.out).unwrap_or_else(|e| panic!("{e}: {:?}", ended.err));
    let told = findings(&result);
    assert!(told.iter().any(|text| text.contains("bytes that were not written there")), "{told:?}");
    room.assert_nothing_is_left();
}
