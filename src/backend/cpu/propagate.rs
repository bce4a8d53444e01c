//! Entity propagation on the CPU: the forms of `math::propagation`, touching only what the frontier reaches.
//!
//! The arithmetic and its order are those of the reference functions, so results are the same bits; what differs is that marks are
//! stamped instead of cleared and that a sentence's cosine is computed when it is first asked for. Cost per query: the sentences of
//! the frontier's entities, not the size of the graph.

use crate::backend::cpu::dense;
use crate::backend::{Form, Matrix, PropagationQuery};
use crate::math::graph::Graph;
use crate::math::propagation::{Active, Propagated, PropagationParams, carries};
use crate::math::rank::by_score_then_id;

/// Marks and partial results of one worker, reused from query to query.
pub struct Workspace {
    stamp: u32,
    entities: Vec<EntityState>,
    sentences: Vec<SentenceState>,
    touched: Vec<u32>,
    candidates: Vec<(u32, f64)>,
}

#[derive(Clone, Copy, Default)]
struct EntityState {
    stamp: u32,
    /// Hop in which it was last put on the next frontier.
    hop: u32,
    weight: f64,
    active: Option<(f64, u32)>,
    score: f64,
    next: f64,
}

#[derive(Clone, Copy, Default)]
struct SentenceState {
    used: u32,
    known: u32,
    sim: f64,
}

impl Workspace {
    /// For one graph.
    pub fn new(graph: &Graph) -> Self {
        Self {
            stamp: 0,
            entities: vec![EntityState::default(); graph.n_entities()],
            sentences: vec![SentenceState::default(); graph.n_sentences()],
            touched: Vec::new(),
            candidates: Vec::new(),
        }
    }

    fn begin(&mut self) {
        if self.stamp == u32::MAX {
            self.entities.fill(EntityState::default());
            self.sentences.fill(SentenceState::default());
            self.stamp = 0;
        }
        self.stamp += 1;
        self.touched.clear();
    }

    /// The state of an entity, fresh on its first touch in this query.
    fn touch(&mut self, e: u32) -> &mut EntityState {
        let state = &mut self.entities[e as usize];
        if state.stamp != self.stamp {
            *state = EntityState { stamp: self.stamp, ..EntityState::default() };
            self.touched.push(e);
        }
        state
    }

    /// Fills `candidates` with the k best unused sentences of an entity.
    fn pick(&mut self, graph: &Graph, e: u32, k: usize, vectors: &Matrix, question: &[f32]) {
        self.candidates.clear();
        for &s in graph.entity_sentences.row(e as usize) {
            let state = &mut self.sentences[s as usize];
            if state.used == self.stamp {
                continue;
            }
            if state.known != self.stamp {
                state.known = self.stamp;
                state.sim = f64::from(dense::dot(vectors.row(s as usize), question));
            }
            self.candidates.push((s, state.sim));
        }
        if self.candidates.len() > k && k > 0 {
            self.candidates.select_nth_unstable_by(k - 1, |&a, &b| by_score_then_id(a, b));
        }
        self.candidates.truncate(k);
        self.candidates.sort_unstable_by(|&a, &b| by_score_then_id(a, b));
    }

    fn finish(&mut self) -> Propagated {
        self.touched.sort_unstable();
        let mut out = Propagated::default();
        for &e in &self.touched {
            let state = &self.entities[e as usize];
            out.weights.push((e, state.weight));
            if let Some((score, tier)) = state.active {
                out.active.push(Active { entity: e, score, tier });
            }
        }
        out
    }

    /// One query.
    pub fn run(
        &mut self,
        form: Form,
        graph: &Graph,
        vectors: &Matrix,
        params: PropagationParams,
        query: &PropagationQuery<'_>,
    ) -> Propagated {
        self.begin();
        match form {
            Form::Bfs => self.bfs(graph, vectors, params, query),
            Form::Matrix => self.matrix(graph, vectors, params, query),
        }
        self.finish()
    }

    fn bfs(&mut self, graph: &Graph, vectors: &Matrix, params: PropagationParams, query: &PropagationQuery<'_>) {
        // A frontier holds entities in order of first assignment; the score is looked up, so a later one stands.
        let mut frontier: Vec<(u32, f64)> = Vec::new();
        for &(e, score) in query.seeds {
            let state = self.touch(e);
            if state.active.is_none() {
                frontier.push((e, score));
            } else if let Some(entry) = frontier.iter_mut().find(|(seed, _)| *seed == e) {
                entry.1 = score;
            }
            state.weight = score;
            state.active = Some((score, 1));
        }
        for hop in 1..params.max_iterations {
            let mut order: Vec<u32> = Vec::new();
            for &(e, score) in &frontier {
                if score < params.threshold {
                    continue;
                }
                self.pick(graph, e, params.top_k_sentence, vectors, query.question);
                let picked = std::mem::take(&mut self.candidates);
                for &(s, sim) in &picked {
                    self.sentences[s as usize].used = self.stamp;
                    let spread = score * sim;
                    if spread < params.threshold || spread.is_nan() {
                        continue;
                    }
                    for &m in graph.sentence_entities.row(s as usize) {
                        let state = self.touch(m);
                        state.weight += spread;
                        state.next = spread;
                        if state.hop != hop {
                            state.hop = hop;
                            order.push(m);
                        }
                    }
                }
                self.candidates = picked;
            }
            if order.is_empty() {
                break;
            }
            frontier.clear();
            for e in order {
                let state = &mut self.entities[e as usize];
                state.active = Some((state.next, hop + 1));
                frontier.push((e, state.next));
            }
        }
    }

    fn matrix(&mut self, graph: &Graph, vectors: &Matrix, params: PropagationParams, query: &PropagationQuery<'_>) {
        let mut frontier: Vec<u32> = Vec::new();
        for &(e, score) in query.seeds {
            let state = self.touch(e);
            if state.active.is_none() {
                frontier.push(e);
            }
            state.weight = score;
            state.active = Some((score, 0));
            state.score += score;
        }
        let mut picked: Vec<u32> = Vec::new();
        for hop in 1..params.max_iterations {
            frontier.sort_unstable();
            picked.clear();
            for &e in &frontier {
                let state = &mut self.entities[e as usize];
                if state.score < params.threshold {
                    state.score = 0.0;
                } else if state.score > 0.0 {
                    self.pick(graph, e, params.top_k_sentence, vectors, query.question);
                    picked.extend(self.candidates.iter().map(|&(s, _)| s));
                }
            }
            picked.sort_unstable();
            picked.dedup();
            if picked.is_empty() {
                break;
            }
            let mut reached: Vec<u32> = Vec::new();
            for &s in &picked {
                self.sentences[s as usize].used = self.stamp;
                let entities = graph.sentence_entities.row(s as usize);
                let sim = self.sentences[s as usize].sim;
                if !carries(sim) {
                    continue;
                }
                let sum: f64 = entities.iter().map(|&e| self.touch(e).score).sum();
                let received = sum * sim;
                for &e in entities {
                    let state = &mut self.entities[e as usize];
                    if state.hop != hop {
                        state.hop = hop;
                        state.next = 0.0;
                        reached.push(e);
                    }
                    state.next += received;
                }
            }
            for &e in &frontier {
                self.entities[e as usize].score = 0.0;
            }
            for &e in &reached {
                let state = &mut self.entities[e as usize];
                state.weight += state.next;
                state.score = state.next;
                if state.next >= params.threshold {
                    state.active = Some((state.next, hop));
                }
            }
            frontier = reached;
        }
    }
}
