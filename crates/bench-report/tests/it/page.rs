//! The page in a real browser (Debian's chromium): the plots are there, nothing is fetched, nothing runs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bench_report::html;
use bench_report::model::{Cell, Table, TableRow};

use crate::example;

/// A cold start of the browser on two busy cores takes some seconds.
const DEADLINE_SECONDS: &str = "120";
/// Without a window, and without what the browser does of its own accord.
const FLAGS: &str = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync --disable-default-apps \
    --disable-extensions --disable-domain-reliability --virtual-time-budget=3000";

/// Kept after the test, to be looked at.
fn output_dir() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-report");
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Reports that a test does not run where there is no browser. A failure where everything must run.
fn has_chromium(name: &str) -> bool {
    let found =
        Command::new("chromium").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let reason = match found {
        Ok(status) if status.success() => return true,
        Ok(status) => format!("chromium --version: {status}"),
        Err(error) => format!("chromium: {error} (apt-get install chromium)"),
    };
    assert!(std::env::var_os("FOREBAY_MUST_RUN").is_none(), "{name} must run here, but: {reason}");
    eprintln!("not run: {name}: {reason}");
    false
}

/// What came of showing a page.
struct Shown {
    /// Standard output.
    text: String,
    /// Addresses that the page wanted to fetch. Without those that the browser asks of its own accord (the time,
    /// updates), which have no origin.
    fetched: Vec<String>,
}

/// The browser's own log of requests, and which of them belong to a page.
fn fetched(log: &Path) -> Vec<String> {
    let log: serde_json::Value = serde_json::from_slice(&std::fs::read(log).unwrap()).unwrap();
    let events = log["events"].as_array().unwrap();
    let requests = events
        .iter()
        .map(|event| &event["params"])
        .filter(|p| p["url"].is_string() && p["initiator"].is_string());
    let of_pages = requests.filter(|p| p["initiator"] != "not an origin");
    of_pages
        .map(|p| p["url"].as_str().unwrap_or_default().to_owned())
        .filter(|url| !url.starts_with("data:"))
        .collect()
}

/// Show a page in a headless browser that finds no host but is asked for all.
fn browse(page: &Path, options: &[&str]) -> Shown {
    let profile = tempfile::tempdir().unwrap();
    let log = profile.path().join("requests.json");
    let output = Command::new("timeout")
        .args(["--kill-after=5", DEADLINE_SECONDS, "chromium"])
        .args(FLAGS.split_whitespace())
        .arg("--host-resolver-rules=MAP * ~NOTFOUND")
        .arg(format!("--log-net-log={}", log.display()))
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(options)
        .arg(format!("file://{}", page.display()))
        .stderr(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "chromium: {} (124: not within {DEADLINE_SECONDS} s)", output.status);
    Shown { text: String::from_utf8(output.stdout).unwrap(), fetched: fetched(&log) }
}

fn write_page(name: &str, text: &str) -> PathBuf {
    let path = output_dir().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_browser_shows_the_plots_and_fetches_nothing() {
    if !has_chromium("a_browser_shows_the_plots_and_fetches_nothing") {
        return;
    }
    let page = write_page("report.html", &html::render(&example::result()));
    let Shown { text: dom, fetched } = browse(&page, &["--dump-dom"]);
    assert_eq!(dom.matches("<svg class=\"plot half\"").count(), 5, "four plots and the latencies");
    assert_eq!(dom.matches("<svg class=\"plot whole\"").count(), 1, "an odd number: the first is wide");
    assert!(dom.matches("class=\"marker").count() > 50 && dom.matches("class=\"whisker").count() > 30);
    assert!(dom.matches("class=\"marker c0 published\"").count() > 3);
    assert!(dom.contains("<tr class=\"struck\">") && dom.contains("the cache was not cold"));
    assert!(dom.contains("<title>A render farm and its storage, at four distances</title>"), "no script ran");
    assert!(!dom.contains("<img") && !dom.contains("<script"), "the browser built a tag of a text");
    assert_eq!(fetched, Vec::<String>::new());
}

/// A page as wide as its window, whatever its tables are: measured by the browser, in the one script that no page of ours
/// would run.
#[test]
fn a_wide_table_scrolls_in_its_own_box_and_not_the_page() {
    if !has_chromium("a_wide_table_scrolls_in_its_own_box_and_not_the_page") {
        return;
    }
    let mut file = example::result();
    let cells = (0..40).map(|n| Cell::text(format!("{n} / {n} / 0.000{n}"))).collect();
    file.tables =
        vec![Table::new("Wide", (0..40).map(|n| format!("column {n}")), vec![TableRow::new(cells)])];
    let look = "<script>const box = document.querySelector('.box'); document.title = [\
        document.documentElement.scrollWidth <= innerWidth, box.scrollWidth > box.clientWidth, \
        getComputedStyle(box).overflowX].join(' ')</script></body>";
    let page = html::render(&file).replace("</body>", look);
    let page = page.replace("default-src 'none'", "default-src 'none'; script-src 'unsafe-inline'");
    let shown = browse(&write_page("wide.html", &page), &["--dump-dom", "--window-size=900,900"]);
    let title = shown.text.split("<title>").nth(1).and_then(|rest| rest.split('<').next());
    assert_eq!(title, Some("true true auto"));
}

/// The proof that the first test can fail: the same browser, a page that fetches.
#[test]
fn what_a_page_fetches_is_seen() {
    if !has_chromium("what_a_page_fetches_is_seen") {
        return;
    }
    let page = write_page("fetches.html", "<!doctype html><img src=\"http://tracker.invalid/x.png\">");
    assert_eq!(browse(&page, &["--dump-dom"]).fetched, ["http://tracker.invalid/x.png"]);
}

/// Pictures to look at: light, dark and as narrow as a telephone.
#[test]
fn screenshots_are_taken_in_light_and_dark_and_narrow() {
    if !has_chromium("screenshots_are_taken_in_light_and_dark_and_narrow") {
        return;
    }
    let page = write_page("screenshots.html", &html::render(&example::result()));
    let cases = [
        ("light.png", vec!["--window-size=1280,3000"]),
        (
            "dark.png",
            vec!["--window-size=1280,3000", "--force-dark-mode", "--blink-settings=preferredColorScheme=0"],
        ),
        ("narrow.png", vec!["--window-size=500,4200"]),
    ];
    for (name, mut options) in cases {
        let path = output_dir().join(name);
        let _ = std::fs::remove_file(&path);
        let screenshot = format!("--screenshot={}", path.display());
        options.push(&screenshot);
        assert_eq!(browse(&page, &options).fetched, Vec::<String>::new());
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 50_000, "{name}: {} bytes", bytes.len());
    }
}
