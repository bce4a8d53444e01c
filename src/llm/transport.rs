//! What carries one request to whoever answers it: a network, or a model in this process.
//!
//! In: an address and a body. Out: a status, the headers that matter and a body, or what broke.

use super::chat::FailureKind;

/// A reply of any status.
#[derive(Debug, Default)]
pub(super) struct HttpReply {
    pub status: u16,
    pub retry_after: Option<String>,
    pub retry_after_ms: Option<String>,
    pub body: String,
}

/// Carries requests.
pub(super) trait Transport: Send + Sync {
    /// Sends `body`, which is JSON.
    fn post(&self, url: &str, body: &str) -> Result<HttpReply, (FailureKind, String)>;

    /// `text` without the key.
    fn redact(&self, text: &str) -> String;

    /// Whether `text` holds a key that nobody may see.
    fn holds_key(&self, _text: &str) -> bool {
        false
    }
}
