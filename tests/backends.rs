//! One suite for every backend, against the `f64` reference of `math` and against vectors made elsewhere (tests/cases).
//!
//! A backend is added in `backends()`; each test runs on all of them: the CPU with one, two and three workers, the CUDA kernels on the
//! processor (tests/host_cuda), and CUDA where it is built in and a device answers.

#![allow(clippy::unwrap_used)]

#[path = "cases/mod.rs"]
mod cases;
mod host_cuda;

use std::sync::{Arc, LazyLock};

use livingrag::backend::device::DeviceBackend;
use livingrag::backend::{
    self, ActivationStore, Backend, Form, Matrix, PassageWeightQuery, PropagationQuery, Ranked, Reset, RetrievalData,
    RetrievalParams, RetrievalQuery, ScanQuery, StoreId,
};
use livingrag::config::{BackendConfig, BackendKind};
use livingrag::math::graph::{Csr, Graph, WeightedCsr};
use livingrag::math::pagerank::personalized_pagerank;
use livingrag::math::passage_weight::{entity_bonus, min_max_normalize, passage_weight};
use livingrag::math::propagation::{Active, Propagated, PropagationParams, propagate_bfs, propagate_matrix};
use livingrag::math::rank::by_score_then_id;
use livingrag::math::similarity::dual_channel_similarity;
use livingrag::math::sparse::{SparseVector, cosine};
use proptest::prelude::*;

/// L1 distance to the reference: `f32` state on a vector of mass 1.
const PPR_L1: f64 = 1e-5;

fn open(kind: BackendKind, threads: u32) -> livingrag::Result<Box<dyn Backend>> {
    backend::open(&BackendConfig { kind, threads })
}

/// Started once; a test goes through them in turn.
fn backends() -> &'static [Box<dyn Backend>] {
    static ALL: LazyLock<Vec<Box<dyn Backend>>> = LazyLock::new(|| {
        let mut all: Vec<_> = [1, 2, 3].map(|threads| open(BackendKind::Cpu, threads).unwrap()).into();
        if let Some(device) = host_cuda::HostCuda::start() {
            all.push(Box::new(DeviceBackend::new(device, 1)));
        }
        match open(BackendKind::Cuda, 1) {
            Ok(cuda) => all.push(cuda),
            // Set on machines with a GPU, so that its absence is not taken for success.
            Err(error) if std::env::var_os("LIVINGRAG_REQUIRE_CUDA").is_some() => panic!("{}", error.report()),
            Err(_) => {}
        }
        all
    });
    &ALL
}

/// `auto` never fails for want of a GPU, and says what it took; `cuda` then fails with one sentence and a cure.
#[test]
fn auto_says_what_it_took() {
    let taken = open(BackendKind::Auto, 1).unwrap().description();
    match open(BackendKind::Cuda, 1) {
        Ok(cuda) => assert_eq!((taken.name, taken.note), (cuda.description().name, None)),
        Err(error) => {
            let note = taken.note.unwrap();
            assert_eq!(taken.name, "cpu");
            assert!(note.starts_with("auto took the CPU, since CUDA cannot be used: "), "{note}");
            assert!(error.to_string().starts_with("CUDA cannot be used: ") && error.hint().is_some());
        }
    }
    assert_eq!(open(BackendKind::Cpu, 1).unwrap().description().note, None);
}

/// A small deterministic source of numbers for generated graphs.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn unit_rows(&mut self, rows: usize, dim: usize) -> Matrix {
        let mut data = Vec::with_capacity(rows * dim);
        for _ in 0..rows {
            // Positive parts make most cosines positive, as sentence encoders do.
            let row: Vec<f64> = (0..dim).map(|_| self.unit() - 0.2).collect();
            let norm = row.iter().map(|v| v * v).sum::<f64>().sqrt().max(1e-9);
            data.extend(row.iter().map(|v| (v / norm) as f32));
        }
        Matrix::new(dim, data)
    }
}

/// Shape of a generated graph: hubs, isolated passages, components, with or without the passage chain.
#[derive(Debug, Clone)]
struct Shape {
    entities: usize,
    sentences: usize,
    passages: usize,
    chain: bool,
    seed: u64,
}

fn shapes() -> impl Strategy<Value = Shape> {
    (0usize..14, 0usize..20, 1usize..16, any::<bool>(), any::<u64>()).prop_map(
        |(entities, sentences, passages, chain, seed)| Shape {
            entities,
            sentences: if entities == 0 { 0 } else { sentences },
            passages,
            chain,
            seed,
        },
    )
}

