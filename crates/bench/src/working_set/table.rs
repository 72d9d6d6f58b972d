//! From accounts to what a reader gets: how a cache gets warm, where the bytes came from, what the storage was asked, how
//! large a cache must be, and the cliff.

use bench_report::{
    Axis, Better, Cell, Plot, PlotKind, Point, Series, Table, estimate, median, point, sanity,
};

use super::account::PassAccount;
use super::curve::{self, ServedInterval};
use super::tier_under_test::TierUnderTest;
use super::{OrderName, SweepCondition, SweepPlan, SweepRuns, WARM_UP, WARM_UP_PASSES, WarmUp};
use crate::fixture::LOOK;
use crate::{MIB, ResultBuilder, columns, limit};

/// Percent of hits of which the time is told.
const REACHED: [f64; 3] = [50.0, 90.0, 99.0];

pub fn fill(
    draft: &mut ResultBuilder,
    plan: &SweepPlan,
    tier_under_test: &TierUnderTest,
    measured: &SweepRuns,
) {
    parameters(draft, plan, tier_under_test);
    if plan.args.tier.is_some() && !plan.args.may_evict {
        draft.note("no sweep: it would evict what the tier has cached; --may-evict allows that");
    }
    let ups = &measured.warm_ups;
    let states = states(plan, ups);
    let curves: Vec<Vec<ServedInterval>> = ups.iter().map(|up| curve::moments(&up.looks)).collect();
    let cold = states.first().map(|cold| &cold.invalid[..]).unwrap_or_default();
    time_to_warm(draft, plan, &curves, cold);
    draft.file.tables.extend([sources(&states), storage(plan, &states)]);
    if !measured.sweeps.is_empty() && !plan.factors.is_empty() {
        sweep(draft, plan, measured);
    }
    if let Some(line) = tier_under_test.line() {
        line.tell(draft);
    }
    if ups.iter().any(|up| up.warm.disk.is_none()) {
        draft
            .warning("memory or disk is unknown: the tier does not tell what its process had its disks read");
    }
}

fn parameters(draft: &mut ResultBuilder, plan: &SweepPlan, tier_under_test: &TierUnderTest) {
    let args = &plan.args;
    draft.parameter("cache_bytes", plan.cache_bytes);
    draft.parameter("file_bytes", args.file_size);
    draft.parameter("clients", plan.fleet.clients);
    draft.parameter("workers", plan.fleet.workers);
    draft.parameter("factors", plan.factors.clone());
    draft.parameter("orders", args.orders.iter().map(OrderName::to_string).collect::<Vec<_>>());
    draft.parameter("zipf_theta", args.theta);
    draft.parameter("running_tier", args.tier.is_some());
    if tier_under_test.line().is_some() {
        draft.line(args.rtt, args.rate);
    }
}

fn plot(title: &str, x: &str, y: &str, series: Vec<Series>) -> Plot {
    Plot::new(PlotKind::Lines, title, Axis::linear(x), Axis::linear(y), series)
}

/// What is estimated from a pass in all repetitions.
struct Passes<'a>(Vec<&'a PassAccount>);

impl Passes<'_> {
    fn values(&self, value: impl Fn(&PassAccount) -> f64) -> Vec<f64> {
        self.0.iter().map(|account| value(account)).collect()
    }

    fn of(&self, value: impl Fn(&PassAccount) -> f64) -> Cell {
        estimate(&self.values(value))
    }

    /// Of what is known in all of them.
    fn known(&self, why_not: &str, value: impl Fn(&PassAccount) -> Option<f64>) -> Cell {
        let values: Option<Vec<f64>> = self.0.iter().map(|account| value(account)).collect();
        values.map_or_else(|| Cell::missing(why_not), |values| estimate(&values))
    }
}

/// A cache that is getting warm, or that is.
struct WarmUpState<'a> {
    name: &'static str,
    passes: Passes<'a>,
    invalid: Vec<String>,
}

/// Cold first.
fn states<'a>(plan: &SweepPlan, ups: &'a [WarmUp]) -> Vec<WarmUpState<'a>> {
    let layout = plan.layout(WARM_UP);
    let all = layout.total_bytes();
    let checked = |account: &PassAccount| {
        let mut reasons = account.contradictions(plan.demanded(&layout, account.passes));
        if account.evicted > 0 {
            reasons.push(format!("{} bytes were evicted, and all should fit", account.evicted));
        }
        if account.unkept > 0 {
            reasons.push(format!("{} bytes were not kept", account.unkept));
        }
        reasons
    };
    let state = |name, accounts: Vec<&'a PassAccount>, wrong: &dyn Fn(&PassAccount) -> Vec<String>| {
        let reasons = accounts.iter().flat_map(|account| [checked(account), wrong(account)].concat());
        WarmUpState { name, invalid: limit::distinct(reasons.collect()), passes: Passes(accounts) }
    };
    let mut states = vec![
        state("getting warm", ups.iter().map(|up| &up.cold).collect(), &|cold| cold.not_cold(all)),
        state("warm", ups.iter().map(|up| &up.warm).collect(), &|warm| warm.not_warm(all, 0)),
    ];
    let from_disk: Vec<&PassAccount> = ups.iter().filter_map(|up| up.from_disk.as_ref()).collect();
    if !from_disk.is_empty() {
        states.push(state("warm, pages dropped", from_disk, &|account| {
            [account.not_warm(all, 0), account.not_from_disk(all)].concat()
        }));
    }
    states
}

