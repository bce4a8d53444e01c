//! From the body of a successful reply to text, reason and token counts.
//!
//! In: JSON, or a stream of server-sent events. Out: a [`Reply`], or why the body is no chat completion.

use serde_json::{Value, json};

use super::{LlmStatus, Usage};

/// What a body said.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Reply {
    pub content: String,
    pub reasoning: String,
    pub finish_reason: Option<String>,
    pub usage: Usage,
}

impl Reply {
    /// The text of the answer: the content, or the reasoning when there is no content. Some servers file a whole answer under
    /// reasoning when a model did not close its thought.
    pub fn text(&self) -> &str {
        if self.is_from_reasoning() { &self.reasoning } else { &self.content }
    }

    /// Whether [`Reply::text`] is the reasoning.
    pub fn is_from_reasoning(&self) -> bool {
        self.content.trim().is_empty() && !self.reasoning.trim().is_empty()
    }

    /// A body that says the same.
    pub fn body(&self) -> String {
        let Usage { prompt_tokens, completion_tokens, reasoning_tokens, cached_tokens } = self.usage;
        json!({
            "choices": [{
                "message": { "role": "assistant", "content": self.content, "reasoning_content": self.reasoning },
                "finish_reason": self.finish_reason,
            }],
            "usage": {
                "prompt_tokens": prompt_tokens,
                "completion_tokens": completion_tokens,
                "completion_tokens_details": { "reasoning_tokens": reasoning_tokens },
                "prompt_tokens_details": { "cached_tokens": cached_tokens },
            },
        })
        .to_string()
    }

    /// `truncated` at the length limit, `empty` without text, else `ok`.
    pub fn status(&self) -> LlmStatus {
        if self.finish_reason.as_deref() == Some("length") {
            LlmStatus::Truncated
        } else if self.text().trim().is_empty() {
            LlmStatus::Empty
        } else {
            LlmStatus::Ok
        }
    }
}

/// Reads a body, whichever of the two forms it has: some servers ignore `stream` in either direction.
pub(super) fn parse(body: &str) -> Result<Reply, String> {
    let body = body.trim_start_matches('\u{feff}').trim();
    let mut reply = if body.starts_with('{') {
        let value = serde_json::from_str(body).map_err(|e| format!("the reply is no JSON: {e}"))?;
        let mut reply = Reply::default();
        if !add(&mut reply, &value)? {
            return Err("the reply holds no choices".into());
        }
        reply
    } else {
        parse_events(body)?
    };
    // A prompt of 0 tokens cannot be, nor an answer: such counts were not taken.
    let said_something = !reply.text().is_empty();
    reply.usage.prompt_tokens = reply.usage.prompt_tokens.filter(|n| *n > 0);
    reply.usage.completion_tokens = reply.usage.completion_tokens.filter(|n| *n > 0 || !said_something);
    Ok(reply)
}

/// Whether a string of a body that has escapes, read as JSON, is of the kind asked for.
pub(super) fn any_string(body: &str, is: &dyn Fn(&str) -> bool) -> bool {
    fn within(value: &Value, is: &dyn Fn(&str) -> bool) -> bool {
        match value {
            Value::String(text) => is(text),
            Value::Array(items) => items.iter().any(|item| within(item, is)),
            Value::Object(fields) => fields.iter().any(|(name, item)| is(name) || within(item, is)),
            _ => false,
        }
    }
    let parts = body.lines().filter_map(|line| line.strip_prefix("data:")).chain([body]);
    // Without escapes the body itself was looked at.
    parts.filter(|part| part.contains('\\')).any(|part| serde_json::from_str(part).is_ok_and(|v| within(&v, is)))
}

