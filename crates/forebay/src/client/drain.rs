//! `forebay drain NODE [--wait]`: a node gets no more stripes, and may be stopped once the others have copied what it keeps.

use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use quantity::TimeSpan;
use serde_json::{Value, json};
use types::{Error, ErrorKind, Result};

use super::progress::{Teller, number, pause};
use super::{ClientArgs, get, post, print_line, size, text};

#[derive(Args, Clone, Debug)]
pub struct DrainArgs {
    /// The node's name or id
    node: String,
    /// Wait until the other nodes have copied what it keeps, so that it is safe to stop
    #[arg(long)]
    wait: bool,
    /// Wait so long at most; the exit code is 1 then, and the node goes on draining [default: for ever]
    #[arg(long, value_name = "TIME", requires = "wait")]
    patience: Option<TimeSpan>,
    #[command(flatten)]
    client: ClientArgs,
}

pub fn drain(args: &DrainArgs) -> Result<ExitCode> {
    let done = post(&args.client, "/v1/nodes/change", &json!({ "node": args.node, "change": "drain" }))?;
    if !args.wait {
        let line = format!("node {} gets no more stripes, and is asked for what it keeps", args.node);
        return print(args, &done, &line);
    }
    let begun = Instant::now();
    let mut teller = Teller::new(args.client.json);
    let mut since = None;
    loop {
        let looked = Instant::now();
        // The asked node may start again meanwhile.
        let (told, step) = match get(&args.client, "/v1/nodes") {
            Ok(told) => {
                let step = DrainStep::of(&told, text(&done["node"]), &mut since);
                (told, step)
            }
            Err(error) if error.is_retryable() => (Value::Null, DrainStep::Waiting(error.to_string())),
            Err(error) => return Err(error),
        };
        match &step {
            DrainStep::Safe => {
                teller.end();
                let line = format!("node {} is safe to stop: others have what it keeps", args.node);
                return print(args, &told, &line);
            }
            DrainStep::Ended(state) => {
                teller.end();
                let what = format!("node {} is {state} now; it was drained no longer", args.node);
                return Err(Error::new(ErrorKind::Busy, "wait for the drain:", what));
            }
            DrainStep::Waiting(why) => teller.now(|| format!("node {}: {why}", args.node)),
        }
        if args.patience.is_some_and(|patience| begun.elapsed() >= patience.0) {
            teller.end();
            let line = match step {
                DrainStep::Waiting(why) => format!("node {} is not safe to stop yet: {why}", args.node),
                DrainStep::Safe | DrainStep::Ended(_) => String::new(),
            };
            print(args, &told, &line)?;
            return Ok(ExitCode::FAILURE);
        }
        pause(looked);
    }
}

