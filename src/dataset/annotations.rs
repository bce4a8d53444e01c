//! Entity annotations beside a dataset: `annotations.jsonl` (a line a passage) and `question_entities.jsonl` (a line a
//! question) and the annotated texts in, checked spans and notes out.
//!
//! Offsets count Unicode code points into the text that was annotated, which for passages carries the `"{i}:"` prefix where
//! the index has one. Every mention is compared with what stands at its place, so annotations of another text cannot pass.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Note;
use super::source::{Layout, Source, file_name, json_error};
use crate::error::{Error, Result};

/// Labels that the index and the linking of questions leave out (spec 2.1).
pub const DROPPED_LABELS: [&str; 2] = ["ORDINAL", "CARDINAL"];

/// One entity mention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The surface string exactly as annotated.
    pub text: String,
    /// The annotator's label.
    pub label: String,
    /// First code point.
    pub start: usize,
    /// One past the last code point.
    pub end: usize,
}

impl Span {
    /// Whether the mention makes an entity: every label but [`DROPPED_LABELS`].
    pub fn is_entity(&self) -> bool {
        !DROPPED_LABELS.contains(&self.label.as_str())
    }
}

/// One sentence and its entities, in text order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentenceSpan {
    /// First code point.
    pub start: usize,
    /// One past the last code point.
    pub end: usize,
    /// Mentions that start in this sentence.
    pub entities: Vec<Span>,
}

/// All sentences of one passage, in text order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PassageAnnotation {
    /// Sentences, those without entities included.
    pub sentences: Vec<SentenceSpan>,
}

/// All entity mentions of one question, in text order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QuestionAnnotation {
    /// Mentions.
    pub entities: Vec<Span>,
}

/// Byte places of code points in one text.
#[derive(Debug)]
pub struct CodePoints<'a> {
    text: &'a str,
    /// Byte offset of every code point and of the end; empty for ASCII, where both are the same.
    starts: Vec<usize>,
    len: usize,
}

impl<'a> CodePoints<'a> {
    /// Measures `text` once.
    pub fn new(text: &'a str) -> Self {
        if text.is_ascii() {
            return Self { text, starts: Vec::new(), len: text.len() };
        }
        let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let len = starts.len() - 1;
        Self { text, starts, len }
    }

    /// Number of code points.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Code points `start..end`; `None` where `start > end` or `end` is past the text.
    pub fn slice(&self, start: usize, end: usize) -> Option<&'a str> {
        if self.starts.is_empty() {
            self.text.get(start..end)
        } else {
            self.text.get(*self.starts.get(start)?..*self.starts.get(end)?)
        }
    }
}

