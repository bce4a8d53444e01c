//! Passage weights of the reset vector (spec 2.4): min-max normalised dense similarity plus an entity bonus.

use crate::math::graph::WeightedCsr;
use crate::math::propagation::Active;

/// `(x - min) / (max - min)`; all ones when every value is equal.
pub fn min_max_normalize(values: &[f64]) -> Vec<f64> {
    let min = values.iter().copied().fold(f64::INFINITY, f64::min);
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if max > min { values.iter().map(|v| (v - min) / (max - min)).collect() } else { vec![1.0; values.len()] }
}

/// `bonus(p) = Σ_{active e} score_e · ln(1 + occ(e, p)) / max(tier_e, 1)`, the sum over ascending entity ids.
///
/// `occurrences`: entity → (passage, ln(1 + occ)), only passages where occ > 0. Shape of the result: `[n_passages]`.
pub fn entity_bonus(active: &[Active], occurrences: &WeightedCsr<f64>, n_passages: usize) -> Vec<f64> {
    let mut bonus = vec![0.0; n_passages];
    for a in active {
        let (passages, ln_occ) = occurrences.row(a.entity as usize);
        for (&p, &ln) in passages.iter().zip(ln_occ) {
            bonus[p as usize] += a.score * ln / f64::from(a.tier.max(1));
        }
    }
    bonus
}

/// `passage_node_weight · (passage_ratio · dpr + ln(1 + bonus))`; a bonus of -1 or less (matrix form with negative
/// similarities) has no logarithm and gives NaN, which the reset vector counts as 0.
pub fn passage_weight(dpr: f64, bonus: f64, passage_ratio: f64, passage_node_weight: f64) -> f64 {
    passage_node_weight * (passage_ratio * dpr + bonus.ln_1p())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn min_max_and_all_equal() {
        assert_eq!(min_max_normalize(&[1.0, 3.0, 2.0]), vec![0.0, 1.0, 0.5]);
        assert_eq!(min_max_normalize(&[0.2, 0.2]), vec![1.0, 1.0]);
        assert!(min_max_normalize(&[]).is_empty());
    }

    #[test]
    fn bonus_divides_by_tier_and_tier_0_counts_as_1() {
        let occ = WeightedCsr::from_rows(&[vec![(0, 2f64.ln())], vec![(0, 3f64.ln()), (1, 2f64.ln())]]);
        let active = [Active { entity: 0, score: 1.0, tier: 0 }, Active { entity: 1, score: 0.5, tier: 2 }];
        let bonus = entity_bonus(&active, &occ, 3);
        assert!((bonus[0] - (2f64.ln() + 0.25 * 3f64.ln())).abs() < 1e-15);
        assert!((bonus[1] - 0.25 * 2f64.ln()).abs() < 1e-15);
        assert_eq!(bonus[2], 0.0);
        assert!((passage_weight(0.5, bonus[0], 2.0, 0.05) - 0.05 * (1.0 + (1.0 + bonus[0]).ln())).abs() < 1e-15);
    }
}
