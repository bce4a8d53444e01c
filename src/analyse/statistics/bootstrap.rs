//! Percentile bootstrap of a mean of paired differences.
//!
//! In: one difference a question. Out: a 95 % interval of their mean, from seeded draws of whole pairs with replacement
//! (Efron & Tibshirani 1993, chapter 13).

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::Interval;

/// Resamples of one interval.
pub const DRAWS: usize = 10_000;

/// The interval between the 2.5 % and 97.5 % quantiles of the resampled means; `None` of no pair. The same differences and seed give
/// the same digits on every machine.
pub fn paired_bootstrap(differences: &[f64], seed: u64) -> Option<Interval> {
    if differences.is_empty() {
        return None;
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let n = differences.len();
    let mut means: Vec<f64> =
        (0..DRAWS).map(|_| (0..n).map(|_| differences[below(&mut random, n)]).sum::<f64>() / n as f64).collect();
    means.sort_by(f64::total_cmp);
    Some(Interval { low: quantile(&means, 0.025), high: quantile(&means, 0.975) })
}

/// A number below n: the high half of a 128-bit product, whose bias is at most n / 2^64.
fn below(random: &mut ChaCha8Rng, n: usize) -> usize {
    ((u128::from(random.next_u64()) * n as u128) >> 64) as usize
}

/// The q-quantile of sorted values with linear interpolation between neighbours (numpy's default).
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let place = q * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// numpy 2: `np.quantile([1, 2, 3, 4, 10], [0.025, 0.975])` is [1.1, 9.4].
    #[test]
    fn quantiles_interpolate() {
        let sorted = [1.0, 2.0, 3.0, 4.0, 10.0];
        assert!((quantile(&sorted, 0.025) - 1.1).abs() < 1e-12);
        assert!((quantile(&sorted, 0.975) - 9.4).abs() < 1e-12);
    }

    /// scipy 1.17.1: `d = np.arange(1, 41) % 7 - 2.5`,
    /// `bootstrap((d,), np.mean, n_resamples=200000, method="percentile", random_state=0)` gives (-0.1, 1.1).
    /// 10,000 draws place a quantile within 0.03 of it: the density there is near 0.19 a unit, √(0.025·0.975/10⁴)/0.19 = 0.008.
    #[test]
    fn agrees_with_scipy() {
        let d: Vec<f64> = (1..41).map(|i| f64::from(i % 7) - 2.5).collect();
        let found = paired_bootstrap(&d, 0).unwrap();
        assert!((found.low + 0.1).abs() < 0.03 && (found.high - 1.1).abs() < 0.03, "{found:?}");
        assert_eq!(paired_bootstrap(&d, 0), Some(found), "the seed decides");
    }

    #[test]
    fn equal_differences_leave_no_width() {
        assert_eq!(paired_bootstrap(&[-2.0; 7], 3), Some(Interval { low: -2.0, high: -2.0 }));
        assert_eq!(paired_bootstrap(&[], 3), None);
    }
}
