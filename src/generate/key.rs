//! The identity of one model call: what a recorded answer is found by.
//!
//! In: the model's settings and the two messages. Out: a blake3 hash. Everything that may change the answer is part of it,
//! so an answer is never served for another request.

use serde::{Deserialize, Serialize};

use super::Request;

/// Everything besides the messages that decides what a model answers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelSettings {
    /// Endpoint, empty where there is none.
    pub base_url: String,
    /// Model name.
    pub model: String,
    /// Completion limit.
    pub max_tokens: u32,
    /// Sampling temperature.
    pub temperature: f64,
    /// Which repetition of the same request, from 0.
    pub attempt: u32,
}

/// Hash of settings and both messages, 64 hexadecimal digits.
///
/// blake3 over the JSON array `["livingrag-request-1", base_url, model, max_tokens, temperature, attempt, system, user]`,
/// so that no two requests share their bytes. Question id, passages and oracle do not enter: a model sees none of them.
pub fn request_key(request: &Request, settings: &ModelSettings) -> String {
    let whole = serde_json::json!([
        "livingrag-request-1",
        settings.base_url,
        settings.model,
        settings.max_tokens,
        settings.temperature,
        settings.attempt,
        request.prompt.system,
        request.prompt.user,
    ]);
    blake3::hash(whole.to_string().as_bytes()).to_hex().to_string()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::generate::{Oracle, Prompt};

    pub fn request(query_id: &str, user: &str) -> Request {
        Request {
            query_id: query_id.into(),
            question: "Who?".into(),
            passages: Vec::new(),
            scaffold: None,
            prompt: Prompt { system: "Read.".into(), user: user.into() },
            oracle: Oracle::default(),
        }
    }

    #[test]
    fn every_setting_and_both_messages_count() {
        let settings = ModelSettings { model: "m".into(), max_tokens: 2000, ..ModelSettings::default() };
        let base = request_key(&request("q1", "Who?"), &settings);
        assert_eq!(base.len(), 64);
        assert_eq!(base, request_key(&request("q2", "Who?"), &settings));
        let mut other_system = request("q1", "Who?");
        other_system.prompt.system.push('!');
        let changed = [
            request_key(&request("q1", "Who ?"), &settings),
            request_key(&other_system, &settings),
            request_key(&request("q1", "Who?"), &ModelSettings { base_url: "u".into(), ..settings.clone() }),
            request_key(&request("q1", "Who?"), &ModelSettings { model: "n".into(), ..settings.clone() }),
            request_key(&request("q1", "Who?"), &ModelSettings { max_tokens: 2001, ..settings.clone() }),
            request_key(&request("q1", "Who?"), &ModelSettings { temperature: 0.1, ..settings.clone() }),
            request_key(&request("q1", "Who?"), &ModelSettings { attempt: 1, ..settings.clone() }),
        ];
        let distinct: std::collections::BTreeSet<&String> = changed.iter().chain([&base]).collect();
        assert_eq!(distinct.len(), 8);
    }

    /// The bytes that are hashed, made by hand and hashed with the Python package blake3 1.0.11:
    /// `blake3(b'["livingrag-request-1","","m",2000,0.0,0,"Read.","Who?"]').hexdigest()`.
    #[test]
    fn key_is_stable() {
        let settings = ModelSettings { model: "m".into(), max_tokens: 2000, ..ModelSettings::default() };
        assert_eq!(
            request_key(&request("q1", "Who?"), &settings),
            "7eded08004dff4a67646f09214c30366cda5924e576fccb3a5794b938627a7ef"
        );
    }
}
