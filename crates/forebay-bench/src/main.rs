//! The program `forebay-bench`: what `forebay bench ...` goes on as.

use std::process::ExitCode;

use bench::cli::BenchArgs;
use program::{companion, log};
use types::Result;

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("FOREBAY_COMMIT"), ")");

fn main() -> ExitCode {
    let args = match program::parse::<BenchArgs>(VERSION) {
        Ok(args) => args,
        Err(code) => return code,
    };
    run(args).unwrap_or_else(|e| {
        // Of several processes of a run one says it.
        if !bench::cli::is_said_elsewhere(&e) {
            program::say(&e);
        }
        program::exit_code(&e)
    })
}

fn run(args: BenchArgs) -> Result<ExitCode> {
    companion::check_commit(env!("FOREBAY_COMMIT"))?;
    log::to_stderr("warn");
    program::raise_descriptor_limit();
    bench::fingerprint::built_from(env!("FOREBAY_COMMIT"), env!("FOREBAY_PROFILE"));
    program::runtime()?.block_on(bench::cli::run(args))
}
