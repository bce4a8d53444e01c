//! Passage weights of the reset vector on the CPU (spec 2.4): one pass over the passages and the active entities' postings.

use crate::backend::{PassageWeightQuery, RetrievalData};
use crate::math::passage_weight::passage_weight;

/// `[n_passages]` for one query; NaN and negatives are 0. The bonus sum runs over ascending entity ids.
pub fn passage_weights(
    data: &RetrievalData,
    passage_ratio: f64,
    passage_node_weight: f64,
    query: &PassageWeightQuery<'_>,
) -> Vec<f32> {
    let n = query.similarities.len();
    let mut bonus = vec![0f64; n];
    for a in query.active {
        let scale = f64::from(a.tier.max(1));
        let (passages, ln_occ) = data.occurrences.row(a.entity as usize);
        for (&p, &ln) in passages.iter().zip(ln_occ) {
            bonus[p as usize] += a.score * ln / scale;
        }
    }
    let min = query.similarities.iter().copied().fold(f32::INFINITY, f32::min);
    let max = query.similarities.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let range = f64::from(max) - f64::from(min);
    query
        .similarities
        .iter()
        .zip(&bonus)
        .map(|(&sim, &b)| {
            let dpr = if range > 0.0 { (f64::from(sim) - f64::from(min)) / range } else { 1.0 };
            let weight = if b == 0.0 {
                // ln(1 + 0) = 0: most passages mention no active entity.
                passage_node_weight * (passage_ratio * dpr)
            } else {
                passage_weight(dpr, b, passage_ratio, passage_node_weight)
            };
            if weight.is_finite() && weight > 0.0 { weight as f32 } else { 0.0 }
        })
        .collect()
}
