//! A corpus of passages and a stream of questions with gold answers, read from the publishers' own files.
//!
//! In: a dataset folder. Out: [`Dataset`], its annotations ([`annotations`]) and vectors ([`vectors`]).
//! Nothing here knows a retriever.

pub mod annotations;
pub mod clusters;
pub mod inspect;
pub mod orders;
pub mod texts;
pub mod vectors;

mod context;
mod corpus;
mod gold;
mod hipporag;
mod linearrag;
mod musique;
mod question;
mod recognise;
mod record;
mod settings;
mod source;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::ids::PassageId;
use recognise::Files;
use settings::Settings;
use source::Source;

/// The shapes of dataset files that are recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// `questions.json` and `chunks.json`.
    LinearRag,
    /// `<n>.json` and `<n>_corpus.json`.
    HippoRag,
    /// Official HotpotQA JSON, passages from the questions' contexts.
    HotpotQa,
    /// Official 2WikiMultiHopQA JSON, passages from the questions' contexts.
    #[serde(rename = "2wiki")]
    TwoWiki,
    /// Official MuSiQue JSON lines.
    MuSiQue,
}

/// One retrievable unit of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    /// Where the publisher gives one.
    pub title: Option<String>,
    /// The text as the retriever sees it, before any `"{i}:"` prefix; where there is a title: title, newline, text.
    pub text: String,
}

/// One question of the stream with what is known about its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The publisher's id, or `q<i>` where there is none. Unique in a dataset.
    pub id: String,
    /// The question as published.
    pub text: String,
    /// Gold answers; the first is the main one.
    pub answers: Vec<String>,
    /// Other accepted spellings of the answer.
    pub aliases: Vec<String>,
    /// Gold passages, ascending, where the data tells; `None` where it does not.
    pub gold_passages: Option<Vec<PassageId>>,
    /// The publisher's question type (`bridge`, `comparison`, …).
    pub category: Option<String>,
    /// Ids of the single-hop questions it was composed of (MuSiQue); empty where unknown.
    pub hops: Vec<String>,
}

/// Something about the files that a user should know, found while reading.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Note {
    /// A short stable name, for example `lone_surrogate`.
    pub code: &'static str,
    /// One sentence with file, record and value.
    pub text: String,
}

/// A dataset as read.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// From `dataset.toml`, else the folder's name.
    pub name: String,
    /// What its files are.
    pub kind: Kind,
    /// Where it was read from.
    pub folder: PathBuf,
    /// The licence text of `dataset.toml`.
    pub licence: Option<String>,
    /// The corpus, in the publisher's order.
    pub passages: Vec<Passage>,
    /// The stream, in the publisher's order.
    pub questions: Vec<Question>,
    /// blake3 of the dataset's files (questions, corpus), hex.
    pub fingerprint: String,
    /// What was odd while reading.
    pub notes: Vec<Note>,
}

/// Annotations of the passages, beside the dataset.
pub const ANNOTATIONS_FILE: &str = "annotations.jsonl";
/// Entities of the questions, beside the dataset.
pub const QUESTION_ENTITIES_FILE: &str = "question_entities.jsonl";

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::LinearRag, Self::HippoRag, Self::HotpotQa, Self::TwoWiki, Self::MuSiQue];

    /// The name in `dataset.toml` and in outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LinearRag => "linearrag",
            Self::HippoRag => "hipporag",
            Self::HotpotQa => "hotpotqa",
            Self::TwoWiki => "2wiki",
            Self::MuSiQue => "musique",
        }
    }
}

/// What a reader of one kind hands back.
#[derive(Debug)]
struct Parsed {
    passages: Vec<Passage>,
    questions: Vec<Question>,
    notes: Vec<Note>,
}

impl Dataset {
    /// Reads the dataset in `folder`.
    ///
    /// Equal passages are all kept, each with its own id. Repeated question ids are made unique and gold passages that
    /// are only partly in the corpus are left unknown; [`Dataset::notes`] says so. Errors name file, record and field.
    pub fn open(folder: &Path) -> Result<Self> {
        if !folder.is_dir() {
            let why = if folder.exists() { "is a file; a dataset is a folder" } else { "does not exist" };
            return Err(Error::request(format!("the dataset folder {} {why}", folder.display()))
                .with_hint("docs/datasets.md says what a dataset folder holds; data/demo is one"));
        }
        let settings = Settings::read(folder)?;
        let Files { kind, questions, corpus } = recognise::files(folder, &settings)?;
        let mut parsed = match (kind, &corpus) {
            (Kind::LinearRag, Some(chunks)) => linearrag::read(&questions, chunks)?,
            (Kind::HippoRag, Some(corpus)) => hipporag::read(&questions, corpus)?,
            (Kind::LinearRag | Kind::HippoRag, None) => {
                return Err(Error::request(format!(
                    "kind {} of {} needs a corpus file",
                    kind.as_str(),
                    folder.display()
                )));
            }
            (Kind::HotpotQa, _) => context::read(&questions, "")?,
            (Kind::TwoWiki, _) => context::read(&questions, " ")?,
            (Kind::MuSiQue, _) => musique::read(&questions)?,
        };
        if parsed.questions.is_empty() {
            return Err(Error::request(format!("{} holds no question", questions.path.display()))
                .with_hint("a dataset is a stream of one question or more"));
        }

        let fingerprint = fingerprint([Some(&questions), corpus.as_ref()].into_iter().flatten());
        let file = questions.file_name();
        let mut notes = questions.notes;
        notes.extend(corpus.into_iter().flat_map(|c| c.notes));
        notes.append(&mut parsed.notes);
        notes.extend(question::make_ids_unique(&mut parsed.questions, &file));
        notes.extend(question::empty_answers(&parsed.questions, &file));

        let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        Ok(Self {
            name: settings.name.unwrap_or_else(|| source::file_name(&absolute)),
            kind,
            folder: folder.to_owned(),
            licence: settings.licence,
            passages: parsed.passages,
            questions: parsed.questions,
            fingerprint,
            notes,
        })
    }

    /// Passage texts as they are embedded, counted and annotated: with `index_prefix` each is `"{i}:{text}"`, the
    /// reference's form, else the bare text.
    pub fn passage_texts(&self, index_prefix: bool) -> Vec<String> {
        let texts = self.passages.iter().enumerate();
        texts.map(|(i, p)| if index_prefix { format!("{i}:{}", p.text) } else { p.text.clone() }).collect()
    }

    /// Question texts, in stream order.
    pub fn question_texts(&self) -> Vec<String> {
        self.questions.iter().map(|q| q.text.clone()).collect()
    }
}

/// blake3 over each file's name, a zero byte and the blake3 of its bytes, questions first; hex.
fn fingerprint<'a>(files: impl Iterator<Item = &'a Source>) -> String {
    let mut hasher = blake3::Hasher::new();
    for file in files {
        hasher.update(file.file_name().as_bytes()).update(&[0]).update(file.hash.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod real_data;
