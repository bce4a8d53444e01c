//! Encoders on real weights, where they lie: the small NLI model of `../shared` (or `LIVINGRAG_SHARED`), and all-MiniLM-L6-v2 and
//! all-mpnet-base-v2 below the folder that `LIVINGRAG_MODELS` names.

#![cfg(feature = "encoders")]
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::path::PathBuf;

use livingrag::encode::{CrossEncoder, EncodeDevice, ModelFolder, Precision};
use serde_json::Value;

fn shared(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("LIVINGRAG_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let path = root.join(name);
    if !path.exists() {
        eprintln!("skipped: there is no {}", path.display());
        return None;
    }
    Some(path)
}

fn json_lines(path: PathBuf) -> Vec<Value> {
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The logits were recorded with Hugging Face transformers 4.57 in fp32, one pair at a time; they come with the model.
#[test]
fn the_small_nli_model_gives_the_recorded_logits() {
    let Some(model) = shared("models/nli-minilm-l6") else { return };
    let Some(data) = shared("data/nli") else { return };
    let expected = json_lines(model.join("expected_logits.jsonl"));
    let folder = ModelFolder::open(&model).unwrap();
    let model = CrossEncoder::load(&folder, &EncodeDevice::cpu(), Precision::F32).unwrap();
    let mut worst: f64 = 0.0;
    for set in ["mnli_matched_1000", "snli_test_1000"] {
        let rows = json_lines(data.join(format!("{set}.jsonl")));
        let expected: Vec<&Value> = expected.iter().filter(|e| e["set"] == set).collect();
        assert_eq!(expected.len(), 50);
        let pairs: Vec<(&str, &str)> = expected
            .iter()
            .map(|e| &rows[e["row"].as_u64().unwrap() as usize])
            .map(|row| (row["premise"].as_str().unwrap(), row["hypothesis"].as_str().unwrap()))
            .collect();
        let scores = model.score(&pairs, &mut |_| {}).unwrap();
        for (i, expected) in expected.iter().enumerate() {
            let logits = expected["logits"].as_array().unwrap();
            for (ours, theirs) in scores.row(i).iter().zip(logits) {
                worst = worst.max((f64::from(*ours) - theirs.as_f64().unwrap()).abs());
            }
        }
    }
    assert!(worst < 1e-3, "largest difference {worst}");
}
