//! An x axis of categories (regions, partitions, sizes), each with the same room, and the bars that stand there.

use super::scale::AxisScale;
use super::{DIGIT, LINE, PlotMark, look};
use crate::format;
use crate::model::{Plot, Point, Series};

/// Bars narrower than this have no room for their value.
const LABELLED_BAR: f64 = 30.0;
/// A group of bars does not grow beyond this.
const GROUP_MAX: f64 = 170.0;
/// A slot narrower than this has no room for a name.
const NAMED_SLOT: f64 = 34.0;

/// A bar in pixels.
pub struct DrawnBar {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
    /// In its middle, above it and its whisker.
    pub mark: PlotMark,
    /// What stands there, if there is room.
    pub value: Option<String>,
}

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

    /// Each line of a name with its place.
    pub fn name_lines(&self, bottom: &f64) -> impl Iterator<Item = (f64, f64, &String)> {
        self.categories.iter().zip(&self.names).flat_map(move |(x, name)| {
            let place = move |line: usize| (self.middle(*x), bottom + 18.0 + LINE * line as f64);
            name.iter().enumerate().map(move |(line, part)| (place(line).0, place(line).1, part))
        })
    }

    /// Each with the class of its series.
    pub fn bars(&self, series: &[Series], y: &AxisScale) -> Vec<(String, DrawnBar)> {
        let group = (self.width * 0.8).min(GROUP_MAX);
        let room = group / series.len().max(1) as f64;
        let floor = y.at(y.floor());
        let bar = |(i, one, point): (usize, &Series, &Point)| {
            let left = self.middle(point.x) - group / 2.0 + room * i as f64;
            let (top, height) = (y.at(point.y).min(floor), (y.at(point.y) - floor).abs());
            let width = (room - 3.0).max(1.0);
            let mut mark = PlotMark::new(one, point, left + width / 2.0, y, "");
            mark.y = point.interval.map_or(top, |(_, high)| y.at(high).min(top)) - 6.0;
            let value = (room >= LABELLED_BAR).then(|| short(point.y));
            (look(series, i).class, DrawnBar { left, top, width, height, mark, value })
        };
        let all = series.iter().enumerate();
        all.flat_map(|(i, one)| one.points.iter().map(move |point| (i, one, point))).map(bar).collect()
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
