//! Datasets with one oddity each.

use super::*;
use crate::dataset::texts::estimate_tokens;
use crate::dataset::vectors::{VectorTable, write};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(questions: &str, chunks: &str) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.file("questions.json", questions);
        folder.file("chunks.json", chunks);
        folder
    }

    fn file(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }

    fn vectors(&self, kind: TextKind, encoder: &str, rows: &[(&str, [f32; 2])]) {
        let path = kind.vector_file(self.0.path());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let table = VectorTable {
            encoder: encoder.into(),
            truncated_at_tokens: Some(384),
            dim: 2,
            texts: rows.iter().map(|(t, _)| (*t).to_owned()).collect(),
            data: rows.iter().flat_map(|(_, v)| *v).collect(),
        };
        write(&path, &table).unwrap();
    }

    fn inspect(&self) -> Inspection {
        inspect(&Dataset::open(self.0.path()).unwrap()).unwrap()
    }
}

fn text<'a>(inspection: &'a Inspection, code: &str) -> &'a str {
    inspection.findings.iter().find(|n| n.code == code).map_or("", |n| n.text.as_str())
}

const ONE: &str = r#"[{"question": "Who?", "answer": "Ann"}]"#;

#[test]
fn contents() {
    let questions = r#"[{"id": "a", "question": "Who?", "answer": "The"}, {"id": "b", "question": "Who?", "answer": "+"},
        {"id": "c", "question": " ", "answer": ""}, {"id": "d", "question": "Is it?", "answer": "Yes", "question_type": "t"},
        {"id": "e", "question": "Then?", "answer": ["12", "twelve"], "question_type": "t"}]"#;
    let seen = Folder::new(questions, r##"["0:play ##ing", "1:b # C##x ##", "1:b # C##x ##", "", "4: x"]"##).inspect();
    assert_eq!(
        text(&seen, "duplicate_passage").split(';').next().unwrap(),
        "1 of 5 passages repeat the text of an earlier one, first passage 2"
    );
    assert!(text(&seen, "empty_passage").starts_with("1 of 5 passages hold no text, first passage 3"));
    assert!(text(&seen, "word_pieces").starts_with("1 of 5 passages hold word pieces"));
    assert!(text(&seen, "already_prefixed").starts_with("3 of 5 passages already start with their own number"));
    assert!(text(&seen, "already_prefixed").ends_with("index.passage_prefix = \"none\" keeps it once"));
    assert_eq!(text(&seen, "duplicate_question"), "1 of 5 questions repeat the text of an earlier one, first b");
    assert_eq!(text(&seen, "empty_question"), "1 of 5 questions hold no text, first c");
    assert!(text(&seen, "empty_answer").contains("1 of 5 questions"));
    // Pitfall 24: "The" and "+" would hit everything.
    assert_eq!(
        text(&seen, "gold_normalises_to_nothing"),
        "2 of 5 questions have a gold answer that normalises to nothing, first a with \"The\"; it never counts as a hit"
    );
    assert!(text(&seen, "no_gold").starts_with("the data names no gold passages"));
    assert_eq!(seen.questions.categories, [("t".to_owned(), 2)]);
    let answers = seen.questions.answers;
    assert_eq!((answers.empty, answers.yes_no, answers.with_aliases), (1, 1, 1));
    // Lengths 12, 13, 13, 0, 4.
    assert_eq!(seen.passages.characters, Lengths { min: 0, median: 12, mean: 8.4, max: 13 });
}

