//! Whether an answer holds, by a model's word.
//!
//! In: question, gold answers, answer. Out: [`Verdict`]s of three states. The model's text is kept, and what cannot be read for
//! certain is `unscored`, never wrong: the denominator stays.

use std::path::Path;

use serde::Deserialize;

use super::reader::kept_text;
use super::{Call, ChatOutcome, ChatRequest, Judgement, Message, Source};
use crate::{Error, Result};

/// Prompt file of the profile for short answers.
pub const SHORT: &str = include_str!("../../configs/prompts/judge-short.toml");
/// Prompt file of the profile for support answers.
pub const SUPPORT: &str = include_str!("../../configs/prompts/judge-support.toml");

/// Places that `user` must hold.
const PLACES: [&str; 3] = ["{question}", "{gold}", "{answer}"];

/// The messages a judge gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgePrompt {
    system: String,
    user: String,
    hash: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PromptFile {
    system: String,
    user: String,
}

impl JudgePrompt {
    /// Reads a prompt file's text; `name` is for messages.
    ///
    /// # Errors
    /// Names the file and what is missing in it.
    pub fn parse(text: &str, name: &str) -> Result<Self> {
        let file: PromptFile =
            toml::from_str(text).map_err(|e| Error::request(format!("{name} is no judge prompt")).with_source(e))?;
        if let Some(place) = PLACES.iter().find(|place| !file.user.contains(**place)) {
            return Err(Error::request(format!("{name}: user lacks {place}"))
                .with_hint("user must hold {question}, {gold} and {answer}"));
        }
        let hash = blake3::hash(text.as_bytes()).to_string();
        Ok(Self { system: file.system.trim().to_owned(), user: file.user.trim().to_owned(), hash })
    }

    /// Reads a prompt file.
    ///
    /// # Errors
    /// As [`JudgePrompt::parse`], and when the file cannot be read.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
        Self::parse(&text, &path.display().to_string())
    }

    /// blake3 of the file, for the manifest.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The messages for one answer. Several gold answers stand on lines of their own: any of them may be met.
    pub fn messages(&self, question: &str, golds: &[String], answer: &str) -> Vec<Message> {
        let gold = golds.join("\n");
        let mut user = String::with_capacity(self.user.len() + question.len() + gold.len() + answer.len());
        let mut rest = self.user.as_str();
        // In one pass, so that a text that looks like a place is left alone.
        while let Some((at, place)) = PLACES.iter().filter_map(|p| rest.find(p).map(|at| (at, *p))).min() {
            user.push_str(&rest[..at]);
            user.push_str(match place {
                "{question}" => question,
                "{gold}" => &gold,
                _ => answer,
            });
            rest = &rest[at + place.len()..];
        }
        user.push_str(rest);
        vec![Message::system(self.system.clone()), Message::user(user)]
    }
}

/// A model that judges the answers of a run.
pub struct Judge {
    /// `api`, `recorded` or `gguf`.
    pub name: &'static str,
    /// Model name, for the manifest.
    pub model: String,
    /// Who is asked.
    pub source: Source,
    /// What is asked.
    pub prompt: JudgePrompt,
    /// Model and settings of each call.
    pub template: ChatRequest,
    /// How often each answer is judged.
    pub repeats: u32,
}

impl Judge {
    /// The calls that judge one answer.
    pub fn calls(&self, query_id: &str, question: &str, golds: &[String], answer: &str) -> Vec<Call> {
        calls(&self.prompt, &self.template, self.repeats, query_id, question, golds, answer)
    }
}

/// What the judge said of one answer, over all repeats.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The word of most repeats that could be read; `unscored` when none could, or they are even.
    pub judgement: Judgement,
    /// Share of the repeats that agree with it, from 0 to 1.
    pub agreement: f64,
    /// Each repeat's own word.
    pub votes: Vec<Judgement>,
    /// Each repeat's text as it came; empty where a call failed, and with a leading `<think>` where only a thought came.
    pub raw: Vec<String>,
    /// Time of all repeats that were asked, microseconds.
    pub elapsed_us: u64,
}

/// The calls that judge one answer: `template` with the messages filled in, once a repeat.
pub fn calls(
    prompt: &JudgePrompt,
    template: &ChatRequest,
    repeats: u32,
    query_id: &str,
    question: &str,
    golds: &[String],
    answer: &str,
) -> Vec<Call> {
    let request = ChatRequest { messages: prompt.messages(question, golds, answer), ..template.clone() };
    (0..repeats.max(1))
        .map(|attempt| Call { question: query_id.to_owned(), attempt, request: request.clone() })
        .collect()
}

