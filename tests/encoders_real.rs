//! Encoders on real weights, where they lie: the small NLI model of `../shared` (or `LIVINGRAG_SHARED`), and all-MiniLM-L6-v2 and
//! all-mpnet-base-v2 below the folder that `LIVINGRAG_MODELS` names.

#![cfg(feature = "encoders")]
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::path::PathBuf;

use livingrag::encode::{CrossEncoder, Embedder, EncodeDevice, ModelFolder, Precision};
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

/// 20 texts of ours, odd ones among them, as sentence-transformers embeds them: `scripts/make_encoder_cases.py … real`.
#[test]
fn sentence_encoders_give_the_recorded_vectors() {
    let Some(models) = std::env::var_os("LIVINGRAG_MODELS").map(PathBuf::from) else {
        eprintln!("skipped: LIVINGRAG_MODELS names no folder");
        return;
    };
    let cases = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases/encoders/real");
    let texts: Value = serde_json::from_str(&std::fs::read_to_string(cases.join("texts.json")).unwrap()).unwrap();
    let counts = &texts["tokens"];
    let texts: Vec<&str> = texts["texts"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
    let bytes = std::fs::read(cases.join("vectors.safetensors")).unwrap();
    let recorded = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    for (name, limit) in [("all-MiniLM-L6-v2", 256), ("all-mpnet-base-v2", 384)] {
        let folder = ModelFolder::open(&models.join(name)).unwrap();
        let model = Embedder::load(&folder, &EncodeDevice::cpu(), Precision::F32).unwrap();
        assert_eq!(model.max_tokens() as u64, limit);
        let embedded = model.embed(&texts, &mut |_| {}).unwrap();
        let cut: Vec<bool> = counts[name].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() > limit).collect();
        assert_eq!(embedded.cut, cut, "{name}");
        assert!(cut.contains(&true) && cut.contains(&false));
        let view = recorded.tensor(name).unwrap();
        assert_eq!(view.shape(), [texts.len(), model.dim()]);
        let expected: Vec<f64> =
            view.data().as_chunks::<2>().0.iter().map(|b| half_to_f64(u16::from_le_bytes(*b))).collect();
        for ((text, ours), theirs) in
            texts.iter().zip(embedded.vectors.chunks_exact(model.dim())).zip(expected.chunks_exact(model.dim()))
        {
            let dot: f64 = ours.iter().zip(theirs).map(|(a, b)| f64::from(*a) * b).sum();
            let norm = theirs.iter().map(|v| v * v).sum::<f64>().sqrt();
            assert!(dot / norm > 0.99999, "{name}, {:.40}: {}", text, dot / norm);
        }
    }
}

/// IEEE half precision; the recorded vectors have neither infinities nor NaN.
fn half_to_f64(bits: u16) -> f64 {
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023) / 1024.0);
    sign * if exponent == 0 { fraction * 2f64.powi(-14) } else { (1.0 + fraction) * 2f64.powi(exponent - 15) }
}

/// The tokenizer of DeBERTa-v3 on the published examples, where a folder of such a model is to be had.
#[test]
fn the_deberta_v3_tokenizer_splits_as_published() {
    let Some(vectors) = shared("data/nli/deberta_v3_tokenizer_vectors.json") else { return };
    let folders = std::env::var_os("LIVINGRAG_MODELS").and_then(|models| std::fs::read_dir(models).ok());
    let found = folders
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.to_string_lossy().contains("deberta-v3") && path.join("tokenizer.json").is_file());
    let Some(folder) = found else {
        eprintln!("skipped: there is no deberta-v3 folder with a tokenizer.json in LIVINGRAG_MODELS");
        return;
    };
    let mut tokenizer = tokenizers::Tokenizer::from_file(folder.join("tokenizer.json")).unwrap();
    tokenizer.with_padding(None).with_truncation(None).unwrap();
    let vectors: Value = serde_json::from_str(&std::fs::read_to_string(vectors).unwrap()).unwrap();
    for case in vectors.as_object().unwrap().values().flat_map(|cases| cases.as_object().unwrap().values()) {
        let text = case["text"].as_str().unwrap();
        let expected: Vec<u64> = case["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
        let ids: Vec<u64> = tokenizer.encode(text, true).unwrap().get_ids().iter().map(|id| u64::from(*id)).collect();
        assert_eq!(ids, expected, "{text:?}");
    }
}
