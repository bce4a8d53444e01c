//! Checks the encoders on the first GPU and times a cross-encoder of DeBERTa's large shape: `gpu_encoders OUT.json`.
//!
//! In: `tests/cases/encoders` under the working folder, which must be the repository's root. Out: one JSON file and a Markdown table on
//! standard output; it fails where logits are not those of Hugging Face transformers. Times are wall times of whole calls, from texts to
//! scores, of 24 layers with random weights; operations are those of the matrix products, and shares are of a product of two
//! half-precision matrices of 8,192 on the same card in the same run. `scripts/gpu-check.sh` builds and runs it.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "a program of its own")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use candle_core::{DType, Tensor};
use livingrag::backend::cuda;
use livingrag::config::BackendKind;
use livingrag::encode::{CrossEncoder, EncodeDevice, ModelFolder, Precision};
use livingrag::math::encoder::relative_bucket;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, serialize_to_file};
use serde_json::{Value, json};

const CASES: &str = "tests/cases/encoders";
const LAYERS: usize = 24;
const HIDDEN: usize = 1024;
const HEADS: usize = 16;
const BUCKETS: usize = 256;
/// What a logit may differ in: sums in another order; halves rounded several times a layer.
const TOLERANCES: [(Precision, f64); 2] = [(Precision::F32, 1e-4), (Precision::F16, 2e-2)];

