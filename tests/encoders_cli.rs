//! Commands that use encoders, on the tiny random models of `tests/cases/encoders`: an index that makes its own vectors, grounding by an
//! entailment model, and what is said where a model is missing or another.

#![cfg(feature = "encoders")]
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use insta::assert_snapshot;
use livingrag::index::files;
use livingrag::trace::reader::read_rows;
use livingrag::trace::row::TraceRow;
use serde_json::Value;
use support::small::Small;
use support::{Sandbox, repository};

fn model(name: &str) -> PathBuf {
    repository().join("tests/cases/encoders").join(name)
}

/// The tiny sentence encoder: 32 numbers, 64 tokens, a token a letter or so.
fn encoder() -> String {
    format!("index.encoder={}", model("bert_mean").display())
}

/// The tiny cross-encoder, with a threshold that its flat probabilities reach now and then.
fn grounding() -> Vec<String> {
    let model = format!("gates.grounding.model={}", model("deberta_v3").display());
    ["gates.grounding.kind=nli", &model, "gates.tau_nli=0.33", "gates.tau_gs=0.3", "replay.timings=false"]
        .map(str::to_owned)
        .to_vec()
}

fn with_sets<'a>(args: &[&'a str], sets: &'a [String]) -> Vec<&'a str> {
    args.iter().copied().chain(sets.iter().flat_map(|set| ["--set", set])).collect()
}

/// Runs the command, which must work: standard output without its newline, and standard error.
fn works(sandbox: &Sandbox, args: &[&str]) -> (String, String) {
    let output = sandbox.output(args);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{args:?}: {err}");
    (out.trim_end().to_owned(), err)
}

/// Runs the command, which must be refused: standard error.
fn refused(sandbox: &Sandbox, args: &[&str]) -> String {
    let before = sandbox.files();
    let output = sandbox.output(args);
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {err}");
    assert_eq!(sandbox.files(), before, "{args:?} left something behind");
    err
}

/// The files of a folder, but for `plan.toml`, which says on how many threads it was done.
fn bytes(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).filter(|path| !path.ends_with("plan.toml"));
    entries.map(|p| (p.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&p).unwrap())).collect()
}

/// The small dataset with one passage of many words.
fn small() -> Small {
    let mut small = Small::default();
    small.passages.push(format!("{} Ada Lovelace went home.", "It rained. ".repeat(40)));
    small
}

/// That dataset without any vector.
fn bare() -> Sandbox {
    let sandbox = Sandbox::new();
    small().write_texts(&sandbox, "data");
    small().write_annotations(&sandbox, "data");
    sandbox.write("run.toml", "[dataset]\npath = \"data\"\n[replay]\nlag = 1\n");
    sandbox
}

fn set(sets: &str) -> [&str; 2] {
    ["--set", sets]
}

// ---- vectors ----

