//! The kernels at sizes that need several tiles, long rows and split batches, on the processor, against `math`.
//!
//! tests/backends.rs runs every operation on small graphs; here are the shapes that only larger ones reach. Results are compared bit for
//! bit between seeds, which draw other block sizes and other orders of threads, and between memory plans, which split batches otherwise.

#![allow(clippy::unwrap_used)]

mod host_cuda;

use std::sync::Arc;

use host_cuda::HostCuda;
use livingrag::backend::device::{DeviceBackend, FuseQuery, FuseScale};
use livingrag::backend::{
    ActivationStore, Backend, Form, Matrix, PassageWeightQuery, PropagationQuery, Reset, RetrievalData, ScanQuery,
};
use livingrag::config::Normalize;
use livingrag::experience::fuse::{confidence_weights, fuse_activation};
use livingrag::math::graph::{Csr, Graph, WeightedCsr};
use livingrag::math::pagerank::personalized_pagerank;
use livingrag::math::passage_weight::{entity_bonus, min_max_normalize, passage_weight};
use livingrag::math::propagation::{Active, PropagationParams, propagate_bfs, propagate_matrix};
use livingrag::math::rank::{by_score_then_id, top_k};
use livingrag::math::similarity::{dot, dual_channel_similarity};
use livingrag::math::sparse::{SparseVector, cosine};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Memory that splits no batch of these tests.
const PLENTY: u64 = 1 << 30;

fn backend(seed: u64, free: u64) -> Option<DeviceBackend<HostCuda>> {
    Some(DeviceBackend::new(HostCuda::with_seed(seed)?.with_free_bytes(free), 1))
}

struct Numbers(ChaCha8Rng);

impl Numbers {
    fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }
    fn below(&mut self, n: usize) -> usize {
        (self.0.next_u64() % n as u64) as usize
    }
    fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
    fn vectors(&mut self, rows: usize, dim: usize) -> Matrix {
        let mut out = Vec::new();
        for _ in 0..rows {
            let row: Vec<f64> = (0..dim).map(|_| self.unit() - 0.3).collect();
            let norm = row.iter().map(|v| v * v).sum::<f64>().sqrt();
            out.extend(row.iter().map(|v| (v / norm) as f32));
        }
        Matrix::new(dim, out)
    }
}

/// A graph with two hubs (entity 0 in every passage, entity 1 in every second), a chain, isolated passages at the end.
fn graph(entities: usize, passages: usize, isolated: usize, dim: usize) -> RetrievalData {
    let mut n = Numbers::new(5);
    let mut edges = Vec::new();
    let mut occurrences = vec![Vec::new(); entities];
    let mut passage_entities = vec![Vec::new(); passages + isolated];
    for (p, passage_entities) in passage_entities.iter_mut().enumerate().take(passages) {
        let mut of: Vec<usize> =
            (0..3).map(|_| 2 + n.below(entities - 2)).chain([0]).chain((p % 2 == 0).then_some(1)).collect();
        of.sort_unstable();
        of.dedup();
        for e in of {
            edges.push((e as u32, (entities + p) as u32, 0.05 + n.unit()));
            occurrences[e].push((p as u32, (2.0 + n.below(3) as f64).ln()));
            passage_entities.push(e as u32);
        }
        if p > 0 {
            edges.push(((entities + p - 1) as u32, (entities + p) as u32, 1.0));
        }
    }
    // One sentence a passage, so that hubs are in many.
    let mut entity_sentences = vec![Vec::new(); entities];
    for (s, list) in passage_entities.iter().enumerate() {
        for &e in list {
            entity_sentences[e as usize].push(s as u32);
        }
    }
    RetrievalData {
        graph: Graph {
            entity_sentences: Csr::from_rows(&entity_sentences),
            sentence_entities: Csr::from_rows(&passage_entities),
            passage_entities: Csr::from_rows(&passage_entities),
            adjacency: Graph::adjacency_from_edges(entities + passages + isolated, &edges),
        },
        occurrences: WeightedCsr::from_rows(&occurrences),
        passages: n.vectors(passages + isolated, dim),
        sentences: n.vectors(passages + isolated, dim),
        entities: n.vectors(entities, dim),
    }
}

/// Ranks are equal wherever the reference's scores are further apart than both can err.
fn same_ranks(found: &[f32], expected: &[f64]) -> bool {
    let ranked = top_k(found.iter().map(|&v| f64::from(v)), found.len());
    ranked.windows(2).all(|pair| expected[pair[0].0 as usize] >= expected[pair[1].0 as usize] - 2e-8)
}

/// Entity and passage parts of a reset.
type Column = (Vec<(u32, f64)>, Vec<f32>);

