//! Cosines of pairs of questions, each computed once however many runs ask for it.
//!
//! In: two questions of n and how to compare them. Out: the number. A cell is filled when it is first asked for; rows are made when
//! they are first touched, so a short stream over many questions takes little memory.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// All pairs are kept when they take at most so many bytes; of more questions every cosine is computed when it is asked for.
const MOST_BYTES: usize = 1 << 28;

/// A symmetric table of cosines.
pub struct PairCosines {
    /// Row a holds b = 0..=a; a cell is the complement of the number's bits, so that 0 is a cell not filled yet. `None`: not kept.
    rows: Option<Vec<OnceLock<Box<[AtomicU32]>>>>,
    computed: AtomicU64,
}

/// Bytes of the table of n questions once every pair was asked for.
pub fn bytes(n: usize) -> usize {
    let all = n.saturating_mul(n + 1) / 2 * size_of::<AtomicU32>();
    if all <= MOST_BYTES { all } else { 0 }
}

impl PairCosines {
    /// Of n questions, nothing computed.
    pub fn new(n: usize) -> Self {
        let rows = (n == 0 || bytes(n) > 0).then(|| std::iter::repeat_with(OnceLock::new).take(n).collect());
        Self { rows, computed: AtomicU64::new(0) }
    }

    /// The cosine of a and b; `compute` must be symmetric and always give the same bits, none of them a NaN.
    pub fn get(&self, a: usize, b: usize, compute: impl FnOnce() -> f32) -> f32 {
        let Some(rows) = &self.rows else {
            self.computed.fetch_add(1, Ordering::Relaxed);
            return compute();
        };
        let (high, low) = (a.max(b), a.min(b));
        let row = rows[high].get_or_init(|| (0..=high).map(|_| AtomicU32::new(0)).collect());
        let known = row[low].load(Ordering::Relaxed);
        if known != 0 {
            return f32::from_bits(!known);
        }
        let value = compute();
        // Another thread may have filled it with the same number meanwhile; then the pair counts once.
        if row[low].compare_exchange(0, !value.to_bits(), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.computed.fetch_add(1, Ordering::Relaxed);
        }
        value
    }

    /// How many were computed; where all are kept, the number of distinct pairs asked for.
    pub fn computed(&self) -> u64 {
        self.computed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_pair_is_computed_once_in_either_direction() {
        let (cosines, calls) = (PairCosines::new(4), Cell::new(0));
        let value = |a: usize, b: usize| {
            cosines.get(a, b, || {
                calls.set(calls.get() + 1);
                (a + b) as f32 / 8.0
            })
        };
        for (a, b) in [(1, 3), (3, 1), (2, 2), (0, 0), (0, 0), (1, 3)] {
            assert_eq!(value(a, b), (a + b) as f32 / 8.0);
        }
        assert_eq!((calls.get(), cosines.computed()), (3, 3));
        assert_eq!(value(0, 0).to_bits(), 0, "zero is a number like any other");
    }

    #[test]
    fn too_many_questions_are_not_kept() {
        let cosines = PairCosines::new(100_000);
        assert_eq!((cosines.get(5, 99_999, || 0.5), cosines.get(5, 99_999, || 0.5)), (0.5, 0.5));
        assert_eq!(cosines.computed(), 2);
    }
}
