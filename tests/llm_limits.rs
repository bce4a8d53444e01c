//! What does not fit, through the program: answers that come too late, prompts that an endpoint cuts, passages over the budget, and
//! tokens that are counted here.

#![cfg(all(feature = "llm", feature = "encoders"))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod fault_server;
mod lab;
mod support;

use std::time::Duration;

use fault_server::{Play, Seen, ok};
use lab::{Lab, answer, draw, field, is_probe, rows};
use livingrag::generate::LlmStatus;
use serde_json::{Value, json};

/// A vocabulary in which each word and each mark is a token, in the format of the tokenizers library.
const WORDS: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
    "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
    "model": {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"}}"#;

/// Tokens of that vocabulary, by its definition: runs of word characters, and runs of other characters that are no white space.
fn words(text: &str) -> u32 {
    let (mut n, mut last) = (0, ' ');
    for c in text.chars() {
        let kind = |c: char| {
            if c.is_whitespace() {
                0
            } else if c.is_alphanumeric() || c == '_' {
                1
            } else {
                2
            }
        };
        n += u32::from(kind(c) != 0 && kind(c) != kind(last));
        last = c;
    }
    n
}

fn messages(body: &Value) -> Vec<String> {
    let messages = body["messages"].as_array().unwrap().iter();
    messages.map(|m| m["content"].as_str().unwrap().to_owned()).collect()
}

/// A completion that counts `tokens(words of the prompt)`.
fn counting(seen: &Seen, tokens: impl Fn(u32) -> u32) -> Play {
    let body: Value = serde_json::from_str(&seen.body).unwrap();
    let sent: u32 = messages(&body).iter().map(|text| words(text)).sum();
    let choices = json!([{"message": {"role": "assistant", "content": answer(seen)}, "finish_reason": "stop"}]);
    let usage = json!({"prompt_tokens": tokens(sent), "completion_tokens": 5});
    Play::Reply(200, vec![], json!({"choices": choices, "usage": usage}).to_string())
}

/// A first byte that comes after the time allowed is asked for again; what is late every time is one row.
#[test]
fn an_answer_that_comes_too_late() {
    let late = Duration::from_millis(1500);
    let lab = Lab::new(move |seen| match (draw(seen, 10), seen.before) {
        (0, 0) => Play::After(late, Box::new(ok(&answer(seen)))),
        (1, _) => Play::After(late, Box::new(ok(&answer(seen)))),
        _ => ok(&answer(seen)),
    });
    let sets =
        ["method=linear", "generate.probe_tokens=0", "generate.timeout_s=1", "generate.max_tries=2", "replay.limit=24"];
    let (folder, log) = lab.works("out", &[&sets[..], &["replay.timings=true"]].concat(), &[]);
    let run = rows(&folder);
    let seen = lab.server.seen();
    let always = seen.iter().filter(|s| draw(s, 10) == 1).count();
    let once = seen.iter().filter(|s| draw(s, 10) == 0).count();
    assert!(always > 0 && once > 0 && always % 2 == 0 && once % 2 == 0, "{once} {always}");
    let failed = run.rows.iter().filter(|r| r.llm_status == LlmStatus::Error).count();
    assert_eq!((run.rows.len(), failed, seen.len()), (24, always / 2, 24 + (once + always) / 2));
    assert!(log.contains(&format!("{failed} calls got no answer (timeout {failed})")), "{log}");
    let counters = run.manifest.unwrap().counters;
    assert_eq!(counters["llm_retries_timeout"], ((once + always) / 2) as u64);
    assert_eq!(counters["llm_failures_timeout"], failed as u64);
}

/// An endpoint that drops what is over 4,096 tokens and says nothing: the probe sees it before the run, a tokenizer in every row.
#[test]
fn prompts_cut_at_4096_tokens() {
    let lab = Lab::new(|seen| counting(seen, |sent| sent.min(4096)));
    lab.sandbox.write("tokenizer.json", WORDS);
    // A system prompt of 4,340 words beside passages of about 200: on either side of what counts as cut.
    let system = "Read with care. ".repeat(1085);
    let user = "{passages}{scaffold}Question: {question}";
    let prompt = |system: &str| {
        format!("system = {system:?}\nuser = {user:?}\npassage = \"{{text}}\\n\"\nscaffold = \"{{summary}}\"\n")
    };
    lab.sandbox.write("long.toml", prompt(&system)).write("short.toml", prompt("Read."));
    let sets = |prompt: &'static str| ["method=linear", "replay.limit=8", "generate.tokenizer=tokenizer.json", prompt];
    let long = [&sets("generate.prompt=long.toml")[..], &["generate.probe_tokens=6000"]].concat();
    let (folder, log) = lab.works("long", &long, &[]);
    assert!(log.contains("a prompt of 6000 tokens was cut to 4096 without a word"), "{log}");
    assert!(log.contains(" prompts were probably cut by the endpoint"), "{log}");
    let run = rows(&folder);
    let sent: Vec<u32> = lab
        .server
        .seen()
        .iter()
        .filter(|s| !is_probe(s))
        .map(|s| messages(&serde_json::from_str(&s.body).unwrap()).iter().map(|text| words(text)).sum())
        .collect();
    for row in &run.rows {
        assert_eq!((row.prompt_tokens, row.tokens_estimated), (Some(4096), false));
    }
    // A tenth of slack: 4,096 of 4,552 and more are far fewer.
    let cut = sent.iter().filter(|n| 4096 * 10 < **n * 9).count();
    assert!(cut > 0 && cut < 8, "{sent:?}");
    assert_eq!(run.rows.iter().filter(|r| r.prompt_cut).count(), cut);
    let notes = run.manifest.unwrap().notes;
    assert!(
        notes.iter().any(|n| n.starts_with(&format!("{cut} of 8 prompts were probably cut by the endpoint"))),
        "{notes:?}"
    );
    let (folder, log) = lab.works("short", &sets("generate.prompt=short.toml"), &[]);
    assert!(!log.contains("prompts were probably cut"), "{log}");
    assert!(rows(&folder).rows.iter().all(|r| !r.prompt_cut));
}

/// Passages are cut to the budget in rank order, and what is not reported is counted with the same vocabulary.
#[test]
fn passages_fit_the_budget_and_tokens_are_counted_here() {
    let lab = Lab::new(|seen| {
        let choices = json!([{"message": {"content": answer(seen)}, "finish_reason": "stop"}]);
        Play::Reply(200, vec![], json!({"choices": choices}).to_string())
    });
    lab.sandbox.write("tokenizer.json", WORDS);
    let user = "BEGIN\n{passages}\nEND {scaffold}Question: {question}";
    lab.sandbox.write(
        "p.toml",
        format!("system = \"Read.\"\nuser = {user:?}\npassage = \"{{text}}\\n\"\nscaffold = \"{{summary}}\"\n"),
    );
    let common = ["method=linear", "replay.limit=12", "generate.probe_tokens=0", "generate.prompt=p.toml"];
    let (whole, _) = lab.works("out", &common, &[]);
    let whole = rows(&whole);
    assert!(whole.rows.iter().all(|r| r.tokens_estimated && r.passages_cut == 0));

    let before = lab.server.arrived();
    let budget = ["generate.passage_budget=120", "generate.tokenizer=tokenizer.json"];
    let (folder, _) = lab.works("out", &[&common[..], &budget].concat(), &[]);
    let run = rows(&folder);
    let seen = &lab.server.seen()[before..];
    for (row, seen) in run.rows.iter().zip(seen.iter().map(|s| (s, field(s, "/messages/1/content")))) {
        let body: Value = serde_json::from_str(&seen.0.body).unwrap();
        let passages = seen.1.split("BEGIN\n").nth(1).unwrap().split("\nEND").next().unwrap();
        // Blocks of four are asked at once, so the order of arrival is not that of the rows; both are sums over the same rows.
        assert!(words(passages) <= 120, "{passages}");
        assert!(row.passages_cut > 0 && row.passages_cut < 5 && row.tokens_estimated && body.is_object());
    }
    let counted: u32 = run.rows.iter().filter_map(|r| r.prompt_tokens).sum();
    let sent: u32 =
        seen.iter().flat_map(|s| messages(&serde_json::from_str(&s.body).unwrap())).map(|t| words(&t)).sum();
    assert_eq!((counted, run.rows.len(), seen.len()), (sent, 12, 12));
    let answered: u32 = run.rows.iter().map(|r| words(&r.raw_response)).sum();
    assert_eq!(run.rows.iter().filter_map(|r| r.completion_tokens).sum::<u32>(), answered);
    assert_ne!(run.head().run_id, whole.head().run_id);
    let manifest = run.manifest.unwrap();
    assert!(manifest.notes.iter().any(|n| n.starts_with("passage budget: 120 tokens, counted by the tokenizer ")));
    let cut: u32 = run.rows.iter().map(|r| r.passages_cut).sum();
    let said = format!("{cut} passages of 12 of 12 questions were shortened or left out to fit the passage budget");
    assert!(manifest.notes.contains(&said), "{:?}", manifest.notes);

    // Without a tokenizer four bytes are a token; a file that is none is named before anything is asked.
    let before = lab.server.arrived();
    let (folder, _) = lab.works("out", &[&common[..], &budget[..1]].concat(), &[]);
    assert!(
        rows(&folder).manifest.unwrap().notes.contains(&"passage budget: 120 tokens, at four bytes a token".to_owned())
    );
    for seen in &lab.server.seen()[before..] {
        let user = field(seen, "/messages/1/content");
        assert!(user.split("BEGIN\n").nth(1).unwrap().split("\nEND").next().unwrap().trim().len() <= 4 * 120 + 5);
    }
    let before = lab.server.arrived();
    let (code, log) = lab.fails("out", &[&common[..], &["generate.tokenizer=p.toml"]].concat(), &[]);
    assert!(
        code == 2 && log.contains("generate.tokenizer: p.toml is no tokenizer") && lab.server.arrived() == before,
        "{log}"
    );
}
