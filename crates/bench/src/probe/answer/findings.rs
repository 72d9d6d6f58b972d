//! The ten-line answer.

use bench_report::median;
use relay::Profile;

use super::super::operation::ProbeOperation;
use super::super::posix;
use super::super::streams::StreamRate;
use super::{FLAT, ProbeAnswer, Understood, knee, mib, ms, place};
use crate::ResultBuilder;

/// The slope of one call may be so far from one.
const ONE_CALL_TOLERANCE: f64 = 0.05;

pub fn of_server(draft: &mut ResultBuilder, answer: &ProbeAnswer) {
    draft.verdict(format!(
        "The storage is {:.3} ms away (round trip: {}).",
        answer.rtt_here * 1e3,
        match answer.answered_nearer {
            None => "the shorter of a TCP handshake and a NULL call, medians",
            Some(_) => "the median of NULL calls",
        }
    ));
    if let Some(handshake) = answer.answered_nearer {
        draft.warning(format!(
            "A TCP handshake takes {:.3} ms, a NULL call {:.3} ms: what takes connections is not the storage (a proxy, a \
             relay, a load balancer), or the storage is busy. The round trip is the NULL call's.",
            handshake * 1e3,
            answer.rtt_here * 1e3
        ));
    }
    for operation in [ProbeOperation::OpenReadClose, ProbeOperation::List, ProbeOperation::CreateWriteClose] {
        if let Some(understood) = answer.operation(operation) {
            cost(draft, understood);
        }
    }
    // Of the small file; of a LOOKUP where there is none.
    let small = answer.operation(ProbeOperation::OpenReadClose);
    if let Some(understood) = small.or_else(|| answer.operation(ProbeOperation::Lookup)) {
        slow_down(draft, answer, understood);
        break_even(draft, answer, understood);
    }
    streams(draft, answer);
    doubts(draft, answer);
}

fn cost(draft: &mut ResultBuilder, understood: &Understood) {
    let Some(slope) = understood.line.map(|line| line.slope) else { return };
    let doubt = slope.interval.map_or(String::new(), |(low, high)| format!(" [{low:.2} to {high:.2}]"));
    draft.verdict(format!(
        "To {}: {:.2} round trips{doubt}; {:.3} ms here.",
        understood.operation,
        slope.value,
        understood.direct * 1e3
    ));
}

/// Says how many times as long it takes elsewhere.
fn slow_down(draft: &mut ResultBuilder, answer: &ProbeAnswer, understood: &Understood) {
    let at = Profile::ALL.iter().filter_map(|profile| {
        let seconds = understood.predict(profile.rtt.as_secs_f64(), answer.rtt_here)?;
        Some(format!("{} x{:.1}", profile.name, seconds / understood.direct))
    });
    let told = at.collect::<Vec<_>>().join(", ");
    if !told.is_empty() {
        draft.verdict(format!("Predicted slow-down against here, to {}: {told}.", understood.operation));
    }
}

fn break_even(draft: &mut ResultBuilder, answer: &ProbeAnswer, understood: &Understood) {
    let near = answer.config.near.as_deref().unwrap_or("the nearer server");
    let operation = understood.operation;
    match (answer.break_even(understood), answer.doubled(understood)) {
        (Some(rtt), _) if rtt <= 0.0 => {
            draft.verdict(format!("{near} is faster at any distance, to {operation}."));
        }
        (Some(rtt), _) => draft.verdict(format!(
            "Break-even: {near} is faster where the storage is more than {:.2} ms away, to {operation}; it is {:.2} ms away.",
            rtt * 1e3,
            answer.rtt_here * 1e3
        )),
        (None, Some(rtt)) => draft.verdict(format!(
            "To {operation} takes twice as long as here from a round trip of {:.2} ms on.",
            rtt * 1e3
        )),
        (None, None) => {}
    }
}

fn streams(draft: &mut ResultBuilder, answer: &ProbeAnswer) {
    for added in answer.places() {
        let rates = answer.rates(added);
        let one = rates.iter().find(|rate| rate.streams == 1).map(|rate| rate.median());
        let (Some(one), Some(knee)) = (one, knee(&rates)) else { continue };
        let most = rates.iter().copied().map(StreamRate::median).fold(0.0, f64::max);
        draft.verdict(format!(
            "A single stream stops at {:.1} MiB/s {}; the most is {:.1} MiB/s, and more than {knee} streams bring little.",
            mib(one),
            place(added),
            mib(most)
        ));
        if let Some(added) = added {
            let carried = one * (added.as_secs_f64() + answer.rtt_here);
            let asked = (answer.config.read_ahead as u64).saturating_mul(answer.measured.read_bytes);
            draft.note(format!(
                "With {} ms added one stream carries {:.2} MiB in a round trip; its client asks for {:.2} MiB at a time.",
                ms(added),
                mib(carried),
                mib(asked as f64)
            ));
        }
    }
}

fn doubts(draft: &mut ResultBuilder, answer: &ProbeAnswer) {
    if let Some(null) = answer.operation(ProbeOperation::Null).and_then(|o| o.round_trips()) {
        let told = format!("NULL, which is one call, has a slope of {null:.3} round trips");
        match (null - 1.0).abs() <= ONE_CALL_TOLERANCE {
            true => draft.note(format!("{told}: the ruler is right.")),
            false => draft.warning(format!("{told} and not 1: this machine is too busy to be a ruler.")),
        }
    }
    for crooked in answer.operations.iter().filter(|o| o.problem(&answer.config.delays).is_some()) {
        let operation = crooked.operation;
        draft.warning(format!("{operation}: time is not a line in distance; look at the plot."));
    }
    for cached in answer.operations.iter().filter(|o| o.round_trips().is_some_and(|n| n < FLAT)) {
        draft.note(format!("{}: no round trip; it is answered on this side.", cached.operation));
    }
}

pub fn of_path(draft: &mut ResultBuilder, measured: &posix::LocalProbe) {
    match &measured.server {
        Some((address, times)) => draft.verdict(format!(
            "What is behind it, {address}, is {:.3} ms away (round trip, median of {} TCP handshakes).",
            median(times).unwrap_or_default() * 1e3,
            times.len()
        )),
        None => draft.note(format!("It cannot be told how far {} is.", measured.kind)),
    }
    for (name, times) in &measured.operations {
        if let Some(time) = median(times) {
            draft.verdict(format!("To {name}: {:.3} ms.", time * 1e3));
        }
    }
    draft.note(measured.advice);
}
