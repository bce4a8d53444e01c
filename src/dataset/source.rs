//! One text file of a dataset, read once: bytes in; UTF-8 text, repaired escapes and parsed JSON records out.
//!
//! UTF-8 with or without a byte order mark, LF or CRLF. Anything else is an error that names file, line and byte.
//! `\ud83d`-like escapes without their other half are legal in JSON text and impossible in UTF-8, so they are replaced by
//! U+FFFD before parsing and noted with their record. Records and lines count from 1.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Note;
use crate::error::{Error, Result};

/// How records lie in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One JSON value; its records are the elements of the outermost list or object.
    Json,
    /// A JSON value a line.
    JsonLines,
}

impl Layout {
    /// `.jsonl` files are JSON lines, all others one JSON value.
    pub(crate) fn of(path: &Path) -> Self {
        match path.extension() {
            Some(e) if e.eq_ignore_ascii_case("jsonl") => Self::JsonLines,
            _ => Self::Json,
        }
    }

    /// What a record is called in messages.
    fn noun(self) -> &'static str {
        match self {
            Self::Json => "record",
            Self::JsonLines => "line",
        }
    }
}

/// A text file in memory.
#[derive(Debug)]
pub(crate) struct Source {
    /// Where it was read from.
    pub(crate) path: PathBuf,
    /// How its records lie.
    pub(crate) layout: Layout,
    /// UTF-8 without byte order mark, lone surrogate escapes replaced.
    pub(crate) text: String,
    /// blake3 of the bytes on disk.
    pub(crate) hash: blake3::Hash,
    /// What was repaired.
    pub(crate) notes: Vec<Note>,
}

impl Source {
    /// Reads `path`; errors: cannot be read, not UTF-8.
    pub(crate) fn read(path: &Path, layout: Layout) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|e| Error::io("read", path, e))?;
        let hash = blake3::hash(&bytes);
        let text = decode(path, bytes)?;
        let (text, repaired) = replace_lone_surrogates(text, layout);
        let mut notes = Vec::new();
        if !repaired.is_empty() {
            notes.push(surrogate_note(path, layout, &repaired));
        }
        Ok(Self { path: path.to_owned(), layout, text, hash, notes })
    }

    /// The file's name without its folder.
    pub(crate) fn file_name(&self) -> String {
        file_name(&self.path)
    }

    /// The whole file as one JSON value.
    pub(crate) fn parse<T: serde::de::DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(&self.text).map_err(|e| json_error(&self.path, e.line(), &e))
    }

    /// Non-blank lines with their numbers.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .split('\n')
            .enumerate()
            .map(|(i, l)| (i + 1, l.trim_end_matches('\r')))
            .filter(|(_, l)| !l.trim().is_empty())
    }

    /// All records with their numbers: elements of the list, or lines.
    pub(crate) fn records(&self) -> Result<Vec<(usize, Value)>> {
        match self.layout {
            Layout::JsonLines => self
                .lines()
                .map(|(n, line)| Ok((n, serde_json::from_str(line).map_err(|e| json_error(&self.path, n, &e))?)))
                .collect(),
            Layout::Json => match self.parse::<Value>()? {
                Value::Array(items) => Ok(items.into_iter().enumerate().map(|(i, v)| (i + 1, v)).collect()),
                other => Err(Error::request(format!(
                    "{} holds {} where a list of records belongs",
                    self.path.display(),
                    type_name(&other)
                ))),
            },
        }
    }
}

/// The last part of a path, for messages inside one folder.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned())
}

/// What a JSON value is, with its article.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// `error` in `path` at `line` (in JSON lines serde only ever sees line 1).
pub(crate) fn json_error(path: &Path, line: usize, error: &serde_json::Error) -> Error {
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    let kind = if error.is_data() { "unexpected JSON" } else { "invalid JSON" };
    Error::request(format!("{}: {kind} in line {line}, column {}: {what}", path.display(), error.column()))
}

