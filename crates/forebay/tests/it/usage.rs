//! Wrong usage: one line that says what to do, and an exit code that is not 0.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use testkit::ports::free_port;

use crate::tier::{Tier, forebay};

/// The one line that `forebay` says when its usage is wrong; it must come soon, with exit code 2.
fn refusal(arguments: &[&str]) -> String {
    let (said, code) = failure(arguments);
    assert_eq!(code, Some(2), "{arguments:?} said: {said}");
    said
}

/// The one line and the exit code of a command that fails.
pub fn failure(arguments: &[&str]) -> (String, Option<i32>) {
    failure_of(forebay(), arguments)
}

fn failure_of(mut command: Command, arguments: &[&str]) -> (String, Option<i32>) {
    command.args(arguments).env("FOREBAY_LOG", "off").stdin(Stdio::null()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("forebay starts");
    let start = Instant::now();
    while process.try_wait().expect("our child").is_none() {
        if start.elapsed() > Duration::from_secs(30) {
            let _ = process.kill();
            panic!("{arguments:?} was not refused");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = process.wait_with_output().expect("ended");
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    assert!(!output.status.success(), "{arguments:?} was accepted");
    assert_eq!(said.lines().count(), 1, "{arguments:?} said:\n{said}");
    (said, output.status.code())
}

fn serve<'a>(cache: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["serve", "--nfs", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--cache"];
    arguments.push(cache.to_str().expect("UTF-8"));
    arguments.extend(more);
    arguments
}

#[test]
fn a_log_level_that_nobody_has_is_said_and_not_followed() {
    let mut command = forebay();
    command.args(["serve", "--origin", "ftp://nas/export"]).env("FOREBAY_LOG", "debgu");
    let output = command.output().expect("forebay runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("FOREBAY_LOG is ignored: \"debgu\" is no level"), "{said}");
}

#[test]
fn every_wrong_line_says_what_would_be_right() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let cache = dir.path().join("cache");
    let here = format!("file://{}", dir.path().display());
    let (at_a, at_b) = (format!("/a={here}"), format!("/a/b={here}"));
    let string = dir.path().join("azure");
    std::fs::write(&string, "AZURE_STORAGE_CONNECTION_STRING=AccountName=farm01;Key=c2VjcmV0\n")
        .expect("written");
    let by_string = |origin: &str| format!("{origin}?credentials={}", string.display());
    let (az, azfile) = (by_string("az://farm01/films"), by_string("azfile://farm01/films"));
    let table: &[(&[&str], &str)] = &[
        (
            &["--origin", &az],
            "AZURE_STORAGE_CONNECTION_STRING: its part 2 has a name that no connection string has",
        ),
        (&["--origin", &azfile], "its part 2 has a name that no connection string has"),
        (&["--origin", "ftp://nas/export"], "nfs://"),
        (&["--origin", "gs://b"], "is no bucket"),
        (
            &["--origin", "gs://bucket?credentials=/no/such/file"],
            "cannot read the credentials in /no/such/file",
        ),
        (&["--origin", "nas:/export"], "nfs://"),
        (&["--origin", "file://relative"], "absolute"),
        (&["--origin", "file:///no/such/directory"], "existing directory"),
        (&["--origin", "nfs://nas/x?speed=9"], "speed"),
        (&["--origin", &here, "--cache-size", "1MiB"], "floor"),
        (&["--origin", &at_a, "--origin", &at_a], "two origins"),
        (&["--origin", &at_a, "--origin", &at_b], "inside"),
        (&["--origin", &here, "--write", "maybe"], "read-only"),
        (&[], "--origin"),
    ];
    for (more, right) in table {
        let said = refusal(&serve(&cache, more));
        assert!(said.contains(right), "{more:?} said: {said}");
    }
}

#[test]
fn a_server_that_does_not_answer_and_an_export_that_does_not_exist_are_named() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let cache = dir.path().join("cache");
    let (said, code) = failure(&serve(&cache, &["--origin", "nfs://127.0.0.1:1/x?mountport=1"]));
    assert!(said.contains("127.0.0.1:1"), "{said}");
    assert_eq!(code, Some(1), "not wrong usage: it may answer later");

    let nas = dir.path().join("nas");
    std::fs::create_dir(&nas).expect("created");
    let junction = format!("[[junction]]\npath = \"/show\"\norigin = \"file://{}\"\n", nas.display());
    let server = Tier::start(&nas, &junction);
    let port = server.nfs_port;
    let url = format!("nfs://127.0.0.1:{port}/shw?mountport={port}");
    let (said, _) = failure(&serve(&cache, &["--origin", &url]));
    assert!(said.contains("/shw"), "{said}");
}

#[test]
fn a_cache_directory_that_cannot_be_written_is_refused() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("file");
    std::fs::write(&file, b"").expect("written");
    let here = format!("file://{}", dir.path().display());
    let said = refusal(&serve(&file.join("cache"), &["--origin", &here]));
    assert!(said.contains("--cache"), "{said}");
}

#[test]
fn a_port_in_use_is_named_with_the_option_to_change_it() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("bound").to_string();
    let (here, cache) = (format!("file://{}", dir.path().display()), dir.path().join("cache"));
    let cache = cache.to_str().expect("UTF-8");
    let said = |nfs, admin| {
        let (said, code) =
            failure(&["serve", "--origin", &here, "--cache", cache, "--nfs", nfs, "--admin", admin]);
        assert_eq!(code, Some(1), "not wrong usage: it may be free later; said: {said}");
        said
    };
    let told = said(&address, "127.0.0.1:0");
    assert!(told.contains("--nfs") && told.contains(&address), "{told}");
    let told = said("127.0.0.1:0", &address);
    assert!(told.contains("--admin") && told.contains(&address), "{told}");
    drop(taken);
    let served = dir.path().join("served");
    std::fs::create_dir(&served).expect("made");
    let _tier = Tier::start(&served, &format!("[[junction]]\npath = \"/\"\norigin = \"{here}\"\n"));
    let (said, code) = failure(&serve(&served.join("cache"), &["--origin", &here]));
    assert!(said.contains("in use by another tier") && code == Some(1), "{said} {code:?}");
}

