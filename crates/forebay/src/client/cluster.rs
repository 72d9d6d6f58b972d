//! `forebay nodes`, `placement`, `undrain` and `forget`: the cluster, as any node of it tells.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::Args;
use quantity::TimeSpan;
use serde_json::{Value, json};
use types::{Error, ErrorKind, Result};

use tier::admin::encode_path;

use super::progress::number;
use super::{ClientArgs, get, post, print_line, size, text};

/// How often it is looked whether enough nodes are up.
const LOOK: Duration = Duration::from_millis(200);

/// One line of the answer.
macro_rules! say {
    ($($line:tt)*) => { print_line(format_args!($($line)*))? };
}

#[derive(Args, Clone, Debug)]
pub struct NodesArgs {
    /// Wait until so many nodes are up and answer
    #[arg(long, value_name = "up=N")]
    wait: Option<NodesUp>,
    /// Wait so long at most; the exit code is 1 then
    #[arg(long, value_name = "TIME", default_value = "60s", requires = "wait")]
    patience: TimeSpan,
    #[command(flatten)]
    client: ClientArgs,
}

/// `up=3`.
#[derive(Clone, Copy, Debug)]
struct NodesUp(usize);

impl FromStr for NodesUp {
    type Err = String;

    fn from_str(typed: &str) -> std::result::Result<NodesUp, String> {
        let number = typed.strip_prefix("up=").and_then(|number| number.parse().ok());
        number.map(NodesUp).ok_or_else(|| format!("\"{typed}\" is not understood; write up=3"))
    }
}

