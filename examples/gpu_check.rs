//! Times the kernels on the first GPU, with the CPU backend beside them: `gpu_check OUT.json [--quick]`.
//!
//! In: nothing but a GPU; graphs and stores are generated from fixed seeds. Out: one JSON file and a Markdown table on standard output.
//! Device time is taken between events around each launch; copies between host and device are in the wall time only. "Bytes" is what
//! kernels/README.md says a call moves: at most, every neighbour from memory; at least, every vector once. Shares are of the bandwidth of
//! a plain copy on the same card in the same run. scripts/gpu-check.sh builds this where cargo works and runs it where a GPU is.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::{CudaStream, sys};
use livingrag::backend::cuda::{CudaDevice, KernelTime};
use livingrag::backend::device::DeviceBackend;
use livingrag::backend::{
    self, ActivationStore, Backend, Form, Matrix, PropagationQuery, Reset, RetrievalData, RetrievalParams,
    RetrievalQuery, ScanQuery, StoreId,
};
use livingrag::config::{BackendConfig, BackendKind};
use livingrag::math::graph::{Csr, Graph, WeightedCsr};
use livingrag::math::pagerank::relaxation_sweeps;
use livingrag::math::propagation::PropagationParams;
use livingrag::math::sparse::SparseVector;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::{Value, json};

const DAMPING: f64 = 0.5;
/// The CPU is timed beside the GPU up to so many numbers of state; larger cases would take minutes.
const CPU_STATE: usize = 60_000_000;

