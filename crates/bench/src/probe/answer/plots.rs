//! The probe's plots: time over distance, what is left beside the lines, throughput over streams.

use std::time::Duration;

use bench_report::model::{Axis, Plot, PlotKind, Point, Series};
use bench_report::summary::point;

use super::{ProbeAnswer, in_mib, in_ms, ms, place};

pub fn of_server(answer: &ProbeAnswer) -> Vec<Plot> {
    let mut plots = vec![times(answer), residuals(answer)];
    if !answer.measured.streams.is_empty() {
        plots.push(streams(answer));
    }
    plots
}

fn plot(title: &str, x: Axis, y: &str, series: impl Iterator<Item = Series>) -> Plot {
    let (title, y, series) = (title.to_owned(), Axis::linear(y), series.collect());
    Plot { title, x, y, kind: PlotKind::Lines, series }
}

fn times(answer: &ProbeAnswer) -> Plot {
    let series = answer.measured.timed.iter().map(|timed| {
        let at = |(added, times): (&Duration, &Vec<f64>)| {
            point((added.as_secs_f64() + answer.rtt_here) * 1e3, &in_ms(times))
        };
        let points = answer.config.delays.iter().zip(&timed.far).filter_map(at).collect();
        Series::ours(timed.operation.to_string(), points)
    });
    let x = Axis::linear("Round trip (ms)");
    plot("Time of each operation over the round trip", x, "Time (ms)", series)
}

fn residuals(answer: &ProbeAnswer) -> Plot {
    let series = answer.operations.iter().filter_map(|understood| {
        let line = understood.line?;
        let left = |(added, seconds): (&Duration, &f64)| {
            Point::at(ms(*added), (seconds - line.predict(added.as_secs_f64())) * 1e3)
        };
        let points = answer.config.delays.iter().zip(&understood.far).map(left).collect();
        Some(Series::ours(understood.operation.to_string(), points))
    });
    let x = Axis::linear("Added round trip (ms)");
    plot("What the lines leave unexplained", x, "Measured less fitted (ms)", series)
}

fn streams(answer: &ProbeAnswer) -> Plot {
    let series = answer.places().into_iter().map(|added| {
        let rates = answer.rates(added).into_iter();
        let points = rates.filter_map(|rate| point(rate.streams as f64, &in_mib(&rate.bytes_per_second)));
        Series::ours(place(added), points.collect())
    });
    plot("Throughput over parallel streams", Axis::log("Streams"), "Read (MiB/s)", series)
}
