//! What the engine adds to an endpoint's own time, and how fast kept answers replay: whole processes on a generated dataset.
//!
//! A server on this machine answers every chat request after a set time, over connections that stay open. Measured are `vanilla` runs of the
//! program: 2,000 questions at 50 ms an answer and 16 calls at a time, where (wall time - 2,000 / 16 · 50 ms) / 2,000 is what the engine
//! adds to a query, starting and finishing included; and 10,000 questions whose answers are all in the request cache, with the cache mode
//! `only`, and `use`, which rehearses the run for its quote first. Medians of three.
//! Run: `cargo bench --bench endpoint`.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use livingrag::dataset::vectors::{self, VectorTable};
use livingrag::dataset::{ANNOTATIONS_FILE, Dataset, QUESTION_ENTITIES_FILE};
use livingrag::index::{IndexOptions, build};
use serde_json::{Value, json};

const PASSAGES: usize = 2000;
const QUESTIONS: usize = 10_000;
const NAMES: usize = 1500;
const DIM: usize = 384;
/// Questions that are asked of the slow server, its time, and calls at a time.
const ASKED: usize = 2000;
const ANSWER: Duration = Duration::from_millis(50);
const CONCURRENCY: usize = 16;
const REPEATS: usize = 3;

#[derive(Default)]
struct Server {
    answer_ms: AtomicU64,
    answered: AtomicUsize,
}

/// Starts the server; its base URL.
fn serve(server: &Arc<Server>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = Arc::clone(server);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let server = Arc::clone(&server);
            // A client that goes away ends its thread.
            std::thread::spawn(move || drop(server.connection(stream)));
        }
    });
    format!("http://{address}/v1")
}

impl Server {
    fn connection(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        loop {
            let mut length = 0;
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line)? == 0 {
                    return Ok(());
                }
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap_or(0);
                }
                if line == "\r\n" {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            std::thread::sleep(Duration::from_millis(self.answer_ms.load(Ordering::Relaxed)));
            let n = self.answered.fetch_add(1, Ordering::Relaxed);
            let said = format!(
                "Thought: The record names it in its first line, under number {n}.\nAnswer: the record of number {n}"
            );
            let choices = json!([{"message": {"role": "assistant", "content": said}, "finish_reason": "stop"}]);
            let reply =
                json!({"choices": choices, "usage": {"prompt_tokens": 800, "completion_tokens": 24}}).to_string();
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", reply.len());
            stream.write_all(format!("{head}{reply}").as_bytes())?;
        }
    }
}

fn name(n: usize) -> String {
    format!("Tarn{:04}", n % NAMES)
}

/// A direction that a text's hash draws.
fn vector(text: &str) -> impl Iterator<Item = f32> {
    let mut bytes = vec![0; DIM * 2];
    blake3::Hasher::new().update(text.as_bytes()).finalize_xof().fill(&mut bytes);
    let parts: Vec<f32> = bytes.chunks_exact(2).map(|b| f32::from(i16::from_le_bytes([b[0], b[1]]))).collect();
    let length = parts.iter().map(|x| x * x).sum::<f32>().sqrt();
    parts.into_iter().map(move |x| x / length)
}

/// 2,000 passages of about 600 characters and 10,000 questions, with entities and vectors.
fn write_dataset(folder: &Path) {
    std::fs::create_dir_all(folder.join("embeddings")).unwrap();
    let put = |file: &str, text: String| std::fs::write(folder.join(file), text).unwrap();
    let span = |text: &str, name: &str, at: usize| {
        let start = text.find(name).unwrap();
        json!({"text": name, "label": "GPE", "start": at + start, "end": at + start + name.len()})
    };
    let (mut corpus, mut annotations) = (Vec::new(), String::new());
    for i in 0..PASSAGES {
        let names = [name(i), name(7 * i + 3)];
        let sentence = format!(
            "The harbour of {} was surveyed in the year of the long frost by the pilots of {}.",
            names[0], names[1]
        );
        let filler =
            format!("Its record, number {i}, lists depths, lights, tolls and the names of those who kept them. ")
                .repeat(6);
        corpus.push(json!({"title": format!("Record {i}"), "text": format!("{sentence} {filler}")}));
        let at = format!("{i}:Record {i}\n").len();
        let entities: Vec<Value> = names.iter().map(|name| span(&sentence, name, at)).collect();
        let sentences = json!([{"start": at, "end": at + sentence.len(), "entities": entities}]);
        annotations += &format!("{}\n", json!({"passage": i, "sentences": sentences}));
    }
    let (mut questions, mut mentions) = (Vec::new(), String::new());
    for i in 0..QUESTIONS {
        let name = name(3 * i + i / 9);
        let question = format!("Which record of the year {} names the harbour of {name}?", 1000 + i);
        mentions += &format!("{}\n", json!({"question": i, "entities": [span(&question, &name, 0)]}));
        questions
            .push(json!({"_id": format!("q{i}"), "question": question, "answer": format!("Record {}", i % PASSAGES)}));
    }
    put("dataset.toml", "name = \"records\"\n".into());
    put("records.json", Value::from(questions).to_string());
    put("records_corpus.json", Value::from(corpus).to_string());
    put(ANNOTATIONS_FILE, annotations);
    put(QUESTION_ENTITIES_FILE, mentions);
    let texts = build::texts(&Dataset::open(folder).unwrap(), &IndexOptions::default()).unwrap().index;
    let mut kinds: Vec<_> = texts.iter().map(|(kind, _)| *kind).collect();
    kinds.dedup();
    for kind in kinds {
        let of: Vec<String> = texts.iter().filter(|(k, _)| *k == kind).map(|(_, text)| text.clone()).collect();
        let data = of.iter().flat_map(|text| vector(text)).collect();
        let table = VectorTable { encoder: "hash".into(), truncated_at_tokens: None, dim: DIM, texts: of, data };
        vectors::write(&folder.join("embeddings").join(format!("{}.parquet", kind.as_str())), &table).unwrap();
    }
}

