//! After the answer: the gates and the store (equations 3, 15–19), in stream order, and the rows.
//!
//! Novelty of a block is scanned once against the store as it was before the block and then held against what the block itself
//! commits. Grounding is computed in one batch for every candidate that was novel before the block; a candidate that the block's own
//! commits make redundant drops its score again, as if it had never been computed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use rayon::prelude::*;

use crate::backend::{Hit, ScanQuery};
use crate::config::{ActivationScale, Method};
use crate::experience::fuse::new_above_threshold;
use crate::experience::record::Experience;
use crate::experience::summary::summarize;
use crate::gates::Decision;
use crate::gates::decide::{Checked, Thresholds, is_novel, should_store};
use crate::gates::grounding::{Candidate, Grounded};
use crate::gates::novelty::novelty_score;
use crate::generate::LlmStatus;
use crate::ids::QuestionId;
use crate::math::similarity::dual_channel_similarity;
use crate::math::sparse::{SparseVector, cosine, sparsify};
use crate::replay::answer::{Answered, Claimed};
use crate::replay::driver::Failure;
use crate::replay::journal::Record;
use crate::replay::matching::share;
use crate::replay::run::Run;
use crate::replay::session::Session;
use crate::trace::row::{ActivationCell, ClaimCell, ExperienceRow, MatchCell, PassageCell, SeedCell, TraceRow};
use crate::{Error, Result};

/// What is known of one candidate before commits.
struct Prospect {
    /// Most similar experience committed before the block.
    nearest: Option<Hit>,
    /// Claims, when the candidate was novel before the block.
    candidate: Option<Arc<Claimed>>,
    /// GS of that candidate.
    grounded: Option<Arc<Grounded>>,
    novelty_us: u64,
    grounding_us: u64,
}

fn has_answer(answered: &Answered) -> bool {
    let failed = matches!(answered.reply.response.status, LlmStatus::Error | LlmStatus::Empty);
    !failed && !answered.reading.parsed.prediction.trim().is_empty()
}

fn thresholds(run: &Run) -> Thresholds {
    Thresholds { tau_novel: run.plan.config.gates.tau_novel, tau_gs: run.plan.config.gates.tau_gs }
}

/// Scans novelty for the members of one run and prepares the claims of those that are novel.
fn novelty(session: &Session, run: &Run, answered: &[Answered]) -> Result<Vec<Prospect>> {
    let started = Instant::now();
    let config = &run.plan.config;
    let cosines: Vec<Vec<f32>> = answered
        .iter()
        .map(|a| {
            let all = run.store.all().iter();
            all.map(|e| session.question_cosine(a.step.question, e.question.at())).collect()
        })
        .collect();
    let queries: Vec<ScanQuery<'_>> = answered
        .iter()
        .zip(&cosines)
        .map(|(a, cos_query)| ScanQuery {
            activation: &session.prepared.bases[a.step.question].activation,
            cos_query,
            cos_template: None,
            alpha: config.experience.alpha,
            lambda: 0.0,
            k: 1,
        })
        .collect();
    let scans = session.prepared.backend.store_scan(&run.store, &queries)?;
    session.shared.count(|work| work.store_scans += queries.len() as u64);
    let novelty_us = share(started, answered.len());
    let prospects = answered.iter().zip(scans).map(|(a, scan)| {
        let nearest = scan.top.first().copied();
        let novel = is_novel(novelty_score(nearest.map(|h| h.score)), &thresholds(run));
        let candidate = (novel && has_answer(a)).then(|| a.claimed(session, run));
        Prospect { nearest, candidate, grounded: None, novelty_us, grounding_us: 0 }
    });
    Ok(prospects.collect())
}

