//! A result with everything in it: all kinds of cells, findings and plots, an invalid row, published values, texts
//! that try to be markup. Made from a seed; the numbers are plausible and mean nothing.

use std::collections::BTreeMap;

use bench_report::fit;
use bench_report::histogram::Histogram;
use bench_report::model::{
    AnswerLine, AnswerPart, Axis, Better, Cell, Finding, Measure, Plot, PlotKind, Point, ResultFile, SCHEMA,
    Series, Severity, Table, TableRow,
};
use bench_report::published::PUBLISHED;
use bench_report::summary::{estimate, median, point};
use relay::SplitMix;
use serde_json::json;

/// Must appear as text and never as a tag.
pub const HOSTILE: &str =
    "</title><script>document.title='broken'</script><img src=http://tracker.invalid/x.png>";

const RTTS_MS: [f64; 4] = [1.9, 69.5, 194.0, 221.0];
const REPETITIONS: u32 = 8;

/// Around `mean`, within 8 %.
fn repeat(random: &mut SplitMix, mean: f64) -> Vec<f64> {
    (0..REPETITIONS).map(|_| mean * (0.92 + 0.16 * (random.unit() + random.unit()) / 2.0)).collect()
}

/// Direct, cold, warm: a name and the repetitions at each distance.
type Runs = [(&'static str, Vec<Vec<f64>>); 3];

pub fn result() -> ResultFile {
    let mut random = SplitMix::new(20260102);
    let mut of =
        |seconds: fn(f64) -> f64| RTTS_MS.iter().map(|rtt| repeat(&mut random, seconds(*rtt))).collect();
    let runs: Runs = [("direct", of(|rtt| 5.3 + 0.034 * rtt)), ("cold", of(|_| 4.4)), ("warm", of(|_| 3.1))];
    ResultFile {
        schema: SCHEMA,
        experiment: "render".to_owned(),
        title: "A render farm and its storage, at four distances".to_owned(),
        preset: "modern".to_owned(),
        started: "2026-01-02T03:04:05Z".to_owned(),
        seconds: 754.2,
        command: ["forebay", "bench", "render", "--scale", "small", "--target", "nfs://nas/a b"]
            .map(str::to_owned)
            .into(),
        parameters: BTreeMap::from([
            ("nodes".to_owned(), json!(24)),
            ("file_bytes".to_owned(), json!(8388608)),
            ("rtt_ms".to_owned(), json!(RTTS_MS)),
            ("stagger_seconds".to_owned(), json!(0.0)),
            ("target".to_owned(), json!(HOSTILE)),
        ]),
        seed: 20260102,
        fingerprint: BTreeMap::from([
            ("cpu".to_owned(), "2 cores, Xeon at 2.1 GHz".to_owned()),
            ("kernel".to_owned(), "6.1.0".to_owned()),
            ("forebay".to_owned(), "0.1.0".to_owned()),
            ("ceiling, memory target".to_owned(), "11.3 GiB/s".to_owned()),
        ]),
        tables: vec![results(&runs), PUBLISHED.vfxt.results.table(), PUBLISHED.azure.sfmw.table()],
        plots: vec![against_distance(&runs), bars(&runs), over_time(&mut random), sizes(&mut random)],
        measures: measures(&runs),
        histograms: histograms(&mut random),
        findings: findings(&runs),
        answer: answer(&runs),
        noise: None,
    }
}

fn answer(runs: &Runs) -> Vec<AnswerLine> {
    let part = |(name, at): &(&str, Vec<Vec<f64>>)| AnswerPart::new(*name, estimate(&at[3]), "s");
    vec![
        AnswerLine::one("round trip", Cell::Number(221.0), "ms"),
        AnswerLine::new("time of the job", runs.iter().map(part).collect()),
        AnswerLine::one("bottleneck", Cell::text(HOSTILE), ""),
        AnswerLine::one("cost of each TB read", Cell::missing("no --prices"), "USD"),
    ]
}

fn results(runs: &Runs) -> Table {
    let columns =
        ["Profile", "RTT ms", "n", "Direct (s)", "Cold (s)", "Warm (s)", "x warm", "origin read", "calls"];
    let names = ["NFS East US", "NFS West US", "NFS West India", "NFS Southeast Asia"];
    let mut rows = Vec::new();
    for (i, (name, rtt)) in names.iter().zip(RTTS_MS).enumerate() {
        let times = runs.each_ref().map(|(_, all)| &all[i]);
        let speed_up = median(times[0]).unwrap() / median(times[2]).unwrap();
        let mut cells = vec![Cell::text(*name), Cell::Number(rtt), Cell::Count(u64::from(REPETITIONS))];
        cells.extend(times.map(|t| estimate(t)));
        cells.extend([Cell::Number(speed_up), Cell::Bytes(8388608 + 4096 * i as u64), Cell::Count(12345)]);
        rows.push(TableRow::new(cells));
    }
    rows[2].invalid = vec!["the cache was not cold: the origin sent 3.1 MiB of 8.0 MiB".to_owned()];
    rows[3].cells[8] = Cell::missing("the origin does not count calls");
    let mut table = Table::new("Render: 24 nodes, one frame each", columns, rows);
    table.notes.push(
        "Makespan of all frames. Published with 500 nodes and another scene; compare shapes only.".to_owned(),
    );
    table
}

fn against_distance(runs: &Runs) -> Plot {
    let ours = runs.iter().map(|(name, all)| {
        Series::ours(*name, RTTS_MS.iter().zip(all).filter_map(|(rtt, values)| point(*rtt, values)).collect())
    });
    let direct = RTTS_MS.iter().zip(&runs[0].1).filter_map(|(rtt, values)| Some((*rtt, median(values)?)));
    let line = fit::line(&direct.collect::<Vec<_>>()).unwrap();
    let fitted = [0.0, 250.0].map(|rtt| Point::at(rtt, line.predict(rtt)));
    let fitted = Series::model("direct, fitted", fitted.into());
    // Scaled so that both have one size at the nearest distance.
    let theirs = PUBLISHED.vfxt.series().into_iter().map(|series| Series {
        points: series.points.iter().map(|p| Point::at(p.x, p.y / 90.0)).collect(),
        name: format!("{} / 90", series.name),
        ..series
    });
    Plot {
        title: "Time against distance".to_owned(),
        x: Axis::linear("round trip (ms)"),
        y: Axis::linear("24 frames (s)"),
        kind: PlotKind::Lines,
        series: ours.chain([fitted]).chain(theirs).collect(),
    }
}

fn bars(runs: &Runs) -> Plot {
    let series = runs.iter().map(|(name, all)| {
        Series::ours(
            *name,
            all.iter().enumerate().filter_map(|(i, values)| point(i as f64, values)).collect(),
        )
    });
    Plot {
        title: "Direct, cold and warm in each region".to_owned(),
        x: Axis::named("", RTTS_MS.iter().filter_map(|rtt| PUBLISHED.vfxt.place(*rtt))),
        y: Axis::linear("24 frames (s)"),
        kind: PlotKind::Bars,
        series: series.collect(),
    }
}

fn over_time(random: &mut SplitMix) -> Plot {
    let mut curve = |name: &str, level: f64| {
        let points = (0..60).map(|s| {
            let s = f64::from(s);
            Point::at(s, level * (1.0 - (-s / 6.0).exp()) * (0.9 + 0.2 * random.unit()))
        });
        Series::ours(name, points.collect())
    };
    Plot {
        title: "Throughput while the cache fills".to_owned(),
        x: Axis::linear("time (s)"),
        y: Axis::linear("client reads (MiB/s)"),
        kind: PlotKind::Steps,
        series: vec![curve("through the tier", 410.0), curve("direct", 120.0)],
    }
}

fn sizes(random: &mut SplitMix) -> Plot {
    let ours = (0..10).map(|i| {
        let mib = f64::from(1u32 << i);
        point(mib, &repeat(random, 260.0 * mib / (mib + 3.0))).unwrap()
    });
    let mut series = vec![Series::ours("tier, SFMW", ours.collect())];
    series.extend(PUBLISHED.azure.series("SFMW"));
    Plot {
        title: "Writers of one file, by size".to_owned(),
        x: Axis::log("MiB of each process"),
        y: Axis::log("all writers (MiB/s)"),
        kind: PlotKind::Lines,
        series,
    }
}

fn measures(runs: &Runs) -> Vec<Measure> {
    let all = runs.iter().flat_map(|(name, all)| {
        let measure = move |(rtt, values): (&f64, &Vec<f64>)| {
            Measure::new(format!("{name}, rtt {rtt} ms"), "s", Better::Lower, values.clone())
        };
        RTTS_MS.iter().zip(all).map(measure)
    });
    let rising = (0..8).map(|i| 300.0 + 9.0 * f64::from(i)).collect();
    let drifting = Measure::new("tier memory", "MiB", Better::Lower, rising);
    all.chain([drifting]).collect()
}

fn histograms(random: &mut SplitMix) -> Vec<bench_report::model::NamedHistogram> {
    let mut of = |name: &str, microseconds: f64, samples: u32| {
        let mut histogram = Histogram::new();
        for _ in 0..samples {
            let tail = (1.0 - random.unit()).powf(-0.4);
            histogram.record_microseconds((microseconds * tail) as u64, 1);
        }
        histogram.to_named(name)
    };
    vec![of("read, warm", 310.0, 20_000), of("read, direct", 71_000.0, 3_000), of("write", 900.0, 40)]
}

fn findings(runs: &Runs) -> Vec<Finding> {
    let points: Vec<(f64, f64)> =
        RTTS_MS.iter().zip(&runs[0].1).map(|(rtt, values)| (rtt / 1000.0, median(values).unwrap())).collect();
    let line = fit::line(&points).unwrap();
    let (low, high) = line.slope.interval.unwrap();
    vec![
        Finding::verdict(format!(
            "distance: {:.0} serial round trips a job [{low:.0}, {high:.0}], R\u{b2} {:.3}",
            line.slope.value, line.r2
        )),
        Finding::verdict(
            "limited by: WAN RTT (61 % of the time are round trips; origin 12 %; client CPU 9 %)",
        ),
        Finding::verdict("the tier: 4.1 times as fast when warm at 221 ms, break-even below 1 ms"),
        Finding::new(Severity::Note, "3 repetitions were warm-up and are not counted"),
        Finding::warning(format!("target: {HOSTILE}")),
    ]
}