#[test]
fn gold_neighbours_are_measured() {
    let folder = tempfile::tempdir().unwrap();
    let record = |a: &str, b: &str, c: &str| {
        format!(
            r#"{{"question": "{a}?", "answer": "x", "supporting_facts": [["{a}", 0], ["{b}", 0], ["{c}", 1]],
                "context": [["{a}", ["x"]], ["{b}", ["y"]], ["m{a}", ["z"]], ["n{a}", ["w"]], ["o{a}", ["w"]], ["p{a}", ["w"]], ["{c}", ["v"]]]}}"#
        )
    };
    let file = format!("[{}, {}]", record("a", "b", "c"), record("d", "e", "f"));
    std::fs::write(folder.path().join("dev.json"), file).unwrap();
    let dataset = Dataset::open(folder.path()).unwrap();
    // Passages a b ma na oa pa c | d e md nd od pd f; gold {0, 1, 6} and {7, 8, 13}: pairs 3 + 3, neighbours 1 + 1.
    let seen = inspect(&dataset).unwrap();
    assert_eq!(dataset.passages.len(), 14);
    assert_eq!(
        seen.questions.gold_pairs,
        Some(GoldPairs { pairs: 6, neighbours: 2, share: 2.0 / 6.0, by_chance: 2.0 / 14.0 })
    );
    assert!(
        text(&seen, "corpus_order").starts_with("2 of 6 pairs of gold passages of one question (33.3 %) are corpus")
    );
    assert_eq!(seen.questions.gold_sizes, [(3, 2)]);
}

