//! Memory as planned: the most that a process holds (VmHWM) against what it said before it started, within 15 %.
//!
//! The bundled demo; hotpotqa_train, musique_train and 2wiki where `../shared` (or `LIVINGRAG_SHARED`) has them, one run and sixteen in step;
//! and a PageRank batch of 256 columns on a generated graph of 200,000 nodes and 2,000,000 edges. Linux only: elsewhere nobody says how
//! much a process holds. Mapped index files count, as the system counts them.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use livingrag::backend::cpu::plan::Sizes;
use livingrag::backend::{self, Matrix, Reset, RetrievalData};
use livingrag::config::{BackendConfig, BackendKind};
use livingrag::math::graph::{Csr, Graph, WeightedCsr};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use support::{Sandbox, repository, world};

/// Allowed difference.
const TOLERANCE: f64 = 0.15;

/// One at a time: a machine short of memory takes mapped pages away.
fn alone<T>(work: impl FnOnce() -> T) -> T {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    work()
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find(|l| l.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Runs the program; the most it held, and what it wrote to standard error.
fn watched(sandbox: &Sandbox, args: &[&str]) -> (u64, String) {
    let errors = sandbox.path().join("errors.txt");
    let file = std::fs::File::create(&errors).unwrap();
    let mut child = sandbox.command(args).stdout(Stdio::null()).stderr(file).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    let ended = loop {
        if let Some(held) = std::fs::read_to_string(&status).ok().and_then(|s| field(&s, "VmHWM:")) {
            most = most.max(held);
        }
        if let Some(ended) = child.try_wait().unwrap() {
            break ended;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let said = std::fs::read_to_string(errors).unwrap();
    assert!(ended.success(), "{said}");
    (most, said)
}

/// The bytes in `… about 79.1 MiB of memory …`.
fn planned(said: &str) -> u64 {
    let (before, _) = said.split_once("iB of memory").unwrap_or_else(|| panic!("{said}"));
    let mut words = before.rsplit(' ');
    let unit = words.next().unwrap();
    let number: f64 = words.next().unwrap().parse().unwrap();
    (number * if unit == "G" { f64::from(1 << 30) } else { f64::from(1 << 20) }) as u64
}

fn check(what: &str, found: u64, planned: u64) {
    let off = found as f64 / planned as f64 - 1.0;
    let mib = |n: u64| n as f64 / f64::from(1 << 20);
    assert!(off.abs() <= TOLERANCE, "{what}: {:.1} MiB held, {:.1} MiB planned", mib(found), mib(planned));
}

fn one_run(name: &str, folder: &Path, config: &str, sets: &[&str]) {
    let sandbox = Sandbox::new();
    let path = format!("dataset.path={}", folder.display());
    let mut args = vec!["run", config, "--set", &path, "--out", "out", "--set", "generate.kind=simulated"];
    args.extend(sets.iter().flat_map(|set| ["--set", set]));
    // The first run builds the index, which may take more than the run; then that is what the plan says.
    for round in ["with its index built", "with its index there"] {
        let (found, said) = alone(|| watched(&sandbox, &args));
        check(&format!("{name} {round}"), found, planned(&said));
        for entry in std::fs::read_dir(sandbox.path().join("out")).unwrap().map(|e| e.unwrap().path()) {
            if !entry.ends_with("indexes") {
                std::fs::remove_dir_all(entry).unwrap();
            }
        }
    }
}

fn many_runs(name: &str, folder: &Path, config: &str, sets: &[&str]) {
    let sandbox = Sandbox::new();
    let orders: Vec<String> = (1..16).map(|i| format!("\"shuffle:{i}\"")).collect();
    let orders = orders.join(", ");
    sandbox.write("many.toml", format!("name = \"many\"\nmethods = [\"living\"]\norders = [\"file\", {orders}]\n"));
    let dataset = format!("{}={config}", folder.display());
    let mut args = vec!["sweep", "many.toml", "--dataset", &dataset, "--out", "out", "--in-step", "16"];
    args.extend(["--set", "generate.kind=simulated"]);
    args.extend(sets.iter().flat_map(|set| ["--set", set]));
    let mut dry = args.clone();
    dry.push("--dry-run");
    // The index is there when the sweep is planned and when it runs.
    alone(|| watched(&sandbox, &dry));
    let (found, said) = alone(|| watched(&sandbox, &args));
    check(&format!("{name}, 16 runs"), found, planned(&said));
}

#[test]
fn the_demo_takes_what_was_planned() {
    let config = repository().join("configs/demo.toml").display().to_string();
    one_run("demo", &repository().join("data/demo"), &config, &[]);
}

#[test]
fn real_datasets_take_what_was_planned() {
    for (name, preset, sets) in [
        ("hotpotqa_train", "hotpotqa", &[][..]),
        ("musique_train", "musique", &[]),
        ("2wiki", "2wiki", &["index.annotations=none"]),
    ] {
        let Some(folder) = world::real(name) else { continue };
        let config = repository().join(format!("configs/presets/{preset}.toml")).display().to_string();
        one_run(name, &folder, &config, sets);
        many_runs(name, &folder, &config, sets);
    }
}

fn held(name: &str) -> u64 {
    field(&std::fs::read_to_string("/proc/self/status").unwrap(), name).unwrap()
}

#[test]
fn a_pagerank_batch_takes_what_was_planned() {
    let (n_entities, n_passages, columns, threads) = (150_000u32, 50_000u32, 256, 2);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut below = move |n: u32| (rng.next_u64() % u64::from(n)) as u32;
    let mut edges: Vec<(u32, u32, f64)> =
        (0..1_950_000).map(|_| (below(n_entities), n_entities + below(n_passages), 0.5)).collect();
    edges.extend((1..n_passages).map(|p| (n_entities + p - 1, n_entities + p, 1.0)));
    edges.sort_unstable_by_key(|&(a, b, _)| (a, b));
    edges.dedup_by_key(|&mut (a, b, _)| (a, b));
    let empty = |rows: u32| Csr { offsets: vec![0; rows as usize + 1], indices: Vec::new() };
    let data = Arc::new(RetrievalData {
        graph: Graph {
            entity_sentences: empty(n_entities),
            sentence_entities: empty(0),
            passage_entities: empty(n_passages),
            adjacency: Graph::adjacency_from_edges((n_entities + n_passages) as usize, &edges),
        },
        occurrences: WeightedCsr { shape: empty(n_entities), values: Vec::new() },
        passages: Matrix::new(1, vec![1.0; n_passages as usize]),
        entities: Matrix::new(1, vec![1.0; n_entities as usize]),
        sentences: Matrix::default(),
    });
    drop(edges);
    let weights: Vec<f32> = (0..n_passages).map(|p| 0.01 * (p % 7) as f32).collect();
    alone(|| {
        let backend = backend::open(&BackendConfig { kind: BackendKind::Cpu, threads }).unwrap();
        let before = held("VmRSS:");
        // From here on the most is counted anew.
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let corpus = backend.load(Arc::clone(&data)).unwrap();
        let entities = [(7u32, 1.0)];
        let reset = Reset { entities: &entities, passages: &weights };
        let found = corpus.pagerank(0.5, &vec![reset; columns]).unwrap();
        assert!(found.iter().all(Option::is_some));
        let sizes = Sizes::of(&data);
        let planned = sizes.loaded() + sizes.pagerank(u64::from(threads), columns as u64);
        check("PageRank", held("VmHWM:") - before, planned);
    });
}
