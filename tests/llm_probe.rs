//! What a start-up probe finds out, and a judge whose endpoint times out.

#![cfg(feature = "llm")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod fault_server;

use std::time::Duration;

use fault_server::{FaultServer, Play, TestClock, call, completion, error, ok};
use livingrag::llm::judge::{self, JudgePrompt};
use livingrag::llm::probe::{LongPrompt, Probe, probe};
use livingrag::llm::{ChatRequest, Client, ClientSettings, Judgement, RetryPolicy};
use serde_json::json;

fn client(timeout: Duration) -> Client {
    let retry = RetryPolicy { max_tries: 2, ..RetryPolicy::default() };
    let settings = ClientSettings { timeout, retry, ..ClientSettings::default() };
    Client::new(settings, None, None, None).unwrap().with_clock(TestClock::default())
}

/// Probes an endpoint that counts one token a word, at most `context`, and answers with `message`.
fn found(context: usize, message: serde_json::Value, with_usage: bool) -> Probe {
    let server = FaultServer::start(move |seen| {
        let words = seen.body.split_whitespace().count().min(context);
        let mut reply = json!({"choices": [{"message": message, "finish_reason": "stop"}]});
        if with_usage {
            reply["usage"] = json!({"prompt_tokens": words, "completion_tokens": 1});
        }
        Play::Reply(200, vec![], reply.to_string())
    });
    probe(&client(Duration::from_secs(5)), &call(&server, 0).request, 6000).unwrap()
}

#[test]
fn a_sound_endpoint() {
    let probe = found(100_000, json!({"content": "Oslo"}), true);
    assert_eq!(probe.warnings(), Vec::<String>::new());
    assert!(matches!(probe.long_prompt, Some(LongPrompt::Whole { counted }) if counted >= 6000));
    assert!(probe.to_string().starts_with("answer \"Oslo\" (ok), token counts yes"), "{probe}");
}

#[test]
fn prompts_that_are_cut() {
    let probe = found(4096, json!({"content": "Oslo"}), true);
    assert_eq!(probe.long_prompt, Some(LongPrompt::Cut { counted: 4096 }));
    assert_eq!(probe.warnings().len(), 1);
    assert!(probe.warnings()[0].contains("6000 tokens was cut to 4096"), "{:?}", probe.warnings());
}

#[test]
fn leaks_and_missing_counts() {
    let probe = found(9999, json!({"content": "hm</think> Oslo"}), false);
    assert!(probe.thinking_leaks && !probe.usage_reported && probe.long_prompt == Some(LongPrompt::Unknown));
    assert_eq!(probe.warnings().len(), 2);
    let thinks = found(9999, json!({"content": "Oslo", "reasoning_content": "hm"}), true);
    assert!(thinks.thinks && !thinks.thinking_leaks);
    let null = found(9999, json!({"content": null, "reasoning": "hm"}), true);
    assert!(null.thinking_leaks);
}

#[test]
fn an_endpoint_that_refuses() {
    let server = FaultServer::start(|seen| if seen.body.len() > 9000 { error(400, vec![]) } else { ok("Oslo") });
    let refused = probe(&client(Duration::from_secs(5)), &call(&server, 0).request, 6000).unwrap();
    assert_eq!(refused.long_prompt, Some(LongPrompt::Refused("HTTP 400: played 400".into())));
    let server = FaultServer::start(|_| error(401, vec![]));
    let nothing = probe(&client(Duration::from_secs(5)), &call(&server, 0).request, 6000).unwrap();
    assert_eq!(nothing.warnings(), ["the endpoint gave no answer: HTTP 401: played 401"]);
    assert_eq!(server.seen().len(), 1);
}

/// Pitfall 25: one of ten judge calls times out; nine are scored, and the tenth is neither wrong nor gone.
#[test]
fn pitfall_25_a_judge_that_times_out_leaves_unscored() {
    let server = FaultServer::start(|seen| {
        let reply =
            Play::Reply(200, vec![], completion(if seen.question < 6 { "Correct." } else { "**incorrect**" }, "stop"));
        if seen.question == 3 { Play::After(Duration::from_secs(3), Box::new(reply)) } else { reply }
    });
    let prompt = JudgePrompt::parse(judge::SHORT, "short").unwrap();
    let template = ChatRequest::new(&server.base_url(), "judge", vec![], 16);
    let calls: Vec<_> = (1..=10)
        .flat_map(|n| judge::calls(&prompt, &template, 1, "q", &format!("question {n}"), &["Oslo".into()], "Oslo"))
        .collect();
    let outcomes = client(Duration::from_millis(1500)).complete(&calls).unwrap();
    let verdicts: Vec<_> = outcomes.chunks(1).map(judge::verdict).collect();
    let count = |judgement| verdicts.iter().filter(|v| v.judgement == judgement).count();
    assert_eq!(verdicts.len(), 10);
    assert_eq!((count(Judgement::Correct), count(Judgement::Incorrect), count(Judgement::Unscored)), (4, 5, 1));
    assert_eq!(verdicts[2].judgement, Judgement::Unscored);
}
