//! Answers and judgements that go with a dataset: what a model said, as a file that is replayed without asking anyone.
//!
//! In: a request cache ([`record`]), or JSON lines that were written from one ([`Recording::open`]). Out: the same outcomes for the same
//! requests. A line holds the request's key, the model with its address and settings, what it said, its token counts and times.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cache::{Cache, Entry, write_new};
use super::outcome::{Came, answered};
use super::reply::{self, Reply};
use super::tokens::TokenCounter;
use super::{CacheKey, Call, ChatOutcome, ChatRequest, Usage, iso_date};
use crate::{Error, Result};

/// Entries read at a time.
const PAGE: u32 = 4096;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: String,
    question: String,
    model: String,
    base_url: String,
    #[serde(default)]
    settings: serde_json::Value,
    #[serde(default)]
    attempt: u32,
    content: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reasoning: String,
    #[serde(default)]
    finish_reason: Option<String>,
    #[serde(default)]
    usage: Usage,
    #[serde(default)]
    elapsed_us: u64,
    #[serde(default)]
    created: i64,
}

/// What a recording holds of one model at one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Model.
    pub model: String,
    /// Address that answered.
    pub base_url: String,
    /// The distinct settings of its requests, as JSON, sorted.
    pub settings: Vec<String>,
    /// Answers.
    pub answers: u64,
    /// When the first and the last came, seconds since 1970.
    pub created: (i64, i64),
}

struct Kept {
    reply: Reply,
    /// Place among the models.
    model: usize,
    elapsed_us: u64,
}

/// A recording that was read.
pub struct Recording {
    path: PathBuf,
    hash: String,
    answers: BTreeMap<CacheKey, Kept>,
    models: Vec<Recorded>,
    torn_tail: bool,
}

