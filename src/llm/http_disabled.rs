//! Stands for the HTTP client in a build without it: making one fails with a sentence that says how to build it.

use std::convert::Infallible;
use std::time::Duration;

use super::chat::FailureKind;
use super::secret::Secret;
use crate::{Error, Result};

/// As in the real one.
#[derive(Debug)]
pub(super) struct HttpReply {
    pub status: u16,
    pub retry_after: Option<String>,
    pub retry_after_ms: Option<String>,
    pub body: String,
}

/// Cannot exist.
#[derive(Debug)]
pub(super) struct Http(Infallible);

impl Http {
    pub fn new(_timeout: Duration, _connections: u32, _key: Option<Secret>) -> Result<Self> {
        Err(Error::request("this build has no client for chat endpoints")
            .with_hint("build with the default features, or add --features llm"))
    }

    pub fn post(&self, _url: &str, _body: &str) -> std::result::Result<HttpReply, (FailureKind, String)> {
        match self.0 {}
    }

    pub fn redact(&self, _text: &str) -> String {
        match self.0 {}
    }
}