fn print(args: &DrainArgs, answer: &Value, line: &str) -> Result<ExitCode> {
    match args.client.json {
        true => print_line(format_args!("{answer:#}"))?,
        false => print_line(format_args!("{line}"))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// How far a drain is, by what all nodes tell.
#[derive(Debug, PartialEq, Eq)]
enum DrainStep {
    Waiting(String),
    /// All nodes that answer have looked at what they hold by a map in which the node drains, and since the last of them fell silent or
    /// came back, and found nothing more that a node of the map is to copy.
    Safe,
    /// Somebody changed the node's state meanwhile.
    Ended(String),
}

impl DrainStep {
    /// `since`: the number of the first map in which the node was seen draining.
    fn of(told: &Value, id: &str, since: &mut Option<u64>) -> DrainStep {
        let waiting = |why: &str| DrainStep::Waiting(why.to_owned());
        let nodes = || told["nodes"].as_array().into_iter().flatten();
        let Some(node) = nodes().find(|node| node["id"] == id) else {
            return DrainStep::Ended("not in the cluster".to_owned());
        };
        let state = text(&node["state"]);
        if state != "draining" {
            return match since {
                Some(_) => DrainStep::Ended(state.to_owned()),
                None => waiting("the nodes hear of it"),
            };
        }
        let since = *since.get_or_insert_with(|| number(&told["cluster"]["map"]));
        if node["answers"] != true {
            return waiting("it does not answer; what it alone keeps cannot be copied");
        }
        let answering = || nodes().filter(|node| node["answers"] == true);
        let silent = nodes().find(|node| node["answers"] != true && node["state"] != "out");
        if let Some(behind) = answering().find(|node| number(&node["told"]["counted_map"]) < since) {
            return DrainStep::Waiting(format!("{} looks through what it holds", text(&behind["name"])));
        }
        let to_copy = answering().map(|node| number(&node["told"]["to_copy_bytes"])).sum::<u64>();
        match (to_copy, silent) {
            (0, _) => DrainStep::Safe,
            (bytes, None) => DrainStep::Waiting(format!("{} to copy", size(&json!(bytes)))),
            (bytes, Some(silent)) => {
                let (bytes, name) = (size(&json!(bytes)), text(&silent["name"]));
                DrainStep::Waiting(format!("{bytes} to copy; {name} does not answer"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: &str, state: &str, answers: bool, counted_map: u64, to_copy: u64) -> Value {
        json!({ "name": format!("n{id}"), "id": id, "state": state, "answers": answers,
            "told": { "counted_map": counted_map, "to_copy_bytes": to_copy } })
    }

    fn step(map: u64, nodes: &[Value], since: &mut Option<u64>) -> DrainStep {
        DrainStep::of(&json!({ "cluster": { "map": map }, "nodes": nodes }), "3", since)
    }

    fn why(step: DrainStep) -> String {
        match step {
            DrainStep::Waiting(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_node_is_safe_to_stop_when_all_that_answer_have_looked_since_and_nothing_is_to_copy() {
        let mut since = None;
        // The asked node has not heard of the change.
        let before = [node("1", "up", true, 7, 0), node("3", "up", true, 7, 0)];
        assert!(why(step(7, &before, &mut since)).contains("hear of it"));
        // What was counted by the map before means nothing.
        let heard = [node("1", "up", true, 8, 0), node("3", "draining", true, 7, 0)];
        assert!(why(step(8, &heard, &mut since)).contains("n3 looks through"));
        let looked = [node("1", "up", true, 8, 0), node("3", "draining", true, 8, 64 << 20)];
        assert!(why(step(8, &looked, &mut since)).contains(&format!("{} to copy", size(&json!(64 << 20)))));
        // A later map does not begin the wait anew.
        let copied = [node("1", "up", true, 8, 0), node("3", "draining", true, 9, 0)];
        assert_eq!(step(9, &copied, &mut since), DrainStep::Safe);
        assert_eq!(since, Some(8));
    }

    #[test]
    fn a_silent_node_is_waited_for_as_long_as_it_is_to_copy_something() {
        let other = |to_copy| [node("1", "up", false, 2, 5), node("3", "draining", true, 8, to_copy)];
        assert!(why(step(8, &other(7 << 20), &mut None)).contains("to copy; n1 does not answer"));
        assert_eq!(step(8, &other(0), &mut None), DrainStep::Safe);
        let own = [node("1", "up", true, 8, 0), node("3", "draining", false, 8, 0)];
        assert!(why(step(8, &own, &mut None)).contains("does not answer"));
    }

    #[test]
    fn a_drain_that_somebody_ends_is_told() {
        let mut since = Some(8);
        let ended = |state: &str| DrainStep::Ended(state.to_owned());
        assert_eq!(step(9, &[node("3", "up", true, 9, 0)], &mut since), ended("up"));
        assert_eq!(step(9, &[node("3", "out", true, 9, 0)], &mut since), ended("out"));
        assert_eq!(step(9, &[node("1", "up", true, 9, 0)], &mut since), ended("not in the cluster"));
    }
}
