//! Plots as SVG, by hand: a plotting library draws fixed colours and fonts, and these follow the page's scheme, its
//! font and its printer. Colours and strokes are classes (`c0` to `c7`, `published`) that the page's style defines.
//!
//! Series are told apart by colour and by the shape of their points. Published ones are dashed and hollow; they take
//! the colours in the same order as ours, so that their direct column looks like our direct column, but not ours.

use std::fmt::Write;

use crate::format;
use crate::markup::escape;
use crate::model::{Plot, PlotKind, Point, Series};

mod scale;

use scale::Scale;

/// Of half a page and of a telephone, and of a whole page: the same height, so that text has one size.
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
/// Bars narrower than this have no room for their value.
const LABELLED_BAR: f64 = 30.0;

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
        let _ = write!(
            out,
            "<text class=\"axis\" x=\"50%\" y=\"50%\" text-anchor=\"middle\">no data</text></svg>"
        );
        return out;
    }
    let ys: Vec<f64> = points(&series)
        .flat_map(|p| [p.y, p.interval.map_or(p.y, |i| i.0), p.interval.map_or(p.y, |i| i.1)])
        .collect();
    let bars = plot.kind == PlotKind::Bars;
    let categories = categories(&series);
    let named = bars || !plot.x.names.is_empty();
    let bottom = if named { HEIGHT - 76.0 } else { HEIGHT - 52.0 };
    let y = Scale::new(&ys, plot.y.logarithmic, true, (bottom, TOP));
    let widest = y.ticks.iter().map(|t| t.1.chars().count()).max().unwrap_or(1);
    let left = 22.0 + DIGIT * widest as f64;
    let right = width.units() - MARGIN;
    let frame = Frame { left, right, bottom, y };
    frame.draw_y(&mut out, &plot.y.label);
    if named {
        let slots = Slots { frame: &frame, categories: &categories };
        slots.draw_x(&mut out, plot);
        if bars {
            slots.draw_bars(&mut out, &series)
        } else {
            draw_lines(&mut out, plot.kind, &series, &|x| slots.middle(x), &frame)
        }
    } else {
        let xs: Vec<f64> = points(&series).map(|p| p.x).collect();
        let x = Scale::new(&xs, plot.x.logarithmic, false, (left + 8.0, right - 8.0));
        frame.draw_x(&mut out, &x, &plot.x.label);
        draw_lines(&mut out, plot.kind, &series, &|v| x.at(v), &frame);
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
                format!(
                    "<path class=\"line {class}\" d=\"M1 8H27\"/>{}",
                    marker(&class, order(&plot.series, i), 14.0, 8.0, "")
                )
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
    let finite = |p: &&Point| {
        p.x.is_finite() && p.y.is_finite() && p.interval.is_none_or(|(l, h)| l.is_finite() && h.is_finite())
    };
    let mut points: Vec<Point> = series.points.iter().filter(finite).copied().collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    Series { points, ..series.clone() }
}

fn points(series: &[Series]) -> impl Iterator<Item = &Point> {
    series.iter().flat_map(|s| &s.points)
}

/// The distinct x of all series, in order.
fn categories(series: &[Series]) -> Vec<f64> {
    let mut all: Vec<f64> = points(series).map(|p| p.x).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

/// Place of a series among those of its kind, ours or published.
fn order(series: &[Series], index: usize) -> usize {
    let published = series.get(index).is_some_and(|s| s.published);
    series.iter().take(index).filter(|s| s.published == published).count()
}

fn class(series: &[Series], index: usize) -> String {
    let published = if series.get(index).is_some_and(|s| s.published) { " published" } else { "" };
    format!("c{}{published}", order(series, index) % COLOURS)
}

/// The area of the drawing, and its y axis.
struct Frame {
    left: f64,
    right: f64,
    bottom: f64,
    y: Scale,
}

impl Frame {
    fn draw_y(&self, out: &mut String, label: &str) {
        for (value, text) in &self.y.ticks {
            let at = self.y.at(*value);
            let _ = write!(out, "<path class=\"grid\" d=\"M{:.1} {at:.1}H{}\"/>", self.left, self.right);
            let _ = write!(
                out,
                "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
                self.left - 8.0,
                at + 4.5
            );
        }
        let _ = write!(out, "<text class=\"axis\" x=\"4\" y=\"16\">{}</text>", escape(label));
    }

    fn draw_x(&self, out: &mut String, x: &Scale, label: &str) {
        let _ =
            write!(out, "<path class=\"rule\" d=\"M{:.1} {:.1}H{}\"/>", self.left, self.bottom, self.right);
        for (value, text) in &x.ticks {
            let at = x.at(*value);
            let _ = write!(out, "<path class=\"rule\" d=\"M{at:.1} {:.1}v5\"/>", self.bottom);
            let _ = write!(
                out,
                "<text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
                self.bottom + 20.0
            );
        }
        self.draw_x_label(out, label);
    }

    fn draw_x_label(&self, out: &mut String, label: &str) {
        let middle = (self.left + self.right) / 2.0;
        let _ = write!(
            out,
            "<text class=\"axis\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - 10.0,
            escape(label)
        );
    }
}

fn draw_lines(out: &mut String, kind: PlotKind, series: &[Series], x: &dyn Fn(f64) -> f64, frame: &Frame) {
    // Ours last, and so on top.
    let theirs = series.iter().enumerate().filter(|(_, s)| s.published);
    for (i, one) in theirs.chain(series.iter().enumerate().filter(|(_, s)| !s.published)) {
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
        if kind == PlotKind::Steps {
            continue;
        }
        for point in &one.points {
            let at = x(point.x);
            whisker(out, &class, at, point, frame);
            let tip = format!(
                "{}: {} at {}{}",
                one.name,
                format::number(point.y),
                format::number(point.x),
                doubt(point)
            );
            out.push_str(&marker(&class, order(series, i), at, frame.y.at(point.y), &tip));
        }
    }
}

fn whisker(out: &mut String, class: &str, at: f64, point: &Point, frame: &Frame) {
    if let Some((low, high)) = point.interval {
        let (low, high) = (frame.y.at(low), frame.y.at(high));
        let (from, width) = (at - 5.0, 10.0);
        let _ = write!(
            out,
            "<path class=\"whisker {class}\" d=\"M{from:.1} {low:.1}h{width}M{at:.1} {low:.1}V{high:.1}M{from:.1} {high:.1}h{width}\"/>"
        );
    }
}

fn doubt(point: &Point) -> String {
    point.interval.map_or(String::new(), |(l, h)| format!(" [{}, {}]", format::number(l), format::number(h)))
}

/// Circle, square, triangle, diamond, in turn.
fn marker(class: &str, order: usize, x: f64, y: f64, tip: &str) -> String {
    let shape = match order % 4 {
        0 => format!("<circle class=\"marker {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\">"),
        1 => format!("<path class=\"marker {class}\" d=\"M{:.1} {:.1}h8v8h-8z\">", x - 4.0, y - 4.0),
        2 => format!("<path class=\"marker {class}\" d=\"M{x:.1} {:.1}l5 9h-10z\">", y - 5.5),
        _ => format!(
            "<path class=\"marker {class}\" d=\"M{x:.1} {:.1}l5.5 5.5l-5.5 5.5l-5.5 -5.5z\">",
            y - 5.5
        ),
    };
    let end = if order.is_multiple_of(4) { "circle" } else { "path" };
    let title = if tip.is_empty() { String::new() } else { format!("<title>{}</title>", escape(tip)) };
    format!("{shape}{title}</{end}>")
}

/// An x axis of categories, each with the same room.
struct Slots<'a> {
    frame: &'a Frame,
    categories: &'a [f64],
}

