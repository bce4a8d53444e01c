//! One chat request as data, its canonical JSON, and what came of it.
//!
//! In: model, messages, settings. Out: a body that is the same text for the same request, a [`CacheKey`] of it, and the
//! [`ChatOutcome`] that the client fills.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::tokens::TokenCounter;
use super::{LlmStatus, Usage};
use crate::{Error, Result};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are the API's")]
pub enum Role {
    System,
    User,
    Assistant,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: String,
}

impl Message {
    /// A system message.
    pub fn system(content: impl Into<String>) -> Self {
        Self { role: Role::System, content: content.into() }
    }

    /// A user message.
    pub fn user(content: impl Into<String>) -> Self {
        Self { role: Role::User, content: content.into() }
    }
}

/// A whole request. Two requests that differ in any field have different keys.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// Address up to and without `/chat/completions`, for example `http://127.0.0.1:8000/v1`.
    pub base_url: String,
    /// Model name.
    pub model: String,
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// Most completion tokens.
    pub max_tokens: u32,
    /// Sampling temperature.
    pub temperature: f64,
    /// Sampling seed, sent where given.
    pub seed: Option<u64>,
    /// Whether the answer comes in pieces. The outcome is the same; some models can do nothing else.
    pub stream: bool,
    /// Fields of one provider, added to the body (see [`super::Profile`]).
    pub extra: BTreeMap<String, Value>,
}

/// Scheme of the address of a model in this process; what follows is the fingerprint of its file.
pub(super) const LOCAL_SCHEME: &str = "gguf";

/// Fields that `extra` may not hold, since they have a place of their own.
const OWN_FIELDS: [&str; 7] = ["model", "messages", "max_tokens", "temperature", "seed", "stream", "stream_options"];

impl ChatRequest {
    /// A request at temperature 0 without provider fields.
    pub fn new(base_url: &str, model: &str, messages: Vec<Message>, max_tokens: u32) -> Self {
        Self {
            base_url: base_url.to_owned(),
            model: model.to_owned(),
            messages,
            max_tokens,
            temperature: 0.0,
            seed: None,
            stream: false,
            extra: BTreeMap::new(),
        }
    }

    /// Whether the request can be sent at all.
    ///
    /// # Errors
    /// Names the field and the value found. A password in the address is not shown.
    pub fn check(&self) -> Result<()> {
        let schemes = ["http", "https", LOCAL_SCHEME];
        let address = self.base_url.split_once("://").filter(|(scheme, _)| schemes.contains(scheme));
        let Some((_, rest)) = address.filter(|(_, rest)| !rest.is_empty()) else {
            return Err(Error::request(format!("base_url is {:?}, which is no http or https address", self.base_url))
                .with_hint("it ends before /chat/completions, for example http://127.0.0.1:8000/v1"));
        };
        if rest.contains(['@', '?', '#']) {
            return Err(Error::request("base_url holds a user name, a password or a query (its value is not shown)")
                .with_hint("put the key into the environment variable that api_key_env names"));
        }
        if self.address().ends_with("/completions") {
            return Err(Error::request(format!("base_url is {:?}, which names the call itself", self.base_url))
                .with_hint("it ends before /chat/completions, for example http://127.0.0.1:8000/v1"));
        }
        if let Some(field) = self.extra.keys().find(|k| OWN_FIELDS.contains(&k.as_str())) {
            return Err(Error::request(format!("the provider field {field:?} has a setting of its own")));
        }
        if self.model.is_empty() {
            return Err(Error::request("no model is named").with_hint("set generate.model or judge.model"));
        }
        if self.messages.is_empty() || self.max_tokens == 0 || !self.temperature.is_finite() {
            return Err(Error::request(format!(
                "a chat request needs messages, max_tokens above 0 and a finite temperature, not {} messages, {} and {}",
                self.messages.len(),
                self.max_tokens,
                self.temperature
            )));
        }
        Ok(())
    }

    /// The address to post to.
    pub fn url(&self) -> String {
        format!("{}/chat/completions", self.address())
    }

    /// Whether a model in this process is asked.
    pub(super) fn is_local(&self) -> bool {
        self.base_url.starts_with(LOCAL_SCHEME)
    }

    /// The address of a model in this process; empty where an endpoint is asked.
    pub fn local_address(&self) -> &str {
        if self.is_local() { self.address() } else { "" }
    }

    /// The base URL without a closing slash.
    pub(super) fn address(&self) -> &str {
        self.base_url.trim_end_matches('/')
    }

