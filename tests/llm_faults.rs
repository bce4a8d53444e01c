//! The chat client against an endpoint that fails in every way it can: no call is lost, each has its status, retries are counted.

#![cfg(feature = "llm")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod fault_server;

use std::sync::Arc;
use std::time::Duration;

use fault_server::{FaultServer, Play, Seen, TestClock, call, completion, error, ok};
use livingrag::generate::{Generator, Oracle, Prompt, Request};
use livingrag::llm::{
    Cache, CacheMode, Call, ChatOutcome, ChatReader, Client, ClientSettings, FailureKind, LlmStatus, RetryPolicy,
    Secret, Source, Usage,
};
use serde_json::json;

const KEY: &str = "sk-never-to-be-seen-0123456789";

fn settings() -> ClientSettings {
    ClientSettings { timeout: Duration::from_secs(3), ..ClientSettings::default() }
}

fn client(settings: ClientSettings) -> Client {
    Client::new(settings, None, None, None).unwrap().with_clock(TestClock::default())
}

/// What questions 1 to 120 meet. Where it matters, only the first time.
fn all_faults(seen: &Seen) -> Play {
    let first = seen.before == 0;
    let answer = || ok(&format!("answer {}", seen.question));
    let body = |value: serde_json::Value| Play::Reply(200, vec![], value.to_string());
    let no_usage = json!({"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]});
    match seen.question {
        57 => error(400, vec![]),
        58 => Play::Reply(401, vec![], json!({"error": {"message": format!("bad key {KEY}")}}).to_string()),
        59 => error(404, vec![]),
        // Thirty in a hundred are told to come back later, in three ways.
        n if n % 10 == 0 && first => error(429, vec![("Retry-After", "2".into())]),
        n if n % 10 == 1 && first => error(429, vec![("Retry-After", "Wed, 01 Jan 2031 00:00:00 GMT".into())]),
        n if n % 10 == 2 && first => error(429, vec![("Retry-After-Ms", "1500".into())]),
        3 if first => error(500, vec![]),
        4 if first => error(503, vec![("Retry-After", "Fri, 01 Jan 2038 00:00:00 GMT".into())]),
        5 if first => error(408, vec![]),
        6 if first => error(409, vec![]),
        7 if first => Play::Cut(completion("answer 7", "stop")),
        8 if first => Play::HangUp,
        9 if first => Play::Reply(200, vec![], "{\"choices\": [{\"mess".into()),
        13 if first => Play::Reply(200, vec![], "<html>busy</html>".into()),
        14 if first => Play::After(Duration::from_millis(3600), Box::new(answer())),
        15 => {
            body(json!({"choices": [{"message": {"content": null, "reasoning": "thought"}, "finish_reason": "stop"}]}))
        }
        16 => Play::Reply(200, vec![], completion("answer 16 is lon", "length")),
        17 => body(no_usage),
        18 => {
            let mut value = no_usage;
            value["usage"] = json!({"prompt_tokens": 0, "completion_tokens": 0});
            body(value)
        }
        19 => {
            let mut value = no_usage;
            value["usage"] = json!({"prompt_tokens": 4096, "completion_tokens": 1});
            body(value)
        }
        23 => Play::Reply(200, vec![], completion("", "stop")),
        24 => error(500, vec![]),
        _ => answer(),
    }
}

/// 120 calls; number 19 is far longer than the endpoint will say.
fn calls(server: &FaultServer) -> Vec<Call> {
    let mut calls: Vec<_> = (1..=120).map(|n| call(server, n)).collect();
    calls[18].request.messages[1].content.push_str(&" and so on".repeat(8000));
    calls
}

/// Pitfalls 27 and 32: one bad request loses no other, rate limits lose none, an empty success is a status.
#[test]
fn pitfall_27_and_32_every_call_comes_home_with_its_status() {
    let server = FaultServer::start(all_faults);
    let folder = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(&folder.path().join("cache.sqlite")).unwrap());
    let clock = TestClock::default();
    let key = Some(Secret::new(KEY).unwrap());
    let client = Client::new(settings(), key, Some((Arc::clone(&cache), CacheMode::Use)), None)
        .unwrap()
        .with_clock(clock.clone());
    let calls = calls(&server);
    let outcomes = client.complete(&calls).unwrap();
    assert_eq!(outcomes.len(), 120);
    let at = |n: usize| &outcomes[n - 1];

    for n in 1..=120 {
        let outcome = at(n);
        let expected = match n {
            16 => (LlmStatus::Truncated, "answer 16 is lon".to_owned()),
            15 => (LlmStatus::Ok, "thought".to_owned()),
            17..=19 => (LlmStatus::Ok, "x".to_owned()),
            23 => (LlmStatus::Empty, String::new()),
            24 | 57..=59 => (LlmStatus::Error, String::new()),
            n => (LlmStatus::Ok, format!("answer {n}")),
        };
        assert_eq!((outcome.status, outcome.text.clone()), expected, "question {n}");
        let tries = match n {
            24 => 8,
            n if n % 10 <= 2 => 2,
            3..=9 | 13 | 14 => 2,
            _ => 1,
        };
        assert_eq!(outcome.tries, tries, "question {n}");
        assert_eq!(server.times(n), tries as usize, "question {n}");
    }
    assert!(at(15).text_from_reasoning);
    assert_eq!((at(17).usage, at(18).usage), (Usage::default(), Usage::default()), "null is not 0");
    assert!(at(19).prompt_maybe_cut && !at(20).prompt_maybe_cut);
    let failed = |n: usize| at(n).error.as_ref().map(|e| (e.kind, e.http_status));
    assert_eq!(failed(57), Some((FailureKind::Refused, Some(400))));
    assert_eq!(failed(58), Some((FailureKind::Unauthorized, Some(401))));
    assert_eq!(failed(59), Some((FailureKind::Refused, Some(404))));
    assert_eq!(failed(24), Some((FailureKind::Server, Some(500))));
    assert_eq!(at(57).error.as_ref().unwrap().text, "HTTP 400: played 400");
    assert_eq!(at(58).error.as_ref().unwrap().text, "HTTP 401: bad key [key]");

    let ledger = client.ledger();
    let retries: Vec<_> = ledger.retries.iter().map(|(kind, n)| (kind.as_str(), *n)).collect();
    let expected = [
        ("conflict", 1),
        ("connection", 2),
        ("invalid_reply", 2),
        ("rate_limited", 36),
        ("request_timeout", 1),
        ("server", 2 + 7),
        ("timeout", 1),
    ];
    assert_eq!(retries, expected);
    assert_eq!(ledger.sent, 120 + ledger.retried());
    let answers: Vec<_> = ledger.answers.iter().map(|(status, n)| (status.as_str(), *n)).collect();
    assert_eq!(answers, [("empty", 1), ("error", 4), ("ok", 114), ("truncated", 1)]);
    assert_eq!(ledger.failures.values().sum::<u64>(), 4);
    assert!(ledger.slowed >= 1);
    assert_eq!((ledger.prompts_maybe_cut, ledger.without_usage), (1, 3));

    // Twelve each: seconds, a date five seconds off, milliseconds. None waits for 2038.
    let pauses = clock.pauses();
    let waited = |ms: u64| pauses.iter().filter(|p| **p == Duration::from_millis(ms)).count();
    assert_eq!((waited(2000), waited(5000), waited(1500)), (12, 12, 12));
    assert_eq!(waited(60_000), 1);
    assert_eq!(pauses.len() as u64, ledger.retried());

    // Once more: what was answered is there, what failed is asked again, the outcomes are the same.
    let before = server.seen().len();
    let again = client.complete(&calls).unwrap();
    let strip = |o: &ChatOutcome| ChatOutcome { cached: false, elapsed_us: 0, ..o.clone() };
    assert_eq!(again.iter().map(strip).collect::<Vec<_>>(), outcomes.iter().map(strip).collect::<Vec<_>>());
    let answered = outcomes.iter().zip(&again).filter(|(first, _)| first.error.is_none());
    assert!(answered.clone().all(|(first, again)| again.cached && first.elapsed_us == again.elapsed_us));
    assert_eq!(answered.count(), 116);
    assert_eq!(server.seen().len() - before, 8 + 3);

    // The key went out, and stayed in nothing that is kept or shown.
    assert!(server.seen().iter().all(|s| s.head.contains(&format!("Bearer {KEY}"))));
    drop(cache);
    assert_no_key(&format!("{outcomes:?} {ledger:?} {pauses:?}"));
    assert_no_key_in(folder.path());
}

fn assert_no_key(text: &str) {
    assert!(!text.contains(KEY) && !text.contains("never-to-be-seen"), "the key is in {text}");
}

fn assert_no_key_in(folder: &std::path::Path) {
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
        assert!(!text.contains("never-to-be-seen"), "the key is in {}", path.display());
        files += 1;
    }
    assert!(files > 0);
}

