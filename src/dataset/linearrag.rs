//! LinearRAG's shape: `questions.json` (a list of objects) and `chunks.json` (a list of strings) in, passages without
//! titles and questions without gold passages out.

use super::corpus::{Corpus, passage};
use super::record::Record;
use super::source::{Source, type_name};
use super::{Parsed, question};
use crate::error::{Error, Result};

/// Reads both files; only `question` and `answer` are needed of a question.
pub(crate) fn read(questions: &Source, chunks: &Source) -> Result<Parsed> {
    let mut corpus = Corpus::default();
    for (n, value) in chunks.records()? {
        let text = value.as_str().ok_or_else(|| {
            Error::request(format!(
                "{}: record {n} is {} where a passage text belongs",
                chunks.path.display(),
                type_name(&value)
            ))
        })?;
        corpus.push(passage(None, text));
    }
    let questions = questions
        .records()?
        .iter()
        .enumerate()
        .map(|(i, (n, value))| question::read(&Record::new(questions, *n, value)?, i))
        .collect::<Result<_>>()?;
    Ok(Parsed { passages: corpus.into_passages(&chunks.path)?, questions, notes: Vec::new() })
}