pub fn nodes(args: &NodesArgs) -> Result<ExitCode> {
    let begun = Instant::now();
    let (told, is_there) = loop {
        let told = get(&args.client, "/v1/nodes");
        let is_there = match (&told, args.wait) {
            (_, None) => true,
            (Ok(told), Some(NodesUp(wanted))) => up(told) >= wanted,
            (Err(_), Some(_)) => false,
        };
        if is_there || begun.elapsed() >= args.patience.0 {
            break (told?, is_there);
        }
        std::thread::sleep(LOOK);
    };
    if args.client.json {
        say!("{told:#}");
    } else {
        for line in table(&told) {
            say!("{line}");
        }
    }
    Ok(if is_there { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn up(told: &Value) -> usize {
    let all = told["nodes"].as_array().into_iter().flatten();
    all.filter(|node| node["state"] == "up" && node["answers"] == true).count()
}

fn table(told: &Value) -> Vec<String> {
    let nodes = told["nodes"].as_array().into_iter().flatten();
    let mut rows = vec![
        ["NAME", "STATE", "ADDRESSES", "WEIGHT", "LABEL", "CACHED", "FAR READ", "ID", "BUILD"]
            .map(str::to_owned),
    ];
    rows.extend(nodes.map(|node| {
        let silent = if node["answers"] == true { "" } else { ", silent" };
        let copying = match number(&node["told"]["to_copy_bytes"]) {
            0 => String::new(),
            bytes => format!(", {} to copy", size(&json!(bytes))),
        };
        let here = if node["here"] == true { " *" } else { "" };
        let addresses = node["addresses"].as_array().into_iter().flatten();
        let told = |key: &str| node["told"].get(key).map(|bytes| size(bytes).to_string());
        let shown = |key: &str| told(key).unwrap_or_else(|| "?".to_owned());
        [
            format!("{}{here}", text(&node["name"])),
            format!("{}{silent}{copying}", text(&node["state"])),
            addresses.map(|address| text(address).to_owned()).collect::<Vec<_>>().join(","),
            size(&node["weight"]).to_string(),
            text(&node["label"]).to_owned(),
            shown("cached"),
            shown("far_bytes"),
            text(&node["id"]).to_owned(),
            text(&node["told"]["build"]).to_owned(),
        ]
    }));
    aligned(&rows)
}

/// Each column as wide as its widest cell.
fn aligned<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[derive(Args, Clone, Debug)]
pub struct PlacementArgs {
    /// A file in the served tree
    path: OsString,
    /// Per node how many bytes it is to have as primary and as a copy, and how many it has
    #[arg(long)]
    summary: bool,
    #[command(flatten)]
    client: ClientArgs,
}

pub fn placement(args: &PlacementArgs) -> Result<ExitCode> {
    let told = get(&args.client, &format!("/v1/placement?path={}", encode_path(args.path.as_bytes())))?;
    if args.client.json {
        say!("{told:#}");
        return Ok(ExitCode::SUCCESS);
    }
    let stripes = told["stripes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let lines = if args.summary { summary(stripes) } else { listing(stripes) };
    for line in lines {
        say!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}

fn copies(stripe: &Value) -> &[Value] {
    stripe["copies"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn held(copy: &Value) -> String {
    let percent =
        copy["percent"].as_u64().map_or_else(|| "silent".to_owned(), |percent| format!("{percent} %"));
    format!("{} ({percent})", text(&copy["node"]))
}

fn listing(stripes: &[Value]) -> Vec<String> {
    let mut rows = vec![["STRIPE", "OFFSET", "BYTES", "PRIMARY", "COPIES"].map(str::to_owned)];
    rows.extend(stripes.iter().enumerate().map(|(at, stripe)| {
        let all: Vec<String> = copies(stripe).iter().map(held).collect();
        let (primary, others) = all.split_first().map_or(("none", &[][..]), |(first, rest)| (first, rest));
        [
            at.to_string(),
            number(&stripe["offset"]).to_string(),
            number(&stripe["bytes"]).to_string(),
            primary.to_owned(),
            others.join(", "),
        ]
    }));
    aligned(&rows)
}

/// What one node has of a file.
#[derive(Default)]
struct NodeShare {
    primary: u64,
    copies: u64,
    held: u64,
}

fn summary(stripes: &[Value]) -> Vec<String> {
    let mut shares = BTreeMap::<String, NodeShare>::new();
    for stripe in stripes {
        let bytes = number(&stripe["bytes"]);
        for (rank, copy) in copies(stripe).iter().enumerate() {
            let share = shares.entry(text(&copy["node"]).to_owned()).or_default();
            if rank == 0 {
                share.primary += bytes;
            } else {
                share.copies += bytes;
            }
            share.held +=
                bytes / 100 * number(&copy["percent"]) + bytes % 100 * number(&copy["percent"]) / 100;
        }
    }
    let mut rows = vec![["NODE", "PRIMARY", "COPIES", "HELD"].map(str::to_owned)];
    rows.extend(shares.iter().map(|(node, share)| {
        let placed = share.primary + share.copies;
        let percent = (share.held * 100).checked_div(placed).unwrap_or(100);
        let shown = |bytes: u64| size(&json!(bytes)).to_string();
        [
            node.clone(),
            shown(share.primary),
            shown(share.copies),
            format!("{} ({percent} %)", shown(share.held)),
        ]
    }));
    aligned(&rows)
}

#[derive(Args, Clone, Debug)]
pub struct ChangeArgs {
    /// The node's name or id
    node: String,
    #[command(flatten)]
    client: ClientArgs,
}

pub fn change_node(args: &ChangeArgs, change: &str) -> Result<ExitCode> {
    let done = post(&args.client, "/v1/nodes/change", &json!({ "node": args.node, "change": change }))?;
    if args.client.json {
        say!("{done:#}");
        return Ok(ExitCode::SUCCESS);
    }
    let what = match change {
        "undrain" => "gets stripes again",
        "forget" => "is removed from the cluster, and its name is free",
        other => return Err(Error::new(ErrorKind::InvalidArgument, "change the node:", other)),
    };
    say!("node {} {what}", args.node);
    Ok(ExitCode::SUCCESS)
}
