//! The passages of a corpus while it is read: titles and texts in, ids by place and lookups by title or text out.

use std::collections::HashMap;
use std::path::Path;

use super::Passage;
use crate::error::{Error, Result};
use crate::ids::PassageId;

/// Passages in order, equal ones kept apart, with lookups for gold passages.
#[derive(Debug, Default)]
pub(crate) struct Corpus {
    passages: Vec<Passage>,
    by_title: HashMap<String, Vec<PassageId>>,
    by_text: HashMap<String, PassageId>,
}

impl Corpus {
    /// Appends a passage, also one that is there already.
    pub(crate) fn push(&mut self, passage: Passage) -> PassageId {
        let id = PassageId::from(self.passages.len());
        if let Some(title) = &passage.title {
            self.by_title.entry(title.clone()).or_default().push(id);
        }
        self.by_text.entry(passage.text.clone()).or_insert(id);
        self.passages.push(passage);
        id
    }

    /// The id of an equal passage, else appends it.
    pub(crate) fn push_distinct(&mut self, passage: Passage) -> PassageId {
        match self.find(&passage.text) {
            Some(id) => id,
            None => self.push(passage),
        }
    }

    /// The first passage with this text.
    pub(crate) fn find(&self, text: &str) -> Option<PassageId> {
        self.by_text.get(text).copied()
    }

    /// Passages with this title, ascending.
    pub(crate) fn titled(&self, title: &str) -> &[PassageId] {
        self.by_title.get(title).map_or(&[], Vec::as_slice)
    }

    /// The first of `candidates` that equals `title` and `text` but for white space.
    pub(crate) fn same_words(&self, candidates: &[PassageId], title: &str, text: &str) -> Option<PassageId> {
        let bare = |s: &str| s.chars().filter(|c| !c.is_whitespace()).collect::<String>();
        let wanted = bare(title) + &bare(text);
        candidates.iter().copied().find(|id| bare(&self.passages[id.at()].text) == wanted)
    }

    /// The passages; an error past 2^32 - 1 of them.
    pub(crate) fn into_passages(self, file: &Path) -> Result<Vec<Passage>> {
        if u32::try_from(self.passages.len()).is_err() {
            return Err(Error::request(format!(
                "{} holds {} passages; at most 4294967295 are possible",
                file.display(),
                self.passages.len()
            )));
        }
        Ok(self.passages)
    }
}

/// A passage of the publisher's title and text: title, newline, text; the bare text where the title is empty or missing.
pub(crate) fn passage(title: Option<&str>, text: &str) -> Passage {
    match title.filter(|t| !t.is_empty()) {
        Some(title) => Passage { title: Some(title.to_owned()), text: format!("{title}\n{text}") },
        None => Passage { title: None, text: text.to_owned() },
    }
}
