//! Every text an index needs a vector for: dataset and annotations in, distinct texts per kind, in order of first appearance,
//! out. Reasoning templates come with the experience store and are added there.
//!
//! The case rule (the same words in another case): the graph side keeps the surface as annotated, so "NASA" and "Nasa" are
//! two entities; the question side is lower-cased, so both ask for "nasa", which links to the nearest entity by vector.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Note;
use super::annotations::{CodePoints, PassageAnnotation, QuestionAnnotation, Span};
use crate::Result;

/// What a text is to the index; each kind has its own vector file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TextKind {
    /// A passage, with its prefix.
    Passages,
    /// A sentence with at least one entity.
    Sentences,
    /// An entity's surface.
    Entities,
    /// A question.
    Questions,
    /// A question's entity, lower-cased.
    QuestionEntities,
}

impl TextKind {
    /// Every kind, in the order of [`index_texts`].
    pub const ALL: [Self; 5] =
        [Self::Passages, Self::Sentences, Self::Entities, Self::Questions, Self::QuestionEntities];

    /// The name in outputs and of the vector file, `embeddings/<name>.parquet`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passages => "passages",
            Self::Sentences => "sentences",
            Self::Entities => "entities",
            Self::Questions => "questions",
            Self::QuestionEntities => "question_entities",
        }
    }

    /// Where the vectors of these texts lie beside a dataset.
    pub fn vector_file(self, folder: &Path) -> PathBuf {
        folder.join("embeddings").join(format!("{}.parquet", self.as_str()))
    }
}

/// All texts of an index, kind after kind, each text once per kind.
///
/// `passages` and `questions` are the annotated texts, prefix included, as given to the readers of
/// [`super::annotations`]; the annotations may be empty, which leaves out their kinds. `trim` strips white space from
/// entities (`index.entity_text = "trim"`).
pub fn index_texts(
    passages: &[String],
    passage_annotations: &[PassageAnnotation],
    questions: &[String],
    question_annotations: &[QuestionAnnotation],
    trim: bool,
) -> Vec<(TextKind, String)> {
    let mut texts = Vec::new();
    let mut add = |kind: TextKind, all: &mut dyn Iterator<Item = String>| {
        let mut seen = HashSet::new();
        texts.extend(all.filter(|text| seen.insert(text.clone())).map(|text| (kind, text)));
    };
    let annotated = || passages.iter().zip(passage_annotations);
    add(TextKind::Passages, &mut passages.iter().cloned());
    add(TextKind::Sentences, &mut annotated().flat_map(|(text, annotation)| sentence_texts(text, annotation)));
    add(
        TextKind::Entities,
        &mut annotated().flat_map(|(_, a)| a.sentences.iter().flat_map(|s| entity_texts(&s.entities, trim))),
    );
    add(TextKind::Questions, &mut questions.iter().cloned());
    add(
        TextKind::QuestionEntities,
        &mut question_annotations.iter().flat_map(|a| entity_texts(&a.entities, trim).map(|e| e.to_lowercase())),
    );
    texts
}

/// Texts of the sentences that carry an entity, in text order.
fn sentence_texts(text: &str, annotation: &PassageAnnotation) -> Vec<String> {
    let points = CodePoints::new(text);
    let with_entity = annotation.sentences.iter().filter(|s| s.entities.iter().any(Span::is_entity));
    with_entity.filter_map(|s| points.slice(s.start, s.end)).map(str::to_owned).collect()
}

fn entity_texts(spans: &[Span], trim: bool) -> impl Iterator<Item = String> {
    spans.iter().filter(|s| s.is_entity()).map(move |s| if trim { s.text.trim() } else { &s.text }.to_owned())
}

/// Counts tokens as an encoder does, without its weights.
pub trait TextMeasure {
    /// The most tokens the encoder reads of a text.
    fn max_tokens(&self) -> usize;
    /// Whether each text is longer than that.
    ///
    /// # Errors
    /// When the tokenizer gives up on a text.
    fn cut(&self, texts: &[&str]) -> Result<Vec<bool>>;
}