#[test]
fn pagerank_with_long_rows_and_split_batches() {
    let data = Arc::new(graph(40, 700, 3, 8));
    let (entities, passages) = (40, 703);
    let mut n = Numbers::new(11);
    let columns: Vec<Column> = (0..9)
        .map(|q| {
            let entities = if q == 4 { vec![] } else { vec![(q, 0.4 + n.unit()), (q + 9, n.unit()), (39, f64::NAN)] };
            let weights = (0..passages).map(|_| if q == 4 { 0.0 } else { (0.05 * n.unit()) as f32 });
            (entities, weights.collect())
        })
        .collect();
    let batch: Vec<Reset> = columns.iter().map(|(e, p)| Reset { entities: e, passages: p }).collect();
    for damping in [0.5, 0.85] {
        let mut first: Option<Vec<Option<Vec<f32>>>> = None;
        // The second device holds four columns at a time.
        for (seed, free) in [(1, PLENTY), (2, 310_000)] {
            let Some(backend) = backend(seed, free) else { return };
            let corpus = backend.load(Arc::clone(&data)).unwrap();
            assert_eq!(corpus.plan().unwrap().contains(" 4 columns in PageRank"), seed == 2, "{:?}", corpus.plan());
            let found = corpus.pagerank(damping, &batch).unwrap();
            for ((reset, scores), q) in batch.iter().zip(&found).zip(0..) {
                assert_eq!(scores.is_none(), q == 4);
                let Some(scores) = scores else { continue };
                let mut full = vec![0.0; entities + passages];
                for &(e, w) in reset.entities {
                    full[e as usize] = w;
                }
                for (p, &w) in reset.passages.iter().enumerate() {
                    full[entities + p] = f64::from(w);
                }
                let expected = personalized_pagerank(&data.graph.adjacency, &full, damping).unwrap();
                let expected = &expected[entities..];
                let l1: f64 = scores.iter().zip(expected).map(|(&a, b)| (f64::from(a) - b).abs()).sum();
                assert!(l1 <= 1e-5, "damping {damping}, column {q}: {l1:e}");
                let mass: f64 = scores.iter().map(|&v| f64::from(v)).sum::<f64>() - expected.iter().sum::<f64>();
                assert!(mass.abs() <= 1e-6, "damping {damping}, column {q}: mass off by {mass:e}");
                assert!(same_ranks(scores, expected), "damping {damping}, column {q}: ranks differ");
            }
            // Block sizes, orders and splits change no bit.
            assert_eq!(first.get_or_insert_with(|| found.clone()), &found);
        }
    }
}

/// Without entities the passages hold all the mass.
#[test]
fn pagerank_mass_is_1() {
    let data = RetrievalData {
        graph: Graph {
            entity_sentences: Csr::from_rows(&[]),
            sentence_entities: Csr::from_rows(&[]),
            passage_entities: Csr::from_rows(&vec![Vec::new(); 200]),
            adjacency: Graph::adjacency_from_edges(200, &(0..150).map(|i| (i, i + 1, 1.0)).collect::<Vec<_>>()),
        },
        occurrences: WeightedCsr::from_rows(&[]),
        passages: Matrix::new(1, vec![1.0; 200]),
        ..RetrievalData::default()
    };
    let Some(backend) = backend(3, PLENTY) else { return };
    let mut n = Numbers::new(3);
    let weights: Vec<f32> = (0..200).map(|_| n.unit() as f32).collect();
    let corpus = backend.load(Arc::new(data)).unwrap();
    let scores = corpus.pagerank(0.5, &[Reset { entities: &[], passages: &weights }]).unwrap();
    let mass: f64 = scores[0].as_ref().unwrap().iter().map(|&v| f64::from(v)).sum();
    assert!((mass - 1.0).abs() <= 1e-6, "{mass}");
}