fn generate(shape: &Shape) -> RetrievalData {
    let mut n = Numbers(shape.seed);
    let dim = 19;
    let mut sentence_entities = vec![Vec::new(); shape.sentences];
    for list in &mut sentence_entities {
        // Entity 0 is a hub.
        let mut add = |e: u32| {
            if !list.contains(&e) {
                list.push(e);
            }
        };
        if n.below(2) == 0 {
            add(0);
        }
        for _ in 0..1 + n.below(3) {
            add(n.below(shape.entities) as u32);
        }
    }
    let mut entity_sentences = vec![Vec::new(); shape.entities];
    for (s, list) in sentence_entities.iter().enumerate() {
        for &e in list {
            entity_sentences[e as usize].push(s as u32);
        }
    }
    let mut edges = Vec::new();
    let mut passage_entities = vec![Vec::new(); shape.passages];
    let mut occurrences = vec![Vec::new(); shape.entities];
    for (p, passage_entities) in passage_entities.iter_mut().enumerate() {
        for (e, occurrences) in occurrences.iter_mut().enumerate() {
            if (e == 0 && n.below(2) == 0) || n.below(5) == 0 {
                passage_entities.push(e as u32);
                edges.push((e as u32, (shape.entities + p) as u32, n.unit() + 0.01));
                occurrences.push((p as u32, (1.0 + (1 + n.below(4)) as f64).ln()));
            }
        }
        if shape.chain && p > 0 {
            edges.push(((shape.entities + p - 1) as u32, (shape.entities + p) as u32, 1.0));
        }
    }
    RetrievalData {
        graph: Graph {
            entity_sentences: Csr::from_rows(&entity_sentences),
            sentence_entities: Csr::from_rows(&sentence_entities),
            passage_entities: Csr::from_rows(&passage_entities),
            adjacency: Graph::adjacency_from_edges(shape.entities + shape.passages, &edges),
        },
        occurrences: WeightedCsr::from_rows(&occurrences),
        passages: n.unit_rows(shape.passages, dim),
        sentences: n.unit_rows(shape.sentences, dim),
        entities: n.unit_rows(shape.entities, dim),
    }
}

fn seeds(n: &mut Numbers, entities: usize) -> Vec<(u32, f64)> {
    if entities == 0 {
        return Vec::new();
    }
    // Repeats on purpose: two query entities may link to one graph entity.
    (0..1 + n.below(4)).map(|_| (n.below(entities) as u32, 0.3 + 0.7 * n.unit())).collect()
}

fn close(a: &Propagated, b: &Propagated) -> bool {
    let near = |x: f64, y: f64| (x - y).abs() <= 1e-5 * (1.0 + x.abs());
    a.weights.len() == b.weights.len()
        && a.active.len() == b.active.len()
        && a.weights.iter().zip(&b.weights).all(|(x, y)| x.0 == y.0 && near(x.1, y.1))
        && a.active
            .iter()
            .zip(&b.active)
            .all(|(x, y)| x.entity == y.entity && x.tier == y.tier && near(x.score, y.score))
}

struct Maps(Vec<SparseVector>, Vec<Vec<(u32, f64)>>, StoreId);

impl ActivationStore for Maps {
    fn id(&self) -> &StoreId {
        &self.2
    }
    fn count(&self) -> usize {
        self.0.len()
    }
    fn map(&self, experience: usize) -> &SparseVector {
        &self.0[experience]
    }
    fn postings(&self, entity: u32) -> &[(u32, f64)] {
        &self.1[entity as usize]
    }
    fn norm(&self, experience: usize) -> f64 {
        self.0[experience].norm()
    }
}

fn graph_only(n_entities: usize, n_passages: usize, edges: &[(u32, u32, f64)]) -> RetrievalData {
    let empty = |rows: usize| Csr::from_rows(&vec![Vec::new(); rows]);
    RetrievalData {
        graph: Graph {
            entity_sentences: empty(n_entities),
            sentence_entities: empty(0),
            passage_entities: empty(n_passages),
            adjacency: Graph::adjacency_from_edges(n_entities + n_passages, edges),
        },
        occurrences: WeightedCsr::from_rows(&vec![Vec::new(); n_entities]),
        passages: Matrix::new(1, vec![1.0; n_passages]),
        sentences: Matrix::new(1, Vec::new()),
        entities: Matrix::new(1, vec![1.0; n_entities]),
    }
}

/// pitfall 16: zero, negative and NaN resets are `None` in a batch with good ones, which stay what they are alone.
#[test]
fn bad_resets_are_told_and_leave_their_neighbours_alone() {
    for backend in backends() {
        let corpus = backend.load(Arc::new(graph_only(1, 3, &[(0, 1, 1.0), (1, 2, 1.0)]))).unwrap();
        let good = Reset { entities: &[(0, 0.7)], passages: &[0.1, 0.0, f32::NAN] };
        let zero = Reset { entities: &[], passages: &[0.0; 3] };
        let bad = Reset { entities: &[(0, f64::NAN)], passages: &[-1.0, f32::NAN, 0.0] };
        let batch = corpus.pagerank(0.5, &[zero, good, bad]).unwrap();
        assert_eq!((&batch[0], &batch[2]), (&None, &None));
        assert_eq!(batch[1], corpus.pagerank(0.5, &[good]).unwrap()[0]);
        assert!(batch[1].is_some());
    }
}

