//! Holm's correction for several tests of one table.
//!
//! In: p-values. Out: adjusted p-values in the same order (Holm 1979, Scand. J. Stat. 6, 65).

/// The i-th smallest of m p-values times m - i + 1, made monotone and cut at 1.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut adjusted = vec![0.0; p_values.len()];
    let mut largest: f64 = 0.0;
    for (rank, at) in order.into_iter().enumerate() {
        largest = largest.max(p_values[at] * (p_values.len() - rank) as f64).min(1.0);
        adjusted[at] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// statsmodels 0.15.0: `multipletests(p, method="holm")[1]`.
    #[test]
    fn agrees_with_statsmodels() {
        for (p, expected) in [
            (vec![0.01, 0.04, 0.03, 0.005], vec![0.03, 0.06, 0.06, 0.02]),
            (vec![0.6, 0.001, 0.02, 0.02, 0.9], vec![1.0, 0.005, 0.08, 0.08, 1.0]),
            (vec![], vec![]),
        ] {
            let found = holm(&p);
            assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-12), "{found:?}");
            assert_eq!(found.len(), expected.len());
        }
    }
}
