//! `forebay journal`: what waits for its origin, looked at and given up. With `--cache`, of a tier that is not running.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use axum::body::Bytes;
use axum::http::StatusCode;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use types::{Error, ErrorKind, Result};
use vfs::{StoppedJournal, StoppedTier, WaitingFilter};

use super::ClientArgs;
use super::progress::number;
use super::{get, post, print_line, size, text};
use tier::admin::{Audit, Who, encode_path};
use tier::{door, dropped, private};

#[derive(Subcommand)]
pub enum JournalVerb {
    /// List what waits for its origin
    List {
        /// Only what the origin refuses
        #[arg(long)]
        refused: bool,
        /// Only of the junction at this path
        #[arg(long, value_name = "PATH")]
        junction: Option<String>,
        #[command(flatten)]
        at: JournalAt,
    },
    /// Show one operation: what it does, what it waits for, and what waits for it
    Show {
        /// As forebay journal list tells it
        operation: u64,
        #[command(flatten)]
        at: JournalAt,
    },
    /// Give operations up: they never reach the origin. They are exported to a directory first
    Drop(DropArgs),
}

#[derive(Args)]
pub struct DropArgs {
    /// As forebay journal list tells them
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    operations: Vec<u64>,
    /// All that waits, or what of it --refused and --junction leave
    #[arg(long)]
    all: bool,
    /// Of all, only what the origin refuses
    #[arg(long, requires = "all")]
    refused: bool,
    /// Of all, only of the junction at this path
    #[arg(long, value_name = "PATH", requires = "all")]
    junction: Option<String>,
    /// Also what makes no sense without them
    #[arg(long)]
    with_dependents: bool,
    /// A directory that is made, for what is dropped [default: dropped/TIME-OPERATION in the cache directory]
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,
    #[command(flatten)]
    at: JournalAt,
}

#[derive(Args, Clone, Debug)]
pub struct JournalAt {
    /// The cache directory of a tier that is not running
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Its journal, if that is elsewhere [default: journal in the cache directory]
    #[arg(long, value_name = "DIR", requires = "cache")]
    journal: Option<PathBuf>,
    #[command(flatten)]
    client: ClientArgs,
}

pub fn journal(verb: &JournalVerb) -> Result<ExitCode> {
    match verb {
        JournalVerb::List { refused, junction, at } => {
            let filter = WaitingFilter { junction: junction.clone(), refused: *refused };
            list(&filter, at)
        }
        JournalVerb::Show { operation, at } => show(*operation, at),
        JournalVerb::Drop(args) => give_up(args),
    }
}