#[test]
fn linking_takes_the_highest_cosine_and_the_lowest_id() {
    let mut data = graph_only(4, 1, &[]);
    data.entities = Matrix::new(2, vec![1.0, 0.0, 0.6, 0.8, 0.6, 0.8, 0.0, 1.0]);
    for backend in backends() {
        let corpus = backend.load(Arc::new(data.clone())).unwrap();
        let links = corpus.link(&Matrix::new(2, vec![0.6, 0.8, 0.0, 1.0])).unwrap();
        assert_eq!(links.iter().map(|l| l.unwrap().0).collect::<Vec<_>>(), [1, 3]);
    }
}

/// 200, or `PROPTEST_CASES` under tools that slow everything down.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    /// Propagation, passage weights and PageRank of generated graphs, in one batch and alone, on every backend.
    #[test]
    fn retrieval_steps_agree_with_the_reference(shape in shapes(), batch in 1usize..20) {
        let data = Arc::new(generate(&shape));
        let mut n = Numbers(shape.seed ^ 0xabc);
        let params = PropagationParams {
            max_iterations: 1 + n.below(5) as u32,
            threshold: 0.05 + 0.5 * n.unit(),
            top_k_sentence: 1 + n.below(4),
        };
        let questions: Vec<Matrix> = (0..batch).map(|_| n.unit_rows(1, 19)).collect();
        let seed_lists: Vec<Vec<(u32, f64)>> = (0..batch).map(|_| seeds(&mut n, shape.entities)).collect();
        let queries: Vec<PropagationQuery> = questions.iter().zip(&seed_lists)
            .map(|(q, s)| PropagationQuery { seeds: s, question: q.row(0) }).collect();
        for backend in backends() {
            let corpus = backend.load(Arc::clone(&data)).unwrap();
            let similarities = corpus.passage_similarities(&questions.iter().map(|q| q.row(0)).collect::<Vec<_>>()).unwrap();
            for form in [Form::Bfs, Form::Matrix] {
                let found = corpus.propagate(form, params, &queries).unwrap();
                for (query, found) in queries.iter().zip(&found) {
                    let sim = |s: u32| livingrag::math::similarity::dot(data.sentences.row(s as usize), query.question);
                    let reference = match form {
                        Form::Bfs => propagate_bfs(&data.graph, query.seeds, &sim, params),
                        Form::Matrix => propagate_matrix(&data.graph, query.seeds, &sim, params),
                    };
                    prop_assert!(close(&reference, found), "{form:?}\n{reference:?}\n{found:?}");
                    prop_assert_eq!(found, &corpus.propagate(form, params, &[*query]).unwrap()[0]);
                }
                let weight_queries: Vec<PassageWeightQuery> = similarities.iter().zip(&found)
                    .map(|(s, p)| PassageWeightQuery { similarities: s, active: &p.active }).collect();
                let weights = corpus.passage_weights(1.5, 0.05, &weight_queries).unwrap();
                for ((query, weights), found) in weight_queries.iter().zip(&weights).zip(&found) {
                    let dpr = min_max_normalize(&query.similarities.iter().map(|&s| f64::from(s)).collect::<Vec<_>>());
                    let bonus = entity_bonus(&found.active, &data.occurrences, shape.passages);
                    for p in 0..shape.passages {
                        let expected = passage_weight(dpr[p], bonus[p], 1.5, 0.05);
                        let expected = if expected > 0.0 { expected } else { 0.0 };
                        prop_assert!((f64::from(weights[p]) - expected).abs() < 1e-6);
                    }
                }
                let resets: Vec<Reset> = found.iter().zip(&weights)
                    .map(|(p, w)| Reset { entities: &p.weights, passages: w }).collect();
                let ranks = corpus.pagerank(0.5, &resets).unwrap();
                for (reset, rank) in resets.iter().zip(&ranks) {
                    let mut full = vec![0.0; data.graph.n_nodes()];
                    for &(e, w) in reset.entities {
                        full[e as usize] = w;
                    }
                    for (p, &w) in reset.passages.iter().enumerate() {
                        full[shape.entities + p] = f64::from(w);
                    }
                    match personalized_pagerank(&data.graph.adjacency, &full, 0.5) {
                        None => prop_assert!(rank.is_none()),
                        Some(expected) => {
                            let rank = rank.as_ref().unwrap();
                            let l1: f64 = rank.iter().zip(&expected[shape.entities..])
                                .map(|(&a, b)| (f64::from(a) - b).abs()).sum();
                            prop_assert!(l1 <= PPR_L1, "{l1:e}");
                        }
                    }
                    prop_assert_eq!(&corpus.pagerank(0.5, &[*reset]).unwrap()[0], rank, "a column depends on its neighbours");
                }
                // All of it in one call: the same bits, ranked or not.
                for best in [None, Some(3)] {
                    let params = RetrievalParams {
                        form, propagation: params, passage_ratio: 1.5, passage_node_weight: 0.05, damping: 0.5, best,
                    };
                    let together: Vec<RetrievalQuery> = queries.iter().zip(&similarities)
                        .map(|(q, s)| RetrievalQuery { seeds: q.seeds, question: q.question, similarities: s }).collect();
                    let retrieved = corpus.retrieve(&params, &together).unwrap();
                    for ((retrieved, found), rank) in retrieved.iter().zip(&found).zip(&ranks) {
                        prop_assert_eq!(&retrieved.propagated, found);
                        match (&retrieved.ranked, rank) {
                            (Ranked::ZeroReset, rank) => prop_assert!(rank.is_none()),
                            (Ranked::Scores(scores), rank) => prop_assert_eq!(Some(scores), rank.as_ref()),
                            (Ranked::Best(top), rank) => {
                                let rank = rank.as_ref().unwrap();
                                prop_assert_eq!(top, &backend.top_k(&[rank], 3).unwrap()[0]);
                            }
                        }
                    }
                }
            }
        }
    }

    /// Store scans: every score by the sparse reference cosine, best K, best scaffold.
    #[test]
    fn store_scans_agree_with_the_reference(seed in any::<u64>(), stored in 0usize..30, k in 1usize..6) {
        let mut n = Numbers(seed);
        let entities = 12;
        let map = |n: &mut Numbers| {
            let len = n.below(5);
            SparseVector::from_assignments((0..len).map(|_| (n.below(entities) as u32, n.unit())).collect::<Vec<_>>())
        };
        let maps: Vec<SparseVector> = (0..stored).map(|_| map(&mut n)).collect();
        let mut postings = vec![Vec::new(); entities];
        for (x, map) in maps.iter().enumerate() {
            for (e, v) in map.iter() {
                postings[e as usize].push((x as u32, v));
            }
        }
        let visible = if stored == 0 { 0 } else { n.below(stored + 1) };
        let activation = map(&mut n);
        let cos_query: Vec<f32> = (0..visible).map(|_| n.unit() as f32).collect();
        let cos_template: Vec<f32> = (0..visible).map(|_| (n.below(3) as f32) / 2.0).collect();
        let (alpha, lambda) = (n.unit(), n.unit());
        let query = ScanQuery {
            activation: &activation, cos_query: &cos_query, cos_template: Some(&cos_template), alpha, lambda, k,
        };
        let scores: Vec<f64> = (0..visible)
            .map(|x| dual_channel_similarity(alpha, f64::from(cos_query[x]), cosine(&activation, &maps[x]))).collect();
        let store = Maps(maps, postings, StoreId::default());
        for backend in backends() {
            let found = &backend.store_scan(&store, &[query]).unwrap()[0];
            let mut order: Vec<(u32, f64)> = scores.iter().enumerate().map(|(i, &s)| (i as u32, s)).collect();
            order.sort_by(|&a, &b| by_score_then_id(a, b));
            prop_assert_eq!(found.top.len(), k.min(visible));
            for (hit, expected) in found.top.iter().zip(&order) {
                prop_assert!((hit.score - expected.1).abs() < 1e-12);
            }
            let best = scores.iter().zip(&cos_template)
                .map(|(s, &t)| (1.0 - lambda) * s + lambda * f64::from(t)).fold(f64::NEG_INFINITY, f64::max);
            match found.scaffold {
                None => prop_assert_eq!(visible, 0),
                Some((_, score)) => prop_assert!((score - best).abs() < 1e-12),
            }
        }
    }
}

/// One entity is active with score 1; nothing else: the fast path must not skip a passage that mentions it.
#[test]
fn a_passage_without_bonus_keeps_its_dense_part() {
    let mut data = graph_only(1, 2, &[(0, 1, 1.0)]);
    data.occurrences = WeightedCsr::from_rows(&[vec![(1, 2f64.ln())]]);
    for backend in backends() {
        let corpus = backend.load(Arc::new(data.clone())).unwrap();
        let active = [Active { entity: 0, score: 1.0, tier: 1 }];
        let weights = corpus
            .passage_weights(2.0, 0.05, &[PassageWeightQuery { similarities: &[1.0, 0.5], active: &active }])
            .unwrap();
        assert!((weights[0][0] - 0.1).abs() < 1e-7);
        assert!((f64::from(weights[0][1]) - 0.05 * (1.0 + 2f64.ln()).ln()).abs() < 1e-7);
    }
}
