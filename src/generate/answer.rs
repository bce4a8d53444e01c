//! Prediction and explanation out of the text a reader wrote, spec section 7.
//!
//! In: the raw text of one response. Out: what counts as the answer and what as the reasoning. Leading reasoning of
//! thinking models (`<think>…</think>`, or only a closing tag) is removed first; a tag that the answer quotes stays.

use serde::{Deserialize, Serialize};

/// What ends the reasoning and opens the answer.
pub const ANSWER_MARKER: &str = "Answer:";

const THOUGHT_MARKER: &str = "Thought:";
const THINK_OPEN: &str = "<think>";
const THINK_CLOSE: &str = "</think>";
const BOLD: &str = "**";

/// Which [`ANSWER_MARKER`] counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Marker {
    /// The answer stands between the first and the second (the reference).
    #[default]
    First,
    /// The answer stands after the last.
    Last,
}

/// A response taken apart. Texts carry no surrounding white space.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parsed {
    /// The answer; the whole text where there is no marker.
    pub prediction: String,
    /// What stands before the answer's marker, without a leading `Thought:`; empty where there is no marker.
    pub explanation: String,
    /// The answer by the other [`Marker`], where the two differ.
    pub other_prediction: Option<String>,
}

/// Takes a response apart.
pub fn parse_answer(raw: &str, marker: Marker) -> Parsed {
    let text = strip_reasoning(raw);
    let (Some(first), Some(last)) = (text.find(ANSWER_MARKER), text.rfind(ANSWER_MARKER)) else {
        return Parsed { prediction: text.to_owned(), ..Parsed::default() };
    };
    let after_first = &text[first + ANSWER_MARKER.len()..];
    let by_first = clean_answer(after_first.split(ANSWER_MARKER).next().unwrap_or_default());
    let by_last = clean_answer(&text[last + ANSWER_MARKER.len()..]);
    let (prediction, other, end) = match marker {
        Marker::First => (by_first, by_last, first),
        Marker::Last => (by_last, by_first, last),
    };
    Parsed {
        prediction: prediction.to_owned(),
        explanation: clean_explanation(&text[..end]).to_owned(),
        other_prediction: (other != prediction).then(|| other.to_owned()),
    }
}

/// The text after the model's leading reasoning, trimmed.
///
/// An opening tag counts only at the very start, and without its closing tag everything is reasoning. A closing tag
/// without an opening one ends reasoning unless the answer quotes it, that is, unless a marker stands before it, none after,
/// and it does not stand at the end of its line.
fn strip_reasoning(raw: &str) -> &str {
    let mut text = raw.trim();
    loop {
        if let Some(reasoning) = text.strip_prefix(THINK_OPEN) {
            let Some(close) = reasoning.find(THINK_CLOSE) else { return "" };
            text = reasoning[close + THINK_CLOSE.len()..].trim_start();
            continue;
        }
        let Some(close) = text.find(THINK_CLOSE) else { return text };
        let (before, after) = (&text[..close], &text[close + THINK_CLOSE.len()..]);
        let opened_inside = before.contains(THINK_OPEN);
        let quoted_in_answer =
            before.contains(ANSWER_MARKER) && !after.contains(ANSWER_MARKER) && !after.starts_with(['\n', '\r']);
        if opened_inside || quoted_in_answer {
            return text;
        }
        text = after.trim_start();
    }
}