#[test]
fn addresses_may_be_names_and_wrong_ones_are_told_what_would_be_right() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (here, cache) = (format!("file://{}", dir.path().display()), dir.path().join("cache"));
    for option in ["--nfs", "--s3", "--admin"] {
        let cache = cache.to_str().expect("UTF-8");
        let said = refusal(&["serve", "--origin", &here, "--cache", cache, option, "2049"]);
        assert!(said.contains("localhost:2049"), "{option}: {said}");
    }
    let nobody = format!("localhost:{}", free_port());
    let (said, code) = failure(&["status", "--admin", &nobody]);
    assert!(said.contains("forebay serve") && code == Some(1), "{said}");
}

#[test]
fn a_wrong_configuration_line_is_named() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("forebay.toml");
    std::fs::write(&path, "[cache]\nsize = \"big\"\n").expect("written");
    let said = refusal(&["serve", "--config", path.to_str().expect("UTF-8")]);
    assert!(said.contains("forebay.toml:2:") && said.contains("20GiB"), "{said}");
    let text = format!(
        "[[nfs.export]]\njunction = \"/shw\"\nclients = [\"*\"]\n[[junction]]\npath = \"/show\"\norigin = \"file://{}\"\n\
         [cache]\ndir = \"{}\"\n[nfs]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n",
        dir.path().display(),
        dir.path().join("cache").display()
    );
    std::fs::write(&path, text).expect("written");
    let said = refusal(&["serve", "--config", path.to_str().expect("UTF-8")]);
    assert!(said.contains("/shw"), "an export rule of no junction: {said}");
    let said = refusal(&["serve", "--config", "/no/such/file.toml"]);
    assert!(said.contains("--config"), "{said}");
}

#[test]
fn asking_where_no_tier_is_says_how_to_start_one() {
    let nobody = format!("127.0.0.1:{}", free_port());
    for verb in
        [&["status"][..], &["stat", "/"], &["warm", "/"], &["evict", "/"], &["flush"], &["flush", "/a"]]
    {
        let mut arguments = verb.to_vec();
        arguments.extend(["--admin", &nobody]);
        let (said, code) = failure(&arguments);
        assert!(said.contains("forebay serve") && said.contains(&nobody), "{said}");
        assert_eq!(code, Some(1), "not wrong usage: it may answer later");
    }
}

#[test]
fn wrong_lines_about_writing_back_are_named() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("forebay.toml");
    let (origin, cache) = (dir.path().join("tree"), dir.path().join("cache"));
    std::fs::create_dir(&origin).expect("made");
    let refused = |journal: &str, junction: &str, more: &[&str]| {
        let text = format!(
            "[cache]\ndir = \"{}\"\n[nfs]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[journal]\n{journal}\n\
             [[junction]]\npath = \"/show\"\norigin = \"file://{}\"\n{junction}\n",
            cache.display(),
            origin.display()
        );
        std::fs::write(&path, text).expect("written");
        let mut arguments = vec!["serve", "--config", path.to_str().expect("UTF-8")];
        arguments.extend(more);
        refusal(&arguments)
    };
    let own = format!("dir = \"{}\"", cache.display());
    let back = "write = \"back\"\nflush_windows = [\"22:00-22:00\"]";
    let table: &[(&str, &str, &[&str], &[&str])] = &[
        ("size = \"200MiB\"", "", &[], &["forebay.toml:8:", "256MiB"]),
        (&own, "", &[], &["directory of its own"]),
        ("", back, &[], &["forebay.toml:13:", "never open"]),
        ("", "flush_delay = \"1s\"", &[], &["/show", "through", "set write = \"back\""]),
        ("", "write = \"read-only\"\nconflicts = \"ours\"", &[], &["conflicts", "read-only"]),
        ("", "flush_rate = \"1MiB\"", &["--write", "read-only"], &["flush_rate"]),
        (
            "",
            "write = \"back\"\ndurability = \"sometimes\"",
            &[],
            &["forebay.toml:13:", "sometimes", "\"fsync\"", "\"always\""],
        ),
        ("", "durability = \"fsync\"", &[], &["durability", "/show", "through", "set write = \"back\""]),
        ("", "write = \"back\"", &["--durability", "never"], &["--durability", "\"fsync\"", "\"always\""]),
        ("", "", &["--durability", "always"], &["--durability", "--write back"]),
    ];
    for (journal, junction, more, right) in table {
        let said = refused(journal, junction, more);
        assert!(right.iter().all(|right| said.contains(right)), "{journal} {junction} {more:?} said: {said}");
    }
}

#[test]
fn a_crash_point_that_does_not_exist_is_refused() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (here, cache) = (format!("file://{}", dir.path().display()), dir.path().join("cache"));
    let mut command = forebay();
    command.env("FOREBAY_CRASH_AT", "Tuesday:1");
    let (said, code) = failure_of(command, &serve(&cache, &["--origin", &here, "--write", "back"]));
    assert!(said.contains("Tuesday:1") && said.contains("EntryWritten"), "{said}");
    assert_eq!(code, Some(2));
}