fn time_to_warm(
    draft: &mut ResultBuilder,
    plan: &SweepPlan,
    curves: &[Vec<ServedInterval>],
    invalid: &[String],
) {
    let all = plan.layout(WARM_UP).total_bytes() as f64;
    let resident = |bytes: u64| (bytes as f64 / all * 100.0).min(100.0);
    let times = |percent: &f64| -> Vec<f64> {
        curves.iter().filter_map(|curve| curve::time_to(curve, *percent)).collect()
    };
    let residents = |percent: &f64| -> Vec<f64> {
        let at = |curve: &Vec<ServedInterval>| {
            let time = curve::time_to(curve, *percent)?;
            let before = curve.iter().rev().find(|moment| moment.at <= time + 1e-9);
            Some(resident(before.map_or(0, |moment| moment.resident)))
        };
        curves.iter().filter_map(at).collect()
    };
    let reached = |times: &[f64]| times.len() == curves.len() && !times.is_empty();
    let cell = |values: Vec<f64>| match reached(&values) {
        true => estimate(&values),
        false => Cell::missing("not reached in every repetition"),
    };
    let table = columns::table(
        "Time to warm",
        &REACHED,
        |_| invalid.to_vec(),
        &[
            ("hits %", &|percent| Cell::Number(*percent)),
            ("reached after s", &|percent| cell(times(percent))),
            ("data set in the cache then %", &|percent| cell(residents(percent))),
        ],
    );
    draft.file.tables.push(table.noted([
        format!(
            "{} clients read {:.0} MiB {WARM_UP_PASSES} times, each in an order of its own, beginning with an empty cache. Reached: from then on \
             no interval of {} s had fewer hits.",
            plan.fleet.clients,
            all / MIB,
            LOOK.as_secs_f64()
        ),
        "Hits: bytes of reads that were in the cache when they were asked for, of all bytes served."
            .to_owned(),
    ]));
    for percent in REACHED {
        let times = times(&percent);
        if !reached(&times) {
            continue;
        }
        let middle = median(&times).filter(|_| percent == 90.0);
        let name = format!("time to {percent} % hits");
        draft.measure(name, "s", Better::Lower, times, invalid);
        if let Some(time) = middle {
            draft.verdict(format!("an empty cache serves 90 % from what it has after {time:.1} s"));
        }
    }
    let Some(first) = curves.first() else { return };
    let line = |name: &str, value: &dyn Fn(&ServedInterval) -> f64| {
        Series::ours(name, first.iter().map(|moment| Point::at(moment.at, value(moment))).collect())
    };
    let percents = vec![
        line("hits", &|moment| moment.hit_percent),
        line("data set in the cache", &|moment| resident(moment.resident)),
    ];
    let rate = vec![line("all clients", &|moment| moment.rate / MIB)];
    let against = first.iter().map(|moment| Point::at(resident(moment.resident), moment.hit_percent));
    let against = vec![Series::ours("an empty cache gets warm", against.collect())];
    let (time, there) = ("seconds after the first byte", "data set in the cache (%)");
    draft.file.plots.extend([
        plot("How the cache gets warm, first repetition", time, "%", percents),
        plot("What is served meanwhile, first repetition", time, "MiB/s", rate),
        plot("Hits against what is there, first repetition", there, "hits (%)", against),
    ]);
}

/// Memory, disk or storage.
fn sources(states: &[WarmUpState]) -> Table {
    columns::table(
        "Where the bytes came from",
        states,
        |state| state.invalid.clone(),
        &[
            ("State", &|state| Cell::text(state.name)),
            ("served MiB", &|state| state.passes.of(|a| a.served as f64 / MIB)),
            ("hits %", &|state| state.passes.of(PassAccount::hit_percent)),
            ("from memory %", &|state| state.passes.known("unknown", PassAccount::memory_percent)),
            ("from the disk %", &|state| state.passes.known("unknown", PassAccount::disk_percent)),
            ("waited for the storage %", &|state| state.passes.of(PassAccount::waited_percent)),
        ],
    )
}

