//! Base retrieval on the CPU backend, step by step and whole, at batch 1 and 64; and the store scan.
//!
//! Measured on hotpotqa_train (994 passages, 8,186 entities; LinearRAG's script parameters, bfs) when `$LIVINGRAG_SHARED` or
//! `../shared` holds it, else on the bundled demo. Encoders are left out, as in the reference's own figures; nothing is kept from one
//! iteration to the next: seeds are linked and cosines computed each time. Times are per batch; divide by the batch.
//! Run: `cargo bench --bench retrieval`.

#![allow(clippy::unwrap_used, missing_docs)]

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use livingrag::backend::{
    self, ActivationStore, Backend, Corpus, Form, Matrix, PassageWeightQuery, PropagationQuery, Reset, ScanQuery,
};
use livingrag::config::BackendConfig;
use livingrag::dataset::Dataset;
use livingrag::experience::record::Experience;
use livingrag::experience::store::ExperienceStore;
use livingrag::ids::{QuestionId, StreamIndex};
use livingrag::index::{Index, IndexOptions, build};
use livingrag::math::propagation::PropagationParams;
use livingrag::math::sparse::SparseVector;

const PARAMS: PropagationParams = PropagationParams { max_iterations: 3, threshold: 0.4, top_k_sentence: 1 };
const PASSAGE_RATIO: f64 = 0.05;

fn index() -> Index {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let shared = std::env::var_os("LIVINGRAG_SHARED").map_or_else(|| root.join("../shared"), PathBuf::from);
    let real = shared.join("data/hotpotqa_train");
    let folder = if real.is_dir() { real } else { root.join("data/demo") };
    build::build(&Dataset::open(&folder).unwrap(), &IndexOptions::default()).unwrap()
}

/// The questions of one batch with the vectors of their entities.
struct Batch {
    questions: Vec<usize>,
    entity_vectors: Matrix,
    /// Rows of `entity_vectors` of each question.
    entity_rows: Vec<Vec<usize>>,
}

impl Batch {
    fn new(index: &Index, first: usize, n: usize) -> Self {
        let questions: Vec<usize> = (0..n).map(|i| (first + i) % index.questions.len()).collect();
        let (mut data, mut entity_rows) = (Vec::new(), Vec::new());
        for &q in &questions {
            let mut rows = Vec::new();
            for &e in &index.questions[q].entities {
                rows.push(data.len() / index.meta.dim);
                data.extend_from_slice(index.question_entity_vectors.row(e as usize));
            }
            entity_rows.push(rows);
        }
        Self { questions, entity_vectors: Matrix::new(index.meta.dim, data), entity_rows }
    }

    fn vectors<'a>(&self, index: &'a Index) -> Vec<&'a [f32]> {
        self.questions.iter().map(|&q| index.question_vectors.row(q)).collect()
    }

    fn link(&self, corpus: &dyn Corpus) -> Vec<Vec<(u32, f64)>> {
        let links = corpus.link(&self.entity_vectors).unwrap();
        let seeds = |rows: &Vec<usize>| rows.iter().filter_map(|&r| links[r]).map(|(e, c)| (e, f64::from(c))).collect();
        self.entity_rows.iter().map(seeds).collect()
    }
}

