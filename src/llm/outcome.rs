//! From what an endpoint said to what a call came to.
//!
//! In: a [`Reply`] or an error, and the request. Out: a [`ChatOutcome`]: the same whether the reply just came, came years ago, or
//! stands in a recording. And what it costs.

use super::chat::{CallError, ChatOutcome, ChatRequest};
use super::reply::Reply;
use super::tokens::TokenCounter;
use super::{LlmStatus, Usage, estimate_tokens};
use crate::generate::{Prices, cost_usd};

/// Longest part of an endpoint's error that is kept, in characters.
const MOST_ERROR_TEXT: usize = 300;

/// An honest text has four or five bytes a token. A prompt of which the endpoint counted less than one token in this many bytes
/// was probably cut.
const BYTES_PER_TOKEN_OF_A_CUT_PROMPT: u64 = 7;

/// How a reply was come by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Came {
    pub elapsed_us: u64,
    pub tries: u32,
    pub cached: bool,
}

/// The outcome that a reply stands for.
pub(super) fn answered(reply: Reply, request: &ChatRequest, counter: Option<&TokenCounter>, came: Came) -> ChatOutcome {
    ChatOutcome {
        text: reply.text().to_owned(),
        status: reply.status(),
        text_from_reasoning: reply.is_from_reasoning(),
        prompt_maybe_cut: reply.usage.prompt_tokens.is_some_and(|counted| is_cut(request, counter, counted)),
        finish_reason: reply.finish_reason,
        reasoning: Some(reply.reasoning).filter(|r| !r.is_empty()),
        usage: reply.usage,
        elapsed_us: came.elapsed_us,
        tries: came.tries,
        cached: came.cached,
        error: None,
    }
}

/// Whether far fewer prompt tokens were counted than were sent. With the model's tokenizer a tenth of slack is enough, since its chat
/// template only adds to what is counted here.
fn is_cut(request: &ChatRequest, counter: Option<&TokenCounter>, counted: u32) -> bool {
    match counter {
        Some(counter) => u64::from(counted) * 10 < u64::from(request.counted_prompt_tokens(counter)) * 9,
        None => {
            let bytes: u64 = request.messages.iter().map(|m| m.content.len() as u64).sum();
            bytes > u64::from(counted) * BYTES_PER_TOKEN_OF_A_CUT_PROMPT
        }
    }
}

/// The outcome of a call that was given up.
pub(super) fn failed(error: CallError, elapsed_us: u64, tries: u32) -> ChatOutcome {
    ChatOutcome {
        text: String::new(),
        status: LlmStatus::Error,
        finish_reason: None,
        reasoning: None,
        text_from_reasoning: false,
        usage: Usage::default(),
        prompt_maybe_cut: false,
        elapsed_us,
        tries,
        cached: false,
        error: Some(error),
    }
}

/// The most a request can cost, with a generous three bytes a prompt token: what is reserved before it leaves.
pub(super) fn most_usd(prices: &Prices, request: &ChatRequest) -> f64 {
    let prompt = request.estimated_prompt_tokens();
    let usage = Usage {
        prompt_tokens: Some(prompt.saturating_add(prompt / 3)),
        completion_tokens: Some(request.max_tokens),
        ..Usage::default()
    };
    cost_usd(&usage, prices).unwrap_or(0.0)
}

/// What an answer cost; counts that were not reported are estimated, so that a cap holds without them.
pub(super) fn estimated_usd(prices: &Prices, request: &ChatRequest, reply: &Reply) -> f64 {
    let usage = Usage {
        prompt_tokens: reply.usage.prompt_tokens.or_else(|| Some(request.estimated_prompt_tokens())),
        completion_tokens: reply
            .usage
            .completion_tokens
            .or_else(|| Some(estimate_tokens(&reply.content).saturating_add(estimate_tokens(&reply.reasoning)))),
        ..reply.usage
    };
    cost_usd(&usage, prices).unwrap_or(0.0)
}

/// The message of an error body, or the body.
pub(super) fn said(body: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    let message = value.get("error").map(|e| e.get("message").unwrap_or(e)).or_else(|| value.get("message"));
    message.and_then(|m| m.as_str()).unwrap_or(body).trim().to_owned()
}

/// `text` on one line and not too long.
pub(super) fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MOST_ERROR_TEXT) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
