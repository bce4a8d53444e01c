//! Batched personalised PageRank on the CPU: against one vector at a time on a real graph, and against a memory copy on a large one.
//!
//! `hotpotqa_train` needs `../shared` (or `LIVINGRAG_SHARED`); its resets are those of the retriever: every passage has a weight and three
//! entities have more. `generated` is a graph of 200,000 nodes and 2,000,000 edges, batch 256: bytes moved per second beside what a plain
//! copy reaches in the same run. Bytes moved are counted as if nothing stayed in the cache: 8 an entry for column and weight, 4 a lane for
//! the neighbour, and per row and lane 4 for the reset and 8 for the iterate.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use criterion::{Criterion, criterion_group, criterion_main};
use livingrag::backend::cpu::plan::Sizes;
use livingrag::backend::{self, Corpus, Matrix, Reset, RetrievalData};
use livingrag::config::{BackendConfig, BackendKind};
use livingrag::math::graph::{Csr, Graph, WeightedCsr};
use livingrag::math::pagerank::personalized_pagerank;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

const DAMPING: f64 = 0.5;
/// Workers, as many as the comparison gives its rivals.
const THREADS: u32 = 2;

fn unit(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

fn below(rng: &mut ChaCha8Rng, n: usize) -> usize {
    (rng.next_u64() % n as u64) as usize
}

fn load(n_entities: usize, n_passages: usize, edges: &[(u32, u32, f64)], threads: u32) -> (Box<dyn Corpus>, Graph) {
    let empty = |rows: usize| Csr { offsets: vec![0; rows + 1], indices: Vec::new() };
    let graph = Graph {
        entity_sentences: empty(n_entities),
        sentence_entities: empty(0),
        passage_entities: empty(n_passages),
        adjacency: Graph::adjacency_from_edges(n_entities + n_passages, edges),
    };
    let data = RetrievalData {
        occurrences: WeightedCsr { shape: empty(n_entities), values: Vec::new() },
        passages: Matrix::new(1, vec![1.0; n_passages]),
        entities: Matrix::new(1, vec![1.0; n_entities]),
        sentences: Matrix::default(),
        graph: graph.clone(),
    };
    let backend = backend::open(&BackendConfig { kind: BackendKind::Cpu, threads }).unwrap();
    (backend.load(Arc::new(data)).unwrap(), graph)
}

/// Entity and passage parts of each column.
type Columns = Vec<(Vec<(u32, f64)>, Vec<f32>)>;

fn resets(n_entities: usize, n_passages: usize, columns: usize) -> Columns {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    (0..columns)
        .map(|_| {
            let mut entities: Vec<(u32, f64)> = (0..3).map(|_| (below(&mut rng, n_entities) as u32, 1.0)).collect();
            entities.sort_by_key(|&(e, _)| e);
            entities.dedup_by_key(|e| e.0);
            let passages = (0..n_passages).map(|_| (0.05 * unit(&mut rng)) as f32).collect();
            (entities, passages)
        })
        .collect()
}

fn views(columns: &Columns) -> Vec<Reset<'_>> {
    columns.iter().map(|(entities, passages)| Reset { entities, passages }).collect()
}

/// Largest L1 distance of a few columns to the `f64` reference, over the passages.
fn error(graph: &Graph, batch: &[Reset<'_>], found: &[Option<Vec<f32>>], columns: usize) -> f64 {
    let n = graph.n_entities();
    let of = |(reset, scores): (&Reset<'_>, &Option<Vec<f32>>)| {
        let mut full = vec![0.0; graph.n_nodes()];
        for &(e, w) in reset.entities {
            full[e as usize] = w;
        }
        for (p, &w) in reset.passages.iter().enumerate() {
            full[n + p] = f64::from(w);
        }
        let expected = personalized_pagerank(&graph.adjacency, &full, DAMPING).unwrap();
        scores.as_ref().unwrap().iter().zip(&expected[n..]).map(|(&a, b)| (f64::from(a) - b).abs()).sum::<f64>()
    };
    batch.iter().zip(found).take(columns).map(of).fold(0.0, f64::max)
}

/// (node, node, weight)
type Edges = Vec<(u32, u32, f64)>;

/// Edges of the real graph with dense ids: entities first, then passages.
fn hotpotqa_train() -> Option<(usize, usize, Edges)> {
    let root = std::env::var_os("LIVINGRAG_SHARED")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared")), PathBuf::from);
    let text = std::fs::read_to_string(root.join("data/hotpotqa_train/reference/edges.jsonl")).ok()?;
    let edges: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let mut entities: Vec<&str> =
        edges.iter().flat_map(|e| [&e[0], &e[1]]).filter_map(|node| node["entity"].as_str()).collect();
    entities.sort_unstable();
    entities.dedup();
    let passages = edges.iter().flat_map(|e| [&e[0], &e[1]]).filter_map(|node| node["passage"].as_u64()).max()? + 1;
    let id = |node: &serde_json::Value| match node["entity"].as_str() {
        Some(text) => entities.binary_search(&text).unwrap() as u32,
        None => entities.len() as u32 + node["passage"].as_u64().unwrap() as u32,
    };
    let list = edges.iter().map(|e| (id(&e[0]), id(&e[1]), e[2].as_f64().unwrap())).collect();
    Some((entities.len(), passages as usize, list))
}

/// Bytes that the system says this process holds; 0 where it does not say.
fn held(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with(name));
    line.and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
}

/// Processor time of this process so far, all threads together, in seconds: what a loaded machine does not stretch.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: f64 = after_name.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<f64>().ok()).sum();
    ticks / 100.0
}