fn storage(plan: &SweepPlan, states: &[WarmUpState]) -> Table {
    let all = plan.layout(WARM_UP).total_bytes();
    let calls = |state: &WarmUpState, kind: &str| state.passes.of(|a| a.call(kind) as f64);
    let other = |a: &PassAccount| {
        let named: u64 = ["read", "getattr", "lookup", "readdir"].iter().map(|kind| a.call(kind)).sum();
        (a.calls.values().sum::<u64>() - named) as f64
    };
    columns::table(
        "What the storage was asked for",
        states,
        |state| state.invalid.clone(),
        &[
            ("State", &|state| Cell::text(state.name)),
            ("from the storage MiB", &|state| state.passes.of(|a| a.origin_bytes as f64 / MIB)),
            ("thereof twice MiB", &|state| state.passes.of(|a| a.duplicate(all) as f64 / MIB)),
            ("amplification", &|state| state.passes.of(PassAccount::amplification)),
            ("READ", &|state| calls(state, "read")),
            ("GETATTR", &|state| calls(state, "getattr")),
            ("LOOKUP", &|state| calls(state, "lookup")),
            ("READDIR", &|state| calls(state, "readdir")),
            ("other calls", &|state| state.passes.of(other)),
            ("coalescing", &|state| state.passes.known("nothing was read", PassAccount::coalescing)),
            ("read ahead MiB", &|state| state.passes.of(|a| a.ahead as f64 / MIB)),
            ("of that read later MiB", &|state| state.passes.of(|a| a.ahead_used as f64 / MIB)),
            ("evicted unread MiB", &|state| state.passes.of(|a| a.ahead_evicted as f64 / MIB)),
            ("not read so far %", &|state| {
                state.passes.known("nothing was fetched ahead", PassAccount::ahead_wasted_percent)
            }),
            ("revalidations per open", &|state| state.passes.of(PassAccount::revalidations_per_open)),
        ],
    )
}

/// A data set that is read in one order: the conditions of all repetitions.
struct SweptSize<'a> {
    order: OrderName,
    factor: f64,
    conditions: Vec<&'a SweepCondition>,
    /// Of each condition, what was measured.
    later: Passes<'a>,
    invalid: Vec<String>,
}

