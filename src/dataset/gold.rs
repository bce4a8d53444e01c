//! Which passages answer a question: what a reader found out per question in, gold passages and counted notes out.
//!
//! A gold set is complete or unknown. When only some gold passages are in the corpus, recall over the rest would look
//! better than it is, so such a question has none and is counted.

use std::collections::BTreeSet;

use super::Note;
use super::corpus::Corpus;
use super::record::Record;
use crate::error::Result;
use crate::ids::PassageId;

/// What the data tells about one question.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Gold {
    /// All gold passages are in the corpus.
    Known(BTreeSet<PassageId>),
    /// The data names none.
    Untold,
    /// A gold passage is not in the corpus; its title.
    Missing(String),
    /// A gold title stands for several passages; the title.
    Ambiguous(String),
    /// The publisher says that the support was removed.
    Unanswerable,
}

impl Gold {
    /// `passages`, or untold when there are none.
    pub(crate) fn of(passages: BTreeSet<PassageId>) -> Self {
        if passages.is_empty() { Self::Untold } else { Self::Known(passages) }
    }
}

/// Distinct titles of `supporting_facts: [[title, sentence], …]`; `None` where the field is missing.
pub(crate) fn supporting_titles<'a>(record: &Record<'a>) -> Result<Option<Vec<&'a str>>> {
    if !record.has("supporting_facts") {
        return Ok(None);
    }
    let mut titles: Vec<&str> = Vec::new();
    for fact in record.list("supporting_facts")? {
        let title = fact.get(0).and_then(|t| t.as_str()).ok_or_else(|| {
            record.error("has an entry in \"supporting_facts\" that is no list of a title and a sentence number")
        })?;
        if !titles.contains(&title) {
            titles.push(title);
        }
    }
    Ok(Some(titles))
}

/// Gold passages by title. `shown` gives the text of a title in the question's own context, where it has one; it tells
/// passages of one title apart.
pub(crate) fn by_title<'a>(titles: &[&'a str], corpus: &Corpus, shown: impl Fn(&'a str) -> Option<String>) -> Gold {
    let mut found = BTreeSet::new();
    for &title in titles {
        let known = match corpus.titled(title) {
            [] => return Gold::Missing(title.to_owned()),
            [only] => Some(*only),
            several => shown(title).and_then(|text| corpus.same_words(several, title, &text)),
        };
        match known {
            Some(passage) => found.insert(passage),
            None => return Gold::Ambiguous(title.to_owned()),
        };
    }
    Gold::of(found)
}

/// Counts of questions whose gold passages stay unknown, with the first of each.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    questions: usize,
    missing: Count,
    ambiguous: Count,
    unanswerable: Count,
}

#[derive(Debug, Default)]
struct Count {
    n: usize,
    first: String,
}

impl Count {
    fn add(&mut self, first: impl FnOnce() -> String) {
        if self.n == 0 {
            self.first = first();
        }
        self.n += 1;
    }
}

impl Tally {
    /// The gold passages of a question, ascending; counts it where they stay unknown.
    pub(crate) fn settle(&mut self, gold: Gold, id: &str) -> Option<Vec<PassageId>> {
        self.questions += 1;
        match gold {
            Gold::Known(passages) => return Some(passages.into_iter().collect()),
            Gold::Untold => {}
            Gold::Missing(title) => self.missing.add(|| format!("\"{title}\" of question {id}")),
            Gold::Ambiguous(title) => self.ambiguous.add(|| format!("\"{title}\" of question {id}")),
            Gold::Unanswerable => self.unanswerable.add(|| format!("question {id}")),
        }
        None
    }

    /// A note for each kind that occurred.
    pub(crate) fn notes(self, file: &str) -> Vec<Note> {
        let note = |code, count: Count, why: &str| {
            (count.n > 0).then(|| Note {
                code,
                text: format!(
                    "{file}: {} of {} questions {why}, so their gold passages are unknown, first {}",
                    count.n, self.questions, count.first
                ),
            })
        };
        [
            note("gold_incomplete", self.missing, "have a gold passage that is not in the corpus"),
            note("gold_ambiguous", self.ambiguous, "have a gold title that stands for several passages"),
            note("unanswerable", self.unanswerable, "are marked as not answerable"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
