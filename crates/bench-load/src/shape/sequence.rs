//! The numbered touches of a [`LoadWork`], and which numbers are whose.

use std::ops::Range;

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand_distr::{Distribution, Zipf};
use serde::{Deserialize, Serialize};

use super::permutation::Permutation;
use super::{AccessOrder, Amount, Layout, LoadOperation, LoadWork, Mix, Sharing, TouchUnit};
use crate::data::mix_all;

/// A slot without a block (of a file that is shorter than the longest) is drawn again this often. One in 2^20
/// blocks present would still be found mostly.
const REDRAWS_MAX: u64 = 1 << 20;

/// What the numbers of a mixture's draws are mixed with.
const MIXTURE: u64 = 0x6d69_7865;
/// The stream of random numbers for a range's place in its file.
const RANGE: u64 = 0x7261_6e67;

/// All who take part, in all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSet {
    /// Clients in all processes.
    pub clients: u32,
    /// The first client of this process.
    pub first_client: u32,
    /// Workers of each client: what it does at the same time.
    pub workers: u32,
}

impl Default for ClientSet {
    fn default() -> ClientSet {
        ClientSet { clients: 1, first_client: 0, workers: 1 }
    }
}

impl ClientSet {
    /// Workers of all clients.
    pub fn workers_in_all(&self) -> u64 {
        u64::from(self.clients) * u64::from(self.workers)
    }
}

/// A stretch of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePart {
    pub file: u64,
    pub offset: u64,
    pub length: u64,
}

/// One touch, of a part of a file, a file or a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    Read(FilePart),
    Write(FilePart),
    Stat(u64),
    List(u64),
    /// Make a file in that directory and remove it.
    Delete(u64),
    Walk(u64),
}

/// The numbers of a sequence that one worker takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SequencePart {
    /// In each epoch these, `step` apart.
    Own { within: Range<u64>, step: u64 },
    /// Whichever comes next when a worker of the client is free.
    NextOfClient,
}

/// What one worker or one client goes through.
#[derive(Clone, Debug)]
pub struct Sequence {
    layout: Layout,
    work: LoadWork,
    seed: u64,
    /// Numbers in one epoch.
    epoch: u64,
    epochs: u64,
    blocks_max: u64,
}

impl Sequence {
    /// Of worker `worker` of client `client`. Both are counted in the whole fleet from 0, a worker within its
    /// client.
    pub fn new(layout: &Layout, work: &LoadWork, client: u32, worker: u32) -> Sequence {
        let seed = match work.share {
            Sharing::Split | Sharing::Interleaved => mix_all(&[work.seed, 0]),
            Sharing::Client => mix_all(&[work.seed, 1, client.into()]),
            Sharing::Worker => mix_all(&[work.seed, 2, client.into(), worker.into()]),
        };
        let blocks_max = layout.size_limits().1.div_ceil(work.block_bytes.max(1)).max(1);
        let slots = slots(layout, work, blocks_max);
        let (epoch, epochs) = match work.amount {
            Amount::Epochs(epochs) => (slots, epochs),
            Amount::Draws(draws) => (draws, 1),
        };
        Sequence { layout: layout.clone(), work: work.clone(), seed, epoch, epochs, blocks_max }
    }

    /// Numbers in one epoch; with `Draws` there is one epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How often its units are gone through.
    pub fn epochs(&self) -> u64 {
        self.epochs
    }

    /// Numbers in all.
    pub fn numbers(&self) -> u64 {
        self.epoch.saturating_mul(self.epochs)
    }

    /// Which numbers worker `worker` of client `client` takes.
    pub fn part(&self, fleet: &ClientSet, client: u32, worker: u32) -> SequencePart {
        let (all, me) =
            (fleet.workers_in_all().max(1), u64::from(client) * u64::from(fleet.workers) + u64::from(worker));
        let cut = |n: u64| (u128::from(self.epoch) * u128::from(n) / u128::from(all)) as u64;
        match self.work.share {
            // With private files each client has its own, and the sequence is shared by its workers only.
            _ if self.layout.private && self.work.share != Sharing::Worker => SequencePart::NextOfClient,
            Sharing::Split => SequencePart::Own { within: cut(me)..cut(me + 1), step: 1 },
            Sharing::Interleaved => SequencePart::Own { within: me.min(self.epoch)..self.epoch, step: all },
            Sharing::Client => SequencePart::NextOfClient,
            Sharing::Worker => SequencePart::Own { within: 0..self.epoch, step: 1 },
        }
    }

    /// The n-th number of a part; `None` after its last.
    pub fn number(&self, part: &SequencePart, n: u64) -> Option<u64> {
        let SequencePart::Own { within, step } = part else { return (n < self.numbers()).then_some(n) };
        let each = (within.end - within.start).div_ceil(*step);
        let (epoch, inside) = (n.checked_div(each)?, n % each.max(1));
        let number = within.start.checked_add(inside.checked_mul(*step)?)?;
        (epoch < self.epochs).then(|| epoch.saturating_mul(self.epoch).saturating_add(number))
    }

