//! Bad input, through the commands a user would type: one clear error each, exit code 2, and every file as it was before.
//!
//! Snapshots hold exit code and both streams; refresh them with `INSTA_UPDATE=always cargo test --test cli_bad_input`.
//! Wrong arguments and configurations are in `cli_errors.rs`.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use insta::assert_snapshot;
use support::Sandbox;
use support::small::Small;

/// A sandbox with the small dataset in `data` and a configuration of it in `run.toml`.
fn sandbox(small: &Small) -> Sandbox {
    let sandbox = Sandbox::new();
    small.write(&sandbox, "data");
    sandbox.write("run.toml", "method = \"linear\"\n[dataset]\npath = \"data\"\n");
    sandbox
}

fn plain() -> Sandbox {
    sandbox(&Small::default())
}

/// Every file below the sandbox with its bytes.
fn state(sandbox: &Sandbox) -> BTreeMap<String, Vec<u8>> {
    sandbox.files().into_iter().map(|name| (name.clone(), fs::read(sandbox.path().join(name)).unwrap())).collect()
}

/// Runs the command and checks that it was refused and that no file was made, changed or removed.
fn refused(sandbox: &Sandbox, args: &[&str]) -> String {
    let before = state(sandbox);
    let out = without_hashes(&sandbox.run(args));
    assert!(out.starts_with("exit code: 2\n----- stdout -----\n----- stderr -----\n"), "{args:?}: {out}");
    assert_eq!(out.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{args:?}: {out}");
    let after = state(sandbox);
    assert!(after.keys().eq(before.keys()), "{args:?} left {:?}, before {:?}", after.keys(), before.keys());
    assert!(after == before, "{args:?} changed a file");
    out
}

/// Runs the command and checks that it worked; what it printed on standard output, without the newline.
fn works(sandbox: &Sandbox, args: &[&str]) -> String {
    let output = sandbox.output(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// Hashes of 12 digits and more say nothing to a reader of a snapshot.
fn without_hashes(text: &str) -> String {
    let hash = regex::Regex::new(r"\b[0-9a-f]{12,64}\b").unwrap();
    hash.replace_all(text, "[HASH]").into_owned()
}

/// Replaces `from` by `to` once in a text file.
fn edit(sandbox: &Sandbox, file: &str, from: &str, to: &str) {
    let path = sandbox.path().join(file);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{file} does not hold {from}");
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

/// Changes one byte in the middle of a file.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

const INDEX: [&str; 4] = ["index", "data", "--out", "index"];
const RETRIEVE: [&str; 5] = ["retrieve", "--index", "index", "--out", "out.parquet"];

// ---- the dataset folder ----

#[test]
fn a_missing_dataset_folder() {
    let empty = Sandbox::new();
    assert_snapshot!(refused(&empty, &["dataset", "inspect", "data"]));
    let same = refused(&empty, &["dataset", "inspect", "data"]);
    for args in [&["index", "data"][..], &["dataset", "texts", "data"]] {
        assert_eq!(refused(&empty, args), same);
    }
    empty.write("run.toml", "[dataset]\npath = \"data\"\n");
    assert_eq!(refused(&empty, &["run", "run.toml"]), same);
}

#[test]
fn a_file_for_a_dataset_folder() {
    assert_snapshot!(refused(&plain(), &["index", "data/chunks.json"]));
}

#[test]
fn a_folder_without_json_files() {
    let sandbox = Sandbox::new();
    sandbox.write("data/readme.txt", "nothing here");
    assert_snapshot!(refused(&sandbox, &["dataset", "inspect", "data"]));
}

#[test]
fn a_folder_of_other_json_files() {
    let sandbox = Sandbox::new();
    sandbox.write("data/package.json", r#"{"name": "x"}"#).write("data/tsconfig.json", "{}");
    assert_snapshot!(refused(&sandbox, &["index", "data"]));
}

#[test]
fn questions_without_a_corpus() {
    let sandbox = plain();
    fs::remove_file(sandbox.path().join("data/chunks.json")).unwrap();
    assert_snapshot!(refused(&sandbox, &["index", "data"]));
}

#[test]
fn an_unknown_kind() {
    let sandbox = plain();
    sandbox.write("data/dataset.toml", "kind = \"linear-rag\"\n");
    assert_snapshot!(refused(&sandbox, &["index", "data"]));
}

#[test]
fn a_kind_without_its_files() {
    let sandbox = plain();
    sandbox.write("data/dataset.toml", "kind = \"hipporag\"\n");
    assert_snapshot!(refused(&sandbox, &["index", "data"]));
}

#[test]
fn a_kind_of_another_shape() {
    let sandbox = plain();
    sandbox.write("data/dataset.toml", "kind = \"2wiki\"\nquestions = \"questions.json\"\n");
    assert_snapshot!(refused(&sandbox, &["index", "data"]));
}

#[test]
fn a_named_file_that_is_missing() {
    let sandbox = plain();
    sandbox.write("data/dataset.toml", "kind = \"linearrag\"\ncorpus = \"chunk.json\"\n");
    assert_snapshot!(refused(&sandbox, &["index", "data"]));
}

#[test]
fn an_unknown_key_in_dataset_toml() {
    let sandbox = plain();
    sandbox.write("data/dataset.toml", "name = \"mine\"\ncorpsu = \"chunks.json\"\n");
    assert_snapshot!(refused(&sandbox, &["index", "data"]));
}

#[test]
fn a_syntax_error_in_dataset_toml() {
    let sandbox = plain();
    sandbox.write("data/dataset.toml", "name = \"mine\"\nkind = linearrag\n");
    assert_snapshot!(refused(&sandbox, &["index", "data"]));
}

// ---- questions and passages ----

#[test]
fn invalid_json_in_questions() {
    let sandbox = plain();
    sandbox.write("data/questions.json", "[\n  {\"question\": \"Who?\", \"answer\": \"Ann\"},\n  {\"question\": }\n]");
    assert_snapshot!(refused(&sandbox, &["index", "data"]));
}

#[test]
fn passages_that_were_cut_off() {
    let sandbox = plain();
    sandbox.write("data/chunks.json", "[\n  \"It rained.\",\n  \"Then it sto");
    assert_snapshot!(refused(&sandbox, &["dataset", "inspect", "data"]));
}

#[test]
fn invalid_json_in_a_line() {
    let sandbox = Sandbox::new();
    let good = r#"{"id": "a", "question": "Who?", "answer": "Ann", "question_decomposition": []}"#;
    sandbox.write("data/dev.jsonl", format!("{good}\n{{\"id\": \"b\", \"question\": Who?}}\n"));
    assert_snapshot!(refused(&sandbox, &["dataset", "inspect", "data"]));
}

#[test]
fn a_passage_that_is_no_text() {
    let sandbox = plain();
    sandbox.write("data/chunks.json", r#"["It rained.", {"text": "Then it stopped."}]"#);
    assert_snapshot!(refused(&sandbox, &["index", "data"]));
}

#[test]
fn a_question_without_its_text() {
    let sandbox = plain();
    sandbox.write("data/questions.json", r#"[{"id": "a", "query": "Who?", "answer": "Ann"}]"#);
    assert_snapshot!(refused(&sandbox, &["index", "data"]));
}

#[test]
fn a_file_in_another_encoding() {
    let sandbox = plain();
    sandbox.write("data/chunks.json", b"[\n\"caf\xE9\"\n]");
    assert_snapshot!(refused(&sandbox, &["index", "data"]));
}

#[test]
fn no_question() {
    let sandbox = plain();
    sandbox.write("data/questions.json", "[]");
    assert_snapshot!(refused(&sandbox, &["index", "data"]));
}

#[test]
fn no_passage() {
    let sandbox = plain();
    sandbox.write("data/chunks.json", "[]").write("data/annotations.jsonl", "");
    assert_snapshot!(refused(&sandbox, &INDEX));
}

/// A bare stream of questions can be inspected, and that is all.
#[test]
fn musique_without_paragraphs() {
    let sandbox = Sandbox::new();
    let line = r#"{"id": "2hop__1_2", "question": "Who?", "answer": "Ann", "question_decomposition": []}"#;
    sandbox.write("data/dev.jsonl", format!("{line}\n"));
    assert_snapshot!(refused(&sandbox, &INDEX));
    assert!(works(&sandbox, &["dataset", "inspect", "data"]).contains("no_passages: "));
}

// ---- annotations ----

#[test]
fn missing_annotations() {
    let sandbox = plain();
    fs::remove_file(sandbox.path().join("data/annotations.jsonl")).unwrap();
    assert_snapshot!(refused(&sandbox, &["dataset", "texts", "data"]));
}

#[test]
fn an_annotation_past_the_end_of_its_text() {
    let sandbox = plain();
    edit(
        &sandbox,
        "data/annotations.jsonl",
        r#""text":"London","label":"PERSON","start":30,"end":36"#,
        r#""text":"London","label":"PERSON","start":98,"end":104"#,
    );
    assert_snapshot!(refused(&sandbox, &INDEX));
}

#[test]
fn a_question_entity_past_the_end_of_its_text() {
    let sandbox = plain();
    edit(&sandbox, "data/question_entities.jsonl", r#""end":22"#, r#""end":222"#);
    assert_snapshot!(refused(&sandbox, &INDEX));
}

/// Annotated without `"{i}:"` before each passage, and indexed with it: every offset is two too small.
#[test]
fn annotations_without_the_prefix() {
    let small = Small { prefix: false, ..Small::default() };
    assert_snapshot!(refused(&sandbox(&small), &INDEX));
}

/// Annotated with `"{i}:"` before each passage, and indexed without it.
#[test]
fn annotations_with_a_prefix_too_many() {
    assert_snapshot!(refused(&plain(), &["index", "data", "--set", "index.passage_prefix=none"]));
}

#[test]
fn annotations_that_end_early() {
    let sandbox = plain();
    let path = sandbox.path().join("data/annotations.jsonl");
    let three: String = fs::read_to_string(&path).unwrap().split_inclusive('\n').take(3).collect();
    fs::write(path, three).unwrap();
    assert_snapshot!(refused(&sandbox, &INDEX));
}

#[test]
fn annotations_out_of_order() {
    let sandbox = plain();
    edit(&sandbox, "data/annotations.jsonl", r#""passage":2"#, r#""passage":1"#);
    assert_snapshot!(refused(&sandbox, &INDEX));
}

#[test]
fn invalid_json_in_annotations() {
    let sandbox = plain();
    edit(&sandbox, "data/annotations.jsonl", r#"{"passage":1,"#, r#"{"passage":1;"#);
    assert_snapshot!(refused(&sandbox, &INDEX));
}

#[test]
fn an_unknown_field_in_annotations() {
    let sandbox = plain();
    edit(&sandbox, "data/annotations.jsonl", r#""label""#, r#""type""#);
    assert_snapshot!(refused(&sandbox, &INDEX));
}

// ---- vectors ----

#[test]
fn a_missing_vector_file() {
    let sandbox = plain();
    fs::remove_file(sandbox.path().join("data/embeddings/entities.parquet")).unwrap();
    assert_snapshot!(refused(&sandbox, &INDEX));
}

#[test]
fn a_vector_file_that_is_no_parquet() {
    let sandbox = plain();
    sandbox.write("data/embeddings/questions.parquet", "text,vector\n");
    assert_snapshot!(refused(&sandbox, &INDEX));
}

#[test]
fn vectors_of_another_width() {
    let sandbox = plain();
    let wide = Small { dim: 6, ..Small::default() };
    wide.write_vectors_of(&sandbox.path().join("data"), "entities", wide.names.clone());
    assert_snapshot!(refused(&sandbox, &INDEX));
}

#[test]
fn vectors_of_two_encoders() {
    let sandbox = plain();
    let other = Small { encoder: "other-encoder".into(), ..Small::default() };
    other.write_vectors_of(&sandbox.path().join("data"), "entities", other.names.clone());
    assert_snapshot!(refused(&sandbox, &INDEX));
}

#[test]
fn a_text_without_a_vector() {
    let sandbox = plain();
    let small = Small::default();
    small.write_vectors_of(&sandbox.path().join("data"), "entities", small.names[1..].to_vec());
    assert_snapshot!(refused(&sandbox, &INDEX));
}

#[test]
fn a_vector_that_is_not_finite() {
    let sandbox = plain();
    let path = sandbox.path().join("data/embeddings/entities.parquet");
    let mut table = livingrag::dataset::vectors::read(&path).unwrap();
    table.data[5] = f32::NAN;
    livingrag::dataset::vectors::write(&path, &table).unwrap();
    assert_snapshot!(refused(&sandbox, &INDEX));
}

// ---- index folders ----

#[test]
fn an_index_folder_that_holds_something_else() {
    let sandbox = plain();
    sandbox.write("index/notes.txt", "mine");
    assert_snapshot!(refused(&sandbox, &INDEX));
}

#[test]
fn an_index_folder_that_holds_another_index() {
    let sandbox = plain();
    works(&sandbox, &INDEX);
    assert_snapshot!(refused(&sandbox, &["index", "data", "--out", "index", "--set", "index.adjacent_passages=none"]));
}

#[test]
fn a_file_where_the_index_folder_should_be() {
    let sandbox = plain();
    assert_snapshot!(refused(&sandbox, &["index", "data", "--out", "run.toml"]));
}

#[test]
fn a_folder_that_is_no_index() {
    assert_snapshot!(refused(&plain(), &["retrieve", "--index", "data", "--out", "out.parquet"]));
}

/// pitfall 8: each file of the index carries a hash, so one changed byte is found before anything is ranked with it.
#[test]
fn a_damaged_index() {
    for file in ["graph.safetensors", "vectors.safetensors", "texts.json"] {
        let sandbox = plain();
        works(&sandbox, &INDEX);
        flip(&sandbox.path().join("index").join(file));
        let out = refused(&sandbox, &RETRIEVE);
        assert!(out.contains(&format!("error: index/{file} is damaged\n")), "{out}");
        if file == "graph.safetensors" {
            assert_snapshot!(out);
        }
    }
}

#[test]
fn an_index_description_that_was_cut_off() {
    let sandbox = plain();
    works(&sandbox, &INDEX);
    let path = sandbox.path().join("index/index.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(path, &text[..text.len() / 2]).unwrap();
    assert_snapshot!(refused(&sandbox, &RETRIEVE));
}

/// The description has no hash of its own, so it is compared with the files it describes.
#[test]
fn an_index_description_that_was_changed() {
    for (from, to) in [
        ("\"dim\": 4,", "\"dim\": 5,"),
        ("\"dim\": 4,", "\"dim\": 2,"),
        ("\"dim\": 4,", "\"dim\": 0,"),
        ("\"passages\": 5,", "\"passages\": 6,"),
        ("\"entities\": 4,", "\"entities\": 5,"),
        ("\"edges\": 12,", "\"edges\": 11,"),
    ] {
        let sandbox = plain();
        works(&sandbox, &INDEX);
        edit(&sandbox, "index/index.json", from, to);
        let out = refused(&sandbox, &RETRIEVE);
        assert!(out.contains("error: index/index.json is damaged\n"), "{to}: {out}");
    }
}

#[test]
fn an_index_with_a_file_missing() {
    let sandbox = plain();
    works(&sandbox, &INDEX);
    fs::remove_file(sandbox.path().join("index/vectors.safetensors")).unwrap();
    assert_snapshot!(refused(&sandbox, &RETRIEVE));
}

#[test]
fn an_index_of_another_version() {
    let sandbox = plain();
    works(&sandbox, &INDEX);
    edit(&sandbox, "index/index.json", "\"version\": 1,", "\"version\": 99,");
    assert_snapshot!(refused(&sandbox, &RETRIEVE));
}

/// A run on `data` with the index in `index`.
const RUN_ON_INDEX: [&str; 5] = ["run", "run.toml", "--set", "index.path=index", "--quiet"];

/// pitfall 8: an index of another corpus; both are named.
#[test]
fn an_index_of_another_corpus() {
    let sandbox = plain();
    let other = Small::default().with_passages(&["Charles Babbage lived in London.", "Ada Lovelace knew Turin."]);
    other.write(&sandbox, "other");
    works(&sandbox, &["index", "other", "--out", "index"]);
    assert_snapshot!(refused(&sandbox, &RUN_ON_INDEX));
}

/// pitfall 8: index with encoder A, query with encoder B; both are named.
#[test]
fn an_index_of_another_encoder() {
    let sandbox = plain();
    works(&sandbox, &INDEX);
    let other = Small { encoder: "other-encoder".into(), ..Small::default() };
    other.write_vectors(&sandbox.path().join("data"));
    assert_snapshot!(refused(&sandbox, &RUN_ON_INDEX));
}

/// pitfall 8: an index made with other options; both values are named.
#[test]
fn an_index_of_other_options() {
    let sandbox = plain();
    works(&sandbox, &["index", "data", "--out", "index", "--set", "index.adjacent_passages=none"]);
    assert_snapshot!(refused(&sandbox, &RUN_ON_INDEX));
}

/// pitfall 8: an index whose annotations have changed since.
#[test]
fn an_index_of_older_annotations() {
    let sandbox = plain();
    works(&sandbox, &INDEX);
    edit(&sandbox, "data/annotations.jsonl", "PERSON", "GPE");
    assert_snapshot!(refused(&sandbox, &RUN_ON_INDEX));
}

// ---- retrieve ----

#[test]
fn an_output_file_that_exists() {
    let sandbox = plain();
    works(&sandbox, &INDEX);
    works(&sandbox, &RETRIEVE);
    assert_snapshot!(refused(&sandbox, &RETRIEVE));
}

#[test]
fn an_output_file_in_no_folder() {
    let sandbox = plain();
    works(&sandbox, &INDEX);
    assert_snapshot!(refused(&sandbox, &["retrieve", "--index", "index", "--out", "no/such/out.parquet"]));
}

#[test]
fn length_normalisation_without_lengths() {
    let sandbox = plain();
    works(&sandbox, &INDEX);
    let args = [&RETRIEVE[..], &["--set", "retrieve.length_b=0.1"]].concat();
    assert_snapshot!(refused(&sandbox, &args));
}

// ---- run ----

/// The folder of a finished run, relative to the sandbox.
fn finished(sandbox: &Sandbox, args: &[&str]) -> String {
    works(sandbox, &[&["run", "run.toml", "--quiet"], args].concat())
}

/// pitfall 30: the same run twice overwrites nothing.
#[test]
fn a_results_folder_with_a_finished_run() {
    let sandbox = plain();
    finished(&sandbox, &[]);
    assert_snapshot!(refused(&sandbox, &["run", "run.toml", "--quiet"]));
}

/// pitfall 26: an unfinished run is neither overwritten nor reported as if it were all.
#[test]
fn a_results_folder_with_an_unfinished_run() {
    let sandbox = plain();
    let folder = finished(&sandbox, &[]);
    fs::remove_file(sandbox.path().join(&folder).join("manifest.json")).unwrap();
    assert_snapshot!(refused(&sandbox, &["run", "run.toml", "--quiet"]));
    let partial = refused(&sandbox, &["report", &folder]);
    assert_snapshot!("report_on_an_unfinished_run", partial);
}

#[test]
fn a_file_where_the_results_folder_should_be() {
    assert_snapshot!(refused(&plain(), &["run", "run.toml", "--out", "run.toml", "--quiet"]));
}

#[test]
fn a_results_folder_that_cannot_be_written() {
    use std::os::unix::fs::PermissionsExt;

    let sandbox = plain();
    let locked = sandbox.path().join("locked");
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o555)).unwrap();
    if fs::write(locked.join("probe"), "").is_ok() {
        println!("skipped: this user may write everywhere");
        return;
    }
    let out = refused(&sandbox, &["run", "run.toml", "--out", "locked", "--quiet"]);
    assert!(out.contains("error: cannot create locked/indexes\n"), "{out}");
}

#[test]
fn a_recording_that_is_missing() {
    let args = ["run", "run.toml", "--set", "generate.kind=recorded", "--set", "generate.model=answers.jsonl"];
    assert_snapshot!(refused(&plain(), &args));
}

#[test]
fn a_recording_with_an_invalid_line() {
    let sandbox = plain();
    sandbox.write("answers.jsonl", "{\"key\": 1}\n{}\n");
    let args = ["run", "run.toml", "--set", "generate.kind=recorded", "--set", "generate.model=answers.jsonl"];
    assert_snapshot!(refused(&sandbox, &args));
}

#[test]
fn a_prompt_file_of_another_shape() {
    let sandbox = plain();
    sandbox.write("prompt.toml", "system = \"Answer.\"\n");
    assert_snapshot!(refused(&sandbox, &["run", "run.toml", "--set", "generate.prompt=prompt.toml"]));
}

#[test]
fn template_vectors_that_are_not_there() {
    let sandbox = plain();
    works(&sandbox, &INDEX);
    let more = ["--set", "method=living", "--set", "experience.template_similarity=embedding"];
    assert_snapshot!(refused(&sandbox, &[&RUN_ON_INDEX[..], &more].concat()));
}

// ---- report and compare ----

#[test]
fn a_report_on_nothing() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path().join("results")).unwrap();
    assert_snapshot!(refused(&sandbox, &["report", "results"]));
    assert_snapshot!("a_report_on_a_missing_folder", refused(&sandbox, &["report", "resutls"]));
}

#[test]
fn a_report_on_a_file_that_is_no_trace() {
    let sandbox = plain();
    assert_snapshot!(refused(&sandbox, &["report", "data/chunks.json"]));
}

#[test]
fn a_report_on_a_trace_that_is_no_parquet() {
    let sandbox = plain();
    let folder = finished(&sandbox, &[]);
    sandbox.write(&format!("{folder}/traces.parquet"), "query_id,answer\n");
    assert_snapshot!(refused(&sandbox, &["report", &folder]));
}

#[test]
fn a_report_on_a_damaged_manifest() {
    let sandbox = plain();
    let folder = finished(&sandbox, &[]);
    sandbox.write(&format!("{folder}/manifest.json"), "{");
    assert_snapshot!(refused(&sandbox, &["report", &folder]));
}

#[test]
fn a_report_on_the_same_run_twice() {
    let sandbox = plain();
    let folder = finished(&sandbox, &[]);
    for file in ["traces.parquet", "manifest.json"] {
        let bytes = fs::read(sandbox.path().join(&folder).join(file)).unwrap();
        sandbox.write(&format!("copy/{file}"), bytes);
    }
    assert_snapshot!(refused(&sandbox, &["report", &folder, "copy"]));
}

/// pitfall 38: runs of different datasets are not comparable.
#[test]
fn a_comparison_over_two_datasets() {
    let sandbox = plain();
    Small::default().with_questions(&[("q1", "Who was born in London?", "Ada Lovelace")]).write(&sandbox, "other");
    let (a, b) = (finished(&sandbox, &[]), finished(&sandbox, &["--set", "dataset.path=other"]));
    assert_snapshot!(refused(&sandbox, &["compare", &a, &b]));
}

/// pitfall 38: a question that one run has not answered is named, and nothing is compared without it.
#[test]
fn a_comparison_with_a_question_missing() {
    let sandbox = plain();
    let (a, b) = (finished(&sandbox, &[]), finished(&sandbox, &["--set", "replay.limit=3"]));
    assert_snapshot!(refused(&sandbox, &["compare", &a, &b]));
}

#[test]
fn a_comparison_with_a_folder_of_runs() {
    let sandbox = plain();
    let a = finished(&sandbox, &[]);
    finished(&sandbox, &["--set", "method=vanilla"]);
    assert_snapshot!(refused(&sandbox, &["compare", "results", &a]));
}