/// About as many word pieces as an English BERT tokenizer makes: two special tokens, one for every eight letters or digits of
/// a word begun, one for every other sign. Within 5 % of the count of tokens of bert-base-uncased's vocabulary over the
/// hotpotqa, musique, 2wiki and medical corpora.
pub fn estimate_tokens(text: &str) -> usize {
    const LETTERS_A_TOKEN: usize = 8;
    /// From here on (CJK and beyond) a sign is a token of its own.
    const IDEOGRAPHS: char = '\u{2E80}';
    let (mut tokens, mut letters) = (2, 0_usize);
    for c in text.chars() {
        if c.is_alphanumeric() && c < IDEOGRAPHS {
            letters += 1;
            continue;
        }
        tokens += letters.div_ceil(LETTERS_A_TOKEN) + usize::from(!c.is_whitespace());
        letters = 0;
    }
    tokens + letters.div_ceil(LETTERS_A_TOKEN)
}

/// How many of `texts` are longer than the encoder's `limit` in tokens, and a note that says so; `None` where none is. Estimated.
pub fn cut_note<'a>(file: &str, texts: impl Iterator<Item = &'a str>, limit: usize) -> Option<(usize, Note)> {
    let (mut all, mut cut) = (0, 0);
    for text in texts {
        all += 1;
        cut += usize::from(estimate_tokens(text) > limit);
    }
    (cut > 0).then(|| {
        let share = 100.0 * cut as f64 / all as f64;
        let text = format!(
            "{file}: about {cut} of {all} texts ({share:.1} %, estimated) are longer than the encoder's {limit} tokens and were \
             cut there"
        );
        (cut, Note { code: "text_cut", text })
    })
}

/// A note that `cut` of `all` texts of a kind are longer than the encoder's `limit`, counted with its tokenizer; `None` where none is.
pub fn cut_note_exact(kind: &str, cut: usize, all: usize, limit: usize) -> Option<Note> {
    let share = 100.0 * cut as f64 / all.max(1) as f64;
    (cut > 0).then(|| Note {
        code: "text_cut",
        text: format!(
            "{kind}: {cut} of {all} texts ({share:.1} %) are longer than the encoder's {limit} tokens and were cut there"
        ),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use crate::dataset::annotations::SentenceSpan;

    fn span(text: &str, label: &str, start: usize) -> Span {
        Span { text: text.into(), label: label.into(), start, end: start + text.chars().count() }
    }

    /// Pitfall 15: surfaces keep their case, question entities are lower-cased.
    #[test]
    fn pitfall_15_the_case_rule_and_first_appearance() {
        let passages = ["0:NASA flew.".to_owned(), "1:Nasa\n flew. 3.".into(), "0:NASA flew.".into()];
        let sentence = |start, end, entities| SentenceSpan { start, end, entities };
        let first = PassageAnnotation { sentences: vec![sentence(0, 12, vec![span("NASA", "ORG", 2)])] };
        let annotations = [
            first.clone(),
            PassageAnnotation {
                sentences: vec![
                    sentence(0, 13, vec![span("1", "CARDINAL", 0), span("Nasa\n", "ORG", 2)]),
                    sentence(14, 16, vec![span("3", "CARDINAL", 14)]),
                ],
            },
            first,
        ];
        let questions = ["Was NASA first, or Nasa?".to_owned()];
        let question_annotations = [QuestionAnnotation {
            entities: vec![span("NASA", "ORG", 4), span("first", "ORDINAL", 9), span("Nasa", "ORG", 19)],
        }];
        let texts = |trim| {
            index_texts(&passages, &annotations, &questions, &question_annotations, trim)
                .into_iter()
                .map(|(k, t)| format!("{} {t}", k.as_str()))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            texts(false),
            [
                "passages 0:NASA flew.",
                "passages 1:Nasa\n flew. 3.",
                "sentences 0:NASA flew.",
                "sentences 1:Nasa\n flew.",
                "entities NASA",
                "entities Nasa\n",
                "questions Was NASA first, or Nasa?",
                "question_entities nasa"
            ]
        );
        assert_eq!(texts(true)[5], "entities Nasa");
        assert_eq!(index_texts(&passages, &[], &questions, &[], false).len(), 3);
    }
}