fn list(filter: &WaitingFilter, at: &JournalAt) -> Result<ExitCode> {
    let operations = match &at.cache {
        Some(cache) => Stopped::open(cache, at)?.look(|journal| {
            if filter.refused {
                let message = "what an origin refuses is known to a running tier only; leave --refused out";
                return Err(Error::new(ErrorKind::Config, "journal list:", message));
            }
            Ok(journal.waiting(filter).iter().map(dropped::told).collect())
        })?,
        None => listed(filter, &at.client)?,
    };
    if at.client.json {
        print_line(format_args!("{:#}", json!({ "operations": operations })))?;
        return Ok(ExitCode::SUCCESS);
    }
    for operation in &operations {
        print_line(format_args!("{}", line(operation)))?;
    }
    if operations.is_empty() {
        print_line(format_args!("nothing waits"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn listed(filter: &WaitingFilter, client: &ClientArgs) -> Result<Vec<Value>> {
    let (mut all, mut after) = (Vec::new(), 0);
    let junction = filter.junction.as_ref().map(|path| format!("&junction={}", encode_path(path.as_bytes())));
    let junction = junction.unwrap_or_default();
    loop {
        let refused = u8::from(filter.refused);
        let page = get(client, &format!("/v1/journal?after={after}&refused={refused}{junction}"))?;
        let operations = page["operations"].as_array().cloned().unwrap_or_default();
        after = operations.last().map_or(after, |last| number(&last["operation"]));
        let is_last = operations.is_empty() || page["more"] != json!(true);
        all.extend(operations);
        if is_last {
            return Ok(all);
        }
    }
}

fn show(operation: u64, at: &JournalAt) -> Result<ExitCode> {
    let told = match &at.cache {
        Some(cache) => Stopped::open(cache, at)?.look(|journal| {
            let all = journal.waiting(&WaitingFilter::default());
            let found = all
                .iter()
                .find(|it| it.sequence == operation)
                .ok_or_else(|| Error::new(ErrorKind::NotFound, "find waiting operation", operation))?;
            let mut told = dropped::told(found);
            told["needed_by"] = json!(journal.dependents(operation));
            Ok(told)
        })?,
        None => get(&at.client, &format!("/v1/journal/{operation}"))?,
    };
    if at.client.json {
        print_line(format_args!("{told:#}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    for (name, value) in told.as_object().unwrap_or(&serde_json::Map::new()) {
        match value {
            Value::Object(details) => {
                for (name, value) in details {
                    print_line(format_args!("{name:<13} {}", text(value)))?;
                }
            }
            Value::String(text) => print_line(format_args!("{name:<13} {text}"))?,
            Value::Null => print_line(format_args!("{name:<13} -"))?,
            Value::Array(numbers) => {
                let numbers: Vec<String> = numbers.iter().map(Value::to_string).collect();
                let shown = if numbers.is_empty() { "-".to_owned() } else { numbers.join(" ") };
                print_line(format_args!("{name:<13} {shown}"))?;
            }
            other => print_line(format_args!("{name:<13} {other}"))?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn line(operation: &Value) -> String {
    let mut line = format!(
        "{:>8}  {:<8} {}",
        operation["operation"],
        text(&operation["kind"]),
        text(&operation["path"])
    );
    if let Some(to) = operation["details"]["to"].as_str() {
        line.push_str(&format!(" -> {to}"));
    }
    if number(&operation["bytes"]) > 0 {
        let offset = operation["details"]["offset"].as_str().unwrap_or("0");
        line.push_str(&format!(", {} at {offset}", size(&operation["bytes"])));
    }
    if let Some(refused) = operation["refused"].as_str() {
        line.push_str(&format!("  REFUSED: {refused}"));
    }
    line
}

fn give_up(args: &DropArgs) -> Result<ExitCode> {
    let export = args.export.as_ref().map(std::path::absolute).transpose();
    let export = export.map_err(|e| Error::io("find", "the current directory", e))?;
    let dropped = match &args.at.cache {
        Some(cache) => Stopped::open(cache, &args.at)?.give_up(args, export.as_deref())?,
        None => {
            let export = export.map(|dir| encode_path(dir.as_os_str().as_bytes()));
            let body = json!({
                "operations": args.operations, "all": args.all, "refused": args.refused, "junction": args.junction,
                "with_dependents": args.with_dependents, "export": export,
            });
            post(&args.at.client, "/v1/journal/drop", &body)?
        }
    };
    if args.at.client.json {
        print_line(format_args!("{dropped:#}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let count = dropped["dropped"].as_array().map_or(0, Vec::len);
    match dropped["export"].as_str() {
        Some(dir) => print_line(format_args!(
            "{count} operations with {} are given up; they are in {dir}",
            size(&dropped["bytes"])
        ))?,
        None => print_line(format_args!("nothing waits that could be dropped"))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The journal of a tier that is not running.
struct Stopped {
    cache: PathBuf,
    runtime: tokio::runtime::Runtime,
    journal: StoppedJournal,
}

impl Stopped {
    fn open(cache: &Path, at: &JournalAt) -> Result<Stopped> {
        let tier = StoppedTier {
            journal: at.journal.clone().unwrap_or_else(|| cache.join("journal")),
            bond: cache.join("JOURNAL"),
            metadata: cache.join("metadata"),
        };
        for dir in [&tier.journal, &tier.metadata] {
            if !dir.is_dir() {
                let message = format!("there is no {}; name the cache directory of a tier", dir.display());
                return Err(Error::new(ErrorKind::Config, "--cache:", message));
            }
        }
        // Files of another user's would be none that the tier can read.
        private::claim(cache, &tier.journal)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Error::io("start", "the runtime", e))?;
        let journal = runtime.block_on(async { StoppedJournal::open(&tier) })?;
        Ok(Stopped { cache: cache.to_owned(), runtime, journal })
    }

    fn look<T>(self, look: impl FnOnce(&StoppedJournal) -> Result<T>) -> Result<T> {
        let found = look(&self.journal);
        self.runtime.block_on(self.journal.close())?;
        found
    }

    fn give_up(self, args: &DropArgs, export: Option<&Path>) -> Result<Value> {
        let pid = i32::try_from(std::process::id()).unwrap_or(0);
        let who = Who::User { uid: door::own_uid(), pid };
        let typed: Vec<OsString> = std::env::args_os().skip(1).collect();
        let typed = typed.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let mut line = Audit::open(self.cache.join("audit.log")).begin(
            who,
            "journal drop, stopped".into(),
            &typed.into(),
        );
        let outcome = self.runtime.block_on(self.carry_out(args, export));
        let (status, told) = match &outcome {
            Ok(told) => (StatusCode::OK, told.to_string()),
            Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()),
        };
        line.answered(status, &Bytes::from(told));
        drop(line);
        self.runtime.block_on(self.journal.close())?;
        outcome
    }

    async fn carry_out(&self, args: &DropArgs, export: Option<&Path>) -> Result<Value> {
        if args.refused {
            let message = "what an origin refuses is known to a running tier only; leave --refused out";
            return Err(Error::new(ErrorKind::Config, "journal drop:", message));
        }
        let filter = WaitingFilter { junction: args.junction.clone(), refused: false };
        let wanted: Vec<u64> = match args.all {
            true => self.journal.waiting(&filter).iter().map(|operation| operation.sequence).collect(),
            false => args.operations.clone(),
        };
        if wanted.is_empty() {
            return Ok(json!({ "dropped": [], "bytes": 0, "export": null }));
        }
        let dropping = self.journal.begin_drop(&wanted, args.with_dependents)?;
        let dir = match export {
            Some(dir) => dir.to_owned(),
            None => dropped::default_dir(&self.cache, &dropping),
        };
        let exported = dropped::export(&dropping, &dir).await?;
        let numbers: Vec<u64> = dropping.operations.iter().map(|operation| operation.sequence).collect();
        dropping.finish().await?;
        Ok(json!({ "dropped": numbers, "bytes": exported.bytes, "export": exported.dir.to_string_lossy() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_told_on_one_line_with_why_it_is_refused() {
        let write = json!({
            "operation": 7, "kind": "write", "path": "/show/toobig", "bytes": 2048, "details": { "offset": "4096" },
            "refused": "write to toobig: no space",
        });
        let told = line(&write);
        assert!(
            told.contains("/show/toobig, 2.0 KiB at 4096")
                && told.ends_with("REFUSED: write to toobig: no space"),
            "{told}"
        );
        let rename =
            json!({ "operation": 8, "kind": "rename", "path": "/a", "bytes": 0, "details": { "to": "/b" } });
        assert!(line(&rename).ends_with("rename   /a -> /b"), "{}", line(&rename));
    }
}
