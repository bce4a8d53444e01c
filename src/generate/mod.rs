//! Readers: from a question, passages and an optional scaffold to an answer with its token counts.
//!
//! In: [`Request`]s of one block. Out: one [`Response`] each, in the same order. Equations 1, 2 and 14.

pub mod answer;
pub mod budget;
pub mod coin;
pub mod cost;
pub mod prompt;
pub mod score;
pub mod simulated;

pub use answer::{Marker, Parsed, parse_answer};
pub use budget::{CutTokens, FourBytes, PassageBudget};
pub use cost::{Prices, cost_usd};
pub use prompt::{PromptTemplate, assemble_context};
pub use score::{contain, contain_word};
pub use simulated::SimulatedReader;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::ids::PassageId;

/// One passage as it stands in the prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptPassage {
    /// Which passage.
    pub id: PassageId,
    /// Its text.
    pub text: String,
}

/// Two chat messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prompt {
    /// System message.
    pub system: String,
    /// User message.
    pub user: String,
}

/// What only a simulated reader may look at. A real reader never sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Oracle {
    /// Gold answers, the main one first.
    pub answers: Vec<String>,
    /// Gold passages, where known.
    pub gold_passages: Option<Vec<PassageId>>,
}

/// One question for the reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The question's id.
    pub query_id: String,
    /// The question.
    pub question: String,
    /// Passages in rank order.
    pub passages: Vec<PromptPassage>,
    /// Text of the scaffold's summary, equation 14.
    pub scaffold: Option<String>,
    /// The messages a chat model would get.
    pub prompt: Prompt,
    /// For the simulated reader only.
    pub oracle: Oracle,
}

/// Token counts as the endpoint gave them; null is not 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "the names are the API's")]
pub struct Usage {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u32>,
}

/// What came back for one request.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// The text as it came.
    pub raw: String,
    /// How the call ended.
    pub status: LlmStatus,
    /// Token counts.
    pub usage: Usage,
    /// True when the counts were made here instead of reported.
    pub tokens_estimated: bool,
    /// The endpoint counted far fewer prompt tokens than were sent.
    pub prompt_cut: bool,
    /// Wall time of the call, microseconds.
    pub elapsed_us: u64,
}

/// A reader. Answers must depend on the request alone, never on its neighbours in the batch.
pub trait Generator: Send + Sync {
    /// Short name for manifest and report, for example `simulated`.
    fn name(&self) -> &str;
    /// One response a request, in order.
    ///
    /// # Errors
    /// Only when the whole run must stop; a failed item is a [`LlmStatus::Error`] response.
    fn generate(&self, batch: &[Request]) -> Result<Vec<Response>>;
}

/// How the reader's call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LlmStatus {
    /// A complete answer.
    Ok,
    /// Cut at max_tokens.
    Truncated,
    /// A success without text.
    Empty,
    /// No answer after retries.
    Error,
    /// No model was asked: the simulated reader.
    Simulated,
}

impl LlmStatus {
    /// The stored name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Truncated => "truncated",
            Self::Empty => "empty",
            Self::Error => "error",
            Self::Simulated => "simulated",
        }
    }
}

/// What the judge said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// The answer holds.
    Correct,
    /// It does not.
    Incorrect,
    /// The judge's text could not be read, or the call failed.
    Unscored,
    /// No judge was configured.
    NotRun,
}

impl Judgement {
    /// The stored name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Correct => "correct",
            Self::Incorrect => "incorrect",
            Self::Unscored => "unscored",
            Self::NotRun => "not_run",
        }
    }
}
