//! What the knee and the open loops look like in a result.

use bench_report::format::number;
use bench_report::{Axis, Better, Cell, Plot, PlotKind, Series, Table, estimate, estimate_or, point};
use serde_json::json;

use super::{KneeArgs, KneeResult, Level};
use crate::{ResultBuilder, columns, limit};

/// An open loop that does less than this share of what it was offered is above what the target can do.
const KEPT_UP: f64 = 0.95;
const NOTHING: &str = "nothing was done";

/// `what`: the touches' name in the plural, as `objects`.
pub fn fill(draft: &mut ResultBuilder, args: &KneeArgs, found: &KneeResult, what: &str) {
    draft.parameter("knee_step_s", args.step.as_secs_f64());
    let percents: Vec<String> = args.open_percent.iter().map(f64::to_string).collect();
    draft.parameter("open_percent", percents.join(","));
    draft.parameter("arrivals", json!(args.arrivals));
    draft.file.tables.push(steps(found, what));
    if !found.open.is_empty() {
        draft.file.tables.push(open(found, what));
    }
    draft.file.plots.extend(plots(found, what));
    histograms(draft, found);
    tell(draft, found, what);
}

fn steps(found: &KneeResult, what: &str) -> Table {
    let rows: Vec<(usize, &Level)> = found.steps.iter().enumerate().collect();
    let knee = |at: usize| if found.reached && found.knee == at { "knee" } else { "" };
    let rate = format!("{what}/s");
    columns::table(
        "The knee: twice the workers each time",
        &rows,
        |(_, level)| reasons(level),
        &[
            ("Workers", &|(_, level)| Cell::Count(found.workers(level))),
            ("of each node", &|(_, level)| Cell::Count(level.step.workers.into())),
            (&rate, &|(_, level)| estimate(&level.rates)),
            ("MiB/s", &|(_, level)| estimate(&level.mib)),
            ("p50 (ms)", &|(_, level)| estimate_or(&level.service_p50, NOTHING)),
            ("p99 (ms)", &|(_, level)| level.service.milliseconds(99.0, "samples")),
            ("Knee", &|(at, _)| Cell::text(knee(*at))),
            ("n", &|(_, level)| Cell::Count(level.rates.len() as u64)),
        ],
    )
}

fn open(found: &KneeResult, what: &str) -> Table {
    let (due, done) = (format!("due {what}/s"), format!("done {what}/s"));
    columns::table(
        "Open loops at shares of the knee's rate",
        &found.open,
        reasons,
        &[
            ("% of the knee's rate", &|level| Cell::Number(level.percent)),
            (&due, &|level| Cell::Number((level.due * 100.0).round() / 100.0)),
            (&done, &|level| estimate(&level.rates)),
            ("service p50 (ms)", &|level| estimate_or(&level.service_p50, NOTHING)),
            ("service p99 (ms)", &|level| level.service.milliseconds(99.0, "samples")),
            ("response p50 (ms)", &|level| estimate_or(&level.response_p50, NOTHING)),
            ("response p99 (ms)", &|level| level.response.milliseconds(99.0, "samples")),
            ("bench late p99 (ms)", &|level| level.lateness.milliseconds(99.0, "samples")),
            ("n", &|level| Cell::Count(level.rates.len() as u64)),
        ],
    )
}

fn reasons(level: &Level) -> Vec<String> {
    limit::distinct(level.faults.clone())
}

fn plots(found: &KneeResult, what: &str) -> Vec<Plot> {
    let rates =
        found.steps.iter().filter_map(|level| point(found.workers(level) as f64, &level.rates)).collect();
    let (x, y) = (Axis::log("workers"), Axis::log(format!("{what}/s")));
    let closed = [Series::ours("closed loop", rates)];
    let mut plots = vec![Plot::new(PlotKind::Lines, "The knee: rate against workers", x, y, closed)];
    if !found.open.is_empty() {
        let of = |name, values: fn(&Level) -> &Vec<f64>| {
            let points = found.open.iter().filter_map(|level| point(level.percent, values(level)));
            Series::ours(name, points.collect())
        };
        let series = [of("response", |level| &level.response_p50), of("service", |level| &level.service_p50)];
        let (x, y) = (Axis::linear("% of the knee's rate"), Axis::log("ms"));
        let title = "Open loops: p50 against the share of the knee's rate";
        plots.push(Plot::new(PlotKind::Lines, title, x, y, series));
    }
    plots
}

fn histograms(draft: &mut ResultBuilder, found: &KneeResult) {
    for level in &found.steps {
        let name = format!("{} workers: touch", found.workers(level));
        draft.file.histograms.push(level.service.to_named(name));
    }
    for level in &found.open {
        let percent = level.percent;
        for (kind, histogram) in [("service", &level.service), ("response", &level.response)] {
            draft.file.histograms.push(histogram.to_named(format!("open loop at {percent} %: {kind}")));
        }
    }
}

fn tell(draft: &mut ResultBuilder, found: &KneeResult, what: &str) {
    let Some(knee) = found.steps.get(found.knee) else { return };
    let workers = found.workers(knee);
    let rate = knee.reading().rate;
    let invalid = reasons(knee);
    match found.steps.get(found.knee + 1).filter(|_| found.reached) {
        Some(next) => draft.verdict(format!(
            "the knee is at {workers} workers, {} {what}/s: twice as many bring {:+.0} % for {:.1} times the latency",
            number(rate),
            (next.reading().rate / rate.max(1e-9) - 1.0) * 100.0,
            next.reading().latency / knee.reading().latency.max(1e-9),
        )),
        None => draft.warning(format!(
            "no knee was found up to {workers} workers, {} {what}/s: more of them would do more",
            number(rate)
        )),
    }
    draft.measure("rate at the knee", "1/s", Better::Higher, knee.rates.clone(), &invalid);
    for level in &found.open {
        let name = format!("response p50 at {} % of the knee", level.percent);
        draft.measure(name, "ms", Better::Lower, level.response_p50.clone(), &reasons(level));
        let done = level.reading().rate;
        if done < level.due * KEPT_UP {
            draft.warning(format!(
                "at {} % of the knee's rate only {} of {} {what}/s were done: what was still waiting at the end is in no latency",
                level.percent,
                number(done),
                number(level.due)
            ));
        }
    }
}
