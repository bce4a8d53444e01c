//! `livingrag cache` on a small cache: listing, moving, pruning, and requests that are wrong.

#![cfg(feature = "llm")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::Path;

use insta::assert_snapshot;
use livingrag::gates::pair_cache::{KeptPair, PairCache};
use livingrag::llm::{Cache, CacheKey, Entry, Usage};
use rusqlite::Connection;
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

/// A cache of many pairs, which lie on pages of their own.
fn pairs(path: &Path) {
    let cache = PairCache::open(path).unwrap();
    let model = cache.model("nli", "f00d", "f32").unwrap();
    let pair = |n: u32| {
        let mut key = [0_u8; 16];
        key[..4].copy_from_slice(&n.to_be_bytes());
        (key, KeptPair { score: 0.5.into(), cut: false })
    };
    cache.put(model, &(0..1000).map(pair).collect::<Vec<_>>(), 1_600_000_000).unwrap();
}

/// Overwrites everything after the first pages, those of the schema and the tables' roots.
fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    assert!(bytes.len() > 5 * 4096);
    bytes[4 * 4096..].fill(0xff);
    std::fs::write(path, bytes).unwrap();
}

#[track_caller]
fn assert_all(text: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(text.contains(part), "no {part:?} in:\n{text}"));
}

#[test]
fn a_source_that_is_wrong_is_named_and_changes_nothing() {
    let sandbox = Sandbox::new();
    let at = |name: &str| sandbox.path().join(name);
    for name in ["good.sqlite", "damaged.sqlite", "impossible.sqlite"] {
        pairs(&at(name));
    }
    damage(&at("damaged.sqlite"));
    let change = "UPDATE pairs SET entailment = 7.5 WHERE key < x'00000003'";
    Connection::open(at("impossible.sqlite")).unwrap().execute_batch(change).unwrap();
    let foreign = "PRAGMA application_id = 1280462412; PRAGMA user_version = 1; \
                   CREATE TABLE pairs (a); CREATE TABLE models (b)";
    Connection::open(at("foreign.sqlite")).unwrap().execute_batch(foreign).unwrap();
    let import = |file: &str| sandbox.run(&["cache", "import", "good.sqlite", file, "--cache", "new.sqlite"]);

    let text = import("damaged.sqlite");
    assert_all(&text, &["exit code: 2", "error: cannot read the cache damaged.sqlite", "hint: nothing was added"]);
    let text = import("impossible.sqlite");
    assert_all(&text, &["exit code: 2", "impossible.sqlite holds", "3 of 1000 pairs, the first is pair 1", "7.5"]);
    let text = import("foreign.sqlite");
    assert_all(&text, &["exit code: 2", "error: foreign.sqlite has the mark", "other tables", "hint: "]);
    assert!(!text.contains("SELECT"), "{text}");
    assert!(!at("new.sqlite").exists());
    assert_all(&import("good.sqlite"), &["exit code: 0", "pairs added: 1000", "pairs added: 0"]);
}

#[test]
fn a_recording_is_not_imported() {
    let sandbox = filled();
    sandbox.run(&["cache", "export", "--recorded", "a.jsonl"]);
    let text = sandbox.run(&["cache", "import", "a.jsonl", "--cache", "new.sqlite"]);
    assert_all(&text, &["exit code: 2", "generate.kind = \"recorded\"", "generate.model = \"a.jsonl\""]);
    let text = sandbox.run(&["cache", "import", "results/llm-cache.sqlite", "--cache", "new.sqlite"]);
    assert_all(&text, &["exit code: 2", "cache export FILE.parquet --cache results/llm-cache.sqlite"]);
    assert!(!sandbox.path().join("new.sqlite").exists());
}

#[test]
fn damaged_caches_come_with_a_cure() {
    let sandbox = filled();
    let kept = sandbox.path().join("results/nli-cache.sqlite");
    pairs(&kept);
    damage(&kept);
    let cure = "hint: remove the file; what it kept is scored again";
    for args in [&["prune", "--older-than", "1"][..], &["export", "x.sqlite"][..], &["stats"][..]] {
        let text = sandbox.run(&[&["cache"][..], args, &["--cache", "results/nli-cache.sqlite"]].concat());
        assert_all(&text, &["exit code: 2", "the cache results/nli-cache.sqlite", cure]);
    }
    assert!(!sandbox.path().join("x.sqlite").exists());
    // Cut short, it is still known for what it is.
    let bytes = std::fs::read(&kept).unwrap();
    std::fs::write(&kept, &bytes[..3 * 4096 - 100]).unwrap();
    assert_all(&sandbox.run(&["cache", "stats"]), &["exit code: 2", "results/nli-cache.sqlite", cure]);
}

#[test]
fn both_default_files_are_looked_after() {
    let sandbox = filled();
    pairs(&sandbox.path().join("results/nli-cache.sqlite"));
    assert_all(&sandbox.run(&["cache", "stats"]), &["small\thttp", "nli\tf00d"]);
    let text = sandbox.run(&["cache", "export", "a.parquet"]);
    assert_all(&text, &["answers written: 3", "results/nli-cache.sqlite is left out"]);
    let text = sandbox.run(&["cache", "prune", "--model", "nli"]);
    assert_all(&text, &["exit code: 0", "answers removed: 0", "pairs removed: 1000"]);
}

#[test]
fn a_cache_where_nothing_can_be_written_is_read() {
    let sandbox = filled();
    // A folder in the place of the log: nobody, not even the administrator, opens the file to write.
    std::fs::create_dir(sandbox.path().join("results/llm-cache.sqlite-wal")).unwrap();
    assert_all(&sandbox.run(&["cache", "stats"]), &["exit code: 0", "small\thttp"]);
    assert_all(&sandbox.run(&["cache", "export", "a.parquet"]), &["answers written: 3"]);
    let text = sandbox.run(&["cache", "prune", "--model", "small"]);
    assert_all(&text, &["exit code: 2", "hint: name a file in a folder that can be written: generate.cache"]);
}
