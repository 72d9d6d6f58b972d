//! The probe's plots: time over distance, what is left beside the lines, throughput over streams.

use bench_report::model::{Axis, Plot, PlotKind, Point, Series};
use bench_report::summary::point;

use super::{ProbeAnswer, mib, place};

pub fn of_server(answer: &ProbeAnswer) -> Vec<Plot> {
    let mut plots = vec![times(answer), residuals(answer)];
    if !answer.measured.streams.is_empty() {
        plots.push(streams(answer));
    }
    plots
}

fn times(answer: &ProbeAnswer) -> Plot {
    let series = answer.measured.timed.iter().map(|timed| {
        let at = |(added, times): (&std::time::Duration, &Vec<f64>)| {
            let times: Vec<f64> = times.iter().map(|s| s * 1e3).collect();
            point((added.as_secs_f64() + answer.rtt_here) * 1e3, &times)
        };
        let points = answer.config.delays.iter().zip(&timed.far).filter_map(at).collect();
        Series::ours(timed.operation.to_string(), points)
    });
    Plot {
        title: "Time of each operation over the round trip".to_owned(),
        x: Axis::linear("Round trip (ms)"),
        y: Axis::linear("Time (ms)"),
        kind: PlotKind::Lines,
        series: series.collect(),
    }
}

fn residuals(answer: &ProbeAnswer) -> Plot {
    let series = answer.operations.iter().filter_map(|understood| {
        let line = understood.line?;
        let left = |(added, seconds): (&std::time::Duration, &f64)| {
            let x = added.as_secs_f64();
            Point::at(x * 1e3, (seconds - line.predict(x)) * 1e3)
        };
        let points = answer.config.delays.iter().zip(&understood.far).map(left).collect();
        Some(Series::ours(understood.operation.to_string(), points))
    });
    Plot {
        title: "What the lines leave unexplained".to_owned(),
        x: Axis::linear("Added round trip (ms)"),
        y: Axis::linear("Measured less fitted (ms)"),
        kind: PlotKind::Lines,
        series: series.collect(),
    }
}

fn streams(answer: &ProbeAnswer) -> Plot {
    let places = std::iter::once(None).chain(answer.farthest().map(Some));
    let series = places.map(|added| {
        let points = answer.rates(added).into_iter().filter_map(|rate| {
            let rates: Vec<f64> = rate.bytes_per_second.iter().copied().map(mib).collect();
            point(rate.streams as f64, &rates)
        });
        Series::ours(place(added), points.collect())
    });
    Plot {
        title: "Throughput over parallel streams".to_owned(),
        x: Axis::log("Streams"),
        y: Axis::linear("Read (MiB/s)"),
        kind: PlotKind::Lines,
        series: series.collect(),
    }
}
