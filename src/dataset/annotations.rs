//! Entity annotations beside a dataset: `annotations.jsonl` (a line a passage) and `question_entities.jsonl` (a line a question).
//!
//! Offsets count Unicode code points into the text that was annotated.

use serde::{Deserialize, Serialize};

/// One entity mention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The surface string exactly as annotated.
    pub text: String,
    /// The annotator's label.
    pub label: String,
    /// First code point.
    pub start: usize,
    /// One past the last code point.
    pub end: usize,
}

/// One sentence and its entities, in text order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentenceSpan {
    /// First code point.
    pub start: usize,
    /// One past the last code point.
    pub end: usize,
    /// Mentions that start in this sentence.
    pub entities: Vec<Span>,
}

/// All sentences of one passage, in text order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PassageAnnotation {
    /// Sentences, those without entities included.
    pub sentences: Vec<SentenceSpan>,
}

/// All entity mentions of one question, in text order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QuestionAnnotation {
    /// Mentions.
    pub entities: Vec<Span>,
}
