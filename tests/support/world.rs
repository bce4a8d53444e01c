//! A small invented world for replay tests: a fixed corpus of sixteen passages, and any questions over it.
//!
//! In: [`Query`]s. Out: a dataset folder with annotations and vectors, sessions on it, and replayed runs. A text's vector is the sum
//! of directions of the names and verbs in it and of a direction of its own, all drawn from the text's hash, so that likeness means
//! something and equal texts have equal vectors in every world.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use livingrag::backend;
use livingrag::config::{BackendConfig, Method, RunConfig};
use livingrag::dataset::vectors::{self, VectorTable};
use livingrag::dataset::{ANNOTATIONS_FILE, Dataset, QUESTION_ENTITIES_FILE};
use livingrag::experience::template::mask_question;
use livingrag::index::{IndexOptions, build};
use livingrag::replay::{self, Opened, Parts, Run, Session};
use livingrag::trace::reader::read_rows;
use livingrag::trace::row::{ExperienceRow, TraceRow};
use serde_json::{Value, json};

/// Every method.
pub const METHODS: [Method; 6] =
    [Method::Living, Method::NoFusion, Method::NoScaffold, Method::NoGate, Method::Linear, Method::Vanilla];
/// Names that questions may ask for; the corpus knows all but the last two.
pub const NAMES: [&str; 12] = [
    "Aldan Reef",
    "Brisk",
    "Corvane",
    "Doral Light",
    "Eskar",
    "Fennick",
    "Gannet",
    "Holm Sound",
    "Irsa",
    "Jarrow Mill",
    "Kestle",
    "Lorn",
];
/// Passages of the corpus.
pub const PASSAGES: usize = 16;
/// Kinds of question; the last names nobody.
pub const TEMPLATES: usize = 4;

const NAMES_IN_CORPUS: usize = 10;
const VERBS: [&str; 6] = ["sail", "met", "build", "cancel", "ledger", "storm"];
/// No multiple of a register's width.
const DIM: usize = 21;

/// One question over the world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Makes id and text unique; a number in the text, so it is masked out of the template.
    pub number: u32,
    /// Which wording, below [`TEMPLATES`].
    pub template: usize,
    /// Places in [`NAMES`].
    pub names: Vec<usize>,
    /// Gold passages; none: the reader tosses its coin.
    pub gold: Vec<usize>,
    /// Place in [`NAMES`] of the gold answer.
    pub answer: usize,
    /// Another salt gives the same text another vector.
    pub salt: u32,
}

impl Query {
    /// Its id.
    pub fn id(&self) -> String {
        format!("q-{}", self.number)
    }

    fn names(&self) -> &[usize] {
        if self.template == TEMPLATES - 1 { &[] } else { &self.names }
    }

    fn text(&self) -> String {
        let names: Vec<&str> = self.names().iter().map(|&n| NAMES[n]).collect();
        let (names, year) = (if names.is_empty() { "they".into() } else { names.join(" and ") }, self.number);
        match self.template {
            0 => format!("Where did {names} sail in {year}?"),
            1 => format!("Who met {names} at the harbour in {year}?"),
            2 => format!("What did {names} build before {year}?"),
            _ => format!("How do I cancel a berth booked in {year}?"),
        }
    }
}

/// `n` questions in which names, wordings and pairs of both come again at many distances; some are asked twice running.
pub fn many(n: u32) -> Vec<Query> {
    (0..n)
        .map(|number| {
            let i = if number % 6 == 4 { number - 1 } else { number };
            let at = |step: u32, of: usize| ((i * step + i * i / 7) as usize) % of;
            Query {
                number: 1000 + number,
                template: at(3, TEMPLATES),
                names: if i % 5 == 0 { vec![at(1, NAMES.len())] } else { vec![at(1, 7), 7 + at(2, NAMES.len() - 7)] },
                gold: if i % 4 == 3 { Vec::new() } else { vec![at(5, PASSAGES)] },
                answer: at(2, NAMES.len()),
                salt: 0,
            }
        })
        .collect()
}

