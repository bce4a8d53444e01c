//! Which files of a folder are the dataset and of which kind: folder and settings in, the files themselves out.
//!
//! Rules, in this order, with what `dataset.toml` says always first:
//! 1. `questions.json` beside `chunks.json` is linearrag;
//! 2. `<n>.json` beside `<n>_corpus.json` is hipporag;
//! 3. one `.json` or `.jsonl` file whose first record has `paragraphs` or `question_decomposition` is musique, one with
//!    `context` and `supporting_facts` is 2wiki where it has `evidences`, else hotpotqa.
//!
//! More than one answer is an error that names them: nothing is guessed.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::settings::{FILE, Settings};
use super::source::{Layout, Source};
use super::{ANNOTATIONS_FILE, Kind, QUESTION_ENTITIES_FILE};
use crate::error::{Error, Result};

/// The files of a dataset, read.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) kind: Kind,
    pub(crate) questions: Source,
    /// Where the kind keeps its corpus in a file of its own.
    pub(crate) corpus: Option<Source>,
}

/// Finds and reads the dataset's files.
pub(crate) fn files(folder: &Path, settings: &Settings) -> Result<Files> {
    let names = json_files(folder)?;
    let (kind, questions, corpus) = match settings.kind {
        Some(kind) => named(kind, folder, settings, &names)?,
        None => unnamed(folder, settings, &names)?,
    };
    for (key, name) in [("questions", &settings.questions), ("corpus", &settings.corpus)] {
        if let Some(name) = name.as_ref().filter(|name| !folder.join(name).exists()) {
            return Err(Error::request(format!(
                "{}: {key} = \"{name}\" names a file that does not exist",
                folder.join(FILE).display()
            ))
            .with_hint(format!("{} holds {}", folder.display(), listed(&names))));
        }
    }
    let read = |path: &PathBuf| Source::read(path, Layout::of(path));
    let corpus = corpus.as_ref().map(read).transpose()?;
    let questions = read(&questions)?;
    let kind = match kind {
        Some(kind) => kind,
        None => by_content(&questions)?,
    };
    Ok(Files { kind, questions, corpus })
}

/// Kind (`None`: the content tells), questions and corpus.
type Found = (Option<Kind>, PathBuf, Option<PathBuf>);

/// The kind is given; file names may be.
fn named(kind: Kind, folder: &Path, settings: &Settings, names: &[String]) -> Result<Found> {
    let given = |name: &Option<String>| name.as_ref().map(|n| folder.join(n));
    let (questions, corpus) = (given(&settings.questions), given(&settings.corpus));
    match kind {
        Kind::LinearRag => Ok((
            Some(kind),
            questions.unwrap_or_else(|| folder.join("questions.json")),
            Some(corpus.unwrap_or_else(|| folder.join("chunks.json"))),
        )),
        Kind::HippoRag => match (questions, corpus) {
            (Some(questions), Some(corpus)) => Ok((Some(kind), questions, Some(corpus))),
            (None, None) => {
                let (questions, corpus) = one_pair(folder, names)?.ok_or_else(|| {
                    unrecognised(folder, names).with_hint("kind hipporag needs <n>.json beside <n>_corpus.json")
                })?;
                Ok((Some(kind), questions, Some(corpus)))
            }
            _ => Err(Error::request(format!(
                "{}: kind hipporag needs both keys \"questions\" and \"corpus\", or neither",
                folder.join(FILE).display()
            ))),
        },
        Kind::HotpotQa | Kind::TwoWiki | Kind::MuSiQue => {
            if corpus.is_some() {
                return Err(Error::request(format!(
                    "{}: kind {} takes its passages from the questions' own paragraphs, so the key \"corpus\" has no place",
                    folder.join(FILE).display(),
                    kind.as_str()
                ))
                .with_hint("kind hipporag reads such questions with a corpus file"));
            }
            let questions = questions.map_or_else(|| only_file(folder, names), Ok)?;
            Ok((Some(kind), questions, None))
        }
    }
}