impl Recording {
    /// Reads a recording.
    ///
    /// A last line that was cut off while it was copied (no line end, no JSON) is dropped, see [`Self::torn_tail`].
    ///
    /// # Errors
    /// When the file cannot be read, a line is no recorded answer, or one request has two different answers.
    pub fn open(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io("read the recording", path, e))?;
        let mut recording = Self {
            path: path.to_owned(),
            hash: blake3::hash(text.as_bytes()).to_hex().to_string(),
            answers: BTreeMap::new(),
            models: Vec::new(),
            torn_tail: false,
        };
        let whole = text.ends_with('\n');
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let lines: Vec<&str> = text.lines().collect();
        for (i, line) in lines.iter().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            match serde_json::from_str(line) {
                Ok(line) => recording.add(i + 1, line)?,
                Err(e) if e.is_eof() && i + 1 == lines.len() && !whole => recording.torn_tail = true,
                Err(e) => {
                    return Err(recording
                        .wrong(i + 1, "is not a recorded answer")
                        .with_source(e)
                        .with_hint("a recording is what `livingrag cache export --recorded FILE.jsonl` writes"));
                }
            }
        }
        recording.models.iter_mut().for_each(|m| m.settings.sort());
        Ok(recording)
    }

    fn wrong(&self, number: usize, what: &str) -> Error {
        Error::request(format!("line {number} of {} {what}", self.path.display()))
    }

    fn add(&mut self, number: usize, line: Line) -> Result<()> {
        let key = CacheKey::from_hex(&line.key)
            .ok_or_else(|| self.wrong(number, &format!("has the key {:?}, expected 64 hex digits", line.key)))?;
        let reply = Reply {
            content: line.content,
            reasoning: line.reasoning,
            finish_reason: line.finish_reason,
            usage: line.usage,
        };
        if let Some(earlier) = self.answers.get(&key) {
            if earlier.reply != reply {
                return Err(self
                    .wrong(number, &format!("records a second, different answer for the request {}", line.key))
                    .with_hint("delete one of the two lines"));
            }
            return Ok(());
        }
        let known = self.models.iter().position(|m| m.model == line.model && m.base_url == line.base_url);
        let model = known.unwrap_or(self.models.len());
        if known.is_none() {
            let created = (line.created, line.created);
            let (settings, answers) = (Vec::new(), 0);
            self.models.push(Recorded { model: line.model, base_url: line.base_url, settings, answers, created });
        }
        let of = &mut self.models[model];
        of.answers += 1;
        of.created = (of.created.0.min(line.created), of.created.1.max(line.created));
        let settings = line.settings.to_string();
        if !of.settings.contains(&settings) {
            of.settings.push(settings);
        }
        self.answers.insert(key, Kept { reply, model, elapsed_us: line.elapsed_us });
        Ok(())
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// blake3 of the file, hex.
    pub fn fingerprint(&self) -> &str {
        &self.hash
    }

    /// Whether the last line was cut off and dropped; worth a warning.
    pub fn torn_tail(&self) -> bool {
        self.torn_tail
    }

    /// How many different requests it answers.
    pub fn len(&self) -> usize {
        self.answers.len()
    }

    /// Whether it answers nothing.
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// Whose answers it holds, in the order of the file.
    pub fn models(&self) -> &[Recorded] {
        &self.models
    }

    /// The names of its models, each once: what a manifest calls the model.
    pub fn model_names(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for recorded in &self.models {
            if !names.contains(&recorded.model.as_str()) {
                names.push(&recorded.model);
            }
        }
        names.join(", ")
    }

    /// What a reader of results should know of where its answers come from, a sentence a model.
    pub fn provenance(&self) -> Vec<String> {
        let file = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let said = |m: &Recorded| {
            let (first, last) = (iso_date(m.created.0), iso_date(m.created.1));
            let when = if first == last { format!("on {first}") } else { format!("from {first} to {last}") };
            format!(
                "recorded, not asked: {} answers and judgements of {} at {} {when}, settings {}, in {file} ({})",
                m.answers,
                m.model,
                m.base_url,
                m.settings.join(" and "),
                self.hash.get(..12).unwrap_or_default()
            )
        };
        self.models.iter().map(said).collect()
    }

    /// The outcome recorded for a call whose request names no model and no address; these are the recording's.
    ///
    /// # Errors
    /// When two of its models have answered the request.
    fn find(&self, call: &Call, counter: Option<&TokenCounter>) -> Result<Option<ChatOutcome>> {
        let mut found: Option<(usize, ChatOutcome)> = None;
        for (place, recorded) in self.models.iter().enumerate() {
            let request = ChatRequest {
                base_url: recorded.base_url.clone(),
                model: recorded.model.clone(),
                ..call.request.clone()
            };
            let key = Call { request, ..call.clone() }.key();
            let Some(kept) = self.answers.get(&key).filter(|kept| kept.model == place) else { continue };
            if let Some((first, _)) = found {
                return Err(Error::request(format!(
                    "{} holds two answers to the question {:?}: of {} at {} and of {} at {}",
                    self.path.display(),
                    call.question,
                    self.models[first].model,
                    self.models[first].base_url,
                    recorded.model,
                    recorded.base_url
                ))
                .with_hint("export one model alone: `livingrag cache export --recorded FILE.jsonl --model NAME`"));
            }
            let came = Came { elapsed_us: kept.elapsed_us, tries: 1, cached: true };
            found = Some((place, answered(kept.reply.clone(), &call.request, counter, came)));
        }
        Ok(found.map(|(_, outcome)| outcome))
    }

    /// One outcome a call, in the order of the calls.
    ///
    /// # Errors
    /// At a request that was not recorded, naming its question.
    pub fn complete(&self, calls: &[Call], counter: Option<&TokenCounter>) -> Result<Vec<ChatOutcome>> {
        let mut outcomes = Vec::with_capacity(calls.len());
        let mut missing: Vec<&Call> = Vec::new();
        for call in calls {
            match self.find(call, counter)? {
                Some(outcome) => outcomes.push(outcome),
                None => missing.push(call),
            }
        }
        let Some(first) = missing.first() else { return Ok(outcomes) };
        let known: Vec<&str> = self.models.iter().flat_map(|m| &m.settings).map(String::as_str).collect();
        Err(Error::work(format!(
            "{} has no answer for the question {:?} ({} of {} requests are missing)",
            self.path.display(),
            first.question,
            missing.len(),
            calls.len()
        ))
        .with_hint(format!(
            "a recorded answer is found by the whole request: same passages, prompts, scaffold and settings; asked were {}, recorded are {}",
            first.request.settings(),
            known.join(" and ")
        )))
    }
}

