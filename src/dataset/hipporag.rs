//! HippoRAG's shape: `<n>.json` (questions) and `<n>_corpus.json` in, titled passages and gold passages where the
//! questions tell out.
//!
//! Corpus: a list of {title, text}, or an object from title to a list of sentences, whose text is their concatenation.
//! Gold passages: `paragraphs` with `is_supporting` (MuSiQue) are looked up by title and text; `supporting_facts`
//! (HotpotQA) by title, and by the text in `context` where a title stands for several passages.

use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::corpus::{Corpus, passage};
use super::gold::{self, Gold, Tally};
use super::musique::supporting;
use super::record::Record;
use super::source::Source;
use super::{Parsed, context, question};
use crate::error::{Error, Result};

/// Reads both files.
pub(crate) fn read(questions: &Source, corpus_file: &Source) -> Result<Parsed> {
    let corpus = read_corpus(corpus_file)?;
    let mut tally = Tally::default();
    let mut parsed = Vec::new();
    for (i, (n, value)) in questions.records()?.iter().enumerate() {
        let record = Record::new(questions, *n, value)?;
        let mut question = question::read(&record, i)?;
        question.gold_passages = tally.settle(gold_of(&record, &corpus)?, &question.id);
        parsed.push(question);
    }
    Ok(Parsed {
        passages: corpus.into_passages(&corpus_file.path)?,
        questions: parsed,
        notes: tally.notes(&questions.file_name()),
    })
}

fn gold_of(record: &Record<'_>, corpus: &Corpus) -> Result<Gold> {
    if record.has("paragraphs") {
        return supporting(record, |p| corpus.find(&p.text));
    }
    let Some(titles) = gold::supporting_titles(record)? else { return Ok(Gold::Untold) };
    let shown = if record.has("context") { context::paragraphs(record, "")? } else { Vec::new() };
    Ok(gold::by_title(&titles, corpus, |title| shown.iter().find(|(t, _)| *t == title).map(|(_, text)| text.clone())))
}

/// The corpus file: both shapes, in file order, titles that occur twice in an object included.
#[derive(Debug)]
enum CorpusFile {
    List(Vec<Value>),
    Titles(Vec<(String, Value)>),
}

impl<'de> Deserialize<'de> for CorpusFile {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = CorpusFile;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of {title, text} or an object from title to sentences")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<CorpusFile, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(CorpusFile::List(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<CorpusFile, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(CorpusFile::Titles(entries))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

fn read_corpus(file: &Source) -> Result<Corpus> {
    let mut corpus = Corpus::default();
    match file.parse()? {
        CorpusFile::List(items) => {
            for (i, item) in items.iter().enumerate() {
                let record = Record::new(file, i + 1, item)?;
                let title = record.string(&["title"])?;
                corpus.push(passage(Some(title), record.string(&["text", "paragraph_text"])?));
            }
        }
        CorpusFile::Titles(entries) => {
            for (title, sentences) in entries {
                let texts = sentences.as_array().and_then(|s| s.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
                let Some(texts) = texts else {
                    return Err(Error::request(format!(
                        "{}: title \"{title}\" holds something else than a list of sentences",
                        file.path.display()
                    )));
                };
                corpus.push(passage(Some(&title), &texts.concat()));
            }
        }
    }
    Ok(corpus)
}