#[test]
fn missing_files_are_told() {
    let seen = Folder::new(ONE, r#"["a"]"#).inspect();
    assert!(text(&seen, "missing_annotations").contains("index.annotations = \"none\""));
    assert!(text(&seen, "missing_question_entities").starts_with("question_entities.jsonl is not there"));
    assert_eq!(
        text(&seen, "missing_vectors"),
        "embeddings/ has no file for passages, questions: these texts have no vectors"
    );
    assert!(
        seen.readiness.starts_with("cannot be built yet: vectors of passages, vectors of questions, annotations.jsonl")
    );
    assert_eq!(seen.passage_prefix, "unknown");
}

#[test]
fn annotations_tell_which_prefix_they_were_made_with() {
    let folder = Folder::new(ONE, r#"["Ann is in.", "it rained."]"#);
    let annotations = |start: usize| {
        format!(
            "{{\"passage\": 0, \"sentences\": [{{\"start\": {start}, \"end\": {}, \"entities\": [{{\"text\": \"Ann\", \
             \"label\": \"PERSON\", \"start\": {start}, \"end\": {}}}]}}]}}\n{{\"passage\": 1, \"sentences\": []}}\n",
            start + 10,
            start + 3
        )
    };
    folder.file("annotations.jsonl", &annotations(2));
    folder.file("question_entities.jsonl", "{\"question\": 0, \"entities\": []}");
    let seen = folder.inspect();
    assert_eq!(seen.passage_prefix, "index");
    assert_eq!(
        seen.annotations,
        Some(AnnotationSummary { mentions: 1, entities: 1, sentences: 1, passages_without: 1 })
    );
    assert_eq!(seen.question_entities, Some(QuestionEntitySummary { entities: 0, questions_without: 1 }));
    assert!(
        text(&seen, "passage_without_entities").starts_with("1 of 2 passages hold no entity; they stay retrievable")
    );
    assert_eq!(
        text(&seen, "question_without_entities"),
        "1 of 1 questions (100.0 %) hold no entity and fall back to dense cosine"
    );

    folder.file("annotations.jsonl", &annotations(0));
    let seen = folder.inspect();
    assert_eq!(seen.passage_prefix, "none");
    assert!(text(&seen, "annotations_without_prefix").contains("index.passage_prefix = \"none\""));

    folder.file("annotations.jsonl", &annotations(1));
    assert!(text(&folder.inspect(), "annotations_unusable").contains("entity \"Ann\" is said to stand at 1..4"));

    // Pitfall 3, the reading side: a corpus without any entity is legal and told.
    folder.file("annotations.jsonl", "{\"passage\": 0, \"sentences\": []}\n{\"passage\": 1, \"sentences\": []}");
    let seen = folder.inspect();
    assert!(text(&seen, "no_entities").ends_with("every question will be ranked by dense cosine"));
    assert_eq!(seen.annotations.unwrap().passages_without, 2);
}

#[test]
fn vectors_are_compared_with_what_an_index_needs() {
    let long = "word ".repeat(400);
    let folder = Folder::new(ONE, &format!(r#"["a", "b", "{long}"]"#));
    folder.vectors(TextKind::Passages, "e", &[("1:b", [1.0, 0.0]), (&format!("2:{long}"), [0.0, 1.0])]);
    folder.vectors(TextKind::Questions, "f", &[("Who?", [1.0, 0.0]), ("Else?", [1.0, 0.0])]);
    let seen = folder.inspect();
    assert_eq!(seen.passage_prefix, "index");
    assert_eq!(
        text(&seen, "text_without_vector"),
        "embeddings/passages.parquet: 1 of 3 texts have no vector, first \"0:a\""
    );
    // Pitfall 10: cut texts are counted.
    assert_eq!(
        text(&seen, "text_cut"),
        "embeddings/passages.parquet: about 1 of 2 texts (50.0 %, estimated) are longer than the encoder's 384 tokens and \
         were cut there"
    );
    // Pitfall 9: constant vectors.
    assert_eq!(
        text(&seen, "constant_vectors"),
        "embeddings/questions.parquet: all 2 vectors are equal, so similarity says nothing there"
    );
    assert_eq!(text(&seen, "encoder_mismatch"), "the vector files are of different encoders: e (2 wide), f (2 wide)");
    let rows: Vec<_> = seen.vectors.iter().map(|v| (v.kind.as_str(), v.rows, v.needed, v.missing)).collect();
    assert_eq!(rows, [("passages", 2, Some(3), 1), ("questions", 2, Some(1), 0)]);

    folder.file("embeddings/questions.parquet", "no");
    let seen = folder.inspect();
    assert!(text(&seen, "vectors_unusable").contains("questions.parquet cannot be read as Parquet"));
    assert_eq!(text(&seen, "missing_vectors"), "");
}

#[test]
fn the_text_form_has_everything() {
    let folder = Folder::new(
        r#"[{"id": "2hop__1_2", "question": "Who?", "answer": "Ann"}, {"id": "2hop__2_3", "question": "Where?", "answer": "x"}]"#,
        r#"["Ann."]"#,
    );
    folder.file("dataset.toml", "name = \"small\"\nkind = \"linearrag\"\nlicence = \"MIT\"");
    folder.vectors(TextKind::Passages, "e", &[("0:Ann.", [1.0, 0.0])]);
    let text = folder.inspect().to_string();
    for part in [
        "dataset           small (linearrag) in ",
        "licence           MIT\n",
        "passages          1, 0 with a title, 4 to 4 characters, median 4, mean 4\n",
        "categories        2hop 2\n",
        "gold passages     known for 0 of 2 questions (0.0 %)\n",
        "clusters          1 by shared hops, coverage 100.0 %, mean size 2.0, largest 2\n",
        "encoder           e, 2 numbers\n",
        "vectors           passages: for 1 of 1 texts, none over 384 tokens\n",
        "index             cannot be built yet: vectors of questions, annotations.jsonl, question_entities.jsonl, vectors of ",
        "findings\n  no_gold: ",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let json = serde_json::to_value(folder.inspect()).unwrap();
    assert_eq!(json["questions"]["clusters"]["max_size"], 2);
    assert_eq!(json["vectors"][0]["kind"], "passages");
}

#[test]
fn tokens_are_estimated() {
    // [CLS] and [SEP]; "don't" is don ' t; 9 letters are two pieces; an ideograph is one.
    assert_eq!(estimate_tokens(""), 2);
    assert_eq!(estimate_tokens("I don't"), 6);
    assert_eq!(estimate_tokens("ninechars 東京"), 6);
}
