//! Grounding by token and number containment: no model and no entailment, named for what it is.
//!
//! In: candidates. Out: supports and GS by a formula that negation, roles and time do not touch. It stands in where no NLI
//! model is at hand; equations 15 and 16 with [`containment`] for P(entail).

use std::collections::BTreeSet;

use super::evidence::claim_words;
use super::grounding::{Candidate, Grounded, GroundingScorer, PairMemo, score_pairwise_sharing};
use crate::Result;
use crate::text::tokens;

/// The lexical scorer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LexicalScorer {
    /// τ_nli: support from which on a claim counts.
    pub tau_nli: f64,
}

/// How far `claim` is contained in `evidence`, in [0, 1]: |C ∩ E| / |C|, with C the claim's distinct content words (all words
/// where it has no content word) and E the evidence's words; 0 when a word of C with a digit is not in E, or C is empty.
pub fn containment(evidence: &str, claim: &str) -> f32 {
    let held: BTreeSet<String> = tokens(evidence).into_iter().collect();
    let words = claim_words(claim);
    let is_number = |word: &&String| word.contains(|c: char| c.is_numeric());
    if words.is_empty() || !words.iter().filter(is_number).all(|word| held.contains(word)) {
        return 0.0;
    }
    words.iter().filter(|word| held.contains(*word)).count() as f32 / words.len() as f32
}

impl GroundingScorer for LexicalScorer {
    fn name(&self) -> &str {
        "lexical"
    }

    fn score(&self, batch: &[Candidate]) -> Result<Vec<Grounded>> {
        self.score_sharing(batch, &PairMemo::default())
    }

    fn score_sharing(&self, batch: &[Candidate], known: &PairMemo) -> Result<Vec<Grounded>> {
        score_pairwise_sharing(batch, self.tau_nli, known, |pairs| {
            Ok(pairs.iter().map(|(premise, hypothesis)| containment(premise, hypothesis)).collect())
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr)]
mod tests {
    use super::*;
    use crate::gates::grounding::tests::candidate;

    #[test]
    fn support_is_the_share_of_content_words() {
        // C = {polk, signed, bill}; the evidence lacks "signed".
        assert_eq!(containment("Polk vetoed the bill.", "Polk signed the bill."), 2.0 / 3.0);
        assert_eq!(containment("polk SIGNED a bill", "Polk signed the bill."), 1.0);
        assert_eq!(containment("It rained.", "Polk signed the bill."), 0.0);
        assert_eq!(containment("", "Polk"), 0.0);
        assert_eq!(containment("Polk", "…"), 0.0);
        assert_eq!(containment("it was he", "It was."), 1.0);
    }

    #[test]
    fn numbers_must_all_be_there() {
        assert_eq!(containment("Iowa joined in 1845.", "Iowa joined in 1846."), 0.0);
        assert_eq!(containment("Iowa joined in 1846 as 29th.", "Iowa joined in 1846."), 1.0);
        assert_eq!(containment("12,400,000 ha in 2012", "12400000 ha"), 1.0);
        assert_eq!(containment("in 2012", "12 in 2012"), 0.0);
    }

    #[test]
    fn gs_follows_equations_15_and_16() {
        let scorer = LexicalScorer { tau_nli: 0.5 };
        let batch = [candidate(
            "q1",
            &[
                ("Polk signed the bill.", &["It rained.", "Polk vetoed the bill."]),
                ("Iowa joined in 1846.", &["Iowa joined in 1845."]),
            ],
        )];
        let grounded = &scorer.score(&batch).unwrap()[0];
        assert_eq!(grounded.gs, 0.5);
        assert_eq!(grounded.claims[0].evidence.as_ref().unwrap().text, "Polk vetoed the bill.");
    }

    /// Recorded explanations against their own context and against the next question's: the gate must tell them apart.
    #[test]
    fn recorded_explanations_are_grounded_in_their_own_context() {
        use crate::gates::{claims, evidence::EvidencePool};
        use crate::generate::{Marker, PromptPassage, parse_answer};
        let path = crate::text::shared_data().join("traces/musique_train_thought_answer.json");
        let Ok(text) = std::fs::read_to_string(path) else {
            eprintln!("skipped: no ../shared");
            return;
        };
        let records: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        let candidate = |record: &serde_json::Value, context: &str| {
            let parsed = parse_answer(record["generation"].as_str().unwrap(), Marker::First);
            let claims = claims::extract(&parsed.explanation, &parsed.prediction);
            let passage = PromptPassage { id: crate::ids::PassageId(0), text: context.to_owned() };
            let pool = EvidencePool::new(&[passage], 0);
            let evidence = claims.iter().map(|claim| pool.best(claim, 8)).collect();
            Candidate { query_id: String::new(), stream_index: crate::ids::StreamIndex(1), claims, evidence }
        };
        let passed = |shift: usize| {
            let batch: Vec<Candidate> = (0..records.len())
                .map(|i| {
                    let context = records[(i + shift) % records.len()]["context"].as_str().unwrap();
                    candidate(&records[i], context)
                })
                .collect();
            let grounded = LexicalScorer { tau_nli: 0.5 }.score(&batch).unwrap();
            grounded.iter().filter(|g| g.gs >= 0.6).count()
        };
        let (own, other) = (passed(0), passed(7));
        eprintln!("of {} recorded answers {own} pass with their own context, {other} with another", records.len());
        assert!(own > 5 * other && 2 * own > records.len(), "{own} and {other}");
    }
}
