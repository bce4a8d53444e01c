//! The reader `api`: a chat model behind an endpoint, as a [`Generator`].
//!
//! In: requests of one block, each with its messages. Out: one response each, in order; a call that failed is a response with the
//! status `error`.

use std::sync::Arc;

use super::{Call, ChatOutcome, ChatRequest, Client, LlmStatus, Message, Usage, estimate_tokens};
use crate::Result;
use crate::generate::{Generator, Request, Response};

/// A chat model that answers questions.
pub struct ApiReader {
    client: Arc<Client>,
    template: ChatRequest,
}

impl ApiReader {
    /// Sends each prompt with the settings of `template`, whose messages are not used.
    pub fn new(client: Arc<Client>, template: ChatRequest) -> Self {
        Self { client, template }
    }

    /// Who sends them.
    pub fn client(&self) -> &Client {
        &self.client
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
}

impl Generator for ApiReader {
    fn name(&self) -> &str {
        "api"
    }

    fn generate(&self, batch: &[Request]) -> Result<Vec<Response>> {
        let calls: Vec<_> = batch.iter().map(|request| self.call(request)).collect();
        let outcomes = self.client.complete(&calls)?;
        Ok(calls.iter().zip(outcomes).map(|(call, outcome)| response(call, outcome)).collect())
    }
}

/// What a row keeps of an outcome. Counts that the endpoint did not report are estimated and marked; without an answer there is
/// nothing to count.
pub(crate) fn response(call: &Call, outcome: ChatOutcome) -> Response {
    let mut usage = outcome.usage;
    let missing = usage.prompt_tokens.is_none() || usage.completion_tokens.is_none();
    let tokens_estimated = missing && outcome.status != LlmStatus::Error;
    if tokens_estimated {
        let reasoning = outcome.reasoning.as_deref().filter(|_| !outcome.text_from_reasoning).unwrap_or_default();
        let said = estimate_tokens(&outcome.text).saturating_add(estimate_tokens(reasoning));
        usage = Usage {
            prompt_tokens: usage.prompt_tokens.or_else(|| Some(call.request.estimated_prompt_tokens())),
            completion_tokens: usage.completion_tokens.or(Some(said)),
            ..usage
        };
    }
    // A thought that was cut off is no answer; with its tag the parser knows it for one.
    let thought = outcome.text_from_reasoning && outcome.status == LlmStatus::Truncated;
    let raw = if thought { format!("<think>{}", outcome.text) } else { outcome.text };
    Response { raw, status: outcome.status, usage, tokens_estimated, elapsed_us: outcome.elapsed_us }
}