#[test]
fn an_index_makes_the_vectors_that_the_dataset_lacks_and_keeps_them() {
    let sandbox = bare();
    let encoder = encoder();
    let args = [&["index", "data", "--out", "index"], &set(&encoder)[..]].concat();
    let (_, err) = works(&sandbox, &args);
    assert!(err.contains("vectors: bert_mean will encode 20 texts, about "), "{err}");
    // pitfall 10, counted by the tokenizer.
    let cut = "1 of 6 texts (16.7 %) are longer than the encoder's 64 tokens and were cut there";
    assert!(err.contains(&format!("warning: passages: {cut}\n")), "{err}");
    let meta = files::read_meta(&sandbox.path().join("index")).unwrap();
    assert_eq!((meta.encoder.as_str(), meta.dim, meta.truncated_at_tokens), ("bert_mean", 32, Some(64)));
    assert_eq!(meta.encoder_fingerprint.as_ref().map(String::len), Some(64));
    assert_eq!(meta.computed["templates"], 4);

    // Again: nothing is encoded, and the files are the same byte for byte.
    let again = [&["index", "data", "--out", "again"], &set(&encoder)[..]].concat();
    assert!(!works(&sandbox, &again).1.contains("will encode"));
    assert_eq!(bytes(&sandbox.path().join("again")), bytes(&sandbox.path().join("index")));

    // Another prefix: only the passages' and sentences' texts are new.
    let small = Small { prefix: false, ..small() };
    small.write_annotations(&sandbox, "data");
    let bare_texts =
        [&["index", "data", "--out", "third"], &set(&encoder)[..], &set("index.passage_prefix=none")].concat();
    let (_, err) = works(&sandbox, &bare_texts);
    assert!(err.contains("will encode 6 texts") && err.contains("kept before"), "{err}");

    // A run finds vectors and index the same way, and its manifest names the encoder.
    let sets = vec![encoder.clone(), "index.passage_prefix=none".into(), "replay.timings=false".into()];
    let (folder, err) = works(&sandbox, &with_sets(&["run", "run.toml"], &sets));
    assert!(!err.contains("will encode"), "{err}");
    let manifest: Value =
        serde_json::from_slice(&fs::read(sandbox.path().join(&folder).join("manifest.json")).unwrap()).unwrap();
    assert_eq!(manifest["index"]["encoder"], "bert_mean");
    assert_eq!(manifest["index"]["encoder_fingerprint"], Value::from(meta.encoder_fingerprint));
    assert!(manifest["notes"].as_array().unwrap().iter().any(|n| n.as_str().unwrap().contains("encoder's 64 tokens")));
    assert_eq!(manifest["template_similarity"], "embedding");
}

/// pitfalls 7 and 35: one passage of 60,000 characters among 500 short ones; it is cut, and changes no other vector by a bit.
#[test]
fn pitfall_7_and_35_one_huge_passage_among_many_changes_no_other() {
    let sandbox = Sandbox::new();
    let mut passages: Vec<String> = (0..500).map(|i| format!("Passage {i} is short.")).collect();
    let sets = |vectors: &str| {
        let vectors = format!("index.vectors={vectors}");
        [encoder(), "index.annotations=none".into(), "index.passage_prefix=none".into(), vectors].to_vec()
    };
    let index = |passages: &[String], name: &str| {
        Small { passages: passages.to_vec(), prefix: false, ..Small::default() }.write_texts(&sandbox, name);
        let out = format!("index-{name}");
        let (_, err) = works(&sandbox, &with_sets(&["index", name, "--out", &out], &sets(&format!("vectors-{name}"))));
        (files::open(&sandbox.path().join(out)).unwrap(), err)
    };
    let (alone, err) = index(&passages[7..8], "alone");
    assert!(!err.contains("cut there"), "{err}");
    let (short, _) = index(&passages, "short");
    passages.insert(3, "It rained and rained. ".repeat(2_800));
    let (all, err) = index(&passages, "all");
    assert!(err.contains("passages: 1 of 501 texts (0.2 %) are longer than the encoder's 64 tokens"), "{err}");
    assert_eq!(all.data.passages.row(8), alone.data.passages.row(0));
    assert_eq!(all.data.passages.row(0), short.data.passages.row(0));
    assert_eq!(all.data.passages.row(500), short.data.passages.row(499));
}

/// Vectors of sentence-transformers for the same model, from `expected.json`.
#[test]
fn computed_vectors_are_those_of_the_reference() {
    let expected: Value = serde_json::from_slice(&fs::read(model("bert_mean").join("expected.json")).unwrap()).unwrap();
    let expected: Vec<(&str, Vec<f64>)> = expected["texts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| {
            let vector = t["vector"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
            (t["text"].as_str().unwrap(), vector)
        })
        .collect();
    let sandbox = Sandbox::new();
    let passages: Vec<&str> = expected.iter().map(|(text, _)| *text).collect();
    let small = Small { prefix: false, ..Small::default() }.with_passages(&passages);
    small.write_texts(&sandbox, "data");
    let sets = vec![encoder(), "index.annotations=none".into(), "index.passage_prefix=none".into()];
    works(&sandbox, &with_sets(&["index", "data", "--out", "index"], &sets));
    let index = files::open(&sandbox.path().join("index")).unwrap();
    for (i, (text, theirs)) in expected.iter().enumerate() {
        let ours = index.data.passages.row(i);
        let cosine: f64 = ours.iter().zip(theirs).map(|(a, b)| f64::from(*a) * b).sum();
        assert!(cosine > 0.99999, "{text:?}: {cosine}");
    }
}

