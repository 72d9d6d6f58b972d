//! From accounts to what a reader gets: how a cache gets warm, where the bytes came from, what the storage was asked, how
//! large a cache must be, and the cliff.

use bench_report::model::{Axis, Better, Cell, Measure, Plot, PlotKind, Point, Series, Table, TableRow};
use bench_report::sanity;
use bench_report::summary::{estimate, median, point};

use super::account::PassAccount;
use super::curve::{self, ServedInterval};
use super::tier_under_test::TierUnderTest;
use super::{
    OrderName, SweepCondition, SweepPlan, SweepRuns, WARM_UP, WARM_UP_PASSES, WarmUp, WorkingSetArgs,
};
use crate::budget::TimeCut;
use crate::fixture::LOOK;
use crate::results::ResultBuilder;
use crate::worker_phases::MIB;

/// Percent of hits of which the time is told.
const REACHED: [f64; 3] = [50.0, 90.0, 99.0];

pub fn fill(
    draft: &mut ResultBuilder,
    plan: &SweepPlan,
    args: &WorkingSetArgs,
    tier_under_test: &TierUnderTest,
    measured: &SweepRuns,
) {
    parameters(draft, plan, args, tier_under_test);
    TimeCut::tell(measured.cut, draft, "repetitions");
    if args.tier.is_some() && !args.may_evict {
        draft.note("no sweep: it would evict what the tier has cached; --may-evict allows that");
    }
    let ups = &measured.warm_ups;
    let verdicts = WarmUpVerdicts::of(plan, ups);
    let curves: Vec<Vec<ServedInterval>> = ups.iter().map(|up| curve::moments(&up.looks)).collect();
    time_to_warm(draft, plan, &curves, &verdicts.cold);
    draft.file.tables.push(sources(ups, &verdicts));
    draft.file.tables.push(storage(plan, ups, &verdicts));
    if !measured.sweeps.is_empty() && !plan.factors.is_empty() {
        sweep(draft, plan, measured);
    }
    if let Some(warning) = tier_under_test.line().and_then(|line| line.warning()) {
        draft.warning(warning);
    }
    if ups.iter().any(|up| up.warm.disk.is_none()) {
        draft
            .warning("memory or disk is unknown: the tier does not tell what its process had its disks read");
    }
}

fn parameters(
    draft: &mut ResultBuilder,
    plan: &SweepPlan,
    args: &WorkingSetArgs,
    tier_under_test: &TierUnderTest,
) {
    draft.parameter("cache_bytes", plan.cache_bytes);
    draft.parameter("file_bytes", plan.file_bytes);
    draft.parameter("clients", plan.fleet.clients);
    draft.parameter("workers", plan.fleet.workers);
    draft.parameter("factors", plan.factors.clone());
    draft.parameter("orders", plan.orders.iter().map(|order| order.name()).collect::<Vec<_>>());
    draft.parameter("zipf_theta", plan.theta);
    draft.parameter("running_tier", args.tier.is_some());
    if tier_under_test.line().is_some() {
        draft.parameter("rtt_ms", args.rtt.as_secs_f64() * 1000.0);
        draft.parameter("rate_bytes_per_second", args.rate.map_or(0, |rate| rate.bytes_per_second()));
    }
}

fn row(cells: Vec<Cell>, invalid: &[String]) -> TableRow {
    TableRow { invalid: invalid.to_vec(), ..TableRow::new(cells) }
}

fn unique(mut reasons: Vec<String>) -> Vec<String> {
    reasons.sort();
    reasons.dedup();
    reasons
}

/// The estimate of a value that is known in all repetitions.
fn known(values: impl Iterator<Item = Option<f64>>, why_not: &str) -> Cell {
    let values: Option<Vec<f64>> = values.collect();
    values.map_or_else(|| Cell::missing(why_not), |values| estimate(&values))
}

