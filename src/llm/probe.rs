//! A look at an endpoint before a run.
//!
//! In: a client and the settings of a run. Out: one answer, and whether tokens are counted, thinking leaks into answers and long
//! prompts arrive whole. Two requests, past the cache.

use std::fmt;

use super::{ChatOutcome, ChatRequest, Client, LlmStatus, Message};
use crate::Result;

/// Words of one token each in the vocabularies of current models.
const WORDS: [&str; 8] = ["time", "people", "water", "house", "world", "night", "story", "music"];

/// What became of a long prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LongPrompt {
    /// The endpoint counted about as many tokens as were sent, or more.
    Whole {
        /// Counted by the endpoint.
        counted: u32,
    },
    /// The endpoint counted far fewer: the rest was dropped in silence.
    Cut {
        /// Counted by the endpoint.
        counted: u32,
    },
    /// The endpoint said no, which is honest.
    Refused(String),
    /// It counts no tokens, so nobody can tell.
    Unknown,
}

/// What the probe found.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    /// The answer to a small question.
    pub answer: ChatOutcome,
    /// The endpoint reports prompt and completion tokens.
    pub usage_reported: bool,
    /// The answer's text holds reasoning: a tag of it, or reasoning in place of content.
    pub thinking_leaks: bool,
    /// The model reasons in a field of its own.
    pub thinks: bool,
    /// Words of the long prompt, about one token each.
    pub long_prompt_tokens: u32,
    /// What became of it; `None` when already the small question failed.
    pub long_prompt: Option<LongPrompt>,
}

/// Asks a small question with the settings of `template`, then sends a prompt of about `long_prompt_tokens` tokens.
///
/// # Errors
/// As [`Client::ask`]. An endpoint that answers nothing is no error here but a finding.
pub fn probe(client: &Client, template: &ChatRequest, long_prompt_tokens: u32) -> Result<Probe> {
    let request = |text: String, max_tokens| ChatRequest {
        messages: vec![Message::system("You answer in one word."), Message::user(text)],
        max_tokens,
        ..template.clone()
    };
    let answer = client.ask(request("Which city is the capital of Norway?".into(), template.max_tokens))?;
    let long_prompt = if answer.status == LlmStatus::Error {
        None
    } else {
        let words: Vec<_> = (0..long_prompt_tokens as usize).map(|i| WORDS[i % WORDS.len()]).collect();
        let text = format!("{}\nReply with the word yes.", words.join(" "));
        Some(judge_long_prompt(&client.ask(request(text, template.max_tokens.min(16)))?, long_prompt_tokens))
    };
    Ok(Probe {
        usage_reported: answer.usage.prompt_tokens.is_some() && answer.usage.completion_tokens.is_some(),
        thinking_leaks: answer.text_from_reasoning
            || answer.text.contains("<think>")
            || answer.text.contains("</think>"),
        thinks: answer.reasoning.is_some() || answer.usage.reasoning_tokens.is_some_and(|n| n > 0),
        answer,
        long_prompt_tokens,
        long_prompt,
    })
}

/// A tenth of slack: no vocabulary joins these words, so a lower count means dropped ones.
fn judge_long_prompt(outcome: &ChatOutcome, sent: u32) -> LongPrompt {
    match (&outcome.error, outcome.usage.prompt_tokens) {
        (Some(error), _) => LongPrompt::Refused(error.text.clone()),
        (None, Some(counted)) if u64::from(counted) * 10 < u64::from(sent) * 9 => LongPrompt::Cut { counted },
        (None, Some(counted)) => LongPrompt::Whole { counted },
        (None, None) => LongPrompt::Unknown,
    }
}

impl Probe {
    /// What a person must know before trusting a run, a sentence each; empty when all is well.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(error) = &self.answer.error {
            warnings.push(format!("the endpoint gave no answer: {}", error.text));
            return warnings;
        }
        if self.answer.status != LlmStatus::Ok {
            warnings.push(format!("the endpoint's answer to a small question is {}", self.answer.status.as_str()));
        }
        if !self.usage_reported {
            warnings.push("the endpoint reports no token counts: tokens will be estimated and costs be null".into());
        }
        if self.thinking_leaks {
            warnings
                .push("the model's reasoning stands in its answers: switch thinking off, or raise max_tokens".into());
        }
        match &self.long_prompt {
            Some(LongPrompt::Cut { counted }) => warnings.push(format!(
                "a prompt of {} tokens was cut to {counted} without a word: raise the server's context length",
                self.long_prompt_tokens
            )),
            Some(LongPrompt::Refused(text)) => {
                warnings.push(format!("a prompt of {} tokens was refused: {text}", self.long_prompt_tokens));
            }
            Some(LongPrompt::Whole { .. } | LongPrompt::Unknown) | None => {}
        }
        warnings
    }
}

impl fmt::Display for Probe {
    /// One line for the log of a run.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let yes = |b: bool| if b { "yes" } else { "no" };
        let answer: String = self.answer.text.chars().take(60).collect();
        write!(f, "answer {:?} ({}), ", answer.trim(), self.answer.status.as_str())?;
        write!(f, "token counts {}, ", yes(self.usage_reported))?;
        write!(f, "thinks {}, thinking leaks {}, ", yes(self.thinks), yes(self.thinking_leaks))?;
        match &self.long_prompt {
            Some(LongPrompt::Whole { counted }) => write!(f, "long prompt whole ({counted} tokens)"),
            Some(LongPrompt::Cut { counted }) => write!(f, "long prompt cut to {counted} tokens"),
            Some(LongPrompt::Refused(_)) => write!(f, "long prompt refused"),
            Some(LongPrompt::Unknown) => write!(f, "long prompt not counted"),
            None => write!(f, "long prompt not tried"),
        }
    }
}
