//! Stands for the HTTP client in a build without it: making one fails with a sentence that says how to build it.

use std::convert::Infallible;
use std::time::Duration;

use super::chat::FailureKind;
use super::secret::Secret;
use super::transport::{HttpReply, Transport};
use crate::{Error, Result};

/// Cannot exist.
#[derive(Debug)]
pub(super) struct Http(Infallible);

impl Http {
    pub fn new(_timeout: Duration, _connections: u32, _key: Option<Secret>) -> Result<Self> {
        Err(Error::request("this build has no client for chat endpoints")
            .with_hint("build with the default features, or add --features llm"))
    }
}

impl Transport for Http {
    fn post(&self, _url: &str, _body: &str) -> std::result::Result<HttpReply, (FailureKind, String)> {
        match self.0 {}
    }

    fn redact(&self, _text: &str) -> String {
        match self.0 {}
    }
}
