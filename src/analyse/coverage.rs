//! Are stored experiences used? Table 16.
//!
//! In: matches and scaffolds of the rows. Out: how often experiences were selected, and how many of the stored ones at least once.

use std::collections::BTreeMap;

use super::Share;
use crate::trace::row::TraceRow;

/// Use of the stored experiences of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coverage {
    /// Experiences stored by the end of the stream.
    pub stored: u64,
    /// Top-K selections, summed over the queries.
    pub selections: u64,
    /// Stored experiences selected at least once.
    pub selected: Share,
    /// Queries that used a scaffold.
    pub scaffold_uses: u64,
    /// Stored experiences used as a scaffold at least once.
    pub scaffolded: Share,
    /// Uses of the most used scaffold.
    pub max_uses: u64,
}

/// Counts the use of experiences; `None` when the run has no store.
pub fn coverage(rows: &[TraceRow]) -> Option<Coverage> {
    if !super::has_store(rows) {
        return None;
    }
    let stored = rows.iter().filter(|r| r.stored).count() as u64;
    let selected = uses(rows.iter().flat_map(|r| r.matches.iter().map(|m| m.experience)));
    let scaffolds = uses(rows.iter().filter_map(|r| r.scaffold));
    Some(Coverage {
        stored,
        selections: selected.values().sum(),
        selected: Share { hits: selected.len() as u64, of: stored },
        scaffold_uses: scaffolds.values().sum(),
        scaffolded: Share { hits: scaffolds.len() as u64, of: stored },
        max_uses: scaffolds.values().copied().max().unwrap_or(0),
    })
}

fn uses(experiences: impl Iterator<Item = u32>) -> BTreeMap<u32, u64> {
    experiences.fold(BTreeMap::new(), |mut uses, e| {
        *uses.entry(e).or_insert(0) += 1;
        uses
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::gates::Decision;
    use crate::trace::fixture;
    use crate::trace::row::MatchCell;

    fn matched(t: u32, experiences: &[u32], scaffold: Option<u32>, stored: bool) -> TraceRow {
        let cell = |e: &u32| MatchCell { experience: *e, score: 0.5, cos_query: 0.5, cos_activation: 0.5, weight: 0.5 };
        TraceRow { matches: experiences.iter().map(cell).collect(), scaffold, stored, ..fixture::plain(t) }
    }

    #[test]
    fn counts_selections_and_distinct_experiences() {
        let rows = [
            matched(1, &[], None, true),
            matched(2, &[0], Some(0), true),
            matched(3, &[1, 0], Some(0), true),
            matched(4, &[0, 1], Some(1), true),
            matched(5, &[1, 0], Some(0), false),
        ];
        let c = coverage(&rows).unwrap();
        assert_eq!((c.stored, c.selections, c.selected), (4, 7, Share { hits: 2, of: 4 }));
        assert_eq!((c.scaffold_uses, c.scaffolded, c.max_uses), (4, Share { hits: 2, of: 4 }, 3));
    }

    /// WixQA's 1,910 selections: lag 16, K = 5, a store that grows 1, 2, 3, 4, 5 from the 17th of 400 queries on.
    #[test]
    fn the_papers_selections_follow_from_lag_and_k() {
        let rows: Vec<TraceRow> = (1..=400_u32)
            .map(|t| {
                let visible = t.saturating_sub(16);
                let experiences: Vec<u32> = (0..visible.min(5)).collect();
                matched(t, &experiences, (visible > 0).then_some(0), true)
            })
            .collect();
        let c = coverage(&rows).unwrap();
        assert_eq!((c.selections, c.scaffold_uses), (1910, 384));
    }

    #[test]
    fn a_method_without_a_store_has_no_coverage() {
        assert_eq!(coverage(&[TraceRow { decision: Decision::GateOff, ..fixture::plain(1) }]), None);
    }
}
