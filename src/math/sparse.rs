//! Sparse vectors over entities: sparsify (equation 5), cosine, and the `normalize` of equation 8.

use serde::{Deserialize, Serialize};

use crate::math::rank::by_score_then_id;

/// A sparse vector: ascending ids, no zero values.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SparseVector {
    /// Ascending, distinct.
    pub ids: Vec<u32>,
    /// One value an id, finite and not zero.
    pub values: Vec<f64>,
}

impl SparseVector {
    /// From pairs in any order. Of equal ids the later value stands, as the reference assigns seeds.
    pub fn from_assignments(pairs: impl IntoIterator<Item = (u32, f64)>) -> Self {
        let mut all: Vec<(u32, f64)> = pairs.into_iter().collect();
        all.sort_by_key(|&(id, _)| id);
        let mut out = Self::default();
        for (id, value) in all {
            if out.ids.last() == Some(&id) {
                out.ids.pop();
                out.values.pop();
            }
            out.ids.push(id);
            out.values.push(value);
        }
        out.retain(|v| v != 0.0 && v.is_finite());
        out
    }

    fn retain(&mut self, keep: impl Fn(f64) -> bool) {
        let kept: Vec<(u32, f64)> = self.iter().filter(|&(_, v)| keep(v)).collect();
        self.ids = kept.iter().map(|&(id, _)| id).collect();
        self.values = kept.iter().map(|&(_, v)| v).collect();
    }

    /// (id, value) pairs, ids ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u32, f64)> + '_ {
        self.ids.iter().copied().zip(self.values.iter().copied())
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The entry of an id, 0 where there is none.
    pub fn get(&self, id: u32) -> f64 {
        self.ids.binary_search(&id).map_or(0.0, |at| self.values[at])
    }

    /// Euclidean length; the sum runs over ascending ids.
    pub fn norm(&self) -> f64 {
        self.values.iter().map(|v| v * v).sum::<f64>().sqrt()
    }

    /// Largest entry, 0 for an empty vector.
    pub fn max(&self) -> f64 {
        self.values.iter().copied().fold(0.0, f64::max)
    }

    /// Each value times `factor`.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        Self { ids: self.ids.clone(), values: self.values.iter().map(|v| v * factor).collect() }
    }
}

/// Equation 5: scale so that the largest entry is 1 (when `scale_to_max`), drop entries below `epsilon`, keep the
/// `max_entities` largest (0: all; ties by lower id).
pub fn sparsify(a_final: &SparseVector, epsilon: f64, scale_to_max: bool, max_entities: usize) -> SparseVector {
    let max = a_final.max();
    let mut out = if scale_to_max && max > 0.0 { a_final.scaled(1.0 / max) } else { a_final.clone() };
    out.retain(|v| v >= epsilon && v > 0.0);
    if max_entities > 0 && out.len() > max_entities {
        let mut best: Vec<(u32, f64)> = out.iter().collect();
        best.sort_by(|&a, &b| by_score_then_id(a, b));
        best.truncate(max_entities);
        out = SparseVector::from_assignments(best);
    }
    out
}

/// Cosine of two sparse vectors, 0 when either is zero. The sum runs over ascending ids.
pub fn cosine(a: &SparseVector, b: &SparseVector) -> f64 {
    let (na, nb) = (a.norm(), b.norm());
    if na == 0.0 || nb == 0.0 {
        return 0.0;
    }
    let (mut i, mut j, mut dot) = (0, 0, 0.0);
    while i < a.len() && j < b.len() {
        match a.ids[i].cmp(&b.ids[j]) {
            std::cmp::Ordering::Less => i += 1,
            std::cmp::Ordering::Greater => j += 1,
            std::cmp::Ordering::Equal => {
                dot += a.values[i] * b.values[j];
                i += 1;
                j += 1;
            }
        }
    }
    dot / (na * nb)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v(pairs: &[(u32, f64)]) -> SparseVector {
        SparseVector::from_assignments(pairs.iter().copied())
    }

    /// pitfall 6: two query entities that link to one graph entity: the later score stands.
    #[test]
    fn later_assignment_stands() {
        assert_eq!(v(&[(3, 0.5), (1, 0.9), (3, 0.8)]), v(&[(1, 0.9), (3, 0.8)]));
    }

    #[test]
    fn sparsify_scales_then_drops_then_keeps_the_largest() {
        let a = v(&[(0, 2.0), (1, 0.09), (2, 1.0), (3, 1.0), (4, -1.0)]);
        assert_eq!(sparsify(&a, 0.05, true, 0), v(&[(0, 1.0), (2, 0.5), (3, 0.5)]));
        assert_eq!(sparsify(&a, 0.05, false, 0), v(&[(0, 2.0), (1, 0.09), (2, 1.0), (3, 1.0)]));
        assert_eq!(sparsify(&a, 0.05, true, 2), v(&[(0, 1.0), (2, 0.5)]));
        assert!(sparsify(&SparseVector::default(), 0.05, true, 0).is_empty());
    }

    #[test]
    fn cosine_by_hand() {
        // (3,4,0)·(4,0,3) = 12, norms 5 and 5.
        assert!((cosine(&v(&[(0, 3.0), (1, 4.0)]), &v(&[(0, 4.0), (2, 3.0)])) - 12.0 / 25.0).abs() < 1e-15);
        assert_eq!(cosine(&v(&[]), &v(&[(0, 1.0)])), 0.0);
    }
}
