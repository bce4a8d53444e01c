//! Propagation of entity scores over the sentence–entity graph (spec 2.3), in LinearRAG's two forms.
//!
//! In: seeds in order, `sim[s]` = cosine of question and sentence, thresholds. Out: entity weights and the active set.
//! The forms are different algorithms and are never mixed; each is one function here and every backend is held against it.

use crate::math::graph::Graph;

/// Settings of both forms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PropagationParams {
    /// As in the reference: `max_iterations - 1` hops.
    pub max_iterations: u32,
    /// thr: a score below it does not spread.
    pub threshold: f64,
    /// k: sentences an entity may pick per hop.
    pub top_k_sentence: usize,
}

/// An entity of the active set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Active {
    /// Which entity.
    pub entity: u32,
    /// Its last score.
    pub score: f64,
    /// When it was last reached: bfs gives seeds 1 and hop h entities h + 1; matrix gives seeds 0 and hop h entities h.
    pub tier: u32,
}

/// What propagation leaves behind, both lists by ascending entity id.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Propagated {
    /// (entity, weight) of every entity touched: the entity part of the reset vector and `a_final`.
    pub weights: Vec<(u32, f64)>,
    /// The active set.
    pub active: Vec<Active>,
}

/// The k best of `candidates` by (sim desc, sentence id asc).
fn best_sentences(candidates: impl Iterator<Item = u32>, sim: &dyn Fn(u32) -> f64, k: usize) -> Vec<(u32, f64)> {
    let mut scored: Vec<(u32, f64)> = candidates.map(|s| (s, sim(s))).collect();
    scored.sort_by(|&a, &b| crate::math::rank::by_score_then_id(a, b));
    scored.truncate(k);
    scored
}

/// Breadth-first form, the reference's default.
///
/// `seeds` are (entity, score) in query order; of equal entities the later score stands at the earlier place.
pub fn propagate_bfs(
    graph: &Graph,
    seeds: &[(u32, f64)],
    sim: &dyn Fn(u32) -> f64,
    params: PropagationParams,
) -> Propagated {
    let n = graph.n_entities();
    let mut weight = vec![0.0; n];
    let mut touched = vec![false; n];
    let mut active: Vec<Option<(f64, u32)>> = vec![None; n];
    let mut used = vec![false; graph.n_sentences()];
    let mut frontier: Vec<(u32, f64)> = Vec::new();
    for &(e, score) in seeds {
        weight[e as usize] = score;
        touched[e as usize] = true;
        active[e as usize] = Some((score, 1));
        assign(&mut frontier, e, score);
    }
    for hop in 1..params.max_iterations {
        if frontier.is_empty() {
            break;
        }
        let mut next: Vec<(u32, f64)> = Vec::new();
        for &(e, score) in &frontier {
            if score < params.threshold {
                continue;
            }
            let free = graph.entity_sentences.row(e as usize).iter().copied().filter(|&s| !used[s as usize]);
            for (s, sim_s) in best_sentences(free, sim, params.top_k_sentence) {
                used[s as usize] = true;
                for &m in graph.sentence_entities.row(s as usize) {
                    let spread = score * sim_s;
                    if spread >= params.threshold {
                        weight[m as usize] += spread;
                        touched[m as usize] = true;
                        assign(&mut next, m, spread);
                    }
                }
            }
        }
        for &(e, score) in &next {
            active[e as usize] = Some((score, hop + 1));
        }
        frontier = next;
    }
    collect(&weight, &touched, &active)
}

/// Assigns like an insertion-ordered map: the place is that of the first assignment, the score that of the last.
fn assign(list: &mut Vec<(u32, f64)>, entity: u32, score: f64) {
    match list.iter_mut().find(|(e, _)| *e == entity) {
        Some(entry) => entry.1 = score,
        None => list.push((entity, score)),
    }
}

/// Matrix form: a picked sentence whose cosine is not positive is used up but carries no score, as in the reference, which keeps
/// positive sentence scores only.
pub fn carries(sim: f64) -> bool {
    sim > 0.0
}

/// Vectorised form of the reference.
///
/// When two query entities link to one entity, the first hop uses the sum of their scores while `weight` keeps the later one.
pub fn propagate_matrix(
    graph: &Graph,
    seeds: &[(u32, f64)],
    sim: &dyn Fn(u32) -> f64,
    params: PropagationParams,
) -> Propagated {
    let n = graph.n_entities();
    let mut weight = vec![0.0; n];
    let mut touched = vec![false; n];
    let mut active: Vec<Option<(f64, u32)>> = vec![None; n];
    let mut used = vec![false; graph.n_sentences()];
    let mut score = vec![0.0; n];
    for &(e, s) in seeds {
        weight[e as usize] = s;
        touched[e as usize] = true;
        active[e as usize] = Some((s, 0));
        score[e as usize] += s;
    }
    for hop in 1..params.max_iterations {
        for s in &mut score {
            if *s < params.threshold {
                *s = 0.0;
            }
        }
        let mut picked: Vec<u32> = Vec::new();
        for e in (0..n).filter(|&e| score[e] > 0.0) {
            let free = graph.entity_sentences.row(e).iter().copied().filter(|&s| !used[s as usize]);
            picked.extend(best_sentences(free, sim, params.top_k_sentence).into_iter().map(|(s, _)| s));
        }
        picked.sort_unstable();
        picked.dedup();
        if picked.is_empty() {
            break;
        }
        let mut next = vec![0.0; n];
        let mut reached = vec![false; n];
        for &s in &picked {
            used[s as usize] = true;
            if !carries(sim(s)) {
                continue;
            }
            let entities = graph.sentence_entities.row(s as usize);
            let received = entities.iter().map(|&e| score[e as usize]).sum::<f64>() * sim(s);
            for &e in entities {
                next[e as usize] += received;
                reached[e as usize] = true;
            }
        }
        for e in (0..n).filter(|&e| reached[e]) {
            weight[e] += next[e];
            touched[e] = true;
            if next[e] >= params.threshold {
                active[e] = Some((next[e], hop));
            }
        }
        score = next;
    }
    collect(&weight, &touched, &active)
}

fn collect(weight: &[f64], touched: &[bool], active: &[Option<(f64, u32)>]) -> Propagated {
    let ids = || (0..weight.len()).map(|e| e as u32);
    Propagated {
        weights: ids().filter(|&e| touched[e as usize]).map(|e| (e, weight[e as usize])).collect(),
        active: ids()
            .filter_map(|e| active[e as usize].map(|(score, tier)| Active { entity: e, score, tier }))
            .collect(),
    }
}
