//! Atomic claims of a candidate, the cl_i of equation 15, found without a language model.
//!
//! In: the reader's explanation and answer. Out: claims in text order, without repeats, each a text an NLI model can check.

use crate::text::{contains_tokens, is_stop_word, sentences, strip_list_marker, tokens};

/// Labels that stand before reasoning without being part of it.
const LABELS: [&str; 6] = ["thought", "thoughts", "reasoning", "explanation", "claim", "triplets"];

/// Connectives that tie a claim to the one before; the claim stands without them.
const CONNECTIVES: [&str; 10] =
    ["therefore", "thus", "hence", "so", "then", "finally", "consequently", "in conclusion", "as a result", "also"];

/// What reasoning calls its passages.
const SOURCES: [&str; 5] = ["the context", "the passage", "the passages", "the text", "the provided context"];

/// What they are said to do, before `that`.
const SAYS: [&str; 10] =
    ["states", "state", "mentions", "mention", "indicates", "indicate", "says", "say", "specifies", "confirms"];

/// Words that make an answer a statement rather than a span.
const FINITE_VERBS: [&str; 22] = [
    "is", "are", "was", "were", "be", "has", "have", "had", "do", "does", "did", "can", "cannot", "could", "will",
    "would", "should", "must", "may", "might", "shall", "need",
];

/// Words from which on an answer is read as a statement whatever its verb.
const STATEMENT_WORDS: usize = 8;

/// First words of an answer that refuses one.
const REFUSALS: [&str; 6] = ["not", "no", "none", "unknown", "unclear", "insufficient"];

/// Claims of the explanation, then of the answer.
///
/// The explanation is cut into sentences, lines and semicolon parts; list marks, labels (`Thought:`), bold marks, link
/// targets, the bars of triples, leading connectives (`Therefore,`) and references to the source (`The context states
/// that`) go, since no passage speaks of itself. Dropped are questions, lead-ins that end in a colon, and pieces without a
/// content word.
///
/// An answer that states something (a verb among three or more words, or eight words) is cut the same way. A short span
/// says nothing an NLI model could check, and `The answer is X` no passage entails. It is mostly stated in the explanation
/// already, and then adds no claim; else its claim is `There is X.`: a cross-encoder trained on SNLI and MNLI finds that
/// form entailed by a sentence naming X and hardly else (of 40 recorded MuSiQue answers 95 %, of answers to other
/// questions 8 %; `X is mentioned.` 85 and 13 %, the bare span 88 and 18 %, question and span together 10 and 3 %).
/// Yes and no add none. A refusal (`not stated …`) stays as it is, a claim that finds no support.
pub fn extract(explanation: &str, answer: &str) -> Vec<String> {
    let mut claims = Claims::default();
    claims.add_all_of(explanation);
    let pieces = sentences::split_clauses(answer);
    if pieces.iter().any(|range| is_statement(&answer[range.clone()])) {
        claims.add_all_of(answer);
    } else if let Some(claim) = span_claim(answer, &claims.words) {
        claims.add(claim);
    }
    claims.texts
}

/// Claims so far, and their words.
#[derive(Default)]
struct Claims {
    texts: Vec<String>,
    words: Vec<Vec<String>>,
}

impl Claims {
    fn add_all_of(&mut self, text: &str) {
        for range in sentences::split_clauses(text) {
            if let Some(claim) = claim_of(&text[range]) {
                self.add(claim);
            }
        }
    }

    /// Adds a claim unless its words were claimed before.
    fn add(&mut self, claim: String) {
        let words = tokens(&claim);
        if !self.words.contains(&words) {
            self.words.push(words);
            self.texts.push(claim);
        }
    }
}

/// The claim a sentence or clause makes, if it makes one.
fn claim_of(piece: &str) -> Option<String> {
    let bare = without_links(piece).replace("**", "").replace(" | ", " ");
    let mut text = strip_list_marker(&bare);
    while let Some((label, rest)) = text.split_once(':') {
        if !LABELS.contains(&label.trim().to_lowercase().as_str()) {
            break;
        }
        text = strip_list_marker(rest);
    }
    if let Some((connective, rest)) = text.split_once(',')
        && CONNECTIVES.contains(&connective.to_lowercase().as_str())
    {
        text = rest.trim_start();
    }
    let text = without_source(text).trim_end_matches(';').trim_end();
    let speaks = tokens(text).iter().any(|word| !is_stop_word(word) && word.contains(char::is_alphabetic));
    (speaks && !text.ends_with([':', '?'])).then(|| capitalized(text))
}

/// `text` with every Markdown link `[words](http…)` reduced to its words.
fn without_links(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('[') {
        let link = rest[open..].find(']').and_then(|length| {
            let target = rest[open + length + 1..].trim_start_matches(' ').strip_prefix('(')?;
            let end = target.find(')').filter(|_| target.starts_with("http"))?;
            Some((&rest[open + 1..open + length], &target[end + 1..]))
        });
        let (words, tail) = link.unwrap_or((&rest[open..=open], &rest[open + 1..]));
        out.push_str(&rest[..open]);
        out.push_str(words);
        rest = tail;
    }
    out + rest
}

