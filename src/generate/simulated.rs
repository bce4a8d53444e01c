//! A reader without a model, for simulation: deterministic, honest about being one (`llm_status = simulated`).
//!
//! In: a request and its oracle. Out: `Thought: …` made of sentences of the given passages and `Answer: …`, which is the gold
//! answer if and only if all gold passages were given, or by a seeded coin where none are known. It looks at nothing
//! beyond its own request, and at the scaffold only through the length of the prompt. Token counts are estimates.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::answer::ANSWER_MARKER;
use super::{Generator, LlmStatus, PromptPassage, Request, Response, Usage, coin, contain};
use crate::Result;
use crate::ids::PassageId;
use crate::text::{estimate_tokens, is_stop_word, sentences, strip_list_marker, tokens};

/// Sentences of a thought, unless more gold passages than that want one each.
const SENTENCES: usize = 3;
/// Sentences of a thought at most.
const MOST_SENTENCES: usize = 4;
/// Words of a sentence at least.
const FEWEST_WORDS: usize = 4;
/// Passages a thought draws on where gold passages do not decide.
const TOP_PASSAGES: usize = 2;

/// What a wrong answer says: the first of these that holds no gold answer.
const WRONG: [&str; 3] = ["not stated in the passages", "unknown", "no information given"];

/// The deterministic reader.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimulatedReader {
    /// Seed of the coin.
    pub seed: u64,
    /// Chance of a correct answer where no gold passages are known, in [0, 1].
    pub accuracy: f64,
}

impl SimulatedReader {
    /// Whether the answer will be correct. An empty list of gold passages says as little as none.
    fn answers_correctly(&self, request: &Request) -> bool {
        let given = |gold: &PassageId| request.passages.iter().any(|passage| passage.id == *gold);
        !request.oracle.answers.is_empty()
            && match request.oracle.gold_passages.as_deref() {
                Some(gold) if !gold.is_empty() => gold.iter().all(given),
                _ => coin::uniform("simulated-reader", self.seed, &request.query_id) < self.accuracy,
            }
    }

    #[cfg(test)]
    fn respond(&self, request: &Request) -> Response {
        self.respond_with(request, &self.thought(request))
    }

    fn respond_with(&self, request: &Request, thought: &str) -> Response {
        let answer = match request.oracle.answers.first() {
            Some(gold) if self.answers_correctly(request) => gold.clone(),
            _ => wrong_answer(&request.oracle.answers),
        };
        let raw = format!("Thought: {thought}\n{ANSWER_MARKER} {answer}");
        let prompt_tokens =
            estimate_tokens(&request.prompt.system).saturating_add(estimate_tokens(&request.prompt.user));
        Response {
            status: LlmStatus::Simulated,
            usage: Usage {
                prompt_tokens: Some(prompt_tokens),
                completion_tokens: Some(estimate_tokens(&raw)),
                reasoning_tokens: None,
                cached_tokens: None,
            },
            tokens_estimated: true,
            prompt_cut: false,
            // No call is made, so none takes time.
            elapsed_us: 0,
            raw,
        }
    }

