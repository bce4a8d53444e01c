//! Compact reasoning summaries, equation 6: `sum = (q, KeySent(r, a_final), a)`.
//!
//! In: a question, the reader's explanation, the answer and the final entity activation. Out: the text that stands in
//! later prompts as the scaffold.

use crate::text::{contains_tokens, sentences, strip_list_marker, tokens};

/// The key sentences of an explanation, `KeySent` of equation 6: at most `keep`, in their original order.
///
/// Sentences rank by the number of activated entities they mention, then by the summed activation of those, then by
/// position. `activation` lists entity strings with their entries of `a_final`; only entries above 0 are activated. A
/// sentence mentions an entity when it holds the entity's words side by side, whatever their case. An explanation that
/// mentions none keeps its first sentences.
pub fn key_sentences(explanation: &str, activation: &[(String, f64)], keep: usize) -> Vec<String> {
    let activated: Vec<(Vec<String>, f64)> = activation
        .iter()
        .filter(|(_, weight)| *weight > 0.0)
        .map(|(entity, weight)| (tokens(entity), *weight))
        .collect();
    let found: Vec<&str> = sentences::split(explanation)
        .into_iter()
        .map(|range| strip_list_marker(&explanation[range]))
        .filter(|sentence| sentence.contains(char::is_alphanumeric))
        .collect();
    // (position, entities mentioned, their summed activation)
    let mut ranked: Vec<(usize, usize, f64)> = found
        .iter()
        .enumerate()
        .map(|(position, sentence)| {
            let words = tokens(sentence);
            let mentioned = activated.iter().filter(|(entity, _)| contains_tokens(&words, entity));
            let (count, sum) = mentioned.fold((0, 0.0), |(count, sum), (_, weight)| (count + 1, sum + weight));
            (position, count, sum)
        })
        .collect();
    ranked.sort_by(|a, b| b.1.cmp(&a.1).then(b.2.total_cmp(&a.2)).then(a.0.cmp(&b.0)));
    ranked.truncate(keep);
    ranked.sort_by_key(|&(position, ..)| position);
    ranked.into_iter().map(|(position, ..)| found[position].to_owned()).collect()
}

/// The stored summary, equation 6, as text: the source question, the key sentences of its explanation, its answer.
///
/// The reasoning line is left out when the explanation has no sentence or `keep` is 0.
pub fn summarize(query: &str, explanation: &str, activation: &[(String, f64)], answer: &str, keep: usize) -> String {
    let reasoning = key_sentences(explanation, activation, keep).join(" ");
    let reasoning = if reasoning.is_empty() { reasoning } else { format!("Reasoning: {reasoning}\n") };
    format!("Question: {}\n{reasoning}Answer: {}", query.trim(), answer.trim())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    const EXPLANATION: &str = "The question is about corn. Iowa is the largest producer there is. \
                               Iowa became a state under James K. Polk. Nothing else matters. So Polk it is.";

    fn activation(entries: &[(&str, f64)]) -> Vec<(String, f64)> {
        entries.iter().map(|&(entity, weight)| (entity.to_owned(), weight)).collect()
    }

    #[test]
    fn sentences_rank_by_entities_then_activation_then_position() {
        // Mentions: s1 {Iowa} 0.9; s2 {Iowa, James K. Polk} 1.0; s4 {Polk} 0.95; s0 and s3 none.
        let map =
            activation(&[("Iowa", 0.9), ("James K. Polk", 0.1), ("Nothing", 0.0), ("Polk", 0.0), ("polk it", 0.95)]);
        assert_eq!(key_sentences(EXPLANATION, &map, 1), ["Iowa became a state under James K. Polk."]);
        assert_eq!(key_sentences(EXPLANATION, &map, 2), ["Iowa became a state under James K. Polk.", "So Polk it is."]);
        assert_eq!(
            key_sentences(EXPLANATION, &map, 3),
            ["Iowa is the largest producer there is.", "Iowa became a state under James K. Polk.", "So Polk it is."]
        );
        assert_eq!(key_sentences(EXPLANATION, &map, 9).len(), 5);
        assert!(key_sentences(EXPLANATION, &map, 0).is_empty());
    }

    #[test]
    fn mentions_keep_word_boundaries_and_ignore_case() {
        let map = activation(&[("IOWA", 1.0), ("", 1.0), ("…", 1.0), ("stat", 1.0)]);
        assert_eq!(key_sentences("Iowan corn. A state. In iowa too.", &map, 1), ["In iowa too."]);
    }

    #[test]
    fn without_mentions_the_first_sentences_stay() {
        assert_eq!(key_sentences("One. Two. Three.", &[], 2), ["One.", "Two."]);
        assert!(key_sentences(" \n ", &[], 2).is_empty());
    }

    #[test]
    fn summary_is_question_sentences_answer() {
        assert_eq!(
            summarize(" Who? ", "1. Iowa grew.\n2. Polk signed.", &activation(&[("Polk", 1.0)]), "Polk\n", 1),
            "Question: Who?\nReasoning: Polk signed.\nAnswer: Polk"
        );
        assert_eq!(summarize("Who?", "", &[], "Polk", 3), "Question: Who?\nAnswer: Polk");
    }
}
