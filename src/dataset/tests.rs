//! Small datasets of every kind, written here, read back.

use std::path::Path;

use tempfile::TempDir;

use super::*;

fn folder(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

fn open(files: &[(&str, &str)]) -> Result<Dataset> {
    Dataset::open(folder(files).path())
}

fn texts(dataset: &Dataset) -> Vec<&str> {
    dataset.passages.iter().map(|p| p.text.as_str()).collect()
}

fn gold(dataset: &Dataset) -> Vec<Option<Vec<u32>>> {
    dataset.questions.iter().map(|q| q.gold_passages.as_ref().map(|g| g.iter().map(|p| p.0).collect())).collect()
}

fn codes(dataset: &Dataset) -> Vec<&str> {
    dataset.notes.iter().map(|n| n.code).collect()
}

/// The message without the temporary folder's path.
fn message(files: &[(&str, &str)]) -> String {
    let dir = folder(files);
    let error = Dataset::open(dir.path()).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    error.report().replace(&dir.path().display().to_string(), "DIR")
}

#[test]
fn linearrag_is_recognised_and_equal_passages_stay_apart_pitfall_5() {
    let files = [
        (
            "questions.json",
            r#"[{"id": "x", "question": "Who?", "answer": "A", "question_type": "t", "evidence": "", "source": "s"},
                {"question": "What?", "answer": ["B", "b"], "evidence": ["e"]}]"#,
        ),
        ("chunks.json", r#"["a", "b", "a"]"#),
    ];
    let dataset = open(&files).unwrap();
    assert_eq!(dataset.kind, Kind::LinearRag);
    assert_eq!(texts(&dataset), ["a", "b", "a"]);
    assert_eq!(dataset.passage_texts(true), ["0:a", "1:b", "2:a"]);
    assert_eq!(gold(&dataset), [None, None]);
    assert_eq!((dataset.questions[1].id.as_str(), &dataset.questions[1].aliases[..]), ("q1", &["b".to_owned()][..]));
    assert_eq!(dataset.questions[0].category.as_deref(), Some("t"));
    assert!(dataset.notes.is_empty());
}

#[test]
fn hipporag_in_the_musique_shape_finds_gold_by_title_and_text() {
    let dataset = open(&[
        (
            "m_corpus.json",
            r#"[{"title": "T", "text": "one"}, {"title": "T", "text": "two"}, {"title": "U", "text": "three"}]"#,
        ),
        (
            "m.json",
            r#"[{"id": "2hop__1_2", "question": "?", "answer": "a", "paragraphs": [
                    {"title": "U", "text": "three", "is_supporting": true, "idx": 0},
                    {"title": "T", "paragraph_text": "two", "is_supporting": true, "idx": 1},
                    {"title": "T", "paragraph_text": "one", "is_supporting": false, "idx": 2}]},
                {"id": "2hop__2_3", "question": "?", "answer": "a", "paragraphs": [
                    {"title": "U", "text": "three", "is_supporting": true, "idx": 0},
                    {"title": "V", "text": "four", "is_supporting": true, "idx": 1}]},
                {"id": "2hop__4_5", "question": "?", "answer": "a"}]"#,
        ),
    ])
    .unwrap();
    assert_eq!(dataset.kind, Kind::HippoRag);
    assert_eq!(texts(&dataset), ["T\none", "T\ntwo", "U\nthree"]);
    assert_eq!(dataset.passages[0].title.as_deref(), Some("T"));
    assert_eq!(gold(&dataset), [Some(vec![1, 2]), None, None]);
    assert_eq!(
        dataset.notes[0].text,
        "m.json: 1 of 3 questions have a gold passage that is not in the corpus, so their gold passages are unknown, first \
         \"V\" of question 2hop__2_3"
    );
    assert_eq!(dataset.questions[0].hops, ["1", "2"]);
}