/// pitfalls 8 and 34: what is missing, and what would be of two encoders, is refused before anything is written.
#[test]
fn encoders_that_are_missing_or_others_are_refused() {
    let sandbox = bare();
    assert_snapshot!("index_without_an_encoder", sandbox.run(&["index", "data"]));
    assert_eq!(sandbox.files().len(), 5);
    let hub = refused(&sandbox, &["index", "data", "--set", "index.encoder=sentence-transformers/all-MiniLM-L6-v2"]);
    assert!(hub.contains("has no model sentence-transformers/all-MiniLM-L6-v2; offline mode is on"), "{hub}");
    let nli = model("deberta_v3");
    let classifier = refused(&sandbox, &["index", "data", "--set", &format!("index.encoder={}", nli.display())]);
    assert!(
        classifier.contains("DebertaV2ForSequenceClassification, a classifier and no sentence encoder"),
        "{classifier}"
    );

    // The files say bert_mean, and hold something else.
    let small = Small { encoder: "hub/bert_mean".into(), dim: 32, ..small() };
    small.write_vectors(&sandbox.path().join("data"));
    let encoder = encoder();
    works(&sandbox, &["index", "data", "--out", "whole"]);
    fs::remove_file(sandbox.path().join("data/embeddings/entities.parquet")).unwrap();
    let output = sandbox.run(&["index", "data", "--set", &encoder]);
    assert!(output.contains("are said to be of \"hub/bert_mean\", and are not those of bert_mean ("), "{output}");
    assert!(output.contains("has cosine ") && output.starts_with("exit code: 2"), "{output}");
    // The files are of another encoder by name.
    let other = refused(&sandbox, &["index", "data", "--set", "index.encoder=hub/other"]);
    assert!(other.contains("index.encoder = \"hub/other\", and the vectors in data/embeddings are of"), "{other}");
}

#[test]
fn inspect_counts_with_the_tokenizer_and_says_who_makes_what_is_missing() {
    let sandbox = bare();
    let (out, _) = works(&sandbox, &["dataset", "inspect", "data"]);
    assert!(
        out.contains(
            "can be built; the missing vectors of passages, questions, sentences, entities, question_entities are"
        ),
        "{out}"
    );
    assert!(out.contains("all-mpnet-base-v2, which is not on this machine (get it with `hf download"), "{out}");
    // A vector file that names the encoder's folder: then the tokenizer is at hand.
    let small =
        Small { encoder: model("bert_mean").display().to_string(), dim: 32, truncated_at_tokens: Some(64), ..small() };
    small.write_vectors(&sandbox.path().join("data"));
    fs::remove_file(sandbox.path().join("data/embeddings/sentences.parquet")).unwrap();
    let (out, _) = works(&sandbox, &["dataset", "inspect", "data"]);
    assert!(out.contains("text_cut: embeddings/passages.parquet: 1 of 6 texts (16.7 %) are longer"), "{out}");
    assert!(out.contains("text_cut: sentences: 1 of 5 texts") && !out.contains("estimated"), "{out}");
    assert!(out.contains("the missing vectors of sentences are made by "), "{out}");
}

#[test]
fn doctor_says_which_models_are_there() {
    let sandbox = Sandbox::new();
    let folder = model("deberta_v3").display().to_string();
    let (out, _) = works(&sandbox, &["doctor", "--model", &folder, "--model", "some/model"]);
    assert!(out.contains(&format!("model         {folder}: in the folder {folder}")), "{out}");
    assert!(
        out.contains("model         some/model: not on this machine; get it with `hf download some/model`"),
        "{out}"
    );
    assert!(out.contains("nli model     cross-encoder/nli-deberta-v3-large: not on this machine"), "{out}");
    assert!(out.contains("encoder       sentence-transformers/all-mpnet-base-v2: not on this machine"), "{out}");
    assert!(sandbox.files().is_empty());
}

// ---- grounding ----