/// A stream is whole when it gave a reason to stop or its closing mark; one that broke off without is not.
fn parse_events(body: &str) -> Result<Reply, String> {
    let mut reply = Reply::default();
    let (mut any, mut closed) = (false, false);
    let mut data = String::new();
    // The blank line at the end closes the last event.
    for line in body.lines().chain([""]) {
        if let Some(more) = line.strip_prefix("data:") {
            if !data.is_empty() {
                data.push('\n');
            }
            data.push_str(more.strip_prefix(' ').unwrap_or(more));
        } else if line.is_empty() && !data.is_empty() {
            if data.trim() == "[DONE]" {
                closed = true;
            } else {
                let value =
                    serde_json::from_str(&data).map_err(|e| format!("an event of the stream is no JSON: {e}"))?;
                any |= add(&mut reply, &value)?;
            }
            data.clear();
        } else if !line.is_empty() && !line.starts_with([':', 'e', 'i', 'r']) {
            // Other lines of a stream are comments and the fields event, id and retry.
            return Err("the reply is neither JSON nor a stream of events".into());
        }
    }
    if !any {
        return Err("the reply holds no choices".into());
    }
    if !closed && reply.finish_reason.is_none() {
        return Err("the stream broke off before its end".into());
    }
    Ok(reply)
}

/// Adds a completion or a piece of one; tells whether it held a choice.
fn add(reply: &mut Reply, value: &Value) -> Result<bool, String> {
    if let Some(error) = value.get("error").filter(|e| !e.is_null()) {
        let message = error.get("message").and_then(Value::as_str).map_or_else(|| error.to_string(), str::to_owned);
        return Err(format!("the reply is an error: {message}"));
    }
    if let Some(usage) = value.get("usage").filter(|u| u.is_object()) {
        reply.usage = read_usage(usage);
    }
    let Some(choice) = value.get("choices").and_then(|c| c.get(0)) else { return Ok(false) };
    if let Some(message) = choice.get("message").or_else(|| choice.get("delta")) {
        reply.content.push_str(&text_of(message.get("content")));
        let reasoning = text_of(message.get("reasoning_content"));
        // Some servers send both names with the same text.
        reply.reasoning.push_str(if reasoning.is_empty() {
            message["reasoning"].as_str().unwrap_or("")
        } else {
            &reasoning
        });
    }
    if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
        reply.finish_reason = Some(reason.to_owned());
    }
    Ok(true)
}

/// Text of a content: a string, or parts of which those of text are joined.
fn text_of(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(|p| p.get("text").and_then(Value::as_str)).collect(),
        _ => String::new(),
    }
}