/// The verdict of one answer's repeats. A call without an answer, a timeout for instance, is an unscored vote, and so is a
/// thought that was cut off.
pub fn verdict(outcomes: &[ChatOutcome]) -> Verdict {
    let elapsed_us = outcomes.iter().map(|o| o.elapsed_us).sum();
    Verdict { elapsed_us, ..read(outcomes.iter().map(kept_text).collect()) }
}

/// The verdict that the texts of a judge's repeats come to; they were kept by an earlier run, for instance.
pub fn read(raw: Vec<String>) -> Verdict {
    let votes: Vec<_> = raw.iter().map(|text| parse_judgement(text)).collect();
    let count = |judgement| votes.iter().filter(|v| **v == judgement).count();
    let judgement = match count(Judgement::Correct).cmp(&count(Judgement::Incorrect)) {
        std::cmp::Ordering::Greater => Judgement::Correct,
        std::cmp::Ordering::Less => Judgement::Incorrect,
        std::cmp::Ordering::Equal => Judgement::Unscored,
    };
    Verdict {
        judgement,
        agreement: if votes.is_empty() { 0.0 } else { count(judgement) as f64 / votes.len() as f64 },
        elapsed_us: 0,
        votes,
        raw,
    }
}

/// Reads a judge's text.
///
/// The first word decides, after reasoning, marks and a label such as `Verdict:` are set aside, and only when it stands alone:
/// the text, its line or its sentence ends there. Any sign of the other verdict in what follows makes it `unscored`.
pub fn parse_judgement(text: &str) -> Judgement {
    let text = after_reasoning(text).to_lowercase();
    let text = without_label(marks_off(&text));
    let end = text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let judgement = match word {
        "correct" => Judgement::Correct,
        "incorrect" => Judgement::Incorrect,
        _ => return Judgement::Unscored,
    };
    // What closes the word: marks, then an end of sentence or line, or nothing at all.
    let closing = rest.trim_start_matches(['*', '_', '`', '"', '\'', ')', ']', '’', '”']);
    let alone =
        closing.trim().is_empty() || closing.trim_start_matches(' ').starts_with(['.', '!', '\n', '\r', ':', ';']);
    let words: Vec<_> =
        rest.split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '’').filter(|w| !w.is_empty()).collect();
    let contradicted = words.iter().enumerate().any(|(i, w)| match *w {
        "incorrect" => judgement == Judgement::Correct,
        "correct" => {
            let negated = i > 0
                && (matches!(words[i - 1], "not" | "never")
                    || words[i - 1].ends_with("n't")
                    || words[i - 1].ends_with("n’t"));
            negated == (judgement == Judgement::Correct)
        }
        _ => false,
    });
    if alone && !contradicted { judgement } else { Judgement::Unscored }
}

/// What stands after a model's leading reasoning. Some models write only the closing tag.
fn after_reasoning(text: &str) -> &str {
    match text.split_once("</think>") {
        Some((_, answer)) => answer,
        // A thought without an end has no answer.
        None if text.trim_start().starts_with("<think>") => "",
        None => text,
    }
}

/// `text` without what may stand before a word.
fn marks_off(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_whitespace() || "*_`\"'([#>-“‘".contains(c))
}