/// A folder in memory where there is such a place, since a replay waits for the disk after every block.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn spans(text: &str, offset: usize) -> Vec<Value> {
    let mut found: Vec<(usize, &str)> =
        NAMES.iter().flat_map(|name| text.match_indices(name).map(|(at, _)| (at, *name))).collect();
    found.sort_unstable();
    let span = |(at, name): (usize, &str)| json!({"text": name, "label": "FAC", "start": offset + at, "end": offset + at + name.len()});
    found.into_iter().map(span).collect()
}

/// Title and sentences of a passage; the last names nobody.
fn passage(i: usize) -> (String, Vec<String>) {
    let name = |k: usize| NAMES[k % NAMES_IN_CORPUS];
    let title = format!("Log {i}");
    if i + 1 == PASSAGES {
        return (title, vec!["It rained all day and nobody came.".into()]);
    }
    let (a, b, c) = (name(i), name(3 * i + 1), name(7 * i + 2));
    let sentences = vec![
        format!("{a} let {b} sail north with the early tide."),
        format!("Nobody met {c} before the storm had passed."),
        format!("{c} helped {a} build the pier and kept the ledger."),
    ];
    (title, sentences)
}

/// A direction drawn from a text's hash.
fn direction(text: &str) -> [f64; DIM] {
    let mut bytes = [0; DIM * 4];
    blake3::Hasher::new().update(text.as_bytes()).finalize_xof().fill(&mut bytes);
    let mut out = [0.0; DIM];
    for (x, b) in out.iter_mut().zip(bytes.chunks_exact(4)) {
        *x = f64::from(u32::from_le_bytes([b[0], b[1], b[2], b[3]])) / f64::from(u32::MAX) * 2.0 - 1.0;
    }
    unit(out)
}

fn unit(mut v: [f64; DIM]) -> [f64; DIM] {
    let length = v.iter().map(|x| x * x).sum::<f64>().sqrt();
    v.iter_mut().for_each(|x| *x /= length);
    v
}

fn vector(text: &str, salt: u32) -> Vec<f32> {
    let mut sum = [0.0; DIM];
    let mut add = |weight: f64, of: &str| sum.iter_mut().zip(direction(of)).for_each(|(x, y)| *x += weight * y);
    let lower = text.to_lowercase();
    NAMES.iter().filter(|name| lower.contains(&name.to_lowercase())).for_each(|name| add(1.0, name));
    VERBS.iter().filter(|verb| lower.contains(*verb)).for_each(|verb| add(0.8, verb));
    add(if salt == 0 { 0.4 } else { 1.5 }, &format!("{text}#{salt}"));
    unit(sum).iter().map(|&x| x as f32).collect()
}

fn write_vectors(folder: &Path, kind: &str, texts: &[String], salt: impl Fn(&str) -> u32) {
    let data = texts.iter().flat_map(|text| vector(text, salt(text))).collect();
    let table =
        VectorTable { encoder: "hash".into(), truncated_at_tokens: None, dim: DIM, texts: texts.to_vec(), data };
    vectors::write(&folder.join("embeddings").join(format!("{kind}.parquet")), &table).unwrap();
}

