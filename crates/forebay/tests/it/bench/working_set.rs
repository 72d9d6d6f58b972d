//! How a cache gets warm and how large it must be, at a size of seconds: what is counted and proved, never how fast.

use serde_json::Value;

use super::room::{Room, column, end, findings, invalid, names, rows, table};
use testkit::ports::free_port;

use crate::tier::Tier;

fn number(cell: &Value) -> f64 {
    cell["estimate"]["median"].as_f64().or_else(|| cell["number"].as_f64()).unwrap_or(f64::NAN)
}

fn numbers(table: &Value, name: &str) -> Vec<f64> {
    column(table, name).into_iter().map(number).collect()
}

/// Reasons that are about the cache, and not about how fast this machine is or what its file system can tell.
fn wrong(table: &Value) -> Vec<&str> {
    let mut reasons = invalid(table);
    reasons.retain(|why| {
        !why.contains("too short") && !why.contains("from the disk") && !why.contains("unknown")
    });
    reasons
}

#[test]
fn a_cache_that_is_too_small_is_told_from_one_that_is_not_and_every_state_is_proved() {
    let room = Room::new();
    let run = ["working-set", "-n", "1", "--cache-size", "64MiB", "--factors", "0.5,2", "--rtt", "1ms"];
    let shape =
        ["--orders", "sequential,permutation,zipf", "--file-size", "1MiB", "--out", &room.text("out")];
    let result = room.result(&[&run[..], &shape].concat());

    let warm_up = table(&result, "Time to warm");
    assert_eq!((rows(warm_up).len(), wrong(warm_up)), (3, vec![]));

    let sources = table(&result, "Where the bytes came from");
    assert_eq!((rows(sources).len(), wrong(sources)), (3, vec![]));
    // 48 MiB, by two clients, four times and then once; warm, nothing had to be waited for.
    assert_eq!(numbers(sources, "served MiB"), [384.0, 96.0, 96.0]);
    assert_eq!(numbers(sources, "hits %")[1..], [100.0, 100.0]);
    let parts =
        ["from memory %", "from the disk %", "waited for the storage %"].map(|part| numbers(sources, part));
    for at in 0..3 {
        let sum: f64 = parts.iter().map(|part| part[at]).sum();
        assert!(sum.is_nan() || (sum - 100.0).abs() < 0.01, "{at}: {sum} %");
    }
    // Either the disk gave what was asked for, or the row says that it did not.
    assert!(parts[1][2] > 20.0 || rows(sources)[2]["invalid"].is_array(), "{}", rows(sources)[2]);

    let storage = table(&result, "What the storage was asked for");
    let from_storage = numbers(storage, "from the storage MiB");
    // Some files beside the data set are read ahead, which has its own column.
    assert!(from_storage[0] >= 48.0 && from_storage[1] == 0.0, "{from_storage:?}");
    assert!(numbers(storage, "thereof twice MiB").iter().all(|twice| *twice <= 2.4), "of 48 MiB");
    assert!(numbers(storage, "READ")[0] >= 48.0 && numbers(storage, "READ")[1] == 0.0);
    assert_eq!(numbers(storage, "evicted unread MiB"), [0.0, 0.0, 0.0]);

    let sweep = table(&result, "How large a cache must be");
    // How many bytes came late is looked at below.
    let unexpected: Vec<_> = wrong(sweep).into_iter().filter(|why| !why.starts_with("not warm: ")).collect();
    assert_eq!((rows(sweep).len(), unexpected), (6, vec![]));
    let (factors, hits) = (numbers(sweep, "data set / cache"), numbers(sweep, "hits %"));
    let (sizes, evicted) = (numbers(sweep, "data set MiB"), numbers(sweep, "evicted in all passes MiB"));
    let per_byte = numbers(sweep, "storage bytes per client byte");
    let again = numbers(sweep, "fetched again in all passes MiB");
    for at in 0..6 {
        assert_eq!(sizes[at], factors[at] * 64.0);
        let order = &column(sweep, "Order")[at]["text"];
        if factors[at] < 1.0 {
            assert_eq!(evicted[at], 0.0, "{order}");
            // A read that straggles is sent once more, and on a busy machine its answer may come as late as in the next pass.
            assert!(again[at] <= 0.05 * sizes[at], "{order}: {} MiB again", again[at]);
            if order != "zipf" {
                assert_eq!(hits[at], 100.0, "{order}");
                assert!(per_byte[at] <= 0.05, "{order}: {}", per_byte[at]);
            }
        } else if order != "zipf" {
            assert!(hits[at] < 100.0 && per_byte[at] > 0.0 && evicted[at] > 0.0, "{order}: {} %", hits[at]);
            assert!(again[at] > 0.0, "{order}: what has left is fetched again");
        }
    }
    room.assert_nothing_is_left();
    let written = names(&room.path("out"));
    for name in ["working-set.json", "working-set.md", "working-set.html"] {
        assert!(written.iter().any(|file| file == name), "{name} is not in {written:?}");
    }
    assert!(written.iter().filter(|name| name.ends_with(".csv")).count() >= 4, "{written:?}");
}

