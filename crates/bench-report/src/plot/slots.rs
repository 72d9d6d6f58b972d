//! An x axis of categories (regions, partitions, sizes), each with the same room, and the bars that stand there.

use std::fmt::Write;

use super::{DIGIT, LINE, PlotFrame, class, doubt, text, tip, whisker};
use crate::format;
use crate::markup::escape;
use crate::model::{Plot, Series};

/// Bars narrower than this have no room for their value.
const LABELLED_BAR: f64 = 30.0;
/// A group of bars does not grow beyond this.
const GROUP_MAX: f64 = 170.0;
/// A slot narrower than this has no room for a name.
const NAMED_SLOT: f64 = 34.0;

pub struct Slots {
    left: f64,
    width: f64,
    categories: Vec<f64>,
    /// Of each category, broken into lines; empty where there is no room for it.
    names: Vec<Vec<String>>,
}

impl Slots {
    /// For the distinct x values of a plot, in order.
    pub fn new(plot: &Plot, categories: Vec<f64>, left: f64, right: f64) -> Slots {
        let width = (right - left) / categories.len().max(1) as f64;
        let every = (NAMED_SLOT / width).ceil().max(1.0) as usize;
        let room = ((width * every as f64 - 12.0) / DIGIT).max(3.0) as usize;
        let name = |(i, x): (usize, &f64)| {
            if i % every != 0 {
                return Vec::new();
            }
            let given = plot.x.names.get(*x as usize).filter(|_| *x >= 0.0 && x.fract() == 0.0);
            wrap(&given.cloned().unwrap_or_else(|| format::number(*x)), room)
        };
        let names = categories.iter().enumerate().map(name).collect();
        Slots { left, width, categories, names }
    }

    pub fn lines(&self) -> usize {
        self.names.iter().map(Vec::len).max().unwrap_or(0).max(1)
    }

    pub fn middle(&self, x: f64) -> f64 {
        let index = self.categories.iter().position(|c| *c == x).unwrap_or(0);
        self.left + (index as f64 + 0.5) * self.width
    }

    pub fn draw_names(&self, out: &mut String, frame: &PlotFrame) {
        for (x, name) in self.categories.iter().zip(&self.names) {
            let middle = self.middle(*x);
            for (line, part) in name.iter().enumerate() {
                let y = frame.bottom + 18.0 + LINE * line as f64;
                out.push_str(&text("tick", "middle", middle, y, part));
            }
        }
    }

    pub fn draw_bars(&self, out: &mut String, series: &[Series], frame: &PlotFrame) {
        let group = (self.width * 0.8).min(GROUP_MAX);
        let width = group / series.len().max(1) as f64;
        let y = &frame.y;
        let floor = y.at(y.floor());
        for (i, one) in series.iter().enumerate() {
            let class = class(series, i);
            for point in &one.points {
                let left = self.middle(point.x) - group / 2.0 + width * i as f64;
                let (top, height) = (y.at(point.y).min(floor), (y.at(point.y) - floor).abs());
                let bar = (width - 3.0).max(1.0);
                let tip = escape(&(tip(one, point) + &doubt(point)));
                // Writing to a string cannot fail.
                let _ = write!(
                    out,
                    "<rect class=\"bar {class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{bar:.1}\" \
                     height=\"{height:.1}\" rx=\"2\"><title>{tip}</title></rect>"
                );
                let middle = left + bar / 2.0;
                whisker(out, &format!("{class} on-bar"), middle, point, frame);
                if width >= LABELLED_BAR {
                    let above = point.interval.map_or(top, |(_, high)| y.at(high).min(top)) - 6.0;
                    out.push_str(&text("value", "middle", middle, above, &short(point.y)));
                }
            }
        }
        let _ = write!(out, "<path class=\"rule\" d=\"M{:.1} {floor:.1}H{}\"/>", frame.left, frame.right);
    }
}

fn short(value: f64) -> String {
    let magnitude = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    if (-3..7).contains(&magnitude) {
        format!("{value:.*}", (2 - magnitude).max(0) as usize)
    } else {
        format::number(value)
    }
}

/// A label as three lines of about `room` characters at most, broken after spaces and hyphens; what is longer ends in an
/// ellipsis.
fn wrap(text: &str, room: usize) -> Vec<String> {
    let length = |text: &str| text.trim_end().chars().count();
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_inclusive([' ', '-']) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + length(word) <= room => line.push_str(word),
            _ => lines.push(word.to_owned()),
        }
    }
    let cut = lines.len() > 3;
    lines.truncate(3);
    let last = lines.len().saturating_sub(1);
    for (i, line) in lines.iter_mut().enumerate() {
        *line = line.trim_end_matches(' ').to_owned();
        if length(line) > room || (cut && i == last) {
            *line = line.chars().take(room.saturating_sub(1)).chain(['\u{2026}']).collect();
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_wrap_and_end() {
        assert_eq!(wrap("NFS Southeast Asia (221\u{a0}ms)", 14), ["NFS Southeast", "Asia (221\u{a0}ms)"]);
        assert_eq!(wrap("mm2-epouta1", 8), ["mm2-", "epouta1"]);
        assert_eq!(wrap("a b c d e", 1), ["a", "b", "\u{2026}"]);
        assert_eq!(wrap("unbreakable", 6), ["unbre\u{2026}"]);
        assert!(wrap("", 5).is_empty());
    }
}
