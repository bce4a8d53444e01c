//! The shared cases: small inputs with expected numbers from elsewhere (each file says from where), on every backend.

use std::sync::Arc;

use livingrag::backend::{Form, Matrix, PassageWeightQuery, PropagationQuery, Reset, ScanQuery, StoreId};
use livingrag::math::graph::{Csr, WeightedCsr};
use livingrag::math::pagerank::personalized_pagerank;
use livingrag::math::passage_weight::{entity_bonus, min_max_normalize, passage_weight};
use livingrag::math::propagation::{Active, Propagated, PropagationParams, propagate_bfs, propagate_matrix};
use livingrag::math::rank::top_k;
use livingrag::math::similarity::dual_channel_similarity;
use livingrag::math::sparse::{SparseVector, cosine};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Maps, PPR_L1, backends, graph_only};

#[derive(Deserialize)]
struct Cases<T> {
    case: Vec<T>,
}

fn cases<T: DeserializeOwned>(text: &str) -> Vec<T> {
    let cases: Cases<T> = toml::from_str(text).unwrap();
    assert!(cases.case.len() > 4);
    cases.case
}

#[derive(Deserialize)]
struct Ppr {
    name: String,
    n_entities: usize,
    n_passages: usize,
    damping: f64,
    edges: Vec<(u32, u32, f64)>,
    reset: Vec<f64>,
    expected: Vec<f64>,
}

/// pitfall 17 among the cases: components, isolated passages, a single passage.
#[test]
fn pagerank_agrees_with_igraph() {
    for case in cases::<Ppr>(include_str!("ppr.toml")) {
        let reference = personalized_pagerank(
            &graph_only(case.n_entities, case.n_passages, &case.edges).graph.adjacency,
            &case.reset,
            case.damping,
        )
        .unwrap();
        let l1: f64 = reference.iter().zip(&case.expected).map(|(a, b)| (a - b).abs()).sum();
        assert!(l1 < 1e-9, "{}: the reference is {l1:e} from igraph", case.name);
        for backend in backends() {
            let data = Arc::new(graph_only(case.n_entities, case.n_passages, &case.edges));
            let corpus = backend.load(data).unwrap();
            let entities: Vec<(u32, f64)> = (0..case.n_entities).map(|e| (e as u32, case.reset[e])).collect();
            let passages: Vec<f32> = case.reset[case.n_entities..].iter().map(|&v| v as f32).collect();
            let found = corpus.pagerank(case.damping, &[Reset { entities: &entities, passages: &passages }]).unwrap();
            let found = found[0].as_ref().unwrap();
            let l1: f64 =
                found.iter().zip(&case.expected[case.n_entities..]).map(|(&a, b)| (f64::from(a) - b).abs()).sum();
            assert!(l1 <= PPR_L1, "{}: {l1:e}", case.name);
        }
    }
}

#[derive(Deserialize)]
struct Propagation {
    name: String,
    n_entities: usize,
    sentence_entities: Vec<Vec<u32>>,
    similarities: Vec<f32>,
    seeds: Vec<(u32, f64)>,
    max_iterations: u32,
    threshold: f64,
    top_k_sentence: usize,
    bfs_weights: Vec<(u32, f64)>,
    bfs_active: Vec<(u32, f64, u32)>,
    matrix_weights: Vec<(u32, f64)>,
    matrix_active: Vec<(u32, f64, u32)>,
}

#[test]
fn propagation_is_as_its_formulas_say() {
    for case in cases::<Propagation>(include_str!("propagation.toml")) {
        let mut entity_sentences = vec![Vec::new(); case.n_entities];
        for (s, of) in case.sentence_entities.iter().enumerate() {
            of.iter().for_each(|&e| entity_sentences[e as usize].push(s as u32));
        }
        // Vectors of two numbers whose first is the cosine with the question (1, 0).
        let sentences = case.similarities.iter().flat_map(|&c| [c, (1.0 - c * c).sqrt()]).collect();
        let mut data = graph_only(case.n_entities, 1, &[]);
        data.graph.entity_sentences = Csr::from_rows(&entity_sentences);
        data.graph.sentence_entities = Csr::from_rows(&case.sentence_entities);
        data.sentences = Matrix::new(2, sentences);
        let params = PropagationParams {
            max_iterations: case.max_iterations,
            threshold: case.threshold,
            top_k_sentence: case.top_k_sentence,
        };
        let query = PropagationQuery { seeds: &case.seeds, question: &[1.0, 0.0] };
        let sim = |s: u32| f64::from(case.similarities[s as usize]);
        for (form, weights, active) in [
            (Form::Bfs, &case.bfs_weights, &case.bfs_active),
            (Form::Matrix, &case.matrix_weights, &case.matrix_active),
        ] {
            let active = active.iter().map(|&(entity, score, tier)| Active { entity, score, tier }).collect();
            let expected = Propagated { weights: weights.clone(), active };
            let reference = match form {
                Form::Bfs => propagate_bfs(&data.graph, &case.seeds, &sim, params),
                Form::Matrix => propagate_matrix(&data.graph, &case.seeds, &sim, params),
            };
            // Every number of the cases is exact in f64, whatever the order of sums.
            assert_eq!(reference, expected, "{}: the reference, {form:?}", case.name);
            for backend in backends() {
                let corpus = backend.load(Arc::new(data.clone())).unwrap();
                let found = corpus.propagate(form, params, &[query]).unwrap();
                assert_eq!(found, std::slice::from_ref(&expected), "{}: {form:?}", case.name);
            }
        }
    }
}

