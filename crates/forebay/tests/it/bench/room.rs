//! A place for one test: its temporary directory, its target, and a way to see what is left of its processes and files.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::tier::forebay_bench;

/// A run that hangs is a failure, not a hang of the tests. The longest here takes half a minute on an idle machine.
const DEADLINE: Duration = Duration::from_secs(240);
/// A tier that is told to end has 8 s for calls under way, and 4 s more.
const AFTERMATH: Duration = Duration::from_secs(15);

/// Experiments that go through a row's files until it has lasted long enough.
const LOADS: [&str; 7] = ["sob", "load", "loader", "render", "shapes", "workflow", "working-set"];

pub struct Room(tempfile::TempDir);

/// How a command ended.
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    /// Its lines on standard error that are the program's own, not a launcher's.
    pub err: Vec<String>,
    /// The most that was resident, as far as it was seen.
    pub peak_mib: u64,
}

impl Room {
    pub fn new() -> Room {
        let room = Room(tempfile::tempdir().expect("temporary directory"));
        for name in ["tmp", "target"] {
            std::fs::create_dir(room.path(name)).expect("created");
        }
        room
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("UTF-8").to_owned()
    }

    /// A directory to measure.
    pub fn target(&self) -> String {
        self.text("target")
    }

    /// `forebay bench` with these arguments.
    pub fn bench(&self, arguments: &[&str]) -> Command {
        self.under(forebay_bench(), arguments)
    }

    /// The same behind a launcher's own command line.
    pub fn launched(&self, mut launcher: Command, arguments: &[&str]) -> Command {
        let bench = forebay_bench();
        launcher.arg(bench.get_program()).args(bench.get_args());
        self.under(launcher, arguments)
    }

    fn under(&self, mut command: Command, arguments: &[&str]) -> Command {
        command.args(arguments);
        // A test that wants figures says how long.
        let is_measurement = arguments.first().is_some_and(|experiment| LOADS.contains(experiment));
        if is_measurement && !arguments.contains(&"--row-time") {
            command.args(["--row-time", "200ms"]);
        }
        command.env("TMPDIR", self.path("tmp")).env("FOREBAY_LOG", "off");
        command.current_dir(self.0.path());
        command
    }