/// Gates and commits a block of all runs; appends its records to the journals. A run that cannot be written or scored is named with its
/// error and commits nothing.
///
/// # Errors
/// When the backend fails; then no run commits anything.
pub fn write_back(session: &Session, runs: &mut [Run], answered: Vec<Answered>) -> Result<Vec<Failure>> {
    let mut by_run: Vec<Vec<Answered>> = runs.iter().map(|_| Vec::new()).collect();
    for a in answered {
        by_run[a.step.run].push(a);
    }
    let mut prospects: Vec<Vec<Prospect>> = runs
        .par_iter()
        .zip(&by_run)
        .map(|(run, members)| match run.plan.config.method.is_gated() {
            true => novelty(session, run, members),
            false => Ok(Vec::new()),
        })
        .collect::<Result<_>>()?;
    let mut failures = ground(session, runs, &mut prospects);
    for failure in &failures {
        by_run[failure.run].clear();
    }
    let written: Vec<Option<Failure>> = runs
        .par_iter_mut()
        .zip(by_run)
        .zip(prospects)
        .enumerate()
        .map(|(place, ((run, members), prospects))| {
            let committed_before = run.store.len();
            let mut prospects = prospects.into_iter();
            let mut records: Vec<Record> =
                members.into_iter().map(|a| commit(session, run, committed_before, a, prospects.next())).collect();
            records.last_mut()?.spent = run.take_spent();
            match run.journal.as_mut().map_or(Ok(()), |journal| journal.append(&records)) {
                Ok(()) => {
                    run.done += records.len();
                    None
                }
                Err(error) => Some(Failure { run: place, error }),
            }
        })
        .collect();
    failures.extend(written.into_iter().flatten());
    Ok(failures)
}

/// One batch of grounding a scorer; equal candidates, of any run and now or before, are scored once.
fn ground(session: &Session, runs: &mut [Run], prospects: &mut [Vec<Prospect>]) -> Vec<Failure> {
    // (run, place in its block) by scorer.
    let mut waiting: BTreeMap<String, Vec<(usize, usize)>> = BTreeMap::new();
    for (r, list) in prospects.iter().enumerate() {
        for i in (0..list.len()).filter(|&i| list[i].candidate.is_some()) {
            waiting.entry(runs[r].parts.grounding_key.clone()).or_default().push((r, i));
        }
    }
    let mut failures: Vec<Failure> = Vec::new();
    let shared_us = score_pairs_at_once(session, runs, prospects, &waiting);
    for members in waiting.into_values() {
        let Some(&(first, _)) = members.first() else { continue };
        let started = Instant::now();
        let parts = &runs[first].parts;
        let (new, batch) = ungrounded(runs, prospects, &members);
        let scored = match parts.grounding.score_sharing(&batch, &session.shared.pairs(&parts.entailment_key)) {
            Ok(scored) => scored,
            Err(error) => {
                // Nothing tells which candidate it was, so every run of the batch stops, the first with the error itself.
                let text = error.to_string();
                let mut concerned: Vec<usize> = members.iter().map(|&(r, _)| r).collect();
                concerned.dedup();
                failures.push(Failure { run: first, error });
                failures
                    .extend(concerned.into_iter().skip(1).map(|run| Failure { run, error: Error::work(text.clone()) }));
                continue;
            }
        };
        let pairs_of = |prospect: &Prospect| {
            prospect.candidate.iter().flat_map(|c| c.candidate()).flat_map(|c| &c.evidence).map(Vec::len).sum::<usize>()
                as u64
        };
        let pairs: u64 = members.iter().map(|&(r, i)| pairs_of(&prospects[r][i])).sum();
        session.shared.count(|work| {
            work.pairs.asked += if parts.entailment_key.is_empty() { 0 } else { pairs };
            work.candidates.asked += members.len() as u64;
            work.candidates.done += scored.len() as u64;
        });
        for ((r, claimed), grounded) in new.iter().zip(scored) {
            claimed.keep(&runs[*r], grounded);
        }
        let each = share(started, members.len()) + shared_us.get(&parts.entailment_key).copied().unwrap_or(0);
        for (r, i) in members {
            let prospect = &mut prospects[r][i];
            prospect.grounded = prospect.candidate.as_ref().and_then(|claimed| claimed.grounded(&runs[r]));
            prospect.grounding_us = each;
            let pairs = pairs_of(prospect);
            runs[r].count("grounding_candidates", 1);
            runs[r].count("grounding_pairs", pairs);
        }
    }
    failures
}

