//! What goes wrong for people who do this work, tried through the commands a user would type. Each test names its pitfall; those
//! that need no command are beside the code they guard.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use livingrag::index::files;
use livingrag::trace::reader::read_rows;
use livingrag::trace::row::{RetrieveRow, TraceRow};
use serde_json::Value;
use support::Sandbox;
use support::small::Small;

/// A sandbox with `small` in `data` and a configuration of it in `run.toml`.
fn sandbox(small: &Small) -> Sandbox {
    let sandbox = Sandbox::new();
    small.write(&sandbox, "data");
    sandbox.write("run.toml", "[dataset]\npath = \"data\"\n[replay]\nlag = 1\n");
    sandbox
}

/// Runs the command, which must work: standard output without its newline, and standard error.
fn works(sandbox: &Sandbox, args: &[&str]) -> (String, String) {
    let output = sandbox.output(args);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{args:?}: {err}");
    (out.trim_end().to_owned(), err)
}

fn index(sandbox: &Sandbox) -> String {
    works(sandbox, &["index", "data", "--out", "index"]).1
}

fn retrieve(sandbox: &Sandbox, sets: &[&str]) -> (Vec<RetrieveRow>, String) {
    let file = sandbox.path().join("out.parquet");
    let _ = fs::remove_file(&file);
    let err = works(sandbox, &[&["retrieve", "--index", "index", "--out", "out.parquet"], sets].concat()).1;
    (read_rows(&file).unwrap(), err)
}

/// A run's rows and its folder.
fn run(sandbox: &Sandbox, sets: &[&str]) -> (Vec<TraceRow>, String) {
    let folder = works(sandbox, &[&["run", "run.toml"], sets].concat()).0;
    (read_rows(&sandbox.path().join(&folder).join("traces.parquet")).unwrap(), folder)
}

fn manifest(sandbox: &Sandbox, folder: &str) -> Value {
    serde_json::from_slice(&fs::read(sandbox.path().join(folder).join("manifest.json")).unwrap()).unwrap()
}

/// Every file below `folder` with its bytes.
fn bytes(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    entries.map(|p| (p.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&p).unwrap())).collect()
}

fn passages(row: &RetrieveRow) -> Vec<u32> {
    row.passages.iter().map(|p| p.passage).collect()
}

#[test]
fn pitfall_1_indexing_twice_gives_the_same_folder_and_the_same_bytes() {
    let sandbox = sandbox(&Small::default());
    let (folder, _) = works(&sandbox, &["index", "data"]);
    let first = bytes(&sandbox.path().join(&folder));
    assert_eq!(works(&sandbox, &["index", "data"]).0, folder);
    assert_eq!(bytes(&sandbox.path().join(&folder)), first);
    // Built again from nothing, the bytes are the same too, and no edge is counted twice.
    index(&sandbox);
    assert_eq!(bytes(&sandbox.path().join("index")), first);
    // Whoever may read one file of it may read all.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |file: std::fs::DirEntry| file.metadata().unwrap().permissions().mode();
        let modes: Vec<u32> =
            std::fs::read_dir(sandbox.path().join("index")).unwrap().map(|file| mode(file.unwrap())).collect();
        assert!(modes.iter().all(|m| *m == modes[0]), "{modes:?}");
    }
    // By hand: 8 mentions of 4 passages make 8 entity-passage edges, 5 passages in a chain 4 more.
    assert_eq!(files::read_meta(&sandbox.path().join("index")).unwrap().counts.edges, 12);
}

#[test]
fn pitfall_2_three_passages_with_clear_names_give_entities() {
    let small = Small::default();
    let three: Vec<String> = small.passages[..3].to_vec();
    let sandbox = sandbox(&Small { passages: three, ..small });
    let err = index(&sandbox);
    assert!(err.contains("3 passages, 3 sentences, 3 entities"), "{err}");
    assert!(!err.contains("warning"), "{err}");
}

