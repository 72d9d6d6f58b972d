//! The ten-line answer.

use bench_report::model::{Finding, Severity};
use bench_report::summary::median;

use super::super::operation::ProbeOperation;
use super::super::posix;
use super::super::streams::StreamRate;
use super::{FLAT, ProbeAnswer, knee, mib, ms, named, place};

/// The slope of one call may be so far from one.
const ONE_CALL_TOLERANCE: f64 = 0.05;

pub fn of_server(answer: &ProbeAnswer) -> Vec<Finding> {
    let mut findings = vec![Finding::verdict(format!(
        "The storage is {:.3} ms away (round trip: {}).",
        answer.rtt_here * 1e3,
        match answer.answered_nearer {
            None => "the shorter of a TCP handshake and a NULL call, medians",
            Some(_) => "the median of NULL calls",
        }
    ))];
    if let Some(handshake) = answer.answered_nearer {
        findings.push(Finding::warning(format!(
            "A TCP handshake takes {:.3} ms, a NULL call {:.3} ms: what takes connections is not the storage (a proxy, a \
             relay, a load balancer), or the storage is busy. The round trip is the NULL call's.",
            handshake * 1e3,
            answer.rtt_here * 1e3
        )));
    }
    for operation in [ProbeOperation::OpenReadClose, ProbeOperation::List, ProbeOperation::CreateWriteClose] {
        findings.extend(cost(answer, operation));
    }
    findings.extend(slow_down(answer));
    findings.extend(break_even(answer));
    findings.extend(streams(answer));
    findings.extend(doubts(answer));
    findings
}

fn cost(answer: &ProbeAnswer, operation: ProbeOperation) -> Option<Finding> {
    let understood = answer.operation(operation)?;
    let slope = understood.line?.slope;
    let doubt = slope.interval.map_or(String::new(), |(low, high)| format!(" [{low:.2} to {high:.2}]"));
    Some(Finding::verdict(format!(
        "To {operation}: {:.2} round trips{doubt}; {:.3} ms here.",
        slope.value,
        understood.direct * 1e3
    )))
}

/// Says how many times as long the small file takes elsewhere; a LOOKUP where there is none.
fn slow_down(answer: &ProbeAnswer) -> Option<Finding> {
    let understood = answer
        .operation(ProbeOperation::OpenReadClose)
        .or_else(|| answer.operation(ProbeOperation::Lookup))?;
    let at = named().map(|p| {
        let seconds = understood.predict(p.rtt.as_secs_f64(), answer.rtt_here)?;
        Some(format!("{} x{:.1}", p.name, seconds / understood.direct))
    });
    let told: Vec<String> = at.into_iter().flatten().collect();
    (!told.is_empty()).then(|| {
        Finding::verdict(format!(
            "Predicted slow-down against here, to {}: {}.",
            understood.operation,
            told.join(", ")
        ))
    })
}

fn break_even(answer: &ProbeAnswer) -> Option<Finding> {
    let understood = answer
        .operation(ProbeOperation::OpenReadClose)
        .or_else(|| answer.operation(ProbeOperation::Lookup))?;
    let text = match (answer.break_even(understood), answer.doubled(understood)) {
        (Some(rtt), _) if rtt <= 0.0 => {
            format!("{} is faster at any distance, to {}.", near(answer), understood.operation)
        }
        (Some(rtt), _) => format!(
            "Break-even: {} is faster where the storage is more than {:.2} ms away, to {}; it is {:.2} ms away.",
            near(answer),
            rtt * 1e3,
            understood.operation,
            answer.rtt_here * 1e3
        ),
        (None, Some(rtt)) => format!(
            "To {} takes twice as long as here from a round trip of {:.2} ms on.",
            understood.operation,
            rtt * 1e3
        ),
        (None, None) => return None,
    };
    Some(Finding::verdict(text))
}

fn near<'a>(answer: &'a ProbeAnswer) -> &'a str {
    answer.config.near.as_deref().unwrap_or("the nearer server")
}

fn streams(answer: &ProbeAnswer) -> Vec<Finding> {
    let one = |added| answer.rates(added).into_iter().find(|rate| rate.streams == 1).map(StreamRate::median);
    let told = |added| {
        let rate = one(added)?;
        let knee = knee(&answer.rates(added))?;
        let most = answer.rates(added).into_iter().map(StreamRate::median).fold(0.0, f64::max);
        Some(Finding::verdict(format!(
            "A single stream stops at {:.1} MiB/s {}; the most is {:.1} MiB/s, and more than {knee} streams bring little.",
            mib(rate),
            place(added),
            mib(most)
        )))
    };
    let mut findings: Vec<Finding> = told(None).into_iter().collect();
    if let Some(added) = answer.farthest() {
        findings.extend(told(Some(added)));
        if let Some(rate) = one(Some(added)) {
            let carried = rate * (added.as_secs_f64() + answer.rtt_here);
            let asked = (answer.config.read_ahead as u64).saturating_mul(answer.measured.read_bytes);
            findings.push(Finding::new(
                Severity::Note,
                format!(
                    "With {} ms added one stream carries {:.2} MiB in a round trip; its client asks for {:.2} MiB at a \
                     time.",
                    ms(added),
                    mib(carried),
                    mib(asked as f64)
                ),
            ));
        }
    }
    findings
}

fn doubts(answer: &ProbeAnswer) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(null) = answer.operation(ProbeOperation::Null).and_then(|o| o.round_trips()) {
        let told = format!("NULL, which is one call, has a slope of {null:.3} round trips");
        findings.push(match (null - 1.0).abs() <= ONE_CALL_TOLERANCE {
            true => Finding::new(Severity::Note, format!("{told}: the ruler is right.")),
            false => Finding::warning(format!("{told} and not 1: this machine is too busy to be a ruler.")),
        });
    }
    let crooked = answer.operations.iter().filter(|o| o.problem(&answer.config.delays).is_some());
    findings.extend(crooked.map(|o| {
        Finding::warning(format!("{}: time is not a line in distance; look at the plot.", o.operation))
    }));
    let cached = answer.operations.iter().filter(|o| o.round_trips().is_some_and(|n| n < FLAT));
    findings.extend(cached.map(|o| {
        Finding::new(Severity::Note, format!("{}: no round trip; it is answered on this side.", o.operation))
    }));
    findings
}

pub fn of_path(measured: &posix::LocalProbe) -> Vec<Finding> {
    let mut findings = Vec::new();
    match &measured.server {
        Some((address, times)) => findings.push(Finding::verdict(format!(
            "What is behind it, {address}, is {:.3} ms away (round trip, median of {} TCP handshakes).",
            median(times).unwrap_or_default() * 1e3,
            times.len()
        ))),
        None => findings
            .push(Finding::new(Severity::Note, format!("It cannot be told how far {} is.", measured.kind))),
    }
    for (name, times) in &measured.operations {
        if let Some(time) = median(times) {
            findings.push(Finding::verdict(format!("To {name}: {:.3} ms.", time * 1e3)));
        }
    }
    findings.push(Finding::new(Severity::Note, measured.advice));
    findings
}
