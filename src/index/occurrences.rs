//! How often each entity's text occurs in each passage (spec 2.4): non-overlapping, case-insensitive, one pass over the corpus.
//!
//! In: entity and passage texts. Out: entity → (passage, ln(1 + occ)) where occ > 0. Counted once per index, never per query.

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use rayon::prelude::*;

use crate::math::graph::WeightedCsr;
use crate::{Error, Result};

/// `[n_entities]` rows of (passage, ln(1 + occ)), passages ascending.
///
/// # Errors
/// When there are too many patterns for one automaton (billions of characters).
pub fn count(entities: &[String], passages: &[String]) -> Result<WeightedCsr<f64>> {
    let patterns: Vec<String> = entities.iter().map(|e| e.to_lowercase()).collect();
    let counts = count_patterns(&patterns, passages)?;
    let mut rows: Vec<Vec<(u32, f64)>> = vec![Vec::new(); entities.len()];
    for (p, of_passage) in counts.iter().enumerate() {
        for &(entity, occ) in of_passage {
            rows[entity as usize].push((p as u32, f64::from(occ).ln_1p()));
        }
    }
    Ok(WeightedCsr::from_rows(&rows))
}

/// Per passage the (pattern, count) pairs with a count above 0, patterns ascending.
fn count_patterns(patterns: &[String], passages: &[String]) -> Result<Vec<Vec<(u32, u32)>>> {
    if patterns.is_empty() {
        return Ok(vec![Vec::new(); passages.len()]);
    }
    let automaton = AhoCorasick::builder()
        .match_kind(MatchKind::Standard)
        .kind(Some(AhoCorasickKind::ContiguousNFA))
        .build(patterns)
        .map_err(|e| Error::work("cannot build the automaton that counts entity occurrences").with_source(e))?;
    Ok(passages
        .par_iter()
        .map_init(
            || (vec![0usize; patterns.len()], vec![0u32; patterns.len()]),
            |(free_from, counts), passage| {
                let text = passage.to_lowercase();
                let mut seen: Vec<u32> = Vec::new();
                // Overlapping matches of one pattern come in ascending order, so taking each that starts at or after the end of the
                // last one taken counts them as a left-to-right non-overlapping search does.
                for found in automaton.find_overlapping_iter(&text) {
                    let pattern = found.pattern().as_usize();
                    if counts[pattern] == 0 {
                        seen.push(pattern as u32);
                        free_from[pattern] = 0;
                    }
                    if found.start() >= free_from[pattern] {
                        counts[pattern] += 1;
                        free_from[pattern] = found.end();
                    }
                }
                seen.sort_unstable();
                seen.iter().map(|&p| (p, std::mem::take(&mut counts[p as usize]))).collect()
            },
        )
        .collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// pitfall 15: the rule is the same on both sides: both are lower-cased.
    #[test]
    fn case_is_ignored_on_both_sides() {
        let rows = count(&["NASA".into(), "Nasa".into()], &["NASA, Nasa and nasa".into()]).unwrap();
        assert_eq!(rows.row(0), (&[0][..], &[4f64.ln()][..]));
        assert_eq!(rows.row(1), rows.row(0));
    }

    proptest! {
        /// The independent count is the standard library's non-overlapping search, pattern by pattern.
        #[test]
        fn agrees_with_counting_one_by_one(
            patterns in prop::collection::vec("[abA]{1,3}", 1..8),
            passages in prop::collection::vec("[abA ]{0,40}", 1..5),
        ) {
            let rows = count(&patterns, &passages).unwrap();
            for (e, pattern) in patterns.iter().enumerate() {
                let expected: Vec<(u32, f64)> = passages
                    .iter()
                    .enumerate()
                    .map(|(p, t)| (p as u32, t.to_lowercase().matches(&pattern.to_lowercase()).count()))
                    .filter(|&(_, n)| n > 0)
                    .map(|(p, n)| (p, (n as f64).ln_1p()))
                    .collect();
                let (columns, values) = rows.row(e);
                let found: Vec<(u32, f64)> = columns.iter().copied().zip(values.iter().copied()).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