/// Why the states of getting warm were not what their names say.
struct WarmUpVerdicts {
    cold: Vec<String>,
    warm: Vec<String>,
    from_disk: Vec<String>,
}

impl WarmUpVerdicts {
    fn of(plan: &SweepPlan, ups: &[WarmUp]) -> WarmUpVerdicts {
        let layout = plan.layout(WARM_UP);
        let all = layout.total_bytes();
        let (mut cold, mut warm, mut from_disk) = (Vec::new(), Vec::new(), Vec::new());
        for up in ups {
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
            cold.extend(checked(&up.cold));
            cold.extend(up.cold.not_cold(all));
            warm.extend(checked(&up.warm));
            warm.extend(up.warm.not_warm(all, 0));
            if let Some(account) = &up.from_disk {
                from_disk.extend(checked(account));
                from_disk.extend(account.not_warm(all, 0));
                from_disk.extend(account.not_from_disk(all));
            }
        }
        WarmUpVerdicts { cold: unique(cold), warm: unique(warm), from_disk: unique(from_disk) }
    }
}

fn time_to_warm(
    draft: &mut ResultBuilder,
    plan: &SweepPlan,
    curves: &[Vec<ServedInterval>],
    invalid: &[String],
) {
    let all = plan.layout(WARM_UP).total_bytes() as f64;
    let resident = |bytes: u64| (bytes as f64 / all * 100.0).min(100.0);
    let mut rows = Vec::new();
    for percent in REACHED {
        let times: Vec<f64> = curves.iter().filter_map(|curve| curve::time_to(curve, percent)).collect();
        let at = |time: f64, curve: &Vec<ServedInterval>| {
            let before = curve.iter().rev().find(|moment| moment.at <= time + 1e-9);
            resident(before.map_or(0, |moment| moment.resident))
        };
        let residents = curves.iter().filter_map(|c| curve::time_to(c, percent).map(|time| at(time, c)));
        let reached = times.len() == curves.len() && !times.is_empty();
        let cell = |values: Vec<f64>| {
            if reached { estimate(&values) } else { Cell::missing("not reached in every repetition") }
        };
        rows.push(row(vec![Cell::Number(percent), cell(times.clone()), cell(residents.collect())], invalid));
        if reached {
            let name = format!("time to {percent} % hits");
            draft.measure(Measure::new(name, "s", Better::Lower, times.clone()), invalid);
        }
        if let (true, true, Some(time)) = (reached, percent == 90.0, median(&times)) {
            draft.verdict(format!("an empty cache serves 90 % from what it has after {time:.1} s"));
        }
    }
    let columns = ["hits %", "reached after s", "data set in the cache then %"];
    draft.file.tables.push(Table::new("Time to warm", columns, rows).noted([
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
    let Some(first) = curves.first() else { return };
    let line = |name: &str, value: &dyn Fn(&ServedInterval) -> f64| {
        Series::ours(name, first.iter().map(|moment| Point::at(moment.at, value(moment))).collect())
    };
    let plot = |title: &str, y: &str, series: Vec<Series>| Plot {
        title: title.to_owned(),
        x: Axis::linear("seconds after the first byte"),
        y: Axis::linear(y),
        kind: PlotKind::Lines,
        series,
    };
    let percents = vec![
        line("hits", &|moment| moment.hit_percent),
        line("data set in the cache", &|moment| resident(moment.resident)),
    ];
    draft.file.plots.push(plot("How the cache gets warm, first repetition", "%", percents));
    let rate = vec![line("all clients", &|moment| moment.rate / MIB)];
    draft.file.plots.push(plot("What is served meanwhile, first repetition", "MiB/s", rate));
    let against = first.iter().map(|moment| Point::at(resident(moment.resident), moment.hit_percent));
    draft.file.plots.push(Plot {
        x: Axis::linear("data set in the cache (%)"),
        ..plot(
            "Hits against what is there, first repetition",
            "hits (%)",
            vec![Series::ours("an empty cache gets warm", against.collect())],
        )
    });
}

/// Name, accounts of all repetitions, and why they must not be believed.
type State<'a> = (&'static str, Vec<&'a PassAccount>, &'a [String]);

fn states<'a>(ups: &'a [WarmUp], verdicts: &'a WarmUpVerdicts) -> Vec<State<'a>> {
    let mut states = vec![
        ("getting warm", ups.iter().map(|up| &up.cold).collect(), &verdicts.cold[..]),
        ("warm", ups.iter().map(|up| &up.warm).collect(), &verdicts.warm[..]),
    ];
    let from_disk: Vec<&PassAccount> = ups.iter().filter_map(|up| up.from_disk.as_ref()).collect();
    if !from_disk.is_empty() {
        states.push(("warm, pages dropped", from_disk, &verdicts.from_disk[..]));
    }
    states
}

/// Memory, disk or storage.
fn sources(ups: &[WarmUp], verdicts: &WarmUpVerdicts) -> Table {
    let rows = states(ups, verdicts).into_iter().map(|(name, accounts, invalid)| {
        let of = |value: fn(&PassAccount) -> f64| {
            estimate(&accounts.iter().map(|account| value(account)).collect::<Vec<_>>())
        };
        let maybe = |value: fn(&PassAccount) -> Option<f64>| {
            known(accounts.iter().map(|account| value(account)), "unknown")
        };
        let cells = vec![
            Cell::text(name),
            of(|a| a.served as f64 / MIB),
            of(PassAccount::hit_percent),
            maybe(PassAccount::memory_percent),
            maybe(PassAccount::disk_percent),
            of(PassAccount::waited_percent),
        ];
        row(cells, invalid)
    });
    let columns =
        ["State", "served MiB", "hits %", "from memory %", "from the disk %", "waited for the storage %"];
    Table::new("Where the bytes came from", columns, rows.collect()).noted([
        "Disk: what the tier's process had block devices read (read_bytes of /proc/PID/io), at most the hits. The kernel reads \
         ahead, so that this is an upper bound; the rest of the hits came from the page cache.",
    ])
}

/// What the storage was asked for.
fn storage(plan: &SweepPlan, ups: &[WarmUp], verdicts: &WarmUpVerdicts) -> Table {
    let all = plan.layout(WARM_UP).total_bytes();
    let rows = states(ups, verdicts).into_iter().map(|(name, accounts, invalid)| {
        let of = |value: &dyn Fn(&PassAccount) -> f64| {
            estimate(&accounts.iter().map(|account| value(account)).collect::<Vec<_>>())
        };
        let calls = |kind: &'static str| of(&move |a| a.call(kind) as f64);
        let named = ["read", "getattr", "lookup", "readdir"];
        let cells = vec![
            Cell::text(name),
            of(&|a| a.origin_bytes as f64 / MIB),
            of(&|a| a.duplicate(all) as f64 / MIB),
            of(&PassAccount::amplification),
            calls("read"),
            calls("getattr"),
            calls("lookup"),
            calls("readdir"),
            of(&|a| (a.all_calls() - named.iter().map(|kind| a.call(kind)).sum::<u64>()) as f64),
            known(accounts.iter().map(|a| a.coalescing()), "nothing was read"),
            of(&|a| a.ahead as f64 / MIB),
            of(&|a| a.ahead_used as f64 / MIB),
            of(&|a| a.ahead_evicted as f64 / MIB),
            known(accounts.iter().map(|a| a.ahead_wasted_percent()), "nothing was fetched ahead"),
            of(&PassAccount::revalidations_per_open),
        ];
        row(cells, invalid)
    });
    let columns = [
        "State",
        "from the storage MiB",
        "thereof twice MiB",
        "amplification",
        "READ",
        "GETATTR",
        "LOOKUP",
        "READDIR",
        "other calls",
        "coalescing",
        "read ahead MiB",
        "of that read later MiB",
        "evicted unread MiB",
        "not read so far %",
        "revalidations per open",
    ];
    Table::new("What the storage was asked for", columns, rows.collect()).noted([
        "From the tier's counters. Twice: bytes beyond the data set's and beyond what was read \
         ahead for nobody, such as files beside the data set. Amplification: bytes from the storage for each byte that a \
         client read. Coalescing: reads that waited, for each READ. Revalidations: GETATTR calls for each file that a client \
         opened. Nothing is written through this version's tier, so that there is no write amplification.",
    ])
}

/// Conditions of all repetitions with this size and order.
fn of_condition(measured: &SweepRuns, factor: f64, order: OrderName) -> Vec<&SweepCondition> {
    let all = measured.sweeps.iter().flatten();
    all.filter(|condition| condition.factor == factor && condition.order == order).collect()
}

/// Why the row must not be believed.
pub fn unproved(plan: &SweepPlan, conditions: &[&SweepCondition]) -> Vec<String> {
    let mut reasons = Vec::new();
    for condition in conditions {
        let layout = plan.layout(condition.factor);
        let (first, later, all) = (&condition.first, &condition.later, layout.total_bytes());
        let evicted = condition.evicted;
        let first_reasons = first.contradictions(plan.demanded(&layout, first.passes));
        reasons.extend(first_reasons.into_iter().map(|why| format!("first pass: {why}")));
        reasons.extend(later.contradictions(plan.demanded(&layout, later.passes)));
        reasons.extend(first.not_cold(condition.first_unique));
        if evicted == 0 {
            reasons.extend(later.not_warm(condition.unique, all.saturating_sub(condition.first_unique)));
        }
        if evicted == 0 && condition.first_unique > plan.cache_bytes {
            let asked = condition.first_unique;
            reasons.push(format!(
                "{asked} bytes were read, the cache takes {}, and nothing left",
                plan.cache_bytes
            ));
        }
        reasons.extend(sanity::too_short(later.seconds));
    }
    unique(reasons)
}

fn sweep(draft: &mut ResultBuilder, plan: &SweepPlan, measured: &SweepRuns) {
    let (mut rows, mut spared_lines, mut rate_lines) = (Vec::new(), Vec::new(), Vec::new());
    for order in &plan.orders {
        let (mut spared, mut believed, mut rates) = (Vec::new(), Vec::new(), Vec::new());
        for factor in &plan.factors {
            let conditions = of_condition(measured, *factor, *order);
            let invalid = unproved(plan, &conditions);
            let values = |value: &dyn Fn(&SweepCondition) -> f64| -> Vec<f64> {
                conditions.iter().map(|condition| value(condition)).collect()
            };
            rows.push(row(sweep_cells(plan, *factor, *order, &conditions), &invalid));
            let (hit, rate) = (values(&|c| c.later.hit_percent()), values(&|c| c.later.rate() / MIB));
            let kept = values(&|c| c.later.spared_percent());
            if invalid.is_empty() {
                believed.extend(median(&kept).map(|kept| (*factor, kept)));
                spared.extend(point(*factor, &kept));
                rates.extend(point(*factor, &rate));
            }
            let name = |what: &str| format!("{what}, {}, {factor} x cache", order.name());
            draft.measure(Measure::new(name("hits"), "%", Better::Higher, hit), &invalid);
            draft.measure(Measure::new(name("spared"), "%", Better::Higher, kept), &invalid);
            draft.measure(Measure::new(name("rate"), "MiB/s", Better::Higher, rate), &invalid);
        }
        cliff(draft, *order, &believed);
        spared_lines.push(Series::ours(order.name(), spared));
        rate_lines.push(Series::ours(order.name(), rates));
    }
    let unkept: u64 = measured.sweeps.iter().flatten().map(|c| c.first.unkept + c.later.unkept).sum();
    if unkept > 0 {
        draft.warning(format!(
            "in the sweep {:.1} MiB were passed on without being kept: the cache had no room that could be made",
            unkept as f64 / MIB
        ));
    }
    let columns = [
        "Order",
        "data set / cache",
        "data set MiB",
        "passes",
        "hits %",
        "MiB/s",
        "from memory %",
        "from the disk %",
        "waited for the storage %",
        "spared %",
        "storage bytes per client byte",
        "fetched again in all passes MiB",
        "read ahead, not read %",
        "evicted in all passes MiB",
    ];
    draft.file.tables.push(Table::new("How large a cache must be", columns, rows).noted([
        format!(
            "A later pass over the data set, through a cache of {:.0} MiB that had one pass before; short ones are repeated. zipf: \
             as many draws as there are files, theta {}; the popular files are the same for all.",
            plan.cache_bytes as f64 / MIB,
            plan.theta
        ),
        "Spared: bytes that clients read and the storage did not give. Hits count also what one client has fetched for the \
         next a moment before; the plot is of what is spared."
            .to_owned(),
        "Fetched again: bytes from the storage, from the first pass on, beyond those that were different from each other and \
         beyond those that were read ahead and that nobody read."
            .to_owned(),
    ]));
    let plot = |title: &str, y: &str, series: Vec<Series>| Plot {
        title: title.to_owned(),
        x: Axis::linear("data set / cache"),
        y: Axis::linear(y),
        kind: PlotKind::Lines,
        series,
    };
    let title = "Bytes that the storage is spared, against the size of the data set";
    draft.file.plots.push(plot(title, "spared (% of bytes read)", spared_lines));
    draft.file.plots.push(plot("Rate against the size of the data set", "all clients (MiB/s)", rate_lines));
}

fn sweep_cells(plan: &SweepPlan, factor: f64, order: OrderName, conditions: &[&SweepCondition]) -> Vec<Cell> {
    let of = |value: &dyn Fn(&SweepCondition) -> f64| {
        estimate(&conditions.iter().map(|condition| value(condition)).collect::<Vec<_>>())
    };
    let maybe = |value: fn(&PassAccount) -> Option<f64>, why: &str| {
        known(conditions.iter().map(|condition| value(&condition.later)), why)
    };
    vec![
        Cell::text(order.name()),
        Cell::Number(factor),
        Cell::Number((plan.layout(factor).total_bytes() as f64 / MIB * 10.0).round() / 10.0),
        of(&|c| c.later.passes as f64),
        of(&|c| c.later.hit_percent()),
        of(&|c| c.later.rate() / MIB),
        maybe(PassAccount::memory_percent, "unknown"),
        maybe(PassAccount::disk_percent, "unknown"),
        of(&|c| c.later.waited_percent()),
        of(&|c| c.later.spared_percent()),
        of(&|c| c.later.amplification()),
        of(&|c| c.again as f64 / MIB),
        maybe(PassAccount::ahead_wasted_percent, "nothing was fetched ahead"),
        of(&|c| c.evicted as f64 / MIB),
    ]
}

/// `spared`: of the rows that may be believed.
fn cliff(draft: &mut ResultBuilder, order: OrderName, spared: &[(f64, f64)]) {
    let name = order.name();
    let (Some(first), Some(last)) = (spared.first(), spared.last()) else { return };
    match curve::cliff(spared) {
        Some(cliff) => draft.verdict(format!(
            "{name}: the eviction cliff is between {} and {} times the cache: of the bytes read, the storage is spared {:.0} % before it and {:.0} % behind it",
            cliff.from.0, cliff.to.0, cliff.from.1, cliff.to.1
        )),
        None if spared.len() > 1 => draft.verdict(format!(
            "{name}: no eviction cliff from {} to {} times the cache: the storage is spared {:.0} and {:.0} % of the bytes",
            first.0, last.0, first.1, last.1
        )),
        None => {}
    }
}
