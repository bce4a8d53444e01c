//! How much could be reused, and how much was? Tables 1 and 4.
//!
//! In: the reuse columns, the fused activation and the scaffolds. Out: shares. Opportunities (section 3.1) are over the Q - 1 queries
//! that have an earlier one; realised template reuse (section 4.3) is over the queries that used a scaffold, graph transfer over Q.

use super::Share;
use crate::trace::row::TraceRow;

/// TF-IDF cosine from which a scaffold's question counts as the same template (paper, section 4.3).
pub const TEMPLATE_THRESHOLD: f32 = 0.35;

/// Reuse opportunities of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opportunities {
    /// Queries that share a seed entity with an earlier one.
    pub entity: Opportunity,
    /// Queries whose graph neighbourhood overlaps an earlier one's.
    pub graph: Opportunity,
    /// Queries with the template of an earlier one and no shared seed.
    pub template: Opportunity,
}

/// One kind of opportunity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opportunity {
    /// Queries that have it, over Q - 1.
    pub share: Share,
    /// Later queries of which it is not known.
    pub unknown: u64,
}

impl Opportunity {
    /// `None` when it is known of no query.
    pub fn percent(self) -> Option<f64> {
        self.share.percent().filter(|_| self.unknown < self.share.of)
    }
}

/// Opportunities over all queries but the first.
pub fn opportunities(rows: &[TraceRow]) -> Opportunities {
    let later = || rows.iter().filter(|r| r.stream_index > 1);
    let one = |value: fn(&TraceRow) -> Option<bool>| Opportunity {
        share: Share::count(later().map(|r| value(r) == Some(true))),
        unknown: later().filter(|r| value(r).is_none()).count() as u64,
    };
    Opportunities {
        entity: one(|r| r.reuse_entity),
        graph: one(|r| r.reuse_graph),
        template: one(|r| r.reuse_template),
    }
}

/// Queries in which fusion lifts an entity over the threshold, over Q (section 4.3).
pub fn graph_transfer(rows: &[TraceRow]) -> Share {
    Share::count(rows.iter().map(|r| r.fused_new_above_threshold > 0))
}

/// Scaffold uses with the question's own template, over all scaffold uses (section 4.3).
pub fn template_reuse(rows: &[TraceRow]) -> Share {
    let used = rows.iter().filter(|r| r.scaffold.is_some());
    Share::count(used.map(|r| r.scaffold_template_tfidf.is_some_and(|cosine| cosine >= TEMPLATE_THRESHOLD)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::trace::fixture;

    /// `hits` of `q` queries reuse an entity, the first one unknown.
    fn stream(q: u32, hits: u32) -> Vec<TraceRow> {
        (1..=q).map(|t| TraceRow { reuse_entity: (t > 1).then_some(t <= hits + 1), ..fixture::plain(t) }).collect()
    }

    /// Table 1 as printed: 2wiki 43/999, musique 403/999, wixqa 306/399.
    #[test]
    fn opportunities_leave_the_first_query_out() {
        for (q, hits, printed) in [(1000, 43, "4.30"), (1000, 403, "40.34"), (400, 306, "76.69")] {
            let entity = opportunities(&stream(q, hits)).entity;
            assert_eq!(entity.share, Share { hits: u64::from(hits), of: u64::from(q) - 1 });
            assert_eq!(format!("{:.2}", entity.percent().unwrap()), printed);
        }
    }

    #[test]
    fn an_opportunity_known_of_no_query_is_missing() {
        let rows: Vec<TraceRow> = (1..=3).map(|t| TraceRow { reuse_graph: None, ..fixture::plain(t) }).collect();
        let found = opportunities(&rows);
        assert_eq!((found.graph.percent(), found.graph.unknown), (None, 2));
        assert_eq!(found.template.percent(), Some(0.0));
        assert_eq!(opportunities(&rows[..1]).template.percent(), None);
    }

    /// Table 4 as printed: 2wiki 828/984, hotpotqa 89/984, musique 400/983, musique-full 1211/2401, wixqa 27/384.
    #[test]
    fn template_reuse_is_over_scaffold_uses() {
        for (q, uses, hits, printed) in [
            (1000_u32, 984, 828, "84.15"),
            (1000, 984, 89, "9.04"),
            (1000, 983, 400, "40.69"),
            (2417, 2401, 1211, "50.44"),
            (400, 384, 27, "7.03"),
        ] {
            let rows: Vec<TraceRow> = (1..=q)
                .map(|t| {
                    let place = (t + uses).checked_sub(q).filter(|p| *p > 0);
                    TraceRow {
                        scaffold: place,
                        scaffold_template_tfidf: place.map(|p| if p <= hits { 0.35 } else { 0.349 }),
                        ..fixture::plain(t)
                    }
                })
                .collect();
            let reuse = template_reuse(&rows);
            assert_eq!(reuse, Share { hits: u64::from(hits), of: u64::from(uses) });
            assert_eq!(format!("{:.2}", reuse.percent().unwrap()), printed);
        }
    }

    /// Table 4 as printed: wixqa 366/400.
    #[test]
    fn graph_transfer_is_over_all_queries() {
        let rows: Vec<TraceRow> = (1..=400)
            .map(|t| TraceRow { fused_new_above_threshold: u32::from(t <= 366) * 2, ..fixture::plain(t) })
            .collect();
        assert_eq!(format!("{:.2}", graph_transfer(&rows).percent().unwrap()), "91.50");
    }
}
