//! Model files in this process, as a user starts them: the demo's first questions answered by a GGUF file.
//!
//! Runs where `LIVINGRAG_MODELS` names a folder with `qwen2.5-coder-0.5b/model.gguf` and `smollm2-135m/model.gguf`, and says so where it
//! does not. What another program makes of the same files is the reference: llama.cpp, greedily.

#![cfg(feature = "gguf")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr)]

mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;

use livingrag::generate::LlmStatus;
use livingrag::trace::reader::{Run, read_run};
use serde_json::Value;
use support::{Sandbox, repository};

fn model(name: &str) -> Option<String> {
    let folder = std::env::var_os("LIVINGRAG_MODELS").map(PathBuf::from);
    let path = folder.map(|f| f.join(name).join("model.gguf")).filter(|p| p.is_file());
    if path.is_none() {
        eprintln!("left out: LIVINGRAG_MODELS names no folder with {name}/model.gguf");
    }
    path.map(|p| p.display().to_string())
}

/// Runs the demo's first questions under `linear`.
fn run(sandbox: &Sandbox, model: &str, sets: &[&str]) -> (Run, String) {
    let (config, data) = (repository().join("configs/demo.toml"), repository().join("data/demo"));
    let (data, model) = (format!("dataset.path={}", data.display()), format!("generate.model={model}"));
    let mut args = vec!["run", config.to_str().unwrap(), "--out", "out"];
    for set in [&data, &model, "generate.kind=gguf", "method=linear", "generate.cache=cache.sqlite"].iter().chain(sets)
    {
        args.extend(["--set", *set]);
    }
    let output = sandbox.output(&args);
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{log}");
    let folder = String::from_utf8(output.stdout).unwrap();
    (read_run(&sandbox.path().join(folder.trim()), false).unwrap(), log)
}

fn first_words(text: &str, n: usize) -> Vec<&str> {
    text.split_whitespace().take(n).collect()
}

/// The demo's recording was made by llama.cpp from the same file with the same prompts, so a greedy reader says the same. Rounding
/// differs between the two programs, so a later word may be another.
#[test]
fn qwen2_answers_as_llama_cpp_does() {
    let Some(model) = model("qwen2.5-coder-0.5b") else { return };
    let text = std::fs::read_to_string(repository().join("data/demo/recorded.jsonl")).unwrap();
    let recorded: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sandbox = Sandbox::new();
    let sets = ["generate.max_tokens=256", "replay.limit=4", "judge.kind=gguf", "judge.prompt=judge.toml"];
    let judge = repository().join("configs/prompts/judge-examples.toml");
    std::fs::copy(judge, sandbox.path().join("judge.toml")).unwrap();
    let (first, _) = run(&sandbox, &model, &sets);
    let (mut same, mut compared) = (0, 0);
    for row in &first.rows {
        assert_eq!((row.llm_status, row.tokens_estimated, row.judge_raw.len()), (LlmStatus::Ok, false, 1), "{row:?}");
        let answers: Vec<&Value> = recorded
            .iter()
            .filter(|r| {
                r["question"] == row.query_id.as_str() && r["usage"]["prompt_tokens"] == row.prompt_tokens.unwrap()
            })
            .collect();
        // The same number of tokens: template and vocabulary are those of llama.cpp.
        assert!(!answers.is_empty(), "{}: no recorded prompt has {:?} tokens", row.query_id, row.prompt_tokens);
        compared += 1;
        same += usize::from(
            answers.iter().any(|a| first_words(a["content"].as_str().unwrap(), 5) == first_words(&row.raw_response, 5)),
        );
    }
    assert!(compared == 4 && same >= 3, "{same} of {compared} begin like llama.cpp's");
    let manifest = first.manifest.as_ref().unwrap();
    assert_eq!(manifest.generator.name, "gguf");
    assert_eq!(manifest.generator.model, "Qwen2.5 Coder 0.5B Instruct AWQ");
    assert_eq!(manifest.judge.as_ref().unwrap().name, "gguf");
    assert!(first.rows.iter().all(|r| r.completion_tokens.unwrap() > 1));

    // Kept under the file's fingerprint: nothing is computed again, wherever the file lies.
    let moved = sandbox.path().join("moved.gguf");
    std::fs::copy(&model, &moved).unwrap();
    // The same plan, so the same folder.
    std::fs::rename(sandbox.path().join("out"), sandbox.path().join("first")).unwrap();
    let only = [&sets[..], &["generate.cache_mode=only", "replay.timings=false"]].concat();
    let (second, _) = run(&sandbox, &moved.display().to_string(), &only);
    let said = |run: &Run| run.rows.iter().map(|r| (r.raw_response.clone(), r.judge)).collect::<Vec<_>>();
    assert_eq!(said(&second), said(&first));
    assert_eq!(second.head().run_id, first.head().run_id);
}

