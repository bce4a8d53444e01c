//! Tests of whole models: logits and vectors that Hugging Face transformers and sentence-transformers give for small random models and
//! for DeBERTa in base and large shape.
//!
//! In: `tests/cases/encoders/`, made by `scripts/make_encoder_cases.py`, which names the versions. The large shapes' weights are not
//! kept: they come from a formula that the script and [`formula`] share.

use std::path::PathBuf;

use serde_json::Value;

use super::batch::Batch;
use super::config::ModelConfig;
use super::cross::{Head, classify};
use super::tokenize::Encoded;
use super::weights::{Scope, Weights};
use super::*;

const CLASSIFIERS: [&str; 13] = [
    "bert",
    "deberta_absolute",
    "deberta_c2p",
    "deberta_conv",
    "deberta_conv_tanh",
    "deberta_no_buckets",
    "deberta_no_terms",
    "deberta_own_projections",
    "deberta_p2c",
    "deberta_v3",
    "mpnet",
    "roberta",
    "xlm_roberta",
];

const SENTENCE_ENCODERS: [&str; 3] = ["bert_cls", "bert_mean", "mpnet_mean"];

/// Where the cases lie.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases/encoders")
}

/// A case's model folder.
pub(super) fn folder(name: &str) -> ModelFolder {
    ModelFolder::open(&root().join(name)).unwrap()
}

fn expected(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(root().join(name).join("expected.json")).unwrap()).unwrap()
}

fn numbers<T: TryFrom<u64>>(value: &Value) -> Vec<T> {
    value.as_array().unwrap().iter().map(|v| T::try_from(v.as_u64().unwrap()).ok().unwrap()).collect()
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect()
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// A classifier without a tokenizer.
struct Model {
    encoder: Box<dyn Encoder>,
    head: Head,
}

impl Model {
    fn load(config: &ModelConfig, weights: &Weights) -> Self {
        let scope = Scope::root(weights, &ops::Place::Host, Precision::F32);
        Self {
            head: Head::load(&scope, config, config.id2label.len()).unwrap(),
            encoder: load_encoder(config, weights, &EncodeDevice::cpu(), Precision::F32).unwrap(),
        }
    }

    fn logits(&self, texts: &[Encoded]) -> Vec<f32> {
        host_rows(&classify(&*self.encoder, &self.head, &Batch::new(texts.iter()), true).unwrap()).unwrap()
    }
}

fn encoded(ids: Vec<u32>, types: Vec<u32>) -> Encoded {
    Encoded { ids, types, cut: false, hypothesis_cut: false }
}

/// Every kind of classifier and of setting: logits by token ids, one text at a time and all in one batch, which must be equal bit by
/// bit (a padded text beside a long one is where other engines differ).
#[test]
fn logits_are_those_of_transformers_alone_and_in_a_batch() {
    for name in CLASSIFIERS {
        let folder = folder(name);
        let config = ModelConfig::read(&folder).unwrap();
        let model = Model::load(&config, &Weights::open(&folder).unwrap());
        let expected = expected(name);
        let inputs = expected["inputs"].as_array().unwrap();
        let texts: Vec<Encoded> = inputs.iter().map(|i| encoded(numbers(&i["ids"]), numbers(&i["types"]))).collect();
        let together = model.logits(&texts);
        for (i, text) in texts.iter().enumerate() {
            let alone = model.logits(std::slice::from_ref(text));
            assert_eq!(alone, together[3 * i..3 * i + 3], "{name}, input {i}: alone and in a batch");
            let difference = largest_difference(&alone, &floats(&inputs[i]["logits"]));
            assert!(difference < 2e-5, "{name}, {} tokens: {difference}", text.ids.len());
        }
    }
}

#[test]
fn pairs_are_split_and_scored_as_transformers_does() {
    for name in CLASSIFIERS {
        let model = CrossEncoder::load(&folder(name), &EncodeDevice::cpu(), Precision::F32).unwrap();
        let expected = expected(name);
        let rows = expected["pairs"].as_array().unwrap();
        let pairs: Vec<(&str, &str)> =
            rows.iter().map(|r| (r["premise"].as_str().unwrap(), r["hypothesis"].as_str().unwrap())).collect();
        let mut heard = Vec::new();
        let scores = model.score(&pairs, &mut |done| heard.push(done)).unwrap();
        assert_eq!(heard.last(), Some(&pairs.len()));
        let tokens: u64 = rows.iter().map(|r| r["ids"].as_array().unwrap().len() as u64).sum();
        assert_eq!(scores.tokens, tokens, "{name}");
        assert_eq!(scores.cut, [false, false, false, false, true], "{name}");
        assert!(scores.hypothesis_cut.iter().all(|cut| !cut));
        for (i, row) in rows.iter().enumerate() {
            let difference = largest_difference(scores.row(i), &floats(&row["logits"]));
            assert!(difference < 2e-5, "{name}, pair {i}: {difference}");
            let sum: f64 = scores.probabilities(i).iter().sum();
            assert!((sum - 1.0).abs() < 1e-12);
            let alone = model.score(&pairs[i..=i], &mut |_| {}).unwrap();
            assert_eq!(alone.row(0), scores.row(i), "{name}, pair {i}: alone and in a batch");
        }
    }
}

/// Empty, one token, accents, other scripts, white space, and one far over the limit.
#[test]
fn vectors_are_those_of_sentence_transformers() {
    for name in SENTENCE_ENCODERS {
        let model = Embedder::load(&folder(name), &EncodeDevice::cpu(), Precision::F32).unwrap();
        let expected = expected(name);
        let rows = expected["texts"].as_array().unwrap();
        let texts: Vec<&str> = rows.iter().map(|r| r["text"].as_str().unwrap()).collect();
        let embedded = model.embed(&texts, &mut |_| {}).unwrap();
        assert_eq!(embedded.cut.iter().filter(|cut| **cut).count(), 1, "{name}");
        assert_eq!(embedded.cut.last(), Some(&true));
        for (row, vector) in rows.iter().zip(embedded.vectors.chunks_exact(model.dim())) {
            let difference = largest_difference(vector, &floats(&row["vector"]));
            assert!(difference < 2e-6, "{name}, {:?}: {difference}", row["text"]);
        }
    }
}

/// 500 short texts and one of 60,000 characters: one batch too many would not fit, and no vector may notice its neighbours.
#[test]
fn a_huge_text_among_short_ones_changes_nothing() {
    let model = Embedder::load(&folder("mpnet_mean"), &EncodeDevice::cpu(), Precision::F32).unwrap();
    let mut texts: Vec<String> = (0..500).map(|i| format!("road {i}")).collect();
    texts.insert(250, "ferry ".repeat(10_000));
    assert_eq!(texts[250].len(), 60_000);
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let all = model.embed(&texts, &mut |_| {}).unwrap();
    assert_eq!(all.cut.iter().filter(|cut| **cut).count(), 1);
    assert!(all.cut[250]);
    for i in [0, 1, 249, 250, 251, 500] {
        let alone = model.embed(&texts[i..=i], &mut |_| {}).unwrap();
        assert_eq!(alone.vectors, all.vectors[i * model.dim()..(i + 1) * model.dim()], "text {i}");
    }
    assert_eq!(model.embed(&[], &mut |_| {}).unwrap(), Embedded::default());
}

/// `bits` bits of splitmix64, seeded with FNV-1a of the name, for i = 1 … n.
fn hashed(name: &str, n: usize, bits: u32) -> impl Iterator<Item = u64> {
    let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    (1..=n as u64).map(move |i| {
        let mut z = seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) >> (64 - bits)
    })
}