/// The members' candidates that no run with their scorer has had scored yet, each once.
fn ungrounded(
    runs: &[Run],
    prospects: &[Vec<Prospect>],
    members: &[(usize, usize)],
) -> (Vec<(usize, Arc<Claimed>)>, Vec<Candidate>) {
    let mut new: Vec<(usize, Arc<Claimed>)> = Vec::new();
    let mut batch: Vec<Candidate> = Vec::new();
    for &(r, i) in members {
        let Some(claimed) = &prospects[r][i].candidate else { continue };
        if claimed.grounded(&runs[r]).is_none() && !new.iter().any(|(_, known)| Arc::ptr_eq(known, claimed)) {
            batch.extend(claimed.candidate().cloned());
            new.push((r, Arc::clone(claimed)));
        }
    }
    (new, batch)
}

/// Where scorers differ in thresholds alone, has the pairs of all of them scored in one stream, so that each scorer finds its own known.
/// Returns the time of each stream, microseconds a candidate.
fn score_pairs_at_once(
    session: &Session,
    runs: &[Run],
    prospects: &[Vec<Prospect>],
    waiting: &BTreeMap<String, Vec<(usize, usize)>>,
) -> BTreeMap<String, u64> {
    let mut by_entailment: BTreeMap<&str, Vec<&[(usize, usize)]>> = BTreeMap::new();
    for members in waiting.values() {
        let key = members.first().map_or("", |&(r, _)| runs[r].parts.entailment_key.as_str());
        by_entailment.entry(key).or_default().push(members);
    }
    let mut times = BTreeMap::new();
    for (key, scorers) in by_entailment {
        let Some(&(first, _)) = scorers.first().and_then(|members| members.first()) else { continue };
        if key.is_empty() || scorers.len() < 2 {
            continue;
        }
        let started = Instant::now();
        let all = scorers.concat();
        let (_, batch) = ungrounded(runs, prospects, &all);
        // An error comes again, with its runs, when each scorer asks for itself.
        let _ = runs[first].parts.grounding.score_sharing(&batch, &session.shared.pairs(key));
        times.insert(key.to_owned(), share(started, all.len()));
    }
    times
}

/// η of equation 17 against one experience, the same bits as a scan gives.
fn redundancy(session: &Session, run: &Run, question: usize, experience: &Experience) -> f64 {
    let cos_query = f64::from(session.question_cosine(question, experience.question.at()));
    let cos_activation = cosine(&session.prepared.bases[question].activation, &experience.activation);
    dual_channel_similarity(run.plan.config.experience.alpha, cos_query, cos_activation)
}

/// The row's gate columns.
#[derive(Default)]
struct Gate {
    novelty: Option<f64>,
    nearest: Option<u32>,
    grounding: Option<f64>,
    claims: Vec<ClaimCell>,
}

/// Decides one candidate in its turn, stores it if it is accepted, and makes its record.
fn commit(
    session: &Session,
    run: &mut Run,
    committed_before: usize,
    answered: Answered,
    prospect: Option<Prospect>,
) -> Record {
    let started = Instant::now();
    let method = run.plan.config.method;
    let store_committed = run.store.len() as u32;
    let mut gate = Gate::default();
    let mut times = (None, None);
    let decision = match (prospect, has_answer(&answered)) {
        _ if !method.has_store() => Decision::GateOff,
        (_, false) => Decision::NoAnswer,
        (None, true) => Decision::GateOff,
        (Some(prospect), true) => {
            let mut nearest = prospect.nearest.map(|h| (h.experience, h.score));
            for (k, experience) in run.store.all().iter().enumerate().skip(committed_before) {
                let eta = redundancy(session, run, answered.step.question, experience);
                if nearest.is_none_or(|(_, best)| eta > best) {
                    nearest = Some((k as u32, eta));
                }
            }
            let ns = novelty_score(nearest.map(|(_, eta)| eta));
            gate.novelty = Some(ns);
            gate.nearest = nearest.map(|(k, _)| k);
            let novel = is_novel(ns, &thresholds(run));
            let in_turn = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            times = (Some(prospect.novelty_us + in_turn), novel.then_some(prospect.grounding_us));
            let checked = match (novel, prospect.grounded, prospect.candidate) {
                (true, Some(grounded), Some(candidate)) => {
                    gate.grounding = Some(grounded.gs);
                    gate.claims = claim_cells(&answered, &grounded);
                    Some(Checked { gs: grounded.gs, claims: candidate.candidate().map_or(0, |c| c.claims.len()) })
                }
                _ => None,
            };
            should_store(ns, checked, &thresholds(run))
        }
    };
    let accepted = match decision {
        Decision::Stored => Some(gate.grounding.unwrap_or(0.0) as f32),
        Decision::GateOff if method == Method::NoGate => Some(1.0),
        _ => None,
    };
    let experience = accepted.map(|confidence| {
        let experience = experience(session, run, &answered, confidence);
        let row = experience_row(session, run, &experience, store_committed);
        run.store.append(experience);
        row
    });
    let row = row(session, run, answered, store_committed, gate, decision, experience.is_some(), times);
    Record { row, experience, spent: None }
}

