//! `livingrag nli`: how good an NLI model is, and how fast here.
//!
//! In: labelled pairs as JSON lines {premise, hypothesis, label}, and a model. Out: accuracy, confusion and speed on standard output,
//! and on request the logits as a file of JSON lines.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};
use serde::Deserialize;

use super::progress::Progress;
use super::{Global, output};
use crate::config::BackendKind;
use crate::encode::{self, CrossEncoder, EncodeDevice, Labels, PairScores, Precision};
use crate::trace::atomic;
use crate::{Error, Result};

/// Tries NLI models, the cross-encoders that ground claims
#[derive(Debug, Args)]
pub struct NliArgs {
    #[command(subcommand)]
    command: NliCommand,
}

#[derive(Debug, Subcommand)]
enum NliCommand {
    Eval(EvalArgs),
}

/// Accuracy, confusion and speed of an NLI model on labelled pairs
///
/// The file holds JSON lines {premise, hypothesis, label}; a label is one of the model's class names, or "-" for a pair without one.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  livingrag nli eval pairs.jsonl --model cross-encoder/nli-deberta-v3-large --limit 200"
)]
pub struct EvalArgs {
    /// The labelled pairs
    #[arg(value_name = "FILE.jsonl")]
    pub file: PathBuf,
    /// A model folder, or a hub id
    #[arg(long, value_name = "NAME")]
    pub model: String,
    /// Only the first pairs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Precision of the products; sums are single precision always
    #[arg(long, value_enum, default_value = "auto", value_name = "TYPE")]
    pub precision: PrecisionArg,
    /// Where to run
    #[arg(long, value_enum, default_value = "auto", value_name = "DEVICE")]
    pub device: DeviceArg,
    /// Also writes each pair's logits to this file; it must not be there
    #[arg(long, value_name = "FILE.jsonl")]
    pub logits: Option<PathBuf>,
}

/// [`Precision`] on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum PrecisionArg {
    /// f32 on the CPU, f16 on a GPU
    Auto,
    /// Single precision
    F32,
    /// Weights and inputs rounded to bfloat16; for CPUs
    Bf16,
    /// Half precision; for GPUs
    F16,
}

/// [`BackendKind`] on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum DeviceArg {
    /// The best there is
    Auto,
    /// The processor
    Cpu,
    /// A GPU
    Cuda,
}

/// Runs the subcommand.
pub fn nli(args: &NliArgs, global: &Global) -> Result<()> {
    match &args.command {
        NliCommand::Eval(args) => eval(args, global),
    }
}

/// A pair, and the index of its label among the model's classes.
struct Pair {
    premise: String,
    hypothesis: String,
    label: Option<usize>,
}

fn eval(args: &EvalArgs, global: &Global) -> Result<()> {
    if let Some(out) = &args.logits {
        check_new_file(out)?;
    }
    let lines = read_lines(&args.file)?;
    if let Some(threads) = global.threads {
        // Fails only where the pool is there already, with the same number.
        let _ = rayon::ThreadPoolBuilder::new().num_threads(threads as usize).build_global();
    }
    let kind = match args.device {
        DeviceArg::Auto => BackendKind::Auto,
        DeviceArg::Cpu => BackendKind::Cpu,
        DeviceArg::Cuda => BackendKind::Cuda,
    };
    let device = EncodeDevice::open(kind)?;
    let precision = match args.precision {
        PrecisionArg::Auto => device.usual_precision(),
        PrecisionArg::F32 => Precision::F32,
        PrecisionArg::Bf16 => Precision::Bf16,
        PrecisionArg::F16 => Precision::F16,
    };
    device.check(precision)?;
    let folder = encode::locate(&args.model)?;
    let model = CrossEncoder::load(&folder, &device, precision)?;
    let pairs = labelled(&args.file, &lines, model.labels(), args.limit)?;
    let texts: Vec<(&str, &str)> = pairs.iter().map(|p| (p.premise.as_str(), p.hypothesis.as_str())).collect();
    let bar = Progress::new("nli eval", texts.len() as u64, global.quiet);
    let start = Instant::now();
    let scores = model.score(&texts, &mut |done| bar.set(done as u64))?;
    let took = start.elapsed();
    bar.finish();
    if let Some(out) = &args.logits {
        write_logits(out, &scores, pairs.len())?;
    }
    let mut head = String::new();
    for (name, fact) in [
        ("model", model.name()),
        ("fingerprint", model.fingerprint()),
        ("device", &device.description()),
        ("precision", precision.as_str()),
        ("file", &args.file.display().to_string()),
    ] {
        let _ = writeln!(head, "{name:<14} {fact}");
    }
    output::data(&format!("{head}{}", report(&pairs, &scores, model.labels(), took)))
}