#[test]
fn hipporag_in_the_hotpotqa_shape_finds_gold_by_title() {
    // One title stands for two passages: the question's own context tells which, white space aside; without it, unknown.
    let dataset = open(&[
        ("h_corpus.json", r#"{"T": ["One.", " Two."], "U": ["Three."], "T": ["Four. Five."]}"#),
        (
            "h.json",
            r#"[{"_id": "a", "question": "?", "answer": "a", "type": "bridge", "supporting_facts": [["U", 0], ["T", 1], ["T", 0]],
                    "context": [["T", ["Four.", " Five."]], ["U", ["Three."]]]},
                {"_id": "b", "question": "?", "answer": "a", "supporting_facts": [["U", 0], ["T", 1]]},
                {"_id": "c", "question": "?", "answer": "a", "supporting_facts": [["U", 0], ["W", 1]]},
                {"_id": "d", "question": "?", "answer": "a", "supporting_facts": [["U", 0]]}]"#,
        ),
    ])
    .unwrap();
    assert_eq!(texts(&dataset), ["T\nOne. Two.", "U\nThree.", "T\nFour. Five."]);
    assert_eq!(gold(&dataset), [Some(vec![1, 2]), None, None, Some(vec![1])]);
    assert_eq!(codes(&dataset), ["gold_incomplete", "gold_ambiguous"]);
}

#[test]
fn official_hotpotqa_and_2wiki_make_a_corpus_of_their_contexts() {
    let record = |id: &str, extra: &str| {
        format!(
            r#"{{"_id": "{id}", "question": "?", "answer": "a", "type": "comparison", "level": "hard"{extra},
                "supporting_facts": [["V", 0], ["T", 1]],
                "context": [["T", ["One.", "Two."]], ["U", ["{id}"]], ["V", ["Three."]]]}}"#
        )
    };
    let hotpotqa = format!("[{}, {}]", record("a", ""), record("b", ""));
    let dataset = open(&[("dev.json", &hotpotqa)]).unwrap();
    assert_eq!(dataset.kind, Kind::HotpotQa);
    assert_eq!(texts(&dataset), ["T\nOne.Two.", "U\na", "V\nThree.", "U\nb"]);
    assert_eq!(gold(&dataset), [Some(vec![0, 2]), Some(vec![0, 2])]);

    let two_wiki = format!("[{}]", record("a", r#", "evidences": [["s", "r", "o"]]"#));
    let dataset = open(&[("dev.json", &two_wiki)]).unwrap();
    assert_eq!(dataset.kind, Kind::TwoWiki);
    assert_eq!(texts(&dataset), ["T\nOne. Two.", "U\na", "V\nThree."]);

    // A gold title that the question's own context lacks, and one that it holds twice with two texts.
    let odd = r#"[{"_id": "a", "question": "?", "answer": "", "supporting_facts": [["X", 0]], "context": [["T", ["One."]]]},
        {"_id": "b", "question": "?", "answer": "a", "supporting_facts": [["T", 0]], "context": [["T", ["One."]], ["T", ["Two."]]]}]"#;
    let dataset = open(&[("dev.json", odd)]).unwrap();
    assert_eq!(gold(&dataset), [None, None]);
    assert_eq!(codes(&dataset), ["gold_incomplete", "gold_ambiguous", "empty_answer"]);
}