fn claim_cells(answered: &Answered, grounded: &Grounded) -> Vec<ClaimCell> {
    let first = answered.step.retrieved.ranking.first().map_or(0, |&(p, _)| p);
    grounded
        .claims
        .iter()
        .map(|claim| ClaimCell {
            text: claim.text.clone(),
            support: claim.support,
            // A claim without any evidence sentence names the first passage and an empty sentence.
            passage: claim.evidence.as_ref().map_or(first, |e| e.passage.0),
            evidence: claim.evidence.as_ref().map(|e| e.text.clone()).unwrap_or_default(),
            contradiction: claim.contradiction,
        })
        .collect()
}

/// Equation 4 for an accepted candidate. Numbers are rounded to `f32` here, once, so that a resumed run has the same store.
fn experience(session: &Session, run: &Run, answered: &Answered, confidence: f32) -> Experience {
    let config = &run.plan.config.experience;
    let a_final = answered.step.retrieved.activation();
    let scale = config.activation_scale == ActivationScale::Max;
    let map = sparsify(&a_final, config.epsilon, scale, config.max_entities as usize);
    let activation = SparseVector::from_assignments(map.iter().map(|(e, v)| (e, f64::from(v as f32))));
    let index = session.index();
    let named: Vec<(String, f64)> = a_final.iter().map(|(e, w)| (index.entities[e as usize].clone(), w)).collect();
    let question = &session.dataset.questions[answered.step.question];
    let summary = summarize(
        &question.text,
        &answered.reading.parsed.explanation,
        &named,
        &answered.reading.parsed.prediction,
        config.key_sentences as usize,
    );
    Experience {
        question: QuestionId::from(answered.step.question),
        stream_index: answered.step.t,
        activation,
        summary,
        answer: answered.reading.parsed.prediction.clone(),
        confidence,
    }
}

fn experience_row(session: &Session, run: &Run, experience: &Experience, id: u32) -> ExperienceRow {
    let question = &session.dataset.questions[experience.question.at()];
    ExperienceRow {
        experience: id,
        run_id: run.plan.run_id.clone(),
        stream_index: experience.stream_index.0,
        query_id: question.id.clone(),
        query: question.text.clone(),
        answer: experience.answer.clone(),
        summary: experience.summary.clone(),
        confidence: experience.confidence,
        activation: experience
            .activation
            .iter()
            .map(|(e, w)| ActivationCell { entity: session.index().entities[e as usize].clone(), weight: w as f32 })
            .collect(),
    }
}