impl Slots<'_> {
    fn width(&self) -> f64 {
        (self.frame.right - self.frame.left) / self.categories.len().max(1) as f64
    }

    fn middle(&self, x: f64) -> f64 {
        let index = self.categories.iter().position(|c| *c == x).unwrap_or(0);
        self.frame.left + (index as f64 + 0.5) * self.width()
    }

    fn draw_x(&self, out: &mut String, plot: &Plot) {
        let bottom = self.frame.bottom;
        let room = ((self.width() - 6.0) / (DIGIT - 0.8)).max(3.0) as usize;
        // Where many categories leave no room for names, only some have one.
        let every = (34.0 / self.width()).ceil().max(1.0) as usize;
        for x in self.categories.iter().step_by(every) {
            let name = if plot.x.names.is_empty() { None } else { plot.x.names.get(*x as usize) };
            let text = name.cloned().unwrap_or_else(|| format::number(*x));
            let middle = self.middle(*x);
            for (line, part) in wrap(&text, room * every).iter().enumerate() {
                let y = bottom + 19.0 + 15.0 * line as f64;
                let part = escape(part);
                let _ = write!(
                    out,
                    "<text class=\"tick\" x=\"{middle:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{part}</text>"
                );
            }
        }
        self.frame.draw_x_label(out, &plot.x.label);
    }

    fn draw_bars(&self, out: &mut String, series: &[Series]) {
        let group = (self.width() * 0.8).min(170.0);
        let width = group / series.len().max(1) as f64;
        let y = &self.frame.y;
        let floor = y.at(y.floor());
        for (i, one) in series.iter().enumerate() {
            let class = class(series, i);
            for point in &one.points {
                let left = self.middle(point.x) - group / 2.0 + width * i as f64;
                let (top, height) = (y.at(point.y).min(floor), (y.at(point.y) - floor).abs());
                let bar = (width - 3.0).max(1.0);
                let tip = escape(&format!("{}: {}{}", one.name, format::number(point.y), doubt(point)));
                let _ = write!(
                    out,
                    "<rect class=\"bar {class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{bar:.1}\" height=\"{height:.1}\" rx=\"2\"><title>{tip}</title></rect>"
                );
                let middle = left + bar / 2.0;
                whisker(out, &format!("{class} on-bar"), middle, point, self.frame);
                if width >= LABELLED_BAR {
                    let above = point.interval.map_or(top, |(_, high)| y.at(high).min(top)) - 6.0;
                    let value = short(point.y);
                    let _ = write!(
                        out,
                        "<text class=\"value\" x=\"{middle:.1}\" y=\"{above:.1}\" text-anchor=\"middle\">{value}</text>"
                    );
                }
            }
        }
        let _ = write!(
            out,
            "<path class=\"rule\" d=\"M{:.1} {floor:.1}H{}\"/>",
            self.frame.left, self.frame.right
        );
    }
}

/// Three digits.
fn short(value: f64) -> String {
    let magnitude = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    if (-3..7).contains(&magnitude) {
        format!("{value:.*}", (2 - magnitude).max(0) as usize)
    } else {
        format::number(value)
    }
}

/// At most three lines of about `room` characters, broken between words; what is longer ends in an ellipsis.
fn wrap(text: &str, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|w| !w.is_empty()) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    let cut = lines.len() > 3;
    lines.truncate(3);
    let last = lines.len().saturating_sub(1);
    for (i, line) in lines.iter_mut().enumerate() {
        if line.chars().count() > room || (cut && i == last) {
            *line = line.chars().take(room.saturating_sub(1)).chain(['\u{2026}']).collect();
        }
    }
    lines
}

#[cfg(test)]
mod tests;