/// Token counts. Cached tokens are part of the prompt's, reasoning tokens part of the completion's.
fn read_usage(usage: &Value) -> Usage {
    let count = |value: &Value| value.as_u64().and_then(|n| u32::try_from(n).ok());
    Usage {
        prompt_tokens: count(&usage["prompt_tokens"]),
        completion_tokens: count(&usage["completion_tokens"]),
        reasoning_tokens: count(&usage["completion_tokens_details"]["reasoning_tokens"]),
        cached_tokens: count(&usage["prompt_tokens_details"]["cached_tokens"]),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_completion() {
        let reply = parse(
            r#"{"choices":[{"message":{"content":"Answer: Oslo"},"finish_reason":"stop"}],"usage":{"prompt_tokens":100,
               "completion_tokens":7,"prompt_tokens_details":{"cached_tokens":64},"completion_tokens_details":{"reasoning_tokens":3}}}"#,
        )
        .unwrap();
        assert_eq!((reply.text(), reply.status()), ("Answer: Oslo", LlmStatus::Ok));
        let usage = Usage {
            prompt_tokens: Some(100),
            completion_tokens: Some(7),
            reasoning_tokens: Some(3),
            cached_tokens: Some(64),
        };
        assert_eq!(reply.usage, usage);
    }

    #[test]
    fn a_body_made_of_a_reply_says_the_same() {
        let usage = Usage { prompt_tokens: Some(9), completion_tokens: Some(2), ..Usage::default() };
        let reply = Reply {
            content: "Oslo \"there\"".into(),
            reasoning: "hm".into(),
            finish_reason: Some("stop".into()),
            usage,
        };
        assert_eq!(parse(&reply.body()).unwrap(), reply);
        assert_eq!(parse(&Reply { finish_reason: None, ..reply.clone() }.body()).unwrap().finish_reason, None);
    }

    #[test]
    fn strings_are_seen_through_their_escapes() {
        let is = |text: &str| text.contains("sk-1/2");
        for body in
            [r#"{"id": "sk\u002d1\/2"}"#, "data: {\"a\": [\"sk-1\\/2\"]}\n\ndata: [DONE]\n", r#"{"sk-1\/2": 0}"#]
        {
            assert!(any_string(body, &is), "{body}");
        }
        assert!(!any_string(r#"{"id": "sk-1\\/2"}"#, &is));
    }

    #[test]
    fn usage_may_be_missing_null_or_nothing() {
        for usage in [
            "",
            r#","usage":null"#,
            r#","usage":{"prompt_tokens":0,"completion_tokens":0,"prompt_tokens_details":null}"#,
        ] {
            let reply = parse(&format!(r#"{{"choices":[{{"message":{{"content":"x"}}}}]{usage}}}"#)).unwrap();
            assert_eq!(reply.usage, Usage::default(), "{usage}");
        }
    }

    #[test]
    fn null_content_with_reasoning() {
        for field in ["reasoning", "reasoning_content"] {
            let body = format!(
                r#"{{"choices":[{{"message":{{"content":null,"{field}":"I think so"}},"finish_reason":"stop"}}]}}"#
            );
            let reply = parse(&body).unwrap();
            assert_eq!((reply.text(), reply.status(), reply.is_from_reasoning()), ("I think so", LlmStatus::Ok, true));
        }
        let cut = r#"{"choices":[{"message":{"content":null,"reasoning":"I thi"},"finish_reason":"length"}]}"#;
        assert_eq!(parse(cut).unwrap().status(), LlmStatus::Truncated);
    }

    #[test]
    fn an_empty_success_is_a_status() {
        for content in ["null", r#""""#, r#"" \n""#] {
            let body = format!(r#"{{"choices":[{{"message":{{"content":{content}}},"finish_reason":"stop"}}]}}"#);
            assert_eq!(parse(&body).unwrap().status(), LlmStatus::Empty, "{content}");
        }
    }

    #[test]
    fn a_stream_with_usage_in_a_chunk_without_choices() {
        let body = ": keep-alive\r\n\r\ndata: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":\"hm\"}}]}\r\n\r\n\
                    data: {\"choices\":[{\"delta\":{\"content\":\"Os\"},\"finish_reason\":null}],\"usage\":null}\r\n\r\n\
                    data:{\"choices\":[{\"delta\":{\"content\":\"lo\"},\"finish_reason\":\"stop\"}]}\r\n\r\n\
                    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}\r\n\r\ndata: [DONE]\r\n\r\n";
        let reply = parse(body).unwrap();
        assert_eq!((reply.text(), reply.reasoning.as_str(), reply.status()), ("Oslo", "hm", LlmStatus::Ok));
        assert_eq!((reply.usage.prompt_tokens, reply.usage.completion_tokens), (Some(9), Some(2)));
    }

    #[test]
    fn bodies_that_are_no_completion() {
        for (body, said) in [
            ("", "no choices"),
            ("{\"choices\": [", "no JSON"),
            ("{}", "no choices"),
            ("[]", "neither"),
            ("<html>", "neither"),
            (r#"{"error":{"message":"overloaded"}}"#, "overloaded"),
            ("data: {\"choices\":[{\"delta\":{\"content\":\"Os\"}}]}\n\n", "broke off"),
            ("data: {\"choices\":[{\"delta\":{\"con", "no JSON"),
        ] {
            let error = parse(body).unwrap_err();
            assert!(error.contains(said), "{body}: {error}");
        }
    }

    proptest::proptest! {
        /// Whatever an endpoint sends, and wherever it breaks off.
        #[test]
        fn any_body_is_survived(body in ".*", at in 0..200_usize) {
            let whole = r#"{"choices":[{"message":{"content":"Oslo","reasoning":null},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}"#;
            let cut = &whole[..at.min(whole.len() - 1)];
            proptest::prop_assert!(parse(cut).is_err(), "{}", cut);
            let _ = parse(&body);
            let _ = parse(&format!("data: {body}\n\n"));
        }
    }
}