#[expect(clippy::too_many_arguments, reason = "one row has many columns; each is named at the one call")]
fn row(
    session: &Session,
    run: &Run,
    answered: Answered,
    store_committed: u32,
    gate: Gate,
    decision: Decision,
    stored: bool,
    (novelty_us, grounding_us): (Option<u64>, Option<u64>),
) -> TraceRow {
    let config = &run.plan.config;
    let index = session.index();
    let step = &answered.step;
    let question = &session.dataset.questions[step.question];
    let base = &session.prepared.bases[step.question];
    let fused = step.fused.as_ref().unwrap_or(&base.activation);
    let graph = config.method != Method::Vanilla;
    let scaffold_question = step.scaffold.map(|(id, _)| run.store.all()[id as usize].question.at());
    let opportunity = run.stream.opportunities.get(step.t.at() - 1).copied().flatten();
    let time = |us: Option<u64>| us.filter(|_| config.replay.timings);
    TraceRow {
        run_id: run.plan.run_id.clone(),
        dataset: session.dataset.name.clone(),
        method: config.method.as_str().into(),
        order: config.order.clone(),
        seed: config.seed,
        stream_index: step.t.0,
        query_id: question.id.clone(),
        question: question.text.clone(),
        gold_answers: question.answers.iter().chain(&question.aliases).cloned().collect(),
        prediction: answered.reading.parsed.prediction.clone(),
        raw_response: answered.reply.response.raw.clone(),
        lag: config.replay.lag,
        store_visible: step.visible as u32,
        store_committed,
        fallback: step.retrieved.fallback.map(|f| f.as_str().into()),
        seeds: base
            .seeds
            .iter()
            .filter(|_| graph)
            .map(|&(e, score)| SeedCell { entity: index.entities[e as usize].clone(), score: score as f32 })
            .collect(),
        activation_base_n: if graph { base.activation.len() as u32 } else { 0 },
        activation_fused_n: if graph { fused.len() as u32 } else { 0 },
        activation_final_n: step.retrieved.activation().len() as u32,
        fused_new_above_threshold: step
            .fused
            .as_ref()
            .map_or(0, |a0| new_above_threshold(&base.activation, a0, config.retrieve.iteration_threshold) as u32),
        matches: step
            .matches
            .iter()
            .map(|(hit, weight)| MatchCell {
                experience: hit.experience,
                score: hit.score as f32,
                cos_query: hit.cos_query as f32,
                cos_activation: hit.cos_activation as f32,
                weight: *weight as f32,
            })
            .collect(),
        scaffold: step.scaffold.map(|(id, _)| id),
        scaffold_score: step.scaffold.map(|(_, score)| score as f32),
        scaffold_template_tfidf: scaffold_question
            .and_then(|source| run.stream.template_tfidf(step.question, source))
            .map(|cosine| cosine as f32),
        passages: step
            .retrieved
            .ranking
            .iter()
            .take(config.retrieve.top_k as usize)
            .map(|&(passage, score)| PassageCell { passage, score })
            .collect(),
        gold_passages: question.gold_passages.as_ref().map(|gold| gold.iter().map(|p| p.0).collect()),
        prompt_tokens: answered.reply.response.usage.prompt_tokens,
        completion_tokens: answered.reply.response.usage.completion_tokens,
        reasoning_tokens: answered.reply.response.usage.reasoning_tokens,
        cached_tokens: answered.reply.response.usage.cached_tokens,
        tokens_estimated: answered.reply.response.tokens_estimated,
        cost_usd: answered.cost_usd,
        llm_status: answered.reply.response.status,
        prompt_cut: answered.reply.response.prompt_cut,
        passages_cut: answered.reply.passages_cut,
        contain: answered.reading.contain,
        contain_word: answered.reading.contain_word,
        judge: answered.judge,
        judge_raw: answered.judge_raw.clone(),
        judge_agreement: answered.judge_agreement,
        novelty: gate.novelty.map(|ns| ns as f32),
        novelty_nearest: gate.nearest,
        grounding: gate.grounding.map(|gs| gs as f32),
        grounding_model: gate.grounding.map(|_| run.parts.grounding.model()),
        claims: gate.claims,
        stored,
        decision,
        reuse_entity: opportunity.map(|o| o.entity),
        reuse_graph: opportunity.map(|o| o.graph),
        reuse_template: opportunity.map(|o| o.template),
        ranked: step.retrieved.ranking.iter().take(crate::retrieve::RANK_DEPTH).map(|&(p, _)| p).collect(),
        retrieval_us: time(Some(step.retrieval_us)),
        llm_us: time(Some(answered.reply.response.elapsed_us)),
        judge_us: time(answered.judge_us),
        novelty_us: time(novelty_us),
        grounding_us: time(grounding_us),
    }
}