/// A mention as it lies in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpanLine {
    text: String,
    label: String,
    start: usize,
    end: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SentenceLine {
    start: usize,
    end: usize,
    entities: Vec<SpanLine>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PassageLine {
    passage: usize,
    sentences: Vec<SentenceLine>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuestionLine {
    question: usize,
    entities: Vec<SpanLine>,
}

/// Reads `annotations.jsonl`: one line a passage, in corpus order; `texts` are the annotated texts, prefix included.
///
/// Mentions of white space only are dropped. A mention belongs to the last sentence that starts at or before it, also when
/// it runs past that sentence's end or is listed elsewhere. Both are counted in notes. Errors name file and line: a passage
/// out of order, missing or twice; sentences out of order or overlapping; a span past the text's end; a mention that
/// differs from the text at its place.
pub fn read_passages(path: &Path, texts: &[String]) -> Result<(Vec<PassageAnnotation>, Vec<Note>)> {
    let source = Source::read(path, Layout::JsonLines)?;
    let mut counts = Counts::default();
    let mut passages = Vec::with_capacity(texts.len());
    for (number, line) in source.lines() {
        let line_of = Line { path, number, unit: "passage", index: passages.len() };
        let line: PassageLine = serde_json::from_str(line).map_err(|e| json_error(path, number, &e))?;
        let text = line_of.text(line.passage, texts)?;
        passages.push(line_of.passage(line, &CodePoints::new(text), &mut counts)?);
    }
    expect_all(path, "passage", passages.len(), texts.len())?;
    Ok((passages, counts.notes(source.notes, path)))
}

/// Reads `question_entities.jsonl`: one line a question, in stream order; `texts` are the questions.
///
/// Blanks, notes and errors as in [`read_passages`].
pub fn read_questions(path: &Path, texts: &[String]) -> Result<(Vec<QuestionAnnotation>, Vec<Note>)> {
    let source = Source::read(path, Layout::JsonLines)?;
    let mut counts = Counts::default();
    let mut questions = Vec::with_capacity(texts.len());
    for (number, line) in source.lines() {
        let line_of = Line { path, number, unit: "question", index: questions.len() };
        let line: QuestionLine = serde_json::from_str(line).map_err(|e| json_error(path, number, &e))?;
        let text = CodePoints::new(line_of.text(line.question, texts)?);
        let mut entities = Vec::with_capacity(line.entities.len());
        for span in line.entities {
            entities.extend(line_of.span(span, &text, &mut counts)?);
        }
        entities.sort_by_key(|e: &Span| e.start);
        questions.push(QuestionAnnotation { entities });
    }
    expect_all(path, "question", questions.len(), texts.len())?;
    Ok((questions, counts.notes(source.notes, path)))
}

fn expect_all(path: &Path, unit: &str, found: usize, wanted: usize) -> Result<()> {
    if found == wanted {
        return Ok(());
    }
    Err(Error::request(format!("{} ends after {found} of {wanted} {unit}s", path.display()))
        .with_hint(format!("it needs a line for every {unit}, also for those without entities")))
}

/// What was tolerated.
#[derive(Debug, Default)]
struct Counts {
    blank: usize,
    crossing: usize,
    moved: usize,
}

impl Counts {
    fn notes(self, mut notes: Vec<Note>, path: &Path) -> Vec<Note> {
        let mut add = |code, n: usize, what: &str| {
            if n > 0 {
                notes.push(Note { code, text: format!("{}: {n} {what}", file_name(path)) });
            }
        };
        add("blank_entity", self.blank, "mentions of white space only were dropped");
        add(
            "entity_past_sentence",
            self.crossing,
            "mentions run past their sentence's end and were kept where they start",
        );
        add("entity_elsewhere", self.moved, "mentions start outside the sentence that lists them and were moved");
        notes
    }
}

/// The line being read, for messages.
#[derive(Debug, Clone, Copy)]
struct Line<'a> {
    path: &'a Path,
    number: usize,
    /// `passage` or `question`.
    unit: &'static str,
    /// The passage or question that belongs here.
    index: usize,
}

impl<'a> Line<'a> {
    fn error(&self, what: impl std::fmt::Display) -> Error {
        Error::request(format!("{}: line {}, {} {}: {what}", self.path.display(), self.number, self.unit, self.index))
    }

    /// The text of this line's passage or question, if `found` is the one that belongs here.
    fn text(&self, found: usize, texts: &'a [String]) -> Result<&'a str> {
        let (path, number, unit, index) = (self.path.display(), self.number, self.unit, self.index);
        if let (true, Some(text)) = (found == index, texts.get(index)) {
            return Ok(text);
        }
        let message = if index >= texts.len() {
            format!("{path}: line {number} holds {unit} {found}, but the dataset has only {}", texts.len())
        } else if found < index {
            format!("{path}: line {number} holds {unit} {found} again, where {unit} {index} belongs")
        } else {
            format!("{path}: line {number} holds {unit} {found} where {unit} {index} belongs")
        };
        Err(Error::request(message)
            .with_hint(format!("the lines run through every {unit} in the dataset's order, from 0")))
    }

    fn passage(&self, line: PassageLine, text: &CodePoints<'_>, counts: &mut Counts) -> Result<PassageAnnotation> {
        let mut sentences: Vec<SentenceSpan> = Vec::with_capacity(line.sentences.len());
        for (i, s) in line.sentences.iter().enumerate() {
            if text.slice(s.start, s.end).is_none() {
                return Err(self.bad_span(&format!("sentence {i}"), s.start, s.end, text));
            }
            if let Some(before) = sentences.last().filter(|before| s.start < before.end) {
                return Err(self.error(format!(
                    "sentence {i} starts at {}, before the sentence ahead of it ends at {}",
                    s.start, before.end
                )));
            }
            sentences.push(SentenceSpan { start: s.start, end: s.end, entities: Vec::with_capacity(s.entities.len()) });
        }
        for (listed, s) in line.sentences.into_iter().enumerate() {
            for span in s.entities {
                let Some(span) = self.span(span, text, counts)? else { continue };
                let Some(own) = sentences.partition_point(|s| s.start <= span.start).checked_sub(1) else {
                    return Err(self.error(format!(
                        "entity \"{}\" starts at {}, before the first sentence",
                        span.text, span.start
                    )));
                };
                counts.moved += usize::from(own != listed);
                counts.crossing += usize::from(span.end > sentences[own].end);
                sentences[own].entities.push(span);
            }
        }
        for sentence in &mut sentences {
            sentence.entities.sort_by_key(|e| e.start);
        }
        Ok(PassageAnnotation { sentences })
    }

    /// A checked mention; `None` for white space.
    fn span(&self, span: SpanLine, text: &CodePoints<'_>, counts: &mut Counts) -> Result<Option<Span>> {
        let SpanLine { text: surface, label, start, end } = span;
        let Some(there) = text.slice(start, end) else {
            return Err(self.bad_span(&format!("entity \"{surface}\""), start, end, text));
        };
        if surface.trim().is_empty() {
            counts.blank += 1;
            return Ok(None);
        }
        if there != surface {
            let error = self.error(format!(
                "entity \"{surface}\" is said to stand at {start}..{end}, but there stands \"{there}\""
            ));
            return Err(error.with_hint(self.other_text()));
        }
        Ok(Some(Span { text: surface, label, start, end }))
    }

    fn bad_span(&self, what: &str, start: usize, end: usize, text: &CodePoints<'_>) -> Error {
        if start > end {
            self.error(format!("{what} starts at {start} and ends before, at {end}"))
        } else {
            self.error(format!("{what} ends at {end}, past the text's end at {}", text.len()))
                .with_hint(self.other_text())
        }
    }

    /// What may be wrong when a span does not fit its text.
    fn other_text(&self) -> &'static str {
        if self.unit == "passage" {
            "offsets count Unicode code points, not bytes; these may be annotations of another corpus, or of the texts with (or \
             without) the \"{i}:\" prefix, which index.passage_prefix = \"index\" | \"none\" chooses"
        } else {
            "offsets count Unicode code points, not bytes; these may be annotations of other questions"
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn passages(lines: &str, texts: &[&str]) -> Result<(Vec<PassageAnnotation>, Vec<Note>)> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        std::fs::write(&path, lines).unwrap();
        read_passages(&path, &texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>())
    }

    fn message(lines: &str, texts: &[&str]) -> String {
        let error = passages(lines, texts).unwrap_err().to_string();
        error.split_once("a.jsonl").unwrap().1.to_owned()
    }

    #[test]
    fn offsets_count_code_points() {
        let line = r#"{"passage": 0, "sentences": [{"start": 0, "end": 9, "entities": [{"text": "Zoë", "label": "PERSON", "start": 5, "end": 8}]}]}"#;
        // 0 : é 😀 blank Z o ë .
        let (read, notes) = passages(line, &["0:é😀 Zoë."]).unwrap();
        assert_eq!(read[0].sentences[0].entities[0].text, "Zoë");
        assert!(notes.is_empty());
        let points = CodePoints::new("a😀b");
        assert_eq!(
            (points.len(), points.slice(1, 3), points.slice(2, 4), points.slice(2, 1)),
            (3, Some("😀b"), None, None)
        );
    }

    #[test]
    fn pitfall_13_blanks_go_emoji_stay_and_a_crossing_entity_belongs_where_it_starts() {
        // "Dr. J. R. Smith Jr. of St. Ives left." cut into sentences after "Dr. J. R. Smith Jr." and after "St.".
        let text = "Dr. J. R. Smith Jr. of St. Ives \u{2764}\u{fe0f}left.";
        let line = r#"{"passage": 0, "sentences": [
            {"start": 0, "end": 19, "entities": [
                {"text": "", "label": "ORG", "start": 3, "end": 3},
                {"text": "J. R. Smith Jr.", "label": "PERSON", "start": 4, "end": 19}]},
            {"start": 20, "end": 26, "entities": [{"text": "St. Ives", "label": "GPE", "start": 23, "end": 31}]},
            {"start": 27, "end": 39, "entities": [
                {"text": "\u2764\ufe0f", "label": "ORG", "start": 32, "end": 34},
                {"text": " ", "label": "ORG", "start": 31, "end": 32}]}]}"#;
        let (read, notes) = passages(&line.replace('\n', " "), &[text]).unwrap();
        let per_sentence: Vec<Vec<&str>> =
            read[0].sentences.iter().map(|s| s.entities.iter().map(|e| e.text.as_str()).collect()).collect();
        assert_eq!(per_sentence, [vec!["J. R. Smith Jr."], vec!["St. Ives"], vec!["\u{2764}\u{fe0f}"]]);
        let notes: Vec<(&str, &str)> = notes.iter().map(|n| (n.code, n.text.as_str())).collect();
        assert_eq!(
            notes,
            [
                ("blank_entity", "a.jsonl: 2 mentions of white space only were dropped"),
                (
                    "entity_past_sentence",
                    "a.jsonl: 1 mentions run past their sentence's end and were kept where they start"
                )
            ]
        );
    }

    #[test]
    fn an_entity_listed_elsewhere_moves_to_the_sentence_it_starts_in() {
        let line = r#"{"passage": 0, "sentences": [{"start": 0, "end": 2, "entities": [{"text": "d", "label": "X", "start": 3, "end": 4}]}, {"start": 3, "end": 5, "entities": []}]}"#;
        let (read, notes) = passages(line, &["a. d."]).unwrap();
        assert_eq!((read[0].sentences[0].entities.len(), read[0].sentences[1].entities.len()), (0, 1));
        assert_eq!(notes[0].code, "entity_elsewhere");
    }

    #[test]
    fn errors_name_line_passage_and_what_stands_there() {
        let entity = |text: &str, start, end| {
            format!(
                r#"{{"passage": 0, "sentences": [{{"start": 0, "end": 6, "entities": [{{"text": "{text}", "label": "X", "start": {start}, "end": {end}}}]}}]}}"#
            )
        };
        assert_eq!(
            message(&entity("Oslo", 0, 4), &["0:Oslo"]),
            ": line 1, passage 0: entity \"Oslo\" is said to stand at 0..4, but there stands \"0:Os\""
        );
        assert_eq!(
            message(&entity("Oslo", 2, 7), &["0:Oslo"]),
            ": line 1, passage 0: entity \"Oslo\" ends at 7, past the text's end at 6"
        );
        assert_eq!(
            message(&entity("Oslo", 4, 2), &["0:Oslo"]),
            ": line 1, passage 0: entity \"Oslo\" starts at 4 and ends before, at 2"
        );
        assert_eq!(
            message(r#"{"passage": 0, "sentences": [{"start": 0, "end": 7, "entities": []}]}"#, &["0:Oslo"]),
            ": line 1, passage 0: sentence 0 ends at 7, past the text's end at 6"
        );
        let sentences = r#"{"passage": 0, "sentences": [{"start": 2, "end": 4, "entities": []}, {"start": 3, "end": 5, "entities": []}]}"#;
        assert_eq!(
            message(sentences, &["0:Oslo"]),
            ": line 1, passage 0: sentence 1 starts at 3, before the sentence ahead of it ends at 4"
        );
        let unknown = r#"{"passage": 0, "sentences": [], "x": 1}"#;
        assert!(message(unknown, &["a"]).starts_with(": unexpected JSON in line 1, column 35: unknown field `x`"));
        let broken = "{\"passage\": 0, \"sentences\": []}\n{\"passage\": 1,";
        assert!(message(broken, &["a", "b"]).starts_with(": invalid JSON in line 2, column 14: EOF"));
    }

    #[test]
    fn every_passage_has_one_line_in_order() {
        let lines = |ids: &[usize]| -> String {
            ids.iter().map(|i| format!("{{\"passage\": {i}, \"sentences\": []}}\n")).collect()
        };
        assert_eq!(message(&lines(&[0, 2]), &["a", "b", "c"]), ": line 2 holds passage 2 where passage 1 belongs");
        assert_eq!(message(&lines(&[0, 0]), &["a", "b"]), ": line 2 holds passage 0 again, where passage 1 belongs");
        assert_eq!(message(&lines(&[0]), &["a", "b"]), " ends after 1 of 2 passages");
        assert_eq!(message(&lines(&[0, 1]), &["a"]), ": line 2 holds passage 1, but the dataset has only 1");
        assert_eq!(passages(&lines(&[0, 1]), &["a", "b"]).unwrap().0.len(), 2);
    }

    #[test]
    fn questions_are_read_alike() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q.jsonl");
        std::fs::write(
            &path,
            "\u{feff}{\"question\": 0, \"entities\": [{\"text\": \" \", \"label\": \"X\", \"start\": 1, \"end\": 2}, {\"text\": \"b\", \"label\": \"ORDINAL\", \"start\": 2, \"end\": 3}]}\r\n",
        )
        .unwrap();
        let (read, notes) = read_questions(&path, &["a b".to_owned()]).unwrap();
        assert_eq!((read[0].entities.len(), read[0].entities[0].is_entity()), (1, false));
        assert_eq!(notes[0].code, "blank_entity");
        let error = read_questions(&path, &["ab ".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("line 1, question 0: entity \"b\" is said to stand at 2..3"), "{error}");
    }
}