/// The bundled demo's data and settings, half of its questions.
fn demo() -> (Sandbox, Vec<String>) {
    let data = format!("dataset.path={}", repository().join("data/demo").display());
    let mut sets = vec![data, "replay.limit=32".into()];
    sets.extend(grounding());
    (Sandbox::new(), sets)
}

fn run_demo(sandbox: &Sandbox, sets: &[String], out: &str, threads: &str) -> (PathBuf, String) {
    let config = repository().join("configs/demo.toml").display().to_string();
    let args = with_sets(&["run", &config, "--out", out, "--threads", threads], sets);
    let (folder, err) = works(sandbox, &args);
    (sandbox.path().join(folder), err)
}

#[test]
fn a_run_is_grounded_by_the_model_and_a_second_one_scores_nothing() {
    let (sandbox, sets) = demo();
    let (first, _) = run_demo(&sandbox, &sets, "a", "2");
    let rows: Vec<TraceRow> = read_rows(&first.join("traces.parquet")).unwrap();
    let grounded: Vec<&TraceRow> = rows.iter().filter(|r| r.grounding.is_some()).collect();
    assert!(grounded.len() > 5, "{}", grounded.len());
    for row in &grounded {
        let model = row.grounding_model.as_ref().unwrap();
        assert!(model.starts_with("deberta_v3 ") && model.ends_with(" f32") && model.len() == 27, "{model}");
        assert!(!row.claims.is_empty());
        for claim in &row.claims {
            let contradiction = claim.contradiction.unwrap();
            assert!(claim.support > 0.0 && contradiction > 0.0 && claim.support + contradiction < 1.0);
            assert!(row.passages.iter().any(|p| p.passage == claim.passage) && !claim.evidence.is_empty());
        }
        let supported = row.claims.iter().filter(|c| f64::from(c.support) >= 0.33).count();
        assert_eq!(row.grounding.unwrap(), (supported as f64 / row.claims.len() as f64) as f32);
    }
    assert!(rows.iter().any(|r| r.stored), "nothing was stored");

    // Another folder, another number of threads; the weights are gone, so nothing can be scored again. All bytes are equal.
    let kept = sandbox.path().join("results/nli-cache.sqlite");
    assert!(kept.is_file());
    for (out, threads) in [("b", "1"), ("c", "2")] {
        let (again, _) = run_demo(&sandbox, &sets, out, threads);
        assert!(bytes(&again) == bytes(&first), "{out}");
    }
    // Without the cache everything is scored anew, on one thread, to the same bits.
    fs::remove_file(&kept).unwrap();
    let (anew, _) = run_demo(&sandbox, &sets, "d", "1");
    assert!(bytes(&anew) == bytes(&first), "scored by one thread");

    // With times the manifest counts what was scored and what was kept.
    let mut timed = sets.clone();
    timed.push("replay.timings=true".into());
    let counters = |out: &str| {
        let (folder, _) = run_demo(&sandbox, &timed, out, "2");
        let manifest: Value = serde_json::from_slice(&fs::read(folder.join("manifest.json")).unwrap()).unwrap();
        assert_eq!(manifest["grounding"]["name"], "nli");
        assert!(manifest["grounding"]["model"].as_str().unwrap().starts_with("deberta_v3 "));
        manifest["counters"].clone()
    };
    let all_kept = counters("e");
    let asked = all_kept["nli_pairs_asked"].as_u64().unwrap();
    assert!(asked > 100 && all_kept["nli_pairs_cached"] == asked && all_kept["nli_pairs_scored"] == 0, "{all_kept}");
    fs::remove_file(&kept).unwrap();
    let all_scored = counters("f");
    assert!(all_scored["nli_pairs_scored"] == asked && all_scored["nli_pairs_cached"] == 0, "{all_scored}");
    assert_eq!(all_scored["nli_pairs_cut"], all_kept["nli_pairs_cut"]);
    assert_eq!(all_scored["nli_padding_tokens"], 0);

    let (listed, _) = works(&sandbox, &["cache", "stats"]);
    assert!(
        listed.starts_with("grounding_model\tfingerprint\tprecision\tpairs\tcut\toldest\tnewest\ndeberta_v3\t"),
        "{listed}"
    );
    assert!(listed.contains(&format!("\tf32\t{asked}\t")), "{listed}");
    works(&sandbox, &["cache", "export", "pairs.sqlite", "--cache", "results/nli-cache.sqlite"]);
    let (_, err) = works(&sandbox, &["cache", "import", "pairs.sqlite", "--cache", "other.sqlite"]);
    assert_eq!(err, format!("pairs.sqlite: pairs added: {asked}\n"));
    let prune = ["cache", "prune", "--model", "deberta_v3", "--cache", "other.sqlite"];
    assert_eq!(works(&sandbox, &prune).1, format!("pairs removed: {asked}\n"));
}