/// An endpoint that sends the key back in a success, in an error of every kind, and a bad address.
#[test]
fn the_key_is_in_no_file_log_or_error() {
    let server = FaultServer::start(|seen| {
        let echo =
            seen.head.lines().find(|line| line.to_lowercase().starts_with("authorization")).unwrap_or("").to_owned();
        match seen.question {
            1 => ok(&echo),
            2 => Play::Reply(200, vec![("X-Echo", echo.clone())], echo),
            3 => Play::Reply(200, vec![], json!({"error": echo}).to_string()),
            // In pieces of three letters, and with every letter escaped.
            4 => {
                let event = |piece: &[u8]| {
                    let delta = json!({"content": String::from_utf8_lossy(piece)});
                    format!("data: {}\n\n", json!({"choices": [{"delta": delta}]}))
                };
                Play::Reply(200, vec![], echo.as_bytes().chunks(3).map(event).collect::<String>() + "data: [DONE]\n\n")
            }
            5 => {
                let escaped: String = echo.bytes().map(|b| format!("\\u{b:04x}")).collect();
                Play::Reply(
                    200,
                    vec![],
                    format!(
                        "{{\"id\": \"{escaped}\", \"choices\": [{{\"message\": {{\"content\": \"{escaped}\"}}}}]}}"
                    ),
                )
            }
            n => Play::Reply(400 + n as u16, vec![], echo),
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(&folder.path().join("cache.sqlite")).unwrap());
    let retry = RetryPolicy { max_tries: 2, ..RetryPolicy::default() };
    let client = Client::new(
        ClientSettings { retry, ..settings() },
        Some(Secret::new(KEY).unwrap()),
        Some((Arc::clone(&cache), CacheMode::Use)),
        None,
    )
    .unwrap()
    .with_clock(TestClock::default());
    let mut calls: Vec<_> = (1..=30).map(|n| call(&server, n)).collect();
    // Nobody listens there, and there is no such host.
    calls[28].request.base_url = "http://127.0.0.1:9/v1".into();
    calls[29].request.base_url = "http://no host here/v1".into();
    let outcomes = client.complete(&calls).unwrap();
    for echoed in [0, 3, 4] {
        assert!(outcomes[echoed].text.contains("Bearer [key]"), "{:?}", outcomes[echoed]);
        assert_eq!(outcomes[echoed].status, LlmStatus::Ok);
    }
    assert!(outcomes[1..3].iter().chain(&outcomes[5..]).all(|o| o.status == LlmStatus::Error), "{outcomes:#?}");
    assert_eq!(outcomes[28].error.as_ref().unwrap().kind, FailureKind::Connection);
    assert_no_key(&format!("{outcomes:?} {:?}", client.ledger()));
    livingrag::llm::export(&cache, &folder.path().join("answers.parquet")).unwrap();
    drop((client, cache));
    assert_no_key_in(folder.path());
}

#[test]
fn streams_are_read_to_their_end() {
    let server = FaultServer::start(|seen| {
        let event = |content: &str, finish: Option<&str>| {
            format!("data: {}\n\n", json!({"choices": [{"delta": {"content": content}, "finish_reason": finish}]}))
        };
        let usage =
            format!("data: {}\n\n", json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}));
        let whole = event("Os", None) + &event("lo", Some("stop")) + &usage + "data: [DONE]\n\n";
        let body = match (seen.question, seen.before) {
            (1, 0) => event("Os", None),
            (2, 0) => return Play::Cut(whole),
            (3, _) => completion("no stream", "stop"),
            _ => whole,
        };
        Play::Reply(200, vec![("Content-Type", "text/event-stream".into())], body)
    });
    let client = client(settings());
    let mut calls: Vec<_> = (1..=4).map(|n| call(&server, n)).collect();
    calls.iter_mut().for_each(|c| c.request.stream = true);
    let outcomes = client.complete(&calls).unwrap();
    let got: Vec<_> = outcomes.iter().map(|o| (o.text.as_str(), o.status, o.tries, o.usage.prompt_tokens)).collect();
    let whole = |tries| ("Oslo", LlmStatus::Ok, tries, Some(9));
    assert_eq!(got, [whole(2), whole(2), ("no stream", LlmStatus::Ok, 1, Some(20)), whole(1)]);
    assert!(server.seen()[0].body.contains(r#""stream_options":{"include_usage":true}"#));
}

#[test]
fn outcomes_keep_the_order_of_calls_whatever_the_timing() {
    let server = FaultServer::start(|seen| {
        let pause = Duration::from_millis((seen.question as u64 * 7919) % 40);
        Play::After(pause, Box::new(ok(&format!("answer {}", seen.question))))
    });
    let client = client(ClientSettings { concurrency: 8, ..settings() });
    let calls: Vec<_> = (1..=40).map(|n| call(&server, n)).collect();
    let outcomes = client.complete(&calls).unwrap();
    for (n, outcome) in (1..).zip(&outcomes) {
        assert_eq!(outcome.text, format!("answer {n}"));
    }
    assert!((2..=8).contains(&server.most_open()), "{} at a time", server.most_open());
}

#[test]
fn the_retry_budget_ends_retrying_and_nothing_else() {
    let server = FaultServer::start(|seen| if seen.question == 5 { ok("fine") } else { error(500, vec![]) });
    let retry = RetryPolicy { budget: 3, ..RetryPolicy::default() };
    let client = client(ClientSettings { concurrency: 1, retry, ..settings() });
    let calls: Vec<_> = (1..=5).map(|n| call(&server, n)).collect();
    let outcomes = client.complete(&calls).unwrap();
    assert_eq!(outcomes.iter().map(|o| o.tries).collect::<Vec<_>>(), [4, 1, 1, 1, 1]);
    assert_eq!(outcomes[4].text, "fine");
    let text = &outcomes[1].error.as_ref().unwrap().text;
    assert!(text.contains("played 500") && text.contains("retry budget of 3"), "{text}");
}

#[test]
fn a_request_that_can_never_be_sent_is_refused_before_any_is() {
    let server = FaultServer::start(|_| ok("x"));
    let client = client(settings());
    let mut calls = vec![call(&server, 1), call(&server, 2)];
    calls[1].request.base_url = "nowhere".into();
    assert_eq!(client.complete(&calls).unwrap_err().exit_code(), 2);
    assert!(server.seen().is_empty());
}

#[test]
fn the_reader_marks_what_it_estimates() {
    let server = FaultServer::start(|seen| match seen.question {
        2 => Play::Reply(200, vec![], json!({"choices": [{"message": {"content": "Answer: Oslo"}}]}).to_string()),
        3 => error(400, vec![]),
        _ => ok("Answer: Rome"),
    });
    let template = call(&server, 0).request;
    let reader = ChatReader::new("api", Source::Client(Arc::new(client(settings()))), template, None);
    let request = |n: usize| Request {
        query_id: format!("q{n}"),
        question: String::new(),
        passages: vec![],
        scaffold: None,
        prompt: Prompt { system: "Answer.".into(), user: format!("question {n}?") },
        oracle: Oracle::default(),
    };
    let responses = reader.generate(&[request(1), request(2), request(3)]).unwrap();
    let tokens = |n: usize| {
        (responses[n].usage.prompt_tokens, responses[n].usage.completion_tokens, responses[n].tokens_estimated)
    };
    assert_eq!(tokens(0), (Some(20), Some(5), false));
    // Four bytes a token: 7 and 11 bytes asked, 12 answered.
    assert_eq!(tokens(1), (Some(2 + 3), Some(3), true));
    assert_eq!(tokens(2), (None, None, false));
    let raw: Vec<_> = responses.iter().map(|r| (r.raw.as_str(), r.status)).collect();
    assert_eq!(raw, [("Answer: Rome", LlmStatus::Ok), ("Answer: Oslo", LlmStatus::Ok), ("", LlmStatus::Error)]);
    assert_eq!(reader.name(), "api");
}