/// Writes the answers of a cache, or those of one model, as a recording; the file appears whole or not at all. Returns how many.
///
/// # Errors
/// When `path` exists, nothing is kept, or something cannot be read or written.
pub fn record(cache: &Cache, path: &Path, model: Option<&str>) -> Result<u64> {
    write_new(path, |unfinished| {
        let io = |e| Error::io("write", path, e);
        let mut out = BufWriter::new(File::create(unfinished).map_err(io)?);
        let (mut written, mut last) = (0, None);
        loop {
            let page = cache.page(last, PAGE)?;
            let Some(end) = page.last() else { break };
            last = Some(end.key);
            for entry in page.into_iter().filter(|e| model.is_none_or(|name| e.model == name)) {
                let line = serde_json::to_string(&line(entry)?)
                    .map_err(|e| Error::work("cannot write an answer as JSON").with_source(e))?;
                writeln!(out, "{line}").map_err(io)?;
                written += 1;
            }
        }
        if written == 0 {
            let whose = model.map_or_else(String::new, |name| format!(" of {name}"));
            return Err(Error::request(format!("{} keeps no answer{whose}", cache.path().display()))
                .with_hint("`livingrag cache stats` lists what is kept"));
        }
        out.flush().map_err(io)?;
        Ok(written)
    })
}

