//! Wilson's score interval of one proportion.
//!
//! In: hits and trials. Out: a 95 % interval that stays within 0 and 1, also for 0 hits and for all
//! (Wilson 1927, J. Am. Stat. Assoc. 22, 209).

use super::Interval;
use crate::analyse::Share;

/// The 97.5 % quantile of the standard normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n); `None` of no trials.
pub fn wilson(share: Share) -> Option<Interval> {
    if share.of == 0 {
        return None;
    }
    let n = share.of as f64;
    let p = share.hits as f64 / n;
    let centre = p + Z * Z / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    Some(Interval { low: ((centre - half) / scale).max(0.0), high: ((centre + half) / scale).min(1.0) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// statsmodels 0.15.0: `proportion_confint(k, n, method="wilson")`.
    #[test]
    fn agrees_with_statsmodels() {
        for (hits, of, low, high) in [
            (8, 10, 0.49016247153664183, 0.9433178485456247),
            (0, 5, 0.0, 0.43448246478317487),
            (5, 5, 0.5655175352168252, 1.0),
            (43, 999, 0.03211091988950797, 0.057475981440184246),
            (870, 1000, 0.8477319733455312, 0.8894362253751581),
        ] {
            let found = wilson(Share { hits, of }).unwrap();
            assert!((found.low - low).abs() < 1e-12 && (found.high - high).abs() < 1e-12, "{hits}/{of}: {found:?}");
        }
        assert_eq!(wilson(Share { hits: 0, of: 0 }), None);
    }
}