#[test]
fn official_musique_with_and_without_paragraphs() {
    let paragraphs = r#""paragraphs": [{"idx": 0, "title": "T", "paragraph_text": "one", "is_supporting": false},
        {"idx": 1, "title": "U", "paragraph_text": "two", "is_supporting": true}]"#
        .replace('\n', " ");
    let line = |id: &str, paragraphs: &str, answerable: bool| {
        format!(
            r#"{{"id": "{id}", {paragraphs}"question": "?", "question_decomposition": [{{"id": 7, "question": "?", "answer": "x"}}], "answer": "x", "answer_aliases": ["y"], "answerable": {answerable}}}"#
        )
    };
    let with = format!("{paragraphs}, ");
    let text =
        [line("2hop__7_8", &with, true), line("2hop__7_8", &with, false), line("3hop1__7_8_9", "", true)].join("\r\n");
    let dataset = open(&[("dev.jsonl", &text), ("annotations.jsonl", "")]).unwrap();
    assert_eq!(dataset.kind, Kind::MuSiQue);
    assert_eq!(texts(&dataset), ["T\none", "U\ntwo"]);
    assert_eq!(gold(&dataset), [Some(vec![1]), None, None]);
    assert_eq!(dataset.questions[1].id, "2hop__7_8#2");
    assert_eq!(
        (&dataset.questions[2].hops[..], dataset.questions[2].category.as_deref()),
        (&["7".to_owned()][..], Some("3hop1"))
    );
    assert_eq!(codes(&dataset), ["unanswerable", "no_paragraphs", "duplicate_id"]);

    let bare = open(&[("dev.jsonl", &line("2hop__7_8", "", true))]).unwrap();
    assert_eq!((bare.passages.len(), bare.questions.len()), (0, 1));
}