/// In a sweep one model serves all runs, and every run's files are those of the run alone.
#[test]
fn a_sweep_is_grounded_by_one_model() {
    let (sandbox, sets) = demo();
    let sweep = format!(
        "name = 's'\nbase = ['{0}/configs/demo.toml']\nmethods = ['linear', 'living', 'no_gate']\n[grid]\ngates.tau_nli = [0.33, 0.34]\n\
         gates.grounding.window = [0, 1]\n[[dataset]]\npath = '{0}/data/demo'\n",
        repository().display()
    );
    sandbox.write("s.toml", sweep);
    let settings: Vec<String> =
        sets.iter().filter(|s| !s.starts_with("dataset.path") && !s.starts_with("gates.tau_nli")).cloned().collect();
    works(&sandbox, &with_sets(&["sweep", "s.toml", "--out", "r", "--quiet"], &settings));
    let work: Value = serde_json::from_slice(&fs::read(sandbox.path().join("r/s/sweep.json")).unwrap()).unwrap();
    let pairs = &work["work"][0]["work"]["pairs"];
    assert!(pairs["done"].as_u64().unwrap() > 100 && pairs["asked"].as_u64() > pairs["done"].as_u64(), "{work}");

    for (tau, window) in [("0.33", "1"), ("0.34", "0")] {
        let mut alone = sets.clone();
        alone.extend([format!("gates.tau_nli={tau}"), format!("gates.grounding.window={window}")]);
        let (folder, _) = run_demo(&sandbox, &alone, "alone", "1");
        let in_sweep = sandbox.path().join("r/s").join(folder.file_name().unwrap());
        assert!(bytes(&folder) == bytes(&in_sweep), "{tau} {window}");
    }
}

/// pitfall 34: a model that is not there is told before anything is done, also for a sweep; a method without gates needs none.
#[test]
fn pitfall_34_a_missing_grounding_model_is_an_early_error() {
    let sandbox = bare();
    small().write_vectors(&sandbox.path().join("data"));
    let missing = ["gates.grounding.kind=nli".to_owned()];
    assert_snapshot!("run_without_a_grounding_model", sandbox.run(&with_sets(&["run", "run.toml"], &missing)));
    refused(&sandbox, &with_sets(&["run", "run.toml"], &missing));
    refused(&sandbox, &with_sets(&["run", "run.toml", "--dry-run"], &missing));
    let embedder =
        ["gates.grounding.kind=nli".to_owned(), format!("gates.grounding.model={}", model("bert_mean").display())];
    let err = refused(&sandbox, &with_sets(&["run", "run.toml"], &embedder));
    assert!(err.contains("id2label names nothing, and no contradiction"), "{err}");
    let half = [
        "gates.grounding.kind=nli".to_owned(),
        format!("gates.grounding.model={}", model("bert").display()),
        "gates.grounding.precision=f16".to_owned(),
        "backend.kind=cpu".to_owned(),
    ];
    let err = refused(&sandbox, &with_sets(&["run", "run.toml"], &half));
    assert!(err.contains("gates.grounding.precision = \"f16\": precision f16 is for GPUs"), "{err}");
    sandbox.write("s.toml", "name = 's'\nmethods = ['linear', 'living']\n[[dataset]]\npath = 'data'\n");
    refused(&sandbox, &with_sets(&["sweep", "s.toml"], &missing));
    works(&sandbox, &with_sets(&["run", "run.toml", "--set", "method=linear"], &missing));
}
