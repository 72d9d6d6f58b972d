//! What one row of a table is measured under: who touches which files, and where on the target these lie.

use std::collections::BTreeMap;

use bench_load::{Amount, Files, Layout, LoadWork, Sharing, Sizes};
use clap::ValueEnum;

#[derive(Clone, Copy, Debug, strum::Display, PartialEq, Eq, ValueEnum)]
#[strum(serialize_all = "UPPERCASE")]
pub enum Shape {
    /// Single file, multiple readers
    Sfmr,
    /// Multiple files, multiple readers
    Mfmr,
    /// Single file, multiple writers
    Sfmw,
    /// Multiple files, multiple writers
    Mfmw,
}

impl Shape {
    pub const ALL: [Shape; 4] = [Shape::Sfmr, Shape::Mfmr, Shape::Sfmw, Shape::Mfmw];

    pub fn writes(self) -> bool {
        matches!(self, Shape::Sfmw | Shape::Mfmw)
    }

    /// `bytes` of a file that is read; of what one worker writes.
    fn layout(self, bytes: u64, workers: u64) -> Layout {
        let (files, bytes) = match self {
            Shape::Sfmr => (1, bytes),
            Shape::Sfmw => (1, bytes.saturating_mul(workers)),
            Shape::Mfmr | Shape::Mfmw => (workers, bytes),
        };
        Layout { files, sizes: Sizes::Equal(bytes), ..Layout::default() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    Size,
    Fleet,
    Block,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShapeCondition {
    pub shape: Shape,
    pub bytes: u64,
    pub nodes: u32,
    pub workers: u32,
    pub block: u64,
    pub sweep: Sweep,
}

impl ShapeCondition {
    pub fn in_all(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.workers)
    }

    /// Whether it is a row of that table.
    pub fn is_in(&self, shape: Shape, sweep: Sweep) -> bool {
        self.shape == shape && self.sweep == sweep
    }

    pub fn layout(&self) -> Layout {
        self.shape.layout(self.bytes, self.in_all())
    }

    pub fn work(&self, epochs: u64, seed: u64) -> LoadWork {
        let amount = Amount::Epochs(epochs);
        let work = match self.shape {
            Shape::Sfmr => LoadWork::sfmr(),
            Shape::Mfmr => LoadWork { share: Sharing::Split, ..LoadWork::default() },
            Shape::Sfmw => LoadWork::sfmw(),
            Shape::Mfmw => LoadWork::mfmw(),
        };
        LoadWork { amount, block_bytes: self.block, seed, ..work }
    }

    /// Conditions that read files of one size read the same ones; each shape that writes has files of its own, of which
    /// nobody asks what is in them.
    pub fn files(&self) -> Files {
        let number = match self.shape {
            Shape::Sfmr | Shape::Mfmr => self.bytes,
            // No size of a file has as many digits.
            Shape::Sfmw => 10_u64.pow(19) + 1,
            Shape::Mfmw => 10_u64.pow(19) + 2,
        };
        Files { directory: format!("d{number:05}"), layout: self.layout() }
    }

    /// Bytes that all together move if they go through it once.
    pub fn once(&self) -> u64 {
        match self.shape {
            Shape::Sfmr => self.bytes.saturating_mul(self.in_all()),
            _ => self.layout().total_bytes(),
        }
    }

    /// For whoever watches, and for comparisons.
    pub fn name(&self) -> String {
        let size = self.bytes as f64 / crate::MIB;
        let sweep = match self.sweep {
            Sweep::Size => String::new(),
            Sweep::Fleet => ", over nodes".to_owned(),
            Sweep::Block => format!(", blocks of {} KiB", self.block as f64 / 1024.0),
        };
        let (shape, nodes, workers) = (self.shape, self.nodes, self.workers);
        format!("{shape} {size} MiB, {nodes} nodes x {workers} workers{sweep}")
    }
}

/// The files of all conditions: by directory, the largest layout there.
pub fn sets(conditions: &[ShapeCondition], written: bool) -> BTreeMap<String, Layout> {
    let mut sets: BTreeMap<String, Layout> = BTreeMap::new();
    for condition in conditions.iter().filter(|condition| condition.shape.writes() == written) {
        let Files { directory, layout } = condition.files();
        let set = sets.entry(directory).or_insert_with(|| layout.clone());
        // Of one size if they are read; what is written is only counted.
        if layout.total_bytes() > set.total_bytes() {
            *set = layout;
        }
    }
    sets
}

pub fn total_bytes(sets: &BTreeMap<String, Layout>) -> u64 {
    sets.values().fold(0, |sum, layout| sum.saturating_add(layout.total_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(shape: Shape, bytes: u64, nodes: u32, workers: u32) -> ShapeCondition {
        ShapeCondition { shape, bytes, nodes, workers, block: 1 << 20, sweep: Sweep::Size }
    }

    #[test]
    fn readers_of_one_size_share_a_set_that_has_enough_files_for_all() {
        let conditions = [
            condition(Shape::Sfmr, 1 << 20, 5, 4),
            condition(Shape::Mfmr, 1 << 20, 2, 4),
            condition(Shape::Mfmr, 1 << 20, 4, 6),
            condition(Shape::Mfmr, 1 << 21, 1, 1),
            condition(Shape::Mfmw, 1 << 20, 5, 4),
        ];
        let read = sets(&conditions, false);
        let files: Vec<(&str, u64)> = read.iter().map(|(name, set)| (name.as_str(), set.files)).collect();
        assert_eq!(files, [("d1048576", 24), ("d2097152", 1)]);
        assert_eq!(total_bytes(&read), 26 << 20);
        assert_eq!(total_bytes(&sets(&conditions, true)), 20 << 20);
    }

    #[test]
    fn no_directory_of_a_set_is_another_ones() {
        let written = condition(Shape::Sfmw, u64::MAX / 100, 1, 1).files().directory;
        for bytes in [1, 99_999, i64::MAX as u64] {
            for directory in [condition(Shape::Sfmr, bytes, 1, 1).files().directory, written.clone()] {
                assert!(Layout::makes_name(&directory), "{directory}");
            }
            assert_ne!(condition(Shape::Sfmr, bytes, 1, 1).files().directory, written);
        }
    }
}
