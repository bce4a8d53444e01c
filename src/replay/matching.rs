//! Before the answer: which experiences a query sees, the fused activation, the scaffold (equations 7–13), and retrieval.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use crate::Result;
use crate::backend::{Hit, ScanQuery};
use crate::config::{Method, RetrieveConfig};
use crate::experience::fuse::{confidence_weights, fuse_activation, seed_order};
use crate::ids::StreamIndex;
use crate::math::sparse::SparseVector;
use crate::replay::run::Run;
use crate::replay::session::{Session, key};
use crate::replay::shared::{Key, KeyBuilder};
use crate::retrieve::Retrieved;
use crate::retrieve::prepared::GraphQuery;

/// One query of one run on its way to an answer.
pub struct Step {
    /// Place in the driver's list of runs.
    pub run: usize,
    /// t.
    pub t: StreamIndex,
    /// The question's place in the file.
    pub question: usize,
    /// Experiences it may see; a prefix of the store.
    pub visible: usize,
    /// The top-K with their weights of equation 10; empty when nothing was fused.
    pub matches: Vec<(Hit, f64)>,
    /// The scaffold and s_scaf.
    pub scaffold: Option<(u32, f64)>,
    /// a⁰ where it differs from a_base.
    pub fused: Option<SparseVector>,
    /// What was retrieved.
    pub retrieved: Arc<Retrieved>,
    /// Its share of the time of matching and retrieval.
    pub retrieval_us: u64,
}

/// Wall time of a batch as one query's share, microseconds.
pub fn share(started: Instant, queries: usize) -> u64 {
    u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX) / queries.max(1) as u64
}

/// The next block of one run, matched against its store and fused.
///
/// # Errors
/// When the backend fails.
pub fn match_block(session: &Session, run: &Run, place: usize, block: &[usize]) -> Result<Vec<Step>> {
    let started = Instant::now();
    let config = &run.plan.config;
    let store = &run.store;
    let mut steps: Vec<Step> = block
        .iter()
        .enumerate()
        .map(|(i, &question)| {
            let t = StreamIndex::from(run.done + i + 1);
            let visible = if config.method.has_store() { store.visible(t, config.replay.lag) } else { 0 };
            Step {
                run: place,
                t,
                question,
                visible,
                matches: Vec::new(),
                scaffold: None,
                fused: None,
                retrieved: Arc::default(),
                retrieval_us: 0,
            }
        })
        .collect();
    if !config.method.has_store() {
        return Ok(steps);
    }
    let bases = &session.prepared.bases;
    let wants_scaffold = config.method != Method::NoScaffold;
    let cosines: Vec<(Vec<f32>, Vec<f32>)> = steps
        .iter()
        .map(|step| {
            let seen = &store.all()[..step.visible];
            let query = seen.iter().map(|e| session.question_cosine(step.question, e.question.at())).collect();
            let template = match wants_scaffold && config.experience.lambda > 0.0 {
                true => seen
                    .iter()
                    .map(|e| session.template_cosine(run.template_similarity, step.question, e.question.at()))
                    .collect(),
                false => vec![0.0; seen.len()],
            };
            (query, template)
        })
        .collect();
    let queries: Vec<ScanQuery<'_>> = steps
        .iter()
        .zip(&cosines)
        .map(|(step, (query, template))| ScanQuery {
            activation: &bases[step.question].activation,
            cos_query: query,
            cos_template: wants_scaffold.then_some(template),
            alpha: config.experience.alpha,
            lambda: config.experience.lambda,
            k: config.experience.top_k as usize,
        })
        .collect();
    let found = session.prepared.backend.store_scan(store, &queries)?;
    session.shared.count(|work| work.store_scans += queries.len() as u64);
    drop(queries);
    for (step, found) in steps.iter_mut().zip(found) {
        step.scaffold = found.scaffold;
        let base = &bases[step.question].activation;
        // Section 3.4: with an empty visible store or no seed the base retriever runs untouched.
        if config.method == Method::NoFusion || base.is_empty() || found.top.is_empty() {
            continue;
        }
        let scores: Vec<f64> = found.top.iter().map(|hit| hit.score).collect();
        let experiences: Vec<_> = found.top.iter().map(|hit| &store.all()[hit.experience as usize]).collect();
        let confidences: Vec<f64> = experiences.iter().map(|e| f64::from(e.confidence)).collect();
        let weights = confidence_weights(&scores, &confidences, config.experience.tau_s);
        let maps: Vec<(f64, &SparseVector)> =
            weights.iter().copied().zip(experiences.iter().map(|e| &e.activation)).collect();
        step.fused = Some(fuse_activation(base, &maps, config.experience.beta, config.experience.normalize));
        step.matches = found.top.into_iter().zip(weights).collect();
    }
    let each = share(started, steps.len());
    for step in &mut steps {
        step.retrieval_us = each;
    }
    Ok(steps)
}

