//! Fusing matched activation maps into the seeds, equations 8–10.

use crate::config::Normalize;
use crate::math::similarity::softmax;
use crate::math::sparse::SparseVector;

/// Equations 9 and 10: w_k = softmax(s_k / τ_s) · conf_k over the selected experiences; not renormalised.
pub fn confidence_weights(scores: &[f64], confidences: &[f64], tau_s: f64) -> Vec<f64> {
    softmax(scores, tau_s).iter().zip(confidences).map(|(w, c)| w * c).collect()
}

/// Equation 8: a⁰ = normalize(a_base + β Σ_k w_k ã_k). Sums run over matches in rank order, entity by entity.
///
/// Callers keep a_base as it is when nothing was matched or there is no seed.
pub fn fuse_activation(
    base: &SparseVector,
    matches: &[(f64, &SparseVector)],
    beta: f64,
    normalize: Normalize,
) -> SparseVector {
    let mut terms: Vec<(u32, f64)> = base.iter().collect();
    for (weight, map) in matches {
        terms.extend(map.iter().map(|(id, value)| (id, beta * weight * value)));
    }
    // A stable sort keeps the order of terms within an entity: base first, then matches by rank.
    terms.sort_by_key(|&(id, _)| id);
    let mut sums: Vec<(u32, f64)> = Vec::new();
    for (id, value) in terms {
        match sums.last_mut() {
            Some(last) if last.0 == id => last.1 += value,
            _ => sums.push((id, value)),
        }
    }
    let sum = SparseVector::from_assignments(sums);
    let scale = match normalize {
        Normalize::Max => sum.max(),
        Normalize::L1 => sum.values.iter().map(|v| v.abs()).sum(),
        Normalize::L2 => sum.norm(),
        Normalize::None => 1.0,
    };
    if scale > 0.0 { sum.scaled(1.0 / scale) } else { sum }
}

/// Order in which a⁰ enters propagation: the query's own seeds in query order with their fused scores, then the entities that fusion
/// brought in, by descending score and ascending id. (The bfs form depends on the order; the paper is silent, this is ours.)
pub fn seed_order(own_seeds: &[(u32, f64)], fused: &SparseVector) -> Vec<(u32, f64)> {
    let mut out: Vec<(u32, f64)> = Vec::with_capacity(fused.len());
    for &(entity, _) in own_seeds {
        if !out.iter().any(|&(e, _)| e == entity) && fused.get(entity) != 0.0 {
            out.push((entity, fused.get(entity)));
        }
    }
    let own = out.len();
    let mut new: Vec<(u32, f64)> = fused.iter().filter(|(e, _)| !out[..own].iter().any(|(o, _)| o == e)).collect();
    new.sort_by(|&a, &b| crate::math::rank::by_score_then_id(a, b));
    out.extend(new);
    out
}

/// Realised graph transfer (section 4.3): entities with a⁰ >= thr that a_base had below thr.
pub fn new_above_threshold(base: &SparseVector, fused: &SparseVector, threshold: f64) -> usize {
    fused.iter().filter(|&(e, v)| v >= threshold && base.get(e) < threshold).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v(pairs: &[(u32, f64)]) -> SparseVector {
        SparseVector::from_assignments(pairs.iter().copied())
    }

    /// By hand: scores 0.9 and 0.9 give softmax 1/2 each, confidences 1 and 0.6 give 0.5 and 0.3.
    #[test]
    fn weights_are_not_renormalised() {
        let w = confidence_weights(&[0.9, 0.9], &[1.0, 0.6], 0.1);
        assert!((w[0] - 0.5).abs() < 1e-15 && (w[1] - 0.3).abs() < 1e-15);
    }

    /// By hand with β = 0.3: entity 0: 0.8, entity 1: 0.5 + 0.3·0.5·1 = 0.65, entity 2: 0.3·0.5·0.4 = 0.06; the largest is 0.8.
    #[test]
    fn fusion_by_hand() {
        let base = v(&[(0, 0.8), (1, 0.5)]);
        let map = v(&[(1, 1.0), (2, 0.4)]);
        let a0 = fuse_activation(&base, &[(0.5, &map)], 0.3, Normalize::Max);
        let expected = [1.0, 0.65 / 0.8, 0.06 / 0.8];
        assert!(a0.values.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-15), "{a0:?}");
        let plain = fuse_activation(&base, &[(0.5, &map)], 0.3, Normalize::None);
        assert!((plain.get(1) - 0.65).abs() < 1e-15);
        assert!((fuse_activation(&base, &[], 0.3, Normalize::L1).values.iter().sum::<f64>() - 1.0).abs() < 1e-15);
        assert!((fuse_activation(&base, &[], 0.3, Normalize::L2).norm() - 1.0).abs() < 1e-15);
        assert_eq!(new_above_threshold(&base, &a0, 0.07), 1);
        assert_eq!(new_above_threshold(&base, &a0, 0.08), 0);
    }

    #[test]
    fn own_seeds_come_first_in_query_order() {
        let order = seed_order(&[(7, 0.9), (3, 0.8), (7, 0.7)], &v(&[(1, 0.2), (3, 0.9), (5, 0.4), (7, 1.0)]));
        assert_eq!(order, vec![(7, 1.0), (3, 0.9), (5, 0.4), (1, 0.2)]);
    }
}
