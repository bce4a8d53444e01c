//! Readers that ask a chat model: behind an endpoint (`api`), in this process (`gguf`), or out of a recording (`recorded`).
//!
//! In: requests of one block, each with its messages. Out: one response each, in order; a call that failed is a response with the
//! status `error`.

use std::sync::Arc;

use super::tokens::TokenCounter;
use super::{Call, ChatOutcome, ChatRequest, Client, LlmStatus, Message, Recording, Usage, estimate_tokens};
use crate::Result;
use crate::generate::{Generator, Request, Response};

/// Who answers calls.
#[derive(Clone)]
pub enum Source {
    /// An endpoint or a local model, with the request cache.
    Client(Arc<Client>),
    /// A recording; nobody is asked.
    Recording(Arc<Recording>),
}

impl Source {
    /// One outcome a call, in order; `counter` is the vocabulary of the model, for the look at cut prompts.
    ///
    /// # Errors
    /// As [`Client::complete`] and [`Recording::complete`].
    pub fn complete(&self, calls: &[Call], counter: Option<&TokenCounter>) -> Result<Vec<ChatOutcome>> {
        match self {
            Self::Client(client) => client.complete(calls),
            Self::Recording(recording) => recording.complete(calls, counter),
        }
    }

    /// The client, where there is one.
    pub fn client(&self) -> Option<&Client> {
        match self {
            Self::Client(client) => Some(client),
            Self::Recording(_) => None,
        }
    }

    /// Whether both are one and the same.
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Client(a), Self::Client(b)) => Arc::ptr_eq(a, b),
            (Self::Recording(a), Self::Recording(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

/// A chat model that answers questions.
pub struct ChatReader {
    name: &'static str,
    source: Source,
    template: ChatRequest,
    counter: Option<Arc<TokenCounter>>,
}

impl ChatReader {
    /// A reader called `name` that sends each prompt with the settings of `template`, whose messages are not used. Tokens that nobody
    /// reports are counted with `counter`, or estimated without one.
    pub fn new(name: &'static str, source: Source, template: ChatRequest, counter: Option<Arc<TokenCounter>>) -> Self {
        Self { name, source, template, counter }
    }

    /// The client that sends them; `None` for a recording.
    pub fn client(&self) -> Option<&Client> {
        self.source.client()
    }

    /// The settings of every call.
    pub fn template(&self) -> &ChatRequest {
        &self.template
    }

    /// The call that `request` makes.
    pub fn call(&self, request: &Request) -> Call {
        let prompt = &request.prompt;
        let system = Some(Message::system(&prompt.system)).filter(|m| !m.content.is_empty());
        let messages = system.into_iter().chain([Message::user(&prompt.user)]).collect();
        Call {
            question: request.query_id.clone(),
            attempt: 0,
            request: ChatRequest { messages, ..self.template.clone() },
        }
    }

    /// What a row keeps of an outcome.
    pub fn response(&self, call: &Call, outcome: ChatOutcome) -> Response {
        response(call, outcome, self.counter.as_deref())
    }
}

impl Generator for ChatReader {
    fn name(&self) -> &str {
        self.name
    }

    fn generate(&self, batch: &[Request]) -> Result<Vec<Response>> {
        let calls: Vec<_> = batch.iter().map(|request| self.call(request)).collect();
        let outcomes = self.source.complete(&calls, self.counter.as_deref())?;
        Ok(calls.iter().zip(outcomes).map(|(call, outcome)| self.response(call, outcome)).collect())
    }
}

/// What a row keeps of an outcome. Counts that were not reported are made here and marked; without an answer there is nothing to
/// count.
fn response(call: &Call, outcome: ChatOutcome, counter: Option<&TokenCounter>) -> Response {
    let mut usage = outcome.usage;
    let missing = usage.prompt_tokens.is_none() || usage.completion_tokens.is_none();
    let tokens_estimated = missing && outcome.status != LlmStatus::Error;
    if tokens_estimated {
        let count = |text: &str| counter.map_or_else(|| estimate_tokens(text), |c| c.count_or_estimate(text));
        let prompt = || {
            let request = &call.request;
            counter.map_or_else(|| request.estimated_prompt_tokens(), |c| request.counted_prompt_tokens(c))
        };
        let reasoning = outcome.reasoning.as_deref().filter(|_| !outcome.text_from_reasoning).unwrap_or_default();
        usage = Usage {
            prompt_tokens: usage.prompt_tokens.or_else(|| Some(prompt())),
            completion_tokens: usage
                .completion_tokens
                .or_else(|| Some(count(&outcome.text).saturating_add(count(reasoning)))),
            ..usage
        };
    }
    Response {
        raw: kept_text(&outcome),
        status: outcome.status,
        usage,
        tokens_estimated,
        prompt_cut: outcome.prompt_maybe_cut,
        elapsed_us: outcome.elapsed_us,
    }
}

/// The text that is kept of an outcome. A thought that was cut off is no answer; with its tag whoever reads it knows it for one.
pub(super) fn kept_text(outcome: &ChatOutcome) -> String {
    let thought = outcome.text_from_reasoning && outcome.status == LlmStatus::Truncated;
    if thought { format!("<think>{}", outcome.text) } else { outcome.text.clone() }
}