#[test]
fn propagation_and_weights_over_several_tiles() {
    let data = Arc::new(graph(30, 1300, 0, 21));
    let mut n = Numbers::new(7);
    let questions: Vec<Matrix> = (0..5).map(|_| n.vectors(1, 21)).collect();
    let seeds: Vec<Vec<(u32, f64)>> =
        (0..5).map(|q| vec![(0, 0.9), (q + 1, 0.8), (0, 0.7 + 0.02 * f64::from(q))]).collect();
    let batch: Vec<PropagationQuery> =
        questions.iter().zip(&seeds).map(|(q, s)| PropagationQuery { seeds: s, question: q.row(0) }).collect();
    let params = PropagationParams { max_iterations: 4, threshold: 0.1, top_k_sentence: 5 };
    let mut first = None;
    for (seed, free) in [(1, PLENTY), (2, 620_000)] {
        let Some(backend) = backend(seed, free) else { return };
        let corpus = backend.load(Arc::clone(&data)).unwrap();
        assert_eq!(corpus.plan().unwrap().contains(" 3 queries in propagation"), seed == 2, "{:?}", corpus.plan());
        let similarities =
            corpus.passage_similarities(&questions.iter().map(|q| q.row(0)).collect::<Vec<_>>()).unwrap();
        let mut all = Vec::new();
        for form in [Form::Bfs, Form::Matrix] {
            let found = corpus.propagate(form, params, &batch).unwrap();
            for (query, found) in batch.iter().zip(&found) {
                let sim = |s: u32| dot(data.sentences.row(s as usize), query.question);
                let expected = match form {
                    Form::Bfs => propagate_bfs(&data.graph, query.seeds, &sim, params),
                    Form::Matrix => propagate_matrix(&data.graph, query.seeds, &sim, params),
                };
                assert_eq!(found.weights.len(), expected.weights.len());
                for (a, b) in found.weights.iter().zip(&expected.weights) {
                    assert!(a.0 == b.0 && (a.1 - b.1).abs() <= 1e-5 * (1.0 + b.1.abs()), "{a:?} {b:?}");
                }
                let tiers = |of: &[Active]| of.iter().map(|a| (a.entity, a.tier)).collect::<Vec<_>>();
                assert_eq!(tiers(&found.active), tiers(&expected.active));
            }
            all.push(found);
        }
        let queries: Vec<PassageWeightQuery> = similarities
            .iter()
            .zip(&all[0])
            .map(|(s, p)| PassageWeightQuery { similarities: s, active: &p.active })
            .collect();
        let weights = corpus.passage_weights(1.5, 0.05, &queries).unwrap();
        for ((query, weights), found) in queries.iter().zip(&weights).zip(&all[0]) {
            let dpr = min_max_normalize(&query.similarities.iter().map(|&s| f64::from(s)).collect::<Vec<_>>());
            let bonus = entity_bonus(&found.active, &data.occurrences, 1300);
            for p in 0..1300 {
                let expected = passage_weight(dpr[p], bonus[p], 1.5, 0.05).max(0.0);
                assert!((f64::from(weights[p]) - expected).abs() < 1e-6, "passage {p}");
            }
        }
        let found = (all, weights, similarities);
        assert_eq!(first.get_or_insert_with(|| found.clone()), &found);
    }
}

/// pitfall 18 over tile borders: equal scores, NaN, zeros of both signs, and a k larger than a tile.
#[test]
fn top_k_over_several_tiles() {
    let Some(backend) = backend(4, PLENTY) else { return };
    let mut n = Numbers::new(9);
    let mut scores: Vec<f32> = (0..5000).map(|_| (n.below(40) as f32 - 10.0) / 8.0).collect();
    (scores[17], scores[4100], scores[3000], scores[3001]) = (f32::NAN, f32::NAN, -0.0, f32::NEG_INFINITY);
    for k in [1, 20] {
        let expected = top_k(scores.iter().map(|&s| f64::from(s)), k);
        assert_eq!(backend.top_k(&[&scores, &scores[..10]], k).unwrap()[0], expected);
    }
    let short = &scores[..2100];
    let found = backend.top_k(&[short], 2099).unwrap();
    let expected = top_k(short.iter().map(|&s| f64::from(s)), 2099);
    assert!(found[0].iter().zip(&expected).all(|(a, b)| a.0 == b.0 && a.1.to_bits() == b.1.to_bits()));
}

/// Vectors of a common encoder's length: products, linking, and similarities of two matrices.
#[test]
fn products_of_long_vectors() {
    let Some(backend) = backend(6, PLENTY) else { return };
    let mut n = Numbers::new(13);
    let (rows, queries) = (n.vectors(70, 200), n.vectors(66, 200));
    let found = backend.similarities(&rows, &queries).unwrap();
    for q in 0..66 {
        for r in 0..70 {
            let expected = dot(rows.row(r), queries.row(q));
            assert!((f64::from(found[q * 70 + r]) - expected).abs() < 1e-6);
        }
    }
}

struct Maps(Vec<SparseVector>, Vec<Vec<(u32, f64)>>);

impl ActivationStore for Maps {
    fn postings(&self, entity: u32) -> &[(u32, f64)] {
        &self.1[entity as usize]
    }
    fn norm(&self, experience: usize) -> f64 {
        self.0[experience].norm()
    }
}

fn map(n: &mut Numbers, entities: usize, most: usize) -> SparseVector {
    let len = 1 + n.below(most);
    SparseVector::from_assignments((0..len).map(|_| (n.below(entities) as u32, 0.05 + n.unit())).collect::<Vec<_>>())
}