    /// Canonical JSON: own fields in a fixed order, provider fields sorted, no white space.
    pub fn body(&self) -> String {
        let mut body = Map::new();
        body.insert("model".into(), json!(self.model));
        body.insert("messages".into(), json!(self.messages));
        self.add_settings(&mut body);
        Value::Object(body).to_string()
    }

    /// What of the body is neither model nor messages, as canonical JSON.
    pub fn settings(&self) -> String {
        let mut settings = Map::new();
        self.add_settings(&mut settings);
        Value::Object(settings).to_string()
    }

    fn add_settings(&self, body: &mut Map<String, Value>) {
        body.insert("max_tokens".into(), json!(self.max_tokens));
        body.insert("temperature".into(), json!(self.temperature));
        if let Some(seed) = self.seed {
            body.insert("seed".into(), json!(seed));
        }
        body.insert("stream".into(), json!(self.stream));
        if self.stream {
            // Without this most servers leave the token counts out of a stream.
            body.insert("stream_options".into(), json!({"include_usage": true}));
        }
        for (name, value) in &self.extra {
            body.insert(name.clone(), sorted(value));
        }
    }

    /// Rough count of prompt tokens, see [`super::estimate_tokens`].
    pub fn estimated_prompt_tokens(&self) -> u32 {
        self.messages.iter().map(|m| super::estimate_tokens(&m.content)).fold(0, u32::saturating_add)
    }

    /// Tokens of the messages by the model's vocabulary, without its chat template; estimated where it cannot take a text.
    pub(super) fn counted_prompt_tokens(&self, counter: &TokenCounter) -> u32 {
        self.messages.iter().map(|m| counter.count_or_estimate(&m.content)).fold(0, u32::saturating_add)
    }
}

/// `value` with the fields of every object sorted.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let fields: BTreeMap<_, _> = map.iter().map(|(k, v)| (k.clone(), sorted(v))).collect();
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

/// One request of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The question it belongs to, for messages and listings; not part of the key.
    pub question: String,
    /// Which repetition of the same request, from 0; part of the key, so that repeats are asked anew.
    pub attempt: u32,
    /// The request.
    pub request: ChatRequest,
}

/// Identity of a call: blake3 of base URL, canonical body and attempt number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CacheKey(pub [u8; 32]);