fn line(entry: Entry) -> Result<Line> {
    let question = entry.question;
    let reply = reply::parse(&entry.body)
        .map_err(|e| Error::work(format!("the kept answer for the question {question:?} cannot be read: {e}")))?;
    Ok(Line {
        key: entry.key.hex(),
        model: entry.model,
        base_url: entry.base_url,
        settings: serde_json::from_str(&entry.settings).unwrap_or_default(),
        attempt: entry.attempt,
        content: reply.content,
        reasoning: reply.reasoning,
        finish_reason: reply.finish_reason,
        usage: reply.usage,
        elapsed_us: entry.elapsed_us,
        created: entry.created,
        question,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use crate::llm::{LlmStatus, Message};

    fn call(model: &str, base_url: &str, question: &str) -> Call {
        let request = ChatRequest::new(base_url, model, vec![Message::user(question)], 64);
        Call { question: question.into(), attempt: 0, request }
    }

    /// As a run with a recording asks: without model and address.
    fn asked(question: &str) -> Call {
        call("", "", question)
    }

    fn text(lines: &[(&str, &str, &str)]) -> String {
        let line = |(model, question, content): &(&str, &str, &str)| {
            let call = call(model, "http://h/v1", question);
            let line = Line {
                key: call.key().hex(),
                question: question.to_string(),
                model: model.to_string(),
                base_url: "http://h/v1".into(),
                settings: serde_json::from_str(&call.request.settings()).unwrap(),
                attempt: 0,
                content: content.to_string(),
                reasoning: String::new(),
                finish_reason: Some("length".into()),
                usage: Usage { prompt_tokens: Some(3), ..Usage::default() },
                elapsed_us: 12,
                created: 1_600_000_000,
            };
            serde_json::to_string(&line).unwrap() + "\n"
        };
        lines.iter().map(line).collect()
    }

    fn open(text: &str) -> Result<Recording> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("answers.jsonl");
        std::fs::write(&path, text).unwrap();
        Recording::open(&path)
    }

    #[test]
    fn what_was_recorded_is_found_by_its_request_alone() {
        let recording =
            open(&text(&[("m", "Who?", "Ann"), ("judge", "Is it?", "correct"), ("m", "Who?", "Ann")])).unwrap();
        assert_eq!((recording.len(), recording.is_empty(), recording.torn_tail()), (2, false, false));
        assert_eq!(recording.model_names(), "m, judge");
        let outcomes = recording.complete(&[asked("Is it?"), asked("Who?")], None).unwrap();
        assert_eq!((outcomes[0].text.as_str(), outcomes[1].text.as_str()), ("correct", "Ann"));
        let one = &outcomes[1];
        assert_eq!((one.status, one.usage.prompt_tokens, one.elapsed_us), (LlmStatus::Truncated, Some(3), 12));
        let said = &recording.provenance()[0];
        assert!(
            said.contains("1 answers and judgements of m at http://h/v1 on 2020-09-13, settings {\"max_tokens\":64,"),
            "{said}"
        );
    }

    /// Pitfall 31: another completion limit is another request.
    #[test]
    fn pitfall_31_a_miss_names_the_question_and_the_settings() {
        let recording = open(&text(&[("m", "Who?", "Ann")])).unwrap();
        let mut other = asked("Who?");
        other.request.max_tokens = 65;
        for (call, named) in [(other, "Who?"), (asked("When?"), "When?")] {
            let error = recording.complete(&[asked("Who?"), call], None).unwrap_err();
            let report = error.report();
            assert!(report.contains(&format!("no answer for the question {named:?} (1 of 2")), "{report}");
            assert!(error.exit_code() == 1 && report.contains("\"max_tokens\":64"), "{report}");
        }
        let again = Call { attempt: 1, ..asked("Who?") };
        assert!(recording.complete(&[again], None).is_err());
    }

    #[test]
    fn two_models_that_answered_the_same_are_not_chosen_between() {
        let recording = open(&text(&[("m", "Who?", "Ann"), ("n", "Who?", "Ben"), ("n", "When?", "Now")])).unwrap();
        let error = recording.complete(&[asked("Who?")], None).unwrap_err();
        assert!(error.to_string().contains("two answers to the question \"Who?\": of m at"), "{error}");
        assert!(recording.complete(&[asked("When?")], None).is_ok());
    }

    #[test]
    fn pitfall_29_a_torn_tail_is_dropped_and_told() {
        let text = text(&[("m", "Who?", "Ann"), ("m", "When?", "Now")]);
        let recording = open(&text[..text.len() - 7]).unwrap();
        assert_eq!((recording.len(), recording.torn_tail()), (1, true));
    }

    #[test]
    fn wrong_lines_are_named() {
        let good = text(&[("m", "Who?", "Ann")]);
        let other = good.replace("Ann", "Ben");
        for (text, expected) in [
            (format!("{good}{{\"key\":\n"), "line 2 of"),
            ("[1]\n".to_owned(), "line 1 of"),
            (good.replace("\"model\"", "\"modle\""), "line 1 of"),
            (good.replace("\"key\":\"", "\"key\":\"x"), "expected 64 hex digits"),
            (format!("{good}\n{other}"), "line 3 of"),
        ] {
            let error = open(&text).err().unwrap();
            assert!(error.report().contains(expected) && error.exit_code() == 2, "{}", error.report());
        }
        assert_eq!(open(&format!("\u{feff}{}", good.replace('\n', "\r\n"))).unwrap().len(), 1);
        assert!(Recording::open(Path::new("/no/such/recording")).is_err());
    }

    #[cfg(feature = "llm")]
    #[test]
    fn a_cache_becomes_a_recording() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(&folder.path().join("cache.sqlite")).unwrap();
        let entry = |model: &str, question: &str, body: &str| {
            let call = call(model, "http://h/v1", question);
            Entry {
                key: call.key(),
                base_url: "http://h/v1".into(),
                model: model.into(),
                settings: call.request.settings(),
                attempt: 0,
                question: question.into(),
                body: body.into(),
                usage: Usage::default(),
                elapsed_us: 7,
                tries: 2,
                created: 1_600_000_000,
            }
        };
        let body = r#"{"choices":[{"message":{"content":"Ann","reasoning_content":"hm"},"finish_reason":"stop"}],
                       "usage":{"prompt_tokens":9,"completion_tokens":1},"timings":{"x":1}}"#;
        cache.add_all(&[entry("m", "Who?", body), entry("n", "Who?", body)]).unwrap();
        let path = folder.path().join("r.jsonl");
        assert_eq!(record(&cache, &path, Some("m")).unwrap(), 1);
        assert_eq!(record(&cache, &path, None).unwrap_err().exit_code(), 2);
        assert!(
            record(&cache, &folder.path().join("x"), Some("q")).unwrap_err().to_string().contains("no answer of q")
        );
        assert!(!folder.path().join("x").exists());
        let outcome = Recording::open(&path).unwrap().complete(&[asked("Who?")], None).unwrap().remove(0);
        assert_eq!((outcome.text.as_str(), outcome.reasoning.as_deref()), ("Ann", Some("hm")));
        assert_eq!((outcome.status, outcome.usage.prompt_tokens), (LlmStatus::Ok, Some(9)));
        assert!(!std::fs::read_to_string(&path).unwrap().contains("timings"));
    }
}
