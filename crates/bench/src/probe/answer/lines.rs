//! The answer in ten lines, as far as a probe knows it: it looks at one storage, and what a tier buys is not seen.

use bench_report::{AnswerLine, AnswerPart, Cell, estimate, median};
use relay::Profile;

use super::super::operation::ProbeOperation;
use super::super::posix;
use super::super::streams::StreamRate;
use super::{ProbeAnswer, digits, in_mib, in_ms, knee, place};

const TIER: &str = "a probe sees no tier; bench render measures what one buys";

pub fn of_server(answer: &ProbeAnswer) -> Vec<AnswerLine> {
    let mut lines = vec![AnswerLine::one("round trip", Cell::Number(digits(answer.rtt_here * 1e3)), "ms")];
    let small = answer.operation(ProbeOperation::OpenReadClose);
    let trips = small.and_then(|small| small.line).map(|line| line.slope.cell(line.n));
    let none = || Cell::missing("no small file was found; name one with --small-file");
    lines.push(AnswerLine::one("round trips per open-read-close", trips.unwrap_or_else(none), ""));
    lines.push(slow_down(answer));
    let here = small.map(|small| Cell::Number(digits(small.direct * 1e3)));
    lines.push(AnswerLine::one("open-read-close here", here.unwrap_or_else(none), "ms"));
    lines.extend(answer.places().into_iter().filter_map(|added| streams(answer, added)));
    if let Some((near, rtt)) =
        small.and_then(|small| Some((answer.config.near.as_deref()?, answer.break_even(small)?)))
    {
        let from = Cell::Number(digits((rtt * 1e3).max(0.0)));
        lines.push(AnswerLine::one(format!("{near} is faster from a round trip of"), from, "ms"));
    }
    lines.push(AnswerLine::one("direct, cold and warm", Cell::missing(TIER), ""));
    lines
}

fn slow_down(answer: &ProbeAnswer) -> AnswerLine {
    let what = "predicted slow-down, open-read-close";
    let small = answer.operation(ProbeOperation::OpenReadClose);
    let at = |profile: &Profile| {
        let times = small?.predict(profile.rtt.as_secs_f64(), answer.rtt_here)? / small?.direct;
        Some(AnswerPart::new(profile.name, Cell::Number((times * 10.0).round() / 10.0), "x"))
    };
    let parts: Option<Vec<AnswerPart>> = Profile::ALL.iter().map(at).collect();
    match parts {
        Some(parts) => AnswerLine::new(what, parts),
        None => AnswerLine::one(what, Cell::missing("there is no line through its times"), ""),
    }
}

/// One stream, and the number after which more bring little.
fn streams(answer: &ProbeAnswer, added: Option<std::time::Duration>) -> Option<AnswerLine> {
    let rates = answer.rates(added);
    let knee = knee(&rates)?;
    let part = |n: usize| {
        let rate: &StreamRate = rates.iter().find(|rate| rate.streams == n)?;
        let name = if n == 1 { "1 stream".to_owned() } else { format!("{n} streams") };
        Some(AnswerPart::new(name, estimate(&in_mib(&rate.bytes_per_second)), "MiB/s"))
    };
    let mut numbers = vec![1, knee];
    numbers.dedup();
    Some(AnswerLine::new(format!("reading {}", place(added)), numbers.into_iter().filter_map(part).collect()))
}

pub fn of_path(measured: &posix::LocalProbe) -> Vec<AnswerLine> {
    let rtt = match &measured.server {
        Some((_, times)) => Cell::Number(digits(median(times).unwrap_or_default() * 1e3)),
        None => Cell::missing(format!("nothing tells how far {} is", measured.kind)),
    };
    let trips = Cell::missing("no distance can be added in front of it");
    let mut lines = vec![
        AnswerLine::one("round trip", rtt, "ms"),
        AnswerLine::one("round trips per open-read-close", trips, ""),
    ];
    let of = |(name, times): &(&'static str, Vec<f64>)| AnswerLine::one(*name, estimate(&in_ms(times)), "ms");
    lines.extend(measured.operations.iter().map(of));
    lines.push(AnswerLine::one("direct, cold and warm", Cell::missing(TIER), ""));
    lines
}
