//! `livingrag nli eval` on a small random model, on wrong requests, and on the real small model where `../shared` has it.

#![cfg(feature = "encoders")]
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod support;

use std::net::TcpListener;
use std::path::PathBuf;

use insta::assert_snapshot;
use serde_json::{Value, json};
use support::{Sandbox, repository};

/// A small model with random weights; see `scripts/make_encoder_cases.py`.
fn small(name: &str) -> String {
    repository().join("tests/cases/encoders").join(name).display().to_string()
}

const PAIRS: &str = concat!(
    "{\"premise\": \"The ferry leaves at noon.\", \"hypothesis\": \"It is late.\", \"label\": \"neutral\"}\n",
    "\n",
    "{\"premise\": \"It is late.\", \"hypothesis\": \"It is not early.\", \"label\": \"Entailment\"}\n",
    "{\"premise\": \"It is late.\", \"hypothesis\": \"Nobody knows.\", \"label\": \"-\"}\n",
);

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("pairs.jsonl", PAIRS);
    sandbox
}

#[test]
fn help() {
    assert_snapshot!("help_nli", sandbox().run(&["nli", "--help"]));
    assert_snapshot!("help_nli_eval", sandbox().run(&["nli", "eval", "--help"]));
}

/// The logits written are those that transformers gives, and the figures are theirs.
#[test]
fn logits_and_figures_of_a_small_model() {
    let expected = std::fs::read_to_string(repository().join("tests/cases/encoders/bert/expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let expected = expected["pairs"].as_array().unwrap();
    let names = ["contradiction", "entailment", "neutral"];
    let logits: Vec<Vec<f64>> = expected
        .iter()
        .map(|p| p["logits"].as_array().unwrap().iter().map(|l| l.as_f64().unwrap()).collect())
        .collect();
    let best = |row: &[f64]| (0..3).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
    // Every label is right but the last pair's.
    let labels: Vec<usize> =
        logits.iter().enumerate().map(|(i, row)| (best(row) + usize::from(i + 1 == logits.len())) % 3).collect();
    let lines: String = expected
        .iter()
        .zip(&labels)
        .map(|(p, l)| {
            json!({"premise": p["premise"], "hypothesis": p["hypothesis"], "label": names[*l]}).to_string() + "\r\n"
        })
        .collect();
    let sandbox = Sandbox::new();
    sandbox.write("pairs.jsonl", format!("\u{feff}{lines}"));
    let model = small("bert");
    let out = sandbox.run(&["nli", "eval", "pairs.jsonl", "--model", &model, "--logits", "logits.jsonl", "--quiet"]);
    assert!(out.starts_with("exit code: 0\n") && out.ends_with("----- stderr -----\n"), "{out}");
    for line in [
        "pairs          5",
        "without label  0",
        "accuracy       80.0 % (4 of 5)",
        "premises cut   1 (20.0 %)",
        "hypotheses cut 0 (0.0 %)",
        "precision      f32",
    ] {
        assert!(out.lines().any(|l| l == line), "{line} not in\n{out}");
    }
    let written = std::fs::read_to_string(sandbox.path().join("logits.jsonl")).unwrap();
    for (i, (line, logits)) in written.lines().zip(&logits).enumerate() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["row"], i);
        for (ours, theirs) in line["logits"].as_array().unwrap().iter().zip(logits) {
            assert!((ours.as_f64().unwrap() - theirs).abs() < 2e-5, "pair {i}");
        }
    }
    assert_eq!(written.lines().count(), 5);
    let limited = sandbox.run(&["nli", "eval", "pairs.jsonl", "--model", &model, "--limit", "2", "--threads", "1"]);
    assert!(limited.contains("pairs          2\n") && limited.contains("(2 of 2)"), "{limited}");
}

