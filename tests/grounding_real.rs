//! The grounding gate with a real entailment model on recorded explanations, where they lie: the small NLI model and the recorded answers of
//! `../shared` (or `LIVINGRAG_SHARED`). A gate is worth something if it passes explanations with their own context more often than with
//! another question's.
//!
//! `LIVINGRAG_GROUNDING=all cargo test --test grounding_real -- --nocapture` goes over all records and several windows; the figures in
//! docs/grounding.md are its output.

#![cfg(feature = "encoders")]
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::path::PathBuf;
use std::time::Instant;

use livingrag::config::{BackendKind, GroundingConfig, GroundingKind};
use livingrag::gates::claims;
use livingrag::gates::evidence::EvidencePool;
use livingrag::gates::grounding::{Candidate, GroundingScorer};
use livingrag::gates::lexical::LexicalScorer;
use livingrag::gates::models::GroundingModels;
use livingrag::generate::{Marker, PromptPassage, parse_answer};
use livingrag::ids::{PassageId, StreamIndex};
use serde_json::Value;

const TAU_NLI: f64 = 0.5;
const TAU_GS: f64 = 0.6;

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

/// Candidates of every `step`-th record, with the context of the record `shift` places on.
fn candidates(records: &[Value], step: usize, shift: usize, k: usize, window: usize) -> Vec<Candidate> {
    (0..records.len())
        .step_by(step)
        .map(|i| {
            let text = |record: &Value, field: &str| record[field].as_str().unwrap().to_owned();
            let parsed = parse_answer(&text(&records[i], "generation"), Marker::First);
            let claims = claims::extract(&parsed.explanation, &parsed.prediction);
            let context = text(&records[(i + shift) % records.len()], "context");
            let pool = EvidencePool::new(&[PromptPassage { id: PassageId(0), text: context }], window);
            let evidence = claims.iter().map(|claim| pool.best(claim, k)).collect();
            Candidate { query_id: format!("q{i}"), stream_index: StreamIndex(1), claims, evidence }
        })
        .collect()
}

/// Passed candidates, and mean support of a claim.
fn passed(scorer: &dyn GroundingScorer, batch: &[Candidate]) -> (usize, f64) {
    let grounded = scorer.score(batch).unwrap();
    let supports: Vec<f64> = grounded.iter().flat_map(|g| &g.claims).map(|c| f64::from(c.support)).collect();
    (grounded.iter().filter(|g| g.gs >= TAU_GS).count(), supports.iter().sum::<f64>() / supports.len() as f64)
}

#[test]
fn recorded_explanations_are_entailed_by_their_own_context() {
    let Some(path) = shared("data/traces/musique_train_thought_answer.json") else { return };
    let Some(model) = shared("models/nli-minilm-l6") else { return };
    let records: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let config = GroundingConfig {
        kind: GroundingKind::Nli,
        model: model.display().to_string(),
        cache: PathBuf::new(),
        ..GroundingConfig::default()
    };
    let nli = GroundingModels::default().nli(&config, TAU_NLI, BackendKind::Cpu).unwrap().scorer;
    let all = std::env::var_os("LIVINGRAG_GROUNDING").is_some();
    let (step, k) = if all { (1, 8) } else { (12, 3) };
    let n = records.len().div_ceil(step);
    if all {
        let lexical = LexicalScorer { tau_nli: TAU_NLI };
        let (own, other) = (candidates(&records, step, 0, k, 0), candidates(&records, step, 7, k, 0));
        eprintln!(
            "lexical: of {n} pass {:?} with their own context, {:?} with another",
            passed(&lexical, &own),
            passed(&lexical, &other)
        );
        for window in [0, 1, 2] {
            let started = Instant::now();
            let (own, other) = (candidates(&records, step, 0, k, window), candidates(&records, step, 7, k, window));
            let (a, b) = (passed(&*nli, &own), passed(&*nli, &other));
            let seconds = started.elapsed().as_secs_f64();
            let done = nli.counters();
            eprintln!(
                "window {window}: of {n} pass {a:?} with their own context, {b:?} with another; {seconds:.0} s, {done:?} so far"
            );
        }
        return;
    }
    let window = config.window as usize;
    let (own, _) = passed(&*nli, &candidates(&records, step, 0, k, window));
    let (other, _) = passed(&*nli, &candidates(&records, step, 7, k, window));
    eprintln!("of {n} recorded answers {own} pass with their own context, {other} with another");
    assert!(own > 2 * other && own * 4 > n, "{own} and {other}");
}