/// pitfalls 2 and 3: a corpus without any entity is a valid index, and a word is said.
#[test]
fn pitfall_3_a_corpus_without_any_entity_is_ranked_by_dense_cosine_and_warns() {
    let small = Small::default().with_passages(&["it rained. then it stopped.", "the sun came out."]);
    let sandbox = sandbox(&small);
    let warning = "warning: the graph has no entity: every query is ranked by dense cosine\n";
    assert!(index(&sandbox).contains(warning));
    let (rows, err) = retrieve(&sandbox, &[]);
    assert!(err.contains(warning), "{err}");
    assert!(rows.iter().all(|r| r.fallback.as_deref() == Some("dense_no_seed") && r.passages.len() == 2));
    let (rows, folder) = run(&sandbox, &[]);
    assert!(rows.iter().all(|r| r.fallback.as_deref() == Some("dense_no_seed")));
    assert!(works(&sandbox, &["report", &folder]).0.contains("warning: "));
}

#[test]
fn pitfall_4_a_passage_without_entities_stays_retrievable() {
    let sandbox = sandbox(&Small::default());
    index(&sandbox);
    let (rows, _) = retrieve(&sandbox, &[]);
    // Passage 4 names nobody.
    assert!(rows.iter().all(|r| passages(r).contains(&4) && r.passages.len() == 5));
    let (rows, _) = retrieve(&sandbox, &["--set", "retrieve.propagation=matrix"]);
    assert!(rows.iter().all(|r| passages(r).contains(&4)));
}

#[test]
fn pitfall_5_equal_passages_keep_their_ids_share_a_vector_and_tie_by_id() {
    let small = Small { prefix: false, ..Small::default() };
    let sandbox = sandbox(&small.with_passages(&["a", "b", "a"]));
    works(&sandbox, &["index", "data", "--out", "index", "--set", "index.passage_prefix=none"]);
    let (rows, _) = retrieve(&sandbox, &[]);
    for row in rows {
        let ids = passages(&row);
        let place = |id| ids.iter().position(|&p| p == id).unwrap();
        let score = |id: u32| row.passages[place(id)].score;
        assert_eq!(score(0), score(2));
        assert_eq!(place(2), place(0) + 1, "{ids:?}");
    }
}

/// pitfall 9: constant embeddings. Index, retrieve and run warn, the report raises an alarm.
#[test]
fn pitfall_9_constant_embeddings_are_told_everywhere() {
    let sandbox = sandbox(&Small { constant: true, ..Small::default() });
    let warning = "warning: all texts have the same vector in the vectors of passages, questions, sentences, entities, \
                   question_entities: similarity says nothing there";
    assert!(index(&sandbox).contains(warning));
    assert!(retrieve(&sandbox, &[]).1.contains(warning));
    let (folder, err) = works(&sandbox, &["run", "run.toml", "--set", "retrieve.top_k=2"]);
    assert!(err.contains(warning), "{err}");
    let report = works(&sandbox, &["report", &folder]).0;
    assert!(report.starts_with("warning: ") && report.contains("all vectors of passages, questions"), "{report}");
}

/// pitfall 9: a ranking that never varies is told even where no vector file looks constant.
#[test]
fn pitfall_9_a_ranking_that_never_varies_is_told() {
    // Two different questions with one vector: the texts differ, so the file is not constant as a whole.
    let small = Small::default().with_questions(&[("a", "Why?", "x"), ("b", "How?", "y")]);
    let sandbox = sandbox(&small);
    let path = sandbox.path().join("data/embeddings/questions.parquet");
    let mut table = livingrag::dataset::vectors::read(&path).unwrap();
    let first = table.row(0).to_vec();
    table.data[table.dim..].copy_from_slice(&first);
    table.texts.push("never asked".into());
    table.data.extend([1.0, 0.0, 0.0, 0.0]);
    livingrag::dataset::vectors::write(&path, &table).unwrap();
    index(&sandbox);
    let (rows, err) = retrieve(&sandbox, &[]);
    assert!(passages(&rows[0]) == passages(&rows[1]));
    assert!(err.contains("warning: every question has the same ranking"), "{err}");
    let (_, folder) = run(&sandbox, &["--set", "retrieve.top_k=2"]);
    assert!(works(&sandbox, &["report", &folder]).0.contains("were given the same passages in the same order"));
}

