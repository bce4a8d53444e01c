//! Evidence sentences of the used passages, the p_j of equation 15, pre-filtered to K_g per claim.
//!
//! In: the passages given to the reader, in rank order, and claims. Out: per claim its best sentences with their passages.
//! The passages are split once per candidate, not once per claim.

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
    /// Splits `passages`, which are in rank order; pieces without a word are left out.
    pub fn new(passages: &[PromptPassage]) -> Self {
        let mut pool = Self::default();
        let mut seen = BTreeSet::new();
        for passage in passages {
            for range in sentences::split(&passage.text) {
                let text = &passage.text[range];
                let words: BTreeSet<String> = tokens(text).into_iter().collect();
                if words.is_empty() || !seen.insert(text) {
                    continue;
                }
                for word in &words {
                    *pool.frequency.entry(word.clone()).or_default() += 1;
                }
                pool.sentences.push(Evidence { passage: passage.id, text: text.to_owned() });
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
        let passage = |id: u32, text: &str| PromptPassage { id: PassageId(id), text: text.into() };
        EvidencePool::new(&[
            passage(7, "Iowa\nIowa grows corn. Polk was president."),
            passage(2, "Polk was president. Polk signed the bill for Iowa in 1846. It rained.\n…"),
        ])
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
        assert!(EvidencePool::new(&[]).best("Polk", 3).is_empty());
    }
}
