//! `forebay jobs`: what is under way, whoever began it.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use types::{Error, ErrorKind, Result};

use super::ClientArgs;
use super::progress::{duration, number};
use super::{decode_path, flush, get, post, print_line, size, text, warm};

#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct JobsArgs {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Tell how far a job is until it is over
    Watch {
        /// As forebay jobs tells it
        #[arg(value_name = "ID")]
        number: u64,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// End a warm-up; of a flush, the wait for its end
    Stop {
        /// As forebay jobs tells it
        #[arg(value_name = "ID")]
        number: u64,
        #[command(flatten)]
        client: ClientArgs,
    },
}

pub fn jobs(args: &JobsArgs) -> Result<ExitCode> {
    match &args.what {
        None => list(&args.client),
        Some(What::Watch { number, client }) => watch(client, *number),
        Some(What::Stop { number, client }) => stop(client, *number),
    }
}

fn list(client: &ClientArgs) -> Result<ExitCode> {
    let told = get(client, "/v1/jobs")?;
    if client.json {
        print_line(format_args!("{told:#}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let jobs = told["jobs"].as_array().map_or(&[][..], Vec::as_slice);
    for job in jobs {
        print_line(format_args!("{}", line(job)))?;
    }
    if jobs.is_empty() {
        print_line(format_args!("no warm-up and no flush since the tier began"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn line(job: &Value) -> String {
    let what = &job["what"];
    let state = match (job["done"].as_bool(), what["stopped"].as_bool()) {
        (Some(true), Some(true)) => "stopped",
        (Some(true), _) => "over",
        _ => "under way",
    };
    let age = duration(number(&job["age_seconds"]) as f64);
    let mut line = format!("{:>4}  {:<8} {state:<10} begun {age} ago", job["job"], text(&job["kind"]));
    let names = |list: &Value| {
        let names = list.as_array().into_iter().flatten().map(text).map(|name| match decode_path(name) {
            Some(path) => path.escape_ascii().to_string(),
            None => name.to_owned(),
        });
        names.collect::<Vec<_>>()
    };
    if what["paths"].is_array() {
        let (shown, all) = (names(&what["paths"]), number(&what["all_paths"]));
        line.push_str(&format!("  {} of {}", size(&what["bytes"]), size(&what["found_bytes"])));
        line.push_str(if what["pin"] == json!(true) { ", pinned:" } else { ":" });
        line.push_str(&format!(" {}", shown.join(" ")));
        let more = all.saturating_sub(shown.len() as u64);
        if more > 0 {
            line.push_str(&format!(" and {more} more"));
        }
    } else {
        line.push_str(&format!("  {}", names(&what["junctions"]).join(" ")));
    }
    line
}

fn watch(client: &ClientArgs, wanted: u64) -> Result<ExitCode> {
    let told = get(client, "/v1/jobs")?;
    let job = told["jobs"].as_array().into_iter().flatten().find(|job| job["job"] == json!(wanted));
    match job.map(|job| text(&job["kind"])) {
        Some("flush") => flush::watch_job(client, &json!(wanted)),
        Some(_) => warm::watch_job(client, &json!(wanted)),
        None => {
            let message = format!("{wanted}: there is none of this number; forebay jobs tells them");
            Err(Error::new(ErrorKind::NotFound, "watch job", message))
        }
    }
}

fn stop(client: &ClientArgs, wanted: u64) -> Result<ExitCode> {
    let stopped = post(client, &format!("/v1/jobs/{wanted}/stop"), &json!({}))?;
    if client.json {
        print_line(format_args!("{stopped:#}"))?;
    } else {
        let how = if stopped["was_done"] == json!(true) { "was over already" } else { "is stopped" };
        print_line(format_args!("job {wanted} {how}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_told_on_one_line_whatever_its_paths_are() {
        let job = json!({
            "job": 3, "kind": "warm-up", "done": false, "age_seconds": 61,
            "what": { "paths": ["/a%0Ab", "/c"], "all_paths": 5, "pin": true, "bytes": 1024, "found_bytes": 2048, "stopped": false },
        });
        let told = line(&job);
        assert!(told.contains("under way") && told.ends_with("pinned: /a\\nb /c and 3 more"), "{told}");
        let flush = json!({ "job": 4, "kind": "flush", "done": true, "what": { "junctions": ["/show"] } });
        assert!(line(&flush).contains("over") && line(&flush).ends_with("/show"));
    }
}
