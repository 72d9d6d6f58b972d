//! The `forebay` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    forebay::cli::main()
}