/// The kind is to be recognised.
fn unnamed(folder: &Path, settings: &Settings, names: &[String]) -> Result<Found> {
    if settings.questions.is_some() || settings.corpus.is_some() {
        return Err(Error::request(format!("{} names files but no kind", folder.join(FILE).display())).with_hint(
            format!("add kind = one of {}", Kind::ALL.map(Kind::as_str).map(|k| format!("\"{k}\"")).join(", ")),
        ));
    }
    let has = |name: &str| names.iter().any(|n| n == name);
    let pair = one_pair(folder, names)?;
    if has("questions.json") && has("chunks.json") {
        if let Some((questions, _)) = pair {
            return Err(Error::request(format!(
                "{} holds a linearrag dataset (questions.json, chunks.json) and a hipporag dataset ({})",
                folder.display(),
                questions.display()
            ))
            .with_hint(format!("say which in {FILE}: kind = \"linearrag\" or kind = \"hipporag\"")));
        }
        return Ok((Some(Kind::LinearRag), folder.join("questions.json"), Some(folder.join("chunks.json"))));
    }
    if let Some((questions, corpus)) = pair {
        return Ok((Some(Kind::HippoRag), questions, Some(corpus)));
    }
    Ok((None, only_file(folder, names)?, None))
}

/// `.json` and `.jsonl` files of the folder by name, annotations left out.
fn json_files(folder: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).map_err(|e| Error::io("open the dataset folder", folder, e))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| Error::io("list", folder, e))?;
        let path = entry.path();
        let is_json =
            path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json") || e.eq_ignore_ascii_case("jsonl"));
        let Ok(name) = entry.file_name().into_string() else { continue };
        if is_json && path.is_file() && name != ANNOTATIONS_FILE && name != QUESTION_ENTITIES_FILE {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// The one `<n>.json` with its `<n>_corpus.json`, if there is one; an error when there are more.
fn one_pair(folder: &Path, names: &[String]) -> Result<Option<(PathBuf, PathBuf)>> {
    let pairs: Vec<(String, &String)> = names
        .iter()
        .filter_map(|corpus| {
            let questions = format!("{}.json", corpus.strip_suffix("_corpus.json")?);
            names.contains(&questions).then_some((questions, corpus))
        })
        .collect();
    match &pairs[..] {
        [] => Ok(None),
        [(questions, corpus)] => Ok(Some((folder.join(questions), folder.join(corpus)))),
        [(first, _), (second, _), ..] => {
            Err(Error::request(format!("{} holds more than one hipporag dataset: {first}, {second}", folder.display()))
                .with_hint(format!("say which in {FILE}: kind = \"hipporag\", questions = …, corpus = …")))
        }
    }
}

/// The only JSON file of the folder.
fn only_file(folder: &Path, names: &[String]) -> Result<PathBuf> {
    match names {
        [name] if !name.ends_with("_corpus.json") => Ok(folder.join(name)),
        _ => Err(unrecognised(folder, names)),
    }
}

fn unrecognised(folder: &Path, names: &[String]) -> Error {
    Error::request(format!("{} is no dataset folder that is recognised; it holds {}", folder.display(), listed(names)))
        .with_hint(format!(
            "expected questions.json and chunks.json (linearrag), <n>.json and <n>_corpus.json (hipporag), or one official \
             hotpotqa, 2wiki or musique file; else name kind and files in {FILE}"
        ))
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "no .json or .jsonl file".to_owned() } else { names.join(", ") }
}

/// The official kinds by the fields of the first record.
fn by_content(questions: &Source) -> Result<Kind> {
    let first = match questions.layout {
        Layout::JsonLines => match questions.lines().next() {
            Some((n, line)) => {
                serde_json::from_str(line).map_err(|e| super::source::json_error(&questions.path, n, &e))?
            }
            None => Value::Null,
        },
        Layout::Json => questions.records()?.into_iter().next().map_or(Value::Null, |(_, v)| v),
    };
    let has = |field: &str| first.get(field).is_some();
    if has("paragraphs") || has("question_decomposition") {
        Ok(Kind::MuSiQue)
    } else if has("context") && has("supporting_facts") {
        Ok(if has("evidences") { Kind::TwoWiki } else { Kind::HotpotQa })
    } else {
        let fields: Vec<&str> = first.as_object().map(|o| o.keys().map(String::as_str).collect()).unwrap_or_default();
        Err(Error::request(format!(
            "{} is of no kind that is recognised; its first record has {}",
            questions.path.display(),
            if fields.is_empty() { "no fields".to_owned() } else { format!("the fields {}", fields.join(", ")) }
        ))
        .with_hint(format!(
            "musique has question_decomposition, hotpotqa and 2wiki have context and supporting_facts; questions.json needs \
             chunks.json beside it (linearrag), <n>.json needs <n>_corpus.json (hipporag); else say kind = … in {FILE}"
        )))
    }
}
