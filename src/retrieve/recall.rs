//! Recall of gold passages at k over questions whose gold passages are known.

use std::fmt;

/// Depths reported.
pub const DEPTHS: [usize; 5] = [1, 2, 5, 10, 20];

/// |gold ∩ first k| / |gold| of one ranking.
pub fn recall_at(ranking: &[u32], gold: &[u32], k: usize) -> f64 {
    let found = gold.iter().filter(|g| ranking.iter().take(k).any(|p| p == *g)).count();
    found as f64 / gold.len() as f64
}

/// Mean recall at each of [`DEPTHS`].
#[derive(Debug, Clone, PartialEq)]
pub struct RecallSummary {
    /// Questions with known gold passages.
    pub questions: usize,
    /// Mean recall, one a depth.
    pub recall: [f64; DEPTHS.len()],
}

impl RecallSummary {
    /// Over (ranking, gold) pairs; `None` when there is none with gold.
    pub fn of(pairs: impl Iterator<Item = (Vec<u32>, Vec<u32>)>) -> Option<Self> {
        let mut out = Self { questions: 0, recall: [0.0; DEPTHS.len()] };
        for (ranking, gold) in pairs.filter(|(_, gold)| !gold.is_empty()) {
            out.questions += 1;
            for (sum, k) in out.recall.iter_mut().zip(DEPTHS) {
                *sum += recall_at(&ranking, &gold, k);
            }
        }
        if out.questions == 0 {
            return None;
        }
        for sum in &mut out.recall {
            *sum /= out.questions as f64;
        }
        Some(out)
    }
}

impl fmt::Display for RecallSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "recall of gold passages over {} questions, %:", self.questions)?;
        for (k, recall) in DEPTHS.iter().zip(&self.recall) {
            write!(f, "  @{k} {:.1}", recall * 100.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        assert_eq!(recall_at(&[3, 1, 2], &[1, 9], 1), 0.0);
        assert_eq!(recall_at(&[3, 1, 2], &[1, 9], 2), 0.5);
        let pairs = [(vec![1], vec![1]), (vec![2], vec![1]), (vec![2], vec![])];
        assert_eq!(RecallSummary::of(pairs.into_iter()).map(|r| (r.questions, r.recall[0])), Some((2, 0.5)));
    }
}