/// Refuses a file that is there, or whose folder is not, before the work is done for it.
fn check_new_file(out: &Path) -> Result<()> {
    if out.exists() {
        return Err(Error::request(format!("--logits {} exists already", out.display()))
            .with_hint("remove it or choose another file"));
    }
    match out.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        Some(folder) => {
            Err(Error::request(format!("--logits {}: there is no folder {}", out.display(), folder.display()))
                .with_hint("make the folder first, or choose another file"))
        }
        None => Ok(()),
    }
}

#[derive(Deserialize)]
struct Line {
    premise: String,
    hypothesis: String,
    label: String,
}

/// The lines that are not blank, with their numbers.
fn read_lines(path: &Path) -> Result<Vec<(usize, Line)>> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    let text = text.trim_start_matches('\u{feff}');
    let mut lines = Vec::new();
    for (n, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let line = serde_json::from_str(line).map_err(|e| {
            // serde_json counts lines from the start of what it was given, which is this line.
            let text = e.to_string();
            let what = text.split(" at line ").next().unwrap_or_default();
            Error::request(format!("{}, line {n} is no pair: {what}", path.display()))
                .with_hint("expected {\"premise\": \"…\", \"hypothesis\": \"…\", \"label\": \"…\"} a line")
        })?;
        lines.push((n, line));
    }
    if lines.is_empty() {
        return Err(Error::request(format!("{} holds no pair", path.display()))
            .with_hint("expected {\"premise\": \"…\", \"hypothesis\": \"…\", \"label\": \"…\"} a line"));
    }
    Ok(lines)
}

fn labelled(path: &Path, lines: &[(usize, Line)], labels: &Labels, limit: Option<u32>) -> Result<Vec<Pair>> {
    let take = limit.map_or(usize::MAX, |n| n as usize);
    lines
        .iter()
        .take(take)
        .map(|(n, line)| {
            let label = labels.names.iter().position(|name| name.eq_ignore_ascii_case(line.label.trim()));
            if label.is_none() && line.label.trim() != "-" {
                return Err(Error::request(format!("{}, line {n}: label = {:?}", path.display(), line.label))
                    .with_hint(format!("the model's classes are {}; \"-\" stands for none", labels.names.join(", "))));
            }
            Ok(Pair { premise: line.premise.clone(), hypothesis: line.hypothesis.clone(), label })
        })
        .collect()
}

/// Index of the highest logit; of equal ones the first.
fn argmax(logits: &[f32]) -> usize {
    (0..logits.len()).fold(0, |best, i| if logits[i] > logits[best] { i } else { best })
}

/// A line a pair, in the order of the file: `{"row": 0, "logits": […]}`.
fn write_logits(path: &Path, scores: &PairScores, pairs: usize) -> Result<()> {
    atomic::write_with(path, |mut file| {
        let mut text = String::new();
        for row in 0..pairs {
            let line = serde_json::json!({"row": row, "logits": scores.row(row)});
            let _ = writeln!(text, "{line}");
        }
        file.write_all(text.as_bytes()).map_err(|e| Error::io("write", path, e))
    })
}