/// An answer without bold marks around it, whether they were opened before the marker (`**Answer:** x`, `**Answer: x**`)
/// or belong to the answer alone (`Answer: **x**`). Bold inside the answer stays.
fn clean_answer(answer: &str) -> &str {
    let mut answer = without_bold_tail(answer.trim());
    if let Some(rest) =
        answer.strip_prefix(BOLD).filter(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
    {
        answer = rest.trim_start();
    }
    let marks = answer.matches(BOLD).count();
    let inner = answer.strip_suffix(BOLD).filter(|_| marks % 2 == 1);
    let inner = inner.or_else(|| answer.strip_prefix(BOLD)?.strip_suffix(BOLD).filter(|_| marks == 2));
    inner.unwrap_or(answer).trim()
}

fn clean_explanation(explanation: &str) -> &str {
    let explanation = without_bold_tail(explanation.trim());
    let bold = explanation.strip_prefix(BOLD).and_then(|rest| rest.strip_prefix(THOUGHT_MARKER)?.strip_prefix(BOLD));
    bold.or_else(|| explanation.strip_prefix(THOUGHT_MARKER)).unwrap_or(explanation).trim()
}

/// Without the bold mark that opens a following `**Answer:**`.
fn without_bold_tail(text: &str) -> &str {
    match text.strip_suffix(BOLD) {
        Some(rest) if rest.is_empty() || rest.ends_with(char::is_whitespace) => rest.trim_end(),
        _ => text,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr)]
mod tests {
    use super::*;

    fn first(raw: &str) -> (String, String) {
        let parsed = parse_answer(raw, Marker::First);
        (parsed.prediction, parsed.explanation)
    }

    #[test]
    fn thought_and_answer_are_taken_apart() {
        assert_eq!(first("Thought: Oslo is in Norway.\nAnswer: Oslo"), ("Oslo".into(), "Oslo is in Norway.".into()));
        assert_eq!(first(" Oslo is in Norway. Answer:\nOslo \n"), ("Oslo".into(), "Oslo is in Norway.".into()));
        assert_eq!(first("Answer: Oslo"), ("Oslo".into(), String::new()));
    }

    #[test]
    fn without_a_marker_the_whole_text_is_the_answer() {
        assert_eq!(first(" Go to Settings.\nClick. "), ("Go to Settings.\nClick.".into(), String::new()));
        assert_eq!(parse_answer("", Marker::Last), Parsed::default());
    }

    #[test]
    fn pitfall_21_leading_reasoning_is_removed() {
        for raw in [
            "hmm</think>\nAnswer: Oslo",
            "<think>hmm</think>\nAnswer: Oslo",
            "\n<think>\nAnswer: Rome? Let me see.\n</think>\n\nAnswer: Oslo",
            "Answer: Rome? Wait.</think>\nAnswer: Oslo",
            "<think>a</think><think>b</think>Answer: Oslo",
            "I close with </think> now </think>Answer: Oslo",
            "<think></think>Oslo",
            "hmm</think>Oslo",
            "My draft Answer: Rome\n</think>\nOslo",
        ] {
            assert_eq!(parse_answer(raw, Marker::First).prediction, "Oslo", "{raw:?}");
        }
        assert_eq!(first("hmm</think>Thought: It is.\nAnswer: Oslo").1, "It is.");
        assert_eq!(parse_answer("<think>cut at the limit. Answer: Oslo", Marker::First), Parsed::default());
    }

    #[test]
    fn pitfall_21_a_tag_quoted_in_the_answer_stays() {
        for answer in ["the <think> tag", "the </think> tag", "<think> and </think>"] {
            assert_eq!(first(&format!("Answer: {answer}")).0, answer);
            assert_eq!(first(&format!("<think>x</think>Thought: Tags.\nAnswer: {answer}")).0, answer);
        }
    }

    #[test]
    fn pitfall_22_first_and_last_marker_are_both_known() {
        let raw = "Thought: Hm.\nAnswer: Rome? No. Answer: Milan";
        let by_first = parse_answer(raw, Marker::First);
        assert_eq!((by_first.prediction.as_str(), by_first.other_prediction.as_deref()), ("Rome? No.", Some("Milan")));
        assert_eq!(by_first.explanation, "Hm.");
        let by_last = parse_answer(raw, Marker::Last);
        assert_eq!((by_last.prediction.as_str(), by_last.other_prediction.as_deref()), ("Milan", Some("Rome? No.")));
        assert_eq!(by_last.explanation, "Hm.\nAnswer: Rome? No.");
        assert_eq!(parse_answer("Answer: Rome", Marker::Last).other_prediction, None);
    }

    #[test]
    fn bold_marks_around_marker_or_answer_go() {
        for raw in [
            "**Thought:** Hm.\n**Answer:** Oslo",
            "Thought: Hm.\n**Answer: Oslo**",
            "Hm.\nAnswer: **Oslo**",
            "Hm.\n**Answer:** Oslo\n**Answer:** Rome",
        ] {
            assert_eq!(first(raw), ("Oslo".into(), "Hm.".into()), "{raw:?}");
        }
        assert_eq!(first("In **1990**\n**Answer:** click **Save**"), ("click **Save**".into(), "In **1990**".into()));
        assert_eq!(first("Answer: **Open** it, then **Save**").0, "**Open** it, then **Save**");
    }

    #[test]
    fn recorded_answers_parse() {
        let Ok(text) =
            std::fs::read_to_string(crate::text::shared_data().join("traces/musique_train_thought_answer.json"))
        else {
            eprintln!("skipped: no ../shared");
            return;
        };
        let records: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(records.len(), 492);
        let (mut hits, mut strict) = (0, 0);
        for record in &records {
            let parsed = parse_answer(record["generation"].as_str().unwrap(), Marker::First);
            // The recorder's own parse is an independent reference.
            assert_eq!(parsed.prediction, record["pred"].as_str().unwrap().trim());
            assert!(!parsed.prediction.is_empty() && !parsed.explanation.is_empty());
            assert!(!parsed.explanation.contains(ANSWER_MARKER) && !parsed.explanation.starts_with(THOUGHT_MARKER));
            let gold = [record["gold"].as_str().unwrap().to_owned()];
            hits += usize::from(crate::generate::contain(&parsed.prediction, &gold) == Some(true));
            strict += usize::from(crate::generate::contain_word(&parsed.prediction, &gold, &[]) == Some(true));
        }
        eprintln!("{hits} of {} recorded answers contain the gold, {strict} at word boundaries", records.len());
        assert!(strict <= hits && hits > records.len() / 2);
    }
}
