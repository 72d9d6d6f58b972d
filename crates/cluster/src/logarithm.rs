//! The natural logarithm of a hash, in fixed point: equal to the bit on every build and machine, which no floating
//! point logarithm is.
//!
//! A hash stands for a fraction `x` of 0 to 1. `x = m / 2^h` with `m` in [1/2, 1); `m = c * (1 - t)` with `c` the next
//! of the 257 fractions `1 - i/512` that is not below `m`. So `-ln(x) = h * ln(2) - ln(c) - ln(1 - t)`: the first two
//! are in a table, which the compiler makes from the series, and for the last one four terms of the series
//! `t + t^2/2 + t^3/3 + ..` are enough, because `t` is at most 1/256. All sums are of positive numbers, and where `x`
//! is near 1, where the scores that win are, `c` is 1 and the result has no error but that of the series.

/// The result counts units of `1 / 2^58`: the largest, of `1 / 2^64`, is 44.4.
pub const FRACTION_BITS: u32 = 58;

/// The table has an entry for each 512th from 1 down to 1/2.
const STEP_BITS: u32 = 9;
const STEPS: usize = 1 << (STEP_BITS - 1);

/// `-ln(1 - i/512)` for `i` of 0 to 256.
static MINUS_LN: [u64; STEPS + 1] = minus_ln_of_steps();
const LN_2: u64 = minus_ln_of_steps()[STEPS];

/// By the series `x + x^2/2 + x^3/3 + ..` with 112 binary places, until its terms vanish.
const fn minus_ln_of_steps() -> [u64; STEPS + 1] {
    const PLACES: u32 = 112;
    let mut table = [0; STEPS + 1];
    let mut step = 1;
    while step <= STEPS {
        let mut power = (step as u128) << (PLACES - STEP_BITS);
        let (mut sum, mut term) = (0, 1);
        while power > 0 {
            sum += power / term;
            power = (power * step as u128) >> STEP_BITS;
            term += 1;
        }
        let rounded = sum + (1 << (PLACES - FRACTION_BITS - 1));
        table[step] = (rounded >> (PLACES - FRACTION_BITS)) as u64;
        step += 1;
    }
    table
}

/// `-ln(x)` of the fraction `x = hash / 2^64`, in units of `1 / 2^FRACTION_BITS`. The last bit of the hash counts as
/// set, which keeps `x` off 0 and 1. The result is at least 1, and never grows while the hash grows.
///
/// The error is at most `2^-33` of the result and four units.
pub fn minus_ln(hash: u64) -> u64 {
    let odd = hash | 1;
    let halvings = odd.leading_zeros();
    // Fractions of 2^64 from here on.
    let below_one = (odd << halvings).wrapping_neg();
    let step = below_one >> (64 - STEP_BITS);
    let below_step = below_one & (u64::MAX >> STEP_BITS);
    let t = (below_step << STEP_BITS) / ((1 << STEP_BITS) - step);
    let times = |a: u64, b: u64| ((u128::from(a) * u128::from(b)) >> 64) as u64;
    const HALF: u64 = 1 << 63;
    const THIRD: u64 = u64::MAX / 3;
    let series = t + times(t, times(t, HALF + times(t, THIRD + t / 4)));
    let sum = u64::from(halvings) * LN_2 + MINUS_LN[step as usize] + (series >> (64 - FRACTION_BITS));
    sum.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(hash: u64) -> f64 {
        let odd = hash | 1;
        let two_64 = 2f64.powi(64);
        match odd >> 63 {
            1 => -(-(odd.wrapping_neg() as f64) / two_64).ln_1p(),
            _ => -(odd as f64 / two_64).ln(),
        }
    }

    /// Hashes near each border of halvings and steps, and many between.
    fn hashes() -> Vec<u64> {
        let mut hashes: Vec<u64> = Vec::new();
        for halvings in 0..64 {
            for step in 0..=STEPS as u64 {
                let border = (((1 << STEP_BITS) - step) as u128) << (64 - STEP_BITS) >> halvings;
                let around = |by: i128| u64::try_from(border as i128 + by).ok();
                hashes.extend([-3, -2, -1, 0, 1, 2, 3].into_iter().filter_map(around));
            }
        }
        let mut hash = 1u64;
        for _ in 0..20_000 {
            hash = hash.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            hashes.extend([hash, u64::MAX - (hash >> (hash % 60))]);
        }
        hashes.sort_unstable();
        hashes
    }

    #[test]
    fn the_logarithm_is_right_to_nine_places() {
        for hash in hashes() {
            let (is, exact) = (minus_ln(hash) as f64 / 2f64.powi(FRACTION_BITS as i32), exact(hash));
            let error = (is - exact).abs();
            assert!(error < 2f64.powi(-56) + exact * 2f64.powi(-33), "{hash:016x}: {is} and not {exact}");
        }
    }

    #[test]
    fn a_larger_hash_has_no_larger_logarithm() {
        for pair in hashes().windows(2) {
            assert!(minus_ln(pair[0]) >= minus_ln(pair[1]), "{:016x} {:016x}", pair[0], pair[1]);
        }
    }

    #[test]
    fn the_ends_are_what_they_should_be() {
        assert_eq!(minus_ln(u64::MAX), 1);
        assert_eq!(minus_ln(0), minus_ln(1));
        assert_eq!(minus_ln(1), 64 * LN_2);
        // ln(2) = 0.b17217f7d1cf79abc9e3.. in base 16.
        assert_eq!(LN_2, 0xb172_17f7_d1cf_79ab_u64.div_ceil(64));
    }
}