/// Nothing is left behind, and the error is one.
fn refused(sandbox: &Sandbox, args: &[&str]) -> String {
    let before = sandbox.files();
    let out = sandbox.run(args);
    assert!(out.starts_with("exit code: 2\n----- stdout -----\n----- stderr -----\n"), "{out}");
    assert_eq!(sandbox.files(), before);
    out
}

#[test]
fn wrong_requests() {
    let (sandbox, bert) = (sandbox(), small("bert"));
    sandbox.write(
        "bad.jsonl",
        "{\"premise\": \"a\", \"hypothesis\": \"b\", \"label\": \"neutral\"}\n{\"premise\": \"a\"}\n",
    );
    sandbox.write("label.jsonl", "{\"premise\": \"a\", \"hypothesis\": \"b\", \"label\": \"maybe\"}\n");
    sandbox.write("empty.jsonl", "\n");
    for (name, args) in [
        ("no_such_file", vec!["nli", "eval", "nowhere.jsonl", "--model", &bert]),
        ("line_that_is_no_pair", vec!["nli", "eval", "bad.jsonl", "--model", &bert]),
        ("label_the_model_does_not_have", vec!["nli", "eval", "label.jsonl", "--model", &bert]),
        ("file_without_a_pair", vec!["nli", "eval", "empty.jsonl", "--model", &bert]),
        ("no_such_model_folder", vec!["nli", "eval", "pairs.jsonl", "--model", "./nowhere"]),
        ("sentence_encoder_as_classifier", vec!["nli", "eval", "pairs.jsonl", "--model", &small("bert_mean")]),
        ("logits_file_that_is_there", vec!["nli", "eval", "pairs.jsonl", "--model", &bert, "--logits", "pairs.jsonl"]),
        (
            "half_precision_on_the_cpu",
            vec!["nli", "eval", "pairs.jsonl", "--model", &bert, "--precision", "f16", "--device", "cpu"],
        ),
        ("logits_in_no_folder", vec!["nli", "eval", "pairs.jsonl", "--model", &bert, "--logits", "no/logits.jsonl"]),
    ] {
        assert_snapshot!(name, refused(&sandbox, &args));
    }
}

/// Offline, a model that is not there is one early error with the command that gets it, and no connection is made.
#[test]
fn offline_the_network_is_not_asked() {
    let sandbox = sandbox();
    let hub = TcpListener::bind("127.0.0.1:0").unwrap();
    hub.set_nonblocking(true).unwrap();
    for variable in ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"] {
        let output = sandbox
            .command(&["nli", "eval", "pairs.jsonl", "--model", "owner/model"])
            .env("HF_ENDPOINT", format!("http://{}", hub.local_addr().unwrap()))
            .env("HF_HOME", sandbox.path().join("hf"))
            .env_remove("HF_HUB_CACHE")
            .env(variable, "1")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("has no model owner/model; offline mode is on"), "{error}");
        assert!(error.contains("hint: run `hf download owner/model`"), "{error}");
        assert!(hub.accept().is_err(), "the hub was asked");
    }
}

/// Accuracies of the model's README: Hugging Face transformers 4.57 in fp32.
#[test]
fn the_real_small_model_has_its_published_accuracy() {
    let shared = std::env::var_os("LIVINGRAG_SHARED").map_or_else(|| repository().join("../shared"), PathBuf::from);
    let model = shared.join("models/nli-minilm-l6");
    if !model.is_dir() {
        eprintln!("skipped: there is no {}", model.display());
        return;
    }
    for (set, accuracy) in [("mnli_matched_1000", 67.7), ("snli_test_1000", 82.8)] {
        let file = shared.join("data/nli").join(format!("{set}.jsonl"));
        let out =
            sandbox().run(&["nli", "eval", file.to_str().unwrap(), "--model", model.to_str().unwrap(), "--quiet"]);
        let line = out.lines().find(|line| line.starts_with("accuracy")).unwrap_or_else(|| panic!("{out}"));
        let ours: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!((ours - accuracy).abs() <= 0.2, "{set}: {line}");
    }
}