    /// The touch of that number; `None` if the slot is empty: a block beyond the end of a shorter file.
    pub fn at(&self, number: u64) -> Option<Touch> {
        let (epoch, index) = (number.checked_div(self.epoch)?, number % self.epoch);
        let slots = slots(&self.layout, &self.work, self.blocks_max);
        match self.work.order {
            AccessOrder::Sequential | AccessOrder::Strided(_) => self.touch(index % slots, number),
            AccessOrder::Random => {
                // With draws the order goes on into the next permutation when one is through.
                let (epoch, index) = (epoch + index / slots, index % slots);
                self.touch(Permutation::new(slots, mix_all(&[self.seed, epoch])).at(index), number)
            }
            AccessOrder::Uniform | AccessOrder::Zipf { .. } | AccessOrder::Hotspot { .. } => {
                (0..REDRAWS_MAX).find_map(|attempt| self.touch(self.draw(slots, number, attempt), number))
            }
        }
    }

    /// One of the slots, with repetitions.
    fn draw(&self, slots: u64, number: u64, attempt: u64) -> u64 {
        let random = |i: u64| mix_all(&[self.seed, number, attempt, i]);
        let uniform = |i: u64| (random(i) >> 11) as f64 / (1_u64 << 53) as f64;
        let below = |i: u64, n: u64| ((u128::from(random(i)) * u128::from(n)) >> 64) as u64;
        // The popular ones are popular with everybody, and lie anywhere.
        let popular = |rank| Permutation::new(slots, mix_all(&[self.work.seed, 3])).at(rank);
        match self.work.order {
            AccessOrder::Zipf { theta } => popular(zipf(slots, theta, random(0))),
            AccessOrder::Hotspot { hot_percent, access_percent } => {
                let hot = ((slots as f64 * hot_percent / 100.0).ceil() as u64).clamp(1, slots);
                let cold = slots - hot;
                if cold == 0 || uniform(0) * 100.0 < access_percent {
                    popular(below(1, hot))
                } else {
                    popular(hot + below(1, cold))
                }
            }
            _ => below(0, slots),
        }
    }

    fn touch(&self, slot: u64, number: u64) -> Option<Touch> {
        if self.work.operation == LoadOperation::Walk {
            return Some(Touch::Walk(slot));
        }
        let block_bytes = self.work.block_bytes;
        let part = match self.work.unit {
            TouchUnit::File => FilePart { file: slot, offset: 0, length: self.layout.size_of(slot) },
            TouchUnit::Block => {
                let (file, block) = (slot / self.blocks_max, slot % self.blocks_max);
                let block = match self.work.order {
                    AccessOrder::Strided(stride) => strided(block, self.blocks_max, stride),
                    _ => block,
                };
                let (size, offset) = (self.layout.size_of(file), block.saturating_mul(block_bytes));
                // An empty file still has its first slot, so that it is touched.
                if offset >= size && offset > 0 {
                    return None;
                }
                FilePart { file, offset, length: block_bytes.min(size - offset) }
            }
        };
        Some(match self.work.operation {
            LoadOperation::Write => Touch::Write(part),
            LoadOperation::Stat => Touch::Stat(part.file),
            LoadOperation::Mixed(mix) => self.mixed(mix, number, part),
            LoadOperation::Read | LoadOperation::Walk => Touch::Read(part),
        })
    }

    fn mixed(&self, mix: Mix, number: u64, part: FilePart) -> Touch {
        let directory = self.layout.directory_of(part.file);
        let block_bytes = self.work.block_bytes.max(1);
        let blocks = part.length.div_ceil(block_bytes).max(1);
        let at = mix_all(&[self.seed, RANGE, number]) % blocks * block_bytes;
        let range = FilePart { offset: part.offset + at, length: block_bytes.min(part.length - at), ..part };
        let weighted = [
            (mix.read, Touch::Read(part)),
            (mix.write, Touch::Write(part)),
            (mix.stat, Touch::Stat(part.file)),
            (mix.list, Touch::List(directory)),
            (mix.delete, Touch::Delete(directory)),
        ];
        let mut drawn = mix_all(&[self.seed, MIXTURE, number]) % mix.sum().max(1);
        for (weight, touch) in weighted {
            match drawn.checked_sub(weight.into()) {
                Some(rest) => drawn = rest,
                None => return touch,
            }
        }
        Touch::Read(range)
    }
}

/// A rank of `n`, from 0 on: that of number k, from 1 on, is drawn in proportion to 1 / k^theta.
pub(super) fn zipf(n: u64, theta: f64, seed: u64) -> u64 {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    // Only what the shape's check refuses has no distribution.
    let number = Zipf::new(n as f64, theta).map_or(1.0, |zipf| zipf.sample(&mut random));
    (number as u64).clamp(1, n.max(1)) - 1
}

/// What can be touched: directories, files, or places for blocks.
fn slots(layout: &Layout, work: &LoadWork, blocks_max: u64) -> u64 {
    let slots = match (work.operation, work.unit) {
        (LoadOperation::Walk, _) => layout.directories(),
        (_, TouchUnit::File) => layout.files,
        (_, TouchUnit::Block) => layout.files.saturating_mul(blocks_max),
    };
    slots.max(1)
}

/// The n-th of `blocks` when they are gone through with a stride: 0, s, 2s, ..., 1, 1 + s, ...
fn strided(n: u64, blocks: u64, stride: u64) -> u64 {
    let stride = stride.clamp(1, blocks.max(1));
    let (rows, longer) = (blocks / stride, blocks % stride);
    // The first `longer` columns have one block more than the others.
    let (column, row) = match n.checked_sub(longer.saturating_mul(rows + 1)) {
        Some(past) => (longer + past / rows, past % rows),
        None => (n / (rows + 1), n % (rows + 1)),
    };
    row.saturating_mul(stride).saturating_add(column)
}
