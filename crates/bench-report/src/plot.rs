//! Plots as SVG, by hand (`html/plot.html`): a plotting library draws fixed colours and fonts, and these follow the page's scheme, its
//! font and its printer. Colours and strokes are classes (`c0` to `c7`, `published`) that the page's style defines.
//!
//! Series are told apart by colour and by the shape of their points. Published ones are dashed and hollow; they take
//! the colours in the same order as ours, so that their direct column looks like our direct column, but not ours. A
//! model is a thin line without points, in the colours of what it models if they have the same order.

use askama::Template;

use crate::format;
use crate::model::{Plot, PlotKind, Point, Series};

mod scale;
mod slots;

use scale::AxisScale;
use slots::{DrawnBar, Slots};

/// The widths of half a page or a telephone, and of a whole page: the same height, so that text has one size.
#[derive(Clone, Copy, Debug, strum::Display, PartialEq, Eq)]
#[strum(serialize_all = "lowercase")]
pub enum Width {
    Half,
    Whole,
}

impl Width {
    /// In the drawing's own units, which are pixels at the size it is meant for.
    fn units(self) -> f64 {
        match self {
            Width::Half => 600.0,
            Width::Whole => 1140.0,
        }
    }
}

const HEIGHT: f64 = 370.0;
const TOP: f64 = 36.0;
/// Right of the drawing, half of a label at its end.
const MARGIN: f64 = 18.0;
const COLOURS: usize = 8;
/// Advance of a digit in the 13 px font of the ticks, generously.
const DIGIT: f64 = 7.6;
/// Height of a line of text below the x axis.
const LINE: f64 = 15.0;

#[derive(Template)]
#[template(path = "legend.html")]
struct PlotLegend<'a> {
    kind: PlotKind,
    series: Vec<(&'a Series, SeriesLook)>,
}

#[derive(Template)]
#[template(path = "plot.html")]
struct Drawing<'a> {
    plot: &'a Plot,
    width: Width,
    /// None if there is no point at all.
    frame: Option<PlotFrame>,
    bars: Vec<(String, DrawnBar)>,
    /// Each with its points, and whether these are marked.
    lines: Vec<(SeriesLook, Vec<PlotMark>, bool)>,
}

struct PlotFrame {
    left: f64,
    right: f64,
    bottom: f64,
    y: AxisScale,
    x: XAxis,
}

enum XAxis {
    Numbers(AxisScale),
    Names(Slots),
}

/// A point in pixels, and what it says when it is pointed at.
struct PlotMark {
    x: f64,
    y: f64,
    interval: Option<(f64, f64)>,
    tip: String,
}

/// How a series is told from the others.
struct SeriesLook {
    class: String,
    /// Place among those of its kind: ours, published, calculated.
    order: usize,
}

/// The drawing without title and legend.
pub fn svg(plot: &Plot, width: Width) -> String {
    let series: Vec<Series> = plot.series.iter().map(drawable).collect();
    let mut drawing = Drawing { plot, width, frame: None, bars: Vec::new(), lines: Vec::new() };
    if series.iter().any(|s| !s.points.is_empty()) {
        let frame = PlotFrame::of(plot, &series, width);
        match &frame.x {
            XAxis::Names(slots) if plot.kind == PlotKind::Bars => {
                drawing.bars = slots.bars(&series, &frame.y)
            }
            _ => drawing.lines = lines(plot.kind, &series, &frame),
        }
        drawing.frame = Some(frame);
    }
    drawing.to_string()
}

/// What the series look like, for the page: a list that wraps where it must.
pub fn legend(plot: &Plot) -> String {
    let looks = (0..plot.series.len()).map(|at| look(&plot.series, at));
    PlotLegend { kind: plot.kind, series: plot.series.iter().zip(looks).collect() }.to_string()
}

