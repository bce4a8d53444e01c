//! How did retrieval and the reader's calls end? Counts of fallbacks and of call statuses.
//!
//! In: `fallback` and `llm_status` of the rows. Out: counts in a fixed order.

use std::collections::BTreeMap;

use crate::generate::LlmStatus;
use crate::trace::row::TraceRow;

/// Every status, in the order of the report.
pub const STATUSES: [LlmStatus; 5] =
    [LlmStatus::Ok, LlmStatus::Truncated, LlmStatus::Empty, LlmStatus::Error, LlmStatus::Simulated];

/// How the queries of one run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusCounts {
    /// Queries ranked by dense cosine instead of the graph, by reason.
    pub fallbacks: BTreeMap<String, u64>,
    /// Calls by status, as in [`STATUSES`].
    pub calls: [u64; STATUSES.len()],
}

/// Counts fallbacks and statuses.
pub fn status_counts(rows: &[TraceRow]) -> StatusCounts {
    let mut fallbacks = BTreeMap::new();
    for reason in rows.iter().filter_map(|r| r.fallback.as_ref()) {
        *fallbacks.entry(reason.clone()).or_insert(0) += 1;
    }
    let calls = STATUSES.map(|s| rows.iter().filter(|r| r.llm_status == s).count() as u64);
    StatusCounts { fallbacks, calls }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::fixture;

    #[test]
    fn counts_by_reason_and_status() {
        let mut rows: Vec<TraceRow> = (1..=5).map(fixture::plain).collect();
        rows[1].fallback = Some("dense_no_seed".into());
        rows[3].fallback = Some("dense_zero_reset".into());
        rows[4].fallback = Some("dense_no_seed".into());
        rows[0].llm_status = LlmStatus::Error;
        let counts = status_counts(&rows);
        assert_eq!(
            counts.fallbacks,
            BTreeMap::from([("dense_no_seed".to_string(), 2), ("dense_zero_reset".to_string(), 1)])
        );
        assert_eq!(counts.calls, [4, 0, 0, 1, 0]);
    }
}
