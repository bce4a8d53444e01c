//! A dataset small enough to read: five passages and four questions in LinearRAG's shape, entities found by name, and vectors that
//! are drawn from each text's hash, so that equal texts have equal vectors and nothing else about them means anything.
//!
//! In: what should be odd about it. Out: a dataset folder in a [`Sandbox`].

use std::collections::BTreeMap;
use std::path::Path;

use livingrag::config::{IndexConfig, PassagePrefix};
use livingrag::dataset::Dataset;
use livingrag::dataset::vectors::{self, VectorTable};
use livingrag::index::{IndexOptions, build};
use serde_json::{Value, json};

use super::Sandbox;

/// What a small dataset holds; change a field to make it odd.
pub struct Small {
    /// Passage texts.
    pub passages: Vec<String>,
    /// (id, question, answer); an empty id leaves it out.
    pub questions: Vec<(String, String, String)>,
    /// Every place where one of these stands is an entity.
    pub names: Vec<String>,
    /// What the vector files say made them.
    pub encoder: String,
    /// Numbers of a vector.
    pub dim: usize,
    /// Whether the passages are annotated with `"{i}:"` before them.
    pub prefix: bool,
    /// Whether all texts get the same vector.
    pub constant: bool,
    /// Where the encoder is said to cut, in tokens.
    pub truncated_at_tokens: Option<usize>,
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|t| (*t).to_owned()).collect()
}

impl Default for Small {
    fn default() -> Self {
        Self {
            passages: owned(&[
                "Ada Lovelace wrote notes on the engine of Charles Babbage.",
                "Charles Babbage was born in London.",
                "Ada Lovelace was born in London too.",
                "Charles Babbage spoke in Turin in 1840.",
                "It rained all day, and nobody went out.",
            ]),
            questions: Vec::new(),
            names: owned(&["Ada Lovelace", "Charles Babbage", "London", "Turin"]),
            encoder: "small-encoder".into(),
            dim: 4,
            prefix: true,
            constant: false,
            truncated_at_tokens: None,
        }
        .with_questions(&[
            ("q1", "Where was Ada Lovelace born?", "London"),
            ("q2", "Who wrote notes on the engine of Charles Babbage?", "Ada Lovelace"),
            ("q3", "How do I get my money back?", "Ask for it"),
            ("q4", "When did Charles Babbage speak in Turin?", "1840"),
        ])
    }
}

impl Small {
    /// The same with other passages.
    pub fn with_passages(mut self, passages: &[&str]) -> Self {
        self.passages = owned(passages);
        self
    }

    /// The same with other questions.
    pub fn with_questions(mut self, questions: &[(&str, &str, &str)]) -> Self {
        self.questions = questions.iter().map(|&(i, q, a)| (i.to_owned(), q.to_owned(), a.to_owned())).collect();
        self
    }

    /// Writes the whole folder.
    pub fn write(&self, sandbox: &Sandbox, folder: &str) {
        self.write_texts(sandbox, folder);
        self.write_annotations(sandbox, folder);
        self.write_vectors(&sandbox.path().join(folder));
    }

    /// Writes questions and passages.
    pub fn write_texts(&self, sandbox: &Sandbox, folder: &str) {
        let question = |(id, question, answer): &(String, String, String)| match id.as_str() {
            "" => json!({"question": question, "answer": answer}),
            id => json!({"id": id, "question": question, "answer": answer}),
        };
        let questions: Vec<Value> = self.questions.iter().map(question).collect();
        sandbox.write(&format!("{folder}/questions.json"), serde_json::to_string(&questions).unwrap());
        sandbox.write(&format!("{folder}/chunks.json"), serde_json::to_string(&self.passages).unwrap());
    }

    /// Writes annotations of both.
    pub fn write_annotations(&self, sandbox: &Sandbox, folder: &str) {
        let passages = self.passages.iter().enumerate().map(|(i, passage)| {
            let text = if self.prefix { format!("{i}:{passage}") } else { passage.clone() };
            let sentence = json!({"start": 0, "end": text.chars().count(), "entities": self.entities(&text)});
            json!({"passage": i, "sentences": [sentence]})
        });
        let questions = self
            .questions
            .iter()
            .enumerate()
            .map(|(i, (_, question, _))| json!({"question": i, "entities": self.entities(question)}));
        sandbox.write(&format!("{folder}/annotations.jsonl"), lines(passages));
        sandbox.write(&format!("{folder}/question_entities.jsonl"), lines(questions));
    }

    fn entities(&self, text: &str) -> Vec<Value> {
        let mut found: Vec<(usize, &str)> =
            self.names.iter().flat_map(|name| text.match_indices(name.as_str())).collect();
        found.sort_unstable();
        let place = |byte: usize| text[..byte].chars().count();
        found
            .into_iter()
            .map(|(at, name)| json!({"text": name, "label": "PERSON", "start": place(at), "end": place(at + name.len())}))
            .collect()
    }

    /// Writes a vector for every text that the index asks for.
    pub fn write_vectors(&self, folder: &Path) {
        let dataset = Dataset::open(folder).unwrap();
        let prefix = if self.prefix { PassagePrefix::Index } else { PassagePrefix::None };
        let options = IndexOptions::from(&IndexConfig { passage_prefix: prefix, ..IndexConfig::default() });
        let mut by_kind: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (kind, text) in build::texts(&dataset, &options).unwrap().index {
            by_kind.entry(kind.as_str()).or_default().push(text);
        }
        for (kind, texts) in by_kind {
            self.write_vectors_of(folder, kind, texts);
        }
    }

    /// Writes the vectors of one kind.
    pub fn write_vectors_of(&self, folder: &Path, kind: &str, texts: Vec<String>) {
        let data = texts.iter().flat_map(|text| self.vector(if self.constant { "" } else { text })).collect();
        let table = VectorTable {
            encoder: self.encoder.clone(),
            truncated_at_tokens: self.truncated_at_tokens,
            dim: self.dim,
            texts,
            data,
        };
        let path = folder.join("embeddings").join(format!("{kind}.parquet"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        vectors::write(&path, &table).unwrap();
    }

    fn vector(&self, text: &str) -> Vec<f32> {
        let mut bytes = vec![0; self.dim];
        blake3::Hasher::new().update(text.as_bytes()).finalize_xof().fill(&mut bytes);
        // Half a step off the whole numbers, so that no vector is zero.
        let numbers: Vec<f32> = bytes.iter().map(|&b| f32::from(b) - 127.5).collect();
        let length = numbers.iter().map(|x| x * x).sum::<f32>().sqrt();
        numbers.iter().map(|x| x / length).collect()
    }
}

fn lines(values: impl Iterator<Item = Value>) -> String {
    values.map(|value| format!("{value}\n")).collect()
}
