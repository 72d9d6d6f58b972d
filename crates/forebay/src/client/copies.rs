//! `forebay copies`: how many nodes keep the files below a path.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::str::FromStr;

use clap::Args;
use serde_json::{Value, json};
use types::Result;

use tier::admin::{decode_path, encode_path};

use super::progress::number;
use super::{ClientArgs, get, post, print_line, text};

/// One line of the answer.
macro_rules! say {
    ($($line:tt)*) => { print_line(format_args!($($line)*))? };
}

#[derive(Args, Clone, Debug)]
pub struct CopiesArgs {
    /// A file or a directory in the served tree
    path: OsString,
    /// How many copies, 1 to 16; default: as the directory above, or the junction, says
    #[arg(value_name = "N|default")]
    copies: Option<WantedCopies>,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WantedCopies {
    Default,
    Number(u8),
}

impl FromStr for WantedCopies {
    type Err = String;

    fn from_str(typed: &str) -> std::result::Result<WantedCopies, String> {
        let number = || typed.parse().ok().filter(|number| (1..=16).contains(number));
        match typed {
            "default" => Some(WantedCopies::Default),
            _ => number().map(WantedCopies::Number),
        }
        .ok_or_else(|| format!("\"{typed}\" is not understood; write a number from 1 to 16, or default"))
    }
}

pub fn copies(args: &CopiesArgs) -> Result<ExitCode> {
    let path = encode_path(args.path.as_bytes());
    let told = match args.copies {
        None => get(&args.client, &format!("/v1/copies?path={path}"))?,
        Some(wanted) => {
            let number = match wanted {
                WantedCopies::Default => None,
                WantedCopies::Number(number) => Some(number),
            };
            post(&args.client, "/v1/copies", &json!({ "path": path, "copies": number }))?
        }
    };
    if args.client.json {
        say!("{told:#}");
        return Ok(ExitCode::SUCCESS);
    }
    for line in lines(&told) {
        say!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}

fn lines(told: &Value) -> Vec<String> {
    let shown =
        |path: &Value| String::from_utf8_lossy(&decode_path(text(path)).unwrap_or_default()).into_owned();
    if told["heard"] == false {
        return vec![format!(
            "{}: it is set; this node has not heard of it yet, since etcd is slow to tell",
            shown(&told["path"])
        )];
    }
    let (copies, nodes) = (number(&told["copies"]), number(&told["nodes"]));
    let noun = |count: u64, one: &str, more: &str| format!("{count} {}", if count == 1 { one } else { more });
    let why = match told["rule"].is_null() {
        true => format!("as the junction {} says", shown(&told["junction"])),
        false if told["rule"] == told["path"] => "by its own rule".to_owned(),
        false => format!("by the rule of {}", shown(&told["rule"])),
    };
    let mut lines = vec![format!("{}: {}, {why}", shown(&told["path"]), noun(copies, "copy", "copies"))];
    if copies > nodes {
        let keep = if nodes == 1 { "keeps" } else { "keep" };
        let there = noun(nodes, "node", "nodes");
        lines.push(format!("{there} {keep} files of this junction: there are no more copies than that"));
    }
    let below = told["rules"].as_array().into_iter().flatten().filter(|rule| rule["path"] != told["path"]);
    lines.extend(below.map(|rule| format!("below it: {}  {}", shown(&rule["path"]), rule["copies"])));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_copies_or_default_is_understood_and_nothing_else() {
        let read = |typed: &str| typed.parse::<WantedCopies>().ok();
        assert_eq!(read("3"), Some(WantedCopies::Number(3)));
        assert_eq!(read("default"), Some(WantedCopies::Default));
        assert_eq!([read("0"), read("17"), read("all"), read("-1")], [None; 4]);
    }

    #[test]
    fn it_is_said_by_which_rule_and_where_there_are_fewer_nodes_than_copies() {
        let told = json!({
            "path": "/show/hero%20shot", "junction": "/show", "copies": 5, "rule": "/show", "nodes": 3,
            "rules": [{ "path": "/show/hero%20shot/plates", "copies": 2 }],
        });
        let expected = [
            "/show/hero shot: 5 copies, by the rule of /show",
            "3 nodes keep files of this junction: there are no more copies than that",
            "below it: /show/hero shot/plates  2",
        ];
        assert_eq!(lines(&told), expected);
        let plain = json!({ "path": "/show", "junction": "/show", "copies": 1, "rule": null, "nodes": 3, "rules": [] });
        assert_eq!(lines(&plain), ["/show: 1 copy, as the junction /show says"]);
    }
}
