//! The answer: context (equation 14), reader, parsing and scoring.
//!
//! Equal requests of all runs, now or in an earlier block, are asked once: same reader, prompt, question, passages and scaffold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rayon::prelude::*;

use crate::gates::claims::extract;
use crate::gates::evidence::EvidencePool;
use crate::gates::grounding::{Candidate, Grounded};
use crate::generate::{
    Judgement, Marker, Oracle, Parsed, PromptPassage, Request, Response, assemble_context, contain, contain_word,
    parse_answer,
};
use crate::ids::PassageId;
use crate::replay::driver::Failure;
use crate::replay::matching::Step;
use crate::replay::run::Run;
use crate::replay::session::Session;
use crate::replay::shared::{Key, KeyBuilder};
use crate::{Error, Result};

/// What a reader said, and what follows from it alone.
pub struct Reply {
    /// What came back.
    pub response: Response,
    /// Passages that the budget shortened or left out of what was asked.
    pub passages_cut: u32,
    /// As each marker reads it.
    first: OnceLock<Arc<Reading>>,
    last: OnceLock<Arc<Reading>>,
}

/// A reply as one marker reads it.
pub struct Reading {
    /// Prediction and explanation.
    pub parsed: Parsed,
    /// spec 7: gold in the prediction.
    pub contain: Option<bool>,
    /// Its twin at token boundaries.
    pub contain_word: Option<bool>,
}

/// Claims of an explanation with their evidence in the passages given, and what scorers made of them. Replies with the same text share
/// it, whatever their scaffolds were.
#[derive(Default)]
pub struct Claimed {
    candidate: OnceLock<Candidate>,
    /// By scorer.
    grounded: Mutex<BTreeMap<String, Arc<Grounded>>>,
}

impl Claimed {
    /// The candidate; `None` only before [`Answered::claimed`] has made it.
    pub fn candidate(&self) -> Option<&Candidate> {
        self.candidate.get()
    }

    /// The grounding that some run with the same scorer has had computed.
    pub fn grounded(&self, run: &Run) -> Option<Arc<Grounded>> {
        let known = self.grounded.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&run.parts.grounding_key).map(Arc::clone)
    }

    /// Keeps a grounding for the other runs.
    pub fn keep(&self, run: &Run, grounded: Grounded) {
        let mut kept = self.grounded.lock().unwrap_or_else(PoisonError::into_inner);
        kept.entry(run.parts.grounding_key.clone()).or_insert_with(|| Arc::new(grounded));
    }
}

impl Reply {
    fn new(response: Response, passages_cut: u32) -> Self {
        Self { response, passages_cut, first: OnceLock::new(), last: OnceLock::new() }
    }

    fn reading(&self, session: &Session, question: usize, marker: Marker) -> Arc<Reading> {
        let place = match marker {
            Marker::First => &self.first,
            Marker::Last => &self.last,
        };
        let read = || {
            let question = &session.dataset.questions[question];
            let parsed = parse_answer(&self.response.raw, marker);
            Arc::new(Reading {
                contain: contain(&parsed.prediction, &question.answers),
                contain_word: contain_word(&parsed.prediction, &question.answers, &question.aliases),
                parsed,
            })
        };
        Arc::clone(place.get_or_init(read))
    }
}

/// A step with its answer.
pub struct Answered {
    /// The step.
    pub step: Step,
    /// What came back.
    pub reply: Arc<Reply>,
    /// What it says.
    pub reading: Arc<Reading>,
    /// Dollars, where tokens and price are known.
    pub cost_usd: Option<f64>,
    /// What the judge said; `NotRun` until it is asked.
    pub judge: Judgement,
    /// Time of its calls, microseconds.
    pub judge_us: Option<u64>,
    /// The text of each of its calls; empty where it was not asked.
    pub judge_raw: Vec<String>,
    /// Share of them that agree with what the judge said.
    pub judge_agreement: Option<f32>,
}

impl Answered {
    /// Claims of explanation and answer with their evidence in the passages given, equation 15's cl_i and p_j.
    pub fn claimed(&self, session: &Session, run: &Run) -> Arc<Claimed> {
        let gates = &run.plan.config.gates;
        let (k, window) = (gates.evidence_per_claim, gates.premise_window());
        let Parsed { explanation, prediction, .. } = &self.reading.parsed;
        let key = KeyBuilder::default()
            .text(explanation)
            .text(prediction)
            .text(&run.parts.budget_key)
            .numbers([u64::from(k), u64::from(window)].into_iter())
            .numbers(given_ids(run, &self.step).map(u64::from))
            .finish();
        let claimed = session.shared.claimed.entry(self.step.question, key, Claimed::default);
        claimed.candidate.get_or_init(|| {
            let claims = extract(explanation, prediction);
            let pool = EvidencePool::new(&given(session, run, &self.step).0, window as usize);
            Candidate {
                query_id: session.dataset.questions[self.step.question].id.clone(),
                stream_index: self.step.t,
                evidence: claims.iter().map(|claim| pool.best(claim, k as usize)).collect(),
                claims,
            }
        });
        claimed
    }
}

/// The passages that a step's reader is given, in rank order.
fn given_ids<'a>(run: &Run, step: &'a Step) -> impl ExactSizeIterator<Item = u32> + use<'a> {
    step.retrieved.ranking.iter().take(run.plan.config.retrieve.top_k as usize).map(|&(p, _)| p)
}

/// What the reader sees of them, and how many the budget shortened or left out.
fn given(session: &Session, run: &Run, step: &Step) -> (Vec<PromptPassage>, u32) {
    let passages = given_ids(run, step)
        .map(|p| PromptPassage { id: PassageId(p), text: session.dataset.passages[p as usize].text.clone() })
        .collect();
    match &run.parts.budget {
        Some(budget) => budget.fit(passages),
        None => (passages, 0),
    }
}

