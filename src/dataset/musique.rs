//! MuSiQue's official JSON lines: questions, with or without paragraphs, in; a corpus of the distinct paragraphs in order
//! of first appearance and gold passages out. Without paragraphs the dataset is a bare stream.

use std::collections::BTreeSet;

use super::corpus::{Corpus, passage};
use super::gold::{Gold, Tally};
use super::record::Record;
use super::source::Source;
use super::{Note, Parsed, Passage, question};
use crate::error::Result;
use crate::ids::PassageId;

/// Reads the question file.
pub(crate) fn read(source: &Source) -> Result<Parsed> {
    let mut corpus = Corpus::default();
    let mut tally = Tally::default();
    let mut questions = Vec::new();
    let mut bare = 0;
    for (i, (n, value)) in source.records()?.iter().enumerate() {
        let record = Record::new(source, *n, value)?;
        let mut question = question::read(&record, i)?;
        let gold = if record.has("paragraphs") {
            supporting(&record, |p| Some(corpus.push_distinct(p)))?
        } else {
            bare += 1;
            Gold::Untold
        };
        question.gold_passages = tally.settle(gold, &question.id);
        questions.push(question);
    }
    let mut notes = tally.notes(&source.file_name());
    if bare > 0 {
        notes.push(Note {
            code: "no_paragraphs",
            text: format!(
                "{}: {bare} of {} questions carry no paragraphs, so they add nothing to the corpus and their gold passages \
                 are unknown",
                source.file_name(),
                questions.len()
            ),
        });
    }
    Ok(Parsed { passages: corpus.into_passages(&source.path)?, questions, notes })
}

/// Gold passages by `paragraphs[].is_supporting`. `locate` is called for every paragraph, in order.
pub(crate) fn supporting(record: &Record<'_>, mut locate: impl FnMut(Passage) -> Option<PassageId>) -> Result<Gold> {
    let mut found = BTreeSet::new();
    let mut missing = None;
    for (i, paragraph) in record.list("paragraphs")?.iter().enumerate() {
        let paragraph = record.inner(&format!("paragraph {}", i + 1), paragraph)?;
        let title = paragraph.string(&["title"])?;
        let id = locate(passage(Some(title), paragraph.string(&["paragraph_text", "text"])?));
        let is_supporting = match paragraph.get("is_supporting") {
            None => false,
            Some(value) => value.as_bool().ok_or_else(|| paragraph.wrong("is_supporting", value, "true or false"))?,
        };
        match id {
            _ if !is_supporting => {}
            Some(id) => drop(found.insert(id)),
            None => missing = missing.or(Some(title.to_owned())),
        }
    }
    if record.get("answerable").and_then(|a| a.as_bool()) == Some(false) {
        return Ok(Gold::Unanswerable);
    }
    Ok(missing.map_or_else(|| Gold::of(found), Gold::Missing))
}
