//! Recorded answers: a reader that looks requests up in a file, and the writer that makes such files.
//!
//! In: JSON lines `{"key", "query_id", "raw", "status", "usage": {…}, "tokens_estimated", "elapsed_us"}`, of which `key`
//! ([`request_key`]) and `raw` must be there. Out: the recorded responses. A request that was never recorded stops the run.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Generator, LlmStatus, ModelSettings, Request, Response, Usage, request_key};
use crate::{Error, Result};

/// One line of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    key: String,
    #[serde(default)]
    query_id: String,
    raw: String,
    #[serde(default = "complete")]
    status: LlmStatus,
    #[serde(default)]
    usage: Usage,
    #[serde(default)]
    tokens_estimated: bool,
    #[serde(default)]
    elapsed_us: u64,
}

fn complete() -> LlmStatus {
    LlmStatus::Ok
}

/// Answers requests from a recording.
#[derive(Debug)]
pub struct RecordedReader {
    path: PathBuf,
    settings: ModelSettings,
    responses: BTreeMap<String, Response>,
    torn_tail: bool,
}

impl RecordedReader {
    /// Reads a recording; `settings` are part of every request's key.
    ///
    /// A last line that was cut off while it was written (no line end, no JSON) is dropped, see [`Self::torn_tail`].
    ///
    /// # Errors
    /// When the file cannot be read, a line is no record, or one key has two different answers.
    pub fn open(path: &Path, settings: ModelSettings) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io("read the recording", path, e))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let mut responses = BTreeMap::new();
        let mut torn_tail = false;
        let lines: Vec<&str> = text.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let record: Record = match serde_json::from_str(line) {
                Ok(record) => record,
                Err(e) if e.is_eof() && i + 1 == lines.len() && !text.ends_with('\n') => {
                    torn_tail = true;
                    continue;
                }
                Err(e) => {
                    return Err(Error::request(format!(
                        "line {} of {} is not a recorded answer",
                        i + 1,
                        path.display()
                    ))
                    .with_source(e)
                    .with_hint("a line is {\"key\": request hash, \"raw\": text, \"status\": …, \"usage\": {…}}"));
                }
            };
            let key = record.key;
            let response = Response {
                raw: record.raw,
                status: record.status,
                usage: record.usage,
                tokens_estimated: record.tokens_estimated,
                elapsed_us: record.elapsed_us,
            };
            let earlier = responses.get(&key).map(|earlier: &Response| &earlier.raw);
            if earlier.is_some_and(|raw| *raw != response.raw) {
                return Err(Error::request(format!(
                    "line {} of {} records a second, different answer for key {key}",
                    i + 1,
                    path.display()
                ))
                .with_hint("delete one of the two lines"));
            }
            responses.entry(key).or_insert(response);
        }
        Ok(Self { path: path.to_owned(), settings, responses, torn_tail })
    }

    /// Whether the last line was cut off and dropped; worth a warning.
    pub fn torn_tail(&self) -> bool {
        self.torn_tail
    }

    /// How many different requests the recording answers.
    pub fn len(&self) -> usize {
        self.responses.len()
    }

    /// Whether the recording answers nothing.
    pub fn is_empty(&self) -> bool {
        self.responses.is_empty()
    }
}

impl Generator for RecordedReader {
    fn name(&self) -> &str {
        "recorded"
    }

    fn generate(&self, batch: &[Request]) -> Result<Vec<Response>> {
        let look_up = |request: &Request| {
            let key = request_key(request, &self.settings);
            self.responses.get(&key).cloned().ok_or_else(|| {
                Error::work(format!(
                    "{} has no answer for question {} (request {key})",
                    self.path.display(),
                    request.query_id
                ))
                .with_hint(
                    "record it with the same prompt file, passages, scaffold and model settings, or use another reader",
                )
            })
        };
        batch.iter().map(look_up).collect()
    }
}

/// Writes a recording, a line an answer.
#[derive(Debug)]
pub struct RecordingWriter {
    path: PathBuf,
    out: BufWriter<File>,
    settings: ModelSettings,
}

