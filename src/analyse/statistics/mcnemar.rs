//! McNemar's exact test of two methods on the same questions.
//!
//! In: both discordant counts. Out: the two-sided binomial p-value (McNemar 1947, Psychometrika 12, 153; exact form).

/// min(1, 2 P(X <= min(b, c))) for X ~ Bin(b + c, 1/2), where b questions are right only for the one method and c only for the other.
/// No discordant question gives 1.
pub fn mcnemar_exact(b: u64, c: u64) -> f64 {
    let (k, n) = (b.min(c), b + c);
    // In logarithms, since 2^-n leaves the range of f64 at n = 1075.
    let ln_choose: f64 = (1..=k).map(|i| ((n - k + i) as f64 / i as f64).ln()).sum();
    // P(X <= k) / P(X = k) = 1 + k/(n-k+1) + k(k-1)/((n-k+1)(n-k+2)) + …
    let (mut term, mut relative) = (1.0, 1.0);
    for j in (1..=k).rev() {
        term *= j as f64 / (n - j + 1) as f64;
        relative += term;
    }
    let tail = (ln_choose - n as f64 * std::f64::consts::LN_2).exp() * relative;
    (2.0 * tail).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// statsmodels 0.15.0: `mcnemar([[0, b], [c, 0]], exact=True).pvalue`.
    #[test]
    fn agrees_with_statsmodels() {
        for (b, c, p) in [
            (5, 15, 0.04138946533203125),
            (15, 5, 0.04138946533203125),
            (0, 0, 1.0),
            (1, 1, 1.0),
            (3, 4, 1.0),
            (0, 10, 0.001953125),
            (121, 59, 4.4344492637551645e-06),
            (800, 900, 0.016320682494448686),
            (1200, 1217, 0.7448496004494617),
        ] {
            let found = mcnemar_exact(b, c);
            assert!((found - p).abs() <= 1e-10 * p, "{b}, {c}: {found} is not {p}");
        }
    }
}
