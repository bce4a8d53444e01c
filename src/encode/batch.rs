//! Batches of similar length under a budget of tokens, and the packed rows of one batch.
//!
//! In: token counts; encoded texts. Out: which texts go together, longest first; one [`Batch`] without any padding. Results do
//! not depend on the plan: every row of every operation is computed as if its text were alone.

use super::ops::Segments;
use super::tokenize::Encoded;

/// Splits texts into batches of at most `budget` tokens, longest first; a text over the budget goes alone.
pub(super) fn plan(lengths: &[usize], budget: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(lengths[i]), i));
    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut tokens = 0;
    for i in order {
        match batches.last_mut() {
            Some(batch) if tokens + lengths[i] <= budget => batch.push(i),
            _ => {
                batches.push(vec![i]);
                tokens = 0;
            }
        }
        tokens += lengths[i];
    }
    batches
}

/// The tokens of several texts, one after another.
pub(super) struct Batch {
    /// Token ids, \[T\].
    pub ids: Vec<u32>,
    /// Token types, \[T\].
    pub types: Vec<u32>,
    /// Where each text starts.
    pub segments: Segments,
}

impl Batch {
    /// Packs texts in the order given.
    pub fn new<'a>(texts: impl Iterator<Item = &'a Encoded> + Clone) -> Self {
        let lengths: Vec<usize> = texts.clone().map(|t| t.ids.len()).collect();
        let (mut ids, mut types) = (Vec::new(), Vec::new());
        for text in texts {
            ids.extend_from_slice(&text.ids);
            types.extend_from_slice(&text.types);
        }
        Self { ids, types, segments: Segments::new(&lengths) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_huge_text_beside_many_short_ones_goes_alone() {
        let mut lengths = vec![12; 500];
        lengths.insert(250, 512);
        let batches = plan(&lengths, 400);
        assert_eq!(batches[0], [250]);
        assert!(batches[1..].iter().all(|b| b.len() <= 33));
        assert_eq!(batches.len(), 1 + 500usize.div_ceil(33));
    }

    proptest! {
        #[test]
        fn every_text_is_in_one_batch_within_the_budget(lengths in prop::collection::vec(1usize..600, 0..80), budget in 1usize..2000) {
            let batches = plan(&lengths, budget);
            for batch in &batches {
                let tokens: usize = batch.iter().map(|&i| lengths[i]).sum();
                prop_assert!(tokens <= budget || batch.len() == 1);
            }
            let flat: Vec<usize> = batches.concat();
            prop_assert!(flat.windows(2).all(|w| lengths[w[0]] >= lengths[w[1]]));
            let mut sorted = flat;
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..lengths.len()).collect::<Vec<_>>());
        }
    }
}