/// `text` without a leading `The context states that` or `According to the context,`.
fn without_source(text: &str) -> &str {
    let lower = text.to_ascii_lowercase();
    let rest = match lower.strip_prefix("according to ") {
        Some(from) => SOURCES.iter().find_map(|source| from.strip_prefix(source)?.strip_prefix(", ")),
        None => SOURCES.iter().find_map(|source| {
            let from = lower.strip_prefix(source)?.strip_prefix(' ')?;
            SAYS.iter().find_map(|says| from.strip_prefix(says)?.strip_prefix(" that "))
        }),
    };
    // Lower-casing ASCII keeps every length.
    rest.map_or(text, |rest| &text[text.len() - rest.len()..])
}

fn is_statement(piece: &str) -> bool {
    let words = tokens(piece);
    words.len() >= STATEMENT_WORDS || words.len() >= 3 && words.iter().any(|word| FINITE_VERBS.contains(&word.as_str()))
}

/// The claim of a short answer that no claim in `stated` holds; see [`extract`].
fn span_claim(answer: &str, stated: &[Vec<String>]) -> Option<String> {
    let span = answer.trim().trim_end_matches(['.', ';', ',']).trim_end();
    let words = tokens(span);
    if words.iter().all(|word| is_stop_word(word)) || stated.iter().any(|claim| contains_tokens(claim, &words)) {
        return None;
    }
    if words.first().is_some_and(|word| REFUSALS.contains(&word.as_str())) {
        return Some(format!("{}.", capitalized(span)));
    }
    let span: Vec<&str> = span.split_whitespace().collect();
    Some(format!("There is {}.", span.join(" ")))
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr)]
mod tests {
    use super::*;

    #[test]
    fn sentences_lists_and_semicolons_are_claims() {
        assert_eq!(
            extract(
                "Thought: Iowa grows corn; it joined in 1846.\n1. Polk signed the bill.\n- **Polk** was president.\n\
                 Steps:\nWho was it? So, Polk was president. Okay.",
                "yes"
            ),
            ["Iowa grows corn", "It joined in 1846.", "Polk signed the bill.", "Polk was president."]
        );
        assert_eq!(
            extract(
                "According to the context, Åse sang. The passages state that Oslo is old. The context is long.",
                ""
            ),
            ["Åse sang.", "Oslo is old.", "The context is long."]
        );
        assert_eq!(extract("Triplets:\nVance | died | April 14, 1894", ""), ["Vance died April 14, 1894"]);
    }

    #[test]
    fn links_are_reduced_to_their_words() {
        assert_eq!(
            extract(
                "Go to [Accept [old] Payments] (https://x.com/?a=2%20b) or [Help](https://y.com). See [1] (now) [.",
                ""
            ),
            ["Go to [Accept [old] Payments] (https://x.com/?a=2%20b) or Help.", "See [1] (now) [."]
        );
        assert_eq!(extract("Click [Save](http://x.com/1) and [Menü] (http://y.com).", ""), ["Click Save and Menü."]);
    }

    #[test]
    fn nothing_said_is_no_claim() {
        assert!(extract("", "").is_empty());
        assert!(extract(" \n- \n1.\nSo, it is.", "No.").is_empty());
    }

    #[test]
    fn a_span_answer_is_a_claim_only_where_the_explanation_lacks_it() {
        assert_eq!(extract("Therefore, Oslo lies in Norway.", "oslo"), ["Oslo lies in Norway."]);
        assert_eq!(extract("It lies in Norway.", "Oslo."), ["It lies in Norway.", "There is Oslo."]);
        assert_eq!(extract("", "James K.\nPolk"), ["There is James K. Polk."]);
        assert_eq!(
            extract("It lies in Norway.", "not stated in the passages"),
            ["It lies in Norway.", "Not stated in the passages."]
        );
    }

    #[test]
    fn an_answer_that_states_something_is_cut_like_an_explanation() {
        assert_eq!(
            extract("", "Go to Settings.\n2. You can click Save; then close it."),
            ["Go to Settings.", "You can click Save", "Then close it."]
        );
        assert_eq!(extract("Polk was president.", "Polk was President."), ["Polk was president."]);
    }

    #[test]
    fn recorded_explanations_give_claims() {
        let Ok(text) =
            std::fs::read_to_string(crate::text::shared_data().join("traces/musique_train_thought_answer.json"))
        else {
            eprintln!("skipped: no ../shared");
            return;
        };
        let records: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        let mut spans = 0;
        let mut total = 0;
        for record in &records {
            let parsed = crate::generate::parse_answer(record["generation"].as_str().unwrap(), Default::default());
            let claims = extract(&parsed.explanation, &parsed.prediction);
            assert!(!claims.is_empty(), "{}", record["id"]);
            spans += usize::from(claims.last().unwrap().starts_with("There is "));
            total += claims.len();
        }
        eprintln!("{total} claims of {} answers, {spans} answers as a claim of their own", records.len());
    }
}