/// Strips a UTF-8 byte order mark and refuses what is not UTF-8.
pub(crate) fn decode(path: &Path, bytes: Vec<u8>) -> Result<String> {
    const BOM: char = '\u{feff}';
    match String::from_utf8(bytes) {
        Ok(mut text) => {
            if text.starts_with(BOM) {
                text.drain(..BOM.len_utf8());
            }
            Ok(text)
        }
        Err(e) => {
            let at = e.utf8_error().valid_up_to();
            let bytes = e.as_bytes();
            let line = 1 + bytes[..at].iter().filter(|&&b| b == b'\n').count();
            let wide = bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]);
            let guess = if wide { "UTF-16" } else { "another code page" };
            Err(Error::request(format!(
                "{} is not UTF-8: line {line}, byte {} of the file is 0x{:02X}",
                path.display(),
                at + 1,
                bytes[at]
            ))
            .with_hint(format!(
                "it looks like {guess}; convert it, for example with `iconv -f {} -t UTF-8`",
                if wide { "UTF-16" } else { "WINDOWS-1252" }
            )))
        }
    }
}

/// A replaced escape: record number and the escape as it stood.
type Repair = (usize, String);

fn surrogate_note(path: &Path, layout: Layout, repaired: &[Repair]) -> Note {
    const SHOWN: usize = 10;
    let shown: Vec<String> =
        repaired.iter().take(SHOWN).map(|(record, escape)| format!("{escape} in {} {record}", layout.noun())).collect();
    let more = if repaired.len() > SHOWN { format!(" and {} more", repaired.len() - SHOWN) } else { String::new() };
    Note {
        code: "lone_surrogate",
        text: format!(
            "{}: {} lone surrogate escape{} replaced by U+FFFD: {}{more}",
            file_name(path),
            repaired.len(),
            if repaired.len() == 1 { "" } else { "s" },
            shown.join(", ")
        ),
    }
}

/// Replaces surrogate escapes that have no other half. Replacement and escape are equally long, so lines and columns stay.
///
/// A backslash is legal only inside JSON strings, where it always takes the next character with it, so skipping escapes
/// as they come keeps `\\ud800` (a backslash and letters) untouched.
fn replace_lone_surrogates(text: String, layout: Layout) -> (String, Vec<Repair>) {
    if !text.contains("\\ud") && !text.contains("\\uD") {
        return (text, Vec::new());
    }
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut repairs = Vec::new();
    let (mut copied, mut i) = (0, 0);
    let (mut in_string, mut depth, mut record) = (false, 0_usize, 1_usize);
    while i < bytes.len() {
        match bytes[i] {
            b'\n' if layout == Layout::JsonLines => (in_string, depth, record) = (false, 0, record + 1),
            b'"' => in_string = !in_string,
            b'\\' if in_string => match escape_at(bytes, i) {
                Some(0xD800..=0xDBFF) if matches!(escape_at(bytes, i + 6), Some(0xDC00..=0xDFFF)) => {
                    i += 12;
                    continue;
                }
                Some(0xD800..=0xDFFF) => {
                    out.push_str(&text[copied..i]);
                    out.push_str("\\ufffd");
                    repairs.push((record, text[i..i + 6].to_owned()));
                    i += 6;
                    copied = i;
                    continue;
                }
                _ => {
                    i += 2;
                    continue;
                }
            },
            b'[' | b'{' if !in_string => depth += 1,
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            b',' if !in_string && depth == 1 && layout == Layout::Json => record += 1,
            _ => {}
        }
        i += 1;
    }
    out.push_str(&text[copied..]);
    (out, repairs)
}

