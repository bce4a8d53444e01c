//! Are the gold passages found? Retrieval recall.
//!
//! In: the first 20 ranked passages and the gold passages of the rows. Out: recall, hit rate and mean reciprocal rank at k, averaged
//! over the questions whose gold passages are known.

use crate::trace::row::TraceRow;

/// The depths k that are reported; the last is as deep as a row keeps its ranking.
pub const DEPTHS: [usize; 5] = [1, 2, 5, 10, 20];

/// Means over the rows with gold passages, by depth as in [`DEPTHS`], each from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retrieval {
    /// Questions with known gold passages.
    pub with_gold: u64,
    /// Share of the gold passages within the first k.
    pub recall: [f64; DEPTHS.len()],
    /// Whether any gold passage is within the first k.
    pub hit: [f64; DEPTHS.len()],
    /// 1 / rank of the first gold passage, 0 beyond k.
    pub mrr: [f64; DEPTHS.len()],
}

/// Scores the rankings; `None` when no gold passage is known.
pub fn retrieval(rows: &[TraceRow]) -> Option<Retrieval> {
    let mut sum = Retrieval { with_gold: 0, recall: [0.0; 5], hit: [0.0; 5], mrr: [0.0; 5] };
    for row in rows {
        let Some(gold) = row.gold_passages.as_ref().filter(|gold| !gold.is_empty()) else { continue };
        sum.with_gold += 1;
        for (i, k) in DEPTHS.into_iter().enumerate() {
            let first = &row.ranked[..row.ranked.len().min(k)];
            sum.recall[i] += recall(first, gold);
            let rank = first.iter().position(|p| gold.contains(p));
            sum.hit[i] += if rank.is_some() { 1.0 } else { 0.0 };
            sum.mrr[i] += rank.map_or(0.0, |r| 1.0 / (r + 1) as f64);
        }
    }
    let n = sum.with_gold as f64;
    (sum.with_gold > 0).then(|| Retrieval {
        recall: sum.recall.map(|x| x / n),
        hit: sum.hit.map(|x| x / n),
        mrr: sum.mrr.map(|x| x / n),
        ..sum
    })
}

/// Share of the gold passages among the first ones.
fn recall(first: &[u32], gold: &[u32]) -> f64 {
    gold.iter().filter(|g| first.contains(g)).count() as f64 / gold.len() as f64
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::trace::fixture;

    fn ranked(t: u32, ranked: &[u32], gold: Option<&[u32]>) -> TraceRow {
        TraceRow { ranked: ranked.to_vec(), gold_passages: gold.map(<[u32]>::to_vec), ..fixture::plain(t) }
    }

    /// By hand: row 1 finds 3 at rank 1 and 8 at rank 4; row 2 finds 2 at rank 3 only; the others have no gold.
    #[test]
    fn recall_hit_and_mrr_by_hand() {
        let rows = [
            ranked(1, &[3, 5, 7, 8, 9, 1], Some(&[3, 8])),
            ranked(2, &[4, 5, 2, 1, 6], Some(&[2, 9])),
            ranked(3, &[1, 2], None),
            ranked(4, &[1, 2], Some(&[])),
        ];
        let r = retrieval(&rows).unwrap();
        assert_eq!(r.with_gold, 2);
        assert_eq!(r.recall, [0.25, 0.25, 0.75, 0.75, 0.75]);
        assert_eq!(r.hit, [0.5, 0.5, 1.0, 1.0, 1.0]);
        let third = (1.0 + 1.0 / 3.0) / 2.0;
        assert_eq!(r.mrr, [0.5, 0.5, third, third, third]);
        assert_eq!(retrieval(&rows[2..]), None);
    }
}
