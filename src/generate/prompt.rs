//! Prompts as files, and the context of equation 14: `Context_t = {p_1, …, p_k} ∪ {sum(e_scaf)}`.
//!
//! In: a prompt file (TOML: `system`, `user`, `passage`, `scaffold`), passages, perhaps a scaffold's summary, a question.
//! Out: the two messages a chat model gets. Texts are put in as they are: braces in a passage are never read as a
//! placeholder.

use std::path::Path;

use serde::Deserialize;

use super::{Prompt, PromptPassage};
use crate::{Error, Result};

const BUILTIN: &str = include_str!("../../configs/prompts/reader.toml");

/// The prompt file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PromptFile {
    system: String,
    user: String,
    passage: String,
    scaffold: String,
}

/// A piece of a section: text, or the name of what is put in.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Slot(&'static str),
}

/// A checked prompt file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptTemplate {
    system: String,
    user: Vec<Piece>,
    passage: Vec<Piece>,
    scaffold: Vec<Piece>,
    hash: String,
}

impl PromptTemplate {
    /// The prompt that is built in, `configs/prompts/reader.toml`.
    ///
    /// # Errors
    /// Never with the file as shipped; a test reads it.
    pub fn builtin() -> Result<Self> {
        Self::parse(BUILTIN, "the built-in prompt")
    }

    /// Reads a prompt file.
    ///
    /// # Errors
    /// When the file cannot be read, is no TOML, has an unknown or missing section, or a section lacks a placeholder or
    /// holds it twice.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io("read the prompt file", path, e))?;
        Self::parse(&text, &path.display().to_string())
    }

    fn parse(text: &str, name: &str) -> Result<Self> {
        let file: PromptFile = toml::from_str(text).map_err(|e| {
            Error::request(format!("{name} is not a prompt file: {}", e.message())).with_hint(
                "a prompt file has the sections system, user, passage and scaffold; see configs/prompts/reader.toml",
            )
        })?;
        Ok(Self {
            user: pieces(&file.user, "user", &["passages", "scaffold", "question"], name)?,
            passage: pieces(&file.passage, "passage", &["text"], name)?,
            scaffold: pieces(&file.scaffold, "scaffold", &["summary"], name)?,
            system: file.system.trim().to_owned(),
            hash: blake3::hash(text.as_bytes()).to_hex().to_string(),
        })
    }

    /// blake3 of the prompt file's bytes, hexadecimal.
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

/// The messages of equation 14: the passages in rank order, the scaffold's summary where one is used, the question.
pub fn assemble_context(
    template: &PromptTemplate,
    passages: &[PromptPassage],
    scaffold: Option<&str>,
    question: &str,
) -> Prompt {
    let passages: String = passages.iter().map(|passage| fill(&template.passage, |_| &passage.text)).collect();
    let scaffold = scaffold.map_or_else(String::new, |summary| fill(&template.scaffold, |_| summary));
    let user = fill(&template.user, |slot| match slot {
        "passages" => &passages,
        "scaffold" => &scaffold,
        _ => question,
    });
    Prompt { system: template.system.clone(), user }
}

fn fill<'a>(pieces: &'a [Piece], value: impl Fn(&str) -> &'a str) -> String {
    pieces
        .iter()
        .map(|piece| match piece {
            Piece::Text(text) => text,
            Piece::Slot(slot) => value(slot),
        })
        .collect()
}

/// Cuts a section at its placeholders, each of which must stand there exactly once.
fn pieces(section: &str, key: &str, slots: &[&'static str], name: &str) -> Result<Vec<Piece>> {
    let mut places = Vec::with_capacity(slots.len());
    for &slot in slots {
        let placeholder = format!("{{{slot}}}");
        let found: Vec<usize> = section.match_indices(&placeholder).map(|(at, _)| at).collect();
        let &[at] = found.as_slice() else {
            return Err(Error::request(format!("section {key} of {name} holds {placeholder} {} times", found.len()))
                .with_hint(format!("write {placeholder} exactly once in {key}")));
        };
        places.push((at, placeholder.len(), slot));
    }
    places.sort_unstable();
    let mut pieces = Vec::new();
    let mut from = 0;
    for (at, length, slot) in places {
        pieces.push(Piece::Text(section[from..at].to_owned()));
        pieces.push(Piece::Slot(slot));
        from = at + length;
    }
    pieces.push(Piece::Text(section[from..].to_owned()));
    Ok(pieces)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use crate::ids::PassageId;

    fn passages(texts: &[&str]) -> Vec<PromptPassage> {
        texts.iter().enumerate().map(|(i, &text)| PromptPassage { id: PassageId::from(i), text: text.into() }).collect()
    }

    const FILE: &str = "system = ' Read. '\nuser = '{passages}|{scaffold}|Question: {question} {x}'\npassage = '<{text}>'\nscaffold = 'Once: {summary}'\n";

    #[test]
    fn passages_then_scaffold_then_question() {
        let template = PromptTemplate::parse(FILE, "test").unwrap();
        let prompt = assemble_context(&template, &passages(&["b", "a"]), Some("sum"), "Who?");
        assert_eq!((prompt.system.as_str(), prompt.user.as_str()), ("Read.", "<b><a>|Once: sum|Question: Who? {x}"));
        let prompt = assemble_context(&template, &[], None, "Who?");
        assert_eq!(prompt.user, "||Question: Who? {x}");
    }

    #[test]
    fn braces_in_texts_stay() {
        let template = PromptTemplate::parse(FILE, "test").unwrap();
        let prompt = assemble_context(&template, &passages(&["{question}"]), Some("{text}"), "{passages}");
        assert_eq!(prompt.user, "<{question}>|Once: {text}|Question: {passages} {x}");
    }

    #[test]
    fn builtin_prompt_has_its_shape() {
        let template = PromptTemplate::builtin().unwrap();
        assert_eq!(template.hash().len(), 64);
        let plain = assemble_context(&template, &passages(&["First.", "Second."]), None, "Who?");
        assert_eq!(plain.user, "First.\nSecond.\n\nQuestion: Who?\nThought: ");
        assert!(plain.system.contains("`Thought: `") && plain.system.contains("`Answer: `"));
        let guided =
            assemble_context(&template, &passages(&["First."]), Some("Question: Where?\nAnswer: Oslo"), "Who?");
        assert!(guided.user.starts_with("First.\n\nA related question"));
        assert!(guided.user.ends_with("Question: Where?\nAnswer: Oslo\n\nQuestion: Who?\nThought: "));
    }

    #[test]
    fn wrong_prompt_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.toml");
        assert!(PromptTemplate::load(&path).unwrap_err().report().contains("p.toml"));
        for (text, expected) in [
            ("system = 3", "is not a prompt file"),
            (&FILE.replace("system", "sytem"), "is not a prompt file"),
            (&FILE.replace("{scaffold}", ""), "section user of"),
            (&FILE.replace("<{text}>", "{text}{text}"), "holds {text} 2 times"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = PromptTemplate::load(&path).unwrap_err();
            assert!(error.report().contains(expected) && error.report().contains("p.toml"), "{}", error.report());
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn hash_follows_the_text() {
        let one = PromptTemplate::parse(FILE, "test").unwrap();
        let other = PromptTemplate::parse(&FILE.replace("Once", "Then"), "test").unwrap();
        assert_ne!(one.hash(), other.hash());
    }
}
