//! Vectors of many texts, with the time they took: to hold the encoders against other implementations.
//!
//! In: a model folder or hub id, a file of JSON strings (one a line), and a file to write. Out: the vectors as raw little-endian `f32`, row
//! by row, and a line with texts and tokens a second on standard output. `scripts/bench_encoders.py` drives it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program of its own")]

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use livingrag::encode::{Embedder, EncodeDevice, Precision, locate};
use livingrag::{Error, Result};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, texts, out, rest @ ..] = args.as_slice() else {
        eprintln!("usage: encode_texts MODEL TEXTS.jsonl OUT.f32 [bf16]");
        return ExitCode::from(2);
    };
    let precision = if rest.first().is_some_and(|p| p == "bf16") { Precision::Bf16 } else { Precision::F32 };
    match run(model, Path::new(texts), Path::new(out), precision) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}", error.report());
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(model: &str, texts: &Path, out: &Path, precision: Precision) -> Result<String> {
    let text = std::fs::read_to_string(texts).map_err(|e| Error::io("read", texts, e))?;
    let texts: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str(line).map_err(|e| Error::request("a line is no JSON string").with_source(e)))
        .collect::<Result<_>>()?;
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let start = Instant::now();
    let model = Embedder::load(&locate(model)?, &EncodeDevice::cpu(), precision)?;
    let loaded = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let embedded = model.embed(&texts, &mut |_| {})?;
    let took = start.elapsed().as_secs_f64();
    let bytes: Vec<u8> = embedded.vectors.iter().flat_map(|v| v.to_le_bytes()).collect();
    std::fs::write(out, bytes).map_err(|e| Error::io("write", out, e))?;
    Ok(format!(
        "{} texts, {} tokens, {} cut, loaded in {loaded:.2} s, {took:.2} s: {:.2} texts/s, {:.0} tokens/s",
        texts.len(),
        embedded.tokens,
        embedded.cut.iter().filter(|cut| **cut).count(),
        texts.len() as f64 / took,
        embedded.tokens as f64 / took
    ))
}