    /// The sentences that share most words with the question and, when it is correct, the answer, in passage order.
    ///
    /// A correct answer draws on the gold passages, where known, with at least one sentence of each of the first four; any
    /// other answer on the passages ranked first.
    fn thought(&self, request: &Request) -> String {
        let correct = self.answers_correctly(request);
        let gold = request.oracle.gold_passages.as_deref().filter(|gold| correct && !gold.is_empty());
        let sources: Vec<&PromptPassage> = match gold {
            Some(gold) => request.passages.iter().filter(|passage| gold.contains(&passage.id)).collect(),
            None => request.passages.iter().take(TOP_PASSAGES).collect(),
        };
        let mut wanted = content_words(&request.question);
        if let Some(answer) = request.oracle.answers.first().filter(|_| correct) {
            wanted.extend(content_words(answer));
        }
        wanted.sort_unstable();
        wanted.dedup();

        // (source, position, overlap, sentence)
        let mut ranked: Vec<(usize, usize, usize, &str)> = Vec::new();
        for (source, passage) in sources.iter().enumerate() {
            for (position, range) in sentences::split(&passage.text).into_iter().enumerate() {
                let sentence = strip_list_marker(&passage.text[range]);
                // A title says nothing by itself, and a passage may quote the marks that the answer parser looks for.
                let words = tokens(sentence);
                if words.len() >= FEWEST_WORDS && !sentence.contains(ANSWER_MARKER) && !sentence.contains("think>") {
                    let mut found = vec![false; wanted.len()];
                    for place in words.iter().filter_map(|word| wanted.binary_search(word).ok()) {
                        found[place] = true;
                    }
                    let overlap = found.into_iter().filter(|&f| f).count();
                    ranked.push((source, position, overlap, sentence));
                }
            }
        }
        ranked.sort_by_key(|&(source, position, overlap, _)| (std::cmp::Reverse(overlap), source, position));
        let mut seen = vec![false; sources.len()];
        let is_best_of_source: Vec<bool> =
            ranked.iter().map(|&(source, ..)| !std::mem::replace(&mut seen[source], true)).collect();
        let firsts = ranked.iter().zip(&is_best_of_source).filter(|&(_, &best)| best && gold.is_some());
        let mut chosen: Vec<_> = firsts.map(|(sentence, _)| *sentence).take(MOST_SENTENCES).collect();
        for sentence in &ranked {
            if chosen.len() >= SENTENCES {
                break;
            }
            if !chosen.contains(sentence) {
                chosen.push(*sentence);
            }
        }
        chosen.sort_unstable();
        let texts: Vec<&str> = chosen.into_iter().map(|(.., sentence)| sentence).collect();
        if texts.is_empty() { "The passages say nothing about it.".to_owned() } else { texts.join(" ") }
    }
}

impl Generator for SimulatedReader {
    fn name(&self) -> &str {
        "simulated"
    }

    fn generate(&self, batch: &[Request]) -> Result<Vec<Response>> {
        // A thought does not depend on the scaffold, so runs that differ in nothing else share it.
        let mut places: BTreeMap<(&str, Vec<PassageId>), usize> = BTreeMap::new();
        let mut distinct: Vec<&Request> = Vec::new();
        let place: Vec<usize> = batch
            .iter()
            .map(|request| {
                let given = request.passages.iter().map(|p| p.id).collect();
                *places.entry((&request.query_id, given)).or_insert_with(|| {
                    distinct.push(request);
                    distinct.len() - 1
                })
            })
            .collect();
        let thoughts: Vec<String> = distinct.par_iter().map(|request| self.thought(request)).collect();
        Ok(batch.par_iter().zip(&place).map(|(request, &i)| self.respond_with(request, &thoughts[i])).collect())
    }
}

/// An answer in which no gold answer is contained.
fn wrong_answer(golds: &[String]) -> String {
    let misses = |text: &&str| contain(text, golds) != Some(true);
    if let Some(text) = WRONG.iter().copied().find(|text| misses(text)) {
        return text.to_owned();
    }
    // One symbol holds a gold only if it is that gold, so one symbol more than there are golds is enough.
    let symbols = ('\u{25a0}'..='\u{25ff}').chain('\u{4e00}'..='\u{9fff}').map(String::from);
    symbols.take(golds.len() + 1).find(|symbol| misses(&symbol.as_str())).unwrap_or_default()
}

