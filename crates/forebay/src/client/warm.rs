//! `forebay warm`: which paths, what is to come and how long that takes, and how far it is.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, ValueEnum};
use quantity::Size;
use serde_json::{Value, json};
use types::{Error, ErrorKind, Result};

use super::ClientArgs;
use super::progress::{LOOK, Speed, Teller, bar, duration, number, pause};
use super::{encoded, get, post, print_line, size, text};

/// Of a list of paths; the tier takes no longer ones.
const LIST_BYTES_MAX: u64 = 8 << 20;

#[derive(Args, Clone, Debug)]
pub struct WarmArgs {
    /// Paths in the served tree
    #[arg(required_unless_present = "files_from")]
    paths: Vec<OsString>,
    /// And those in this list, a line each; "-" is standard input
    #[arg(long, value_name = "FILE")]
    files_from: Option<PathBuf>,
    /// The paths of the list end with a zero byte, as those of find -print0
    #[arg(long, requires = "files_from")]
    null: bool,
    /// What is brought near: names and attributes, or these and the bytes
    #[arg(long, value_enum, default_value_t = Mode::Data)]
    mode: Mode,
    /// Count what would be fetched, and how long that takes; brings names and attributes near
    #[arg(long)]
    dry_run: bool,
    /// The files stay in the cache: they make no room for others, until they are evicted with forebay evict
    #[arg(long)]
    pin: bool,
    /// Print the number of the warm-up and return; otherwise it ends with this command
    #[arg(long, conflicts_with = "dry_run")]
    detach: bool,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    Data,
    Metadata,
}

