//! `forebay status`: how the running tier is doing, and what is wrong with it.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;
use types::Result;

use super::ClientArgs;
use super::progress::{duration, number};
use super::{get, print_line, size, text};

/// How a line begins that tells of something wrong.
const ALARM: &str = "ALARM";

/// A journal that is this full slows its writers down so that they feel it.
const JOURNAL_ALARM_PERCENT: u64 = 80;

/// The newest of them, and the first of what cannot be flushed; JSON has more.
const ALARMS_SHOWN_MAX: usize = 20;
const REFUSALS_SHOWN_MAX: usize = 10;
const CLIENTS_SHOWN_MAX: usize = 10;

#[derive(Args, Clone, Debug)]
pub struct StatusArgs {
    /// Print the ALARM lines alone; the exit code is 1 if there are any
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    client: ClientArgs,
}

pub fn status(args: &StatusArgs) -> Result<ExitCode> {
    let status = get(&args.client, "/v1/status")?;
    let lines = told(&status);
    let alarms = || lines.iter().filter(|line| line.starts_with(ALARM));
    if args.client.json {
        print_line(format_args!("{status:#}"))?;
    } else {
        let shown: Vec<_> = if args.check { alarms().collect() } else { lines.iter().collect() };
        for line in shown {
            print_line(format_args!("{line}"))?;
        }
    }
    let is_well = !args.check || alarms().next().is_none();
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Lines for a person, each of them one whatever names are in it. What is wrong begins with [`ALARM`].
pub fn told(status: &Value) -> Vec<String> {
    all_told(status).iter().map(|line| one_line(line)).collect()
}

fn all_told(status: &Value) -> Vec<String> {
    let cache = &status["cache"];
    let mut lines = vec![format!(
        "forebay {}, up {} s, {}",
        text(&status["version"]),
        status["uptime_seconds"],
        text(&status["write"])
    )];
    if let Some(address) = status["nfs"]["address"].as_str() {
        lines.push(format!("nfs       {address}, {} connections", status["nfs"]["connections"]));
    }
    if let Some(address) = status["s3"]["address"].as_str() {
        let scheme = if status["s3"]["tls"] == true { "https" } else { "http" };
        lines.push(format!("s3        {scheme}://{address}, {} connections", status["s3"]["connections"]));
    }
    lines.extend(cluster(&status["cluster"]));
    if let Some(dir) = status["mount"].as_str() {
        lines.push(format!("mount     {dir}"));
    }
    let (used, max) = (size(&cache["bytes_used"]), size(&cache["bytes_max"]));
    lines.push(format!("cache     {used} of {max} in {} files", cache["files"]));
    if number(&cache["pinned_bytes"]) > 0
        && let Some(line) = lines.last_mut()
    {
        line.push_str(&format!(", {} of them pinned", size(&cache["pinned_bytes"])));
    }
    let (hit, miss) = (size(&cache["hit_bytes"]), size(&cache["miss_bytes"]));
    lines.push(format!("reads     {hit} from cache, {miss} waited for"));
    if let Some(reason) = cache["degraded"].as_str() {
        lines.push(format!("ALARM     the cache disk cannot be filled: {reason}"));
    }
    lines.extend(clients_cut(&status["clients_cut"]));
    if let Some(reason) = status["metadata"]["trouble"].as_str() {
        lines.push(format!(
            "ALARM     the metadata database takes nothing, changes and new names wait until its disk does: {reason}"
        ));
    }
    if let Some(lost) = status["metadata"]["lost"].as_str() {
        lines.push(format!("ALARM     {lost}"));
    }
    lines.extend(array(&status["lost"]).iter().map(|lost| format!("ALARM     {}", text(lost))));
    lines.extend(journal(&status["journal"]));
    for one in array(&status["junctions"]) {
        lines.extend(junction(one));
    }
    lines
}

/// Of a node of a cluster; nothing where the tier is alone.
fn cluster(cluster: &Value) -> Vec<String> {
    if cluster.is_null() {
        return Vec::new();
    }
    let security = if cluster["secure"] == true { "" } else { ", INSECURE: nodes have no certificates" };
    let mut lines = vec![format!(
        "cluster   {} as {}, map {}: {} up, {} draining, {} out ({}){security}",
        text(&cluster["url"]),
        text(&cluster["name"]),
        cluster["map"],
        cluster["up"],
        cluster["draining"],
        cluster["out"],
        text(&cluster["membership"]),
    )];
    lines.push(format!(
        "          {} of {} cached at all nodes, {} read from afar since they were started",
        size(&cluster["cached"]),
        size(&cluster["cache_max"]),
        size(&cluster["far_bytes"]),
    ));
    let missing = array(&cluster["under_replicated"]).iter();
    lines.extend(missing.map(|missing| {
        format!(
            "ALARM     {}: {} stripes have too few copies, {} are to be copied, for {} s",
            text(&missing["junction"]),
            missing["stripes"],
            size(&missing["bytes"]),
            missing["seconds"]
        )
    }));
    let elsewhere = array(&cluster["under_replicated_elsewhere"]).iter();
    lines.extend(elsewhere.map(|missing| {
        format!(
            "ALARM     node {} counts {} stripes with too few copies, {} are to be copied, for {} s",
            text(&missing["node"]),
            missing["stripes"],
            size(&missing["bytes"]),
            missing["seconds"]
        )
    }));
    let silent = array(&cluster["silent"]).iter();
    lines.extend(silent.map(|node| format!("ALARM     node {} does not answer this one", text(node))));
    lines.extend(array(&cluster["alarms"]).iter().map(|alarm| format!("ALARM     {}", text(&alarm["text"]))));
    lines
}

/// The worst of those that were cut short often.
fn clients_cut(clients: &Value) -> Vec<String> {
    let often = array(clients).iter().filter(|client| client["alarm"] == true);
    let told = often.take(CLIENTS_SHOWN_MAX).map(|client| {
        format!(
            "ALARM     {} client {}: {} ({} times, the last {} ago)",
            text(&client["front"]),
            text(&client["address"]),
            text(&client["text"]),
            client["count"],
            duration(number(&client["age_seconds"]) as f64),
        )
    });
    told.collect()
}

fn junction(junction: &Value) -> Vec<String> {
    let mut lines = vec![format!(
        "junction  {} <- {} ({}): {} in {} calls; files {}, directories {}, write {}",
        text(&junction["path"]),
        text(&junction["origin"]),
        text(&junction["state"]),
        size(&junction["origin_bytes"]),
        junction["origin_calls"],
        text(&junction["files"]),
        text(&junction["directories"]),
        text(&junction["write"]),
    )];
    if let (Some(durability), Some(line)) = (junction["durability"].as_str(), lines.first_mut()) {
        line.push_str(&format!(" (durability {durability})"));
    }
    if let (Some(_), Some(line)) = (junction["dirty_bytes"].as_u64(), lines.first_mut()) {
        let oldest = oldest(&junction["dirty_oldest_seconds"]);
        line.push_str(&format!(", {} dirty{oldest}", size(&junction["dirty_bytes"])));
    }
    if let (Some(ms), Some(error)) = (junction["failing_ms"].as_u64(), junction["error"].as_str()) {
        let path = text(&junction["path"]);
        let what = match junction["outage"].as_str() {
            Some("credentials") => "refuses our credentials",
            Some("replaced") => "is not the storage that it was (origin replaced)",
            _ => "does not answer",
        };
        lines.push(format!("ALARM     {path}: the origin {what}, for {} s: {error}", ms / 1000));
    }
    lines
}

fn journal(journal: &Value) -> Vec<String> {
    if journal.is_null() {
        return Vec::new();
    }
    let (used, max) = (number(&journal["bytes_used"]), number(&journal["bytes_max"]).max(1));
    let percent = u128::from(used) * 100 / u128::from(max);
    let oldest = oldest(&journal["oldest_seconds"]);
    let mut lines = vec![format!(
        "journal   {} of {} in {}: {} operations with {} are not at their origin{oldest}; {} conflicts",
        size(&journal["bytes_used"]),
        size(&journal["bytes_max"]),
        text(&journal["dir"]),
        journal["operations"],
        size(&journal["dirty_bytes"]),
        journal["conflicts"],
    )];
    let mut alarm = |text: String| lines.push(format!("ALARM     {text}"));
    if journal["failed"] == true {
        alarm("the journal's disk failed: nothing is written back any more before a restart".to_owned());
    }
    for place in array(&journal["damaged"]) {
        alarm(format!("the journal is damaged, and nothing is written back: {}", text(place)));
    }
    if percent >= u128::from(JOURNAL_ALARM_PERCENT) {
        alarm(format!("the journal is full to {percent} %: writers wait"));
    }
    let refusals = array(&journal["refusals"]);
    let refusals = &refusals[..refusals.len().min(REFUSALS_SHOWN_MAX)];
    for refusal in refusals {
        alarm(format!("not flushed: {}", text(refusal)));
    }
    let more = number(&journal["refused"]).saturating_sub(refusals.len() as u64);
    if more > 0 {
        alarm(format!("not flushed: {more} more operations"));
    }
    let alarms = array(&journal["alarms"]);
    let earlier = alarms.len().saturating_sub(ALARMS_SHOWN_MAX);
    if earlier > 0 {
        alarm(format!("{earlier} earlier ones are told by --json"));
    }
    for one in &alarms[earlier..] {
        let age = duration(number(&one["age_seconds"]) as f64);
        alarm(format!("{age} ago, {}: {}", text(&one["kind"]), text(&one["text"])));
    }
    lines
}

fn oldest(seconds: &Value) -> String {
    seconds.as_u64().map_or_else(String::new, |s| format!(", the oldest for {}", duration(s as f64)))
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Names may hold anything; a line of a script's input stays one.
fn one_line(line: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    line.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_waits_and_what_is_wrong_stand_in_lines_of_their_own() {
        let status = json!({
            "version": "1", "uptime_seconds": 5, "write": "back", "cache": { "files": 0 },
            "journal": {
                "dir": "/j", "operations": 3, "dirty_bytes": 2048, "oldest_seconds": 61, "conflicts": 1,
                "bytes_used": 90, "bytes_max": 100, "failed": true, "damaged": ["segment-1 at 64: a hole"],
                "refused": 3, "refusals": ["operation 7: no space"],
                "alarms": [{ "age_seconds": 5, "kind": "kept both", "text": "/show/a\nb: ours is beside" }],
            },
            "junctions": [{ "path": "/show", "write": "back", "durability": "fsync", "dirty_bytes": 2048, "dirty_oldest_seconds": 61 }],
        });
        let lines = told(&status);
        let has = |part: &str| assert!(lines.iter().any(|line| line.contains(part)), "{part}: {lines:#?}");
        has(
            "journal   90 B of 100 B in /j: 3 operations with 2.0 KiB are not at their origin, the oldest for 1:01 min; 1 conf",
        );
        has("write back (durability fsync), 2.0 KiB dirty, the oldest for 1:01 min");
        has("ALARM     the journal's disk failed");
        has("ALARM     the journal is damaged, and nothing is written back: segment-1 at 64");
        has("ALARM     the journal is full to 90 %");
        has("ALARM     not flushed: operation 7: no space");
        has("ALARM     not flushed: 2 more operations");
        has("ALARM     5 s ago, kept both: /show/a\\nb: ours is beside");
    }

    #[test]
    fn a_client_that_was_cut_short_often_is_named_in_an_alarm() {
        let cut = |address: &str, count: u64, alarm: bool| {
            json!({ "front": "nfs", "address": address, "reason": "slow_reader", "count": count, "alarm": alarm,
                "text": "it does not take its answers; its connections are closed", "age_seconds": 3 })
        };
        let lines = clients_cut(&json!([cut("10.0.0.7", 40, true), cut("10.0.0.8", 1, false)]));
        assert_eq!(lines.len(), 1, "{lines:#?}");
        assert!(
            lines[0].starts_with("ALARM     nfs client 10.0.0.7: it does not take its answers"),
            "{lines:#?}"
        );
        assert!(lines[0].contains("40 times"), "{lines:#?}");
    }

    #[test]
    fn of_many_alarms_the_newest_are_shown() {
        let alarms: Vec<_> =
            (0..30).map(|i| json!({ "kind": "resumed", "text": format!("/file-{i}.") })).collect();
        let lines = journal(&json!({ "alarms": alarms }));
        assert_eq!(lines.len(), 1 + 1 + ALARMS_SHOWN_MAX, "{lines:#?}");
        assert!(lines[1].contains("10 earlier"), "{lines:#?}");
        assert!(lines[2].contains("/file-10.") && lines[21].contains("/file-29."), "{lines:#?}");
    }

    #[test]
    fn a_tier_that_writes_nothing_back_has_no_journal_to_tell_of() {
        let status =
            json!({ "cache": {}, "journal": null, "junctions": [{ "path": "/", "dirty_bytes": null }] });
        let lines = told(&status).concat();
        assert!(!lines.contains("journal") && !lines.contains("dirty"), "{lines}");
    }
}
