//! Is something plainly wrong with a run?
//!
//! In: a run. Out: sentences that must stand at the head of any report about it.

use crate::trace::reader::Run;

/// Everything alarming about a run, a sentence each.
pub fn alarms(run: &Run) -> Vec<String> {
    [constant_vectors(run), constant_ranking(run), no_entities(run), failed_calls(run)].into_iter().flatten().collect()
}

/// All vectors of a kind are equal: an encoder that failed, or a placeholder.
fn constant_vectors(run: &Run) -> Option<String> {
    let manifest = run.manifest.as_ref().filter(|m| !m.index.constant_vectors.is_empty())?;
    Some(format!(
        "{}: all vectors of {} are equal, so similarity says nothing there and rankings do not depend on the question",
        manifest.run_id,
        manifest.index.constant_vectors.join(", ")
    ))
}

/// Every query was given the same passages: constant embeddings, or an encoder that does not fit the index.
fn constant_ranking(run: &Run) -> Option<String> {
    // A corpus that fits into one prompt leaves no choice of passages.
    let shown = run.head().passages.len() as u64;
    let corpus = run.manifest.as_ref().map_or(u64::MAX, |m| m.dataset.passages);
    if run.rows.len() < 2 || shown == 0 || corpus <= shown {
        return None;
    }
    let ids = |i: usize| run.rows[i].passages.iter().map(|p| p.passage);
    (1..run.rows.len()).all(|i| ids(i).eq(ids(0))).then(|| {
        format!(
            "{}: all {} queries were given the same passages in the same order; the vectors are constant or do not fit the index",
            run.head().run_id,
            run.rows.len()
        )
    })
}

/// A graph without entities: legal, and every query is ranked by dense cosine.
fn no_entities(run: &Run) -> Option<String> {
    let manifest = run.manifest.as_ref().filter(|m| m.index.entities == 0 && m.method != "vanilla")?;
    Some(format!(
        "{}: the index has 0 entities (annotations: {}), so every query was ranked by dense cosine and no activation map exists",
        manifest.run_id, manifest.index.annotations
    ))
}

/// Calls that ended without an answer.
fn failed_calls(run: &Run) -> Option<String> {
    use crate::generate::LlmStatus::{Empty, Error};
    let failed = run.rows.iter().filter(|r| matches!(r.llm_status, Empty | Error)).count();
    (failed > 0).then(|| {
        format!(
            "{}: {failed} of {} calls to the reader gave no answer and count as wrong",
            run.head().run_id,
            run.rows.len()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::LlmStatus;
    use crate::trace::fixture;

    fn run(n: u32) -> Run {
        Run {
            folder: "r".into(),
            manifest: Some(fixture::manifest("living", u64::from(n))),
            rows: (1..=n).map(fixture::plain).collect(),
        }
    }

    /// pitfall 9: every query gets the same ranking.
    #[test]
    fn a_ranking_that_never_varies_raises_an_alarm() {
        let mut same = run(3);
        assert!(alarms(&same).is_empty());
        same.rows.iter_mut().for_each(|r| r.passages[0].passage = 4);
        assert!(alarms(&same)[0].contains("all 3 queries were given the same passages"));
        // One query, or a corpus that is shown whole, says nothing.
        if let Some(m) = same.manifest.as_mut() {
            m.dataset.passages = 1;
        }
        assert!(alarms(&same).is_empty());
    }

    /// pitfall 9: constant embeddings.
    #[test]
    fn constant_vectors_raise_an_alarm() {
        let mut constant = run(2);
        if let Some(m) = constant.manifest.as_mut() {
            m.index.constant_vectors = vec!["passages".into(), "questions".into()];
        }
        assert!(alarms(&constant)[0].contains("all vectors of passages, questions are equal"));
    }

    /// pitfall 2: no entity at all, and a word is said.
    #[test]
    fn an_index_without_entities_is_said() {
        let mut empty = run(2);
        if let Some(m) = empty.manifest.as_mut() {
            m.index.entities = 0;
        }
        assert!(alarms(&empty)[0].contains("0 entities"));
    }

    #[test]
    fn calls_without_an_answer_are_said() {
        let mut failed = run(2);
        failed.rows[1].llm_status = LlmStatus::Error;
        assert!(alarms(&failed)[0].contains("1 of 2 calls"));
    }
}