struct Bench {
    folder: tempfile::TempDir,
    url: String,
    runs: usize,
}

impl Bench {
    /// Wall time of one run.
    fn run(&mut self, cache: &str, sets: &[String]) -> Duration {
        self.runs += 1;
        let mut command = Command::new(env!("CARGO_BIN_EXE_livingrag"));
        command.current_dir(self.folder.path()).args([
            "run",
            "run.toml",
            "--quiet",
            "--out",
            &format!("out{}", self.runs),
        ]);
        let own = [format!("generate.base_url={}", self.url), format!("generate.cache={cache}")];
        for set in own.iter().chain(sets) {
            command.args(["--set", set]);
        }
        let started = Instant::now();
        let output = command.output().unwrap();
        let wall = started.elapsed();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        wall
    }

    fn median(&mut self, mut one: impl FnMut(&mut Self, usize) -> Duration) -> Duration {
        let mut times: Vec<Duration> = (0..REPEATS).map(|i| one(self, i)).collect();
        times.sort();
        times[REPEATS / 2]
    }
}

fn main() {
    // `cargo test --benches` only looks whether it starts.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let server = Arc::new(Server::default());
    let mut bench = Bench { folder: tempfile::tempdir().unwrap(), url: serve(&server), runs: 0 };
    write_dataset(&bench.folder.path().join("data"));
    let config = format!(
        "method = \"vanilla\"\n[dataset]\npath = \"data\"\n[index]\npath = \"index\"\n[replay]\nlag = {CONCURRENCY}\n\
         [generate]\nkind = \"api\"\nmodel = \"bench\"\nmax_tokens = 64\nprobe_tokens = 0\nconcurrency = {CONCURRENCY}\n"
    );
    std::fs::write(bench.folder.path().join("run.toml"), config).unwrap();
    let index = Command::new(env!("CARGO_BIN_EXE_livingrag"))
        .current_dir(bench.folder.path())
        .args(["index", "data", "--out", "index", "--quiet"])
        .status();
    assert!(index.unwrap().success());

    server.answer_ms.store(u64::try_from(ANSWER.as_millis()).unwrap(), Ordering::Relaxed);
    let limit = [format!("replay.limit={ASKED}")];
    let asked = bench.median(|bench, i| bench.run(&format!("slow{i}.sqlite"), &limit));
    let own = ANSWER * u32::try_from(ASKED / CONCURRENCY).unwrap();
    let adds = (asked.as_secs_f64() - own.as_secs_f64()) / ASKED as f64;
    println!(
        "asked: {ASKED} questions in {:.2} s, of it {:.2} s the server's: the engine adds {:.3} ms a query",
        asked.as_secs_f64(),
        own.as_secs_f64(),
        adds * 1e3
    );

    server.answer_ms.store(0, Ordering::Relaxed);
    let filled = bench.run("full.sqlite", &[]);
    println!("filled: {QUESTIONS} questions in {:.2} s from a server that answers at once", filled.as_secs_f64());
    let before = server.answered.load(Ordering::Relaxed);
    for mode in ["only", "use"] {
        let mode_set = [format!("generate.cache_mode={mode}")];
        let wall = bench.median(|bench, _| bench.run("full.sqlite", &mode_set)).as_secs_f64();
        println!(
            "replayed, cache mode {mode}: {QUESTIONS} questions in {wall:.2} s, {:.0} a second",
            QUESTIONS as f64 / wall
        );
    }
    assert_eq!(server.answered.load(Ordering::Relaxed), before, "a kept answer was asked for");
}
