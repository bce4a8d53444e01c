//! Exact scan of one store on the CPU (equations 7, 12, 13, 17; cost of equation 22).
//!
//! The sparse part adds up postings entity by entity in ascending entity order, so each experience's sum has one fixed order.

use crate::backend::{ActivationStore, Hit, ScanQuery, ScanResult};
use crate::math::rank::by_score_then_id;
use crate::math::similarity::dual_channel_similarity;

/// One query against the experiences it may see.
pub fn scan(store: &dyn ActivationStore, query: &ScanQuery<'_>) -> ScanResult {
    let visible = query.cos_query.len();
    if visible == 0 {
        return ScanResult::default();
    }
    let mut products = vec![0f64; visible];
    for (entity, value) in query.activation.iter() {
        for &(experience, stored) in store.postings(entity) {
            match products.get_mut(experience as usize) {
                Some(product) => *product += value * stored,
                // Postings ascend: everything further was committed later than this query may see.
                None => break,
            }
        }
    }
    let norm = query.activation.norm();
    let hit = |k: usize| {
        let scale = norm * store.norm(k);
        let cos_activation = if scale > 0.0 { products[k] / scale } else { 0.0 };
        let cos_query = f64::from(query.cos_query[k]);
        Hit {
            experience: k as u32,
            score: dual_channel_similarity(query.alpha, cos_query, cos_activation),
            cos_query,
            cos_activation,
        }
    };
    let mut scaffold: Option<(u32, f64)> = None;
    let mut top: Vec<Hit> = Vec::with_capacity(query.k.min(visible) + 1);
    for k in 0..visible {
        let found = hit(k);
        if let Some(template) = query.cos_template {
            let score = (1.0 - query.lambda) * found.score + query.lambda * f64::from(template[k]);
            // Strictly better only: among equals the earliest experience stands.
            if scaffold.is_none_or(|(_, best)| score > best) {
                scaffold = Some((k as u32, score));
            }
        }
        let place =
            top.partition_point(|h| by_score_then_id((h.experience, h.score), (found.experience, found.score)).is_le());
        if place < query.k {
            top.insert(place, found);
            top.truncate(query.k);
        }
    }
    ScanResult { top, scaffold }
}
