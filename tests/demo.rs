//! The bundled demo, as a newcomer starts it: offline, whole, and with the figures that README.md prints.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::PathBuf;

use livingrag::generate::{Judgement, LlmStatus};
use livingrag::trace::reader::{Run, read_run};
use support::{Sandbox, repository};

/// Runs the demo with proxies that lead nowhere and without a key; what it printed.
fn demo(sandbox: &Sandbox, args: &[&str]) -> String {
    let mut command = sandbox.command(&[&["demo", "--out", "out"], args].concat());
    for proxy in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env(proxy, "http://127.0.0.1:9");
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Its runs, by method.
fn runs(sandbox: &Sandbox) -> Vec<Run> {
    let folders = std::fs::read_dir(sandbox.path().join("out")).unwrap().map(|e| e.unwrap().path());
    let mut folders: Vec<PathBuf> = folders.filter(|f| f.join("traces.parquet").is_file()).collect();
    folders.sort();
    folders.iter().map(|folder| read_run(folder, false).unwrap()).collect()
}

/// The block of README.md that shows what the demo prints; a line may end before the last columns.
fn promised() -> Vec<String> {
    let text = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let block = text.split("A part of what it prints:").nth(1).unwrap().split("```text\n").nth(1).unwrap();
    block.split("```").next().unwrap().lines().filter(|l| !l.is_empty()).map(str::to_owned).collect()
}

#[test]
fn recorded_answers_replay_offline_as_the_readme_says() {
    let sandbox = Sandbox::new();
    let said = demo(&sandbox, &["--quiet"]);
    let promised = promised();
    assert!(promised.len() > 8, "{promised:?}");
    for line in promised {
        let line = line.replace("results/demo/", "out/");
        assert!(
            said.lines().any(|l| l.starts_with(line.trim_end())),
            "README.md promises {line:?}, the demo printed\n{said}"
        );
    }
    let report = std::fs::read_to_string(sandbox.path().join("out/report/report.md")).unwrap();
    for text in
        ["recorded, not asked: ", "qwen2.5-coder-0.5b-instruct", "The recorded model is small", "\"max_tokens\":256"]
    {
        assert!(report.contains(text), "the report does not say {text:?}");
    }
    let runs = runs(&sandbox);
    assert_eq!(runs.iter().map(|r| r.head().method.as_str()).collect::<Vec<_>>(), ["linear", "living", "vanilla"]);
    for run in &runs {
        let manifest = run.manifest.as_ref().unwrap();
        assert!(!manifest.generator.simulated && manifest.generator.name == "recorded" && run.rows.len() == 64);
        assert!(run.rows.iter().all(|r| r.llm_status == LlmStatus::Ok && !r.tokens_estimated && r.cost_usd.is_none()));
        let judged = |judgement| run.rows.iter().any(|r| r.judge == judgement);
        assert!(judged(Judgement::Correct) && judged(Judgement::Incorrect) && judged(Judgement::Unscored));
    }
    // Once more is the same, and leaves the runs as they are.
    assert_eq!(demo(&sandbox, &["--quiet"]), said);
    assert_eq!(runs.len(), self::runs(&sandbox).len());
}

#[test]
fn the_simulated_reader_is_still_there() {
    let sandbox = Sandbox::new();
    let said = demo(&sandbox, &["--simulated"]);
    assert!(said.ends_with("report: out/report/report.md\n"), "{said}");
    assert!(runs(&sandbox).iter().all(|run| run.manifest.as_ref().unwrap().generator.simulated));
    let report = std::fs::read_to_string(sandbox.path().join("out/report/report.md")).unwrap();
    assert!(report.contains("**Simulated reader** in 3 of 3 runs") && !report.contains("recorded, not asked"));
}
