//! Writes the man pages and the shells' completions of `forebay` and of `forebay bench`, for the package: `make deb`.
//! `pages DIR` makes DIR/man and DIR/completions. They come from the command line's own definition, so that they are what
//! the programs take.

use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate_to};

fn main() -> std::io::Result<()> {
    let dir = std::env::args_os().nth(1).expect("pages DIR");
    let (man, completions) = (Path::new(&dir).join("man"), Path::new(&dir).join("completions"));
    for dir in [&man, &completions] {
        std::fs::create_dir_all(dir)?;
    }
    // The bench is a program of its own, which `forebay bench` goes on as: the pages show one command line.
    let bench = bench::cli::BenchArgs::command().name("bench").bin_name("forebay bench");
    let command = forebay::cli::command().mut_subcommand("bench", |_| bench);
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut command.clone(), "forebay", &completions)?;
    }
    write_pages(command, &man)
}

/// forebay.1, forebay-bench-probe.1, ... for all that is not hidden.
fn write_pages(command: Command, dir: &Path) -> std::io::Result<()> {
    let command = command.disable_help_subcommand(true);
    clap_mangen::generate_to(command, dir)
}