pub fn warm(args: &WarmArgs) -> Result<ExitCode> {
    let mut paths = args.paths.clone();
    if let Some(list) = &args.files_from {
        paths.extend(listed(list, args.null)?);
    }
    if paths.is_empty() {
        return Err(Error::new(ErrorKind::Config, "warm:", "the list names no path; write one on each line"));
    }
    let mode = if args.mode == Mode::Metadata || args.dry_run { "metadata" } else { "data" };
    let request = json!({ "paths": encoded(&paths), "mode": mode, "detach": args.detach, "pin": args.pin });
    let job = post(&args.client, "/v1/warm", &request)?["job"].clone();
    if args.detach {
        if args.client.json {
            print_line(format_args!("{:#}", json!({ "job": job })))?;
        } else {
            print_line(format_args!("warm-up {job}; forebay jobs watch {job} tells how far it is"))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let start = Instant::now();
    let last = watch(&args.client, &job)?;
    finish(args, &last, start.elapsed().as_secs_f64())
}

/// One that another command has begun, to its end.
pub fn watch_job(client: &ClientArgs, job: &Value) -> Result<ExitCode> {
    let args = WarmArgs {
        paths: Vec::new(),
        files_from: None,
        null: false,
        mode: Mode::Data,
        dry_run: false,
        pin: false,
        detach: false,
        client: client.clone(),
    };
    let start = Instant::now();
    let last = watch(client, job)?;
    finish(&args, &last, start.elapsed().as_secs_f64())
}

/// The paths of a list. Nothing is made of them but bytes: names need not be text.
fn listed(list: &PathBuf, null: bool) -> Result<Vec<OsString>> {
    let named = |e| Error::io("read the list", list.display(), e);
    let mut bytes = Vec::new();
    let read = if list.as_os_str() == "-" {
        std::io::stdin().lock().take(LIST_BYTES_MAX + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(list).map_err(named)?.take(LIST_BYTES_MAX + 1).read_to_end(&mut bytes)
    };
    if read.map_err(named)? as u64 > LIST_BYTES_MAX {
        let why = format!("it is longer than {}; split it, or name directories", Size(LIST_BYTES_MAX));
        return Err(Error::new(ErrorKind::Config, "read the list:", why));
    }
    let end = if null { 0 } else { b'\n' };
    let lines = bytes.split(|b| *b == end).filter(|line| !line.is_empty());
    Ok(lines.map(|line| OsString::from_vec(line.to_vec())).collect())
}

/// Look until it is over; tell on the way. Returns the last look.
fn watch(client: &ClientArgs, job: &Value) -> Result<Value> {
    let mut teller = Teller::new(client.json);
    let mut speed = Speed::default();
    let mut estimated = false;
    loop {
        let began = Instant::now();
        let look = get(client, &format!("/v1/warm/{job}?{LOOK}"))?;
        let rate = speed.of(number(&look["bytes_fetched"]), Instant::now());
        if look["counted"] == json!(true) && !estimated {
            estimated = true;
            teller.line(&estimate(&look));
            if let Some(stays) = what_stays(&look) {
                teller.line(&stays);
            }
        }
        if look["done"] == json!(true) {
            teller.end();
            return Ok(look);
        }
        teller.now(|| if estimated { progress(&look, rate) } else { counting(&look) });
        pause(began);
    }
}

fn counting(look: &Value) -> String {
    let found = &look["found"];
    format!("counting: {} files, {}", found["files"], size(&found["bytes"]))
}

/// What there is, what of it is to come, and how long that will take.
fn estimate(look: &Value) -> String {
    let found = &look["found"];
    let (bytes, here) = (number(&found["bytes"]), number(&found["bytes_here"]));
    let to_come = bytes.saturating_sub(here);
    let rate = number(&look["origin_rate"]);
    let time = match (to_come, rate) {
        (0, _) => "nothing to fetch".to_owned(),
        (_, 0) => "how fast the origin is, is not known yet".to_owned(),
        _ => format!("about {} at {}/s, as measured", duration(to_come as f64 / rate as f64), Size(rate)),
    };
    format!("{} files, {}, of which {} are here; {time}", found["files"], Size(bytes), Size(here))
}

/// Said before anything is fetched: whether it will all be here at the end. Nothing, where nothing would be fetched.
fn what_stays(look: &Value) -> Option<String> {
    let (needed, room) = (number(&look["needed_bytes"]), number(&look["room_bytes"]));
    match (look["fits"].as_bool(), look["pin"].as_bool()) {
        (Some(false), pin) => {
            let to_pin = if pin == Some(true) { " to be pinned" } else { "" };
            Some(format!(
                "{} on the cache disk do not fit{to_pin}: there is room for {}; warm less, give the cache more room, or evict what is pinned",
                Size(needed),
                Size(room)
            ))
        }
        (Some(true), Some(true)) => {
            Some("it fits, and will stay until it is evicted with forebay evict".to_owned())
        }
        (Some(true), _) => Some("it fits; what is read later may push it out (--pin keeps it)".to_owned()),
        _ => None,
    }
}

fn progress(look: &Value, rate: Option<f64>) -> String {
    let (done, all) = (number(&look["bytes"]), number(&look["found"]["bytes"]).max(1));
    let part = (done as f64 / all as f64).min(1.0);
    let speed = match rate.filter(|rate| *rate >= 1.0) {
        Some(rate) => {
            let left = all.saturating_sub(done) as f64 / rate;
            format!("{}/s, {} left", Size(rate as u64), duration(left))
        }
        None => "waiting".to_owned(),
    };
    format!("{}  {} of {}, {speed}", bar(part), Size(done), Size(all))
}

fn finish(args: &WarmArgs, last: &Value, seconds: f64) -> Result<ExitCode> {
    let (files, dirs) = (&last["files"], &last["directories"]);
    let found = &last["found"];
    if args.client.json {
        print_line(format_args!("{last:#}"))?;
    } else if args.dry_run {
        print_line(format_args!("{}", estimate(last)))?;
        if let Some(stays) = what_stays(last).filter(|_| last["fits"] == json!(true)) {
            print_line(format_args!("{stays}"))?;
        }
    } else if is_refused(args, last) {
        // Said below.
    } else if args.mode == Mode::Metadata {
        let all = size(&found["bytes"]);
        print_line(format_args!(
            "names and attributes of {files} files in {dirs} directories, {all} of bytes not fetched, in {seconds:.1} s"
        ))?;
    } else {
        let (bytes, fetched) = (size(&last["bytes"]), size(&last["bytes_fetched"]));
        print_line(format_args!(
            "warmed {files} files in {dirs} directories, {bytes}, of which {fetched} were fetched, in {seconds:.1} s"
        ))?;
    }
    for away in last["away"].as_array().into_iter().flatten() {
        eprintln!("forebay: the origin of {} is away", text(away));
    }
    if is_refused(args, last)
        && let Some(stays) = what_stays(last)
    {
        eprintln!("forebay: nothing is fetched: {stays}");
        return Ok(ExitCode::FAILURE);
    }
    if last["stopped"] == json!(true) {
        eprintln!("forebay: the tier has stopped it; the same command goes on where it was");
        return Ok(ExitCode::FAILURE);
    }
    if last["errors"] != json!(0) {
        eprintln!("forebay: {} paths failed, the last with: {}", last["errors"], text(&last["last_error"]));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Bytes that do not fit are not begun with.
fn is_refused(args: &WarmArgs, last: &Value) -> bool {
    let wants_bytes = args.dry_run || args.mode == Mode::Data;
    wants_bytes && last["counted"] == json!(true) && last["fits"] == json!(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_and_what_stays_is_said_before_anything_is_fetched() {
        let look = |fits, pin| {
            what_stays(
                &json!({ "needed_bytes": 200 << 20, "room_bytes": 58 << 20, "fits": fits, "pin": pin }),
            )
        };
        let told = look(false, false).expect("told");
        assert!(told.contains("200.0 MiB") && told.contains("room for 58.0 MiB"), "{told}");
        assert!(look(false, true).is_some_and(|told| told.contains("to be pinned")));
        assert!(look(true, true).is_some_and(|told| told.contains("will stay")));
        assert!(look(true, false).is_some_and(|told| told.contains("--pin")));
        assert_eq!(what_stays(&json!({})), None, "an older tier tells nothing of it");
    }

    #[test]
    fn what_is_to_come_and_what_is_left_are_told() {
        let look = json!({
            "found": { "files": 3, "bytes": 3_u64 << 30, "bytes_here": 1_u64 << 30 }, "origin_rate": 1 << 20,
            "bytes": (3_u64 << 30) / 2,
        });
        let told = estimate(&look);
        assert!(told.contains("3 files, 3.0 GiB, of which 1.0 GiB are here; about 34:08 min"), "{told}");
        let told = progress(&look, Some(f64::from(1 << 20)));
        assert!(
            told.contains("[############............]  50 %") && told.contains("25:36 min left"),
            "{told}"
        );
        assert!(progress(&look, Some(0.0)).ends_with("waiting"));
    }

    #[test]
    fn a_list_may_have_any_names() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let list = dir.path().join("list");
        std::fs::write(&list, b"/a b\n\n/\xff\n/c").expect("written");
        let names = |null| listed(&list, null).expect("read").into_iter().map(OsStringExt::into_vec);
        assert_eq!(names(false).collect::<Vec<_>>(), [&b"/a b"[..], b"/\xff", b"/c"]);
        std::fs::write(&list, b"/with\nline\0/b\0").expect("written");
        assert_eq!(names(true).collect::<Vec<_>>(), [&b"/with\nline"[..], b"/b"]);
        assert!(listed(&dir.path().join("none"), false).is_err());
    }
}
