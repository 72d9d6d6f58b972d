//! What this machine's own link and CPU allow: rates above are not believed, rates at it are this machine's.

use std::collections::BTreeMap;

use bench_report::model::{Finding, Severity};
use bench_report::sanity;
use bench_report::summary::median;

use super::super::{Config, Pair};
use super::{LinkCondition, StreamEnd, seconds};
use crate::limit;
use crate::nic::Nic;

/// What is known of this process and of its machine.
#[derive(Clone, Debug, Default)]
pub struct Here {
    /// User and system time over all rounds.
    pub cpu_seconds: f64,
    /// For pairs that begin here and leave this machine: by which link.
    pub nics: BTreeMap<Pair, Nic>,
}

/// Why a pair's rate (Mbit/s) cannot be.
pub fn exceeded(here: &Here, pair: &Pair, rates: &[f64]) -> Option<String> {
    let nic = here.nics.get(pair)?;
    let link = nic.rate?;
    rates.iter().find_map(|rate| sanity::faster_than(rate * 1e6 / 8.0, link, &format!("the link {nic}")))
}

/// Bytes a second that each condition moved over one link of this machine, medians.
fn over(config: &Config, conditions: &[LinkCondition], here: &Here, nic: &Nic) -> Vec<f64> {
    let of = |condition: &LinkCondition| {
        let pairs = condition.pairs();
        let ours = |pair: &&Pair| here.nics.get(*pair) == Some(nic);
        let rates = match condition.together {
            // A part of them over this link would be another sum than the one that is measured.
            true if pairs.iter().all(ours) => condition.rates_of_all(config, StreamEnd::Receiver).0,
            false if pairs.first().is_some_and(ours) => condition.rates(config, 0, StreamEnd::Receiver).0,
            _ => Vec::new(),
        };
        median(&rates).map(|mbit| mbit * 1e6 / 8.0)
    };
    conditions.iter().filter_map(of).collect()
}

pub fn findings(config: &Config, conditions: &[LinkCondition], here: &Here) -> Vec<Finding> {
    let rounds: usize = conditions.iter().map(|condition| condition.rounds.len()).sum();
    let ran: f64 = conditions
        .iter()
        .flat_map(|condition| &condition.rounds)
        .map(|round| seconds(round.stop_us.saturating_sub(round.start_us)))
        .sum();
    if rounds == 0 {
        return Vec::new();
    }
    let mut nics: Vec<&Nic> = here.nics.values().collect();
    nics.sort_by(|a, b| a.name.cmp(&b.name));
    nics.dedup();
    let busiest = nics
        .iter()
        .map(|nic| (*nic, over(config, conditions, here, nic)))
        .max_by(|(_, a), (_, b)| most(a).total_cmp(&most(b)));
    let (nic, rates) = busiest.map_or((None, Vec::new()), |(nic, rates)| (Some(nic), rates));
    let told = limit::of_streams(here.cpu_seconds, ran, Some(most(&rates)), nic);
    let mut findings = vec![Finding::verdict(format!("The link: {told}"))];
    if let (Some(nic), Some(why)) = (nic, sanity::nic_cap(&rates, nic.and_then(|nic| nic.rate))) {
        findings.push(Finding::new(Severity::Note, format!("{}: {why}", nic.name)));
    }
    findings
}

fn most(rates: &[f64]) -> f64 {
    rates.iter().copied().fold(0.0, f64::max)
}
