//! What `scripts/measure-growth.py` puts around a tier: `serve`, a far NAS whose tree is a formula (the one thing that is
//! faked there), `walk`, clients that list a tree with all its attributes, and `fill`, clients that make files.

mod client;
mod fill;
mod serve;
mod walk;

use std::process::ExitCode;

const USAGE: &str = "growth serve DIRECTORIES FILES_OF_EACH BYTES_OF_A_FILE | growth walk ADDRESS PATH CLIENTS | growth fill ADDRESS \
                     FILES CLIENTS";

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ended = match words[..] {
        ["serve", directories, files, bytes] => match (directories.parse(), files.parse(), bytes.parse()) {
            (Ok(directories), Ok(files), Ok(bytes)) => {
                serve::run(serve::FormulaTree { directories, files, bytes }).await
            }
            _ => Err(USAGE.into()),
        },
        ["walk", address, path, clients] => match (address.parse(), clients.parse()) {
            (Ok(address), Ok(clients)) => walk::run(address, path, clients).await,
            _ => Err(USAGE.into()),
        },
        ["fill", address, files, clients] => match (address.parse(), files.parse(), clients.parse()) {
            (Ok(address), Ok(files), Ok(clients)) => fill::run(address, files, clients).await,
            _ => Err(USAGE.into()),
        },
        _ => Err(USAGE.into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("growth: {why}");
            ExitCode::FAILURE
        }
    }
}
