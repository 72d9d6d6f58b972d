//! What the programs `forebay` and `forebay-bench` do alike: parse a command line, log, say in one line what is wrong, and
//! find each other ([`companion`]), and ask a tier ([`http`]).

pub mod companion;
pub mod http;
pub mod log;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use rustix::process::{Resource, Rlimit};
use types::{Error, ErrorKind, Result};

/// Wrong usage or configuration; other failures exit with 1.
const EXIT_USAGE: u8 = 2;

/// What was typed, or the exit code where that is help or wrong usage; then all has been said. `version` is what
/// `--version` prints: the package's version and the commit, which only the program's own package knows.
pub fn parse<C: Parser>(version: &'static str) -> std::result::Result<C, ExitCode> {
    let typed = C::command().version(version).try_get_matches();
    let error = match typed.and_then(|mut matches| C::from_arg_matches_mut(&mut matches)) {
        Ok(cli) => return Ok(cli),
        Err(error) => error,
    };
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return Err(ExitCode::from(EXIT_USAGE));
    }
    if !error.use_stderr() {
        let _ = error.print();
        return Err(ExitCode::SUCCESS);
    }
    let there_are = match error.kind() {
        clap::error::ErrorKind::InvalidSubcommand => {
            format!("; there are {}", subcommands::<C>().join(", "))
        }
        _ => String::new(),
    };
    eprintln!("forebay: {}{there_are} (see --help)", in_one_line(&error.render().to_string()));
    Err(ExitCode::from(EXIT_USAGE))
}

/// Says the error, in one line.
pub fn say(error: &Error) {
    eprintln!("forebay: {error}");
}

/// The exit code of a program that an error ends.
pub fn exit_code(error: &Error) -> ExitCode {
    ExitCode::from(if error.kind() == ErrorKind::Config { EXIT_USAGE } else { 1 })
}

/// What is wrong and what would be right, without the pages of usage around it.
fn in_one_line(told: &str) -> String {
    let usage = ["Usage:", "For more information"];
    let lines = told.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines = lines.take_while(|line| !usage.iter().any(|start| line.starts_with(start)));
    let text = lines.collect::<Vec<_>>().join(" ");
    text.trim_start_matches("error: ").to_owned()
}

/// Those that could stand where a wrong one was typed.
fn subcommands<C: CommandFactory>() -> Vec<String> {
    let mut command = C::command();
    for typed in std::env::args().skip(1) {
        match command.find_subcommand(&typed) {
            Some(known) => command = known.clone(),
            None => break,
        }
    }
    command.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| c.get_name().to_owned()).collect()
}

pub fn runtime() -> Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|e| types::Error::io("start", "the runtime", e))
}

/// Connections and cache files need descriptors; the usual soft limit of 1,024 is for programs that use select.
pub fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(e) = rustix::process::setrlimit(Resource::Nofile, raised) {
        tracing::warn!("raise the limit of open files: {e}");
    }
}