/// One passage, or the same question twice, leave nothing to vary.
#[test]
fn a_ranking_that_cannot_vary_is_no_alarm() {
    let one = sandbox(&Small::default().with_passages(&["Ada Lovelace was born in London."]));
    let twice = sandbox(&Small::default().with_questions(&[("a", "Who?", "x"), ("b", "Who?", "x")]));
    for sandbox in [one, twice] {
        index(&sandbox);
        assert!(!retrieve(&sandbox, &[]).1.contains("same ranking"));
    }
}

/// pitfall 10: a text of 1,000 words with the fact at its end, and an encoder that cuts at 384 tokens.
#[test]
fn pitfall_10_cut_texts_are_counted_by_inspect_index_and_manifest() {
    let long = format!("{} Ada Lovelace was born in London.", "word ".repeat(1_000));
    let small = Small { truncated_at_tokens: Some(384), ..Small::default() };
    let sandbox = sandbox(&small.with_passages(&["Charles Babbage spoke in Turin.", &long]));
    let said =
        "embeddings/passages.parquet: about 1 of 2 texts (50.0 %, estimated) are longer than the encoder's 384 tokens";
    assert!(works(&sandbox, &["dataset", "inspect", "data"]).0.contains(said));
    assert!(index(&sandbox).contains(said));
    let (_, folder) = run(&sandbox, &[]);
    let notes = manifest(&sandbox, &folder)["notes"].clone();
    assert!(notes.as_array().unwrap().iter().any(|n| n.as_str().unwrap().starts_with(said)), "{notes}");
}

#[test]
fn pitfall_11_and_12_a_byte_order_mark_crlf_and_a_lone_surrogate_go_all_the_way() {
    let sandbox = Sandbox::new();
    let small = Small::default().with_passages(&["caf\u{fffd} of Ada Lovelace", "Charles Babbage"]);
    small.write(&sandbox, "data");
    let chunks = "\u{feff}[\r\n\"caf\\udc9a of Ada Lovelace\",\r\n\"Charles Babbage\"\r\n]\r\n";
    sandbox.write("data/chunks.json", chunks).write("run.toml", "[dataset]\npath = \"data\"\n");
    let (_, err) = works(&sandbox, &["index", "data"]);
    assert!(err.contains(r"lone surrogate escape replaced by U+FFFD: \udc9a in record 1"), "{err}");
    let (rows, _) = run(&sandbox, &[]);
    assert_eq!(rows.len(), 4);
}

/// pitfall 20: a question without entities.
#[test]
fn pitfall_20_a_question_without_entities_falls_back_and_is_marked() {
    let sandbox = sandbox(&Small::default());
    for method in ["linear", "living", "no_fusion", "no_scaffold", "no_gate"] {
        let (rows, _) = run(&sandbox, &["--set", &format!("method={method}")]);
        let by_id: BTreeMap<&str, Option<&str>> =
            rows.iter().map(|r| (r.query_id.as_str(), r.fallback.as_deref())).collect();
        assert_eq!(by_id["q3"], Some("dense_no_seed"), "{method}");
        assert_eq!(by_id["q1"], None, "{method}");
        assert!(rows.iter().all(|r| r.passages.len() == 5));
    }
    // `vanilla` never asks the graph, so a dense ranking is no fallback there.
    let (rows, _) = run(&sandbox, &["--set", "method=vanilla"]);
    assert!(rows.iter().all(|r| r.fallback.is_none()));
}

