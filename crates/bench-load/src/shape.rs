//! Which worker touches which bytes, in which order: pure arithmetic, no lists.
//!
//! A [`Layout`] says which files there are. A [`LoadWork`] makes a sequence of touches of it, numbered from 0, and
//! says how the workers share the sequence. Each touch is computed from its number alone, so a billion files
//! need no more memory than one, and every worker of every process finds its part without asking.

mod layout;
mod permutation;
mod sequence;

use std::fmt;

use serde::{Deserialize, Serialize};

pub(crate) use layout::below;
pub use layout::{Layout, Sizes};
pub use sequence::{ClientSet, FilePart, Sequence, SequencePart, Touch};

/// What is done with what is touched.
#[derive(Clone, Copy, Debug, Default, strum::Display, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum LoadOperation {
    #[default]
    Read,
    Write,
    /// One of these, drawn anew for each touch.
    #[strum(to_string = "{0}")]
    Mixed(Mix),
    /// Attributes of files.
    Stat,
    /// List a directory, then ask for the attributes of each of its files: directories are what is touched.
    Walk,
}

impl LoadOperation {
    pub fn writes(self) -> bool {
        matches!(self, LoadOperation::Write)
            || matches!(self, LoadOperation::Mixed(mix) if mix.write > 0 || mix.delete > 0)
    }
}

/// Weights: `read: 70, write: 30` writes three times in ten. As it is typed with `--operation`: what is not named has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mix {
    pub read: u32,
    pub write: u32,
    pub stat: u32,
    pub list: u32,
    /// Make a file beside those of the layout, and remove it: these stay whole for the others.
    pub delete: u32,
    /// One block from anywhere in a file.
    pub range: u32,
}

/// As it is typed.
impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mix { read, range, write, stat, list, delete } = *self;
        let parts = [("read", read), ("range", range), ("write", write)];
        let parts = parts.into_iter().chain([("stat", stat), ("list", list), ("delete", delete)]);
        let some = parts.filter(|(_, weight)| *weight > 0).map(|(name, weight)| format!("{name}={weight}"));
        f.write_str(&some.collect::<Vec<_>>().join(","))
    }
}

impl Mix {
    pub fn sum(&self) -> u64 {
        let weights = [self.read, self.write, self.stat, self.list, self.delete, self.range];
        weights.iter().map(|weight| u64::from(*weight)).sum()
    }
}

/// What one touch is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TouchUnit {
    /// A whole file, its blocks in order.
    #[default]
    File,
    /// One block of a file.
    Block,
}

#[derive(Clone, Copy, Debug, Default, strum::Display, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AccessOrder {
    /// Files in order, blocks in order.
    #[default]
    Sequential,
    /// Every unit exactly once per epoch, in an order of each epoch's own.
    Random,
    /// Within each file the blocks 0, s, 2s, ..., then 1, 1 + s, ...; files in order. Blocks only.
    #[strum(to_string = "strided:{0}")]
    Strided(u64),
    /// Any unit at any time: with repetitions, and without the promise that all are touched.
    Uniform,
    /// As `Uniform`, but the k-th most popular unit is drawn in proportion to 1 / k^theta. The popular ones are
    /// the same for everybody.
    #[strum(to_string = "zipf:{theta}")]
    Zipf { theta: f64 },
    /// As `Uniform`, but `access_percent` of the draws go to `hot_percent` of the units.
    #[strum(to_string = "hotspot:{hot_percent}/{access_percent}")]
    Hotspot { hot_percent: f64, access_percent: f64 },
}

/// The way in which workers and clients share a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// All workers of all clients share one sequence; each has a contiguous part of it.
    #[default]
    Split,
    /// All workers share one sequence; of N workers, worker w has w, w + N, w + 2N, ...
    Interleaved,
    /// Each client has a sequence of its own over everything; its workers take from it in turn, so that a slow
    /// one takes less.
    Client,
    /// Each worker has a sequence of its own over everything.
    Worker,
}