#[test]
fn dataset_toml_names_kind_and_files() {
    let toml =
        "name = \"mine\"\nkind = \"linearrag\"\nquestions = \"q.json\"\ncorpus = \"c.json\"\nlicence = \"MIT\"\n";
    let files = [
        ("dataset.toml", toml),
        ("q.json", r#"[{"question": "?", "answer": "a"}]"#),
        ("c.json", r#"["a"]"#),
        ("other.json", "{"),
    ];
    let dataset = open(&files).unwrap();
    assert_eq!(
        (dataset.name.as_str(), dataset.licence.as_deref(), dataset.kind),
        ("mine", Some("MIT"), Kind::LinearRag)
    );

    let unnamed = [("questions.json", r#"[{"question": "?", "answer": "a"}]"#), ("chunks.json", "[]")];
    let dir = folder(&unnamed);
    let inner = dir.path().join("corpus-x");
    std::fs::create_dir(&inner).unwrap();
    for (name, _) in unnamed {
        std::fs::rename(dir.path().join(name), inner.join(name)).unwrap();
    }
    assert_eq!(Dataset::open(&inner).unwrap().name, "corpus-x");
}

#[test]
fn the_fingerprint_follows_names_and_bytes_of_questions_and_corpus() {
    let files = [("questions.json", r#"[{"question": "?", "answer": "a"}]"#), ("chunks.json", r#"["a"]"#)];
    let first = open(&files).unwrap().fingerprint;
    assert_eq!(first.len(), 64);
    assert_eq!(open(&[files[0], files[1], ("annotations.jsonl", "")]).unwrap().fingerprint, first);
    assert_ne!(open(&[files[0], ("chunks.json", r#"["b"]"#)]).unwrap().fingerprint, first);
    assert_ne!(open(&[files[0], ("chunks.json", r#"["a"] "#)]).unwrap().fingerprint, first);
}

#[test]
fn a_lone_surrogate_in_the_corpus_is_noted_pitfall_12() {
    let dataset =
        open(&[("questions.json", r#"[{"question": "?", "answer": "a"}]"#), ("chunks.json", r#"["a", "caf\udc9a"]"#)])
            .unwrap();
    assert_eq!(texts(&dataset)[1], "caf\u{fffd}");
    assert_eq!(dataset.notes[0].text, r"chunks.json: 1 lone surrogate escape replaced by U+FFFD: \udc9a in record 2");
}

#[test]
fn chunks_with_a_byte_order_mark_are_read_pitfall_11() {
    let files =
        [("questions.json", "[{\"question\": \"?\",\r\n\"answer\": \"a\"}]\r\n"), ("chunks.json", "\u{feff}[\"a\"]")];
    assert_eq!(texts(&open(&files).unwrap()), ["a"]);
}

#[test]
fn errors_say_what_is_wrong_and_what_would_cure_it() {
    let q = ("questions.json", r#"[{"question": "?", "answer": "a"}]"#);
    let c = ("chunks.json", r#"["a"]"#);
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[], "error: DIR is no dataset folder that is recognised; it holds no .json or .jsonl file"),
        (
            &[q],
            "error: DIR/questions.json is of no kind that is recognised; its first record has the fields question, answer",
        ),
        (
            &[("a.json", "[]"), ("b.json", "[]")],
            "error: DIR is no dataset folder that is recognised; it holds a.json, b.json",
        ),
        (&[("a.json", "[]")], "error: DIR/a.json is of no kind that is recognised; its first record has no fields"),
        (&[("questions.json", "[]"), c], "error: DIR/questions.json holds no question"),
        (
            &[q, ("chunks.json", r#"["a", 3]"#)],
            "error: DIR/chunks.json: record 2 is a number where a passage text belongs",
        ),
        (
            &[q, ("chunks.json", "[\"a\",\n")],
            "error: DIR/chunks.json: invalid JSON in line 2, column 0: EOF while parsing",
        ),
        (
            &[("questions.json", r#"[{"question": "?", "answer": "a"}, {"id": "z", "question": "?"}]"#), c],
            "error: DIR/questions.json: record 2 (id \"z\") has no field \"answer\"\nhint: its fields are id, question",
        ),
        (
            &[q, c, ("a.json", "[]"), ("a_corpus.json", "[]")],
            "error: DIR holds a linearrag dataset (questions.json, chunks.json) and a hipporag dataset (DIR/a.json)",
        ),
        (
            &[("a.json", "[]"), ("a_corpus.json", "[]"), ("b.json", "[]"), ("b_corpus.json", "[]")],
            "error: DIR holds more than one hipporag dataset: a.json, b.json",
        ),
        (
            &[("a.json", r#"[{"question": "?", "answer": "a"}]"#), ("a_corpus.json", r#"[{"text": "x"}]"#)],
            "error: DIR/a_corpus.json: record 1 has no field \"title\"",
        ),
        (
            &[("a.json", "[]"), ("a_corpus.json", r#"{"T": "x"}"#)],
            "error: DIR/a_corpus.json: title \"T\" holds something else than a list of sentences",
        ),
        (
            &[("a.json", "[]"), ("a_corpus.json", "3")],
            "error: DIR/a_corpus.json: unexpected JSON in line 1, column 1: invalid type: integer `3`, expected a list of",
        ),
        (
            &[q, c, ("dataset.toml", "kind = \"musique\"")],
            "error: DIR is no dataset folder that is recognised; it holds",
        ),
        (
            &[q, c, ("dataset.toml", "kind = \"hotpotqa\"\nquestions = \"questions.json\"")],
            "error: DIR/questions.json: record 1 has no field \"context\"",
        ),
        (
            &[q, c, ("dataset.toml", "kind = \"linearrag\"\nquestions = \"none.json\"")],
            "error: DIR/dataset.toml: questions = \"none.json\" names a file that does not exist\nhint: DIR holds chunks.json",
        ),
        (&[q, c, ("dataset.toml", "corpus = \"chunks.json\"")], "error: DIR/dataset.toml names files but no kind"),
        (
            &[q, c, ("dataset.toml", "kind = \"hipporag\"\ncorpus = \"chunks.json\"")],
            "error: DIR/dataset.toml: kind hipporag needs both keys",
        ),
        (
            &[q, c, ("dataset.toml", "kind = \"2wiki\"\ncorpus = \"chunks.json\"")],
            "error: DIR/dataset.toml: kind 2wiki takes its passages from the questions' own paragraphs",
        ),
    ];
    for (files, expected) in cases {
        let found = message(files);
        assert!(found.starts_with(expected), "expected {expected}\nfound    {found}");
    }
    let error = Dataset::open(Path::new("/nonexistent/x")).unwrap_err();
    assert_eq!(error.to_string(), "the dataset folder /nonexistent/x does not exist");
}
