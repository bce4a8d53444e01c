//! Wrong requests: each gives one clear error, exit code 2, and leaves nothing behind.
//!
//! Snapshots hold exit code and both streams; refresh them with `INSTA_UPDATE=always cargo test --test cli_errors`.

#![allow(clippy::unwrap_used)]

mod support;

use insta::assert_snapshot;
use support::{Sandbox, repository};

/// A run configuration that needs nothing but a dataset.
const PLAIN: &str = "method = \"linear\"\n[dataset]\npath = \"data\"\n";

/// Runs with `run.toml` holding `text`, and checks that the request was refused without a trace.
fn refused(text: &str, args: &[&str]) -> String {
    let sandbox = Sandbox::new();
    sandbox.write("run.toml", text);
    let out = sandbox.run(args);
    assert!(out.starts_with("exit code: 2\n----- stdout -----\n----- stderr -----\n"), "{out}");
    assert_eq!(sandbox.files(), ["run.toml"], "something was left behind");
    out
}

#[test]
fn unknown_command() {
    assert_snapshot!(refused("", &["reprot", "run.toml"]));
}

#[test]
fn no_command_shows_the_help() {
    let out = Sandbox::new().run(&[]);
    assert!(out.starts_with("exit code: 2\n") && out.contains("Usage: livingrag"), "{out}");
}

#[test]
fn unknown_option() {
    assert_snapshot!(refused(PLAIN, &["run", "run.toml", "--resum"]));
}

#[test]
fn unknown_key_in_a_file() {
    assert_snapshot!(refused("[retrieve]\n\ntopk = 3\n", &["run", "run.toml"]));
}

#[test]
fn syntax_error_in_a_file() {
    assert_snapshot!(refused("method = living\n", &["run", "run.toml"]));
}

#[test]
fn wrong_type_in_a_file() {
    assert_snapshot!(refused("[replay]\nlag = \"sixteen\"\n", &["run", "run.toml"]));
}

#[test]
fn value_out_of_range_in_a_file() {
    assert_snapshot!(refused("[experience]\nalpha = 1.5\n", &["run", "run.toml"]));
}

#[test]
fn missing_configuration() {
    assert_snapshot!(refused("", &["run", "ruN.toml"]));
}

#[test]
fn folder_for_a_configuration() {
    assert_snapshot!(refused("", &["run", "."]));
}

#[test]
fn unknown_key_in_a_set() {
    assert_snapshot!(refused(PLAIN, &["run", "run.toml", "--set", "gates.tau_nvel=0.5"]));
}

#[test]
fn set_of_a_section() {
    assert_snapshot!(refused(PLAIN, &["run", "run.toml", "--set", "gates=0.5"]));
}

#[test]
fn set_without_a_value() {
    assert_snapshot!(refused(PLAIN, &["run", "run.toml", "--set", "seed"]));
}

#[test]
fn wrong_word_in_a_set() {
    assert_snapshot!(refused(PLAIN, &["run", "run.toml", "--set", "retrieve.propagation=dfs"]));
}

#[test]
fn block_longer_than_the_lag() {
    assert_snapshot!(refused(PLAIN, &["run", "run.toml", "--set", "replay.block=4", "--set", "replay.lag=2"]));
}

#[test]
fn reader_that_is_not_built() {
    assert_snapshot!(refused(PLAIN, &["run", "run.toml", "--set", "generate.kind=gguf"]));
}

#[test]
fn endpoint_without_an_address() {
    assert_snapshot!(refused(PLAIN, &["run", "run.toml", "--set", "generate.kind=api"]));
}

#[test]
fn key_in_place_of_its_variable() {
    assert_snapshot!(refused(PLAIN, &["run", "run.toml", "--set", "generate.api_key_env=sk-secret"]));
}

#[test]
fn backend_that_is_not_built() {
    if livingrag::backend::cuda::BUILT {
        return;
    }
    assert_snapshot!(refused(PLAIN, &["run", "run.toml", "--set", "backend.kind=cuda"]));
}

#[test]
fn no_dataset() {
    assert_snapshot!(refused("method = \"linear\"\n", &["run", "run.toml"]));
}

#[test]
fn index_takes_index_keys_only() {
    assert_snapshot!(refused("", &["index", "data", "--set", "retrieve.top_k=3"]));
}

#[test]
fn unknown_table() {
    assert_snapshot!(refused("", &["report", "results", "--tables", "2,99"]));
}

#[test]
fn too_many_threads() {
    assert_snapshot!(refused("", &["doctor", "--threads", "4000"]));
}

#[test]
fn a_key_that_changes_nothing_in_retrieval() {
    let sandbox = Sandbox::new();
    let args = ["retrieve", "--index", "i", "--out", "o.parquet", "--set", "index.adjacent_passages=none"];
    assert_snapshot!(sandbox.run(&args));
}

#[test]
fn help_of_every_command() {
    let sandbox = Sandbox::new();
    assert_snapshot!("help", sandbox.run(&["--help"]));
    for command in [
        "demo", "index", "retrieve", "run", "sweep", "status", "report", "rescore", "compare", "cache", "dataset",
        "doctor",
    ] {
        assert_snapshot!(format!("help_{command}"), sandbox.run(&[command, "--help"]));
    }
    for command in ["stats", "export", "import", "prune"] {
        assert_snapshot!(format!("help_cache_{command}"), sandbox.run(&["cache", command, "--help"]));
    }
    for command in ["inspect", "texts"] {
        assert_snapshot!(format!("help_dataset_{command}"), sandbox.run(&["dataset", command, "--help"]));
    }
}

#[test]
fn doctor_says_what_is_there() {
    let out = Sandbox::new().run(&["doctor", "--threads", "2"]);
    assert!(out.starts_with("exit code: 0\n"), "{out}");
    let cuda = if livingrag::backend::cuda::BUILT { ", cuda\n" } else { "backend cuda  not built in\n" };
    for fact in ["livingrag     [VERSION]\n", cuda, "threads       2\n"] {
        assert!(out.contains(fact), "{out}");
    }
}

/// A reader such as `head` closes the pipe before everything is written.
#[test]
fn a_closed_pipe_is_no_failure() {
    let sandbox = Sandbox::new();
    for args in [["doctor", "--quiet"], ["run", "--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = sandbox.command(&args).stdout(writer).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    }
}

#[test]
fn committed_configurations_are_read() {
    let sandbox = Sandbox::new();
    let config = repository().join("configs/gate-only.toml");
    let out = sandbox.run(&["run", config.to_str().unwrap()]);
    assert!(out.contains("error: dataset.path is not set"), "{out}");
}
