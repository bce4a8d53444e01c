//! What one provider wants said differently.
//!
//! In: a provider and whether the model shall think. Out: fields of the request's body, and streaming where it is needed.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::ChatRequest;
use crate::{Error, Result};

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// The API as OpenAI wrote it.
    #[default]
    Plain,
    /// vLLM.
    Vllm,
    /// Alibaba's DashScope.
    Dashscope,
    /// Ollama.
    Ollama,
}

/// Whether a model that can reason before it answers does so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Thinking {
    /// Nothing is said; the endpoint's default stands.
    #[default]
    Default,
    /// It thinks.
    On,
    /// It does not.
    Off,
}

impl Profile {
    /// The name in configurations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Vllm => "vllm",
            Self::Dashscope => "dashscope",
            Self::Ollama => "ollama",
        }
    }

    /// Adds to `request` what the provider needs.
    ///
    /// DashScope streams whenever thinking is not switched off, since its open models refuse to think otherwise.
    ///
    /// # Errors
    /// When the provider has no switch for thinking and one is asked for: saying nothing would give the other behaviour.
    pub fn apply(self, thinking: Thinking, request: &mut ChatRequest) -> Result<()> {
        let enable = match thinking {
            Thinking::Default => None,
            Thinking::On => Some(true),
            Thinking::Off => Some(false),
        };
        match (self, enable) {
            (Self::Vllm, Some(enable)) => {
                request.extra.insert("chat_template_kwargs".into(), json!({"enable_thinking": enable}));
            }
            (Self::Dashscope, enable) => {
                if let Some(enable) = enable {
                    request.extra.insert("enable_thinking".into(), json!(enable));
                }
                request.stream |= enable != Some(false);
            }
            (Self::Plain | Self::Ollama, Some(_)) => {
                return Err(Error::request(format!(
                    "the provider profile {} has no switch for thinking",
                    self.as_str()
                ))
                .with_hint("leave thinking at \"default\", or choose the profile vllm or dashscope"));
            }
            (Self::Plain | Self::Vllm | Self::Ollama, None) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use crate::llm::Message;

    fn applied(profile: Profile, thinking: Thinking) -> Result<(String, bool)> {
        let mut request = ChatRequest::new("http://h/v1", "m", vec![Message::user("u")], 5);
        profile.apply(thinking, &mut request)?;
        Ok((serde_json::to_string(&request.extra).unwrap(), request.stream))
    }

    #[test]
    fn each_provider_has_its_switch() {
        let said = |profile, thinking| applied(profile, thinking).unwrap();
        let nothing = || "{}".to_owned();
        assert_eq!(said(Profile::Plain, Thinking::Default), (nothing(), false));
        assert_eq!(said(Profile::Ollama, Thinking::Default), (nothing(), false));
        assert_eq!(
            said(Profile::Vllm, Thinking::Off),
            (r#"{"chat_template_kwargs":{"enable_thinking":false}}"#.to_owned(), false)
        );
        assert_eq!(said(Profile::Dashscope, Thinking::Off), (r#"{"enable_thinking":false}"#.to_owned(), false));
        assert_eq!(said(Profile::Dashscope, Thinking::On), (r#"{"enable_thinking":true}"#.to_owned(), true));
        assert_eq!(said(Profile::Dashscope, Thinking::Default), (nothing(), true));
    }

    #[test]
    fn a_switch_that_is_not_there_is_refused() {
        for profile in [Profile::Plain, Profile::Ollama] {
            let error = applied(profile, Thinking::Off).unwrap_err();
            assert!(error.to_string().contains(profile.as_str()), "{error}");
        }
    }
}