#[test]
fn scans_over_several_tiles() {
    let mut n = Numbers::new(21);
    let maps: Vec<SparseVector> = (0..2300).map(|_| map(&mut n, 50, 6)).collect();
    let mut postings = vec![Vec::new(); 50];
    for (x, map) in maps.iter().enumerate() {
        for (e, v) in map.iter() {
            postings[e as usize].push((x as u32, v));
        }
    }
    let store = Maps(maps, postings);
    let activations: Vec<SparseVector> = (0..4).map(|_| map(&mut n, 50, 8)).collect();
    // Cosines of a few values, so that scores tie; the visible counts end inside, at and past a tile.
    let visible = [2300, 1024, 7, 0];
    let coarse: Vec<Vec<f32>> = visible.iter().map(|&v| (0..v).map(|_| n.below(4) as f32 / 4.0).collect()).collect();
    let batch: Vec<ScanQuery> = (0..4)
        .map(|q| ScanQuery {
            activation: &activations[q],
            cos_query: &coarse[q],
            cos_template: (q != 1).then_some(&coarse[q]),
            alpha: if q == 0 { 1.0 } else { 0.6 },
            lambda: 0.1,
            k: 3 + 2 * q,
        })
        .collect();
    let mut first = None;
    for seed in [1, 2] {
        let Some(backend) = backend(seed, PLENTY) else { return };
        let found = backend.store_scan(&store, &batch).unwrap();
        for (query, found) in batch.iter().zip(&found) {
            let score = |x: usize| {
                dual_channel_similarity(
                    query.alpha,
                    f64::from(query.cos_query[x]),
                    cosine(query.activation, &store.0[x]),
                )
            };
            let mut expected: Vec<(u32, f64)> = (0..query.cos_query.len()).map(|x| (x as u32, score(x))).collect();
            expected.sort_by(|&a, &b| by_score_then_id(a, b));
            assert_eq!(found.top.len(), query.k.min(expected.len()));
            for (hit, expected) in found.top.iter().zip(&expected) {
                assert!((hit.score - expected.1).abs() < 1e-12);
                if query.alpha == 1.0 {
                    assert_eq!(hit.experience, expected.0, "ties go to the earlier experience");
                }
            }
            let fit = |x: usize, t: f32| (1.0 - query.lambda) * score(x) + query.lambda * f64::from(t);
            let best = query
                .cos_template
                .map(|t| t.iter().enumerate().map(|(x, &t)| fit(x, t)).fold(f64::NEG_INFINITY, f64::max));
            match (found.scaffold, best.filter(|b| b.is_finite())) {
                (Some((_, found)), Some(best)) => assert!((found - best).abs() < 1e-12),
                (found, best) => assert_eq!(found.is_none(), best.is_none()),
            }
        }
        assert_eq!(first.get_or_insert_with(|| found.clone()), &found);
    }
}

#[test]
fn fusion_agrees_with_the_host() {
    let mut n = Numbers::new(31);
    let maps: Vec<SparseVector> = (0..12).map(|_| map(&mut n, 400, 300)).collect();
    let matches = [(0.9, 1.0, &maps[0]), (0.85, 0.6, &maps[1]), (0.2, 0.8, &maps[2])];
    for (scale, normalize) in [
        (FuseScale::Max, Normalize::Max),
        (FuseScale::L1, Normalize::L1),
        (FuseScale::L2, Normalize::L2),
        (FuseScale::None, Normalize::None),
    ] {
        let query = |at: usize, used: usize| FuseQuery {
            base: &maps[3 + at],
            matches: &matches[..used],
            beta: 0.3,
            tau: 0.1,
            scale,
        };
        let Some(backend) = backend(8, PLENTY) else { return };
        let batch = [query(0, 3), query(1, 1), query(2, 0)];
        for (query, (a0, weights)) in batch.iter().zip(backend.fuse(&batch).unwrap()) {
            let scores: Vec<f64> = query.matches.iter().map(|m| m.0).collect();
            let confidences: Vec<f64> = query.matches.iter().map(|m| m.1).collect();
            let expected = confidence_weights(&scores, &confidences, query.tau);
            assert!(weights.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-14));
            let weighted: Vec<(f64, &SparseVector)> =
                expected.iter().zip(query.matches).map(|(&w, m)| (w, m.2)).collect();
            let expected = fuse_activation(query.base, &weighted, query.beta, normalize);
            assert_eq!(a0.ids, expected.ids);
            assert!(a0.values.iter().zip(&expected.values).all(|(a, b)| (a - b).abs() < 1e-12));
        }
    }
}

/// An index that does not fit is refused before anything runs, with the numbers.
#[test]
fn too_little_memory_is_said_at_loading() {
    let Some(backend) = backend(1, 30_000) else { return };
    let error = backend.load(Arc::new(graph(40, 700, 0, 8))).err().unwrap();
    assert!(error.to_string().contains("of device memory are free"), "{error}");
}
