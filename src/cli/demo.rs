//! `livingrag demo`: the bundled data through index, replay and report, with answers that a small chat model once gave.
//!
//! In: nothing but the repository's own files. Out: a results folder; the report's path as the last line.

use std::path::PathBuf;

use clap::Args;

use super::run::replay_all;
use super::{Global, check_out_folder, output, session};
use crate::config::{Method, RunConfig};
use crate::replay::{Opened, Parts, Run};
use crate::trace::atomic;
use crate::{Error, Result, report};

/// Runs the bundled demo offline: index, vanilla, linear and living, report
///
/// Answers and judgements were recorded from a small chat model and are replayed; nothing is asked. With --simulated a reader that looks at
/// the gold data takes its place, so that those numbers show that the machinery works and measure no model.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  livingrag demo --out results/demo\n  livingrag demo --simulated --out results/demo-simulated"
)]
pub struct DemoArgs {
    /// Where results go
    #[arg(long, value_name = "DIR", default_value = "results/demo")]
    pub out: PathBuf,
    /// Answers made from the gold data in place of recorded ones
    #[arg(long)]
    pub simulated: bool,
}

/// The bundled dataset, so that the demo needs nothing but the program.
const DATA: [(&str, &[u8]); 9] = [
    ("dataset.toml", include_bytes!("../../data/demo/dataset.toml")),
    ("demo.json", include_bytes!("../../data/demo/demo.json")),
    ("demo_corpus.json", include_bytes!("../../data/demo/demo_corpus.json")),
    ("annotations.jsonl", include_bytes!("../../data/demo/annotations.jsonl")),
    ("question_entities.jsonl", include_bytes!("../../data/demo/question_entities.jsonl")),
    ("embeddings/passages.parquet", include_bytes!("../../data/demo/embeddings/passages.parquet")),
    ("embeddings/sentences.parquet", include_bytes!("../../data/demo/embeddings/sentences.parquet")),
    ("embeddings/entities.parquet", include_bytes!("../../data/demo/embeddings/entities.parquet")),
    ("embeddings/questions.parquet", include_bytes!("../../data/demo/embeddings/questions.parquet")),
];
const MORE_DATA: [(&str, &[u8]); 4] = [
    ("embeddings/question_entities.parquet", include_bytes!("../../data/demo/embeddings/question_entities.parquet")),
    ("embeddings/templates.parquet", include_bytes!("../../data/demo/embeddings/templates.parquet")),
    (RECORDING, include_bytes!("../../data/demo/recorded.jsonl")),
    (JUDGE_PROMPT, include_bytes!("../../configs/prompts/judge-examples.toml")),
];
/// What the model said, below the data folder.
const RECORDING: &str = "recorded.jsonl";
/// How the judge was asked, below the data folder.
const JUDGE_PROMPT: &str = "judge-examples.toml";
/// The demo's settings.
const CONFIG: &str = include_str!("../../configs/demo.toml");
/// Those of its recording, over them.
const RECORDED: &str = include_str!("../../configs/demo-recorded.toml");
/// What must be known of the recorded model before any number.
const MODEL: &str = "The recorded model is small: Qwen2.5-Coder 0.5B Instruct, a GGUF file of four-bit weights, served by llama.cpp on a \
                     CPU at temperature 0, and made for code at that. It copies from its context rather than reasons, and as a judge \
                     it is no better than a coin, so go by contain-match. These numbers show what a run looks like, not what a method is worth.";

/// Runs the demo.
pub fn demo(args: &DemoArgs, global: &Global) -> Result<()> {
    check_out_folder(&args.out)?;
    let data = args.out.join("data");
    for (name, bytes) in DATA.iter().chain(&MORE_DATA) {
        let path = data.join(name);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
        }
        atomic::write(&path, bytes)?;
    }
    let mut layers = vec![("demo.toml", CONFIG)];
    layers.extend((!args.simulated).then_some(("demo-recorded.toml", RECORDED)));
    let mut paths = Vec::new();
    for (name, text) in layers {
        let path = args.out.join(name);
        atomic::write(&path, text.as_bytes())?;
        paths.push(path);
    }
    let mut config = RunConfig::load_layers(&paths, &global.with_threads(&[]))?;
    if !args.simulated {
        config.generate.model = data.join(RECORDING).display().to_string();
        config.judge.prompt = data.join(JUDGE_PROMPT);
    }
    config.dataset.path = data;
    let opened = session::open(&config, session::needs_templates(&config), &args.out, global)?;
    let mut parts = Parts::new(&config)?;
    if !args.simulated {
        parts.facts.push(MODEL.to_owned());
    }
    output::note(global.quiet, &format!("estimate: {}", opened.estimate(&config, &parts)?));
    let session = opened.session(&config)?;

    let (mut folders, mut runs) = (Vec::new(), Vec::new());
    for method in [Method::Vanilla, Method::Linear, Method::Living] {
        config.method = method;
        // The same demo again shows the same results, so a finished run is left as it is.
        match Run::open(&session, &config, parts.clone(), &args.out, true)? {
            Opened::Finished(folder) => folders.push(folder),
            Opened::Ready(run) => runs.push(*run),
        }
    }
    folders.extend(replay_all(&session, runs, global)?);
    let summary = report::build(&folders, &args.out.join("report"), &report::Options::default())?;
    output::data(&summary.stdout_text)?;
    let path = summary.files.first().map(|p| p.display().to_string()).unwrap_or_default();
    output::data(&format!("report: {path}"))
}