#[test]
fn llama_is_cut_at_its_limits_and_draws_by_its_seed() {
    let Some(model) = model("smollm2-135m") else { return };
    let sandbox = Sandbox::new();
    let (greedy, _) = run(&sandbox, &model, &["generate.max_tokens=12", "replay.limit=3"]);
    for row in &greedy.rows {
        let truncated = row.llm_status == LlmStatus::Truncated && row.completion_tokens == Some(12);
        assert!(truncated || row.completion_tokens.unwrap() < 12, "{row:?}");
    }
    assert!(greedy.rows.iter().any(|r| r.llm_status == LlmStatus::Truncated));
    let drawn = |seed: &str| {
        let sets = ["generate.max_tokens=12", "replay.limit=3", "generate.temperature=1.0", seed, "generate.cache="];
        let (run, _) = run(&sandbox, &model, &sets);
        run.rows.into_iter().map(|r| (r.query_id, r.raw_response)).collect::<BTreeMap<_, _>>()
    };
    let first = drawn("seed=1");
    assert!(first != drawn("seed=2"));
    // The same seed draws the same, in another folder.
    std::fs::remove_dir_all(sandbox.path().join("out")).unwrap();
    assert_eq!(first, drawn("seed=1"));

    // A prompt that is too long is one row that says so, and with a budget it fits. The model holds 4,096 tokens.
    let system = "Read with care. ".repeat(1100);
    let prompt = |system: &str| {
        format!(
            "system = {system:?}\nuser = \"{{passages}}{{scaffold}}{{question}}\"\npassage = \"{{text}}\\n\"\nscaffold = \"{{summary}}\"\n"
        )
    };
    sandbox.write("long.toml", prompt(&system));
    let (long, log) = run(&sandbox, &model, &["generate.prompt=long.toml", "replay.limit=1", "generate.max_tokens=4"]);
    assert_eq!(long.rows[0].llm_status, LlmStatus::Error);
    assert!(log.contains("1 calls got no answer (refused 1)"), "{log}");
}

/// What llama.cpp's server (xllamacpp 2026, one thread) said to the demo's first questions from the same file, greedily, asked through this
/// program with `generate.kind = "api"` and at most 24 tokens.
#[test]
fn llama_answers_as_llama_cpp_does() {
    const REFERENCE: [(&str, u32, &str); 3] = [
        ("demo-001", 374, "The designer of Gannet Head Light was Tobias Marchbank. He was born in 1874 and"),
        (
            "demo-002",
            378,
            "The Lamp Strike was lit first, not the Gannet Head Light. The Lamp Strike was a dispute over the pay",
        ),
        ("demo-003", 360, "To change the date of a Tidepass ticket, you need to use the Tidepass app. You can do"),
    ];
    let Some(model) = model("smollm2-135m") else { return };
    let sandbox = Sandbox::new();
    let (run, _) = run(&sandbox, &model, &["generate.max_tokens=24", "replay.limit=3"]);
    let mut same = 0;
    for (row, (id, prompt_tokens, text)) in run.rows.iter().zip(REFERENCE) {
        assert_eq!((row.query_id.as_str(), row.prompt_tokens), (id, Some(prompt_tokens)));
        same += usize::from(first_words(&row.raw_response, 5) == first_words(text, 5));
    }
    assert!(
        same >= 2,
        "{same} of 3 begin like llama.cpp's: {:?}",
        run.rows.iter().map(|r| &r.raw_response).collect::<Vec<_>>()
    );
}

#[test]
fn a_file_that_is_no_model_is_named() {
    let sandbox = Sandbox::new();
    sandbox.write("x.gguf", "no model");
    let (config, data) = (repository().join("configs/demo.toml"), repository().join("data/demo"));
    let data = format!("dataset.path={}", data.display());
    let sets = ["--set", &data, "--set", "generate.kind=gguf", "--set", "generate.model=x.gguf"];
    let out = sandbox.run(&[&["run", config.to_str().unwrap()], &sets[..]].concat());
    assert!(out.starts_with("exit code: 2") && out.contains("the model file x.gguf cannot be used"), "{out}");
}