impl RecordingWriter {
    /// Starts a new recording of answers made with `settings`.
    ///
    /// # Errors
    /// When the file exists already or cannot be created.
    pub fn create(path: &Path, settings: ModelSettings) -> Result<Self> {
        let file = File::create_new(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => Error::request(format!("recording {} exists already", path.display()))
                .with_hint("name another file, or delete this one"),
            _ => Error::io("create the recording", path, e),
        })?;
        Ok(Self { path: path.to_owned(), out: BufWriter::new(file), settings })
    }

    /// Adds the response to one request and flushes the line.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub fn write(&mut self, request: &Request, response: &Response) -> Result<()> {
        let record = Record {
            key: request_key(request, &self.settings),
            query_id: request.query_id.clone(),
            raw: response.raw.clone(),
            status: response.status,
            usage: response.usage,
            tokens_estimated: response.tokens_estimated,
            elapsed_us: response.elapsed_us,
        };
        let mut line = serde_json::to_vec(&record)
            .map_err(|e| Error::work(format!("cannot encode the answer to {}", request.query_id)).with_source(e))?;
        line.push(b'\n');
        let written = self.out.write_all(&line).and_then(|()| self.out.flush());
        written.map_err(|e| Error::io("write the recording", &self.path, e))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use crate::generate::key::tests::request;

    fn settings() -> ModelSettings {
        ModelSettings { model: "m".into(), max_tokens: 2000, ..ModelSettings::default() }
    }

    fn response(raw: &str) -> Response {
        Response {
            raw: raw.into(),
            status: LlmStatus::Truncated,
            usage: Usage {
                prompt_tokens: Some(3),
                completion_tokens: None,
                reasoning_tokens: Some(0),
                cached_tokens: None,
            },
            tokens_estimated: true,
            elapsed_us: 12,
        }
    }

    fn recording(folder: &Path) -> PathBuf {
        let path = folder.join("answers.jsonl");
        let mut writer = RecordingWriter::create(&path, settings()).unwrap();
        writer.write(&request("q1", "Who?"), &response("Answer: Oslo\nand \"more\"")).unwrap();
        writer.write(&request("q2", "Where?"), &response("Answer: Rome")).unwrap();
        path
    }

    #[test]
    fn what_was_written_is_found_again_in_any_order() {
        let folder = tempfile::tempdir().unwrap();
        let reader = RecordedReader::open(&recording(folder.path()), settings()).unwrap();
        assert_eq!((reader.len(), reader.is_empty(), reader.torn_tail()), (2, false, false));
        let answers = reader.generate(&[request("x", "Where?"), request("y", "Who?"), request("z", "Where?")]).unwrap();
        assert_eq!(
            answers,
            [response("Answer: Rome"), response("Answer: Oslo\nand \"more\""), response("Answer: Rome")]
        );
    }

    #[test]
    fn a_miss_names_the_question() {
        let folder = tempfile::tempdir().unwrap();
        let path = recording(folder.path());
        let reader = RecordedReader::open(&path, settings()).unwrap();
        let error = reader.generate(&[request("q1", "Who?"), request("q9", "When?")]).unwrap_err().report();
        assert!(error.contains("question q9") && error.contains("answers.jsonl"), "{error}");
        // Pitfall 31: another completion limit is another request.
        let reader = RecordedReader::open(&path, ModelSettings { max_tokens: 1, ..settings() }).unwrap();
        assert!(reader.generate(&[request("q1", "Who?")]).is_err());
    }

    #[test]
    fn pitfall_29_a_torn_tail_is_dropped_and_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = recording(folder.path());
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 7]).unwrap();
        let reader = RecordedReader::open(&path, settings()).unwrap();
        assert_eq!((reader.len(), reader.torn_tail()), (1, true));
    }

    #[test]
    fn wrong_lines_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.jsonl");
        for (text, expected) in [
            ("{\"key\":\"a\",\"raw\":\"x\"}\n{\"key\":\n", "line 2 of"),
            ("[1]\n", "line 1 of"),
            ("{\"key\":\"a\",\"raw\":\"x\",\"satus\":\"ok\"}\n", "line 1 of"),
            ("{\"key\":\"a\",\"raw\":\"x\"}\n\n{\"key\":\"a\",\"raw\":\"y\"}\n", "line 3 of"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = RecordedReader::open(&path, settings()).unwrap_err();
            assert!(error.report().contains(expected), "{}", error.report());
            assert_eq!(error.exit_code(), 2);
        }
        std::fs::write(&path, "\u{feff}{\"key\":\"a\",\"raw\":\"x\"}\r\n{\"key\":\"a\",\"raw\":\"x\"}").unwrap();
        assert_eq!(RecordedReader::open(&path, settings()).unwrap().len(), 1);
        assert!(RecordedReader::open(&folder.path().join("none"), settings()).is_err());
        assert!(RecordingWriter::create(&path, settings()).unwrap_err().report().contains("exists already"));
    }
}
