//! The commands that ask a running tier.

mod cluster;
mod connection;
mod copies;
mod drain;
mod flush;
mod jobs;
mod journal;
mod progress;
mod status;
mod warm;

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::Duration;

use axum::http::Method;
use clap::Subcommand;
use quantity::Size;
use serde_json::{Value, json};
use types::{Error, ErrorKind, Result};

use tier::admin::{decode_path, encode_path};

pub use cluster::{ChangeArgs, NodesArgs, PlacementArgs, change_node, nodes, placement};
pub use connection::ClientArgs;
pub use copies::{CopiesArgs, copies};
pub use drain::{DrainArgs, drain};
pub use flush::{FlushArgs, flush};
pub use jobs::{JobsArgs, jobs};
pub use journal::{JournalVerb, journal};
pub use status::{StatusArgs, status, told};
pub use warm::{WarmArgs, warm};

/// A look at a tier that is stopped, or killed and not let go by its mount, would wait for ever.
const LOOK: Duration = Duration::from_secs(60);

/// One line of the answer.
macro_rules! say {
    ($($line:tt)*) => { print_line(format_args!($($line)*))? };
}

/// A reader that has seen enough (`| head`) is no error; a full disk is.
fn print_line(line: std::fmt::Arguments<'_>) -> Result<()> {
    match writeln!(std::io::stdout(), "{line}") {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Error::io("print", "the answer", e)),
        _ => Ok(()),
    }
}

pub fn stat(args: &ClientArgs, path: &OsString) -> Result<ExitCode> {
    let stat = get(args, &format!("/v1/stat?path={}", encode_path(path.as_bytes())))?;
    if args.json {
        say!("{stat:#}");
        return Ok(ExitCode::SUCCESS);
    }
    for (name, value) in stat.as_object().unwrap_or(&serde_json::Map::new()) {
        let shown = match value {
            Value::String(text) if name == "path" => {
                String::from_utf8_lossy(&decode_path(text).unwrap_or_default()).into()
            }
            Value::String(text) => text.clone(),
            Value::Null => "-".to_owned(),
            other => other.to_string(),
        };
        say!("{name:<13} {shown}");
    }
    Ok(ExitCode::SUCCESS)
}

pub fn evict(args: &ClientArgs, paths: &[OsString], force: bool) -> Result<ExitCode> {
    let evicted = post(args, "/v1/evict", &json!({ "paths": encoded(paths), "force": force }))?;
    if args.json {
        say!("{evicted:#}");
    } else {
        say!(
            "evicted {} of {} files; the next use asks the origin",
            size(&evicted["bytes"]),
            evicted["files"]
        );
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Subcommand)]
pub enum JunctionVerb {
    /// Take the storage that answers now for the right one, after the ALARM "origin replaced"
    Accept {
        /// Path of the junction in the served tree
        path: String,
        #[command(flatten)]
        client: ClientArgs,
    },
}

pub fn junction(verb: &JunctionVerb) -> Result<ExitCode> {
    let JunctionVerb::Accept { path, client } = verb;
    let accepted = post(client, "/v1/junction/accept", &json!({ "path": path }))?;
    if client.json {
        say!("{accepted:#}");
    } else {
        say!("{path} is served from {} from now on", text(&accepted["origin"]));
    }
    Ok(ExitCode::SUCCESS)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

fn size(value: &Value) -> Size {
    Size(value.as_u64().unwrap_or(0))
}

fn get(args: &ClientArgs, path: &str) -> Result<Value> {
    answer(connection::ask(args, Method::GET, path, None, Some(LOOK))?)
}

/// No limit of time: evicting a large tree takes its own.
fn post(args: &ClientArgs, path: &str, body: &Value) -> Result<Value> {
    answer(connection::ask(args, Method::POST, path, Some(body), None)?)
}

fn encoded(paths: &[OsString]) -> Vec<String> {
    paths.iter().map(|path| encode_path(path.as_bytes())).collect()
}

/// What it says, unless it refuses.
fn answer(value: Value) -> Result<Value> {
    match value["error"].as_str() {
        Some(error) => {
            Err(Error::new(ErrorKind::Io, "the tier says:", error)
                .with_source(std::io::Error::other("refused")))
        }
        None => Ok(value),
    }
}