fn main() -> ExitCode {
    let Some(out) = std::env::args().nth(1) else {
        eprintln!("usage: gpu_encoders OUT.json");
        return ExitCode::from(2);
    };
    match run(Path::new(&out)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", error.report());
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(out: &Path) -> livingrag::Result<()> {
    let device = EncodeDevice::open(BackendKind::Cuda)?;
    println!("# Encoders: {}\n", device.description());
    let parity = parity(&device)?;
    println!("Largest difference of a logit from Hugging Face transformers, over the models of `{CASES}`:\n");
    println!("| model | f32 | f16 |\n| --- | --- | --- |");
    for (name, differences) in &parity {
        println!("| {name} | {:.1e} | {:.1e} |", differences[0], differences[1]);
    }
    let matrix = matrix_rate();
    println!("\nMatrix rate: {:.1} TFLOP/s (f16, 8,192 by 8,192).\n", matrix / 1e12);
    let folder = tempfile::tempdir().unwrap();
    write_large(folder.path());
    let folder = ModelFolder::open(folder.path())?;
    println!("DeBERTa-large's shape, random weights:\n");
    println!("| tokens a pair | pairs | precision | pairs/s | TFLOP/s | of the matrix rate | CPU f32, pairs/s |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let mut rows = Vec::new();
    let cpu = CrossEncoder::load(&folder, &EncodeDevice::cpu(), Precision::F32)?;
    for precision in [Precision::F16, Precision::F32] {
        let model = CrossEncoder::load(&folder, &device, precision)?;
        for tokens in [64usize, 128, 256, 512] {
            let count = 131_072 / tokens;
            let (rate, found) = pairs_a_second(&model, tokens, count)?;
            let operations = rate * operations(found);
            let beside = if precision == Precision::F16 { Some(pairs_a_second(&cpu, tokens, 8)?.0) } else { None };
            println!(
                "| {found} | {count} | {} | {rate:.0} | {:.1} | {:.0} % | {} |",
                precision.as_str(),
                operations / 1e12,
                100.0 * operations / matrix,
                beside.map_or(String::new(), |rate| format!("{rate:.2}")),
            );
            rows.push(
                json!({ "tokens": found, "pairs": count, "precision": precision.as_str(), "pairs_per_second": rate,
                "flop_per_second": operations, "of_matrix_rate": operations / matrix, "cpu_pairs_per_second": beside }),
            );
        }
    }
    let parity: BTreeMap<_, _> = parity.iter().map(|(name, d)| (name, json!({ "f32": d[0], "f16": d[1] }))).collect();
    let all =
        json!({ "device": device.description(), "matrix_flop_per_second": matrix, "parity": parity, "rows": rows });
    let text = serde_json::to_string_pretty(&all).unwrap();
    fs::write(out, text).map_err(|e| livingrag::Error::io("write", out, e))
}

/// The largest difference of each model's logits in single and half precision.
fn parity(device: &EncodeDevice) -> livingrag::Result<Vec<(String, [f64; 2])>> {
    let mut names: Vec<String> =
        fs::read_dir(CASES).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let mut out = Vec::new();
    for name in names {
        let folder = Path::new(CASES).join(&name);
        let Ok(text) = fs::read_to_string(folder.join("expected.json")) else { continue };
        let expected: Value = serde_json::from_str(&text).unwrap();
        // Sentence encoders have texts in place of pairs.
        let Some(rows) = expected["pairs"].as_array() else { continue };
        let pairs: Vec<(&str, &str)> =
            rows.iter().map(|r| (r["premise"].as_str().unwrap(), r["hypothesis"].as_str().unwrap())).collect();
        let mut differences = [0f64; 2];
        for ((precision, tolerance), difference) in TOLERANCES.into_iter().zip(&mut differences) {
            let scores =
                CrossEncoder::load(&ModelFolder::open(&folder)?, device, precision)?.score(&pairs, &mut |_| {})?;
            let expected = rows.iter().flat_map(|row| row["logits"].as_array().unwrap());
            for (found, expected) in scores.logits.iter().zip(expected) {
                *difference = difference.max((f64::from(*found) - expected.as_f64().unwrap()).abs());
            }
            // A maximum forgets what is not a number.
            if *difference >= tolerance || scores.logits.iter().any(|l| !l.is_finite()) {
                let what = format!("{name} in {}: a logit is off by {difference}", precision.as_str());
                return Err(livingrag::Error::work(what));
            }
        }
        out.push((name, differences));
    }
    Ok(out)
}

/// Operations a second of a half-precision product; best of ten.
fn matrix_rate() -> f64 {
    let n = 8192;
    let device = cuda::candle().unwrap();
    let matrix = || Tensor::randn(0f32, 1.0, (n, n), &device).unwrap().to_dtype(DType::F16).unwrap();
    let (a, b) = (matrix(), matrix());
    let product = || {
        let start = Instant::now();
        let c = a.matmul(&b).unwrap();
        device.synchronize().unwrap();
        drop(c);
        start.elapsed().as_secs_f64()
    };
    product();
    let best = (0..10).map(|_| product()).fold(f64::INFINITY, f64::min);
    2.0 * (n as f64).powi(3) / best
}

/// Rate of `count` pairs of about `tokens` tokens, and how many they have.
fn pairs_a_second(model: &CrossEncoder, tokens: usize, count: usize) -> livingrag::Result<(f64, usize)> {
    let premise = |words: usize| vec!["a"; words].join(" ");
    let counted =
        |words: usize| Ok::<_, livingrag::Error>(model.score(&[(&premise(words), "b")], &mut |_| {})?.tokens as usize);
    let (few, more) = (counted(1)?, counted(11)?);
    let text = premise(1 + tokens.saturating_sub(few) * 10 / (more - few).max(1));
    let pairs = vec![(text.as_str(), "b"); count];
    let mut best = f64::INFINITY;
    let mut found = 0;
    // The first run also fills caches of buffers and of algorithms.
    for _ in 0..2 {
        let start = Instant::now();
        found = model.score(&pairs, &mut |_| {})?.tokens as usize / count;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok((count as f64 / best, found))
}

/// Of a pair's matrix products: 12·H² multiplications a token and layer, and attention with the rows of the position tables it reaches.
fn operations(tokens: usize) -> f64 {
    let d = tokens as i64 - 1;
    let rows =
        (relative_bucket(d, BUCKETS, 512) - relative_bucket(-d, BUCKETS, 512) + 1).min(2 * BUCKETS as i64) as f64;
    let (n, h) = (tokens as f64, HIDDEN as f64);
    LAYERS as f64 * 2.0 * n * (12.0 * h * h + 2.0 * n * h + 2.0 * rows * h)
}

/// A model folder of the large shape: random weights in bfloat16, tokenizer and labels of a small case.
fn write_large(folder: &Path) {
    let small = Path::new(CASES).join("deberta_v3");
    fs::copy(small.join("tokenizer.json"), folder.join("tokenizer.json")).unwrap();
    fs::write(folder.join("tokenizer_config.json"), r#"{"model_max_length": 512}"#).unwrap();
    let mut config: Value = serde_json::from_str(&fs::read_to_string(small.join("config.json")).unwrap()).unwrap();
    for (key, value) in [
        ("hidden_size", HIDDEN),
        ("intermediate_size", 4 * HIDDEN),
        ("max_position_embeddings", 512),
        ("num_attention_heads", HEADS),
        ("num_hidden_layers", LAYERS),
        ("pooler_hidden_size", HIDDEN),
        ("position_buckets", BUCKETS),
    ] {
        config[key] = value.into();
    }
    let vocabulary = config["vocab_size"].as_u64().unwrap() as usize;
    fs::write(folder.join("config.json"), config.to_string()).unwrap();

    let mut shapes: Vec<(String, Vec<usize>)> = Vec::new();
    let mut linear = |name: String, out: usize, inputs: usize| {
        shapes.push((format!("{name}.weight"), vec![out, inputs]));
        shapes.push((format!("{name}.bias"), vec![out]));
    };
    for i in 0..LAYERS {
        let layer = format!("deberta.encoder.layer.{i}");
        for part in ["query_proj", "key_proj", "value_proj"] {
            linear(format!("{layer}.attention.self.{part}"), HIDDEN, HIDDEN);
        }
        linear(format!("{layer}.attention.output.dense"), HIDDEN, HIDDEN);
        linear(format!("{layer}.intermediate.dense"), 4 * HIDDEN, HIDDEN);
        linear(format!("{layer}.output.dense"), HIDDEN, 4 * HIDDEN);
    }
    linear("pooler.dense".to_owned(), HIDDEN, HIDDEN);
    linear("classifier".to_owned(), 3, HIDDEN);
    shapes.push(("deberta.embeddings.word_embeddings.weight".to_owned(), vec![vocabulary, HIDDEN]));
    shapes.push(("deberta.encoder.rel_embeddings.weight".to_owned(), vec![2 * BUCKETS, HIDDEN]));
    let norms = (0..LAYERS)
        .flat_map(|i| ["attention.output", "output"].map(|p| format!("deberta.encoder.layer.{i}.{p}.LayerNorm")));
    for norm in norms.chain(["deberta.embeddings.LayerNorm".to_owned(), "deberta.encoder.LayerNorm".to_owned()]) {
        shapes.push((format!("{norm}.weight"), vec![HIDDEN]));
        shapes.push((format!("{norm}.bias"), vec![HIDDEN]));
    }
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let numbers: Vec<Vec<u8>> = shapes
        .iter()
        .map(|(name, shape)| {
            let (middle, spread) = if name.ends_with("LayerNorm.weight") { (1.0, 0.1) } else { (0.0, 0.05) };
            let mut bytes = Vec::with_capacity(2 * shape.iter().product::<usize>());
            for _ in 0..shape.iter().product::<usize>() {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let unit = (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0;
                // A bfloat16 is the upper half of a single.
                bytes.extend_from_slice(&((middle + spread * unit).to_bits() >> 16).to_le_bytes()[..2]);
            }
            bytes
        })
        .collect();
    let views = shapes
        .iter()
        .zip(&numbers)
        .map(|((name, shape), bytes)| (name.as_str(), TensorView::new(Dtype::BF16, shape.clone(), bytes).unwrap()));
    serialize_to_file(views, None, &folder.join("model.safetensors")).unwrap();
}
