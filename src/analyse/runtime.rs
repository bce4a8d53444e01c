//! Where does the time go? Table 15.
//!
//! In: the `*_us` columns. Out: averages a query in microseconds over the rows that were timed. Validation is novelty and grounding
//! together; a query whose candidate was not novel took no time in the grounding gate.

use super::Known;
use crate::trace::row::TraceRow;

/// Microseconds of one run's parts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Runtime {
    /// Retrieval.
    pub retrieval: Known,
    /// The reader's call.
    pub llm: Known,
    /// The judge's call.
    pub judge: Known,
    /// The novelty gate.
    pub novelty: Known,
    /// The grounding gate, over the queries it ran for.
    pub grounding: Known,
    /// Both gates, over the queries whose novelty gate was timed.
    pub validation: Known,
}

/// Sums the times; `None` when nothing was timed.
pub fn runtime(rows: &[TraceRow]) -> Option<Runtime> {
    let sum = |value: fn(&TraceRow) -> Option<u64>| Known::of(rows.iter().map(|r| value(r).map(|us| us as f64)));
    let r = Runtime {
        retrieval: sum(|r| r.retrieval_us),
        llm: sum(|r| r.llm_us),
        judge: sum(|r| r.judge_us),
        novelty: sum(|r| r.novelty_us),
        grounding: sum(|r| r.grounding_us),
        validation: sum(|r| r.novelty_us.map(|us| us + r.grounding_us.unwrap_or(0))),
    };
    [r.retrieval, r.llm, r.judge, r.novelty, r.grounding].iter().any(|k| k.known > 0).then_some(r)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::trace::fixture;

    #[test]
    fn averages_are_over_the_timed_rows() {
        let mut rows: Vec<TraceRow> = (1..=3).map(fixture::plain).collect();
        assert_eq!(runtime(&rows), None);
        (rows[0].retrieval_us, rows[1].retrieval_us) = (Some(10), Some(30));
        (rows[0].novelty_us, rows[1].novelty_us, rows[1].grounding_us) = (Some(2), Some(4), Some(14));
        let r = runtime(&rows).unwrap();
        assert_eq!(r.retrieval.mean(), Some(20.0));
        assert_eq!((r.llm.mean(), r.grounding.mean(), r.validation.mean()), (None, Some(14.0), Some(10.0)));
    }
}