fn unit(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

fn below(rng: &mut ChaCha8Rng, n: usize) -> usize {
    (rng.next_u64() % n as u64) as usize
}

/// Bytes a second of a copy within the device, read and write counted; best of ten.
fn copy_bandwidth(stream: &Arc<CudaStream>) -> f64 {
    let bytes = 512usize << 20;
    let from = stream.alloc_zeros::<u8>(bytes).unwrap();
    let mut to = stream.alloc_zeros::<u8>(bytes).unwrap();
    let flags = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
    let mut best = 0.0f64;
    for _ in 0..10 {
        let start = stream.record_event(flags).unwrap();
        stream.memcpy_dtod(&from, &mut to).unwrap();
        let end = stream.record_event(flags).unwrap();
        stream.synchronize().unwrap();
        best = best.max(2.0 * bytes as f64 / (f64::from(start.elapsed_ms(&end).unwrap()) / 1e3));
    }
    best
}

/// Entities, sentences, passages; ten edges a node, a quarter of the nodes passages in a chain, one sentence a passage.
fn graph(nodes: usize, vectors: bool) -> RetrievalData {
    let mut rng = ChaCha8Rng::seed_from_u64(nodes as u64);
    let (passages, dim) = (nodes / 4, if vectors { 768 } else { 1 });
    let entities = nodes - passages;
    let mut rows = vec![Vec::new(); passages];
    let mut edges = Vec::with_capacity(10 * nodes);
    for (p, row) in rows.iter_mut().enumerate() {
        *row = (0..39).map(|_| below(&mut rng, entities) as u32).collect::<Vec<u32>>();
        row.sort_unstable();
        row.dedup();
        edges.extend(row.iter().map(|&e| (e, (entities + p) as u32, 0.05 + unit(&mut rng))));
        if p > 0 {
            edges.push(((entities + p - 1) as u32, (entities + p) as u32, 1.0));
        }
    }
    let mut entity_sentences = vec![Vec::new(); entities];
    for (s, row) in rows.iter().enumerate() {
        for &e in row {
            entity_sentences[e as usize].push(s as u32);
        }
    }
    let occurrences: Vec<Vec<(u32, f64)>> =
        entity_sentences.iter().map(|row| row.iter().map(|&p| (p, 2f64.ln())).collect()).collect();
    RetrievalData {
        graph: Graph {
            adjacency: Graph::adjacency_from_edges(nodes, &edges),
            entity_sentences: Csr::from_rows(&entity_sentences),
            sentence_entities: Csr::from_rows(&rows),
            passage_entities: Csr::from_rows(&rows),
        },
        occurrences: WeightedCsr::from_rows(&occurrences),
        passages: unit_rows(&mut rng, passages, dim),
        sentences: unit_rows(&mut rng, passages, dim),
        entities: Matrix::new(1, vec![1.0; entities]),
    }
}

/// Rows of length 1 whose inner products are mostly positive.
fn unit_rows(rng: &mut ChaCha8Rng, rows: usize, dim: usize) -> Matrix {
    let mut out = Vec::with_capacity(rows * dim);
    for _ in 0..rows {
        let row: Vec<f32> = (0..dim).map(|_| unit(rng) as f32 - 0.25).collect();
        let norm = row.iter().map(|v| v * v).sum::<f32>().sqrt().max(1e-6);
        out.extend(row.iter().map(|v| v / norm));
    }
    Matrix::new(dim, out)
}

/// Device and wall time of the best of three runs after one that warms up.
struct Timed {
    kernels: Vec<KernelTime>,
    wall_ms: f64,
}

impl Timed {
    fn of(device: &CudaDevice, mut run: impl FnMut()) -> Self {
        run();
        let mut best: Option<Self> = None;
        for _ in 0..3 {
            device.measure();
            let started = Instant::now();
            run();
            let wall_ms = started.elapsed().as_secs_f64() * 1e3;
            let found = Self { kernels: device.times().unwrap(), wall_ms };
            if best.as_ref().is_none_or(|b| found.device_ms() < b.device_ms()) {
                best = Some(found);
            }
        }
        best.unwrap()
    }

    fn device_ms(&self) -> f64 {
        self.kernels.iter().map(|k| k.milliseconds).sum()
    }

    fn launches(&self, symbol: &str) -> usize {
        self.kernels.iter().filter(|k| k.symbol == symbol).map(|k| k.launches).sum()
    }
}

fn wall_ms(run: impl FnOnce()) -> f64 {
    let started = Instant::now();
    run();
    started.elapsed().as_secs_f64() * 1e3
}

/// One line of the result.
#[allow(clippy::too_many_arguments)]
fn row(
    step: &str,
    size: Value,
    batch: usize,
    timed: &Timed,
    least: f64,
    most: f64,
    copy: f64,
    cpu: Option<f64>,
) -> Value {
    let seconds = timed.device_ms() / 1e3;
    let kernels: Vec<Value> = timed
        .kernels
        .iter()
        .map(|k| json!({"symbol": k.symbol, "launches": k.launches, "ms": k.milliseconds}))
        .collect();
    eprintln!("{step} {size} batch {batch}: {:.3} ms on the device, {:.3} ms in all", timed.device_ms(), timed.wall_ms);
    json!({
        "step": step, "size": size, "batch": batch,
        "device_ms": timed.device_ms(), "wall_ms": timed.wall_ms, "cpu_wall_ms": cpu,
        "bytes_least": least, "bytes_most": most,
        "share_of_copy_least": least / seconds / copy, "share_of_copy_most": most / seconds / copy,
        "kernels": kernels,
    })
}

/// Entity and passage parts of a reset.
type Column = (Vec<(u32, f64)>, Vec<f32>);

fn pagerank(gpu: &DeviceBackend<CudaDevice>, cpu: &dyn Backend, copy: f64, quick: bool, rows: &mut Vec<Value>) {
    let sizes: &[usize] = if quick { &[10_000] } else { &[10_000, 200_000, 1_000_000] };
    for &nodes in sizes {
        let data = Arc::new(graph(nodes, false));
        let corpus = gpu.load(Arc::clone(&data)).unwrap();
        eprintln!("{nodes} nodes, {} edges: {}", data.graph.n_edges(), corpus.plan().unwrap_or_default());
        let beside = cpu.load(Arc::clone(&data)).unwrap();
        let (entities, passages) = (data.graph.n_entities(), data.graph.n_passages());
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let columns: Vec<Column> = (0..1024)
            .map(|_| {
                let seed = (below(&mut rng, entities) as u32, 1.0);
                let mut state = rng.next_u64();
                let weights = (0..passages)
                    .map(|_| {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        0.05 * (state >> 40) as f32 / (1 << 24) as f32
                    })
                    .collect();
                (vec![seed], weights)
            })
            .collect();
        for batch in [1, 64, 256, 1024] {
            let resets: Vec<Reset> = columns[..batch].iter().map(|(e, p)| Reset { entities: e, passages: p }).collect();
            let timed = Timed::of(gpu.device(), || drop(corpus.pagerank(DAMPING, &resets).unwrap()));
            // Blocks of columns; every look at the residual after the first comes with four sweeps more.
            let blocks = timed.launches("pagerank_mass_f64").max(1);
            let looks = timed.launches("pagerank_totals_f64");
            let passes =
                (relaxation_sweeps(DAMPING, 1e-7) * blocks + 4 * (looks - blocks) + looks) as f64 / blocks as f64;
            let lanes = batch.next_power_of_two().max(4) as f64;
            let entries = data.graph.adjacency.values.len() as f64;
            let fixed = 8.0 * entries * blocks as f64 + 12.0 * nodes as f64 * lanes;
            let least = passes * (fixed + 4.0 * nodes as f64 * lanes);
            let most = passes * (fixed + 4.0 * entries * lanes);
            let on_cpu =
                (nodes * batch <= CPU_STATE).then(|| wall_ms(|| drop(beside.pagerank(DAMPING, &resets).unwrap())));
            rows.push(row(
                "pagerank",
                json!({"nodes": nodes, "edges": data.graph.n_edges()}),
                batch,
                &timed,
                least,
                most,
                copy,
                on_cpu,
            ));
        }
    }
}

fn propagation(gpu: &DeviceBackend<CudaDevice>, cpu: &dyn Backend, copy: f64, quick: bool, rows: &mut Vec<Value>) {
    let nodes = if quick { 10_000 } else { 200_000 };
    let data = Arc::new(graph(nodes, true));
    let (corpus, beside) = (gpu.load(Arc::clone(&data)).unwrap(), cpu.load(Arc::clone(&data)).unwrap());
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let questions = unit_rows(&mut rng, 256, 768);
    let entities = data.graph.n_entities();
    let seeds: Vec<Vec<(u32, f64)>> =
        (0..256).map(|_| (0..3).map(|_| (below(&mut rng, entities) as u32, 0.9)).collect()).collect();
    let params = PropagationParams { max_iterations: 4, threshold: 0.1, top_k_sentence: 4 };
    for (form, name) in [(Form::Bfs, "propagate bfs"), (Form::Matrix, "propagate matrix")] {
        for batch in [1, 64, 256] {
            let queries: Vec<PropagationQuery> =
                (0..batch).map(|q| PropagationQuery { seeds: &seeds[q], question: questions.row(q) }).collect();
            let timed = Timed::of(gpu.device(), || drop(corpus.propagate(form, params, &queries).unwrap()));
            let on_cpu = wall_ms(|| drop(beside.propagate(form, params, &queries).unwrap()));
            let (e, s) = (entities as f64, data.graph.n_sentences() as f64);
            let state = if form == Form::Bfs { 28.0 } else { 36.0 };
            let bytes = batch as f64 * ((state + 28.0) * e + 8.0 * s) + 4.0 * 768.0 * s * (batch as f64 / 64.0).ceil();
            rows.push(row(
                name,
                json!({"entities": entities, "sentences": data.graph.n_sentences()}),
                batch,
                &timed,
                bytes,
                bytes,
                copy,
                Some(on_cpu),
            ));
        }
    }
}

/// Seeds to ranking in one call; the CPU is given the cosines of questions and passages, which the GPU computes each time.
fn retrieval(gpu: &DeviceBackend<CudaDevice>, cpu: &dyn Backend, copy: f64, quick: bool, rows: &mut Vec<Value>) {
    let nodes = if quick { 10_000 } else { 200_000 };
    let data = Arc::new(graph(nodes, true));
    let (corpus, beside) = (gpu.load(Arc::clone(&data)).unwrap(), cpu.load(Arc::clone(&data)).unwrap());
    eprintln!("{}", corpus.plan().unwrap_or_default());
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let questions = unit_rows(&mut rng, 256, 768);
    let (entities, passages) = (data.graph.n_entities(), data.graph.n_passages());
    let seeds: Vec<Vec<(u32, f64)>> =
        (0..256).map(|_| (0..3).map(|_| (below(&mut rng, entities) as u32, 0.9)).collect()).collect();
    let views: Vec<&[f32]> = (0..256).map(|q| questions.row(q)).collect();
    let similarities = beside.passage_similarities(&views).unwrap();
    let params = RetrievalParams {
        form: Form::Bfs,
        propagation: PropagationParams { max_iterations: 3, threshold: 0.4, top_k_sentence: 1 },
        passage_ratio: 1.5,
        passage_node_weight: 0.05,
        damping: DAMPING,
        best: Some(20),
    };
    for batch in [1, 64, 256] {
        let queries: Vec<RetrievalQuery> = (0..batch)
            .map(|q| RetrievalQuery { seeds: &seeds[q], question: views[q], similarities: &similarities[q] })
            .collect();
        let timed = Timed::of(gpu.device(), || drop(corpus.retrieve(&params, &queries).unwrap()));
        let on_cpu = wall_ms(|| drop(beside.retrieve(&params, &queries).unwrap()));
        let (e, s, p, b) = (entities as f64, data.graph.n_sentences() as f64, passages as f64, batch as f64);
        let lanes = batch.next_power_of_two().max(4) as f64;
        let sweeps = relaxation_sweeps(DAMPING, 1e-7) as f64 + 1.0;
        let entries = data.graph.adjacency.values.len() as f64;
        // Products with sentences and passages, state of propagation, weights, then the sweeps with x read once.
        let before = 4.0 * 768.0 * (s + p) * (b / 64.0).ceil() + b * (56.0 * e + 8.0 * s + 16.0 * p);
        let least = before + sweeps * (8.0 * entries + 16.0 * nodes as f64 * lanes);
        let most = before + sweeps * (8.0 * entries + 12.0 * nodes as f64 * lanes + 4.0 * entries * lanes);
        let size = json!({"nodes": nodes, "edges": data.graph.n_edges()});
        rows.push(row("retrieve", size, batch, &timed, least, most, copy, Some(on_cpu)));
    }
}

struct Store {
    id: StoreId,
    maps: Vec<SparseVector>,
    norms: Vec<f64>,
    postings: Vec<Vec<(u32, f64)>>,
}

impl ActivationStore for Store {
    fn id(&self) -> &StoreId {
        &self.id
    }
    fn count(&self) -> usize {
        self.maps.len()
    }
    fn map(&self, experience: usize) -> &SparseVector {
        &self.maps[experience]
    }
    fn postings(&self, entity: u32) -> &[(u32, f64)] {
        &self.postings[entity as usize]
    }
    fn norm(&self, experience: usize) -> f64 {
        self.norms[experience]
    }
}

fn scans(gpu: &DeviceBackend<CudaDevice>, cpu: &dyn Backend, copy: f64, quick: bool, rows: &mut Vec<Value>) {
    let sizes: &[usize] = if quick { &[1000] } else { &[1000, 10_000, 100_000, 1_000_000] };
    let (entities, batch) = (20_000, 16);
    for &stored in sizes {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut store =
            Store { id: StoreId::default(), maps: Vec::new(), norms: Vec::new(), postings: vec![Vec::new(); entities] };
        let map = |rng: &mut ChaCha8Rng| {
            SparseVector::from_assignments(
                (0..20).map(|_| (below(rng, entities) as u32, 0.05 + unit(rng))).collect::<Vec<_>>(),
            )
        };
        for x in 0..stored {
            let stored_map = map(&mut rng);
            store.norms.push(stored_map.norm());
            for (e, v) in stored_map.iter() {
                store.postings[e as usize].push((x as u32, v));
            }
            store.maps.push(stored_map);
        }
        let activations: Vec<SparseVector> = (0..batch).map(|_| map(&mut rng)).collect();
        let cosines: Vec<Vec<f32>> = (0..batch).map(|_| (0..stored).map(|_| unit(&mut rng) as f32).collect()).collect();
        let queries: Vec<ScanQuery> = activations
            .iter()
            .zip(&cosines)
            .map(|(a, c)| ScanQuery {
                activation: a,
                cos_query: c,
                cos_template: Some(c),
                alpha: 0.6,
                lambda: 0.1,
                k: 5,
            })
            .collect();
        let timed = Timed::of(gpu.device(), || drop(gpu.store_scan(&store, &queries).unwrap()));
        let on_cpu = wall_ms(|| drop(cpu.store_scan(&store, &queries).unwrap()));
        let seen: usize = activations.iter().flat_map(|a| &a.ids).map(|&e| store.postings[e as usize].len()).sum();
        let bytes = 12.0 * seen as f64 + 24.0 * (stored * batch) as f64;
        rows.push(row("store scan", json!({"experiences": stored}), batch, &timed, bytes, bytes, copy, Some(on_cpu)));
    }
}

fn table(result: &Value) -> String {
    let mut out = format!(
        "# {}\n\nCopy within the device: {:.0} GB/s. Bytes and shares: see examples/gpu_check.rs.\n\n\
         | step | size | batch | device ms | wall ms | CPU wall ms | GB, least to most | share of the copy |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |\n",
        result["device"].as_str().unwrap_or(""),
        result["copy_bytes_per_second"].as_f64().unwrap_or(0.0) / 1e9
    );
    for row in result["rows"].as_array().into_iter().flatten() {
        let number = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
        let cpu = row["cpu_wall_ms"].as_f64().map_or("not run".to_owned(), |ms| format!("{ms:.2}"));
        out.push_str(&format!(
            "| {} | {} | {} | {:.3} | {:.3} | {cpu} | {:.3} to {:.3} | {:.2} to {:.2} |\n",
            row["step"].as_str().unwrap_or(""),
            row["size"].to_string().replace(['{', '}', '"'], ""),
            row["batch"],
            number("device_ms"),
            number("wall_ms"),
            number("bytes_least") / 1e9,
            number("bytes_most") / 1e9,
            number("share_of_copy_least"),
            number("share_of_copy_most")
        ));
    }
    out
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(out) = args.iter().find(|a| !a.starts_with("--")) else {
        eprintln!("usage: gpu_check OUT.json [--quick]");
        return ExitCode::from(2);
    };
    let quick = args.iter().any(|a| a == "--quick");
    let device = match CudaDevice::new(0) {
        Ok(device) => device,
        Err(error) => {
            eprintln!("{}", error.report());
            return ExitCode::FAILURE;
        }
    };
    let copy = copy_bandwidth(device.stream());
    let gpu = DeviceBackend::new(device, 1);
    let cpu = backend::open(&BackendConfig { kind: BackendKind::Cpu, threads: 0 }).unwrap();
    let mut rows = Vec::new();
    pagerank(&gpu, &*cpu, copy, quick, &mut rows);
    propagation(&gpu, &*cpu, copy, quick, &mut rows);
    retrieval(&gpu, &*cpu, copy, quick, &mut rows);
    scans(&gpu, &*cpu, copy, quick, &mut rows);
    let result = json!({
        "device": gpu.description().device,
        "cpu": cpu.description().device,
        "cpu_threads": cpu.description().threads,
        "version": env!("CARGO_PKG_VERSION"),
        "copy_bytes_per_second": copy,
        "rows": rows,
    });
    std::fs::write(Path::new(out), serde_json::to_string_pretty(&result).unwrap() + "\n").unwrap();
    println!("{}", table(&result));
    ExitCode::SUCCESS
}
