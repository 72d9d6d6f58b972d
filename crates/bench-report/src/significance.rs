//! Is B different from A? Rank tests, the size of the shift, and the correction for asking many questions at once.
//!
//! Small samples are tested exactly, ties included: every way to split the pooled ranks is counted. Large samples use
//! the normal approximation. Ranks, because run times are not normal and one straggler must not decide.

use crate::distribution::{ALPHA, median, normal_cdf, normal_quantile};

/// Pooled sizes up to this are tested exactly: the counts of splits (up to C(50, 25)) are exact in an f64.
const EXACT_MAX: usize = 50;
/// So many order statistics stand for all of a larger sample when pairs are formed: a million pairs are enough.
const PAIRED_MAX: usize = 1000;

/// b / a - 1: +0.1 is ten percent more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    pub relative: f64,
    pub interval: Option<(f64, f64)>,
}

/// Mann-Whitney's test: the two-sided probability of a difference so large by chance. None if a side is empty or has a value
/// that is not finite.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() || a.iter().chain(b).any(|v| !v.is_finite()) {
        return None;
    }
    let ranks = doubled_ranks(a, b);
    let rank_sum: u64 = ranks.iter().skip(a.len()).sum();
    let exact = a.len() + b.len() <= EXACT_MAX;
    Some(if exact {
        exact_p(&ranks, b.len(), rank_sum)
    } else {
        normal_p(&ranks, a.len(), b.len(), rank_sum)
    })
}

/// The effect as a ratio: the Hodges-Lehmann shift of the logarithms, or, where a value is not positive, the shift
/// relative to the median of `a`.
pub fn effect(a: &[f64], b: &[f64]) -> Option<Effect> {
    if a.iter().chain(b).all(|v| *v > 0.0 && v.is_finite()) {
        let logs = |values: &[f64]| values.iter().map(|v| v.ln()).collect::<Vec<_>>();
        let (shift, interval) = hodges_lehmann(&logs(a), &logs(b))?;
        let interval = interval.map(|(low, high)| (low.exp_m1(), high.exp_m1()));
        return Some(Effect { relative: shift.exp_m1(), interval });
    }
    let base = median(a).filter(|m| *m != 0.0)?.abs();
    let (shift, interval) = hodges_lehmann(a, b)?;
    Some(Effect { relative: shift / base, interval: interval.map(|(low, high)| (low / base, high / base)) })
}

/// The smallest p that `n` and `m` repetitions can give: two in all ways to split them.
pub fn smallest_p(n: usize, m: usize) -> f64 {
    let smaller = n.min(m);
    let ways = (1..=smaller).fold(1.0, |ways, i| ways * (n + m - smaller + i) as f64 / i as f64);
    (2.0 / ways).min(1.0)
}

/// Holm's correction: the probabilities to compare with the level when all of them are looked at. In their order.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<(usize, f64)> = p.iter().copied().enumerate().collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut corrected = p.to_vec();
    let mut so_far: f64 = 0.0;
    for (rank, (index, p)) in order.iter().enumerate() {
        so_far = so_far.max(p * (order.len() - rank) as f64).min(1.0);
        if let Some(slot) = corrected.get_mut(*index) {
            *slot = so_far;
        }
    }
    corrected
}

/// Mann-Kendall: the two-sided probability that values in random order have a trend so strong. None below five
/// values, where no order is improbable enough to say anything, and above a thousand, whose pairs would take long.
pub fn kendall(values: &[f64]) -> Option<f64> {
    let n = values.len();
    if !(5..=PAIRED_MAX).contains(&n) {
        return None;
    }
    let mut score = 0i64;
    let mut tied = false;
    for (i, a) in values.iter().enumerate() {
        for b in values.iter().skip(i + 1) {
            match a.partial_cmp(b)? {
                std::cmp::Ordering::Less => score += 1,
                std::cmp::Ordering::Greater => score -= 1,
                std::cmp::Ordering::Equal => tied = true,
            }
        }
    }
    if n <= EXACT_MAX && !tied {
        return Some(kendall_exact(n, score.unsigned_abs() as usize));
    }
    let ties: f64 = tie_groups(values).iter().map(|t| t * (t - 1.0) * (2.0 * t + 5.0)).sum();
    let n = n as f64;
    let variance = (n * (n - 1.0) * (2.0 * n + 5.0) - ties) / 18.0;
    if variance <= 0.0 {
        return Some(1.0);
    }
    Some(two_sided((score.abs() as f64 - 1.0).max(0.0) / variance.sqrt()))
}

/// The exact probability, by the number of permutations with each number of inversions.
fn kendall_exact(n: usize, score: usize) -> f64 {
    let pairs = n * (n - 1) / 2;
    let mut share = vec![0.0; pairs + 1];
    if let Some(first) = share.first_mut() {
        *first = 1.0;
    }
    for length in 2..=n {
        // The new largest element adds 0..length inversions, each as probable.
        let mut next = vec![0.0; pairs + 1];
        for (inversions, probability) in share.iter().enumerate() {
            for slot in next.iter_mut().skip(inversions).take(length) {
                *slot += probability / length as f64;
            }
        }
        share = next;
    }
    // A score s means (pairs - s) / 2 inversions; both tails.
    let most = (pairs - score.min(pairs)) / 2;
    (2.0 * share.iter().take(most + 1).sum::<f64>()).min(1.0)
}

