//! The kernels at sizes that need several tiles, long rows and split batches, on the processor, against `math`.
//!
//! tests/backends.rs runs every operation on small graphs; here are the shapes that only larger ones reach. Results are compared bit for
//! bit between seeds, which draw other block sizes and other orders of threads, and between memory plans, which split batches otherwise.

#![allow(clippy::unwrap_used)]

mod host_cuda;

use std::sync::Arc;

use host_cuda::HostCuda;
use livingrag::backend::device::DeviceBackend;
use livingrag::backend::device::plan::{MemoryPlan, Step};
use livingrag::backend::{
    ActivationStore, Backend, Corpus, Form, Matrix, PassageWeightQuery, PropagationQuery, Ranked, Reset, Retrieval,
    RetrievalData, RetrievalParams, RetrievalQuery, ScanQuery, StoreId,
};
use livingrag::math::graph::{Csr, Graph, WeightedCsr};
use livingrag::math::pagerank::personalized_pagerank;
use livingrag::math::passage_weight::{entity_bonus, min_max_normalize, passage_weight};
use livingrag::math::propagation::{Active, Propagated, PropagationParams, propagate_bfs, propagate_matrix};
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
        for (seed, free) in [(1, PLENTY), (2, 255_000)] {
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
    for (seed, free) in [(1, PLENTY), (2, 570_000)] {
        let Some(backend) = backend(seed, free) else { return };
        let corpus = backend.load(Arc::clone(&data)).unwrap();
        assert_eq!(corpus.plan().unwrap().contains(" 4 queries in retrieval"), seed == 2, "{:?}", corpus.plan());
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

/// Retrieval in one call over several tiles: what the single operations give, also where a batch has to be halved because its queries touch
/// everything.
#[test]
fn retrieval_in_one_call_is_the_single_operations() {
    let data = Arc::new(graph(60, 300, 2, 12));
    let mut n = Numbers::new(17);
    let questions: Vec<Matrix> = (0..6).map(|_| n.vectors(1, 12)).collect();
    let seeds: Vec<Vec<(u32, f64)>> = (0..6).map(|q| (0..4).map(|i| (7 * q + i, 0.9)).collect()).collect();
    let propagation = PropagationParams { max_iterations: 5, threshold: 1e-6, top_k_sentence: 40 };
    let entities = |retrieval: &Retrieval| retrieval.propagated.weights.len();
    let mut first = None;
    for (seed, free) in [(1, PLENTY), (2, 134_500)] {
        let Some(backend) = backend(seed, free) else { return };
        let corpus = backend.load(Arc::clone(&data)).unwrap();
        assert!(!corpus.needs_similarities());
        let plan = MemoryPlan::new(&data, free).unwrap();
        let similarities =
            corpus.passage_similarities(&questions.iter().map(|q| q.row(0)).collect::<Vec<_>>()).unwrap();
        let queries: Vec<RetrievalQuery> = (0..6)
            .map(|q| RetrievalQuery { seeds: &seeds[q], question: questions[q].row(0), similarities: &similarities[q] })
            .collect();
        for form in [Form::Bfs, Form::Matrix] {
            let params = RetrievalParams {
                form,
                propagation,
                passage_ratio: 1.5,
                passage_node_weight: 0.05,
                damping: 0.5,
                best: Some(20),
            };
            // The default of the trait goes through the single operations.
            let single = Single(&*corpus).retrieve(&params, &queries).unwrap();
            let together = corpus.retrieve(&params, &queries).unwrap();
            for (single, together) in single.iter().zip(&together) {
                assert!(together.propagated.weights.len() > 50, "{}", together.propagated.weights.len());
                assert_eq!(single.propagated, together.propagated);
                let (Ranked::Scores(scores), Ranked::Best(best)) = (&single.ranked, &together.ranked) else {
                    panic!("{single:?} {together:?}");
                };
                assert_eq!(best, &backend.top_k(&[scores], 20).unwrap()[0]);
            }
            if seed == 2 {
                // 24 bytes an entity touched.
                let (step, touched) = (Step::Retrieve(form), |of: &[_]| of.iter().map(entities).sum::<usize>() as u64);
                let n = plan.queries(step).min(6);
                let needed = plan.bytes(step, n as u64) + 24 * touched(&together[..n]);
                assert!(n > 1 && needed > plan.budget, "{n} queries need {needed} of {}", plan.budget);
            }
            let all = corpus.retrieve(&RetrievalParams { best: None, ..params }, &queries).unwrap();
            assert_eq!(all, single);
            if form == Form::Bfs {
                assert_eq!(first.get_or_insert_with(|| together.clone()), &together);
            }
        }
    }
}

/// A corpus whose retrieval is the trait's own.
struct Single<'a>(&'a dyn Corpus);

impl Corpus for Single<'_> {
    fn link(&self, queries: &Matrix) -> livingrag::Result<Vec<Option<(u32, f32)>>> {
        self.0.link(queries)
    }
    fn passage_similarities(&self, queries: &[&[f32]]) -> livingrag::Result<Vec<Vec<f32>>> {
        self.0.passage_similarities(queries)
    }
    fn propagate(
        &self,
        form: Form,
        params: PropagationParams,
        batch: &[PropagationQuery<'_>],
    ) -> livingrag::Result<Vec<Propagated>> {
        self.0.propagate(form, params, batch)
    }
    fn passage_weights(
        &self,
        ratio: f64,
        weight: f64,
        batch: &[PassageWeightQuery<'_>],
    ) -> livingrag::Result<Vec<Vec<f32>>> {
        self.0.passage_weights(ratio, weight, batch)
    }
    fn pagerank(&self, damping: f64, batch: &[Reset<'_>]) -> livingrag::Result<Vec<Option<Vec<f32>>>> {
        self.0.pagerank(damping, batch)
    }
}

/// Bytes that were allocated, counted by the device, are those of the plan within 15 %: each step with a full batch, and all together with
/// buffers kept from step to step.
#[test]
fn memory_is_as_planned() {
    let data = Arc::new(graph(500, 1000, 0, 24));
    let free = 3_500_000;
    let plan = MemoryPlan::new(&data, free).unwrap();
    let mut n = Numbers::new(41);
    let most = Step::ALL.map(|step| plan.queries(step)).into_iter().max().unwrap();
    let vectors = n.vectors(most, 24);
    let seeds: Vec<(u32, f64)> = vec![(7, 0.9), (90, 0.8)];
    let weights: Vec<f32> = (0..1000).map(|_| n.unit() as f32).collect();
    let active = [Active { entity: 7, score: 0.9, tier: 1 }];
    let propagation = PropagationParams { max_iterations: 3, threshold: 0.4, top_k_sentence: 1 };
    let run = |corpus: &dyn Corpus, step: Step| {
        let rows: Vec<&[f32]> = (0..plan.queries(step)).map(|q| vectors.row(q)).collect();
        match step {
            Step::Link => drop(corpus.link(&Matrix::new(24, rows.concat())).unwrap()),
            Step::Similarities => drop(corpus.passage_similarities(&rows).unwrap()),
            Step::Propagate(form) => {
                let batch: Vec<_> = rows.iter().map(|q| PropagationQuery { seeds: &seeds, question: q }).collect();
                drop(corpus.propagate(form, propagation, &batch).unwrap());
            }
            Step::Weights => {
                let one = PassageWeightQuery { similarities: &weights, active: &active };
                drop(corpus.passage_weights(1.5, 0.05, &vec![one; rows.len()]).unwrap());
            }
            Step::PageRank => {
                let one = Reset { entities: &seeds, passages: &weights };
                drop(corpus.pagerank(0.5, &vec![one; rows.len()]).unwrap());
            }
            Step::Retrieve(form) => {
                let batch: Vec<_> =
                    rows.iter().map(|q| RetrievalQuery { seeds: &seeds, question: q, similarities: &[] }).collect();
                let params = RetrievalParams {
                    form,
                    propagation,
                    passage_ratio: 1.5,
                    passage_node_weight: 0.05,
                    damping: 0.5,
                    best: Some(20),
                };
                drop(corpus.retrieve(&params, &batch).unwrap());
            }
        }
    };
    let near = |found: u64, planned: u64| (found as f64 / planned as f64 - 1.0).abs() <= 0.15;
    for step in Step::ALL {
        let Some(backend) = backend(1, free) else { return };
        let corpus = backend.load(Arc::clone(&data)).unwrap();
        let resident = backend.device().take_most_bytes();
        assert!(near(resident, plan.resident), "the index: {resident} of {}", plan.resident);
        run(&*corpus, step);
        let (found, queries) = (backend.device().take_most_bytes(), plan.queries(step));
        let planned = plan.resident + plan.bytes(step, queries as u64);
        assert!(near(found, planned), "{step:?} of {queries}: {found} of {planned}");
        assert!(found <= free, "{step:?}: {found}");
    }
    let device = HostCuda::with_seed(3).unwrap().with_free_bytes(free).keeping_buffers();
    let backend = DeviceBackend::new(device, 1);
    let corpus = backend.load(Arc::clone(&data)).unwrap();
    for step in Step::ALL.into_iter().chain(Step::ALL) {
        run(&*corpus, step);
    }
    let found = backend.device().take_most_bytes();
    assert!(near(found, plan.peak()), "all steps: {found} of {}", plan.peak());
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

struct Maps(Vec<SparseVector>, Vec<Vec<(u32, f64)>>, StoreId);

impl Maps {
    fn new(maps: Vec<SparseVector>, entities: usize) -> Self {
        let mut out = Self(Vec::new(), vec![Vec::new(); entities], StoreId::default());
        maps.into_iter().for_each(|map| out.append(map));
        out
    }

    fn append(&mut self, map: SparseVector) {
        for (e, v) in map.iter() {
            self.1[e as usize].push((self.0.len() as u32, v));
        }
        self.0.push(map);
    }
}

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

fn map(n: &mut Numbers, entities: usize, most: usize) -> SparseVector {
    let len = 1 + n.below(most);
    SparseVector::from_assignments((0..len).map(|_| (n.below(entities) as u32, 0.05 + n.unit())).collect::<Vec<_>>())
}

#[test]
fn scans_over_several_tiles() {
    let mut n = Numbers::new(21);
    let maps: Vec<SparseVector> = (0..2300).map(|_| map(&mut n, 50, 6)).collect();
    let store = Maps::new(maps, 50);
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

/// A store is uploaded once and appended as it grows, over the ends of tiles too; another store is another one, and one that is gone is
/// let go.
#[test]
fn a_growing_store_is_appended() {
    let Some(backend) = backend(5, PLENTY) else { return };
    let mut n = Numbers::new(51);
    let mut store = Maps::new(Vec::new(), 40);
    let activation = map(&mut n, 40, 12);
    let scan = |store: &Maps| {
        let cosines = vec![0.5f32; store.0.len()];
        let query = ScanQuery {
            activation: &activation,
            cos_query: &cosines,
            cos_template: None,
            alpha: 0.5,
            lambda: 0.0,
            k: 4,
        };
        let before = backend.device().written_bytes();
        let found = backend.store_scan(store, &[query]).unwrap().remove(0).top;
        let expected = top_k((0..store.0.len()).map(|x| 0.25 + 0.5 * cosine(&activation, &store.0[x])), 4);
        assert_eq!(found.len(), expected.len());
        assert!(found.iter().zip(&expected).all(|(a, b)| a.experience == b.0 && (a.score - b.1).abs() < 1e-12));
        backend.device().written_bytes() - before
    };
    assert_eq!(scan(&store), 0);
    let mut grown = Vec::new();
    for size in [1, 700, 1023, 1024, 1025, 2500, 2501] {
        while store.0.len() < size {
            store.append(map(&mut n, 40, 5));
        }
        grown.push(scan(&store));
        // Nothing new: the query alone.
        let again = scan(&store);
        assert!(again < 1000 + 8 * size as u64, "{again} bytes for nothing new at {size}");
    }
    // One experience more after 2,500 writes the open tile of 453, not the two that are full.
    let query = 8 * 2501 + 1000;
    assert!(grown[6] < query + 453 * 5 * 20 && grown[5] > query + 1400 * 20, "{grown:?}");
    let held = backend.device().take_most_bytes();
    let other = store.0[..300].to_vec();
    scan(&Maps::new(other.clone(), 40));
    drop(store);
    scan(&Maps::new(other, 40));
    backend.device().take_most_bytes();
    scan(&Maps::new(Vec::new(), 40));
    assert!(backend.device().take_most_bytes() < held / 2, "a store that is gone takes memory");
}

/// An index that does not fit is refused before anything runs, with the numbers.
#[test]
fn too_little_memory_is_said_at_loading() {
    let Some(backend) = backend(1, 30_000) else { return };
    let error = backend.load(Arc::new(graph(40, 700, 0, 8))).err().unwrap();
    assert!(error.to_string().contains("of device memory are free"), "{error}");
}