fn content_words(text: &str) -> Vec<String> {
    tokens(text).into_iter().filter(|word| !is_stop_word(word)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::generate::{Marker, Oracle, Prompt, parse_answer};

    const TEXTS: [&str; 4] = [
        "Iowa\nIowa is a state. Most sweet corn is grown in Iowa. Its capital is Des Moines.",
        "Polk\nJames K. Polk signed the bill for Iowa in 1846. He was born in 1795.",
        "Rome\nRome is a city. Answer: the marker is quoted here. It is old.",
        "Oslo\nOslo lies in Norway.",
    ];

    fn request(given: &[u32], gold: Option<&[u32]>, answers: &[&str]) -> Request {
        Request {
            query_id: "q1".into(),
            question: "Who was president when the state where most sweet corn is grown joined?".into(),
            passages: given
                .iter()
                .map(|&i| PromptPassage { id: PassageId(i), text: TEXTS[i as usize].into() })
                .collect(),
            scaffold: None,
            prompt: Prompt { system: "Read.".into(), user: "Who?".into() },
            oracle: Oracle {
                answers: answers.iter().map(|&a| a.to_owned()).collect(),
                gold_passages: gold.map(|gold| gold.iter().map(|&i| PassageId(i)).collect()),
            },
        }
    }

    const READER: SimulatedReader = SimulatedReader { seed: 0, accuracy: 0.0 };

    fn prediction(reader: SimulatedReader, request: &Request) -> String {
        parse_answer(&reader.respond(request).raw, Marker::First).prediction
    }

    #[test]
    fn correct_if_and_only_if_all_gold_passages_are_given() {
        for (given, correct) in
            [(&[2, 1, 0][..], true), (&[0, 1], true), (&[0, 2], false), (&[1, 3], false), (&[], false)]
        {
            let request = request(given, Some(&[0, 1]), &["James K. Polk"]);
            let expected = if correct { "James K. Polk" } else { "not stated in the passages" };
            for marker in [Marker::First, Marker::Last] {
                let parsed = parse_answer(&READER.respond(&request).raw, marker);
                assert_eq!(parsed.prediction, expected, "{given:?}");
                assert!(!parsed.explanation.is_empty());
            }
        }
    }

    #[test]
    fn thoughts_are_sentences_of_the_passages() {
        let correct = READER.respond(&request(&[2, 1, 0], Some(&[0, 1]), &["James K. Polk"]));
        assert_eq!(
            correct.raw,
            "Thought: James K. Polk signed the bill for Iowa in 1846. Iowa is a state. Most sweet corn is grown in Iowa.\n\
             Answer: James K. Polk"
        );
        assert_eq!((correct.status, correct.tokens_estimated), (LlmStatus::Simulated, true));
        let wrong = READER.respond(&request(&[2, 3, 0], Some(&[0, 1]), &["James K. Polk"]));
        assert_eq!(wrong.raw, "Thought: Rome is a city. Oslo lies in Norway.\nAnswer: not stated in the passages");
        let blind = READER.respond(&request(&[], Some(&[0]), &["Polk"]));
        assert_eq!(blind.raw, "Thought: The passages say nothing about it.\nAnswer: not stated in the passages");
    }

    #[test]
    fn a_coin_decides_where_no_gold_is_known() {
        for gold in [None, Some(&[][..])] {
            let request = request(&[0], gold, &["Polk"]);
            assert_eq!(prediction(SimulatedReader { seed: 0, accuracy: 1.0 }, &request), "Polk");
            assert_eq!(prediction(SimulatedReader { seed: 0, accuracy: 0.0 }, &request), "not stated in the passages");
        }
        let hits = (0..2000)
            .filter(|i| {
                let mut request = request(&[0], None, &["Polk"]);
                request.query_id = format!("q{i}");
                prediction(SimulatedReader { seed: 3, accuracy: 0.8 }, &request) == "Polk"
            })
            .count();
        // Binomial, n = 2000, p = 0.8: mean 1600, deviation 17.9.
        assert!((1530..=1670).contains(&hits), "{hits}");
    }

    #[test]
    fn a_wrong_answer_never_contains_a_gold() {
        for golds in [
            &["no"][..],
            &["passages", "unknown"],
            &["not", "known", "information", "\u{25a0}", "\u{25a1}"],
            &["The"],
            &[],
            &["a", "n", "o", "s", "u"],
        ] {
            let request = request(&[0], Some(&[1]), golds);
            let prediction = prediction(READER, &request);
            assert_ne!(contain(&prediction, &request.oracle.answers), Some(true), "{prediction}");
            assert!(!prediction.is_empty());
        }
    }

    #[test]
    fn scaffold_and_neighbours_change_nothing_but_the_count() {
        let plain = request(&[0, 1], Some(&[0, 1]), &["Polk"]);
        let mut guided = plain.clone();
        guided.scaffold = Some("Question: Where?\nAnswer: Rome".into());
        guided.prompt.user = "Question: Where? Answer: Rome. Who?".into();
        let [a, b] = &READER.generate(&[plain.clone(), guided]).unwrap()[..] else { panic!("two responses") };
        assert_eq!(a.raw, b.raw);
        assert_eq!(a.usage.completion_tokens, b.usage.completion_tokens);
        assert!(a.usage.prompt_tokens < b.usage.prompt_tokens);
        assert_eq!(&READER.generate(&[plain]).unwrap()[0], a);
    }

    proptest! {
        #[test]
        fn wrong_answers_miss_any_golds(golds in proptest::collection::vec("[a-z \u{25a0}-\u{25a3}]{0,3}", 0..8)) {
            prop_assert_ne!(contain(&wrong_answer(&golds), &golds), Some(true));
        }
    }
}
