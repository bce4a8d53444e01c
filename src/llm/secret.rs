//! The API key, in a type that cannot be printed.
//!
//! In: the name of an environment variable. Out: a header value, and nothing else; `Debug` and `Display` say `[key]`.

use std::fmt;

use crate::{Error, Result};

/// What stands where the key was.
const REDACTED: &str = "[key]";

/// Keys shorter than this are placeholders that local servers accept (`EMPTY`, `none`); a model may well answer with such a
/// word, so bodies are left as they are.
const SHORTEST_REAL_KEY: usize = 12;

/// An API key.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes the key from an environment variable; `None` when it is unset or blank.
    ///
    /// # Errors
    /// When the value cannot stand in an HTTP header. The value is not shown.
    pub fn from_env(variable: &str) -> Result<Option<Self>> {
        let value = match std::env::var(variable) {
            Ok(value) => value,
            Err(std::env::VarError::NotPresent) => return Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => return Err(unfit(variable)),
        };
        if value.trim().is_empty() { Ok(None) } else { Self::new(&value).map(Some).map_err(|_| unfit(variable)) }
    }

    /// Takes the key itself; white space around it is dropped.
    ///
    /// # Errors
    /// When it is empty or holds anything but visible ASCII. The value is not shown.
    pub fn new(key: &str) -> Result<Self> {
        let key = key.trim();
        if key.is_empty() || !key.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(Error::request("the API key holds characters that cannot stand in an HTTP header"));
        }
        Ok(Self(key.to_owned()))
    }

    /// The header that carries it.
    pub(super) fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// `text` without the key: for everything an endpoint or a library says about a failure.
    pub fn redact(&self, text: &str) -> String {
        text.replace(&self.0, REDACTED)
    }

    /// Whether what an endpoint answered holds the key.
    pub(super) fn is_in(&self, answer: &str) -> bool {
        self.0.len() >= SHORTEST_REAL_KEY && answer.contains(&self.0)
    }

    /// A reply's body without the key, should the endpoint have echoed it.
    pub(super) fn redact_body(&self, body: String) -> String {
        if self.is_in(&body) { self.redact(&body) } else { body }
    }
}

fn unfit(variable: &str) -> Error {
    Error::request(format!(
        "the environment variable {variable} holds characters that cannot stand in an HTTP header (its value is not shown)"
    ))
    .with_hint("set it to the key alone, without quotes or line breaks")
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_prints() {
        let secret = Secret::new(" sk-0123456789abcdef\n").unwrap();
        assert_eq!(format!("{secret} {secret:?}"), "[key] [key]");
        assert_eq!(secret.bearer(), "Bearer sk-0123456789abcdef");
        assert_eq!(secret.redact("wrong key sk-0123456789abcdef!"), "wrong key [key]!");
    }

    #[test]
    fn a_key_that_is_no_header_is_refused_without_showing_it() {
        let error = Secret::new("sk-ab\ncd").unwrap_err();
        assert!(!error.report().contains("sk-ab"), "{}", error.report());
    }

    #[test]
    fn placeholders_do_not_change_answers() {
        let secret = Secret::new("EMPTY").unwrap();
        assert_eq!(secret.redact_body("the set is EMPTY".into()), "the set is EMPTY");
        let secret = Secret::new("sk-0123456789abcdef").unwrap();
        assert_eq!(secret.redact_body("you sent sk-0123456789abcdef".into()), "you sent [key]");
    }
}