#[test]
fn a_running_tier_is_measured_and_loses_nothing_that_it_had() {
    let room = Room::new();
    let (origin, own) = (room.path("target"), room.path("own"));
    std::fs::create_dir(&own).expect("created");
    std::fs::write(origin.join("theirs"), vec![7; 1 << 20]).expect("written");
    let junction = format!(
        "[[junction]]\npath = \"/\"\norigin = \"file://{}\"\nfiles = \"always\"\ndirectories = \"always\"\n",
        origin.display()
    );
    let mut tier = Tier::start(&own, &junction);
    let theirs = |tier: &Tier| tier.json(&["stat", "/theirs"])["cached_bytes"].as_u64();
    tier.json(&["warm", "/theirs"]);
    assert_eq!(theirs(&tier), Some(1 << 20));

    let url = format!("nfs://127.0.0.1:{0}/?mountport={0}", tier.nfs_port);
    let (admin, behind) = (tier.admin.to_string(), format!("file://{}", room.target()));
    let running = ["working-set", "--tier", &url, "--admin", &admin, "--lay-out-at", &behind];
    let result = room.result(&[&running[..], &["-n", "2", "--file-size", "1MiB"]].concat());
    assert_eq!(wrong(table(&result, "Where the bytes came from")), Vec::<&str>::new());
    assert_eq!(numbers(table(&result, "Where the bytes came from"), "hits %")[1], 100.0);
    // It asks whether a file has changed, always, as it was told to.
    let asked = numbers(table(&result, "What the storage was asked for"), "revalidations per open");
    assert!(asked.len() == 2 && asked[1] > 0.0, "{asked:?}");
    assert!(findings(&result).iter().any(|said| said.contains("no sweep")), "{:?}", findings(&result));
    assert_eq!(theirs(&tier), Some(1 << 20), "it is still there");

    // What does not fit beside it is refused, with what to do.
    let large = end(room.bench(&[&running[..], &["--cache-size", "5GiB"]].concat()));
    assert_eq!(large.code, Some(2), "{:?}", large.err);
    assert!(large.err.len() == 1 && large.err[0].contains("--may-evict"), "{:?}", large.err);
    assert_eq!(tier.stop(), Some(0));
    assert_eq!(names(&origin), ["theirs"]);
    room.assert_nothing_is_left();
}

#[test]
fn a_working_set_that_is_only_planned_touches_nothing() {
    let room = Room::new();
    let said = end(room.bench(&["working-set", "--dry-run", "--origin", &room.target()]));
    assert_eq!(said.code, Some(0), "{:?}", said.err);
    assert!(said.out.contains("0.25") && said.out.contains("iB written, about"), "{}", said.out);
    let refused = end(room.bench(&["working-set", "--may-evict"]));
    assert_eq!(refused.code, Some(2), "{:?}", refused.err);
    let nobody = format!("127.0.0.1:{}", free_port());
    let tier = ["--tier", "nfs://127.0.0.1:1/", "--admin", &nobody, "--lay-out-at", "file:///nowhere"];
    let ended = end(room.bench(&[&["working-set"][..], &tier].concat()));
    assert!(ended.code != Some(0) && ended.err.iter().any(|e| e.contains("--admin")), "{:?}", ended.err);
    room.assert_nothing_is_left();
}
