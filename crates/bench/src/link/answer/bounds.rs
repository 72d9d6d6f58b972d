//! What this machine's own link and CPU allow: rates above are not believed, rates at it are this machine's.

use std::collections::BTreeMap;

use bench_report::{median, sanity};

use super::super::Pair;
use super::super::schedule::Round;
use super::{LinkCondition, RECEIVER, seconds};
use crate::{Nic, ResultBuilder, limit};

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
fn over(conditions: &[LinkCondition], here: &Here, nic: &Nic) -> Vec<f64> {
    let of = |condition: &LinkCondition| {
        // A part of them over this link would be another sum than the one that is measured.
        if !condition.pairs().all(|pair| here.nics.get(pair) == Some(nic)) {
            return None;
        }
        let (rates, _) = match condition.first.together {
            true => condition.rates_of_all(RECEIVER),
            false => condition.rates(0, RECEIVER),
        };
        median(&rates).map(|mbit| mbit * 1e6 / 8.0)
    };
    conditions.iter().filter_map(of).collect()
}

pub fn judge(draft: &mut ResultBuilder, conditions: &[LinkCondition], here: &Here) {
    let rounds: Vec<&Round> = conditions.iter().flat_map(|c| c.rounds.iter().copied()).collect();
    if rounds.is_empty() {
        return;
    }
    let ran: f64 = rounds.iter().map(|round| seconds(round.stop_us.saturating_sub(round.start_us))).sum();
    let nics: BTreeMap<&str, &Nic> = here.nics.values().map(|nic| (nic.name.as_str(), nic)).collect();
    let busiest = nics
        .into_values()
        .map(|nic| (nic, over(conditions, here, nic)))
        .max_by(|(_, a), (_, b)| most(a).total_cmp(&most(b)));
    let (nic, rates) = busiest.map_or((None, Vec::new()), |(nic, rates)| (Some(nic), rates));
    draft.verdict(format!("The link: {}", limit::of_streams(here.cpu_seconds, ran, Some(most(&rates)), nic)));
    if let (Some(nic), Some(why)) = (nic, sanity::nic_cap(&rates, nic.and_then(|nic| nic.rate))) {
        draft.note(format!("{}: {why}", nic.name));
    }
}

fn most(rates: &[f64]) -> f64 {
    rates.iter().copied().fold(0.0, f64::max)
}