/// A retrieval still to be computed: the question and its seeds in order.
struct Job {
    key: Key,
    question: usize,
    seeds: Vec<(u32, f64)>,
}

/// What one graph retrieval depends on: settings, question, and the exact seeds in their order.
fn job_key(settings: &str, question: usize, seeds: &[(u32, f64)]) -> Key {
    KeyBuilder::default()
        .text(settings)
        .numbers([question as u64].into_iter())
        .numbers(seeds.iter().map(|&(entity, _)| u64::from(entity)))
        .numbers(seeds.iter().map(|&(_, score)| score.to_bits()))
        .finish()
}

/// Retrieves for all steps of all runs: equal work is done once, now or in an earlier block, and what no store touched comes from
/// the session. Returns how many graph retrievals were computed.
///
/// # Errors
/// When the backend fails.
pub fn retrieve(session: &Session, runs: &[Run], steps: &mut [Step]) -> Result<u64> {
    let mut computed = 0;
    let mut by_settings: BTreeMap<String, (RetrieveConfig, Vec<usize>)> = BTreeMap::new();
    for (i, step) in steps.iter().enumerate() {
        let config = &runs[step.run].plan.config.retrieve;
        by_settings.entry(format!("{config:?}")).or_insert_with(|| (config.clone(), Vec::new())).1.push(i);
    }
    for (config, members) in by_settings.into_values() {
        let started = Instant::now();
        let of = |i: usize| &steps[i];
        let (vanilla, graph): (Vec<usize>, Vec<usize>) =
            members.iter().partition(|&&i| runs[of(i).run].plan.config.method == Method::Vanilla);
        let (fused, linear): (Vec<usize>, Vec<usize>) = graph.iter().partition(|&&i| of(i).fused.is_some());
        let questions = |list: &[usize]| list.iter().map(|&i| of(i).question).collect::<Vec<_>>();
        let dense = session.vanilla(&config, &questions(&vanilla))?;
        let base = session.linear(&config, &questions(&linear))?;

        let settings = key(&config);
        let mut known: BTreeMap<Key, Arc<Retrieved>> = BTreeMap::new();
        let mut jobs: Vec<Job> = Vec::new();
        let mut waiting: BTreeSet<Key> = BTreeSet::new();
        let mut place: Vec<Key> = Vec::new();
        for &i in &fused {
            let step = of(i);
            let own = &session.prepared.bases[step.question].seeds;
            let order = step.fused.as_ref().map(|a0| seed_order(own, a0)).unwrap_or_default();
            let key = job_key(&settings, step.question, &order);
            place.push(key);
            if known.contains_key(&key) || waiting.contains(&key) {
                continue;
            }
            // Fusion may leave the seeds as they were, for example with beta = 0.
            let same = if order == *own { session.linear(&config, &[step.question])?.pop() } else { None };
            match same.or_else(|| session.shared.retrievals.get(step.question, &key)) {
                Some(retrieved) => {
                    known.insert(key, retrieved);
                }
                None => {
                    waiting.insert(key);
                    jobs.push(Job { key, question: step.question, seeds: order });
                }
            }
        }
        let batch: Vec<GraphQuery<'_>> =
            jobs.iter().map(|job| GraphQuery { question: job.question, seeds: &job.seeds }).collect();
        computed += batch.len() as u64;
        for (job, retrieved) in jobs.iter().zip(session.prepared.graph(&config, &batch)?) {
            known.insert(job.key, session.shared.retrievals.put(job.question, job.key, retrieved));
        }
        let seeded = graph.iter().filter(|&&i| !session.prepared.bases[of(i).question].seeds.is_empty()).count();
        session.shared.count(|work| work.retrievals.asked += seeded as u64);

        let each = share(started, members.len());
        let results = vanilla
            .iter()
            .zip(dense)
            .chain(linear.iter().zip(base))
            .chain(fused.iter().zip(place.iter().filter_map(|key| known.get(key).map(Arc::clone))));
        let results: Vec<(usize, Arc<Retrieved>)> = results.map(|(&i, r)| (i, r)).collect();
        for (i, retrieved) in results {
            steps[i].retrieved = retrieved;
            steps[i].retrieval_us += each;
        }
    }
    Ok(computed)
}
