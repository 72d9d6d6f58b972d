//! Draws what the simulation says: bytes that a cold reader has had, against time, at four distances.
//! `cargo run -p cache --example readahead_at_distance -- docs/design/readahead.svg` writes the drawing and prints the
//! table.

use std::time::Duration;

use bench_report::model::{Axis, Plot, PlotKind, Point, Series};
use bench_report::plot::{Width, svg};

#[path = "../tests/line/mod.rs"]
mod line;

use line::{Client, Line, run};

const GIB: u64 = 1 << 30;
/// A drawing of its own needs the style that the page has otherwise.
const STYLE: &str = "<style>svg{font:13px sans-serif;background:#fff}text{fill:#333}.grid{stroke:#ddd}\
    .axis{fill:#333}.line{fill:none;stroke-width:2}.c0{stroke:#2563eb}.c1{stroke:#d97706}.c2{stroke:#059669}\
    .c3{stroke:#be123c}.model{stroke-width:1;stroke:#888}</style>";

fn main() -> std::io::Result<()> {
    println!("| Round trip | 1 GiB cold, 1 Gbit/s | MB/s after 2 s | origin bytes / file | most under way |");
    println!("|---|---|---|---|---|");
    let mut series = Vec::new();
    for rtt in [1.9, 69.5, 194.0, 221.0] {
        let client = Client { file: 0, block: 128 << 10, think: Duration::from_micros(50) };
        let cold = run(Line::new(rtt, 1000.0), &[client], GIB, 256 << 20);
        println!(
            "| {rtt} ms | {:.2} s | {:.1} | {:.3} | {} MiB |",
            cold.seconds,
            cold.rate_after(2.0) / 1e6,
            cold.origin_bytes as f64 / GIB as f64,
            cold.peak >> 20
        );
        let every = cold.progress.len() / 200;
        let points = cold.progress.iter().step_by(every.max(1));
        let points = points.map(|(t, bytes)| Point::at(*t, *bytes as f64 / 1e6));
        let points = points.collect();
        series.push(Series { name: format!("{rtt} ms"), points, published: false, model: true });
    }
    let Some(path) = std::env::args().nth(1) else { return Ok(()) };
    let axis = |label: &str| Axis { label: label.into(), ..Axis::default() };
    let title = "One cold reader of 1 GiB on a line of 1 Gbit/s (simulated)";
    let plot =
        Plot { title: title.into(), x: axis("seconds"), y: axis("MB read"), kind: PlotKind::Lines, series };
    let drawing = svg(&plot, Width::Whole);
    let drawing = drawing.replacen("<svg ", "<svg xmlns=\"http://www.w3.org/2000/svg\" ", 1);
    let head = drawing.find('>').map_or(0, |at| at + 1);
    std::fs::write(path, format!("{}{STYLE}{}\n", &drawing[..head], &drawing[head..]))
}
