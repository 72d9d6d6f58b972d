//! The program by itself. What it measures is tested with `forebay`, of which it is a part.

use std::process::{Command, Output};

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-bench"));
    command.args(arguments).envs(environment.iter().copied()).output().expect("it runs")
}

/// Of a command that is refused for its usage.
fn refusal(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let output = run(arguments, environment);
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    said
}

#[test]
fn help_and_refusals_are_those_of_the_command_that_users_type() {
    let help = run(&["--help"], &[]);
    let text = String::from_utf8_lossy(&help.stdout);
    assert!(help.status.success() && text.contains("Usage: forebay bench <COMMAND>"), "{text}");
    let help = run(&["help", "relay"], &[]);
    let text = String::from_utf8_lossy(&help.stdout);
    assert!(help.status.success() && text.contains("Usage: forebay bench relay "), "{text}");
    let said = refusal(&["rendre"], &[]);
    assert!(said.starts_with("forebay: ") && said.contains("render"), "{said}");
}

#[test]
fn a_forebay_of_another_commit_is_refused() {
    let said = refusal(&["replicas"], &[("FOREBAY_PROGRAM_COMMIT", "0123456")]);
    assert!(said.contains("0123456") && said.contains("make release"), "{said}");
}