impl PlotFrame {
    fn of(plot: &Plot, series: &[Series], width: Width) -> PlotFrame {
        let ends = |p: &Point| p.interval.map_or([p.y; 3], |(low, high)| [p.y, low, high]);
        let ys: Vec<f64> = points(series).flat_map(ends).collect();
        let mut y = AxisScale::new(&ys, plot.y.logarithmic, true);
        let widest = y.ticks.iter().map(|t| t.1.chars().count()).max().unwrap_or(1);
        let (left, right) = (22.0 + DIGIT * widest as f64, width.units() - MARGIN);
        let (x, lines) = if plot.kind == PlotKind::Bars || !plot.x.names.is_empty() {
            let slots = Slots::new(plot, categories(series), left, right);
            let lines = slots.lines();
            (XAxis::Names(slots), lines)
        } else {
            let xs: Vec<f64> = points(series).map(|p| p.x).collect();
            let mut x = AxisScale::new(&xs, plot.x.logarithmic, false);
            x.place(left + 8.0, right - 8.0);
            (XAxis::Numbers(x), 1)
        };
        let label = if plot.x.label.is_empty() { 0.0 } else { 24.0 };
        let bottom = HEIGHT - 13.0 - LINE * lines as f64 - label;
        y.place(bottom, TOP);
        PlotFrame { left, right, bottom, y, x }
    }

    /// Where bars stand.
    fn zero(&self) -> f64 {
        self.y.at(self.y.floor())
    }
}

impl PlotMark {
    /// At that place of the x axis. `at`: where it is, in words.
    fn new(series: &Series, point: &Point, x: f64, y: &AxisScale, at: &str) -> PlotMark {
        let number = format::number;
        let doubt = point.interval.map(|(low, high)| format!(" [{}, {}]", number(low), number(high)));
        PlotMark {
            x,
            y: y.at(point.y),
            interval: point.interval.map(|(low, high)| (y.at(low), y.at(high))),
            tip: format!("{}: {}{at}{}", series.name, number(point.y), doubt.unwrap_or_default()),
        }
    }
}

/// Without points that are no numbers, in the order of x (bars and categories have their own).
fn drawable(series: &Series) -> Series {
    let numbers = |p: &Point| p.interval.map_or([p.x, p.y, p.y, p.y], |(low, high)| [p.x, p.y, low, high]);
    let finite = |p: &&Point| numbers(p).into_iter().all(f64::is_finite);
    let mut points: Vec<Point> = series.points.iter().filter(finite).copied().collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    Series { points, ..series.clone() }
}

fn points(series: &[Series]) -> impl Iterator<Item = &Point> {
    series.iter().flat_map(|s| &s.points)
}

fn categories(series: &[Series]) -> Vec<f64> {
    let mut all: Vec<f64> = points(series).map(|p| p.x).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

fn look(series: &[Series], index: usize) -> SeriesLook {
    let kind = |s: &Series| (s.published, s.model);
    let Some(one) = series.get(index) else { return SeriesLook { class: String::new(), order: 0 } };
    let order = series.iter().take(index).filter(|s| kind(s) == kind(one)).count();
    let name = match kind(one) {
        (_, true) => " model",
        (true, false) => " published",
        (false, false) => "",
    };
    SeriesLook { class: format!("c{}{name}", order % COLOURS), order }
}

/// What we measured last, and so on top.
fn lines(kind: PlotKind, series: &[Series], frame: &PlotFrame) -> Vec<(SeriesLook, Vec<PlotMark>, bool)> {
    let x = |value| match &frame.x {
        XAxis::Names(slots) => slots.middle(value),
        XAxis::Numbers(scale) => scale.at(value),
    };
    let mut ordered: Vec<(usize, &Series)> = series.iter().enumerate().collect();
    ordered.sort_by_key(|(_, s)| !(s.published || s.model));
    let line = |(at, one): (usize, &Series)| {
        let mark = |point: &Point| {
            PlotMark::new(one, point, x(point.x), &frame.y, &format!(" at {}", format::number(point.x)))
        };
        let has_points = kind != PlotKind::Steps && !one.model;
        (look(series, at), one.points.iter().map(mark).collect(), has_points)
    };
    ordered.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests;
