//! `dataset.toml`: what a user says about a dataset folder. The file in, checked settings out; it may be missing.
//!
//! ```toml
//! name = "hotpotqa"                    # default: the folder's name
//! kind = "hipporag"                    # default: recognised from the files
//! questions = "hotpotqa.json"          # default: by the kind
//! corpus = "hotpotqa_corpus.json"      # default: by the kind
//! licence = "CC BY-SA 4.0"             # default: unknown
//! ```

use std::path::Path;

use super::Kind;
use super::source::{Layout, Source};
use crate::error::{Error, ErrorKind, Result};

/// The file's name.
pub(crate) const FILE: &str = "dataset.toml";

const KEYS: [&str; 5] = ["name", "kind", "questions", "corpus", "licence"];

/// What `dataset.toml` says.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Settings {
    pub(crate) name: Option<String>,
    pub(crate) kind: Option<Kind>,
    /// A file of the folder.
    pub(crate) questions: Option<String>,
    /// A file of the folder.
    pub(crate) corpus: Option<String>,
    pub(crate) licence: Option<String>,
}

impl Settings {
    /// Reads `dataset.toml` of `folder`; defaults where there is none.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE);
        match Source::read(&path, Layout::Json) {
            Ok(source) => Self::parse(&path, &source.text),
            Err(e) if e.kind() == ErrorKind::Request && !path.exists() => Ok(Self::default()),
            Err(e) => Err(e),
        }
    }

    fn parse(path: &Path, text: &str) -> Result<Self> {
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
            let at = e.span().map_or(0, |s| s.start).min(text.len());
            let line = 1 + text.as_bytes()[..at].iter().filter(|&&b| b == b'\n').count();
            Error::request(format!("{}: invalid TOML in line {line}: {}", path.display(), e.message()))
        })?;
        let mut settings = Self::default();
        for (key, value) in table {
            if !KEYS.contains(&key.as_str()) {
                return Err(unknown_key(path, &key));
            }
            let toml::Value::String(value) = value else {
                return Err(Error::request(format!(
                    "{}: key \"{key}\" is of type {} where a string belongs",
                    path.display(),
                    value.type_str()
                )));
            };
            match key.as_str() {
                "name" => settings.name = Some(value),
                "kind" => settings.kind = Some(parse_kind(path, &value)?),
                "questions" => settings.questions = Some(value),
                "corpus" => settings.corpus = Some(value),
                _ => settings.licence = Some(value),
            }
        }
        Ok(settings)
    }
}

/// The candidate most like `word`.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const ALIKE: f64 = 0.75;
    let word = word.to_lowercase();
    candidates
        .into_iter()
        .map(|c| (strsim::jaro_winkler(&word, c), c))
        .filter(|(score, _)| *score >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, c)| c)
}

fn unknown_key(path: &Path, key: &str) -> Error {
    let hint = match nearest(key, KEYS) {
        Some(near) => format!("did you mean \"{near}\"? The keys are {}", KEYS.join(", ")),
        None => format!("the keys are {}", KEYS.join(", ")),
    };
    Error::request(format!("{}: unknown key \"{key}\"", path.display())).with_hint(hint)
}

fn parse_kind(path: &Path, value: &str) -> Result<Kind> {
    Kind::ALL.into_iter().find(|k| k.as_str() == value).ok_or_else(|| {
        let names = Kind::ALL.map(Kind::as_str);
        let hint = match nearest(value, names) {
            Some(near) => format!("did you mean \"{near}\"? The kinds are {}", names.join(", ")),
            None => format!("the kinds are {}", names.join(", ")),
        };
        Error::request(format!("{}: unknown kind \"{value}\"", path.display())).with_hint(hint)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings> {
        Settings::parse(Path::new("d/dataset.toml"), text)
    }

    #[test]
    fn all_keys_are_read() {
        let text = "name = \"n\"\r\nkind = \"2wiki\"\nquestions = \"q\"\ncorpus = \"c\"\nlicence = \"l\"";
        assert_eq!(
            parse(text).unwrap(),
            Settings {
                name: Some("n".into()),
                kind: Some(Kind::TwoWiki),
                questions: Some("q".into()),
                corpus: Some("c".into()),
                licence: Some("l".into()),
            }
        );
        assert_eq!(parse("").unwrap(), Settings::default());
    }

    #[test]
    fn errors_name_file_key_and_cure() {
        let error = parse("license = \"MIT\"").unwrap_err();
        assert_eq!(error.to_string(), "d/dataset.toml: unknown key \"license\"");
        assert!(error.hint().unwrap().starts_with("did you mean \"licence\"? The keys are name, kind"));
        let error = parse("kind = \"HippoRAG\"").unwrap_err();
        assert_eq!(error.to_string(), "d/dataset.toml: unknown kind \"HippoRAG\"");
        assert!(error.hint().unwrap().starts_with("did you mean \"hipporag\"?"));
        assert!(parse("zzz = 1").unwrap_err().hint().unwrap().starts_with("the keys are"));
        let error = parse("name = \"a\"\nkind = 3").unwrap_err();
        assert_eq!(error.to_string(), "d/dataset.toml: key \"kind\" is of type integer where a string belongs");
        let error = parse("name = \"a\"\nkind = ").unwrap_err();
        assert!(error.to_string().starts_with("d/dataset.toml: invalid TOML in line 2: "), "{error}");
    }
}