#[derive(Deserialize)]
struct PassageWeights {
    name: String,
    similarities: Vec<f32>,
    active: Vec<(u32, f64, u32)>,
    occurrences: Vec<Vec<(u32, f64)>>,
    passage_ratio: f64,
    passage_node_weight: f64,
    expected: Vec<f64>,
}

#[test]
fn passage_weights_are_as_their_formula_says() {
    for case in cases::<PassageWeights>(include_str!("passage_weights.toml")) {
        let n = case.similarities.len();
        let active: Vec<Active> =
            case.active.iter().map(|&(entity, score, tier)| Active { entity, score, tier }).collect();
        let rows: Vec<Vec<(u32, f64)>> = case
            .occurrences
            .iter()
            .map(|row| row.iter().map(|&(passage, count)| (passage, count.ln_1p())).collect())
            .collect();
        let mut data = graph_only(rows.len(), n, &[]);
        data.occurrences = WeightedCsr::from_rows(&rows);
        let (ratio, node_weight) = (case.passage_ratio, case.passage_node_weight);
        let dense = min_max_normalize(&case.similarities.iter().map(|&s| f64::from(s)).collect::<Vec<_>>());
        let bonus = entity_bonus(&active, &data.occurrences, n);
        for p in 0..n {
            let weight = passage_weight(dense[p], bonus[p], ratio, node_weight).max(0.0);
            assert!((weight - case.expected[p]).abs() < 1e-15, "{}: the reference, passage {p}: {weight}", case.name);
        }
        let query = PassageWeightQuery { similarities: &case.similarities, active: &active };
        for backend in backends() {
            let corpus = backend.load(Arc::new(data.clone())).unwrap();
            let found = corpus.passage_weights(ratio, node_weight, &[query]).unwrap().remove(0);
            for (p, (&weight, &expected)) in found.iter().zip(&case.expected).enumerate() {
                assert!(
                    (f64::from(weight) - expected).abs() <= 6e-8 * expected,
                    "{}: passage {p}: {weight}",
                    case.name
                );
            }
        }
    }
}

#[derive(Deserialize)]
struct TopK {
    name: String,
    scores: Vec<f32>,
    k: usize,
    expected: Vec<u32>,
}

/// pitfall 18 among the cases: five equal scores, k = 2.
#[test]
fn top_k_ranks_as_a_sort() {
    let ids = |ranked: &[(u32, f64)]| ranked.iter().map(|r| r.0).collect::<Vec<_>>();
    for case in cases::<TopK>(include_str!("top_k.toml")) {
        let reference = top_k(case.scores.iter().map(|&s| f64::from(s)), case.k);
        assert_eq!(ids(&reference), case.expected, "{}: the reference", case.name);
        for backend in backends() {
            let found = backend.top_k(&[&case.scores], case.k).unwrap().remove(0);
            assert_eq!(ids(&found), case.expected, "{}", case.name);
            let same = |&(id, score): &(u32, f64)| {
                let given = f64::from(case.scores[id as usize]);
                score == given || (score.is_nan() && given.is_nan())
            };
            assert!(found.iter().all(same), "{}: {found:?}", case.name);
        }
    }
}

#[derive(Deserialize)]
struct StoreScan {
    name: String,
    n_entities: usize,
    maps: Vec<Vec<(u32, f64)>>,
    activation: Vec<(u32, f64)>,
    cos_query: Vec<f32>,
    cos_template: Vec<f32>,
    alpha: f64,
    lambda: f64,
    k: usize,
    top: Vec<(u32, f64)>,
    scaffold: Vec<(u32, f64)>,
}

#[test]
fn store_scans_are_as_their_equations_say() {
    for case in cases::<StoreScan>(include_str!("store_scan.toml")) {
        let maps: Vec<SparseVector> =
            case.maps.iter().map(|map| SparseVector::from_assignments(map.iter().copied())).collect();
        let activation = SparseVector::from_assignments(case.activation.iter().copied());
        for &(x, score) in &case.top {
            let found = dual_channel_similarity(
                case.alpha,
                f64::from(case.cos_query[x as usize]),
                cosine(&activation, &maps[x as usize]),
            );
            assert!((found - score).abs() < 1e-15, "{}: the reference, experience {x}: {found}", case.name);
        }
        let mut postings = vec![Vec::new(); case.n_entities];
        for (x, map) in maps.iter().enumerate() {
            map.iter().for_each(|(e, v)| postings[e as usize].push((x as u32, v)));
        }
        let store = Maps(maps, postings, StoreId::default());
        let query = ScanQuery {
            activation: &activation,
            cos_query: &case.cos_query,
            cos_template: Some(&case.cos_template),
            alpha: case.alpha,
            lambda: case.lambda,
            k: case.k,
        };
        let near = |a: &[(u32, f64)], b: &[(u32, f64)]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && (a.1 - b.1).abs() < 1e-12)
        };
        for backend in backends() {
            let found = backend.store_scan(&store, &[query]).unwrap().remove(0);
            let top: Vec<(u32, f64)> = found.top.iter().map(|hit| (hit.experience, hit.score)).collect();
            assert!(near(&top, &case.top), "{}: {top:?}", case.name);
            assert!(near(&found.scaffold.map_or(vec![], |s| vec![s]), &case.scaffold), "{}: {found:?}", case.name);
        }
    }
}