/// The script's `formula`: a tensor by name and shape. There are no tensors under old names.
fn formula(name: &str, shape: &[usize]) -> Option<Vec<f32>> {
    if name.ends_with(".gamma") {
        return None;
    }
    let n: usize = shape.iter().product();
    let half = (1u64 << 23) as f32;
    let u = hashed(name, n, 24).map(move |h| (h as f32 - half) / half);
    Some(if name.ends_with("LayerNorm.weight") {
        u.map(|u| u * 0.25 + 1.0).collect()
    } else if shape.len() == 1 {
        u.map(|u| u * 0.125).collect()
    } else if name.contains("embeddings") {
        u.collect()
    } else {
        let scale = 1.5 / ((n / shape.first().copied().unwrap_or(1)) as f32).sqrt();
        u.map(|u| u * scale).collect()
    })
}

/// DeBERTa of this shape, every length alone and all in one batch.
fn check_shape(name: &str) {
    let cases: Value = serde_json::from_str(&std::fs::read_to_string(root().join("shapes.json")).unwrap()).unwrap();
    let case = &cases[name];
    let config = ModelConfig::parse(&root().join("shapes.json"), case["config"].as_object().unwrap()).unwrap();
    let model = Model::load(&config, &Weights::Made(Box::new(formula)));
    let texts: Vec<Encoded> = numbers::<usize>(&case["lengths"])
        .into_iter()
        .map(|n| encoded(hashed(&format!("ids.{n}"), n, 24).map(|h| (h % 997) as u32 + 3).collect(), vec![0; n]))
        .collect();
    let together = model.logits(&texts);
    for (i, text) in texts.iter().enumerate() {
        let alone = model.logits(std::slice::from_ref(text));
        assert_eq!(alone, together[3 * i..3 * i + 3], "{} tokens: alone and in a batch", text.ids.len());
        for theirs in ["logits", "padded"] {
            let difference = largest_difference(&alone, &floats(&case[theirs][i]));
            assert!(difference < 1e-4, "{} tokens, {theirs}: {difference}", text.ids.len());
        }
    }
}

#[test]
fn logits_of_the_base_shape() {
    check_shape("base");
}

/// 24 layers, 1024 wide: the shape of nli-deberta-v3-large.
#[test]
#[ignore = "half a minute in release, minutes otherwise: cargo test --release --lib encode::cases -- --ignored"]
fn logits_of_the_large_shape() {
    check_shape("large");
}