    /// Runs it to its end.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        end(self.bench(arguments))
    }

    /// Its result, which must be one.
    pub fn result(&self, arguments: &[&str]) -> Value {
        result(self.bench(&[arguments, &["--json"]].concat()))
    }

    /// Processes that were started with this room's temporary directory, and all that they started.
    pub fn processes(&self) -> Vec<(i32, String)> {
        let mark = format!("TMPDIR={}\0", self.path("tmp").display());
        let all = std::fs::read_dir("/proc").expect("Linux").flatten();
        let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let ours = ids.filter(|id| {
            let environment = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
            environment.windows(mark.len()).any(|part| part == mark.as_bytes())
        });
        ours.map(|id| (id, command_line(id))).filter(|(_, line)| !line.is_empty()).collect()
    }

    /// Waits for a process of ours with this in its command line.
    pub fn process_with(&self, part: &str) -> i32 {
        wait_for(part, || {
            self.processes().into_iter().find(|(_, line)| line.contains(part)).map(|(id, _)| id)
        })
    }

    /// No process, no temporary file, and nothing of a bench on the target.
    pub fn assert_nothing_is_left(&self) {
        let begun = Instant::now();
        loop {
            let left = self.left();
            if left.is_empty() {
                return;
            }
            assert!(begun.elapsed() < AFTERMATH, "left behind: {left:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn left(&self) -> Vec<String> {
        let processes = self.processes().into_iter().map(|(id, line)| format!("process {id}: {line}"));
        // Open MPI and Slurm have directories of their own there.
        let theirs = |name: &str| ["ompi", "pmix", "prte", "slurm"].iter().any(|own| name.contains(own));
        let temporary = names(&self.path("tmp")).into_iter().filter(|name| !theirs(name));
        let target = names(&self.path("target")).into_iter().filter(|name| name.contains("forebay"));
        processes.chain(temporary).chain(target).collect()
    }
}

/// Names in a directory.
pub fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("it is there").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn command_line(id: i32) -> String {
    let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// The most that a process had resident so far; 0 if it is gone.
fn resident_mib(id: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|kib| kib.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// Until there is something.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < DEADLINE, "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A command under way. Its output is read as it comes, so that it never waits for us.
pub struct RunningTier {
    child: Child,
    output: Option<std::thread::JoinHandle<(String, String)>>,
}

pub fn start(mut command: Command) -> RunningTier {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (out, err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let output = std::thread::spawn(move || {
        let err = std::thread::spawn(move || std::io::read_to_string(err).unwrap_or_default());
        (std::io::read_to_string(out).unwrap_or_default(), err.join().unwrap_or_default())
    });
    RunningTier { child, output: Some(output) }
}

impl RunningTier {
    pub fn id(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process's id")
    }

    pub fn end(mut self) -> Ended {
        let (begun, mut peak_mib) = (Instant::now(), 0);
        while self.child.try_wait().expect("our child").is_none() {
            peak_mib = peak_mib.max(resident_mib(self.id()));
            assert!(begun.elapsed() < DEADLINE, "the run hangs");
            std::thread::sleep(Duration::from_millis(10));
        }
        let status = self.child.wait().expect("our child");
        let (out, err) = self.output.take().expect("once").join().expect("read");
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        Ended { code, out, err: err.lines().map(str::to_owned).collect(), peak_mib }
    }
}

impl Drop for RunningTier {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn end(command: Command) -> Ended {
    start(command).end()
}

/// The JSON that a run printed, which must have gone well.
pub fn result(command: Command) -> Value {
    let told = format!("{command:?}");
    let ended = end(command);
    assert_eq!(ended.code, Some(0), "{told}: {:?}", ended.err);
    serde_json::from_str(&ended.out).unwrap_or_else(|e| panic!("{told}: {e}: {}", ended.out))
}

pub fn signal(process: i32, signal: Signal) {
    kill_process(Pid::from_raw(process).expect("a process's id"), signal).expect("it is there");
}

/// The table whose title begins like this.
pub fn table<'a>(result: &'a Value, title: &str) -> &'a Value {
    let tables = result["tables"].as_array().expect("tables");
    let found = tables.iter().find(|table| table["title"].as_str().is_some_and(|t| t.starts_with(title)));
    found.unwrap_or_else(|| panic!("no table {title:?} in {:?}", titles(result)))
}

fn titles(result: &Value) -> Vec<&str> {
    let tables = result["tables"].as_array().expect("tables");
    tables.iter().filter_map(|table| table["title"].as_str()).collect()
}

pub fn columns(table: &Value) -> Vec<&str> {
    table["columns"].as_array().expect("columns").iter().filter_map(Value::as_str).collect()
}

/// A column of a table, from the top.
pub fn column<'a>(table: &'a Value, name: &str) -> Vec<&'a Value> {
    let at = columns(table).iter().position(|column| *column == name);
    let at = at.unwrap_or_else(|| panic!("no column {name:?} in {:?}", columns(table)));
    rows(table).iter().map(|row| &row["cells"][at]).collect()
}

pub fn rows(table: &Value) -> &Vec<Value> {
    table["rows"].as_array().expect("rows")
}

/// Why rows of a table must not be believed.
pub fn invalid(table: &Value) -> Vec<&str> {
    let reasons = rows(table).iter().filter_map(|row| row["invalid"].as_array()).flatten();
    reasons.filter_map(Value::as_str).collect()
}

/// All that it says in sentences.
pub fn findings(result: &Value) -> Vec<&str> {
    let all = result["findings"].as_array().expect("findings");
    all.iter().filter_map(|finding| finding["text"].as_str()).collect()
}

/// The repetitions of a measure.
pub fn measure(result: &Value, name: &str) -> Vec<f64> {
    let all = result["measures"].as_array().expect("measures");
    let found = all.iter().find(|measure| measure["name"] == name);
    let found = found.unwrap_or_else(|| panic!("no measure {name:?} in {all:?}"));
    found["values"].as_array().expect("values").iter().filter_map(Value::as_f64).collect()
}
