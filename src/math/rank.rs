//! Rankings: score descending, ties by ascending id, everywhere the same.

use std::cmp::Ordering;

/// Order of two scored ids: higher score first, then lower id. NaN ranks last.
#[inline]
pub fn by_score_then_id(a: (u32, f64), b: (u32, f64)) -> Ordering {
    match (a.1.is_nan(), b.1.is_nan()) {
        (false, false) => b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)),
        (x, y) => x.cmp(&y).then(a.0.cmp(&b.0)),
    }
}

/// The k best of `scores` as (id, score), best first.
pub fn top_k(scores: impl IntoIterator<Item = f64>, k: usize) -> Vec<(u32, f64)> {
    let mut all: Vec<(u32, f64)> = scores
        .into_iter()
        .enumerate()
        // Adding 0 turns -0 into 0, which `total_cmp` would rank lower.
        .map(|(i, s)| (i as u32, s + 0.0))
        .collect();
    let k = k.min(all.len());
    if k == 0 {
        return Vec::new();
    }
    if k < all.len() {
        all.select_nth_unstable_by(k - 1, |&a, &b| by_score_then_id(a, b));
        all.truncate(k);
    }
    all.sort_unstable_by(|&a, &b| by_score_then_id(a, b));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// pitfall 18: five equal scores, k = 2.
    #[test]
    fn ties_go_to_the_lower_id() {
        assert_eq!(top_k([1.0; 5], 2), vec![(0, 1.0), (1, 1.0)]);
        assert_eq!(top_k([0.0, -0.0, 2.0, f64::NAN, 2.0], 4), vec![(2, 2.0), (4, 2.0), (0, 0.0), (1, 0.0)]);
        assert_eq!(top_k([1.0], 0), vec![]);
        assert_eq!(top_k([f64::NAN, 1.0], 9).len(), 2);
    }
}