fn scaffold<'a>(run: &'a Run, step: &Step) -> Option<&'a str> {
    step.scaffold.map(|(id, _)| run.store.all()[id as usize].summary.as_str())
}

/// What the reply depends on: in one dataset, question and passages are known by their places.
fn key(run: &Run, step: &Step) -> Key {
    let scaffold = scaffold(run, step);
    KeyBuilder::default()
        .text(&run.parts.reader_key)
        .text(run.parts.prompt.hash())
        .numbers([step.question as u64, u64::from(scaffold.is_some())].into_iter())
        .numbers(given_ids(run, step).map(u64::from))
        .text(scaffold.unwrap_or_default())
        .finish()
}

fn request(session: &Session, run: &Run, step: &Step) -> (Request, u32) {
    let question = &session.dataset.questions[step.question];
    let (passages, passages_cut) = given(session, run, step);
    let scaffold = scaffold(run, step).map(str::to_owned);
    let prompt = assemble_context(&run.parts.prompt, &passages, scaffold.as_deref(), &question.text);
    let request = Request {
        query_id: question.id.clone(),
        question: question.text.clone(),
        passages,
        scaffold,
        prompt,
        oracle: Oracle { answers: question.answers.clone(), gold_passages: question.gold_passages.clone() },
    };
    (request, passages_cut)
}

/// Asks the readers what no run has asked before; runs with the same reader are asked as one batch. Answers keep the order of the
/// steps; a run whose reader cannot go on has none, and is named with its error.
pub fn answer(session: &Session, runs: &[Run], steps: Vec<Step>) -> (Vec<Answered>, Vec<Failure>) {
    let keys: Vec<Key> = steps.par_iter().map(|step| key(&runs[step.run], step)).collect();
    let mut seen = BTreeSet::new();
    let mut by_reader: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut replies: BTreeMap<Key, Arc<Reply>> = BTreeMap::new();
    for (i, (step, key)) in steps.iter().zip(&keys).enumerate() {
        if !seen.insert(*key) {
            continue;
        }
        match session.shared.replies.get(step.question, key) {
            Some(known) => {
                replies.insert(*key, known);
            }
            None => by_reader.entry(&runs[step.run].parts.reader_key).or_default().push(i),
        }
    }
    let mut failures: Vec<Failure> = Vec::new();
    for missing in by_reader.into_values() {
        let asked = ask(session, runs, &steps, &missing);
        let mut take = |members: &[usize], responses: Vec<(Response, u32)>| {
            for (&i, (response, cut)) in members.iter().zip(responses) {
                let parts = &runs[steps[i].run].parts;
                // What no model was asked cost nothing, whatever its tokens would have cost.
                let usd = if parts.asks() { parts.cost(&response).unwrap_or(0.0) } else { 0.0 };
                session.shared.count(|work| {
                    work.requests.done += 1;
                    work.usd += usd;
                });
                replies
                    .insert(keys[i], session.shared.replies.put(steps[i].question, keys[i], Reply::new(response, cut)));
            }
        };
        match asked {
            Ok(responses) => take(&missing, responses),
            // Somebody's request stops the batch: run by run it shows whose.
            Err(_) => {
                let concerned: BTreeSet<Key> = missing.iter().map(|&i| keys[i]).collect();
                let mut done: BTreeSet<Key> = BTreeSet::new();
                for run in 0..runs.len() {
                    let mut own: Vec<usize> = Vec::new();
                    for i in (0..steps.len()).filter(|&i| steps[i].run == run && concerned.contains(&keys[i])) {
                        if !done.contains(&keys[i]) && !own.iter().any(|&o| keys[o] == keys[i]) {
                            own.push(i);
                        }
                    }
                    match ask(session, runs, &steps, &own) {
                        Ok(responses) => {
                            done.extend(own.iter().map(|&i| keys[i]));
                            take(&own, responses);
                        }
                        Err(error) => failures.push(Failure { run, error }),
                    }
                }
            }
        }
    }
    let answered: Vec<Option<Answered>> = steps
        .into_par_iter()
        .zip(&keys)
        .map(|(step, key)| {
            let parts = &runs[step.run].parts;
            let reply = replies.get(key).map(Arc::clone)?;
            Some(Answered {
                reading: reply.reading(session, step.question, parts.marker),
                cost_usd: parts.cost(&reply.response),
                judge: Judgement::NotRun,
                judge_us: None,
                judge_raw: Vec::new(),
                judge_agreement: None,
                reply,
                step,
            })
        })
        .collect();
    let failed: BTreeSet<usize> = failures.iter().map(|f| f.run).collect();
    let answered: Vec<Answered> =
        answered.into_iter().flatten().filter(|a: &Answered| !failed.contains(&a.step.run)).collect();
    session.shared.count(|work| {
        work.queries += answered.len() as u64;
        work.requests.asked += answered.len() as u64;
    });
    (answered, failures)
}

/// One batch for the reader of the first member's run.
fn ask(session: &Session, runs: &[Run], steps: &[Step], members: &[usize]) -> Result<Vec<(Response, u32)>> {
    let Some(&first) = members.first() else { return Ok(Vec::new()) };
    let reader = &runs[steps[first].run].parts.reader;
    let (batch, cut): (Vec<Request>, Vec<u32>) =
        members.par_iter().map(|&i| request(session, &runs[steps[i].run], &steps[i])).unzip();
    let responses = reader.generate(&batch)?;
    if responses.len() != batch.len() {
        return Err(Error::work(format!(
            "the reader {} gave {} answers to {} requests",
            reader.name(),
            responses.len(),
            batch.len()
        )));
    }
    Ok(responses.into_iter().zip(cut).collect())
}
