//! Evidence sentences of the used passages, the p_j of equation 15, pre-filtered to K_g per claim.
//!
//! In: the passages given to the reader, in rank order, and claims. Out: per claim its best sentences with their passages, each with
//! the premise an entailment model reads: the sentence alone, or with its neighbours. The passages are split once per candidate,
//! not once per claim. Sentences are chosen by their words: an embedding of claims and sentences would cost a good part of what the
//! choice saves.

use std::collections::{BTreeMap, BTreeSet};

use crate::generate::PromptPassage;
use crate::ids::PassageId;
use crate::text::{is_stop_word, sentences, tokens};

/// A sentence that may support a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// The passage it stands in; of equal sentences, the passage ranked first.
    pub passage: PassageId,
    /// The sentence.
    pub text: String,
    /// What stands before the claim in an entailment pair: the passage from `window` sentences before this one to `window` after.
    pub premise: String,
}

/// The distinct sentences of one candidate's passages, by passage rank, then position.
#[derive(Debug, Clone, Default)]
pub struct EvidencePool {
    sentences: Vec<Evidence>,
    /// The distinct words of each sentence.
    words: Vec<BTreeSet<String>>,
    /// How many sentences hold a word.
    frequency: BTreeMap<String, usize>,
}

impl EvidencePool {
    /// Splits `passages`, which are in rank order; pieces without a word are left out. A premise reaches `window` sentences to
    /// either side, never out of its passage.
    pub fn new(passages: &[PromptPassage], window: usize) -> Self {
        let mut pool = Self::default();
        let mut seen = BTreeSet::new();
        for passage in passages {
            let ranges = sentences::split(&passage.text);
            for (i, range) in ranges.iter().enumerate() {
                let text = &passage.text[range.clone()];
                let words: BTreeSet<String> = tokens(text).into_iter().collect();
                if words.is_empty() || !seen.insert(text) {
                    continue;
                }
                for word in &words {
                    *pool.frequency.entry(word.clone()).or_default() += 1;
                }
                let (first, last) = (i.saturating_sub(window), (i + window).min(ranges.len() - 1));
                let premise = passage.text[ranges[first].start..ranges[last].end].to_owned();
                pool.sentences.push(Evidence { passage: passage.id, text: text.to_owned(), premise });
                pool.words.push(words);
            }
        }
        pool
    }

    /// All sentences, by passage rank, then position.
    pub fn sentences(&self) -> &[Evidence] {
        &self.sentences
    }

    /// The `k` sentences most similar to `claim`, best first; ties by passage rank, then position.
    ///
    /// Similarity is the share of the claim's distinct content words that the sentence holds, each weighed by its
    /// ln((1 + n) / (1 + df)) + 1 among the pool's n sentences. A claim without content words is compared by all its words.
    pub fn best(&self, claim: &str, k: usize) -> Vec<Evidence> {
        let weighed: Vec<(String, f64)> =
            claim_words(claim).into_iter().map(|word| (word.clone(), self.idf(&word))).collect();
        let total: f64 = weighed.iter().map(|(_, idf)| idf).sum();
        let similarity = |words: &BTreeSet<String>| {
            let held: f64 = weighed.iter().filter(|(word, _)| words.contains(word)).map(|(_, idf)| idf).sum();
            if total > 0.0 { held / total } else { 0.0 }
        };
        let mut ranked: Vec<(usize, f64)> = self.words.iter().map(similarity).enumerate().collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        ranked.into_iter().take(k).map(|(i, _)| self.sentences[i].clone()).collect()
    }

    fn idf(&self, word: &str) -> f64 {
        let df = self.frequency.get(word).copied().unwrap_or(0);
        ((1.0 + self.sentences.len() as f64) / (1.0 + df as f64)).ln() + 1.0
    }
}

/// The distinct content words of a claim, in order; all its words where it has no content word.
pub fn claim_words(claim: &str) -> Vec<String> {
    let all = tokens(claim);
    let any_content = all.iter().any(|word| !is_stop_word(word));
    let mut words: Vec<String> = Vec::new();
    for word in all {
        if !(any_content && is_stop_word(&word) || words.contains(&word)) {
            words.push(word);
        }
    }
    words
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn pool() -> EvidencePool {
        wide_pool(0)
    }

    fn wide_pool(window: usize) -> EvidencePool {
        let passage = |id: u32, text: &str| PromptPassage { id: PassageId(id), text: text.into() };
        let passages = [
            passage(7, "Iowa\nIowa grows corn. Polk was president."),
            passage(2, "Polk was president. Polk signed the bill for Iowa in 1846. It rained.\n…"),
        ];
        EvidencePool::new(&passages, window)
    }

    fn texts(evidence: &[Evidence]) -> Vec<(u32, &str)> {
        evidence.iter().map(|e| (e.passage.0, e.text.as_str())).collect()
    }

    #[test]
    fn sentences_are_split_once_and_kept_once() {
        assert_eq!(
            texts(pool().sentences()),
            [
                (7, "Iowa"),
                (7, "Iowa grows corn."),
                (7, "Polk was president."),
                (2, "Polk signed the bill for Iowa in 1846."),
                (2, "It rained.")
            ]
        );
    }

    #[test]
    fn rare_shared_words_weigh_more() {
        // Words of the claim: polk, signed, 1846; df 2, 1, 1 of 5.
        let pool = pool();
        let best = pool.best("Polk signed it in 1846.", 2);
        assert_eq!(texts(&best), [(2, "Polk signed the bill for Iowa in 1846."), (7, "Polk was president.")]);
        // Hand: corn alone ln(6/2)+1 = 2.10 beats Iowa ln(6/4)+1 = 1.41.
        assert_eq!(
            texts(&pool.best("corn or Iowa", 3)),
            [(7, "Iowa grows corn."), (7, "Iowa"), (2, "Polk signed the bill for Iowa in 1846.")]
        );
    }

    #[test]
    fn ties_go_by_rank_then_position() {
        let pool = pool();
        assert_eq!(texts(&pool.best("Madagascar", 2)), [(7, "Iowa"), (7, "Iowa grows corn.")]);
        assert_eq!(texts(&pool.best("was it", 1)), [(7, "Polk was president.")]);
        assert_eq!(pool.best("", 9).len(), 5);
        assert!(pool.best("Polk", 0).is_empty());
        assert!(EvidencePool::new(&[], 1).best("Polk", 3).is_empty());
    }

    #[test]
    fn a_premise_reaches_over_the_window_and_stays_in_its_passage() {
        let premises = |window| wide_pool(window).sentences().iter().map(|e| e.premise.clone()).collect::<Vec<_>>();
        let alone: Vec<String> = pool().sentences().iter().map(|e| e.text.clone()).collect();
        assert_eq!(premises(0), alone);
        // The last piece of the second passage has no word, so it is no evidence, but it is a neighbour.
        assert_eq!(
            premises(1),
            [
                "Iowa\nIowa grows corn.",
                "Iowa\nIowa grows corn. Polk was president.",
                "Iowa grows corn. Polk was president.",
                "Polk was president. Polk signed the bill for Iowa in 1846. It rained.",
                "Polk signed the bill for Iowa in 1846. It rained.\n…"
            ]
        );
        assert_eq!(premises(9)[3], "Polk was president. Polk signed the bill for Iowa in 1846. It rained.\n…");
        // Which sentences are chosen does not depend on it.
        assert_eq!(
            texts(&wide_pool(2).best("Polk signed it in 1846.", 2)),
            texts(&pool().best("Polk signed it in 1846.", 2))
        );
    }
}