fn real(c: &mut Criterion) {
    let Some((n_entities, n_passages, edges)) = hotpotqa_train() else {
        println!("skipped: no hotpotqa_train");
        return;
    };
    let columns = resets(n_entities, n_passages, 64);
    let batch = views(&columns);
    let (corpus, graph) = load(n_entities, n_passages, &edges, THREADS);
    let off = error(&graph, &batch, &corpus.pagerank(DAMPING, &batch).unwrap(), 64);
    assert!(off <= 1e-6, "L1 distance to the reference {off:e}");
    let before = cpu_seconds();
    for _ in 0..50 {
        black_box(corpus.pagerank(DAMPING, &batch).unwrap());
    }
    println!(
        "pagerank/hotpotqa_train: {:.4} ms of processor time a column",
        (cpu_seconds() - before) * 1e3 / (50.0 * 64.0)
    );
    let mut group = c.benchmark_group("pagerank/hotpotqa_train");
    group.throughput(criterion::Throughput::Elements(64));
    group.bench_function("64 columns at once", |b| b.iter(|| black_box(corpus.pagerank(DAMPING, &batch).unwrap())));
    group.bench_function("64 columns one by one", |b| {
        b.iter(|| {
            for reset in &batch {
                black_box(corpus.pagerank(DAMPING, &[*reset]).unwrap());
            }
        });
    });
    group.finish();
}

/// Bytes a second of a plain copy, read and write counted, by as many threads as the solver has.
fn copy_bandwidth() -> f64 {
    let from = vec![1u8; 256 << 20];
    let mut to = vec![0u8; 256 << 20];
    let half = from.len() / THREADS as usize;
    let mut best = 0.0f64;
    for _ in 0..5 {
        let started = Instant::now();
        std::thread::scope(|scope| {
            for (from, to) in from.chunks(half).zip(to.chunks_mut(half)) {
                scope.spawn(|| to.copy_from_slice(black_box(from)));
            }
        });
        best = best.max(2.0 * from.len() as f64 / started.elapsed().as_secs_f64());
    }
    black_box(&to);
    best
}

fn generated(_: &mut Criterion) {
    let (n_entities, n_passages, n_edges, columns) = (150_000, 50_000, 2_000_000usize, 256);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut pairs: Vec<(u32, u32)> = (0..n_edges + n_edges / 8)
        .map(|_| (below(&mut rng, n_entities) as u32, (n_entities + below(&mut rng, n_passages)) as u32))
        .collect();
    pairs.sort_unstable();
    pairs.dedup();
    while pairs.len() > n_edges - n_passages {
        let last = pairs.len() - 1;
        pairs.swap(below(&mut rng, last), last);
        pairs.pop();
    }
    pairs.sort_unstable();
    let mut edges: Vec<(u32, u32, f64)> = pairs.into_iter().map(|(a, b)| (a, b, 0.05 + unit(&mut rng))).collect();
    edges.extend((1..n_passages as u32).map(|p| (n_entities as u32 + p - 1, n_entities as u32 + p, 1.0)));
    let (corpus, graph) = load(n_entities, n_passages, &edges, THREADS);
    drop(edges);
    let sizes = Sizes {
        passages: n_passages as u64,
        entities: n_entities as u64,
        entries: graph.adjacency.values.len() as u64,
        dim: 1,
        sentences: 0,
    };
    let columns = resets(n_entities, n_passages, columns);
    let batch = views(&columns);
    let (mut best, mut best_cpu) = (f64::INFINITY, f64::INFINITY);
    // The most held is counted anew from here, where the system can do that.
    let (held_before, _) = (held("VmRSS:"), std::fs::write("/proc/self/clear_refs", "5"));
    let mut most = 0;
    for round in 0..3 {
        let (started, before) = (Instant::now(), cpu_seconds());
        let found = corpus.pagerank(DAMPING, &batch).unwrap();
        best = best.min(started.elapsed().as_secs_f64());
        best_cpu = best_cpu.min(cpu_seconds() - before);
        if round == 0 {
            most = held("VmHWM:").saturating_sub(held_before);
            let off = error(&graph, &batch, &found, 1);
            assert!(off <= 1e-6, "L1 distance to the reference {off:e}");
        }
    }
    let planned = sizes.pagerank(u64::from(THREADS), batch.len() as u64);
    println!(
        "pagerank/generated: the batch took {:.1} MiB, {:.1} were planned",
        most as f64 / f64::from(1 << 20),
        planned as f64 / f64::from(1 << 20)
    );
    let (nodes, entries) = (graph.n_nodes() as f64, graph.adjacency.values.len() as f64);
    let sweeps = backend::cpu::pagerank::sweeps(DAMPING) as f64;
    // A block reads the graph once a sweep for all its lanes.
    let blocks = (batch.len() / backend::cpu::pagerank::WIDE) as f64;
    let lanes = batch.len() as f64;
    let bytes = sweeps * (8.0 * entries * blocks + 4.0 * entries * lanes + 12.0 * nodes * lanes);
    let copy = copy_bandwidth();
    println!(
        "pagerank/generated: {nodes} nodes, {} edges, batch {lanes}: {:.3} s ({best_cpu:.3} of processor time), {:.3} ms a column; {:.2} GB/s moved at {sweeps} sweeps, \
         {:.0} % of a copy's {:.2} GB/s",
        entries / 2.0,
        best,
        best * 1e3 / lanes,
        bytes / best / 1e9,
        100.0 * bytes / best / copy,
        copy / 1e9
    );
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(std::time::Duration::from_secs(4));
    targets = real, generated
}
criterion_main!(benches);