/// Accuracy, confusion, what was cut, and speed.
fn report(pairs: &[Pair], scores: &PairScores, labels: &Labels, took: Duration) -> String {
    let classes = labels.names.len();
    let mut confusion = vec![vec![0usize; classes]; classes];
    for (i, pair) in pairs.iter().enumerate() {
        if let Some(label) = pair.label {
            confusion[label][argmax(scores.row(i))] += 1;
        }
    }
    let right: usize = (0..classes).map(|c| confusion[c][c]).sum();
    let judged: usize = confusion.iter().flatten().sum();
    let share =
        |n: usize, of: usize| if of == 0 { "-".to_owned() } else { format!("{:.1} %", 100.0 * n as f64 / of as f64) };
    let count = |cut: &[bool]| {
        let n = cut.iter().filter(|c| **c).count();
        format!("{n} ({})", share(n, cut.len()))
    };
    let seconds = took.as_secs_f64().max(1e-9);
    let mut out = String::new();
    for (name, fact) in [
        ("pairs", pairs.len().to_string()),
        ("without label", (pairs.len() - judged).to_string()),
        ("accuracy", format!("{} ({right} of {judged})", share(right, judged))),
        ("premises cut", count(&scores.cut)),
        ("hypotheses cut", count(&scores.hypothesis_cut)),
        ("tokens", scores.tokens.to_string()),
        ("seconds", format!("{seconds:.2}")),
        ("pairs/s", format!("{:.2}", pairs.len() as f64 / seconds)),
        ("tokens/s", format!("{:.0}", scores.tokens as f64 / seconds)),
    ] {
        let _ = writeln!(out, "{name:<14} {fact}");
    }
    let width = labels.names.iter().map(String::len).max().unwrap_or(0).max(9);
    let _ = write!(out, "\n{:<width$}", "label");
    for name in &labels.names {
        let _ = write!(out, "  {name:>width$}");
    }
    let _ = write!(out, "  {:>9}", "right");
    for (name, row) in labels.names.iter().zip(&confusion) {
        let _ = write!(out, "\n{name:<width$}");
        for n in row {
            let _ = write!(out, "  {n:>width$}");
        }
        let own = labels.names.iter().position(|n| n == name).map_or(0, |c| row[c]);
        let _ = write!(out, "  {:>9}", share(own, row.iter().sum()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accuracy_and_confusion_by_hand() {
        let labels = Labels {
            names: ["contradiction", "entailment", "neutral"].map(str::to_owned).to_vec(),
            contradiction: 0,
            entailment: 1,
            neutral: Some(2),
        };
        let pair = |label| Pair { premise: String::new(), hypothesis: String::new(), label };
        let pairs = [pair(Some(0)), pair(Some(1)), pair(Some(1)), pair(None)];
        // Predicted: contradiction, entailment, the first of two equal ones, neutral.
        let scores = PairScores {
            logits: vec![2.0, 1.0, 0.0, -1.0, 3.0, 0.0, 0.5, 0.0, 0.5, 0.0, 0.0, 1.0],
            cut: vec![false, true, false, false],
            hypothesis_cut: vec![false; 4],
            tokens: 40,
        };
        let text = report(&pairs, &scores, &labels, Duration::from_secs(2));
        for line in [
            "without label  1",
            "accuracy       66.7 % (2 of 3)",
            "premises cut   1 (25.0 %)",
            "pairs/s        2.00",
            "tokens/s       20",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} not in\n{text}");
        }
        let rows: Vec<Vec<&str>> = text.lines().rev().take(3).map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(rows[2], ["contradiction", "1", "0", "0", "100.0", "%"]);
        assert_eq!(rows[1], ["entailment", "1", "1", "0", "50.0", "%"]);
        assert_eq!(rows[0], ["neutral", "0", "0", "0", "-"]);
    }
}