/// The length of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// All units this many times.
    Epochs(u64),
    /// This many touches.
    Draws(u64),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadWork {
    pub operation: LoadOperation,
    pub unit: TouchUnit,
    pub order: AccessOrder,
    pub share: Sharing,
    pub amount: Amount,
    /// Bytes of one read or write. Default 1 MiB.
    pub block_bytes: u64,
    /// Of orders and mixtures; clients and workers with a sequence of their own derive their own from it.
    pub seed: u64,
}

impl Default for LoadWork {
    fn default() -> LoadWork {
        LoadWork {
            operation: LoadOperation::Read,
            unit: TouchUnit::File,
            order: AccessOrder::Sequential,
            share: Sharing::Split,
            amount: Amount::Epochs(1),
            block_bytes: 1 << 20,
            seed: 0,
        }
    }
}

impl LoadWork {
    /// Single file, multiple readers: each reads the whole file.
    pub fn sfmr() -> LoadWork {
        LoadWork { share: Sharing::Worker, ..LoadWork::default() }
    }

    /// Single file, multiple readers: each reads its section.
    pub fn sfmr_sections() -> LoadWork {
        LoadWork { unit: TouchUnit::Block, share: Sharing::Split, ..LoadWork::default() }
    }

    /// Single file, multiple writers: each writes its section.
    pub fn sfmw() -> LoadWork {
        LoadWork { operation: LoadOperation::Write, ..LoadWork::sfmr_sections() }
    }

    /// Multiple files, multiple readers: every client reads every file, in an order of its own.
    pub fn mfmr() -> LoadWork {
        LoadWork { order: AccessOrder::Random, share: Sharing::Client, ..LoadWork::default() }
    }

    /// Multiple files, multiple writers: each writes its own files.
    pub fn mfmw() -> LoadWork {
        LoadWork { operation: LoadOperation::Write, share: Sharing::Split, ..LoadWork::default() }
    }

    /// sob -R: `draws` random files (or blocks) of each client.
    pub fn random_reads(unit: TouchUnit, draws: u64) -> LoadWork {
        LoadWork {
            unit,
            order: AccessOrder::Uniform,
            share: Sharing::Client,
            amount: Amount::Draws(draws),
            ..LoadWork::default()
        }
    }

    /// The tree walked once by each client.
    pub fn walk() -> LoadWork {
        LoadWork { operation: LoadOperation::Walk, share: Sharing::Client, ..LoadWork::default() }
    }

    /// Whether it makes sense; one line that says what would.
    pub fn check(&self) -> types::Result<()> {
        let wrong = |why: &str| Err(types::Error::new(types::ErrorKind::Config, "shape", why));
        let draws = matches!(
            self.order,
            AccessOrder::Uniform | AccessOrder::Zipf { .. } | AccessOrder::Hotspot { .. }
        );
        if self.block_bytes == 0 || self.block_bytes > 1 << 30 {
            return wrong("the block size should be from 1 byte to 1 GiB");
        }
        match (self.order, self.amount) {
            (_, Amount::Epochs(0) | Amount::Draws(0)) => return wrong("nothing to do: 0 epochs or draws"),
            (_, Amount::Epochs(_)) if draws => {
                return wrong("an order that repeats has no epochs; give a number of draws");
            }
            (AccessOrder::Strided(0), _) => return wrong("the stride should be 1 block or more"),
            (AccessOrder::Strided(_), _) if self.unit == TouchUnit::File => {
                return wrong("a stride is a matter of blocks; choose blocks as the unit");
            }
            (AccessOrder::Zipf { theta }, _) if !(theta > 0.0 && theta <= 10.0) => {
                return wrong("zipf theta should be above 0 and at most 10");
            }
            (AccessOrder::Hotspot { hot_percent, access_percent }, _)
                if !(hot_percent > 0.0
                    && hot_percent <= 100.0
                    && (0.0..=100.0).contains(&access_percent)) =>
            {
                return wrong("a hotspot is a share of the units and a share of the accesses, percent");
            }
            _ => {}
        }
        let LoadOperation::Mixed(mix) = self.operation else { return Ok(()) };
        if mix.sum() == 0 { wrong("a mixture needs a weight above 0") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