fn propagation_queries<'a>(seeds: &'a [Vec<(u32, f64)>], vectors: &[&'a [f32]]) -> Vec<PropagationQuery<'a>> {
    seeds.iter().zip(vectors).map(|(s, &v)| PropagationQuery { seeds: s, question: v }).collect()
}

fn retrieve(index: &Index, backend: &dyn Backend, corpus: &dyn Corpus, batch: &Batch) -> Vec<Vec<(u32, f64)>> {
    let vectors = batch.vectors(index);
    let seeds = batch.link(corpus);
    let similarities = corpus.passage_similarities(&vectors).unwrap();
    let propagated = corpus.propagate(Form::Bfs, PARAMS, &propagation_queries(&seeds, &vectors)).unwrap();
    let weight_queries: Vec<PassageWeightQuery> = similarities
        .iter()
        .zip(&propagated)
        .map(|(s, p)| PassageWeightQuery { similarities: s, active: &p.active })
        .collect();
    let weights = corpus.passage_weights(PASSAGE_RATIO, 0.05, &weight_queries).unwrap();
    let resets: Vec<Reset> =
        propagated.iter().zip(&weights).map(|(p, w)| Reset { entities: &p.weights, passages: w }).collect();
    let ranks = corpus.pagerank(0.5, &resets).unwrap();
    let views: Vec<&[f32]> = ranks.iter().zip(&similarities).map(|(r, s)| r.as_deref().unwrap_or(s)).collect();
    backend.top_k(&views, 20).unwrap()
}

fn bench_retrieval(c: &mut Criterion) {
    let index = index();
    let backend = backend::open(&BackendConfig::default()).unwrap();
    let corpus = backend.load(Arc::clone(&index.data)).unwrap();
    for size in [1usize, 64] {
        let batches: Vec<Batch> =
            (0..index.questions.len()).step_by(size).map(|q| Batch::new(&index, q, size)).collect();
        let mut group = c.benchmark_group(format!("{}/batch-{size}", index.meta.dataset));
        group.throughput(Throughput::Elements(size as u64)).sample_size(30);
        let mut at = 0;
        let mut next = || {
            at = (at + 1) % batches.len();
            &batches[at]
        };
        group.bench_function("whole", |b| b.iter(|| black_box(retrieve(&index, &*backend, &*corpus, next()))));
        group.bench_function("link", |b| b.iter(|| black_box(next().link(&*corpus))));
        group.bench_function("passage similarities", |b| {
            b.iter(|| black_box(corpus.passage_similarities(&next().vectors(&index)).unwrap()));
        });
        let prepared: Vec<_> = batches
            .iter()
            .map(|batch| {
                let vectors = batch.vectors(&index);
                let seeds = batch.link(&*corpus);
                let similarities = corpus.passage_similarities(&vectors).unwrap();
                let propagated = corpus.propagate(Form::Bfs, PARAMS, &propagation_queries(&seeds, &vectors)).unwrap();
                let queries: Vec<PassageWeightQuery> = similarities
                    .iter()
                    .zip(&propagated)
                    .map(|(s, p)| PassageWeightQuery { similarities: s, active: &p.active })
                    .collect();
                let weights = corpus.passage_weights(PASSAGE_RATIO, 0.05, &queries).unwrap();
                (seeds, similarities, propagated, weights)
            })
            .collect();
        let mut at = 0;
        let mut next = || {
            at = (at + 1) % batches.len();
            (&batches[at], &prepared[at])
        };
        for (name, form) in [("propagate bfs", Form::Bfs), ("propagate matrix", Form::Matrix)] {
            group.bench_function(name, |b| {
                b.iter(|| {
                    let (batch, (seeds, ..)) = next();
                    black_box(
                        corpus.propagate(form, PARAMS, &propagation_queries(seeds, &batch.vectors(&index))).unwrap(),
                    )
                });
            });
        }
        group.bench_function("passage weights", |b| {
            b.iter(|| {
                let (_, (_, similarities, propagated, _)) = next();
                let queries: Vec<PassageWeightQuery> = similarities
                    .iter()
                    .zip(propagated)
                    .map(|(s, p)| PassageWeightQuery { similarities: s, active: &p.active })
                    .collect();
                black_box(corpus.passage_weights(PASSAGE_RATIO, 0.05, &queries).unwrap())
            });
        });
        group.bench_function("pagerank", |b| {
            b.iter(|| {
                let (_, (_, _, propagated, weights)) = next();
                let resets: Vec<Reset> =
                    propagated.iter().zip(weights).map(|(p, w)| Reset { entities: &p.weights, passages: w }).collect();
                black_box(corpus.pagerank(0.5, &resets).unwrap())
            });
        });
        group.finish();
    }
}

/// Stores of generated maps of 40 entities out of 8,000, the size that hotpotqa_train's have.
fn bench_store_scan(c: &mut Criterion) {
    let backend = backend::open(&BackendConfig::default()).unwrap();
    let mut state = 1u64;
    let mut next = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let mut map = |n: usize| {
        SparseVector::from_assignments(
            (0..n).map(|_| (next(8_000) as u32, 0.05 + next(900) as f64 / 1e3)).collect::<Vec<_>>(),
        )
    };
    let mut group = c.benchmark_group("store scan");
    for n in [100usize, 1_000, 10_000] {
        let mut store = ExperienceStore::default();
        for t in 0..n {
            store.append(Experience {
                question: QuestionId::from(t),
                stream_index: StreamIndex::from(t + 1),
                activation: map(40),
                summary: String::new(),
                answer: String::new(),
                confidence: 1.0,
            });
        }
        let queries: Vec<SparseVector> = (0..64).map(|_| map(3)).collect();
        let cosines: Vec<f32> = (0..n).map(|i| (i % 97) as f32 / 97.0).collect();
        for size in [1usize, 64] {
            let batch: Vec<ScanQuery> = queries[..size]
                .iter()
                .map(|activation| ScanQuery {
                    activation,
                    cos_query: &cosines,
                    cos_template: Some(&cosines),
                    alpha: 0.6,
                    lambda: 0.1,
                    k: 5,
                })
                .collect();
            group.throughput(Throughput::Elements(size as u64)).sample_size(30);
            group.bench_function(BenchmarkId::new(format!("batch-{size}"), n), |b| {
                b.iter(|| black_box(backend.store_scan(&store as &dyn ActivationStore, &batch).unwrap()));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, bench_retrieval, bench_store_scan);
criterion_main!(benches);