/// Writes the dataset of these questions, in this order; `templates`: also vectors of the masked questions.
pub fn write(folder: &Path, queries: &[Query], templates: bool) {
    std::fs::create_dir_all(folder.join("embeddings")).unwrap();
    let put = |name: &str, text: String| std::fs::write(folder.join(name), text).unwrap();
    put("dataset.toml", "name = \"world\"\n".into());
    let mut corpus = Vec::new();
    let mut annotations = String::new();
    for i in 0..PASSAGES {
        let (title, sentences) = passage(i);
        corpus.push(json!({"title": title, "text": sentences.join(" ")}));
        let mut at = format!("{i}:{title}\n").len();
        let mut lines = Vec::new();
        for sentence in &sentences {
            lines.push(json!({"start": at, "end": at + sentence.len(), "entities": spans(sentence, at)}));
            at += sentence.len() + 1;
        }
        annotations += &format!("{}\n", json!({"passage": i, "sentences": lines}));
    }
    let mut questions = Vec::new();
    let mut mentions = String::new();
    for (i, query) in queries.iter().enumerate() {
        let mut question = json!({"_id": query.id(), "question": query.text(), "answer": NAMES[query.answer]});
        if !query.gold.is_empty() {
            question["supporting_facts"] = query.gold.iter().map(|g| json!([format!("Log {g}"), 0])).collect();
        }
        questions.push(question);
        mentions += &format!("{}\n", json!({"question": i, "entities": spans(&query.text(), 0)}));
    }
    put("world.json", Value::from(questions).to_string());
    put("world_corpus.json", Value::from(corpus).to_string());
    put(ANNOTATIONS_FILE, annotations);
    put(QUESTION_ENTITIES_FILE, mentions);

    let salt = |text: &str| queries.iter().find(|q| q.text() == text).map_or(0, |q| q.salt);
    let dataset = Dataset::open(folder).unwrap();
    let texts = build::texts(&dataset, &IndexOptions::default()).unwrap();
    let mut kinds: Vec<_> = texts.index.iter().map(|(kind, _)| *kind).collect();
    kinds.dedup();
    for kind in kinds {
        let of_kind: Vec<String> =
            texts.index.iter().filter(|(k, _)| *k == kind).map(|(_, text)| text.clone()).collect();
        write_vectors(folder, kind.as_str(), &of_kind, salt);
    }
    if templates {
        let masked = dataset.questions.iter().zip(&texts.mentions).map(|(q, m)| mask_question(&q.text, &m.entities));
        let mut masked: Vec<String> = masked.collect();
        masked.sort();
        masked.dedup();
        write_vectors(folder, "templates", &masked, |_| 0);
    }
}

/// Opens a dataset folder and builds its index in memory.
pub fn session(folder: &Path, options: &IndexOptions, threads: u32) -> Session {
    let dataset = Dataset::open(folder).unwrap();
    let index = build::build(&dataset, options).unwrap();
    let backend = backend::open(&BackendConfig { threads, ..BackendConfig::default() }).unwrap();
    Session::new(dataset, Arc::new(index), Arc::from(backend)).unwrap()
}

/// Settings under which this world's gates and store have something to do; no times in the rows.
pub fn config(method: Method, lag: u32) -> RunConfig {
    let mut config = RunConfig { method, ..RunConfig::default() };
    config.retrieve.iteration_threshold = 0.15;
    config.retrieve.top_k = 3;
    config.gates.tau_novel = 0.5;
    config.replay.lag = lag;
    config.replay.timings = false;
    config
}

/// What a finished run left.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Its folder.
    pub folder: PathBuf,
    /// `traces.parquet`.
    pub rows: Vec<TraceRow>,
    /// `experiences.parquet`.
    pub experiences: Vec<ExperienceRow>,
}

/// Replays these runs in step, as one sweep would; their folders do not stay.
pub fn replay(session: &Session, configs: &[RunConfig]) -> Vec<Outcome> {
    replay_into(scratch().path(), session, configs)
}

/// [`replay`], with its folders under `out`.
pub fn replay_into(out: &Path, session: &Session, configs: &[RunConfig]) -> Vec<Outcome> {
    let open = |config: &RunConfig| match Run::open(session, config, Parts::new(config).unwrap(), out, false) {
        Ok(Opened::Ready(run)) => *run,
        Ok(Opened::Finished(folder)) => panic!("{} is there already", folder.display()),
        Err(e) => panic!("{}", e.report()),
    };
    let mut runs: Vec<Run> = configs.iter().map(open).collect();
    replay::replay(session, &mut runs, |_| ()).unwrap();
    let read = |run: Run| {
        let folder = run.finish(session).unwrap();
        Outcome {
            rows: read_rows(&folder.join("traces.parquet")).unwrap(),
            experiences: read_rows(&folder.join("experiences.parquet")).unwrap(),
            folder,
        }
    };
    runs.into_iter().map(read).collect()
}

/// The folder of a real dataset; `None`, with a word, where there is none.
#[allow(clippy::print_stderr)]
pub fn real(name: &str) -> Option<PathBuf> {
    let shared =
        std::env::var_os("LIVINGRAG_SHARED").map_or_else(|| super::repository().join("../shared"), PathBuf::from);
    let folder = shared.join("data").join(name);
    if !folder.is_dir() {
        eprintln!("skipped: no ../shared");
        return None;
    }
    Some(folder)
}