/// The code unit of the `\uXXXX` that starts at byte `at`, if one does.
fn escape_at(bytes: &[u8], at: usize) -> Option<u16> {
    let hex = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    hex.iter().try_fold(0_u16, |unit, &b| Some(unit << 4 | (b as char).to_digit(16)? as u16))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], layout: Layout) -> Result<Source> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.json");
        std::fs::write(&path, bytes).unwrap();
        Source::read(&path, layout)
    }

    #[test]
    fn pitfall_11_bom_and_crlf_are_read_and_another_code_page_is_named() {
        let source = read(b"\xEF\xBB\xBF[\r\n\"caf\xC3\xA9\"\r\n]\r\n", Layout::Json).unwrap();
        assert_eq!(source.records().unwrap(), [(1, Value::from("café"))]);
        let lines = read(b"\xEF\xBB\xBF{\"a\": 1}\r\n\r\n{\"a\": 2}\r\n", Layout::JsonLines).unwrap();
        assert_eq!(lines.records().unwrap().iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1, 3]);

        let error = read(b"[\n\"caf\xE9\"\n]", Layout::Json).unwrap_err();
        // "[", newline, quote, c, a, f are bytes 1 to 6.
        assert!(error.to_string().ends_with("f.json is not UTF-8: line 2, byte 7 of the file is 0xE9"), "{error}");
        let error = read(b"\xFF\xFE[\0]\0", Layout::Json).unwrap_err();
        assert!(error.hint().unwrap().contains("UTF-16"));
    }

    #[test]
    fn pitfall_12_lone_surrogates_are_replaced_and_reported_with_their_record() {
        let text = r#"[{"a": "x, [y]"}, {"a": "caf\udc9a"}, {"a": "\ud83d\ude00 \\ud800 \ud83d! \uD83D\u0041"}]"#;
        let source = read(text.as_bytes(), Layout::Json).unwrap();
        let records = source.records().unwrap();
        assert_eq!(records[1].1["a"], "caf\u{fffd}");
        assert_eq!(records[2].1["a"], "😀 \\ud800 \u{fffd}! \u{fffd}A");
        assert_eq!(source.notes.len(), 1);
        assert_eq!(source.notes[0].code, "lone_surrogate");
        assert_eq!(
            source.notes[0].text,
            r"f.json: 3 lone surrogate escapes replaced by U+FFFD: \udc9a in record 2, \ud83d in record 3, \uD83D in record 3"
        );

        let lines = "{\"a\": \"b\"}\n{\"a\": [1, 2], \"b\": \"\\uDFFF\"}\n";
        let source = read(lines.as_bytes(), Layout::JsonLines).unwrap();
        assert_eq!(source.records().unwrap()[1].1["b"], "\u{fffd}");
        assert!(source.notes[0].text.ends_with(r"\uDFFF in line 2"));
    }

    #[test]
    fn a_pair_cut_by_the_end_of_the_file_is_left_to_the_parser() {
        let error = read(br#"["\ud83d\u"#, Layout::Json).unwrap().records().unwrap_err();
        assert!(error.to_string().contains("invalid JSON in line 1"), "{error}");
    }

    #[test]
    fn invalid_json_names_line_and_column() {
        let error = read(b"[\n  {\"a\": 1},\n  {\"a\": }\n]", Layout::Json).unwrap().records().unwrap_err();
        assert!(error.to_string().ends_with("f.json: invalid JSON in line 3, column 9: expected value"), "{error}");
        let error = read(b"{\"a\": 1}\n{\"a\": x}\n", Layout::JsonLines).unwrap().records().unwrap_err();
        assert!(error.to_string().contains("f.json: invalid JSON in line 2, column 7"), "{error}");
        let error = read(b"{\"a\": 1}", Layout::Json).unwrap().records().unwrap_err();
        assert!(error.to_string().ends_with("holds an object where a list of records belongs"), "{error}");
    }

    proptest::proptest! {
        /// Any sequence of UTF-16 units written as escapes reads as the standard library's lossy decoding of it.
        #[test]
        fn surrogates_are_decoded_as_lossy_utf_16(
            units in proptest::collection::vec(
                proptest::prop_oneof![0xD800_u16..0xE000, 0x20_u16..0x7F, proptest::prelude::any::<u16>()],
                0..20,
            ),
        ) {
            let escapes: String = units.iter().map(|u| format!("\\u{u:04x}")).collect();
            let (repaired, _) = replace_lone_surrogates(format!("[\"{escapes}\"]"), Layout::Json);
            let read: Vec<String> = serde_json::from_str(&repaired).unwrap();
            proptest::prop_assert_eq!(&read[0], &String::from_utf16_lossy(&units));
        }
    }
}