/// `text` without a label such as `verdict:`.
fn without_label(text: &str) -> &str {
    for label in ["final answer", "answer", "verdict", "judgement", "judgment", "evaluation", "response"] {
        if let Some(rest) = text.strip_prefix(label) {
            let rest = rest.trim_start_matches(['*', '_', ' ']);
            if let Some(rest) = rest.strip_prefix(':') {
                return marks_off(rest);
            }
        }
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use crate::llm::{LlmStatus, Usage};

    /// Pitfall 23: an anchored parse, else unscored.
    #[test]
    fn pitfall_23_only_a_clear_word_counts() {
        use Judgement::{Correct, Incorrect, Unscored};
        for (text, expected) in [
            ("Correct.", Correct),
            ("**incorrect**", Incorrect),
            ("not correct", Unscored),
            ("correct\nincorrect", Unscored),
            ("", Unscored),
            ("INCORRECT", Incorrect),
            (" correct \n", Correct),
            ("\"Correct\"", Correct),
            ("**Correct**.", Correct),
            ("Verdict: **Incorrect**", Incorrect),
            ("**Answer:** correct", Correct),
            ("Correct. The answer names the same city.", Correct),
            ("Incorrect: the gold answer is Oslo.", Incorrect),
            ("Incorrect\nIt is not correct since it names Rome.", Incorrect),
            ("Incorrect. The correct answer is Oslo.", Unscored),
            ("Correct. But it isn't correct about the year.", Unscored),
            ("Correct answer would be Oslo", Unscored),
            ("correct or incorrect", Unscored),
            ("incorrectly judged", Unscored),
            ("Correctness: high", Unscored),
            ("The answer is correct", Unscored),
            ("yes", Unscored),
            ("<think>it is incorrect?</think>\ncorrect", Correct),
            ("hm, correct\n</think>\n\nincorrect", Incorrect),
            ("<think>correct", Unscored),
        ] {
            assert_eq!(parse_judgement(text), expected, "{text:?}");
        }
    }

    fn outcome(text: &str, status: LlmStatus) -> ChatOutcome {
        ChatOutcome {
            text: text.into(),
            status,
            finish_reason: None,
            reasoning: None,
            text_from_reasoning: false,
            usage: Usage::default(),
            prompt_maybe_cut: false,
            elapsed_us: 2,
            tries: 1,
            cached: false,
            error: None,
        }
    }

    #[test]
    fn repeats_agree_or_not() {
        let said = |texts: &[&str]| {
            let outcomes: Vec<_> = texts.iter().map(|t| outcome(t, LlmStatus::Ok)).collect();
            let verdict = verdict(&outcomes);
            (verdict.judgement, verdict.agreement)
        };
        assert_eq!(said(&["correct"]), (Judgement::Correct, 1.0));
        assert_eq!(said(&["correct", "incorrect", "correct", "?"]), (Judgement::Correct, 0.5));
        assert_eq!(said(&["correct", "incorrect"]), (Judgement::Unscored, 0.0));
        assert_eq!(said(&["?", "incorrect"]), (Judgement::Incorrect, 0.5));
        assert_eq!(said(&[]), (Judgement::Unscored, 0.0));
    }

    /// Pitfall 25: a judge that times out has not said incorrect.
    #[test]
    fn pitfall_25_a_failed_call_is_unscored() {
        let verdict = verdict(&[outcome("", LlmStatus::Error)]);
        assert_eq!((verdict.judgement, verdict.agreement), (Judgement::Unscored, 1.0));
        let cut = ChatOutcome { text_from_reasoning: true, ..outcome("Correct.", LlmStatus::Truncated) };
        assert_eq!(super::verdict(&[cut]).judgement, Judgement::Unscored);
    }

    #[test]
    fn built_in_prompts_ask_for_one_word() {
        let mut hashes = Vec::new();
        for (name, text) in [("short", SHORT), ("support", SUPPORT)] {
            let prompt = JudgePrompt::parse(text, name).unwrap();
            let messages = prompt.messages("Who {gold}?", &["Ann".into(), "Anna".into()], "{question}");
            assert!(messages[1].content.contains("Who {gold}?") && messages[1].content.contains("Ann\nAnna"), "{name}");
            assert!(messages.iter().any(|m| m.content.contains("one word")), "{name}");
            assert_eq!(messages[1].content.matches("{question}").count(), 1, "the answer's own text is left alone");
            hashes.push(prompt.hash().to_owned());
        }
        assert_ne!(hashes[0], hashes[1]);
        let error = JudgePrompt::parse("system = \"s\"\nuser = \"{question} {answer}\"", "x.toml").unwrap_err();
        assert!(error.to_string().contains("x.toml: user lacks {gold}"), "{error}");
    }

    #[test]
    fn repeats_are_calls_of_their_own() {
        let prompt = JudgePrompt::parse(SHORT, "short").unwrap();
        let template = ChatRequest::new("http://h/v1", "judge", Vec::new(), 16);
        let calls = calls(&prompt, &template, 3, "q1", "Who?", &["Ann".into()], "Ann");
        assert_eq!(calls.iter().map(|c| c.attempt).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(calls[0].key() != calls[1].key() && calls[0].request == calls[1].request);
    }

    proptest::proptest! {
        /// A text that never names a verdict is never scored.
        #[test]
        fn any_text_is_survived(text in ".*") {
            let named = text.to_lowercase().contains("correct");
            proptest::prop_assert!(named || parse_judgement(&text) == Judgement::Unscored);
        }
    }
}
