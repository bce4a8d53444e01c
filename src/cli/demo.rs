//! `livingrag demo`: the bundled data through index, `linear` and `living`, and a report.
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

/// Runs the bundled demo offline: index, linear and living, report
///
/// The reader is simulated, so the numbers show that the machinery works, not how good a method is.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  livingrag demo --out results/demo")]
pub struct DemoArgs {
    /// Where results go
    #[arg(long, value_name = "DIR", default_value = "results/demo")]
    pub out: PathBuf,
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
const MORE_DATA: [(&str, &[u8]); 2] = [
    ("embeddings/question_entities.parquet", include_bytes!("../../data/demo/embeddings/question_entities.parquet")),
    ("embeddings/templates.parquet", include_bytes!("../../data/demo/embeddings/templates.parquet")),
];
/// The demo's settings.
const CONFIG: &str = include_str!("../../configs/demo.toml");

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
    let config_path = args.out.join("demo.toml");
    atomic::write(&config_path, CONFIG.as_bytes())?;
    let sets = global.with_threads(&[]);
    let mut config = RunConfig::load(&config_path, &sets)?;
    config.dataset.path = data;
    let opened = session::open(&config, session::needs_templates(&config), &args.out, global)?;
    let parts = Parts::new(&config)?;
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