/// Twice the midrank of each value of `a`, then of `b`, in the pooled order: whole numbers even for ties.
fn doubled_ranks(a: &[f64], b: &[f64]) -> Vec<u64> {
    let mut order: Vec<(usize, f64)> = a.iter().chain(b).copied().enumerate().collect();
    order.sort_by(|x, y| x.1.total_cmp(&y.1));
    let mut ranks = vec![0; order.len()];
    let mut first = 0;
    for group in order.chunk_by(|x, y| x.1 == y.1) {
        let doubled = (2 * first + group.len() + 1) as u64;
        for (index, _) in group {
            if let Some(rank) = ranks.get_mut(*index) {
                *rank = doubled;
            }
        }
        first += group.len();
    }
    ranks
}

/// The share of all ways to choose `chosen` of the ranks whose sum is at least as far from the middle.
fn exact_p(doubled: &[u64], chosen: usize, rank_sum: u64) -> f64 {
    let total: u64 = doubled.iter().sum();
    let ways = ways_by_sum(doubled.iter().map(|rank| *rank as usize), chosen, total as usize);
    let n = doubled.len() as u64;
    // The middle is total * chosen / n; compared times n, in whole numbers.
    let distance = |sum: u64| (sum * n).abs_diff(total * chosen as u64);
    let observed = distance(rank_sum);
    let far = ways.iter().enumerate().filter(|(sum, _)| distance(*sum as u64) >= observed);
    (far.map(|(_, count)| count).sum::<f64>() / ways.iter().sum::<f64>()).min(1.0)
}

/// For each sum up to `total`: in how many ways `chosen` of the ranks make it.
fn ways_by_sum(ranks: impl IntoIterator<Item = usize>, chosen: usize, total: usize) -> Vec<f64> {
    // ways[k][s]: subsets of k ranks with sum s.
    let mut ways = vec![vec![0.0f64; total + 1]; chosen + 1];
    if let Some(empty) = ways.first_mut().and_then(|row| row.first_mut()) {
        *empty = 1.0;
    }
    for rank in ranks {
        for k in (1..=chosen).rev() {
            let (fewer, more) = ways.split_at_mut(k);
            let (Some(from), Some(to)) = (fewer.last(), more.first_mut()) else { continue };
            for (slot, count) in to.iter_mut().skip(rank).zip(from) {
                *slot += count;
            }
        }
    }
    ways.pop().unwrap_or_default()
}

/// Normal approximation with the correction for ties and for continuity.
fn normal_p(doubled: &[u64], n: usize, m: usize, rank_sum: u64) -> f64 {
    let values: Vec<f64> = doubled.iter().map(|r| *r as f64).collect();
    let (n, m) = (n as f64, m as f64);
    // Pairs (a, b) with b > a, ties counting half.
    let u = rank_sum as f64 / 2.0 - m * (m + 1.0) / 2.0;
    let pooled = n + m;
    let ties: f64 = tie_groups(&values).iter().map(|t| t * t * t - t).sum();
    let variance = n * m / 12.0 * (pooled + 1.0 - ties / (pooled * (pooled - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    two_sided(((u - n * m / 2.0).abs() - 0.5).max(0.0) / variance.sqrt())
}

fn two_sided(z: f64) -> f64 {
    (2.0 * normal_cdf(-z.abs())).min(1.0)
}

fn tie_groups(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.chunk_by(|a, b| a == b).map(|group| group.len() as f64).collect()
}

type Shift = (f64, Option<(f64, f64)>);

/// The median of all differences, and the differences that enclose the true shift.
fn hodges_lehmann(a: &[f64], b: &[f64]) -> Option<Shift> {
    let (few_a, few_b) = (thinned(a), thinned(b));
    let mut differences: Vec<f64> = few_b.iter().flat_map(|b| few_a.iter().map(move |a| b - a)).collect();
    let shift = median(&differences)?;
    differences.sort_by(f64::total_cmp);
    let interval = differences_outside(a.len(), b.len()).and_then(|outside| {
        let share = (few_a.len() * few_b.len()) as f64 / (a.len() * b.len()) as f64;
        let outside = (outside as f64 * share) as usize;
        let low = differences.get(outside)?;
        let high = differences.get(differences.len().checked_sub(outside + 1)?)?;
        Some((*low, *high))
    });
    Some((shift, interval))
}

/// All values, or that many order statistics at even distances.
fn thinned(values: &[f64]) -> Vec<f64> {
    if values.len() <= PAIRED_MAX {
        return values.to_vec();
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = |i: usize| (2 * i + 1) * sorted.len() / (2 * PAIRED_MAX);
    (0..PAIRED_MAX).filter_map(|i| sorted.get(place(i)).copied()).collect()
}

/// The number of sorted differences that lie outside the 95 % interval, at each end.
fn differences_outside(n: usize, m: usize) -> Option<usize> {
    if n + m > EXACT_MAX {
        let (n, m) = (n as f64, m as f64);
        let half = normal_quantile(1.0 - ALPHA / 2.0) * (n * m * (n + m + 1.0) / 12.0).sqrt();
        return Some((n * m / 2.0 - half - 1.0).max(0.0) as usize);
    }
    // Without ties the number of pairs (U) is the sum of one side's ranks above the least that it can be.
    let (least, ranks) = (m * (m + 1) / 2, 1..=n + m);
    let ways = ways_by_sum(ranks, m, least + n * m);
    let all: f64 = ways.iter().sum();
    let mut tail = 0.0;
    // The largest u with P(U <= u) <= 2.5 %: so many differences may be left out at each end.
    let tails = ways.iter().skip(least).take_while(|count| {
        tail += **count / all;
        2.0 * tail <= ALPHA
    });
    tails.count().checked_sub(1)
}

#[cfg(test)]
mod tests;
