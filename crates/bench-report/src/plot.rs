//! Plots as SVG, by hand: a plotting library draws fixed colours and fonts, and these follow the page's scheme, its
//! font and its printer. Colours and strokes are classes (`c0` to `c7`, `published`) that the page's style defines.
//!
//! Series are told apart by colour and by the shape of their points. Published ones are dashed and hollow; they take
//! the colours in the same order as ours, so that their direct column looks like our direct column, but not ours. A
//! model is a thin line without points, in the colours of what it models if they have the same order.

use std::fmt::Write;

use crate::format;
use crate::markup::escape;
use crate::model::{Plot, PlotKind, Point, Series};

mod scale;
mod slots;

use scale::AxisScale;
use slots::Slots;

/// The widths of half a page or a telephone, and of a whole page: the same height, so that text has one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// The drawing without title and legend.
pub fn svg(plot: &Plot, width: Width) -> String {
    let series: Vec<Series> = plot.series.iter().map(drawable).collect();
    let mut out = String::new();
    // Writing to a string cannot fail, here and below.
    let _ = write!(
        out,
        "<svg class=\"plot {}\" viewBox=\"0 0 {} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        if width == Width::Whole { "whole" } else { "half" },
        width.units(),
        escape(&plot.title)
    );
    if series.iter().all(|s| s.points.is_empty()) {
        out.push_str("<text class=\"axis\" x=\"50%\" y=\"50%\" text-anchor=\"middle\">no data</text></svg>");
        return out;
    }
    let ends = |p: &Point| p.interval.map_or([p.y; 3], |(low, high)| [p.y, low, high]);
    let ys: Vec<f64> = points(&series).flat_map(ends).collect();
    let mut y = AxisScale::new(&ys, plot.y.logarithmic, true);
    let widest = y.ticks.iter().map(|t| t.1.chars().count()).max().unwrap_or(1);
    let (left, right) = (22.0 + DIGIT * widest as f64, width.units() - MARGIN);
    let bars = plot.kind == PlotKind::Bars;
    let slots =
        (bars || !plot.x.names.is_empty()).then(|| Slots::new(plot, categories(&series), left, right));
    let lines = slots.as_ref().map_or(1, Slots::lines);
    let label = if plot.x.label.is_empty() { 0.0 } else { 24.0 };
    let bottom = HEIGHT - 13.0 - LINE * lines as f64 - label;
    y.place(bottom, TOP);
    let frame = PlotFrame { left, right, bottom, y };
    frame.draw_y(&mut out, &plot.y.label);
    frame.draw_x_label(&mut out, &plot.x.label);
    match slots {
        Some(slots) => {
            slots.draw_names(&mut out, &frame);
            if bars {
                slots.draw_bars(&mut out, &series, &frame);
            } else {
                draw_lines(&mut out, plot.kind, &series, |x| slots.middle(x), &frame);
            }
        }
        None => {
            let xs: Vec<f64> = points(&series).map(|p| p.x).collect();
            let mut x = AxisScale::new(&xs, plot.x.logarithmic, false);
            x.place(left + 8.0, right - 8.0);
            frame.draw_x(&mut out, &x);
            draw_lines(&mut out, plot.kind, &series, |v| x.at(v), &frame);
        }
    }
    out.push_str("</svg>");
    out
}

