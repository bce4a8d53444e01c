//! The judge's step: one batch of calls a block, over all runs that share the client.
//!
//! In: answered steps. Out: their judgement and its time. What can be said without asking is not asked: a blank answer is
//! incorrect, an answer that never came and a question without gold answer are unscored.

use std::sync::Arc;

use crate::Result;
use crate::generate::{Judgement, LlmStatus};
use crate::llm::judge::{Judge, verdict};
use crate::replay::answer::Answered;
use crate::replay::run::Run;
use crate::replay::session::Session;

/// Judges the answers of every run that has a judge.
pub fn judge(session: &Session, runs: &mut [Run], answered: &mut [Answered]) -> Result<()> {
    let mut waiting: Vec<(usize, Arc<Judge>)> = Vec::new();
    for (i, a) in answered.iter_mut().enumerate() {
        let Some(judge) = &runs[a.step.run].parts.judge else { continue };
        a.judge = without_asking(session, a);
        if a.judge == Judgement::NotRun {
            waiting.push((i, Arc::clone(judge)));
        }
    }
    while let Some((_, first)) = waiting.first() {
        let source = first.source.clone();
        let (members, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(_, judge)| judge.source.is(&source));
        waiting = rest;
        let mut calls = Vec::new();
        let mut counts = Vec::with_capacity(members.len());
        for (i, judge) in &members {
            let a = &answered[*i];
            let question = &session.dataset.questions[a.step.question];
            let golds: Vec<String> = question.answers.iter().chain(&question.aliases).cloned().collect();
            let of_one = judge.calls(&question.id, &question.text, &golds, &a.reading.parsed.prediction);
            counts.push(of_one.len());
            calls.extend(of_one);
        }
        let rehearsal = members.first().and_then(|(i, _)| runs[answered[*i].step.run].parts.rehearsal.clone());
        let outcomes = match rehearsal {
            Some(rehearsal) => {
                // Nothing hangs on a judgement, so counting is enough; a recording is not asked.
                source.client().map_or(Ok(()), |client| rehearsal.count_judge_calls(client, &calls))?;
                continue;
            }
            None => source.complete(&calls, None)?,
        };
        let mut outcomes = outcomes.as_slice();
        for ((i, _), count) in members.into_iter().zip(counts) {
            let (of_one, rest) = outcomes.split_at(count);
            outcomes = rest;
            let verdict = verdict(of_one);
            let run = &mut runs[answered[i].step.run];
            run.count("judge_votes", count as u64);
            run.count("judge_votes_agreeing", verdict.votes.iter().filter(|v| **v == verdict.judgement).count() as u64);
            answered[i].judge = verdict.judgement;
            answered[i].judge_us = Some(verdict.elapsed_us);
            answered[i].judge_agreement = Some(verdict.agreement as f32);
            answered[i].judge_raw = verdict.raw;
        }
    }
    Ok(())
}

/// `NotRun` where the judge must be asked.
fn without_asking(session: &Session, answered: &Answered) -> Judgement {
    let question = &session.dataset.questions[answered.step.question];
    let no_gold = question.answers.iter().chain(&question.aliases).all(|gold| gold.trim().is_empty());
    if no_gold || answered.reply.response.status == LlmStatus::Error {
        Judgement::Unscored
    } else if answered.reading.parsed.prediction.trim().is_empty() {
        Judgement::Incorrect
    } else {
        Judgement::NotRun
    }
}
