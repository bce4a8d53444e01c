//! Base retrieval of every question with its inner state: the rows of `livingrag retrieve`.
//!
//! In: [`Prepared`] and settings. Out: one [`RetrieveRow`] a question, in file order.

use crate::Result;
use crate::config::RetrieveConfig;
use crate::retrieve::{Prepared, RANK_DEPTH};
use crate::trace::row::{ActiveCell, PassageCell, RetrieveRow, SeedCell, WeightCell};

/// Questions retrieved as one batch.
const BATCH: usize = 64;

/// Retrieves every question; `each_batch` hears how many are done.
///
/// # Errors
/// When the backend fails.
pub fn rows(
    prepared: &Prepared,
    config: &RetrieveConfig,
    mut each_batch: impl FnMut(usize),
) -> Result<Vec<RetrieveRow>> {
    let index = &prepared.index;
    let name = |entity: u32| index.entities[entity as usize].clone();
    let questions: Vec<usize> = (0..index.questions.len()).collect();
    let mut out = Vec::with_capacity(questions.len());
    for batch in questions.chunks(BATCH) {
        for (&q, found) in batch.iter().zip(prepared.linear(config, batch)?) {
            let question = &index.questions[q].question;
            out.push(RetrieveRow {
                query_id: question.id.clone(),
                question: question.text.clone(),
                fallback: found.fallback.map(|f| f.as_str().to_owned()),
                seeds: prepared.bases[q]
                    .seeds
                    .iter()
                    .map(|&(e, score)| SeedCell { entity: name(e), score: score as f32 })
                    .collect(),
                active: found
                    .propagated
                    .active
                    .iter()
                    .map(|a| ActiveCell { entity: name(a.entity), score: a.score, tier: a.tier })
                    .collect(),
                weights: found
                    .propagated
                    .weights
                    .iter()
                    .map(|&(e, weight)| WeightCell { entity: name(e), weight })
                    .collect(),
                passages: found
                    .ranking
                    .iter()
                    .take(RANK_DEPTH)
                    .map(|&(passage, score)| PassageCell { passage, score })
                    .collect(),
            });
        }
        each_batch(out.len());
    }
    Ok(out)
}