/// What the series look like, for the page: a list that wraps where it must.
pub fn legend(plot: &Plot) -> String {
    let mut out = String::from("<ul class=\"legend\">");
    for (i, series) in plot.series.iter().enumerate() {
        let class = class(&plot.series, i);
        let swatch = match plot.kind {
            PlotKind::Bars => {
                format!("<rect class=\"bar {class}\" x=\"5\" y=\"2\" width=\"18\" height=\"12\" rx=\"2\"/>")
            }
            PlotKind::Lines => {
                let line = format!("<path class=\"line {class}\" d=\"M1 8H27\"/>");
                let point = marker(&class, order(&plot.series, i), 14.0, 8.0, "");
                if series.model { line } else { line + &point }
            }
            PlotKind::Steps => format!("<path class=\"line {class}\" d=\"M1 12H14V4H27\"/>"),
        };
        let published = if series.published { " <i>published</i>" } else { "" };
        let _ = write!(
            out,
            "<li><svg viewBox=\"0 0 28 16\" aria-hidden=\"true\">{swatch}</svg>{}{published}</li>",
            escape(&series.name)
        );
    }
    out.push_str("</ul>");
    out
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

/// Place of a series among those of its kind: ours, published, calculated.
fn order(series: &[Series], index: usize) -> usize {
    let kind = |s: &Series| (s.published, s.model);
    let Some(one) = series.get(index) else { return 0 };
    series.iter().take(index).filter(|s| kind(s) == kind(one)).count()
}

fn class(series: &[Series], index: usize) -> String {
    let kind = match series.get(index) {
        Some(Series { model: true, .. }) => " model",
        Some(Series { published: true, .. }) => " published",
        _ => "",
    };
    format!("c{}{kind}", order(series, index) % COLOURS)
}

struct PlotFrame {
    left: f64,
    right: f64,
    bottom: f64,
    y: AxisScale,
}

impl PlotFrame {
    fn draw_y(&self, out: &mut String, label: &str) {
        for (value, tick) in &self.y.ticks {
            let at = self.y.at(*value);
            let _ = write!(out, "<path class=\"grid\" d=\"M{:.1} {at:.1}H{}\"/>", self.left, self.right);
            out.push_str(&text("tick", "end", self.left - 8.0, at + 4.5, tick));
        }
        let zero = self.y.at(self.y.floor());
        if zero < self.bottom {
            let _ = write!(out, "<path class=\"rule\" d=\"M{:.1} {zero:.1}H{}\"/>", self.left, self.right);
        }
        let _ = write!(out, "<text class=\"axis\" x=\"4\" y=\"16\">{}</text>", escape(label));
    }

    fn draw_x(&self, out: &mut String, x: &AxisScale) {
        let _ =
            write!(out, "<path class=\"rule\" d=\"M{:.1} {:.1}H{}\"/>", self.left, self.bottom, self.right);
        for (value, tick) in &x.ticks {
            let at = x.at(*value);
            let _ = write!(out, "<path class=\"rule\" d=\"M{at:.1} {:.1}v5\"/>", self.bottom);
            out.push_str(&text("tick", "middle", at, self.bottom + 20.0, tick));
        }
    }

    fn draw_x_label(&self, out: &mut String, label: &str) {
        let middle = (self.left + self.right) / 2.0;
        out.push_str(&text("axis", "middle", middle, HEIGHT - 10.0, label));
    }
}

/// Text of which that end, or the middle, is at `x`.
fn text(class: &str, anchor: &str, x: f64, y: f64, text: &str) -> String {
    let text = escape(text);
    format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>")
}

fn draw_lines(
    out: &mut String,
    kind: PlotKind,
    series: &[Series],
    x: impl Fn(f64) -> f64,
    frame: &PlotFrame,
) {
    // What we measured last, and so on top.
    let mut ordered: Vec<(usize, &Series)> = series.iter().enumerate().collect();
    ordered.sort_by_key(|(_, s)| !(s.published || s.model));
    for (i, one) in ordered {
        let class = class(series, i);
        let mut path = String::new();
        for (n, point) in one.points.iter().enumerate() {
            let (at, y) = (x(point.x), frame.y.at(point.y));
            let _ = match (n, kind) {
                (0, _) => write!(path, "M{at:.1} {y:.1}"),
                (_, PlotKind::Steps) => write!(path, "H{at:.1}V{y:.1}"),
                _ => write!(path, "L{at:.1} {y:.1}"),
            };
        }
        let _ = write!(out, "<path class=\"line {class}\" d=\"{path}\"/>");
        if kind == PlotKind::Steps || one.model {
            continue;
        }
        for point in &one.points {
            let at = x(point.x);
            whisker(out, &class, at, point, frame);
            let tip = format!("{} at {}{}", tip(one, point), format::number(point.x), doubt(point));
            out.push_str(&marker(&class, order(series, i), at, frame.y.at(point.y), &tip));
        }
    }
}

fn whisker(out: &mut String, class: &str, at: f64, point: &Point, frame: &PlotFrame) {
    if let Some((low, high)) = point.interval {
        let (low, high) = (frame.y.at(low), frame.y.at(high));
        let (from, width) = (at - 5.0, 10.0);
        let _ = write!(
            out,
            "<path class=\"whisker {class}\" d=\"M{from:.1} {low:.1}h{width}M{at:.1} {low:.1}V{high:.1}M{from:.1} {high:.1}h{width}\"/>"
        );
    }
}

/// What a point says when it is pointed at.
fn tip(series: &Series, point: &Point) -> String {
    format!("{}: {}", series.name, format::number(point.y))
}

fn doubt(point: &Point) -> String {
    point.interval.map_or(String::new(), |(l, h)| format!(" [{}, {}]", format::number(l), format::number(h)))
}

fn marker(class: &str, order: usize, x: f64, y: f64, tip: &str) -> String {
    let (element, shape) = match order % 4 {
        0 => ("circle", format!("cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\"")),
        1 => ("path", format!("d=\"M{:.1} {:.1}h8v8h-8z\"", x - 4.0, y - 4.0)),
        2 => ("path", format!("d=\"M{x:.1} {:.1}l5 9h-10z\"", y - 5.5)),
        _ => ("path", format!("d=\"M{x:.1} {:.1}l5.5 5.5l-5.5 5.5l-5.5 -5.5z\"", y - 5.5)),
    };
    let title = if tip.is_empty() { String::new() } else { format!("<title>{}</title>", escape(tip)) };
    format!("<{element} class=\"marker {class}\" {shape}>{title}</{element}>")
}

#[cfg(test)]
mod tests;
