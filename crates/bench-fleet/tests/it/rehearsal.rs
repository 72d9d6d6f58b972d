//! The rehearsal under test: how it is started, watched, and what it must print.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_fleet-rehearsal");

/// A run that hangs is a failure, not a hang of the tests.
const DEADLINE: Duration = Duration::from_secs(60);

pub fn rehearsal(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments);
    command
}

/// The same as one rank of those that a script starts, by variables alone.
pub fn as_rank(rank: u32, size: u32, port: u16, arguments: &[&str]) -> Command {
    let mut command = rehearsal(arguments);
    command.env("FOREBAY_BENCH_RANK", rank.to_string()).env("FOREBAY_BENCH_SIZE", size.to_string());
    command.env("FOREBAY_BENCH_COORDINATOR", format!("localhost:{port}"));
    command.env("FOREBAY_BENCH_TOKEN", "0123456789abcdef0123");
    command
}

/// The table of `size` ranks, made here from what each rank must give.
pub fn table(size: u32, bytes: usize) -> String {
    let mut text = String::from("rank plan bytes sum\n");
    for rank in 0..size {
        let given = (0..bytes).map(|i| (i * 31 + rank as usize * 7) as u8);
        let sum = std::iter::once(b'\n')
            .chain(given)
            .fold(7_u64, |sum, byte| sum.wrapping_mul(131).wrapping_add(u64::from(byte)));
        text.push_str(&format!("{rank} plan of {size} {} {sum:016x}\n", bytes + 1));
    }
    text
}

/// A run under way.
pub struct Run(Child);

pub fn start(command: &mut Command) -> Run {
    // A session of its own, so that a launcher's signals to its group are not ours.
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    Run(child.unwrap_or_else(|e| panic!("{command:?}: {e}")))
}

impl Run {
    /// How it ended, and how long that took from now.
    pub fn end(mut self) -> (Output, Duration) {
        let begun = Instant::now();
        // Little is printed, so that the pipes hold it.
        while self.0.try_wait().expect("our child").is_none() {
            if begun.elapsed() > DEADLINE {
                let _ = self.0.kill();
                panic!("the run hangs");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let took = begun.elapsed();
        (self.0.wait_with_output().expect("our child"), took)
    }
}

pub fn run(command: &mut Command) -> Output {
    start(command).end().0
}

/// What a run printed that must have gone well.
pub fn printed(command: &mut Command) -> String {
    let output = run(command);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {:?}: {errors}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// The process of a rank, once it has left its id.
pub fn process_of(dir: &Path, rank: u32) -> i32 {
    let mut process = None;
    wait_while(DEADLINE, "a rank does not begin", || {
        let text = std::fs::read_to_string(dir.join(rank.to_string())).unwrap_or_default();
        process = text.trim().parse().ok();
        process.is_none()
    });
    process.expect("its id")
}

/// Fails with `what` if it is still so after `limit`.
pub fn wait_while(limit: Duration, what: &str, mut still: impl FnMut() -> bool) {
    let begun = Instant::now();
    while still() {
        assert!(begun.elapsed() < limit, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// So many ranks have said a line each, with all these parts in it.
pub fn assert_lines(output: &Output, ranks: usize, parts: &[&str]) {
    let lines = lines(output);
    assert_eq!(lines.len(), ranks, "{output:?}");
    assert!(lines.iter().all(|line| parts.iter().all(|part| line.contains(part))), "{lines:?}");
}

/// Lines of the rehearsal's own on standard error.
pub fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().filter(|line| line.starts_with("fleet-rehearsal:")).map(str::to_owned).collect()
}
