//! `livingrag cache` on a small cache: listing, moving, pruning, and requests that are wrong.

#![cfg(feature = "llm")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use insta::assert_snapshot;
use livingrag::llm::{Cache, CacheKey, Entry, Usage};
use support::Sandbox;

/// Three answers of two models, from 2001 and 2020.
fn filled() -> Sandbox {
    let sandbox = Sandbox::new();
    let cache = Cache::open(&sandbox.path().join("results/llm-cache.sqlite")).unwrap();
    let entry = |n: u8, model: &str, created| Entry {
        key: CacheKey([n; 32]),
        base_url: "http://127.0.0.1:8000/v1".into(),
        model: model.into(),
        settings: r#"{"max_tokens":64,"temperature":0.0,"stream":false}"#.into(),
        attempt: 0,
        question: format!("q{n}"),
        body: r#"{"choices":[{"message":{"content":"x"}}]}"#.into(),
        usage: Usage { prompt_tokens: Some(100), completion_tokens: Some(7), ..Usage::default() },
        elapsed_us: 250_000,
        tries: 1,
        created,
    };
    cache
        .add_all(&[
            entry(1, "small", 1_000_000_000),
            entry(2, "small", 1_600_000_000),
            entry(3, "large", 1_600_000_000),
        ])
        .unwrap();
    sandbox
}

#[test]
fn stats() {
    assert_snapshot!(filled().run(&["cache", "stats"]));
}

#[test]
fn answers_move_to_another_cache() {
    let sandbox = filled();
    assert_snapshot!("export", sandbox.run(&["cache", "export", "a.parquet"]));
    assert_snapshot!("export_again", sandbox.run(&["cache", "export", "a.parquet"]));
    assert_snapshot!("import", sandbox.run(&["cache", "import", "a.parquet", "a.parquet", "--cache", "b.sqlite"]));
    let stats = |args: &[&str]| sandbox.run(&[&["cache", "stats"], args].concat());
    assert_eq!(stats(&[]), stats(&["--cache", "b.sqlite"]));
}

#[test]
fn pruning() {
    let sandbox = filled();
    assert_snapshot!(
        "prune_dry",
        sandbox.run(&["cache", "prune", "--older-than", "1", "--model", "small", "--dry-run"])
    );
    assert_snapshot!("prune", sandbox.run(&["cache", "prune", "--model", "small"]));
    assert_snapshot!("prune_nothing_named", sandbox.run(&["cache", "prune"]));
    assert!(!sandbox.run(&["cache", "stats"]).contains("small"));
}

#[test]
fn wrong_requests_leave_nothing_behind() {
    let sandbox = Sandbox::new();
    assert_snapshot!("no_cache", sandbox.run(&["cache", "stats"]));
    assert_snapshot!("no_file", sandbox.run(&["cache", "import", "a.parquet"]));
    assert!(sandbox.files().is_empty());
    sandbox.write("x.sqlite", "no database, but a text that is long enough to be looked at".repeat(20));
    assert_snapshot!("no_database", sandbox.run(&["cache", "stats", "--cache", "x.sqlite"]));
}
