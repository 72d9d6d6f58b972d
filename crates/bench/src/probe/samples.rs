//! Repeated operations: without a relay until there are enough for a median and a p99, and over the injected distances
//! in turns, so that a drift of the server falls on all distances alike.

use std::time::Instant;

use relay::SplitMix;
use strum::VariantArray;
use types::{Error, Result};

use super::calls::Seconds;
use super::far::FarNfs;
use super::objects::ProbeObjects;
use super::operation::ProbeOperation;
use super::{Config, wrong};

/// Fewer have no confidence interval of the median.
const SAMPLES_MIN: usize = 6;

pub struct Timed {
    pub operation: ProbeOperation,
    pub direct: Seconds,
    /// At each of the injected distances, in their order.
    pub far: Vec<Seconds>,
}

/// The samples of one operation without a relay: until there are enough of them, or they have taken long enough.
pub struct Sampling<'a> {
    config: &'a Config,
    start: Instant,
    pub times: Seconds,
}

impl Sampling<'_> {
    pub fn start(config: &Config) -> Sampling<'_> {
        Sampling { config, start: Instant::now(), times: Vec::new() }
    }

    pub fn goes_on(&self) -> bool {
        let in_time = self.start.elapsed() < self.config.sample_time;
        self.times.len() < self.config.samples && (in_time || self.times.len() < SAMPLES_MIN)
    }
}

/// Each operation that the target has something for, one after the other.
pub async fn direct(view: &FarNfs, objects: &ProbeObjects, config: &Config) -> Result<Vec<Timed>> {
    let mut all = Vec::new();
    for &operation in ProbeOperation::VARIANTS {
        let mut sampling = Sampling::start(config);
        // The first one may find caches and connections cold that the others find warm.
        let first = view.time(operation, objects, config.write).await;
        if first.map_err(|e| explained(operation, e))?.is_none() {
            continue;
        }
        while sampling.goes_on() {
            sampling.times.extend(view.time(operation, objects, config.write).await?);
        }
        all.push(Timed { operation, direct: sampling.times, far: Vec::new() });
    }
    Ok(all)
}

/// An operation that was asked for, and that the target does not take.
fn explained(operation: ProbeOperation, error: Error) -> Error {
    match operation {
        ProbeOperation::CreateWriteClose => {
            wrong(format!("--write: {error}; leave --write out, or give an export that may be written to"))
        }
        _ => error,
    }
}

/// Adds the times over `lines` to what was measured without.
pub async fn far(
    timed: &mut [Timed],
    lines: &[FarNfs],
    objects: &ProbeObjects,
    config: &Config,
) -> Result<()> {
    let mut random = SplitMix::new(config.seed);
    let mut order: Vec<usize> = (0..lines.len()).collect();
    for one in timed.iter_mut() {
        one.far = vec![Vec::new(); lines.len()];
    }
    // One for warming up, which is thrown away.
    for repetition in 0..=config.repetitions {
        random.shuffle(&mut order);
        for &at in &order {
            let Some(view) = lines.get(at) else { continue };
            for one in timed.iter_mut() {
                let took = view.time(one.operation, objects, true).await?;
                if let (Some(took), Some(times), 1..) = (took, one.far.get_mut(at), repetition) {
                    times.push(took);
                }
            }
        }
    }
    Ok(())
}
