//! The official HotpotQA and 2WikiMultiHopQA shape: questions that carry their own paragraphs in; a corpus of the
//! distinct (title, text) of all of them, in order of first appearance, and gold passages out.

use std::collections::BTreeSet;

use super::corpus::{Corpus, passage};
use super::gold::{self, Gold, Tally};
use super::record::Record;
use super::source::Source;
use super::{Parsed, question};
use crate::error::Result;
use crate::ids::PassageId;

/// Reads the question file. `between` stands between two sentences: HotpotQA's begin with their own space, 2Wiki's do not.
pub(crate) fn read(source: &Source, between: &str) -> Result<Parsed> {
    let mut corpus = Corpus::default();
    let mut tally = Tally::default();
    let mut questions = Vec::new();
    for (i, (n, value)) in source.records()?.iter().enumerate() {
        let record = Record::new(source, *n, value)?;
        let mut question = question::read(&record, i)?;
        let own: Vec<(&str, PassageId)> = paragraphs(&record, between)?
            .iter()
            .map(|(title, text)| (*title, corpus.push_distinct(passage(Some(title), text))))
            .collect();
        question.gold_passages = tally.settle(own_gold(&record, &own)?, &question.id);
        questions.push(question);
    }
    Ok(Parsed { passages: corpus.into_passages(&source.path)?, questions, notes: tally.notes(&source.file_name()) })
}

/// Gold passages among the question's own paragraphs.
fn own_gold(record: &Record<'_>, own: &[(&str, PassageId)]) -> Result<Gold> {
    let Some(titles) = gold::supporting_titles(record)? else { return Ok(Gold::Untold) };
    let mut found = BTreeSet::new();
    for title in titles {
        let mut ids: BTreeSet<PassageId> = own.iter().filter(|(t, _)| *t == title).map(|(_, id)| *id).collect();
        match ids.len() {
            0 => return Ok(Gold::Missing(title.to_owned())),
            1 => found.append(&mut ids),
            _ => return Ok(Gold::Ambiguous(title.to_owned())),
        }
    }
    Ok(Gold::of(found))
}

/// `context: [[title, [sentences]], …]` as (title, text).
pub(crate) fn paragraphs<'a>(record: &Record<'a>, between: &str) -> Result<Vec<(&'a str, String)>> {
    record
        .list("context")?
        .iter()
        .enumerate()
        .map(|(i, entry)| {
            let title = entry.get(0).and_then(|t| t.as_str());
            let sentences =
                entry.get(1).and_then(|s| s.as_array()?.iter().map(|x| x.as_str()).collect::<Option<Vec<_>>>());
            match (title, sentences) {
                (Some(title), Some(sentences)) => Ok((title, sentences.join(between))),
                _ => Err(record.error(format!("has no [title, [sentences]] in entry {} of \"context\"", i + 1))),
            }
        })
        .collect()
}
