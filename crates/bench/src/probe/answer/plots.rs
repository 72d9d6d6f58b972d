//! The probe's plots: time over distance, what is left beside the lines, throughput over streams.

use std::time::Duration;

use bench_report::{Axis, Plot, PlotKind, Point, Series, point};

use super::{ProbeAnswer, in_mib, in_ms, ms, place};

pub fn of_server(answer: &ProbeAnswer) -> Vec<Plot> {
    let mut plots = vec![times(answer), residuals(answer)];
    if !answer.measured.streams.is_empty() {
        plots.push(streams(answer));
    }
    plots
}

fn times(answer: &ProbeAnswer) -> Plot {
    let series = answer.measured.timed.iter().map(|timed| {
        let at = |(added, times): (&Duration, &Vec<f64>)| {
            point((added.as_secs_f64() + answer.rtt_here) * 1e3, &in_ms(times))
        };
        let points = answer.config.delays.iter().zip(&timed.far).filter_map(at).collect();
        Series::ours(timed.operation.to_string(), points)
    });
    let (x, y) = (Axis::linear("Round trip (ms)"), Axis::linear("Time (ms)"));
    Plot::new(PlotKind::Lines, "Time of each operation over the round trip", x, y, series)
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
    let (x, y) = (Axis::linear("Added round trip (ms)"), Axis::linear("Measured less fitted (ms)"));
    Plot::new(PlotKind::Lines, "What the lines leave unexplained", x, y, series)
}

fn streams(answer: &ProbeAnswer) -> Plot {
    let series = answer.places().into_iter().map(|added| {
        let rates = answer.rates(added).into_iter();
        let points = rates.filter_map(|rate| point(rate.streams as f64, &in_mib(&rate.bytes_per_second)));
        Series::ours(place(added), points.collect())
    });
    let (x, y) = (Axis::log("Streams"), Axis::linear("Read (MiB/s)"));
    Plot::new(PlotKind::Lines, "Throughput over parallel streams", x, y, series)
}
