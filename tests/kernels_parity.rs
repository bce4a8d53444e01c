//! Base retrieval with the kernels on the processor against a reference run of LinearRAG on real data.
//!
//! In: hotpotqa_train under `../shared` (or `LIVINGRAG_SHARED`) with its reference outputs. Both forms, every question: fallback, active
//! entities, entity weights, PageRank scores and order outside ties. Skipped where the data or g++ is not there. The rows are also
//! written as a Parquet file into the target folder, for checks of other makes.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod host_cuda;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use host_cuda::HostCuda;
use livingrag::backend::device::DeviceBackend;
use livingrag::config::{Propagation, RunConfig};
use livingrag::dataset::Dataset;
use livingrag::index::{IndexOptions, build};
use livingrag::retrieve::{Prepared, export};
use livingrag::trace::row::RetrieveRow;
use livingrag::trace::writer;
use serde_json::Value;

/// Scores of other arithmetic (f32 cosines there, f32 here): relative above 1, absolute below.
fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance * a.abs().max(b.abs()).max(1.0)
}

fn shared() -> Option<PathBuf> {
    let root = std::env::var_os("LIVINGRAG_SHARED")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared")), PathBuf::from);
    let folder = root.join("data/hotpotqa_train");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: no {}", folder.display());
    None
}

/// What differs from the reference's answer to one question.
fn difference(row: &RetrieveRow, gold: &Value) -> Option<String> {
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    if gold["fallback"].as_bool() != Some(row.fallback.is_some()) {
        return Some(format!("fallback {:?}", row.fallback));
    }
    let expected: Vec<(u32, f64)> = gold["top20"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| (p[0].as_u64().unwrap() as u32, p[1].as_f64().unwrap()))
        .collect();
    let score_of: BTreeMap<u32, f64> = expected.iter().copied().collect();
    let tolerance = if row.fallback.is_some() { 2e-5 } else { 2e-6 };
    for (place, (found, &(passage, score))) in row.passages.iter().zip(&expected).enumerate() {
        if let Some(&there) = score_of.get(&found.passage)
            && !close(found.score, there, tolerance)
        {
            return Some(format!("passage {} scores {} and not {there}", found.passage, found.score));
        }
        if found.passage != passage && (found.score - score).abs() > 2e-7 {
            return Some(format!("rank {place} is {} and not {passage}", found.passage));
        }
    }
    if row.fallback.is_some() {
        return None;
    }
    let active: BTreeMap<String, (f64, u64)> = gold["activated"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| (text(&a["entity"]), (a["score"].as_f64().unwrap(), a["tier"].as_u64().unwrap())))
        .collect();
    if active.len() != row.active.len() {
        return Some(format!("{} active entities and not {}", row.active.len(), active.len()));
    }
    for found in &row.active {
        match active.get(&found.entity) {
            Some(&(score, tier)) if tier == u64::from(found.tier) && close(found.score, score, 2e-5) => {}
            there => {
                return Some(format!("{} is {} at tier {} and not {there:?}", found.entity, found.score, found.tier));
            }
        }
    }
    let weights: BTreeMap<String, f64> = gold["entity_weights"]
        .as_array()
        .unwrap()
        .iter()
        .map(|w| (text(&w[0]), w[1].as_f64().unwrap()))
        .filter(|&(_, w)| w != 0.0)
        .collect();
    let mine: Vec<_> = row.weights.iter().filter(|w| w.weight != 0.0).collect();
    let same = mine.iter().all(|w| weights.get(&w.entity).is_some_and(|&there| close(w.weight, there, 2e-5)));
    (mine.len() != weights.len() || !same).then(|| "entity weights differ".to_owned())
}

#[test]
fn retrieval_agrees_with_the_reference_run() {
    let Some(folder) = shared() else { return };
    let Some(device) = HostCuda::start() else { return };
    let dataset = Dataset::open(&folder).unwrap();
    let mut config = RunConfig::default();
    let index = Arc::new(build::build(&dataset, &IndexOptions::from(&config.index)).unwrap());
    let prepared = Prepared::new(index, Arc::new(DeviceBackend::new(device, 1)), Vec::new()).unwrap();
    config.retrieve.max_iterations = 3;
    config.retrieve.top_k_sentence = 1;
    for (settings, threshold, ratio) in [("default", 0.5, 1.5), ("script", 0.4, 0.05)] {
        config.retrieve.iteration_threshold = threshold;
        config.retrieve.passage_ratio = ratio;
        for form in [Propagation::Bfs, Propagation::Matrix] {
            config.retrieve.propagation = form;
            let name = format!("{}-{settings}", form.as_str());
            let rows = export::rows(&prepared, &config.retrieve, |_| {}).unwrap();
            writer::write_rows(&Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.parquet")), &rows).unwrap();
            let text = std::fs::read_to_string(folder.join(format!("reference/{name}.jsonl"))).unwrap();
            let gold: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(rows.len(), gold.len());
            let bad: Vec<String> = rows
                .iter()
                .zip(&gold)
                .enumerate()
                .filter_map(|(q, (row, gold))| difference(row, gold).map(|what| format!("question {q}: {what}")))
                .collect();
            assert!(bad.is_empty(), "{name}: {bad:#?}");
        }
    }
}