// ---- odd inputs never panic ----

/// Every command on a dataset: index, both forms of retrieval, every method, report.
fn everything_works(small: &Small) {
    let sandbox = sandbox(small);
    index(&sandbox);
    for form in ["bfs", "matrix"] {
        let (rows, _) = retrieve(&sandbox, &["--set", &format!("retrieve.propagation={form}")]);
        assert_eq!(rows.len(), small.questions.len());
        assert!(rows.iter().all(|r| r.passages.len() == small.passages.len().min(20)));
    }
    for method in ["vanilla", "linear", "living", "no_fusion", "no_scaffold", "no_gate"] {
        let (rows, _) = run(&sandbox, &["--set", &format!("method={method}")]);
        assert_eq!(rows.len(), small.questions.len());
    }
    works(&sandbox, &["report", "results"]);
}

#[test]
fn one_passage_and_one_question() {
    everything_works(&Small::default().with_passages(&["Ada Lovelace was born in London."]));
    let one = [("q", "Where was Ada Lovelace born?", "London")];
    everything_works(&Small::default().with_questions(&one));
    everything_works(&Small::default().with_questions(&one).with_passages(&["London"]));
}

#[test]
fn empty_texts() {
    everything_works(&Small::default().with_passages(&["", "", " \n "]).with_questions(&[("", "", "")]));
}

#[test]
fn repeated_ids_and_questions() {
    let same = ("x", "Where was Ada Lovelace born?", "London");
    everything_works(&Small::default().with_questions(&[same, same, same]));
}

#[test]
fn odd_characters_and_long_texts() {
    let long = "Ada Lovelace ".repeat(2_000);
    let questions = [("\u{0}", "Who is Ada Lovelace\u{0}?", "\u{0}"), ("é😀", long.as_str(), long.as_str())];
    let passages = ["\u{0}Ada Lovelace\u{2028}😀\u{fe0f}", long.as_str(), "\"Turin\", `[ENTITY]`"];
    everything_works(&Small::default().with_questions(&questions).with_passages(&passages));
}

/// Settings at the ends of what they may hold; a finite score stays finite.
#[test]
fn extreme_settings() {
    let sandbox = sandbox(&Small::default());
    for set in [
        "retrieve.top_k=4294967295",
        "retrieve.max_iterations=1",
        "retrieve.max_iterations=4294967295",
        "retrieve.top_k_sentence=4294967295",
        "retrieve.iteration_threshold=0",
        "retrieve.iteration_threshold=1e300",
        "retrieve.passage_ratio=0",
        "retrieve.passage_ratio=1e308",
        "retrieve.passage_node_weight=1e308",
        "retrieve.damping=0.999999",
        "retrieve.length_b=1",
        "experience.top_k=4294967295",
        "experience.beta=1e308",
        "experience.tau_s=1e-300",
        "experience.tau_s=1e300",
        "experience.epsilon=1",
        "experience.max_entities=1",
        "experience.key_sentences=4294967295",
        "gates.tau_novel=0",
        "gates.tau_gs=0",
        "gates.evidence_per_claim=4294967295",
        "replay.lag=4294967295",
        "replay.limit=1",
        "replay.limit=4294967295",
        "order=spread",
        "order=clustered",
        "order=shuffle:18446744073709551615",
        "seed=9223372036854775807",
    ] {
        let (rows, folder) = run(&sandbox, &["--set", set]);
        assert!(rows.iter().all(|r| r.passages.iter().all(|p| p.score.is_finite())), "{set}");
        let finite = |r: &TraceRow| {
            r.matches.iter().all(|m| m.score.is_finite() && m.weight.is_finite())
                && r.seeds.iter().all(|s| s.score.is_finite())
        };
        assert!(rows.iter().all(finite), "{set}");
        works(&sandbox, &["report", &folder]);
    }
}
