//! How a cache gets warm, from looks at the counters, and where it becomes too small. Pure.

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CounterLook {
    pub hit: u64,
    pub miss: u64,
    pub used: u64,
}

/// One interval in which something was served.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServedInterval {
    /// Its end, seconds after the first byte that was served.
    pub at: f64,
    pub hit_percent: f64,
    /// Bytes a second.
    pub rate: f64,
    /// More in the cache than at the start.
    pub resident: u64,
}

pub fn moments(looks: &[(f64, CounterLook)]) -> Vec<ServedInterval> {
    let served = |look: &CounterLook| look.hit + look.miss;
    let begin = looks.windows(2).find(|pair| served(&pair[1].1) > served(&pair[0].1)).map(|pair| pair[0].0);
    let (Some(begin), Some((_, empty))) = (begin, looks.first()) else { return Vec::new() };
    let moment = |pair: &[(f64, CounterLook)]| {
        let ((from, before), (to, after)) = (pair[0], pair[1]);
        let moved = served(&after).saturating_sub(served(&before));
        (moved > 0 && to > from).then(|| ServedInterval {
            at: to - begin,
            hit_percent: after.hit.saturating_sub(before.hit) as f64 / moved as f64 * 100.0,
            rate: moved as f64 / (to - from),
            resident: after.used.saturating_sub(empty.used),
        })
    };
    looks.windows(2).filter_map(moment).collect()
}

/// Seconds until the hits reach `percent`, and stay there; None if they never do.
pub fn time_to(moments: &[ServedInterval], percent: f64) -> Option<f64> {
    let (last, before) = moments.split_last()?;
    if last.hit_percent < percent {
        return None;
    }
    Some(before.iter().rev().find(|moment| moment.hit_percent < percent).map_or(0.0, |moment| moment.at))
}

/// The eviction cliff: the step from one size of the data set to the next at which the cache's effect falls most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cliff {
    /// Data set / cache size, before and after; percent of bytes at each.
    pub from: (f64, f64),
    pub to: (f64, f64),
}

/// Percent of hits. What falls by less over the whole sweep is no cliff.
const CLIFF_MIN: f64 = 5.0;

/// `hits`: (data set / cache size, percent of hits), by rising size.
pub fn cliff(hits: &[(f64, f64)]) -> Option<Cliff> {
    let fall = |pair: &&[(f64, f64)]| pair[0].1 - pair[1].1;
    let steepest = hits.windows(2).max_by(|a, b| fall(a).total_cmp(&fall(b)))?;
    (fall(&steepest) >= CLIFF_MIN).then(|| Cliff { from: steepest[0], to: steepest[1] })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(hit: u64, miss: u64, used: u64) -> CounterLook {
        CounterLook { hit, miss, used }
    }

    #[test]
    fn time_counts_from_the_first_byte_and_idle_intervals_are_left_out() {
        let looks = [
            (0.0, look(10, 10, 5)),
            (1.0, look(10, 10, 5)),
            (2.0, look(10, 110, 105)),
            (3.0, look(10, 110, 105)),
            (4.0, look(85, 135, 130)),
        ];
        let all = moments(&looks);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0], ServedInterval { at: 1.0, hit_percent: 0.0, rate: 100.0, resident: 100 });
        assert_eq!(all[1], ServedInterval { at: 3.0, hit_percent: 75.0, rate: 100.0, resident: 125 });
        assert_eq!(moments(&looks[..2]), []);
        assert_eq!(moments(&[]), []);
    }

    #[test]
    fn hits_have_been_reached_when_they_stay() {
        let of = |hits: &[f64]| -> Vec<ServedInterval> {
            let moment = |(i, hit): (usize, &f64)| ServedInterval {
                at: (i + 1) as f64,
                hit_percent: *hit,
                rate: 1.0,
                resident: 0,
            };
            hits.iter().enumerate().map(moment).collect()
        };
        let rising = of(&[10.0, 60.0, 40.0, 70.0, 95.0, 100.0]);
        assert_eq!(time_to(&rising, 50.0), Some(3.0));
        assert_eq!(time_to(&rising, 90.0), Some(4.0));
        assert_eq!(time_to(&rising, 99.0), Some(5.0));
        assert_eq!(time_to(&of(&[100.0, 98.0]), 99.0), None);
        assert_eq!(time_to(&of(&[100.0]), 99.0), Some(0.0));
        assert_eq!(time_to(&[], 50.0), None);
    }

    #[test]
    fn the_cliff_is_the_steepest_step_and_a_slope_of_nothing_is_none() {
        let hits = [(0.5, 100.0), (1.0, 97.0), (1.25, 30.0), (4.0, 2.0)];
        assert_eq!(cliff(&hits), Some(Cliff { from: (1.0, 97.0), to: (1.25, 30.0) }));
        assert_eq!(cliff(&[(0.5, 100.0), (1.0, 98.0)]), None);
        assert_eq!(cliff(&hits[..1]), None);
    }
}