impl<'a> SweptSize<'a> {
    fn of(plan: &SweepPlan, measured: &'a SweepRuns, factor: f64, order: OrderName) -> SweptSize<'a> {
        let all = measured.sweeps.iter().flatten();
        let conditions: Vec<&SweepCondition> =
            all.filter(|condition| condition.factor == factor && condition.order == order).collect();
        let later = Passes(conditions.iter().map(|condition| &condition.later).collect());
        SweptSize { order, factor, invalid: unproved(plan, &conditions), conditions, later }
    }

    /// Of all passes of a condition.
    fn mib(&self, bytes: impl Fn(&SweepCondition) -> u64) -> Cell {
        let mib = |condition: &&SweepCondition| bytes(condition) as f64 / MIB;
        estimate(&self.conditions.iter().map(mib).collect::<Vec<_>>())
    }
}

pub fn unproved(plan: &SweepPlan, conditions: &[&SweepCondition]) -> Vec<String> {
    let mut reasons = Vec::new();
    for condition in conditions {
        let layout = plan.layout(condition.factor);
        let (first, later, all) = (&condition.first, &condition.later, layout.total_bytes());
        let (evicted, asked) = (condition.evicted, condition.first_unique);
        let first_reasons = first.contradictions(plan.demanded(&layout, first.passes));
        reasons.extend(first_reasons.into_iter().map(|why| format!("first pass: {why}")));
        reasons.extend(later.contradictions(plan.demanded(&layout, later.passes)));
        reasons.extend(first.not_cold(asked));
        if evicted == 0 {
            reasons.extend(later.not_warm(condition.unique, all.saturating_sub(asked)));
        }
        if evicted == 0 && asked > plan.cache_bytes {
            let taken = plan.cache_bytes;
            reasons.push(format!("{asked} bytes were read, the cache takes {taken}, and nothing left"));
        }
        reasons.extend(sanity::too_short(later.seconds));
    }
    limit::distinct(reasons)
}

fn sweep(draft: &mut ResultBuilder, plan: &SweepPlan, measured: &SweepRuns) {
    let (mut rows, mut spared_lines, mut rate_lines) = (Vec::new(), Vec::new(), Vec::new());
    let rate = |account: &PassAccount| account.rate() / MIB;
    for order in &plan.args.orders {
        let sizes: Vec<SweptSize> =
            plan.factors.iter().map(|factor| SweptSize::of(plan, measured, *factor, *order)).collect();
        for size in &sizes {
            for (what, unit, values) in [
                ("hits", "%", size.later.values(PassAccount::hit_percent)),
                ("spared", "%", size.later.values(PassAccount::spared_percent)),
                ("rate", "MiB/s", size.later.values(rate)),
            ] {
                let name = format!("{what}, {order}, {} x cache", size.factor);
                draft.measure(name, unit, Better::Higher, values, &size.invalid);
            }
        }
        let believed = || sizes.iter().filter(|size| size.invalid.is_empty());
        let spared = |size: &SweptSize| size.later.values(PassAccount::spared_percent);
        let medians: Vec<(f64, f64)> =
            believed().filter_map(|size| Some((size.factor, median(&spared(size))?))).collect();
        cliff(draft, *order, &medians);
        let points = believed().filter_map(|size| point(size.factor, &spared(size)));
        spared_lines.push(Series::ours(order.to_string(), points.collect()));
        let points = believed().filter_map(|size| point(size.factor, &size.later.values(rate)));
        rate_lines.push(Series::ours(order.to_string(), points.collect()));
        rows.extend(sizes);
    }
    let unkept: u64 = measured.sweeps.iter().flatten().map(|c| c.first.unkept + c.later.unkept).sum();
    if unkept > 0 {
        draft.warning(format!(
            "in the sweep {:.1} MiB were passed on without being kept: the cache had no room that could be made",
            unkept as f64 / MIB
        ));
    }
    draft.file.tables.push(how_large(plan, &rows));
    let (size, spared) = ("data set / cache", "spared (% of bytes read)");
    let title = "Bytes that the storage is spared, against the size of the data set";
    draft.file.plots.extend([
        plot(title, size, spared, spared_lines),
        plot("Rate against the size of the data set", size, "all clients (MiB/s)", rate_lines),
    ]);
}

fn how_large(plan: &SweepPlan, rows: &[SweptSize]) -> Table {
    let data_set = |factor: f64| plan.layout(factor).total_bytes() as f64 / MIB;
    columns::table(
        "How large a cache must be",
        rows,
        |row| row.invalid.clone(),
        &[
            ("Order", &|row| Cell::text(row.order.to_string())),
            ("data set / cache", &|row| Cell::Number(row.factor)),
            ("data set MiB", &|row| Cell::Number((data_set(row.factor) * 10.0).round() / 10.0)),
            ("passes", &|row| row.later.of(|a| a.passes as f64)),
            ("hits %", &|row| row.later.of(PassAccount::hit_percent)),
            ("MiB/s", &|row| row.later.of(|a| a.rate() / MIB)),
            ("from memory %", &|row| row.later.known("unknown", PassAccount::memory_percent)),
            ("from the disk %", &|row| row.later.known("unknown", PassAccount::disk_percent)),
            ("waited for the storage %", &|row| row.later.of(PassAccount::waited_percent)),
            ("spared %", &|row| row.later.of(PassAccount::spared_percent)),
            ("storage bytes per client byte", &|row| row.later.of(PassAccount::amplification)),
            ("fetched again in all passes MiB", &|row| row.mib(|condition| condition.again)),
            ("read ahead, not read %", &|row| {
                row.later.known("nothing was fetched ahead", PassAccount::ahead_wasted_percent)
            }),
            ("evicted in all passes MiB", &|row| row.mib(|condition| condition.evicted)),
        ],
    )
    .noted([
        format!(
            "A later pass over the data set, through a cache of {:.0} MiB that had one pass before; short ones are repeated. zipf: \
             as many draws as there are files, theta {}; the popular files are the same for all.",
            plan.cache_bytes as f64 / MIB,
            plan.args.theta
        ),
        "Spared: bytes that clients read and the storage did not give. Hits count also what one client has fetched for the \
         next a moment before; the plot is of what is spared."
            .to_owned(),
        "Fetched again: bytes from the storage, from the first pass on, beyond those that were different from each other and \
         beyond those that were read ahead and that nobody read."
            .to_owned(),
    ])
}

/// `spared`: of the rows that may be believed.
fn cliff(draft: &mut ResultBuilder, order: OrderName, spared: &[(f64, f64)]) {
    let (Some(first), Some(last)) = (spared.first(), spared.last()) else { return };
    match curve::cliff(spared) {
        Some(cliff) => draft.verdict(format!(
            "{order}: the eviction cliff is between {} and {} times the cache: of the bytes read, the storage is spared {:.0} % before it and {:.0} % behind it",
            cliff.from.0, cliff.to.0, cliff.from.1, cliff.to.1
        )),
        None if spared.len() > 1 => draft.verdict(format!(
            "{order}: no eviction cliff from {} to {} times the cache: the storage is spared {:.0} and {:.0} % of the bytes",
            first.0, last.0, first.1, last.1
        )),
        None => {}
    }
}
