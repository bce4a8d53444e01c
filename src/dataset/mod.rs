//! A corpus of passages and a stream of questions with gold answers, read from the publishers' own files.
//!
//! In: a dataset folder. Out: [`Dataset`], its annotations ([`annotations`]) and vectors ([`vectors`]).
//! Nothing here knows a retriever.

pub mod annotations;
pub mod vectors;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ids::PassageId;

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
#[derive(Debug, Clone, PartialEq, Eq)]
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
