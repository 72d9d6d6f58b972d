//! `forebay flush`: begin, and perhaps wait until the origin has it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use quantity::Size;
use serde_json::{Value, json};
use types::Result;

use super::ClientArgs;
use super::progress::{LOOK, Teller, bar, duration, number, pause};
use super::{get, post, print_line, size, text};
use tier::admin::encode_path;

/// Refusals that are printed; JSON has more of them.
const REFUSALS_SHOWN_MAX: usize = 10;

#[derive(Args, Clone, Debug)]
pub struct FlushArgs {
    /// What is at this path and below it [default: everything]
    path: Option<OsString>,
    /// Return when the origin has it, however long it is away; the exit code is 1 if something cannot be flushed. An
    /// interrupt ends the waiting, and not the flush
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    client: ClientArgs,
}

pub fn flush(args: &FlushArgs) -> Result<ExitCode> {
    let path = args.path.as_ref().map(|path| encode_path(path.as_bytes()));
    let begun = post(&args.client, "/v1/flush", &json!({ "path": path, "wait": args.wait }))?;
    if !args.wait {
        if args.client.json {
            print_line(format_args!("{begun:#}"))?;
        } else {
            print_line(format_args!("{}", told_at_begin(&begun)))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let start = Instant::now();
    let last = watch(args, &begun)?;
    finish(args, &last, start.elapsed().as_secs_f64())
}

/// The wait for one that another command has begun, to its end.
pub fn watch_job(client: &ClientArgs, job: &Value) -> Result<ExitCode> {
    let args = FlushArgs { path: None, wait: true, client: client.clone() };
    let start = Instant::now();
    let last = watch(&args, &json!({ "flush": job }))?;
    finish(&args, &last, start.elapsed().as_secs_f64())
}

fn told_at_begin(begun: &Value) -> String {
    match (number(&begun["operations"]), number(&begun["dirty_bytes"])) {
        (0, _) => "nothing waits: the origin has it all".to_owned(),
        (operations, bytes) => format!(
            "flushing; {} of data are not at the origin, {operations} operations wait in all; forebay status tells \
             what is left",
            Size(bytes)
        ),
    }
}

/// Look until it is over; tell on the way. Returns the last look.
fn watch(args: &FlushArgs, begun: &Value) -> Result<Value> {
    let mut teller = Teller::new(args.client.json);
    let whole = args.path.is_none();
    loop {
        let began = Instant::now();
        let look = get(&args.client, &format!("/v1/flush/{}?{LOOK}", begun["flush"]))?;
        if look["done"] == json!(true) {
            teller.end();
            return Ok(look);
        }
        teller.now(|| progress(begun, &look, whole));
        pause(began);
    }
}

/// What clients write meanwhile is counted too, so that it is rather less than more than is told. How much of it is
/// below a path, nobody knows.
fn progress(begun: &Value, look: &Value, whole: bool) -> String {
    let (operations, bytes) = (number(&look["operations"]), size(&look["dirty_bytes"]));
    let oldest = look["oldest_seconds"].as_u64();
    let oldest = oldest.map_or_else(String::new, |s| format!(", the oldest for {}", duration(s as f64)));
    let left = format!("{operations} operations, {bytes} of data wait{oldest}");
    if !whole {
        return left;
    }
    let part = |name: &str| {
        let all = number(&begun[name]);
        (all > 0).then(|| all.saturating_sub(number(&look[name])) as f64 / all as f64)
    };
    // Bytes, as long as there are any: they take the time.
    let part = part("dirty_bytes").or_else(|| part("operations")).unwrap_or(0.0);
    format!("{}  {left}", bar(part))
}

fn finish(args: &FlushArgs, last: &Value, seconds: f64) -> Result<ExitCode> {
    if args.client.json {
        print_line(format_args!("{last:#}"))?;
    }
    if last["stopped"] == json!(true) {
        eprintln!(
            "forebay: the tier was not asked for too long and waits no more; ask again to learn how it ended"
        );
        return Ok(ExitCode::FAILURE);
    }
    let refused = number(&last["refused"]);
    if refused > 0 {
        let refusals = last["refusals"].as_array().map_or(&[][..], Vec::as_slice);
        for refusal in refusals.iter().take(REFUSALS_SHOWN_MAX) {
            eprintln!("forebay: not flushed: {}", text(refusal));
        }
        eprintln!(
            "forebay: {refused} operations could not be flushed; they stay here and are tried again; forebay journal list \
             --refused tells them all"
        );
        return Ok(ExitCode::FAILURE);
    }
    if !args.client.json {
        let what = if args.path.is_none() { "all that was" } else { "what was there and" };
        print_line(format_args!("{what} acknowledged before is at the origin, after {seconds:.1} s"))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(path: Option<&str>) -> FlushArgs {
        let admin = "127.0.0.1:9420".parse().expect("an address");
        let client = ClientArgs { admin, token_file: None, json: true };
        FlushArgs { path: path.map(OsString::from), wait: true, client }
    }

    #[test]
    fn only_a_flush_that_brought_everything_home_is_a_success() {
        let code = |last: Value| format!("{:?}", finish(&arguments(None), &last, 1.0).expect("printed"));
        let success = format!("{:?}", ExitCode::SUCCESS);
        assert_eq!(code(json!({ "done": true, "stopped": false, "refused": 0 })), success);
        let refused = json!({ "done": true, "refused": 1, "refusals": ["operation 7: no space"] });
        assert_ne!(code(refused), success);
        assert_ne!(code(json!({ "done": true, "stopped": true, "refused": 0 })), success);
    }

    #[test]
    fn how_far_it_is_goes_by_the_bytes_or_without_any_by_the_operations() {
        let (begun, look) = (
            json!({ "operations": 10, "dirty_bytes": 4096 }),
            json!({ "operations": 9, "dirty_bytes": 1024, "oldest_seconds": 7 }),
        );
        let told = progress(&begun, &look, true);
        assert!(told.contains("]  75 %  9 operations, 1.0 KiB of data wait, the oldest for 7 s"), "{told}");
        assert!(!progress(&begun, &look, false).contains('%'));
        let names = progress(&json!({ "operations": 10 }), &json!({ "operations": 5 }), true);
        assert!(names.contains("]  50 %"), "{names}");
        let grown = progress(&begun, &json!({ "operations": 99, "dirty_bytes": 9999 }), true);
        assert!(grown.contains("]   0 %"), "{grown}");
    }

    #[test]
    fn with_nothing_to_flush_that_is_said() {
        assert!(told_at_begin(&json!({ "operations": 0 })).contains("nothing waits"));
        assert!(told_at_begin(&json!({ "operations": 2, "dirty_bytes": 1024 })).contains("1.0 KiB"));
    }
}