impl CacheKey {
    /// Key of a call whose canonical body is `body`.
    pub(super) fn of(call: &Call, body: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        // No part can hold a 0 byte, so the parts cannot run into each other.
        for part in [call.request.address(), body, &call.attempt.to_string()] {
            hasher.update(part.as_bytes()).update(&[0]);
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// As 64 hex digits.
    pub fn hex(&self) -> String {
        blake3::Hash::from_bytes(self.0).to_string()
    }

    /// From 64 hex digits.
    pub fn from_hex(hex: &str) -> Option<Self> {
        blake3::Hash::from_hex(hex).ok().map(|hash| Self(*hash.as_bytes()))
    }
}

impl Call {
    /// Identity of the call.
    pub fn key(&self) -> CacheKey {
        CacheKey::of(self, &self.request.body())
    }
}

impl fmt::Debug for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

/// Why a call, or one try of it, failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// 429.
    RateLimited,
    /// 408.
    RequestTimeout,
    /// 409.
    Conflict,
    /// 5xx.
    Server,
    /// No connection, or one that broke in the middle.
    Connection,
    /// No whole answer within the time allowed.
    Timeout,
    /// A success that is no chat completion.
    InvalidReply,
    /// 401 or 403.
    Unauthorized,
    /// Any other status: the request itself is not accepted.
    Refused,
}

impl FailureKind {
    /// The name in ledgers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RateLimited => "rate_limited",
            Self::RequestTimeout => "request_timeout",
            Self::Conflict => "conflict",
            Self::Server => "server",
            Self::Connection => "connection",
            Self::Timeout => "timeout",
            Self::InvalidReply => "invalid_reply",
            Self::Unauthorized => "unauthorized",
            Self::Refused => "refused",
        }
    }

    /// Kind of an HTTP status other than success.
    pub(super) fn of_status(status: u16) -> Self {
        match status {
            429 => Self::RateLimited,
            408 => Self::RequestTimeout,
            409 => Self::Conflict,
            500..=599 => Self::Server,
            401 | 403 => Self::Unauthorized,
            _ => Self::Refused,
        }
    }

    /// Whether asking again may help.
    pub fn is_retried(self) -> bool {
        !matches!(self, Self::Unauthorized | Self::Refused)
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallError {
    /// The last try's failure.
    pub kind: FailureKind,
    /// Its HTTP status, where there was one.
    pub http_status: Option<u16>,
    /// What the endpoint or the library said, without the key.
    pub text: String,
}

/// What came of one call.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatOutcome {
    /// The text as it came; empty without an answer.
    pub text: String,
    /// `ok`, `truncated`, `empty` or `error`.
    pub status: LlmStatus,
    /// The endpoint's word for why it stopped.
    pub finish_reason: Option<String>,
    /// The reasoning that came in a field of its own.
    pub reasoning: Option<String>,
    /// The content was null and `text` is the reasoning.
    pub text_from_reasoning: bool,
    /// Token counts as reported; null is not 0.
    pub usage: Usage,
    /// The prompt holds far more text than the reported prompt tokens can carry: it was probably cut.
    pub prompt_maybe_cut: bool,
    /// Time of the try that answered, microseconds; of the first asking when it came from the cache.
    pub elapsed_us: u64,
    /// How often it was sent when it was asked.
    pub tries: u32,
    /// It came from the cache.
    pub cached: bool,
    /// With status `error`: why.
    pub error: Option<CallError>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn call() -> Call {
        let request = ChatRequest::new("http://h/v1", "m", vec![Message::system("s"), Message::user("u")], 5);
        Call { question: "q".into(), attempt: 0, request }
    }

    #[test]
    fn the_body_is_canonical() {
        let mut request = call().request;
        request.seed = Some(7);
        request.stream = true;
        request.extra.insert("z".into(), serde_json::from_str(r#"{"b":[{"d":1,"c":2}],"a":0}"#).unwrap());
        request.extra.insert("enable_thinking".into(), json!(false));
        assert_eq!(
            request.body(),
            r#"{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"u"}],"max_tokens":5,"temperature":0.0,"seed":7,"stream":true,"stream_options":{"include_usage":true},"enable_thinking":false,"z":{"a":0,"b":[{"c":2,"d":1}]}}"#
        );
        assert_eq!(call().request.settings(), r#"{"max_tokens":5,"temperature":0.0,"stream":false}"#);
    }

    /// Pitfall 31: the key is the whole request with base URL, and the attempt number.
    #[test]
    fn pitfall_31_every_part_of_a_request_changes_its_key() {
        let base = call();
        let change = |edit: &dyn Fn(&mut Call)| {
            let mut other = call();
            edit(&mut other);
            other.key()
        };
        let keys = [
            base.key(),
            change(&|c| c.request.max_tokens = 6),
            change(&|c| c.request.base_url = "http://g/v1".into()),
            change(&|c| c.request.model = "n".into()),
            change(&|c| c.request.temperature = 0.5),
            change(&|c| c.request.seed = Some(0)),
            change(&|c| c.request.stream = true),
            change(&|c| c.request.messages[1].content.push('!')),
            change(&|c| c.request.messages[0].role = Role::User),
            change(&|c| drop(c.request.extra.insert("enable_thinking".into(), json!(true)))),
            change(&|c| c.attempt = 1),
        ];
        for (i, key) in keys.iter().enumerate() {
            assert!(!keys[..i].contains(key), "{i}");
        }
        assert_eq!(change(&|c| c.question = "other".into()), base.key(), "the question is only a label");
        assert_eq!(change(&|c| c.request.base_url.push('/')), base.key(), "the same address");
        assert_eq!(CacheKey::from_hex(&base.key().hex()), Some(base.key()));
    }

    #[test]
    fn bad_requests_are_named() {
        let refused = |edit: &dyn Fn(&mut ChatRequest)| {
            let mut request = call().request;
            edit(&mut request);
            request.check().unwrap_err().report()
        };
        assert!(call().request.check().is_ok());
        assert!(refused(&|r| r.base_url = "127.0.0.1:8000".into()).contains("127.0.0.1:8000"));
        assert!(refused(&|r| r.base_url = "http://h/v1/chat/completions/".into()).contains("names the call itself"));
        let secret = refused(&|r| r.base_url = "https://me:hunter2@h/v1/chat/completions".into());
        assert!(secret.contains("base_url") && !secret.contains("hunter2"), "{secret}");
        assert!(refused(&|r| drop(r.extra.insert("seed".into(), json!(1)))).contains("\"seed\""));
        assert!(refused(&|r| r.model.clear()).contains("model"));
        assert!(refused(&|r| r.temperature = f64::NAN).contains("NaN"));
    }
}
