//! Personalised PageRank on the weighted undirected graph (spec 2.4), plain power iteration in `f64`.
//!
//! x = d · Pᵀ x + d · (mass at nodes without edges) · r + (1 - d) · r, with P_ij = w_ij / Σ_k w_ik and r the reset vector scaled to
//! sum 1. PRPACK (igraph), the ranker of the reference, solves the same system.

use crate::math::graph::WeightedCsr;

/// Iterations at which the error of a damping of 0.99 is below 1e-12; lower damping stops earlier.
const MAX_ITERATIONS: usize = 3000;

/// Negative, NaN and infinite entries count as 0; `None` when nothing is left, which callers answer with a dense ranking.
pub fn normalize_reset(reset: &[f64]) -> Option<Vec<f64>> {
    let clean: Vec<f64> = reset.iter().map(|&v| if v.is_finite() && v > 0.0 { v } else { 0.0 }).collect();
    let sum: f64 = clean.iter().sum();
    (sum > 0.0 && sum.is_finite()).then(|| clean.iter().map(|v| v / sum).collect())
}

/// The stationary vector for one reset vector of shape `[n_nodes]`; sums to 1. `None` when the reset is zero.
pub fn personalized_pagerank(adjacency: &WeightedCsr<f64>, reset: &[f64], damping: f64) -> Option<Vec<f64>> {
    let r = normalize_reset(reset)?;
    let n = adjacency.rows();
    let degree: Vec<f64> = (0..n).map(|i| adjacency.row(i).1.iter().sum()).collect();
    let mut x = r.clone();
    for _ in 0..MAX_ITERATIONS {
        let dangling: f64 = (0..n).filter(|&i| degree[i] == 0.0).map(|i| x[i]).sum();
        let next: Vec<f64> = (0..n)
            .map(|i| {
                let (columns, weights) = adjacency.row(i);
                let walked: f64 =
                    columns.iter().zip(weights).map(|(&j, &w)| w / degree[j as usize] * x[j as usize]).sum();
                damping * (walked + dangling * r[i]) + (1.0 - damping) * r[i]
            })
            .collect();
        let change: f64 = next.iter().zip(&x).map(|(a, b)| (a - b).abs()).sum();
        x = next;
        if change < 1e-15 {
            break;
        }
    }
    let sum: f64 = x.iter().sum();
    Some(x.iter().map(|v| v / sum).collect())
}

/// ω = 2 / (1 + √(1 - d²)): the best over-relaxation of a two-coloured graph, whose walk has spectral radius d.
pub fn relaxation(damping: f64) -> f64 {
    2.0 / (1.0 + (1.0 - damping * damping).sqrt())
}

/// Sweeps of over-relaxation after which the error, which shrinks by ω - 1 a sweep, has shrunk to `error`; one more for the start.
pub fn relaxation_sweeps(damping: f64, error: f64) -> usize {
    let rate = (relaxation(damping) - 1.0).max(1e-6);
    (error.ln() / rate.ln()).ceil() as usize + 1
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::math::graph::Graph;

    /// Two nodes, one edge, reset on the first: x0 = d x1 + (1-d), x1 = d x0 → x0 = 1/(1+d) for d = 0.5: 2/3, 1/3.
    #[test]
    fn two_nodes_by_hand() {
        let a = Graph::adjacency_from_edges(2, &[(0, 1, 7.0)]);
        let x = personalized_pagerank(&a, &[3.0, 0.0], 0.5).unwrap();
        assert!((x[0] - 2.0 / 3.0).abs() < 1e-14 && (x[1] - 1.0 / 3.0).abs() < 1e-14);
    }

    /// pitfall 17: two components and an isolated node, then a single node; mass stays 1.
    /// By hand, reset 1/3 on nodes 0, 2 and 4 (isolated): the isolated node keeps y with y = d·y·r4 + (1-d)·r4, r4 = 1/3.
    #[test]
    fn isolated_nodes_return_their_mass_to_the_reset() {
        let a = Graph::adjacency_from_edges(5, &[(0, 1, 1.0), (2, 3, 2.0)]);
        let x = personalized_pagerank(&a, &[1.0, 0.0, 1.0, 0.0, 1.0], 0.5).unwrap();
        assert!((x.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!((x[4] - (0.5 / 3.0) / (1.0 - 0.5 / 3.0)).abs() < 1e-12);
        assert!((x[0] - x[2]).abs() < 1e-14);
        let single = personalized_pagerank(&Graph::adjacency_from_edges(1, &[]), &[0.2], 0.5).unwrap();
        assert_eq!(single, vec![1.0]);
    }

    /// By hand: ω - 1 = 0.0718 at d = 0.5; 0.0718^7 = 1e-8 is the first power below 1e-7, 0.0718^6 = 1.4e-7 the first below 1e-6.
    #[test]
    fn sweeps_grow_with_damping_and_accuracy() {
        assert!((relaxation(0.5) - 1.071_796_769_7).abs() < 1e-9);
        assert_eq!((relaxation_sweeps(0.5, 1e-7), relaxation_sweeps(0.5, 1e-6)), (8, 7));
        assert!((12..20).contains(&relaxation_sweeps(0.85, 1e-7)));
        assert!(relaxation_sweeps(0.0, 1e-7) >= 2);
    }

    /// pitfall 16: all zero and NaN.
    #[test]
    fn zero_and_nan_resets() {
        let a = Graph::adjacency_from_edges(3, &[(0, 1, 1.0)]);
        assert_eq!(personalized_pagerank(&a, &[0.0; 3], 0.5), None);
        assert_eq!(personalized_pagerank(&a, &[-1.0, f64::NAN, 0.0], 0.5), None);
        let x = personalized_pagerank(&a, &[0.5, f64::NAN, 0.0], 0.5).unwrap();
        assert_eq!(x, personalized_pagerank(&a, &[0.5, 0.0, 0.0], 0.5).unwrap());
    }
}
